package broker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire/batch"
)

// startsAt reports a follower's position with its log start.
func (s *stand) startsAt(id fsm.BrokerID, start, end batch.Offset) {
	s.p.progressed(s.member(id), s.state().LeaderEpoch, isr.Position{Written: end, Flushed: end, LogStart: start})
}

// write appends n records as leader and commits them with all followers given.
func (s *stand) write(n int, followers ...fsm.BrokerID) {
	s.Helper()
	for range n {
		if _, err := s.p.Append(records(1, 10), 1); err != nil {
			s.Fatal(err)
		}
	}
	for _, id := range followers {
		s.progress(id, s.p.log.End())
	}
}

type trimmed struct {
	low batch.Offset
	err error
}

func (s *stand) trim(ctx context.Context, to batch.Offset) <-chan trimmed {
	out := make(chan trimmed, 1)
	go func() {
		low := batch.Offset(-1)
		wait, err := s.p.Trim(to)
		if err == nil {
			low, err = wait(ctx)
		}
		out <- trimmed{low, err}
	}()
	return out
}

// pending waits until the trim waits for its replicas.
func (s *stand) pending(out <-chan trimmed) {
	s.Helper()
	deadline := time.After(patience)
	for {
		s.p.mu.Lock()
		n := s.p.trims
		s.p.mu.Unlock()
		if n > 0 {
			return
		}
		select {
		case got := <-out:
			s.Fatalf("the trim ended: %+v", got)
		case <-deadline:
			s.Fatal("the trim does not wait")
		case <-time.After(time.Millisecond):
		}
	}
}

func TestTrimWaitsForReplicas(t *testing.T) {
	s := newStand(t)
	s.host(1, 2, 3)
	s.follows(2, 0)
	s.follows(3, 0)
	s.write(5, 2, 3)
	out := s.trim(t.Context(), 3)
	s.pending(out)
	if s.p.log.Start() != 3 {
		t.Errorf("the leader's log starts at %d", s.p.log.Start())
	}
	s.startsAt(2, 3, 5)
	s.startsAt(3, 2, 5)
	s.pending(out)
	s.startsAt(3, 4, 5)
	if got := <-out; got.err != nil || got.low != 3 {
		t.Errorf("got %+v, want 3", got)
	}
	if got := <-s.trim(t.Context(), 2); got.err != nil || got.low != 3 {
		t.Errorf("below the start: got %+v, want 3", got)
	}
}

// TestTrimForgetsTheDead: a replica whose broker is fenced is not waited for.
func TestTrimForgetsTheDead(t *testing.T) {
	s := newStand(t)
	s.host(1, 2, 3)
	s.follows(2, 0)
	s.follows(3, 0)
	s.write(5, 2, 3)
	out := s.trim(t.Context(), toHighWatermark)
	s.pending(out)
	s.startsAt(2, 5, 5)
	s.pending(out)
	s.applier.must(t, fsm.FenceBroker{ID: 3, Epoch: s.epochs[3]})
	s.install()
	if got := <-out; got.err != nil || got.low != 5 {
		t.Errorf("got %+v, want 5", got)
	}
}

