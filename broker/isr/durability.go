package isr

import (
	"time"

	"github.com/weirmq/weir/fsm"
)

// Problem: a partition whose records are to be on disks before they are
// acknowledged may keep its seats in ISR and ELR through a loss of power, since
// nobody lost what was acknowledged. Whether that is so changes while the
// partition is served, and the state machine has to know it before anybody
// registers after such a loss.
//
// Invariants:
//   - While the partition is recorded as DurabilityFsync, or may be by a proposal
//     that was ever made at this partition epoch, only flushed ends count.
//   - It is proposed only when all that this or an earlier leader may have
//     acknowledged is flushed by every member of the proposed ISR, itself a full
//     one: then the ELR, whose members were not asked, is empty.
//
// Steps: as soon as it is wanted flushed ends count, so that the high watermark
// waits for the disks from then on. Once all are flushed up to it, the next change
// of the ISR, or one that changes nothing else, says so. When it is no longer
// wanted the next change takes it back, and written ends count again only when the
// Image brings that.
//
// Rejected: to derive it from the config of the topic in the state machine. The
// config says what is wanted, not what the disks have.

// countsFlushed tells whether flushed ends count instead of written ones.
func (l *Leader) countsFlushed() bool {
	return l.s.Wanted == fsm.DurabilityFsync || l.s.Durability == fsm.DurabilityFsync || l.pending.fsync
}

// durability is what a change to the given ISR can say.
func (l *Leader) durability(isr []Member) fsm.Durability {
	switch {
	case l.s.Wanted != fsm.DurabilityFsync:
		return fsm.DurabilityReplicated
	case l.s.Durability == fsm.DurabilityFsync:
		return fsm.DurabilityFsync
	case len(isr) < int(l.s.MinISR) || !l.Servable() || l.flushed < l.hw:
		return fsm.DurabilityReplicated
	}
	for _, m := range isr {
		if m == l.c.Self {
			continue
		}
		if f := l.follower(m.ID); !f.known || f.member != m || f.position.Flushed < l.hw {
			return fsm.DurabilityReplicated
		}
	}
	return fsm.DurabilityFsync
}

// wantsDurability tells whether the durability can be brought to the wanted one
// now, with the ISR as it is.
func (l *Leader) wantsDurability() bool {
	if l.s.Wanted == l.s.Durability || l.s.Unsettled {
		return false // the change that settles the ISR brings it along
	}
	isr := []Member{l.c.Self}
	for i := range l.followers {
		switch f := &l.followers[i]; {
		case f.committed && !f.eligible:
			return l.s.Wanted == fsm.DurabilityReplicated // the change would leave it out
		case f.committed:
			isr = append(isr, f.member)
		}
	}
	return l.durability(isr) == l.s.Wanted
}

// recount gives everyone who kept up by written ends a new start when flushed
// ones begin to count: they may have been at the end, untimed, for long.
func (l *Leader) recount(flushedBefore bool, now time.Time) {
	if flushedBefore || !l.countsFlushed() {
		return
	}
	for i := range l.followers {
		if f := &l.followers[i]; f.known && f.position.Written >= l.end || l.keepsUp(f, now) {
			f.caughtUp, f.mark, f.markAt = now, l.end, now
		}
	}
}
