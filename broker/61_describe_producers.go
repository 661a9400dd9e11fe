package broker

import (
	"context"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

func handleDescribeProducers(_ context.Context, c *Conn, _ wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.DescribeProducersRequest)
	return func(context.Context) Reply {
		return Reply{Body: c.srv.describeProducers(req)}
	}
}

func (s *server) describeProducers(req *wire.DescribeProducersRequest) *wire.DescribeProducersResponse {
	im := s.backend.image()
	resp := &wire.DescribeProducersResponse{Topics: make([]wire.DescribeProducersTopicResponse, len(req.Topics))}
	for i := range req.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		out.Name = in.Name
		out.Partitions = make([]wire.DescribeProducersPartitionResponse, len(in.PartitionIndexes))
		t, err := topicOf(im, 0, 1, in.Name, [16]byte{})
		for j, index := range in.PartitionIndexes {
			to := &out.Partitions[j]
			to.PartitionIndex = index
			partErr := err
			if t != nil {
				to.ActiveProducers, partErr = s.producersOf(im, fsm.TopicPartition{Topic: t.ID, Partition: index})
			}
			to.ErrorCode, to.ErrorMessage = s.code(partErr), messageOf(partErr)
		}
	}
	return resp
}

func (s *server) producersOf(im *fsm.Image, tp fsm.TopicPartition) ([]wire.ProducerState, error) {
	p, err := s.backend.ops.find(im, tp)
	if err != nil {
		return nil, err
	}
	producers, err := p.Producers()
	if err != nil {
		return nil, err
	}
	out := make([]wire.ProducerState, len(producers))
	for i, from := range producers {
		out[i] = wire.DefaultProducerState()
		out[i].ProducerID, out[i].ProducerEpoch = from.ID, int32(from.Epoch)
		out[i].LastSequence, out[i].LastTimestamp = from.LastSequence, from.LastTimestamp
		out[i].CoordinatorEpoch = -1 // no transaction has touched it
	}
	return out, nil
}
