package broker

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// inRacks registers the three brokers of a stand again, each in its rack.
func (s *stand) inRacks(racks ...string) {
	s.Helper()
	for i, rack := range racks {
		id := fsm.BrokerID(i + 1)
		old, _ := s.applier.Image().Broker(id)
		r := s.applier.must(s.TB, fsm.RegisterBroker{ID: id, Folder: [16]byte{byte(id)}, Process: process(old.Epoch), BootID: "boot", Replaces: old.Epoch, Rack: rack})
		s.epochs[id] = fsm.BrokerEpoch(r.Epoch)
		s.applier.must(s.TB, fsm.UnfenceBroker{ID: id, Epoch: s.epochs[id]})
	}
}

// fed makes the partition of this stand follow node 2 with n records, of which
// the leader has told that hw are committed.
func (s *stand) fed(n int, hw batch.Offset) {
	s.Helper()
	s.host(2, 1, 3)
	var run []byte
	for i := range n {
		b := testBatch(fmt.Sprint("v", i))
		b.Assign(batch.Offset(i), 0)
		run = append(run, b...)
	}
	if _, err := s.p.appendFed(0, batch.Run(run), hw, 0); err != nil {
		s.Fatal(err)
	}
}

// anyReplica is the request of a client that knows of follower reads.
func anyReplica(offset batch.Offset, epoch batch.Epoch) ReadRequest {
	r := readRequest(offset)
	r.AnyReplica, r.LeaderEpoch = true, epoch
	return r
}

func TestFollowerServesBelowItsHighWatermark(t *testing.T) {
	s := newStand(t)
	s.fed(5, 3)
	for _, tt := range []struct {
		name string
		r    ReadRequest
		want error
		end  batch.Offset // of what is read
	}{
		{"from the start", anyReplica(0, 0), nil, 3},
		{"from the start, epoch unknown", anyReplica(0, batch.NoEpoch), nil, 3},
		{"at the high watermark", anyReplica(3, 0), nil, 0},
		{"above it", anyReplica(4, 0), errOffsetNotAvailable, 0},
		{"at the log end", anyReplica(5, 0), errOffsetNotAvailable, 0},
		{"past the log end", anyReplica(6, 0), errOutOfRange, 0},
		{"below the start", anyReplica(-1, 0), errOutOfRange, 0},
		{"past the log end, by who takes us for the leader", anyReplica(6, batch.NoEpoch), errNotLeader, 0},
		{"older epoch", anyReplica(0, -2), errFencedEpoch, 0},
		{"newer epoch", anyReplica(0, 1), errUnknownEpoch, 0},
		{"an old client", readRequest(0), errNotLeader, 0},
	} {
		got, err := s.p.Read(tt.r)
		if tt.want != nil {
			s.wantErr(tt.name, err, tt.want)
		} else if err != nil || got.HW != 3 || got.LSO != 3 || got.LogStart != 0 {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
		}
		if got.Range.Len() > 0 != (tt.end > 0) || tt.end > 0 && got.Range.End() != tt.end {
			t.Errorf("%s: read up to %d (%d bytes), want %d", tt.name, got.Range.End(), got.Range.Len(), tt.end)
		}
		if got.Range.Len() > 0 {
			got.Range.Release()
		}
	}
	_, err := s.p.OffsetFor(timestampLatest, 0, false)
	s.wantErr("list offsets", err, errNotLeader)
	s.p.becomeFollower(3, 1, false) // its log is a part of this one, or was elected at the risk of loss
	_, err = s.p.Read(anyReplica(0, 1))
	s.wantErr("before the leader of the epoch has told its high watermark", err, errOffsetNotAvailable)
	if _, err := s.p.marked(1, 0, 0); err != nil {
		t.Fatal(err)
	}
	got, err := s.p.Read(anyReplica(0, 1))
	if err != nil || got.HW != 3 || got.Range.End() != 3 {
		t.Errorf("once it has told: %+v, %v", got, err)
	}
	got.Range.Release()
	s.stale = true
	_, err = s.p.Read(anyReplica(0, 1))
	s.wantErr("without a session", err, errStaleSession)
}

// What a waiting fetch looks at on a follower moves with the leader's word alone.
func TestFollowerWakesFetches(t *testing.T) {
	s := newStand(t)
	s.fed(5, 3)
	w := NewWatcher()
	s.p.Watch(w)
	defer s.p.Unwatch(w)
	signalled := func() bool {
		select {
		case <-w.C():
			return true
		default:
			return false
		}
	}
	if _, err := s.p.marked(0, 3, 0); err != nil || signalled() {
		t.Errorf("nothing moved: signal or error %v", err)
	}
	if _, err := s.p.marked(0, 4, 0); err != nil || !signalled() {
		t.Errorf("the high watermark moved: no signal, or error %v", err)
	}
	s.p.Watch(w) // a signal was for once
	if _, err := s.p.marked(0, 4, 2); err != nil || !signalled() {
		t.Errorf("the log start moved: no signal, or error %v", err)
	}
	s.p.Watch(w)
	s.elect(3)
	if !signalled() {
		t.Error("the leader epoch ended: no signal")
	}
}

