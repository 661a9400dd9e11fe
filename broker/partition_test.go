package broker

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/broker/feed"
	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// stand is node 1 of a cluster of three, without sockets: an Image, a data
// folder, and one partition of topic "t" on it.
type stand struct {
	testing.TB
	env     *environment
	applier *applier
	dir     *storage.Dir
	p       *Partition
	epochs  map[fsm.BrokerID]fsm.BrokerEpoch
	feeders map[fsm.BrokerID]*feeder
	stale   bool // this node's session has run out
	heard   time.Time
}

func newStand(t testing.TB) *stand { return newStandOn(t, vfs.OS()) }

// newStandOn has its folder on a file system, which may go offline.
func newStandOn(t testing.TB, fsys vfs.FS) *stand {
	s := &stand{TB: t, applier: newApplier(t), epochs: map[fsm.BrokerID]fsm.BrokerEpoch{}, feeders: map[fsm.BrokerID]*feeder{}}
	for id := fsm.BrokerID(1); id <= 3; id++ {
		s.epochs[id] = s.applier.broker(t, id)
	}
	o := storage.DefaultOptions()
	o.FlushInterval = 0
	dir, err := storage.OpenDir(fsys, t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	s.dir = dir
	env := &environment{
		self: 1, epoch: func() fsm.BrokerEpoch { return s.epochs[1] }, image: s.applier.Image, now: time.Now,
		lagMax: time.Minute, log: hclog.NewNullLogger(), bootTime: time.Now,
		fresh: func() bool { return !s.stale }, heardSince: func() time.Time { return time.Now().Add(-time.Second) },
		heard:   func(isr.Member) time.Time { return s.heard },
		metrics: &newMetrics().replicas,
		fail:    func(err error) { t.Errorf("the node failed: %v", err) },
		live:    liveIn(s.applier.Image), replicas: newPartitions(),
	}
	env.ticks = newTicks(env.now, func(p *Partition, now time.Time) { p.tick(now) })
	env.changes = newChanges(env, s.applier, hclog.NewNullLogger())
	ctx, cancel := context.WithCancel(context.Background())
	go env.changes.run(ctx)
	t.Cleanup(func() {
		cancel()
		<-env.changes.done
		env.ticks.close()
		if err := dir.Close(nil); err != nil && dir.Offline() == nil {
			t.Errorf("close the folder: %v", err)
		}
	})
	s.env = env
	return s
}

// host makes the partition with the given replicas; the first of them leads.
func (s *stand) host(replicas ...fsm.BrokerID) {
	s.Helper()
	id := fsm.TopicID{1}
	s.applier.must(s.TB, fsm.CreateTopic{ID: id, Name: "t", Partitions: []fsm.NewPartition{{Replicas: replicas, ISR: replicas, Leader: replicas[0]}}})
	l, err := s.dir.Create("t", 0, storage.ID(id))
	if err != nil {
		s.Fatal(err)
	}
	s.p = newPartition(fsm.TopicPartition{Topic: id}, l, s.env)
	s.env.replicas.put(s.p)
	s.install()
}

func (s *stand) state() fsm.Partition {
	s.Helper()
	part, ok := s.applier.Image().Partition(s.p.tp)
	if !ok {
		s.Fatal("the partition is not in the Image")
	}
	return part
}

// install does what the reconciler does after each Image.
func (s *stand) install() {
	part := s.state()
	if part.Leader == s.env.self {
		s.p.becomeLeader(stateOf(part))
	} else {
		s.p.becomeFollower(part.Leader, part.LeaderEpoch, part.Seated(s.p.env.self))
	}
}

// elect makes another replica the leader in the next epoch.
func (s *stand) elect(leader fsm.BrokerID) {
	s.Helper()
	part := s.state()
	res := s.applier.must(s.TB, fsm.ChangeLeaders{Items: []fsm.LeaderChange{{TP: s.p.tp, LeaderEpoch: part.LeaderEpoch,
		PartitionEpoch: part.PartitionEpoch, Leader: leader, ISR: part.ISR}}})
	if len(res.Skipped) > 0 {
		s.Fatalf("election of %d was skipped: %v", leader, res.Why)
	}
	s.install()
}

func (s *stand) member(id fsm.BrokerID) isr.Member { return isr.Member{ID: id, Epoch: s.epochs[id]} }

// follows opens an attempt of a follower that has everything below end.
func (s *stand) follows(id fsm.BrokerID, end batch.Offset) {
	s.Helper()
	f := newFeeder(s.member(id), nil, s.env, time.Second, time.Second, hclog.NewNullLogger())
	s.feeders[id] = f
	if !s.p.opened(f, f.peer, s.state().LeaderEpoch, position(end)) {
		s.Fatalf("follower %d was not taken", id)
	}
}

func (s *stand) progress(id fsm.BrokerID, end batch.Offset) {
	s.p.progressed(s.member(id), s.state().LeaderEpoch, position(end))
}

func position(end batch.Offset) isr.Position { return isr.Position{Written: end} }

func (s *stand) append(acks int16, values ...string) (Ticket, error) {
	return s.p.Append(testBatch(values...), acks)
}

func (s *stand) mustAppend(acks int16, values ...string) Ticket {
	s.Helper()
	tk, err := s.append(acks, values...)
	if err != nil {
		s.Fatalf("append of %q: %v", values, err)
	}
	return tk
}

func testBatch(values ...string) batch.Batch {
	b := batch.NewBuilder(1000)
	for _, v := range values {
		b.Add(1000, nil, []byte(v))
	}
	return b.Bytes()
}

// wait waits for a ticket in the background.
func wait(ctx context.Context, tk Ticket) <-chan error {
	done := make(chan error, 1)
	go func() { done <- tk.Wait(ctx) }()
	return done
}

// waits asserts that a produce is parked, by its place in the list.
func (s *stand) parked(n int) {
	s.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for {
		s.p.mu.Lock()
		got := 0
		for w := s.p.waiters.head; w != nil; w = w.next {
			got++
		}
		s.p.mu.Unlock()
		if got == n {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("%d produces wait, want %d", got, n)
		}
		<-time.After(time.Millisecond)
	}
}

func (s *stand) wantErr(what string, got, want error) {
	s.Helper()
	if !errors.Is(got, want) {
		s.Errorf("%s: error %v, want %v", what, got, want)
	}
}

func readRequest(offset batch.Offset) ReadRequest {
	return ReadRequest{Offset: offset, MaxBytes: 1 << 20, LeaderEpoch: batch.NoEpoch, LastFetchedEpoch: batch.NoEpoch}
}

// values reads the records that a consumer gets from an offset on.
func (s *stand) values(from batch.Offset) []string {
	s.Helper()
	res, err := s.p.Read(readRequest(from))
	if err != nil {
		s.Fatalf("read from %d: %v", from, err)
	}
	if res.Range.Len() == 0 {
		return nil
	}
	defer res.Range.Release()
	p := make([]byte, res.Range.Len())
	if _, err := res.Range.ReadAt(p, 0); err != nil && !errors.Is(err, io.EOF) {
		s.Fatal(err)
	}
	var got []string
	for b := range batch.Run(p).Batches() {
		for r := range b.Records(b.Payload()) {
			if r.Offset >= from {
				got = append(got, string(r.Value))
			}
		}
	}
	return got
}

func TestSoleReplicaCommitsAtOnce(t *testing.T) {
	s := newStand(t)
	s.host(1)
	for i, acks := range []int16{0, 1, -1} {
		tk := s.mustAppend(acks, "a", "b")
		if tk.First != batch.Offset(2*i) || tk.Last != batch.Offset(2*i+1) {
			t.Errorf("batch %d got offsets %d to %d", i, tk.First, tk.Last)
		}
		s.wantErr("wait", tk.Wait(t.Context()), nil)
	}
	if got := s.values(1); len(got) != 5 {
		t.Errorf("read %q from offset 1, want 5 values", got)
	}
	latest, err := s.p.OffsetFor(timestampLatest, batch.NoEpoch, false)
	if err != nil || latest.Offset != 6 {
		t.Errorf("latest = %+v, %v, want offset 6", latest, err)
	}
	earliest, err := s.p.OffsetFor(timestampEarliest, batch.NoEpoch, false)
	if err != nil || earliest.Offset != 0 {
		t.Errorf("earliest = %+v, %v, want offset 0", earliest, err)
	}
}

func TestHighWatermarkWaitsForTheISR(t *testing.T) {
	s := newStand(t)
	s.host(1, 2, 3)
	s.follows(2, 0)
	s.follows(3, 0)
	tk := s.mustAppend(-1, "a")
	done := wait(t.Context(), tk)
	s.parked(1)
	if got := s.values(0); got != nil {
		t.Errorf("a consumer read %q above the high watermark", got)
	}
	s.progress(2, 1)
	s.parked(1)
	w := NewWatcher()
	s.p.Watch(w)
	defer s.p.Unwatch(w)
	s.progress(3, 1)
	s.wantErr("wait", <-done, nil)
	<-w.C()
	if got := s.values(0); len(got) != 1 {
		t.Errorf("read %q, want the record", got)
	}
	for id, f := range s.feeders {
		if f.news[s.p]&(newsRecords|newsMarks) != newsRecords|newsMarks {
			t.Errorf("the feeder of %d was told %b, want records and marks", id, f.news[s.p])
		}
	}
}

func TestProduceCompletesOnlyInItsEpoch(t *testing.T) {
	s := newStand(t)
	s.host(1, 2, 3)
	s.follows(2, 0)
	tk := s.mustAppend(-1, "a")
	done := wait(t.Context(), tk)
	s.parked(1)
	s.elect(2)
	s.wantErr("produce of an ended epoch", <-done, errNotLeader)
	s.wantErr("late wait", tk.Wait(t.Context()), errNotLeader)
	_, err := s.append(1, "b")
	s.wantErr("append on a follower", err, errNotLeader)
	_, err = s.p.Read(readRequest(0))
	s.wantErr("read on a follower", err, errNotLeader)
	s.p.progressed(s.member(2), tk.LeaderEpoch, position(1)) // a straggler of the old epoch
	s.elect(1)
	s.wantErr("wait in a later epoch of the same leader", tk.Wait(t.Context()), errNotLeader)
}

func TestSmallISR(t *testing.T) {
	s := newStand(t)
	s.host(1, 2, 3)
	s.follows(2, 0)
	s.follows(3, 0)
	tk := s.mustAppend(-1, "a")
	ctx, cancel := context.WithCancel(t.Context())
	done := wait(ctx, tk)
	s.parked(1)
	for _, id := range []fsm.BrokerID{2, 3} {
		s.applier.must(t, fsm.FenceBroker{ID: id, Epoch: s.epochs[id]})
	}
	s.install()
	_, err := s.append(-1, "b")
	s.wantErr("append with a small ISR", err, errNotEnoughReplicas)
	s.mustAppend(1, "c")
	cancel()
	s.wantErr("produce whose ISR fell", <-done, errNotEnoughAfterAppend)
	if got := s.values(0); got != nil {
		t.Errorf("the high watermark moved below min ISR: read %q", got)
	}
}

func TestProduceDeadline(t *testing.T) {
	s := newStand(t)
	s.host(1, 2, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	s.wantErr("wait", s.mustAppend(-1, "a").Wait(ctx), context.DeadlineExceeded)
	s.parked(0)
}

func TestDuplicateWaitsForTheHighWatermark(t *testing.T) {
	s := newStand(t)
	s.host(1, 2, 3)
	s.follows(2, 0)
	s.follows(3, 0)
	idempotent := func() batch.Batch {
		b := batch.NewBuilder(1000)
		b.Add(1000, nil, []byte("a"))
		b.Producer(7, 0, 0)
		return b.Bytes()
	}
	first, err := s.p.Append(idempotent(), -1)
	s.wantErr("first", err, nil)
	again, err := s.p.Append(idempotent(), -1)
	s.wantErr("again", err, nil)
	if !again.Duplicate || again.First != first.First {
		t.Fatalf("the retry got %+v, want the duplicate of %+v", again, first)
	}
	done := wait(t.Context(), again)
	s.parked(1)
	s.progress(2, 1)
	s.progress(3, 1)
	s.wantErr("retry", <-done, nil)
	b := batch.NewBuilder(1000)
	b.Add(1000, nil, []byte("x"))
	b.Producer(7, 0, 5)
	refused, err := s.p.Append(b.Bytes(), -1)
	s.wantErr("gap in the sequence", err, storage.ErrOutOfOrderSequence)
	if refused.LeaderEpoch != again.LeaderEpoch {
		t.Errorf("it is refused in epoch %d, want that of the leadership, %d", refused.LeaderEpoch, again.LeaderEpoch)
	}
}

func TestSelfFencing(t *testing.T) {
	s := newStand(t)
	s.host(1, 2, 3)
	s.follows(2, 0)
	s.follows(3, 0)
	s.stale = true
	for _, acks := range []int16{0, 1} {
		_, err := s.append(acks, "a")
		s.wantErr("append without a session", err, errStaleSession)
	}
	_, err := s.p.Read(readRequest(0))
	s.wantErr("read without a session", err, errStaleSession)
	_, err = s.p.OffsetFor(timestampLatest, batch.NoEpoch, false)
	s.wantErr("offsets without a session", err, errStaleSession)
	s.mustAppend(-1, "b")

	s.heard = time.Now()
	s.mustAppend(1, "c")
	s.p.gone(s.feeders[3], s.member(3), s.state().LeaderEpoch)
	_, err = s.append(1, "d")
	s.wantErr("append when one of the ISR is out of touch", err, errStaleSession)
}

func TestNewLeaderIsNotServableAtFirst(t *testing.T) {
	s := newStand(t)
	s.host(2, 1, 3) // node 2 leads
	run := testBatch("a")
	run.Assign(0, 0)
	if _, err := s.p.appendFed(0, batch.Run(run), 0, 0); err != nil {
		t.Fatal(err)
	}
	s.elect(1)
	_, err := s.p.OffsetFor(timestampLatest, batch.NoEpoch, false)
	s.wantErr("latest", err, errOffsetNotAvailable)
	_, err = s.p.OffsetFor(5, batch.NoEpoch, false)
	s.wantErr("by time, above the high watermark", err, errOffsetNotAvailable)
	if res, err := s.p.Read(readRequest(0)); err != nil || res.HW != 0 {
		t.Errorf("read = %+v, %v, want nothing and high watermark 0", res, err)
	}
	s.follows(2, 1)
	s.follows(3, 1)
	got, err := s.p.OffsetFor(timestampLatest, batch.NoEpoch, false)
	if err != nil || got.Offset != 1 || got.LeaderEpoch != 1 {
		t.Errorf("latest = %+v, %v, want offset 1 in epoch 1", got, err)
	}
}

func TestReadChecks(t *testing.T) {
	s := newStand(t)
	s.host(1, 2)
	s.mustAppend(1, "a")
	s.elect(2)
	s.elect(1)
	s.mustAppend(1, "b")
	s.follows(2, 2)
	epoch := s.state().LeaderEpoch
	cases := []struct {
		name string
		ask  func(*ReadRequest)
		want error
	}{
		{"older epoch", func(r *ReadRequest) { r.LeaderEpoch = epoch - 1 }, errFencedEpoch},
		{"newer epoch", func(r *ReadRequest) { r.LeaderEpoch = epoch + 1 }, errUnknownEpoch},
		{"equal epoch", func(r *ReadRequest) { r.LeaderEpoch = epoch }, nil},
		{"past the end", func(r *ReadRequest) { r.Offset = 3 }, errOutOfRange},
		{"negative", func(r *ReadRequest) { r.Offset = -1 }, errOutOfRange},
		{"at the end", func(r *ReadRequest) { r.Offset = 2 }, nil},
	}
	for _, tc := range cases {
		r := readRequest(0)
		tc.ask(&r)
		res, err := s.p.Read(r)
		s.wantErr(tc.name, err, tc.want)
		res.Range.Release()
	}
	r := readRequest(2)
	r.LastFetchedEpoch = 0 // what the client has of epoch 0 ends at 1 here
	res, err := s.p.Read(r)
	if err != nil || res.Diverging == nil || *res.Diverging != (EpochEnd{0, 1}) || res.Range.Len() != 0 {
		t.Errorf("diverging read = %+v, %v, want epoch 0 ending at 1 and no records", res, err)
	}
}

func TestFollowerTakesOnlyItsEpoch(t *testing.T) {
	s := newStand(t)
	s.host(2, 1, 3)
	run := func(base batch.Offset, e batch.Epoch) batch.Run {
		b := testBatch("x")
		b.Assign(base, e)
		return batch.Run(b)
	}
	local, err := s.p.appendFed(0, run(0, 0), 1, 0)
	if err != nil || local.Written != 1 || local.LastEpoch != 0 {
		t.Fatalf("appendFed = %+v, %v", local, err)
	}
	if s.p.hw != 1 || s.p.log.HW() != 1 {
		t.Errorf("high watermark %d, of the log %d, want 1", s.p.hw, s.p.log.HW())
	}
	_, err = s.p.appendFed(1, run(1, 1), 1, 0)
	s.wantErr("append of another epoch", err, errStaleAttempt)
	_, err = s.p.appendFed(0, run(5, 0), 1, 0)
	s.wantErr("append with a gap", err, storage.ErrGap)
	_, err = s.p.appendFed(0, run(1, 4), 1, 0)
	s.wantErr("append of an epoch above the attempt's", err, storage.ErrEpoch)
	if _, err := s.p.appendFed(0, run(1, 0), 1, 0); err != nil {
		t.Fatal(err)
	}
	s.elect(3)
	_, err = s.p.marked(0, 2, 0)
	s.wantErr("mark of the old epoch", err, errStaleAttempt)
	_, err = s.p.truncateFed(0, 0, 0)
	s.wantErr("truncation of the old epoch", err, errStaleAttempt)
	local, err = s.p.truncateFed(1, 0, 1)
	if err != nil || local.Written != 1 {
		t.Errorf("truncateFed = %+v, %v, want end 1", local, err)
	}
	local, err = s.p.resetFed(1, 10)
	if err != nil || (local != feed.Local{Written: 10, Flushed: local.Flushed, LastEpoch: batch.NoEpoch, LogStart: 10}) {
		t.Errorf("resetFed = %+v, %v, want an empty log at 10", local, err)
	}
	s.elect(1)
	if tk := s.mustAppend(1, "y"); tk.First != 10 {
		t.Errorf("the new leader appended at %d, want 10", tk.First)
	}
}

func TestRemovedReplicaAnswersNobody(t *testing.T) {
	s := newStand(t)
	s.host(1, 2, 3)
	done := wait(t.Context(), s.mustAppend(-1, "a"))
	s.parked(1)
	s.p.leave(errUnknownPartition)
	s.wantErr("waiting produce", <-done, errNotLeader)
	_, err := s.append(1, "b")
	s.wantErr("append", err, errUnknownPartition)
	_, err = s.p.Read(readRequest(0))
	s.wantErr("read", err, errUnknownPartition)
	if _, code := s.p.leading(2); code != feed.CodeUnknown {
		t.Errorf("a follower is told %d, want unknown", code)
	}
}
