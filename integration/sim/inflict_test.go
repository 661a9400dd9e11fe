package sim

import (
	"testing"
	"time"
)

// TestFaultsCountWithEffect inflicts faults of each sort twice: on nodes that are not there,
// where none counts, and on nodes that are, where the first counts.
func TestFaultsCountWithEffect(t *testing.T) {
	p := PlanFor(1)
	p.Faults, p.More = nil, nil
	for _, kind := range []FaultKind{
		FaultCrash, FaultPower, FaultCrashAt, FaultStop, FaultPause, FaultSlowDisk, FaultLag, FaultLateChange, FaultClientCut,
		FaultAnswers, FaultDiskError, FaultDiskFull, FaultController, FaultTrim, FaultLeaderKill, FaultReset,
	} {
		w := newWorld(p)
		twice := func() int {
			was := w.report.Faults
			for range 2 {
				w.inflict(Fault{Kind: kind, Node: 0, Peer: 1, For: time.Second, Seed: 1})
				w.until(w.now+time.Microsecond, func() bool { return false })
			}
			return w.report.Faults - was
		}
		if got := twice(); got != 0 {
			t.Errorf("%s without a node counts %d times", kind, got)
		}
		w.raft.begin()
		for _, n := range w.nodes {
			n.start()
		}
		w.form()
		w.until(10*time.Second, func() bool { return false })
		want := 1
		if kind == FaultController || kind == FaultTrim || kind == FaultReset {
			want = 2 // the next of it has an effect, too, or has not: that depends
		}
		if got := twice(); got < 1 || got > want {
			t.Errorf("%s counts %d times", kind, got)
		}
	}
	for _, kind := range []FaultKind{FaultCut, FaultSplit, FaultIsolate, FaultWall, FaultSlowLink} {
		w := newWorld(p)
		for _, n := range w.nodes {
			n.start()
		}
		for range 2 {
			w.inflict(Fault{Kind: kind, Node: 0, Peer: 1, For: time.Second, Seed: 1})
		}
		if got := w.report.Faults; got != 1 {
			t.Errorf("%s where it is in force counts %d times", kind, got)
		}
	}
}