func TestPreferredReplica(t *testing.T) {
	s := newStand(t)
	s.inRacks("a", "b", "c")
	s.host(1, 2, 3)
	s.mustAppend(1, "v0")
	s.mustAppend(1, "v1")
	s.follows(2, 2)
	s.follows(3, 1)
	ask := func(rack string, offset batch.Offset) fsm.BrokerID {
		t.Helper()
		r := anyReplica(offset, 0)
		r.Rack = rack
		got, err := s.p.Read(r)
		if err != nil {
			t.Fatalf("rack %q, offset %d: %v", rack, offset, err)
		}
		if got.Preferred == nil {
			if got.Range.Len() > 0 {
				got.Range.Release()
			}
			return 0
		}
		if got.Range.Len() > 0 || got.HW != 1 {
			t.Errorf("rack %q, offset %d: %+v", rack, offset, got)
		}
		return *got.Preferred
	}
	for _, tt := range []struct {
		name   string
		rack   string
		offset batch.Offset
		want   fsm.BrokerID
	}{
		{"no rack", "", 0, 0}, {"the leader's", "a", 0, 0}, {"nobody's", "d", 0, 0},
		{"one of a follower", "b", 0, 2}, {"at its end", "b", 2, 2},
		{"at the end of one that is behind", "c", 1, 3}, {"past that end", "c", 2, 0},
	} {
		if got := ask(tt.rack, tt.offset); got != tt.want {
			t.Errorf("%s: sent to %d, want %d", tt.name, got, tt.want)
		}
	}
	s.applier.must(t, fsm.StopBroker{ID: 2, Epoch: s.epochs[2]})
	if got := ask("b", 0); got != 0 {
		t.Errorf("sent to %d, which is stopping", got)
	}
	s.p.gone(s.feeders[3], s.member(3), 0)
	if got := ask("c", 0); got != 0 {
		t.Errorf("sent to %d, which no longer follows", got)
	}
}

// Of several in the client's rack the one that holds most is preferred; and a
// leader without a rack sends nobody away.
func TestPreferredReplicaOfSeveral(t *testing.T) {
	for _, tt := range []struct {
		own  string
		want fsm.BrokerID
	}{{"a", 3}, {"", 0}} {
		s := newStand(t)
		s.inRacks(tt.own, "b", "b")
		s.host(1, 2, 3)
		s.mustAppend(1, "v0")
		s.follows(2, 0)
		s.follows(3, 1)
		r := anyReplica(0, 0)
		r.Rack = "b"
		got, err := s.p.Read(r)
		if err != nil || (got.Preferred != nil) != (tt.want != 0) || got.Preferred != nil && *got.Preferred != tt.want {
			t.Errorf("leader in rack %q: %+v, %v; want %d", tt.own, got, err, tt.want)
		}
	}
}

// fetched counts the bytes and requests of Fetch by node.
type fetched struct {
	mu       sync.Mutex
	bytes    map[int32]int // guarded by mu
	requests int           // guarded by mu
}

// OnBrokerRead implements kgo.HookBrokerRead.
func (f *fetched) OnBrokerRead(meta kgo.BrokerMetadata, key int16, n int, _, _ time.Duration, _ error) {
	if key != int16(kmsg.Fetch) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bytes[meta.NodeID] += n
	f.requests++
}

func (f *fetched) look() (map[int32]int, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.requests
	f.requests = 0
	return map[int32]int{1: f.bytes[1], 2: f.bytes[2], 3: f.bytes[3]}, n
}

// A consumer in the rack of a follower reads from it, all the records and those
// that come later, without a storm of requests; and goes on when the leader dies.
func TestConsumerReadsFromItsRack(t *testing.T) {
	c := newCluster(t, 3, func(node int, cfg *Config) { cfg.Rack = string(rune('a' + node)) })
	tp := fsm.TopicPartition{Topic: c.topic("t", 1, 3)}
	c.inSync(tp, 3)
	const size = 50_000
	noise := make([]byte, size) // that no compression makes smaller
	_, _ = rand.Read(noise)
	payload := func(i int) string { return fmt.Sprintf("%d-%s", i, noise) }
	var want []string
	send := func(n int) {
		for range n {
			want = append(want, payload(len(want)))
		}
		c.produce("t", want[len(want)-n:]...)
	}
	send(20)
	leader := c.leader(tp)
	near := (leader + 1) % 3
	served := &fetched{bytes: map[int32]int{}}
	cl := c.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().AtStart()}}),
		kgo.Rack(c.configs[near].Rack), kgo.WithHooks(served))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var got []string
	read := func() {
		t.Helper()
		for len(got) < len(want) {
			cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
			if ctx.Err() != nil {
				t.Fatalf("read %d of %d records", len(got), len(want))
			}
		}
		if !slices.Equal(got, want) {
			t.Fatal("the records differ")
		}
	}
	read()
	by, _ := served.look()
	t.Logf("leader is node %d, the consumer is near node %d; bytes fetched by node: %v", leader+1, near+1, by)
	if by[int32(near+1)] < 20*size || by[int32(leader+1)] >= size {
		t.Errorf("bytes fetched by node %v, want all records from node %d", by, near+1)
	}
	for range 20 {
		send(1)
		read()
	}
	by, requests := served.look()
	if by[int32(near+1)] < 40*size || by[int32(leader+1)] >= size {
		t.Errorf("bytes fetched by node %v, want all records from node %d", by, near+1)
	}
	t.Logf("%d requests for 20 records one by one", requests)
	if requests > 100 {
		t.Errorf("%d requests for 20 records one by one", requests)
	}
	c.kill(leader)
	send(5)
	read()
}
