package broker

import (
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

func createRequest(version int16, names ...string) *kmsg.CreateTopicsRequest {
	r := kmsg.NewPtrCreateTopicsRequest()
	r.SetVersion(version)
	r.TimeoutMillis = 10_000
	for _, n := range names {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = n, 3, 2
		r.Topics = append(r.Topics, t)
	}
	return r
}

func TestCreateTopics(t *testing.T) {
	for v := int16(2); v <= 7; v++ {
		ts := newTestServer(t, nil)
		ts.admin.answer = controller.TopicResult{ID: fsm.TopicID{7}, Partitions: 3, RF: 2}
		r := createRequest(v, "a", "b")
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = "max.message.bytes", kmsg.StringPtr("1000")
		r.Topics[1].Configs = append(r.Topics[1].Configs, c)
		resp := ts.dial().ask(r).(*kmsg.CreateTopicsResponse)
		if len(resp.Topics) != 2 || resp.Topics[0].Topic != "a" || resp.Topics[1].Topic != "b" {
			t.Fatalf("version %d: topics %+v", v, resp.Topics)
		}
		got := resp.Topics[1]
		if got.ErrorCode != 0 {
			t.Errorf("version %d: code %d", v, got.ErrorCode)
		}
		if v >= 5 && (got.NumPartitions != 3 || got.ReplicationFactor != 2 || len(got.Configs) != len(fsm.TopicConfigs())+len(fsm.InertTopicConfigs())) {
			t.Errorf("version %d: %+v", v, got)
		}
		if v >= 5 {
			i := slices.IndexFunc(got.Configs, func(c kmsg.CreateTopicsResponseTopicConfig) bool { return c.Name == "max.message.bytes" })
			if *got.Configs[i].Value != "1000" || got.Configs[i].Source != 1 {
				t.Errorf("version %d: config %+v", v, got.Configs[i])
			}
		}
		if v >= 7 && got.TopicID != [16]byte{7} {
			t.Errorf("version %d: topic id %x", v, got.TopicID)
		}
		want := ts.admin.created[1]
		if want.Name != "b" || want.Partitions != 3 || want.RF != 2 || want.ValidateOnly || want.Configs[0] != [2]string{"max.message.bytes", "1000"} {
			t.Errorf("version %d: the controller was asked for %+v", v, want)
		}
	}
}

func TestCreateTopicsValidateOnly(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.admin.answer = controller.TopicResult{ID: fsm.TopicID{7}, Partitions: 3, RF: 2}
	r := createRequest(7, "a")
	r.ValidateOnly = true
	got := ts.dial().ask(r).(*kmsg.CreateTopicsResponse).Topics[0]
	if got.ErrorCode != 0 || got.TopicID != [16]byte{} || !ts.admin.created[0].ValidateOnly {
		t.Errorf("answer %+v", got)
	}
}

func TestCreateTopicsRefused(t *testing.T) {
	assign := func(indexes ...int32) []kmsg.CreateTopicsRequestTopicReplicaAssignment {
		var out []kmsg.CreateTopicsRequestTopicReplicaAssignment
		for _, i := range indexes {
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Partition, a.Replicas = i, []int32{1, 2}
			out = append(out, a)
		}
		return out
	}
	tests := []struct {
		name   string
		change func(t *kmsg.CreateTopicsRequestTopic)
		want   wire.Code
	}{
		{"assignment and counts", func(t *kmsg.CreateTopicsRequestTopic) { t.ReplicaAssignment = assign(0) }, wire.InvalidRequest},
		{"assignment with a gap", func(t *kmsg.CreateTopicsRequestTopic) {
			t.NumPartitions, t.ReplicationFactor, t.ReplicaAssignment = -1, -1, assign(0, 2)
		}, wire.InvalidReplicaAssignment},
		{"assignment twice", func(t *kmsg.CreateTopicsRequestTopic) {
			t.NumPartitions, t.ReplicationFactor, t.ReplicaAssignment = -1, -1, assign(0, 0)
		}, wire.InvalidReplicaAssignment},
		{"assignment of partition -1", func(t *kmsg.CreateTopicsRequestTopic) {
			t.NumPartitions, t.ReplicationFactor, t.ReplicaAssignment = -1, -1, assign(-1)
		}, wire.InvalidReplicaAssignment},
		{"config without value", func(t *kmsg.CreateTopicsRequestTopic) {
			t.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms"}}
		}, wire.InvalidConfig},
	}
	for _, tt := range tests {
		ts := newTestServer(t, nil)
		r := createRequest(7, "bad", "good")
		tt.change(&r.Topics[0])
		got := ts.dial().ask(r).(*kmsg.CreateTopicsResponse).Topics
		if wire.Code(got[0].ErrorCode) != tt.want || got[0].ErrorMessage == nil || got[0].Configs != nil {
			t.Errorf("%s: %v, want %v", tt.name, wire.Code(got[0].ErrorCode), tt.want)
		}
		if got[1].ErrorCode != 0 || len(ts.admin.created) != 1 {
			t.Errorf("%s: the other topic: code %d", tt.name, got[1].ErrorCode)
		}
	}
}

func TestCreateTopicsDuplicate(t *testing.T) {
	ts := newTestServer(t, nil)
	got := ts.dial().ask(createRequest(5, "a", "b", "a")).(*kmsg.CreateTopicsResponse).Topics
	if got[0].ErrorCode != 42 || got[1].ErrorCode != 0 || got[2].ErrorCode != 42 || len(ts.admin.created) != 1 {
		t.Errorf("codes %d, %d, %d", got[0].ErrorCode, got[1].ErrorCode, got[2].ErrorCode)
	}
}

func TestCreateTopicsAssignment(t *testing.T) {
	ts := newTestServer(t, nil)
	r := createRequest(4, "a")
	r.Topics[0].NumPartitions, r.Topics[0].ReplicationFactor = -1, -1
	for _, i := range []int32{1, 0} {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = i, []int32{2 - i, 1 + i}
		r.Topics[0].ReplicaAssignment = append(r.Topics[0].ReplicaAssignment, a)
	}
	ts.dial().ask(r)
	got := ts.admin.created[0].Assignment
	if len(got) != 2 || !slices.Equal(got[0], []fsm.BrokerID{2, 1}) || !slices.Equal(got[1], []fsm.BrokerID{1, 2}) {
		t.Errorf("assignment %v", got)
	}
}

func TestCreateTopicsControllerErrors(t *testing.T) {
	tests := []struct {
		name   string
		answer controller.TopicResult
		err    error
		want   wire.Code
	}{
		{"topic exists", controller.TopicResult{Outcome: controller.Outcome{Err: wire.TopicAlreadyExists, Msg: "topic a exists"}}, nil, wire.TopicAlreadyExists},
		{"no controller", controller.TopicResult{}, controller.ErrNoController, wire.NotController},
		{"unknown outcome", controller.TopicResult{}, controller.ErrUnknown, wire.RequestTimedOut},
		{"surprise", controller.TopicResult{}, errors.New("surprise"), wire.UnknownServerError},
	}
	for _, tt := range tests {
		ts := newTestServer(t, nil)
		ts.admin.answer, ts.admin.err = tt.answer, tt.err
		got := ts.dial().ask(createRequest(5, "a")).(*kmsg.CreateTopicsResponse).Topics[0]
		if wire.Code(got.ErrorCode) != tt.want || got.ErrorMessage == nil {
			t.Errorf("%s: %v %v, want %v", tt.name, wire.Code(got.ErrorCode), got.ErrorMessage, tt.want)
		}
	}
}

func TestCreateTopicsTimeout(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.admin.block = true
	r := createRequest(5, "a")
	r.TimeoutMillis = 30
	if got := ts.dial().ask(r).(*kmsg.CreateTopicsResponse).Topics[0]; wire.Code(got.ErrorCode) != wire.RequestTimedOut {
		t.Errorf("code %v, want a timeout", wire.Code(got.ErrorCode))
	}
}

// What comes after a CreateTopics on a connection is not begun before it is done.
func TestCreateTopicsMutes(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.topic("orders", nil, selfID)
	ts.admin.block = true
	w := ts.dial()
	create := createRequest(5, "a")
	create.TimeoutMillis = 100
	corr := w.send(create)
	produce := produceRequest(9, 1, "orders", records(1, 1))
	next := w.send(produce)
	w.receive(create, corr)
	w.receive(produce, next)
	if parts[0].appends != 1 {
		t.Errorf("%d appends", parts[0].appends)
	}
}

func TestDeleteTopics(t *testing.T) {
	for v := int16(1); v <= 6; v++ {
		ts := newTestServer(t, nil)
		id, _ := ts.topic("orders", nil, selfID)
		r := kmsg.NewPtrDeleteTopicsRequest()
		r.SetVersion(v)
		r.TimeoutMillis = 1000
		r.TopicNames = []string{"orders", "missing", "orders"}
		for _, n := range r.TopicNames {
			r.Topics = append(r.Topics, kmsg.DeleteTopicsRequestTopic{Topic: kmsg.StringPtr(n)})
		}
		got := ts.dial().ask(r).(*kmsg.DeleteTopicsResponse).Topics
		if got[0].ErrorCode != 0 || got[1].ErrorCode != 3 || got[2].ErrorCode != 42 {
			t.Errorf("version %d: codes %d, %d, %d; want 0, 3, 42", v, got[0].ErrorCode, got[1].ErrorCode, got[2].ErrorCode)
		}
		if v >= 6 && got[0].TopicID != id || v >= 5 && got[1].ErrorMessage == nil {
			t.Errorf("version %d: %+v", v, got)
		}
		if !slices.Equal(ts.admin.deleted, []fsm.TopicID{id}) {
			t.Errorf("version %d: deleted %x", v, ts.admin.deleted)
		}
	}
}

func TestDeleteTopicsByID(t *testing.T) {
	ts := newTestServer(t, nil)
	id, _ := ts.topic("orders", nil, selfID)
	r := kmsg.NewPtrDeleteTopicsRequest()
	r.SetVersion(6)
	r.Topics = []kmsg.DeleteTopicsRequestTopic{
		{TopicID: id}, {TopicID: [16]byte{1}}, {Topic: kmsg.StringPtr("orders"), TopicID: id}, {},
	}
	got := ts.dial().ask(r).(*kmsg.DeleteTopicsResponse).Topics
	if got[0].ErrorCode != 0 || got[0].Topic == nil || *got[0].Topic != "orders" {
		t.Errorf("by id: %+v", got[0])
	}
	if got[1].ErrorCode != 100 || got[1].Topic != nil || got[1].TopicID != [16]byte{1} {
		t.Errorf("by unknown id: %+v", got[1])
	}
	if got[2].ErrorCode != 42 || got[3].ErrorCode != 42 {
		t.Errorf("by both: %d, by neither: %d; want 42", got[2].ErrorCode, got[3].ErrorCode)
	}
}

func TestDeleteTopicsControllerErrors(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.topic("orders", nil, selfID)
	r := kmsg.NewPtrDeleteTopicsRequest()
	r.SetVersion(3)
	r.TopicNames, r.TimeoutMillis = []string{"orders"}, 1000
	ts.admin.answer = controller.TopicResult{Outcome: controller.Outcome{Err: wire.UnknownTopicOrPartition, Msg: "gone"}}
	if got := ts.dial().ask(r).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode; got != 3 {
		t.Errorf("code %d, want 3", got)
	}
	ts.admin.answer, ts.admin.err = controller.TopicResult{}, controller.ErrUnknown
	if got := ts.dial().ask(r).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode; got != 7 {
		t.Errorf("code %d, want 7", got)
	}
}

func TestInitProducerID(t *testing.T) {
	ts := newTestServer(t, nil)
	for v := int16(0); v <= 5; v++ {
		r := kmsg.NewPtrInitProducerIDRequest()
		r.SetVersion(v)
		r.ProducerID, r.ProducerEpoch = -1, -1
		if v >= 3 {
			r.ProducerID, r.ProducerEpoch = 77, 3 // an id that it had before
		}
		got := ts.dial().ask(r).(*kmsg.InitProducerIDResponse)
		if got.ErrorCode != 0 || got.ProducerID != 1001+int64(v) || got.ProducerEpoch != 0 {
			t.Errorf("version %d: %+v", v, got)
		}
	}
	ask := func(id *string) *kmsg.InitProducerIDResponse {
		r := kmsg.NewPtrInitProducerIDRequest()
		r.SetVersion(4)
		r.TransactionalID = id
		return ts.dial().ask(r).(*kmsg.InitProducerIDResponse)
	}
	got := ask(kmsg.StringPtr("txn"))
	if code := wire.Code(got.ErrorCode); code != wire.UnsupportedVersion || code.Retriable() || got.ProducerID != -1 {
		t.Errorf("transactional id: %+v", got)
	}
	if got := ask(kmsg.StringPtr("")); got.ErrorCode != 42 {
		t.Errorf("empty transactional id: code %d, want 42", got.ErrorCode)
	}
	ts.mu.Lock()
	ts.pidErr = controller.ErrNoController
	ts.mu.Unlock()
	if got := ask(nil); wire.Code(got.ErrorCode) != wire.CoordinatorLoadInProgress || got.ProducerID != -1 {
		t.Errorf("no block of ids: %+v, want a retriable code", got)
	}
}