func TestTrimErrors(t *testing.T) {
	s := newStand(t)
	s.host(1, 2)
	s.follows(2, 0)
	s.write(5, 2)
	s.write(2) // above the high watermark
	for _, to := range []batch.Offset{6, 7, 8, -2} {
		if got := <-s.trim(t.Context(), to); !errors.Is(got.err, errOutOfRange) || got.low != -1 {
			t.Errorf("to %d: got %+v, want errOutOfRange", to, got)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if got := <-s.trim(ctx, 3); !errors.Is(got.err, context.DeadlineExceeded) {
		t.Errorf("follower silent: got %+v", got)
	}
	out := s.trim(t.Context(), 4)
	s.pending(out)
	s.elect(2)
	if got := <-out; !errors.Is(got.err, errNotLeader) {
		t.Errorf("the epoch ended: got %+v", got)
	}
	if got := <-s.trim(t.Context(), 4); !errors.Is(got.err, errNotLeader) {
		t.Errorf("as a follower: got %+v", got)
	}
	s.elect(1)
	s.stale = true
	if got := <-s.trim(t.Context(), 4); !errors.Is(got.err, errStaleSession) {
		t.Errorf("without a session: got %+v", got)
	}
}

func TestEpochEnd(t *testing.T) {
	s := newStand(t)
	s.host(1)
	s.write(2) // epoch 0
	s.applier.must(t, fsm.FenceBroker{ID: 1, Epoch: s.epochs[1]})
	s.applier.must(t, fsm.UnfenceBroker{ID: 1, Epoch: s.epochs[1]})
	part := s.state()
	s.applier.must(t, fsm.ChangeLeaders{Items: []fsm.LeaderChange{{TP: s.p.tp, LeaderEpoch: part.LeaderEpoch, PartitionEpoch: part.PartitionEpoch, Leader: 1, ISR: []fsm.BrokerID{1}}}})
	s.install()
	if e := s.state().LeaderEpoch; e != 2 {
		t.Fatalf("leader epoch %d", e)
	}
	check := func(asked, epoch batch.Epoch, end batch.Offset) {
		t.Helper()
		if got, err := s.p.EpochEnd(batch.NoEpoch, asked); err != nil || got != (EpochEnd{epoch, end}) {
			t.Errorf("epoch %d: got %+v, %v; want %d with end %d", asked, got, err, epoch, end)
		}
	}
	check(2, 2, 2) // without batches yet
	s.write(3)
	check(0, 0, 2)
	check(1, 0, 2)
	check(2, 2, 5)
	check(3, -1, -1)
	check(-1, -1, -1)
	if got := <-s.trim(t.Context(), 4); got.err != nil {
		t.Fatal(got.err)
	}
	check(0, 0, 4) // its batches are gone
	check(2, 2, 5)
	if _, err := s.p.EpochEnd(1, 2); !errors.Is(err, errFencedEpoch) {
		t.Errorf("from an older epoch: %v", err)
	}
	if _, err := s.p.EpochEnd(3, 2); !errors.Is(err, errUnknownEpoch) {
		t.Errorf("from a newer epoch: %v", err)
	}
}

// look is one round of retention with the given defaults.
func (s *stand) look(r RetentionConfig, leapt time.Duration) {
	s.env.retention = r
	newRetention(s.env, hclog.NewNullLogger()).look(s.Context(), leapt)
}

func TestRetention(t *testing.T) {
	s := newStand(t)
	s.host(1, 2)
	s.follows(2, 0)
	s.p.log.SetSegmentBytes(1) // a segment for each batch
	s.write(4, 2)
	s.write(2) // not committed
	all := defaultRetention()
	all.Bytes = 0
	alter := func(name, value string) {
		t.Helper()
		s.applier.must(t, fsm.AlterTopicConfigs{ID: s.p.tp.Topic, Changes: []fsm.ConfigChange{{Name: name, Now: &value}}})
	}
	s.look(defaultRetention(), 0)
	if got := s.p.log.Start(); got != 0 {
		t.Errorf("young and small: start %d", got)
	}
	alter("retention.bytes", "-1")
	s.look(all, 0)
	if got := s.p.log.Start(); got != 0 {
		t.Errorf("the topic has no limit: start %d", got)
	}
	value := "-1"
	s.applier.must(t, fsm.AlterTopicConfigs{ID: s.p.tp.Topic, Changes: []fsm.ConfigChange{{Name: "retention.bytes", Was: &value}}})
	alter("cleanup.policy", "")
	s.look(all, 0)
	if got := s.p.log.Start(); got != 0 {
		t.Errorf("all is to be kept: start %d", got)
	}
	value = ""
	s.applier.must(t, fsm.AlterTopicConfigs{ID: s.p.tp.Topic, Changes: []fsm.ConfigChange{{Name: "cleanup.policy", Was: &value}}})
	w := NewWatcher()
	s.p.Watch(w)
	defer s.p.Unwatch(w)
	s.look(all, 0)
	if got := s.p.log.Start(); got != 4 {
		t.Errorf("no size is allowed: start %d, want the high watermark", got)
	}
	select {
	case <-w.C():
	default:
		t.Error("nobody was told that the start moved")
	}
	s.elect(2)
	s.p.mu.Lock()
	_ = s.p.follow.Mark(6, 4, 6)
	s.p.mu.Unlock()
	s.look(all, 0)
	if got := s.p.log.Start(); got != 4 {
		t.Errorf("a follower removed records: start %d", got)
	}
}

// TestRetentionLeap: by a clock that leapt, nothing is removed for its age.
func TestRetentionLeap(t *testing.T) {
	s := newStand(t)
	s.host(1)
	s.p.log.SetSegmentBytes(1)
	s.write(4)
	ms := int64(0)
	r := RetentionConfig{Hours: 168, Ms: &ms, Bytes: -1, Check: time.Minute}
	s.look(r, clockLeap+time.Second)
	if got := s.p.log.Start(); got != 0 {
		t.Errorf("the clock leapt: start %d", got)
	}
	eventually(t, func() bool { // no age is allowed, and a millisecond must have passed
		s.look(r, clockLeap)
		return s.p.log.Start() >= 3
	})
	now := time.Now()
	if got := leap(now, now.Add(time.Hour)); got != 0 {
		t.Errorf("an hour that passed is a leap of %v", got)
	}
}

func TestRetentionConfig(t *testing.T) {
	set := func(kvs ...string) Config {
		c := DefaultConfig()
		for i := 0; i < len(kvs); i += 2 {
			if err := c.Set(kvs[i], kvs[i+1]); err != nil {
				t.Fatal(err)
			}
		}
		return c
	}
	week := int64(168 * 3600 * 1000)
	for _, c := range []struct {
		kvs  []string
		want int64
	}{
		{nil, week},
		{[]string{"log.retention.hours", "1"}, 3_600_000},
		{[]string{"log.retention.minutes", "2", "log.retention.hours", "1"}, 120_000},
		{[]string{"log.retention.ms", "3", "log.retention.minutes", "2", "log.retention.hours", "1"}, 3},
		{[]string{"log.retention.ms", "-1"}, -1},
		{[]string{"log.retention.minutes", "-1"}, -1},
		{[]string{"log.retention.hours", "-1"}, -1},
	} {
		got := set(c.kvs...)
		if got.Retention.AgeMs() != c.want || got.Validate() != nil {
			t.Errorf("%v: age %d, %v; want %d", c.kvs, got.Retention.AgeMs(), got.Validate(), c.want)
		}
	}
	topic := &fsm.Topic{Configs: map[string]string{"retention.ms": "5", "segment.ms": "7"}, Config: fsm.TopicConfig{RetentionMs: 5, SegmentMs: 7}}
	c := set("log.retention.bytes", "9", "log.roll.ms", "11").Retention
	if got := c.policy(topic); got != (storage.Retention{AgeMs: 5, Bytes: 9}) {
		t.Errorf("policy %+v", got)
	}
	if got := c.segmentAge(topic); got != 7*time.Millisecond {
		t.Errorf("segment age %v", got)
	}
	if got := c.segmentAge(&fsm.Topic{}); got != 11*time.Millisecond {
		t.Errorf("the node's segment age %v", got)
	}
	if bad := set("log.retention.check.interval.ms", "1"); bad.Validate() == nil {
		t.Error("a check every millisecond is accepted")
	}
	for _, name := range []string{"log.retention.ms", "log.roll.hours"} {
		if isInertKey(name) {
			t.Errorf("%s is said to have no effect", name)
		}
	}
}
