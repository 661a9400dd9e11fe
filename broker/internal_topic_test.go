package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/wire"
)

// Whoever asks for the coordinator of a group first has Kafka's topic of offsets
// made, once, with one partition; who asks for another coordinator does not.
func TestOffsetsTopicIsMade(t *testing.T) {
	ts := newTestServer(t, nil)
	w := ts.dial()
	w.ask(findRequest(4, wire.CoordinatorGroup, "g")) // there is no coordinator yet
	ts.image.own(selfID)
	w.ask(findRequest(4, wire.CoordinatorTransaction, "t"))
	ts.srv.creator.idle(t)
	if got := ts.admin.names(); len(got) != 0 {
		t.Fatalf("created %q", got)
	}
	w.ask(findRequest(4, wire.CoordinatorGroup, "g", "h"))
	ts.srv.creator.idle(t)
	if got := ts.admin.created; len(got) == 0 || got[0].Name != offsetsTopic || got[0].Partitions != 1 {
		t.Fatalf("created %+v", got)
	}
	made := len(ts.admin.names())
	ts.topic(offsetsTopic, nil, selfID)
	w.ask(findRequest(4, wire.CoordinatorGroup, "g"))
	ts.srv.creator.idle(t)
	if got := ts.admin.names(); len(got) != made {
		t.Errorf("created again: %q", got)
	}
}

// Clients are told that the topic is internal, and cannot write to it.
func TestOffsetsTopicIsInternal(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.topic(offsetsTopic, nil, selfID)
	ts.topic("orders", nil, selfID)
	w := ts.dial()
	for _, topic := range w.ask(metadataRequest(12, offsetsTopic, "orders")).(*kmsg.MetadataResponse).Topics {
		if topic.IsInternal != (*topic.Topic == offsetsTopic) {
			t.Errorf("metadata: %+v", topic)
		}
	}
	for _, topic := range w.ask(describeRequest(10, offsetsTopic, "orders")).(*kmsg.DescribeTopicPartitionsResponse).Topics {
		if topic.IsInternal != (*topic.Topic == offsetsTopic) {
			t.Errorf("describe: %+v", topic)
		}
	}
	p := w.ask(produceRequest(9, -1, offsetsTopic, records(1, 5))).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if wire.Code(p.ErrorCode) != wire.InvalidTopic || p.BaseOffset != -1 {
		t.Errorf("produce: %+v", p)
	}
}
