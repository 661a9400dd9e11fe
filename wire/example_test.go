package wire_test

import (
	"fmt"

	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/codec"
)

// A broker decodes a frame and answers it. The records of the answer come from a
// file: the encoder leaves a hole for them.
func Example() {
	asked := wire.NewFetchRequest()
	asked.Topics = []wire.FetchTopic{{Topic: "logs", Partitions: []wire.FetchPartition{{FetchOffset: 42}}}}
	frame, err := wire.EncodeRequest(nil, wire.RequestHeader{Key: wire.KeyFetch, Version: 11, CorrelationID: 7}, asked)
	if err != nil {
		panic(err)
	}

	body := frame[wire.FramePrefix:]
	h, req, err := wire.DecodeRequest(body, codec.Budget(len(body)))
	if err != nil {
		panic(err)
	}
	topic := req.(*wire.FetchRequest).Topics[0]
	fmt.Println(h.Key, h.Version, topic.Topic, topic.Partitions[0].FetchOffset)

	p := wire.DefaultFetchPartitionResponse()
	p.HighWatermark, p.RecordsSize = 50, 1000
	answer := &wire.FetchResponse{Responses: []wire.FetchTopicResponse{{Topic: "logs", Partitions: []wire.FetchPartitionResponse{p}}}}
	head, holes, err := wire.EncodeResponse(nil, h.Head(), answer)
	if err != nil {
		panic(err)
	}
	fmt.Println(len(head), holes)
	// Output:
	// Fetch 11 logs 42
	// 74 [{74 1000}]
}
