package broker

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

// metadataRequest asks for topics by name; nil asks for all.
func metadataRequest(version int16, names ...string) *kmsg.MetadataRequest {
	r := kmsg.NewPtrMetadataRequest()
	r.SetVersion(version)
	for _, n := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(n)
		r.Topics = append(r.Topics, t)
	}
	return r
}

func TestMetadataAllVersions(t *testing.T) {
	ts := newTestServer(t, nil)
	id, _ := ts.topic("orders", nil, selfID, otherID)
	for v := int16(0); v <= 13; v++ {
		resp := ts.dial().ask(metadataRequest(v, "orders", "missing", "orders", "bad name")).(*kmsg.MetadataResponse)
		if len(resp.Brokers) != 2 || resp.Brokers[0].NodeID != 1 || resp.Brokers[0].Host != "host1" || resp.Brokers[1].Port != 9002 {
			t.Errorf("version %d: brokers %+v, want the two that are not fenced", v, resp.Brokers)
		}
		if v >= 1 && (resp.ControllerID != 1 || resp.Brokers[0].Rack == nil || *resp.Brokers[0].Rack != "r1") {
			t.Errorf("version %d: controller %d, rack %v", v, resp.ControllerID, resp.Brokers[0].Rack)
		}
		if v >= 2 && (resp.ClusterID == nil || *resp.ClusterID != "test-cluster") {
			t.Errorf("version %d: cluster id %v", v, resp.ClusterID)
		}
		if len(resp.Topics) != 3 {
			t.Fatalf("version %d: %d topics, want each name once", v, len(resp.Topics))
		}
		checkOrders(t, v, id, resp.Topics[0])
		if got := resp.Topics[1]; got.ErrorCode != 3 || *got.Topic != "missing" {
			t.Errorf("version %d: missing topic: %+v", v, got)
		}
		if got := resp.Topics[2]; got.ErrorCode != 17 {
			t.Errorf("version %d: impossible name: code %d, want 17", v, got.ErrorCode)
		}
	}
}

func checkOrders(t *testing.T, v int16, id fsm.TopicID, got kmsg.MetadataResponseTopic) {
	t.Helper()
	if got.ErrorCode != 0 || *got.Topic != "orders" || len(got.Partitions) != 2 || got.IsInternal {
		t.Fatalf("version %d: topic %+v", v, got)
	}
	if v >= 10 && got.TopicID != id {
		t.Errorf("version %d: topic id %x, want %x", v, got.TopicID, id)
	}
	p := got.Partitions[1]
	if p.ErrorCode != 0 || p.Partition != 1 || p.Leader != 2 || !slices.Equal(p.Replicas, []int32{1, 2, 3}) || !slices.Equal(p.ISR, []int32{1, 2}) {
		t.Errorf("version %d: partition %+v", v, p)
	}
	if v >= 5 && !slices.Equal(p.OfflineReplicas, []int32{3}) {
		t.Errorf("version %d: offline replicas %v, want the fenced one", v, p.OfflineReplicas)
	}
	if v >= 7 && p.LeaderEpoch < 0 {
		t.Errorf("version %d: leader epoch %d", v, p.LeaderEpoch)
	}
}

// Null means all topics and empty none; in version 0 empty means all.
func TestMetadataAllAndNone(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.topic("b", nil, selfID)
	ts.topic("a", nil, selfID)
	for v := int16(0); v <= 13; v++ {
		all := metadataRequest(v)
		if v == 0 {
			all.Topics = []kmsg.MetadataRequestTopic{}
		}
		if got := ts.dial().ask(all).(*kmsg.MetadataResponse).Topics; len(got) != 2 || *got[0].Topic != "a" {
			t.Errorf("version %d: all topics: %+v", v, got)
		}
		if v == 0 {
			continue
		}
		none := metadataRequest(v)
		none.Topics = []kmsg.MetadataRequestTopic{}
		if got := ts.dial().ask(none).(*kmsg.MetadataResponse).Topics; len(got) != 0 {
			t.Errorf("version %d: no topics: %+v", v, got)
		}
	}
}

