package broker

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

// groupServer is a testServer that owns all slots and has topic "t" of two partitions.
func groupServer(t testing.TB) (*testServer, fsm.TopicID) {
	ts := newTestServer(t, nil)
	id, _ := ts.topic("t", nil, selfID, selfID)
	ts.image.own(selfID)
	return ts, id
}

// commitRequest commits one offset from outside a group.
func commitRequest(version int16, group, topic string, id fsm.TopicID, partition int32, offset int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = version, group, -1
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic, rt.TopicID = topic, id
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset, rp.LeaderEpoch = partition, offset, 7
	rp.Metadata = kmsg.StringPtr("note")
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func commitCodeOf(w *wireClient, req *kmsg.OffsetCommitRequest) wire.Code {
	w.t.Helper()
	resp := w.ask(req).(*kmsg.OffsetCommitResponse)
	if len(resp.Topics) != len(req.Topics) || len(resp.Topics[0].Partitions) != len(req.Topics[0].Partitions) {
		w.t.Fatalf("the answer is %+v for %+v", resp, req)
	}
	return wire.Code(resp.Topics[0].Partitions[0].ErrorCode)
}

func TestOffsetCommit(t *testing.T) {
	ts, id := groupServer(t)
	w := ts.dial()
	for v := int16(2); v <= 10; v++ {
		if code := commitCodeOf(w, commitRequest(v, "g", "t", id, 1, int64(100+v))); code != wire.None {
			t.Fatalf("version %d: %v", v, code)
		}
		got, ok := ts.image.image().Committed("g", fsm.TopicPartition{Topic: id, Partition: 1})
		if !ok || int64(got.Offset) != int64(100+v) || got.Metadata != "note" {
			t.Fatalf("version %d: stored %+v, %v", v, got, ok)
		}
		if epoch := got.LeaderEpoch; (v >= 6) != (epoch == 7) {
			t.Errorf("version %d: leader epoch %d", v, epoch)
		}
		if expires := got.ExpireMs >= 0; expires {
			t.Errorf("version %d: expires at %d without a retention", v, got.ExpireMs)
		}
	}
	old := commitRequest(3, "g", "t", id, 0, 5)
	old.RetentionTimeMillis = 60_000
	commitCodeOf(w, old)
	got, _ := ts.image.image().Committed("g", fsm.TopicPartition{Topic: id})
	if left := got.ExpireMs - time.Now().UnixMilli(); left < 30_000 || left > 60_000 {
		t.Errorf("an offset with a retention of a minute expires in %d ms", left)
	}
}

func TestOffsetCommitRefuses(t *testing.T) {
	ts, id := groupServer(t)
	w := ts.dial()
	long := kmsg.StringPtr(strings.Repeat("x", 4097))
	cases := map[string]struct {
		version int16
		change  func(*kmsg.OffsetCommitRequest)
		want    wire.Code
	}{
		"unknown topic":            {9, func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Topic = "other" }, wire.UnknownTopicOrPartition},
		"unknown id":               {10, func(r *kmsg.OffsetCommitRequest) { r.Topics[0].TopicID[0]++ }, wire.UnknownTopicID},
		"unknown partition":        {9, func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Partitions[0].Partition = 2 }, wire.UnknownTopicOrPartition},
		"negative partition":       {9, func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Partitions[0].Partition = -1 }, wire.UnknownTopicOrPartition},
		"metadata":                 {9, func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Partitions[0].Metadata = long }, wire.OffsetMetadataTooLarge},
		"generation of no group":   {8, func(r *kmsg.OffsetCommitRequest) { r.Generation, r.MemberID = 3, "m" }, wire.IllegalGeneration},
		"member epoch of no group": {9, func(r *kmsg.OffsetCommitRequest) { r.Generation, r.MemberID = 3, "m" }, wire.GroupIDNotFound},
	}
	for name, tc := range cases {
		req := commitRequest(tc.version, "none", "t", id, 0, 1)
		tc.change(req)
		if got := commitCodeOf(w, req); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	if _, ok := ts.image.image().Group("none"); ok {
		t.Error("a refused commit made a group")
	}
}

// What is wrong with one partition keeps no other from being stored.
func TestOffsetCommitIsPerPartition(t *testing.T) {
	ts, id := groupServer(t)
	req := commitRequest(8, "g", "t", id, 0, 1)
	bad := kmsg.NewOffsetCommitRequestTopic()
	bad.Topic, bad.Partitions = "other", req.Topics[0].Partitions
	req.Topics = append([]kmsg.OffsetCommitRequestTopic{bad}, req.Topics...)
	resp := ts.dial().ask(req).(*kmsg.OffsetCommitResponse)
	codes := []wire.Code{wire.Code(resp.Topics[0].Partitions[0].ErrorCode), wire.Code(resp.Topics[1].Partitions[0].ErrorCode)}
	if codes[0] != wire.UnknownTopicOrPartition || codes[1] != wire.None {
		t.Errorf("codes %v", codes)
	}
	if _, ok := ts.image.image().Committed("g", fsm.TopicPartition{Topic: id}); !ok {
		t.Error("the good partition was not stored")
	}
}

