package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/wire"
)

// listOffsetsRequest asks for one timestamp of a partition.
func listOffsetsRequest(version int16, topic string, partition int32, timestamp int64) *kmsg.ListOffsetsRequest {
	r := kmsg.NewPtrListOffsetsRequest()
	r.SetVersion(version)
	r.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, timestamp, -1
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

func TestListOffsets(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.topic("orders", nil, selfID, otherID)
	parts[0].offsets = map[int64]OffsetResult{
		-1: {Offset: 70, Timestamp: -1, LeaderEpoch: 5}, -2: {Offset: 10, Timestamp: -1, LeaderEpoch: 3},
		-3: {Offset: 66, Timestamp: 999, LeaderEpoch: 5}, -4: {Offset: 10, Timestamp: -1, LeaderEpoch: 3},
		500: {Offset: 33, Timestamp: 501, LeaderEpoch: 4},
	}
	tests := []struct {
		name      string
		partition int32
		ts        int64
		from      int16 // first version that may ask
		offset    int64
		stamp     int64
	}{
		{"latest", 0, -1, 1, 70, -1},
		{"earliest", 0, -2, 1, 10, -1},
		{"greatest timestamp", 0, -3, 7, 66, 999},
		{"earliest local", 0, -4, 8, 10, -1},
		{"latest tiered", 0, -5, 9, -1, -1},
		{"earliest not tiered", 0, -6, 11, -1, -1},
		{"by time", 0, 500, 1, 33, 501},
		{"by time, nothing there", 0, 1 << 60, 1, -1, -1},
	}
	for _, tt := range tests {
		for v := int16(1); v <= 10; v++ {
			got := ts.dial().ask(listOffsetsRequest(v, "orders", tt.partition, tt.ts)).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
			want := wire.None
			if v < tt.from {
				want = wire.UnsupportedVersion
			}
			if wire.Code(got.ErrorCode) != want {
				t.Errorf("%s, version %d: %v, want %v", tt.name, v, wire.Code(got.ErrorCode), want)
			}
			if want == wire.None && (got.Offset != tt.offset || got.Timestamp != tt.stamp) {
				t.Errorf("%s, version %d: offset %d, timestamp %d; want %d, %d", tt.name, v, got.Offset, got.Timestamp, tt.offset, tt.stamp)
			}
		}
	}
}

func TestListOffsetsErrors(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.topic("orders", nil, selfID, otherID)
	ask := func(version int16, topic string, partition int32, stamp int64) wire.Code {
		t.Helper()
		resp := ts.dial().ask(listOffsetsRequest(version, topic, partition, stamp)).(*kmsg.ListOffsetsResponse)
		return wire.Code(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if got := ask(4, "missing", 0, -1); got != wire.UnknownTopicOrPartition {
		t.Errorf("unknown topic: %v", got)
	}
	if got := ask(4, "orders", 9, -1); got != wire.UnknownTopicOrPartition {
		t.Errorf("unknown partition: %v", got)
	}
	if got := ask(4, "orders", 1, -1); got != wire.NotLeaderOrFollower {
		t.Errorf("led elsewhere: %v", got)
	}
	for _, stamp := range []int64{-7, -1 << 31, -1 << 63} {
		if got := ask(10, "orders", 0, stamp); got != wire.UnsupportedVersion {
			t.Errorf("timestamp %d: %v", stamp, got)
		}
	}
	parts[0].err = errOffsetNotAvailable
	if got := ask(4, "orders", 0, -1); got != wire.LeaderNotAvailable {
		t.Errorf("new leader, version 4: %v", got)
	}
	if got := ask(5, "orders", 0, -1); got != wire.OffsetNotAvailable {
		t.Errorf("new leader, version 5: %v", got)
	}
	parts[0].err = nil
	r := listOffsetsRequest(5, "orders", 0, -1)
	r.Topics[0].Partitions = append(r.Topics[0].Partitions, r.Topics[0].Partitions[0])
	got := ts.dial().ask(r).(*kmsg.ListOffsetsResponse).Topics[0].Partitions
	if got[0].ErrorCode != 0 || wire.Code(got[1].ErrorCode) != wire.InvalidRequest {
		t.Errorf("one partition twice: codes %d, %d", got[0].ErrorCode, got[1].ErrorCode)
	}
	old := listOffsetsRequest(5, "orders", 0, -1)
	old.Topics[0].Partitions[0].CurrentLeaderEpoch = 1
	if got := ts.dial().ask(old).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].ErrorCode; wire.Code(got) != wire.FencedLeaderEpoch {
		t.Errorf("old leader epoch: %v", wire.Code(got))
	}
}
