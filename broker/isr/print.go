package isr

import (
	"fmt"
	"strings"

	"github.com/weirmq/weir/fsm"
)

var phaseNames = [...]string{"installed", "expanding", "shrinking", "durability", "settling"}

// String is the phase in one word.
func (p Phase) String() string { return phaseNames[p] }

// String is the whole state, one line for the leader and one for each follower,
// for logs and tests.
func (l *Leader) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "hw=%d log=[%d,%d) flushed=%d epoch=%d@%d pe=%d isr=%v min=%d %s",
		l.hw, l.start, l.end, l.flushed, l.s.LeaderEpoch, l.epochStart, l.s.PartitionEpoch, l.s.ISR, l.s.MinISR, l.pending.phase)
	for _, word := range []struct {
		on   bool
		word string
	}{{l.pending.inFlight, "in flight"}, {l.pending.committed, "committed"}, {l.pending.doubt, "in doubt"},
		{l.s.Wanted == fsm.DurabilityFsync, "fsync wanted"}, {l.s.Durability == fsm.DurabilityFsync, "fsync"}, {l.pending.fsync, "fsync proposed"}} {
		if word.on {
			b.WriteString(", " + word.word)
		}
	}
	for i := range l.followers {
		b.WriteString("\n  " + l.describe(&l.followers[i]))
	}
	return b.String()
}

func (l *Leader) describe(f *follower) string {
	s := fmt.Sprintf("%d@%d", f.member.ID, f.member.Epoch)
	if f.known {
		s += fmt.Sprintf(" log=[%d,%d) flushed=%d", f.position.LogStart, f.position.Written, f.position.Flushed)
	} else {
		s += " unknown"
	}
	for _, word := range []struct {
		on   bool
		word string
	}{
		{f.committed, "in-sync"}, {f.proposed && !f.committed, "proposed"}, {f.following, "following"},
		{f.behind, "behind"}, {l.atEnd(f), "at-end"}, {!l.keepsUp(f, l.seen), "lagging"},
	} {
		if word.on {
			s += " " + word.word
		}
	}
	return s
}