// A commit whose topic is deleted on its way says so; the other topics are stored.
func TestOffsetCommitOfTopicThatGoes(t *testing.T) {
	ts, id := groupServer(t)
	gone, _ := ts.topic("gone", nil, selfID)
	release := ts.log().holdUp()
	w := ts.dial()
	req := commitRequest(9, "g", "gone", gone, 0, 1)
	req.Topics = append(req.Topics, commitRequest(9, "g", "t", id, 0, 1).Topics...)
	corr := w.send(req)
	ts.log().awaitProposal(t)
	ts.image.apply(fsm.DeleteTopic{ID: gone})
	release()
	resp := w.receive(req, corr).(*kmsg.OffsetCommitResponse)
	if a, b := wire.Code(resp.Topics[0].Partitions[0].ErrorCode), wire.Code(resp.Topics[1].Partitions[0].ErrorCode); a != wire.UnknownTopicOrPartition || b != wire.None {
		t.Errorf("codes %v and %v", a, b)
	}
}

// Many partitions travel in several changes, each of a bounded size.
func TestOffsetCommitSplits(t *testing.T) {
	ts, _ := groupServer(t)
	leaders := make([]fsm.BrokerID, 3*commitPartitions)
	for i := range leaders {
		leaders[i] = otherID
	}
	wide, _ := ts.topic("wide", nil, leaders...)
	req := commitRequest(8, "g", "wide", wide, 0, 0)
	one := req.Topics[0].Partitions[0]
	req.Topics[0].Partitions = nil
	for i := range leaders {
		one.Partition, one.Offset = int32(len(leaders)-1-i), int64(i)
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, one)
	}
	resp := ts.dial().ask(req).(*kmsg.OffsetCommitResponse)
	for i, p := range resp.Topics[0].Partitions {
		if p.ErrorCode != 0 || p.Partition != int32(len(leaders)-1-i) {
			t.Fatalf("partition %d: %+v", i, p)
		}
	}
	n := 0
	for tp, c := range ts.image.image().CommittedOf("g") {
		if n++; int(c.Offset) != len(leaders)-1-int(tp.Partition) {
			t.Fatalf("partition %d has offset %d", tp.Partition, c.Offset)
		}
	}
	if n != len(leaders) {
		t.Errorf("%d partitions are stored, want %d", n, len(leaders))
	}
}

// Without a session another node may coordinate; a slot of another node is refused too.
func TestOffsetCommitNotCoordinator(t *testing.T) {
	ts, id := groupServer(t)
	w := ts.dial()
	ts.log().fresh.Store(false)
	if got := commitCodeOf(w, commitRequest(9, "g", "t", id, 0, 1)); got != wire.NotCoordinator {
		t.Errorf("without a session: %v", got)
	}
	ts.log().fresh.Store(true)
	ts.image.own(otherID)
	if got := commitCodeOf(w, commitRequest(9, "g", "t", id, 0, 1)); got != wire.NotCoordinator {
		t.Errorf("slot of another node: %v", got)
	}
}

// A commit that was on its way for long, on a connection that its client has given up, must not undo
// what was committed since.
func TestLateCommitsAreNotTaken(t *testing.T) {
	ts, id := groupServer(t)
	old := ts.dial()
	joined := stableMember(old)
	commit := func(offset int64) *kmsg.OffsetCommitRequest {
		req := commitRequest(9, "g", "t", id, 0, offset)
		req.MemberID, req.Generation = joined.MemberID, joined.Generation
		return req
	}
	if got := commitCodeOf(old, commit(1)); got != wire.None {
		t.Fatalf("the first commit: %v", got)
	}
	next := ts.dial()
	if got := commitCodeOf(next, commit(3)); got != wire.None {
		t.Fatalf("a commit on a newer connection: %v", got)
	}
	old.send(commit(2))
	old.closed()

	ts.image.own(otherID)
	ts.image.own(selfID)
	next.send(commit(2)) // sent before the slot went, as far as this node can tell
	next.closed()
	last := ts.dial()
	if got := commitCodeOf(last, commit(4)); got != wire.None {
		t.Errorf("a commit on a connection of this tenure: %v", got)
	}
	if got, _ := ts.image.image().Committed("g", fsm.TopicPartition{Topic: id}); got.Offset != 4 {
		t.Errorf("committed is %d, want 4", got.Offset)
	}
}

// Who commits from outside a group may do it on any connection of this tenure.
func TestCommitsFromOutsideAreNotOrdered(t *testing.T) {
	ts, id := groupServer(t)
	first, second := ts.dial(), ts.dial()
	for _, w := range []*wireClient{second, first} {
		if got := commitCodeOf(w, commitRequest(8, "g", "t", id, 0, 1)); got != wire.None {
			t.Errorf("a commit from outside: %v", got)
		}
	}
}
