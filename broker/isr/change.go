package isr

import (
	"slices"
	"time"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// retryPause lies between an answer that brought nothing and the next proposal.
const retryPause = 250 * time.Millisecond

// Phase is what the leader is doing to its ISR.
type Phase uint8

// The phases. Durability proposes the committed ISR with another durability. Settling
// proposes the committed ISR again: to raise the partition epoch and so to void an
// earlier proposal of unknown outcome, or to confirm it.
const (
	PhaseInstalled Phase = iota
	PhaseExpanding
	PhaseShrinking
	PhaseDurability
	PhaseSettling
)

// pending is the one proposal of a partition epoch. The zero value: none.
type pending struct {
	phase     Phase
	change    *Change
	inFlight  bool      // handed out, not answered
	committed bool      // answered as committed; Installed has yet to bring it
	doubt     bool      // a proposal at this partition epoch had an unknown outcome
	fsync     bool      // one of them says DurabilityFsync, and may still be applied
	holdUntil time.Time // nothing is proposed before; zero when there is no pause
}

// wakeAt is when a pause ends.
func (p *pending) wakeAt() time.Time {
	if p.inFlight || p.committed {
		return time.Time{}
	}
	return p.holdUntil
}

// Phase tells what the leader is doing to its ISR.
func (l *Leader) Phase() Phase { return l.pending.phase }

// Answered tells what became of the Change proposed at a partition epoch. An
// answer to an older one is ignored: the partition epoch moved on without it.
func (l *Leader) Answered(proposed fsm.PartitionEpoch, o Outcome, now time.Time, live Live) Effects {
	l.observe(now)
	p := &l.pending
	if !p.inFlight || proposed != l.s.PartitionEpoch {
		return l.effects(false, nil)
	}
	p.inFlight = false
	switch o {
	case Committed:
		p.committed = true
	case Unknown:
		p.doubt = true
		p.holdUntil = now.Add(retryPause)
	case Refused:
		p.phase, p.change = PhaseInstalled, nil
		p.holdUntil = now.Add(retryPause)
		if !p.doubt {
			l.rollBack()
		}
	}
	l.refresh(live)
	moved := l.advance()
	return l.effects(moved, l.decide(now, live))
}

// rollBack takes a change that will never be applied out of the maximal ISR.
func (l *Leader) rollBack() {
	l.pending.fsync = false
	for i := range l.followers {
		l.followers[i].proposed = false
	}
}

// decide returns the Change to propose now, if any.
func (l *Leader) decide(now time.Time, live Live) *Change {
	p := &l.pending
	if p.inFlight || p.committed || now.Before(p.holdUntil) {
		return nil
	}
	p.holdUntil = time.Time{}
	if p.change != nil {
		p.inFlight = true
		return p.change
	}
	phase := l.want(now, live)
	if phase == PhaseInstalled {
		return nil
	}
	if epoch, eligible := live(l.c.Self.ID); !eligible || epoch != l.c.Self.Epoch {
		return nil
	}
	return l.propose(phase, now, live)
}

// want tells which way the ISR has to change, if at all. Joining goes first:
// the same change drops whoever lags.
func (l *Leader) want(now time.Time, live Live) Phase {
	phase := PhaseInstalled
	switch {
	case l.wantsDurability():
		phase = PhaseDurability
	case l.pending.doubt || l.confirms(now):
		phase = PhaseSettling
	}
	for i := range l.followers {
		f := &l.followers[i]
		switch {
		case !f.committed && l.mayJoin(f, live):
			return PhaseExpanding
		case f.committed && l.mustLeave(f, now):
			phase = PhaseShrinking
		}
	}
	return phase
}

// mayJoin holds the conditions of entry.
func (l *Leader) mayJoin(f *follower, live Live) bool {
	if !f.following || !f.known || l.counted(f) < l.hw || l.counted(f) < l.epochStart {
		return false
	}
	f.refresh(live)
	return f.eligible && f.following
}

// mayConfirm holds the conditions for confirming the ISR as it is: all of a full one
// have what anybody else may hold of what was committed with it.
func (l *Leader) mayConfirm() bool {
	return l.s.Unsettled && !l.BelowMinISR() && l.hw >= l.settleEnd
}

// confirms tells whether that is so, and a power cut can not make the log of anybody else
// the best again: the members have reported that it is on their disks, or have had it for
// the lag limit. Until then a former member with a later epoch at the end of its log comes
// before those that have what was committed without it, so the sooner the better. A member
// that joins confirms nothing by that.
//
// Where a reassignment waits for it, the time does not do: what those that stay have is all
// that is left then. An ISR that is not full does.
func (l *Leader) confirms(now time.Time) bool {
	if l.s.Awaited {
		return l.onDisks(l.settleEnd)
	}
	return l.mayConfirm() && (!now.Before(l.settleAt) || l.onDisks(l.settleEnd))
}

// onDisks tells whether the disks of all members are known to have everything up to end.
func (l *Leader) onDisks(end batch.Offset) bool {
	return l.flushed >= end && !slices.ContainsFunc(l.followers, func(f follower) bool {
		return f.committed && !(f.known && f.position.Flushed >= end)
	})
}

// same tells whether a change leaves the ISR as it is.
func (l *Leader) same(isr []Member) bool {
	return slices.EqualFunc(isr, l.s.ISR, func(m Member, id fsm.BrokerID) bool { return m.ID == id })
}

// mustLeave holds the conditions of removal.
func (l *Leader) mustLeave(f *follower, now time.Time) bool {
	return f.behind || !l.keepsUp(f, now)
}

// propose makes the Change: the leader, members that stay and followers that
// join. A member whose broker is not eligible is left out, since the whole
// change would be refused for it.
func (l *Leader) propose(phase Phase, now time.Time, live Live) *Change {
	c := &Change{LeaderEpoch: l.s.LeaderEpoch, PartitionEpoch: l.s.PartitionEpoch}
	for _, id := range l.s.Replicas {
		if id == l.c.Self.ID {
			c.ISR = append(c.ISR, l.c.Self)
			continue
		}
		f := l.follower(id)
		if f.committed && l.mustLeave(f, now) || !f.committed && !l.mayJoin(f, live) {
			continue
		}
		epoch, eligible := live(id)
		if !eligible || f.member.Epoch != 0 && f.member.Epoch != epoch {
			continue
		}
		c.ISR = append(c.ISR, Member{ID: id, Epoch: epoch})
		f.proposed = true
	}
	if c.Durability = l.durability(c.ISR); c.Durability == fsm.DurabilityFsync {
		l.pending.fsync = true
	}
	c.Confirms = l.confirms(now) && l.same(c.ISR)
	l.pending.phase, l.pending.change, l.pending.inFlight = phase, c, true
	return c
}