func TestMetadataByID(t *testing.T) {
	ts := newTestServer(t, nil)
	id, _ := ts.topic("orders", nil, selfID)
	ask := func(v int16, id [16]byte) kmsg.MetadataResponseTopic {
		t.Helper()
		r := metadataRequest(v)
		topic := kmsg.NewMetadataRequestTopic()
		topic.TopicID = id
		if v < 12 {
			topic.Topic = kmsg.StringPtr("orders")
		}
		r.Topics = []kmsg.MetadataRequestTopic{topic}
		return ts.dial().ask(r).(*kmsg.MetadataResponse).Topics[0]
	}
	if got := ask(12, id); got.ErrorCode != 0 || *got.Topic != "orders" {
		t.Errorf("by id: %+v", got)
	}
	if got := ask(13, [16]byte{1}); got.ErrorCode != 100 || got.Topic != nil || got.TopicID != [16]byte{1} {
		t.Errorf("by unknown id: %+v", got)
	}
	for _, v := range []int16{10, 11} {
		if got := ask(v, id); wire.Code(got.ErrorCode) != wire.InvalidRequest {
			t.Errorf("by id in version %d: code %d, want 42", v, got.ErrorCode)
		}
	}
}

func TestMetadataAuthorizedOperations(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.topic("orders", nil, selfID)
	r := metadataRequest(9, "orders")
	if got := ts.dial().ask(r).(*kmsg.MetadataResponse); got.AuthorizedOperations != -1<<31 || got.Topics[0].AuthorizedOperations != -1<<31 {
		t.Errorf("not asked for: %d, %d", got.AuthorizedOperations, got.Topics[0].AuthorizedOperations)
	}
	r.IncludeClusterAuthorizedOperations, r.IncludeTopicAuthorizedOperations = true, true
	if got := ts.dial().ask(r).(*kmsg.MetadataResponse); got.AuthorizedOperations != 8096 || got.Topics[0].AuthorizedOperations != 3576 {
		t.Errorf("asked for: %d, %d; want 8096, 3576", got.AuthorizedOperations, got.Topics[0].AuthorizedOperations)
	}
}

// A partition without a live leader says so, and a controller that clients cannot
// reach is not named.
func TestMetadataWithoutLeader(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.topic("orders", nil, otherID)
	b, _ := ts.image.image().Broker(otherID)
	ts.image.apply(fsm.FenceBroker{ID: otherID, Epoch: b.Epoch})
	ts.mu.Lock()
	ts.leader = otherID
	ts.mu.Unlock()
	resp := ts.dial().ask(metadataRequest(9, "orders")).(*kmsg.MetadataResponse)
	p := resp.Topics[0].Partitions[0]
	if p.ErrorCode != 5 || p.Leader != -1 || !slices.Equal(p.OfflineReplicas, []int32{2, 3}) {
		t.Errorf("partition %+v, want LEADER_NOT_AVAILABLE", p)
	}
	if len(resp.Brokers) != 1 || resp.ControllerID != -1 {
		t.Errorf("brokers %+v, controller %d", resp.Brokers, resp.ControllerID)
	}
}

func TestDescribeCluster(t *testing.T) {
	ts := newTestServer(t, nil)
	for v := int16(0); v <= 2; v++ {
		r := kmsg.NewPtrDescribeClusterRequest()
		r.SetVersion(v)
		r.EndpointType = 1
		resp := ts.dial().ask(r).(*kmsg.DescribeClusterResponse)
		if resp.ErrorCode != 0 || resp.ClusterID != "test-cluster" || resp.ControllerID != 1 || len(resp.Brokers) != 2 {
			t.Errorf("version %d: %+v", v, resp)
		}
		if resp.ClusterAuthorizedOperations != -1<<31 {
			t.Errorf("version %d: operations %d were not asked for", v, resp.ClusterAuthorizedOperations)
		}
	}
	for endpoint, want := range map[int8]wire.Code{2: wire.MismatchedEndpointType, 3: wire.UnsupportedEndpointType, -1: wire.UnsupportedEndpointType} {
		r := kmsg.NewPtrDescribeClusterRequest()
		r.SetVersion(1)
		r.EndpointType = endpoint
		if got := ts.dial().ask(r).(*kmsg.DescribeClusterResponse); wire.Code(got.ErrorCode) != want || got.ErrorMessage == nil {
			t.Errorf("endpoint type %d: %v, want %v", endpoint, wire.Code(got.ErrorCode), want)
		}
	}
	fenced := kmsg.NewPtrDescribeClusterRequest()
	fenced.SetVersion(2)
	fenced.EndpointType, fenced.IncludeFencedBrokers = 1, true
	if got := ts.dial().ask(fenced).(*kmsg.DescribeClusterResponse).Brokers; len(got) != 3 || !got[2].IsFenced || got[0].IsFenced {
		t.Errorf("with fenced brokers: %+v", got)
	}
}
