package isr_test

import (
	"testing"
	"time"

	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

func allLive(id fsm.BrokerID) (fsm.BrokerEpoch, bool) { return fsm.BrokerEpoch(id), true }

// hotLeader leads three replicas, all in sync; alone it is the only one in the ISR.
func hotLeader(isrIDs ...fsm.BrokerID) (*isr.Leader, time.Time) {
	now := time.Unix(1_000_000, 0)
	s := isr.State{Replicas: []fsm.BrokerID{1, 2, 3}, ISR: isrIDs, MinISR: int16(min(len(isrIDs), 2))}
	l := isr.NewLeader(isr.Config{Self: isr.Member{ID: 1, Epoch: 1}, LagMax: 10 * time.Second}, s, isr.Span{}, now)
	l.Tick(now, allLive)
	for _, id := range isrIDs[1:] {
		l.Follow(isr.Member{ID: id, Epoch: fsm.BrokerEpoch(id)}, now)
		l.Progressed(isr.Member{ID: id, Epoch: fsm.BrokerEpoch(id)}, isr.Position{}, now, allLive)
	}
	return l, now
}

// replicate is one append and the reports of both followers.
func replicate(l *isr.Leader, end batch.Offset, now time.Time) isr.Effects {
	l.Appended(end, now)
	p := isr.Position{Written: end, Flushed: end}
	l.Progressed(isr.Member{ID: 2, Epoch: 2}, p, now, allLive)
	return l.Progressed(isr.Member{ID: 3, Epoch: 3}, p, now, allLive)
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	l, now := hotLeader(1, 2, 3)
	end := batch.Offset(0)
	if n := testing.AllocsPerRun(1000, func() {
		end += 10
		now = now.Add(time.Millisecond)
		if e := replicate(l, end, now); e.HW != end || !e.HWMoved {
			t.Fatalf("replicated to %d: %+v", end, e)
		}
	}); n != 0 {
		t.Errorf("append and two reports: %v allocations, want 0", n)
	}
	alone, now := hotLeader(1)
	if n := testing.AllocsPerRun(1000, func() {
		end += 10
		if e := alone.Appended(end, now); e.HW != end || !e.HWMoved {
			t.Fatalf("alone at %d: %+v", end, e)
		}
	}); n != 0 {
		t.Errorf("append of a leader alone: %v allocations, want 0", n)
	}
}

func BenchmarkAppendedAlone(b *testing.B) {
	l, now := hotLeader(1)
	b.ReportAllocs()
	for i := range b.N {
		l.Appended(batch.Offset(i+1), now)
	}
}

func BenchmarkReplicated(b *testing.B) {
	l, now := hotLeader(1, 2, 3)
	b.ReportAllocs()
	for i := range b.N {
		replicate(l, batch.Offset(i+1), now)
	}
}
