package isr

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// Member is one incarnation of a broker.
type Member = fsm.Member

// Span is the extent of a log when a role in it begins.
type Span struct {
	Start   batch.Offset // log start offset
	End     batch.Offset // log end offset, exclusive
	Flushed batch.Offset // end of what is known to be on disk, exclusive
	HW      batch.Offset // high watermark as last known; a lower bound of the true one
}

// Position is what a follower says of its log.
type Position struct {
	Written  batch.Offset // log end, exclusive
	Flushed  batch.Offset // end of what is on disk, exclusive; at most Written
	LogStart batch.Offset
}

// Config holds what does not change while one broker leads one partition in one
// leader epoch.
type Config struct {
	Self   Member
	LagMax time.Duration // a follower not caught up for longer leaves the ISR
}

// State is the partition as the Image has it.
type State struct {
	LeaderEpoch    batch.Epoch
	PartitionEpoch fsm.PartitionEpoch
	Replicas       []fsm.BrokerID
	ISR            []fsm.BrokerID
	MinISR         int16 // the effective one
	// Unsettled: the Image keeps last members, or knows of a loss, until the leader
	// of a full ISR confirms it.
	Unsettled bool
	// Awaited: a reassignment waits for the leader to confirm the ISR, full or not.
	Awaited    bool
	Durability fsm.Durability
	Wanted     fsm.Durability // by the topic's config; Durability follows when it can
}

// Flushes tells whether all replicas are to flush what they append, and report it: flushed
// ends count, or are to, or the leader is to confirm what is on the disks of all members.
func (s State) Flushes() bool {
	return s.Durability == fsm.DurabilityFsync || s.Wanted == fsm.DurabilityFsync || s.Awaited ||
		s.Unsettled && len(s.ISR) >= int(s.MinISR)
}

// Live tells a broker's current epoch and whether it may be in an ISR: it is
// registered, unfenced and not stopping.
type Live func(fsm.BrokerID) (epoch fsm.BrokerEpoch, eligible bool)

// Change is a proposed ISR, guarded by the epochs it was decided at.
type Change struct {
	LeaderEpoch    batch.Epoch
	PartitionEpoch fsm.PartitionEpoch
	ISR            []Member // in the order of the replicas; the leader always among them
	Durability     fsm.Durability
	Confirms       bool // the committed ISR, as fsm.ISRChange says
}

// Outcome is what became of a proposed Change.
type Outcome uint8

// The outcomes; doc.go says which answer is which.
const (
	Committed Outcome = iota + 1
	Refused
	Unknown
)

// Effects is what the caller has to do after an event.
type Effects struct {
	HWMoved bool
	HW      batch.Offset // the high watermark now, moved or not
	Propose *Change      // to be proposed, then answered by Answered
	WakeAt  time.Time    // when set: call Tick at this time, instead of at any later one asked for before
}

// Leader is the leader's side of one partition in one leader epoch.
type Leader struct {
	c Config
	s State // as installed; the slices are its own

	start, end, flushed batch.Offset
	hw                  batch.Offset
	epochStart          batch.Offset // the log end when this leader epoch began

	settleEnd batch.Offset // the log end when the partition became what is to be confirmed
	settleAt  time.Time    // not before that

	followers []follower // one for each replica but this one, in the order of the replicas
	pending   pending

	seen   time.Time // the latest time that any event brought
	wakeAt time.Time // the Tick that was asked for; zero when none is
}

// NewLeader begins to lead at the end of a log of the given span. No follower's
// position is known; the members of the ISR have the whole lag limit to report one.
func NewLeader(c Config, s State, sp Span, now time.Time) *Leader {
	if sp.Start > sp.HW || sp.HW > sp.End || sp.Flushed > sp.End {
		panic(fmt.Sprintf("BUG: leader of a log with an impossible span %+v", sp))
	}
	l := &Leader{
		c: c, start: sp.Start, end: sp.End, flushed: sp.Flushed, hw: sp.HW, epochStart: sp.End,
		seen: now, wakeAt: now,
	}
	l.install(s, now)
	return l
}

// Appended says that the leader's log now ends at end.
func (l *Leader) Appended(end batch.Offset, now time.Time) Effects {
	if end < l.end {
		panic(fmt.Sprintf("BUG: log end went back from %d to %d in epoch %d", l.end, end, l.s.LeaderEpoch))
	}
	l.observe(now)
	if end > l.end {
		l.startClocks(end, now)
		l.end = end
	}
	return l.effects(l.advance(), nil)
}

// Flushed says that the leader's log is on disk up to end. An end older than
// one already reported is of no interest.
func (l *Leader) Flushed(end batch.Offset, now time.Time, live Live) Effects {
	if end > l.end {
		panic(fmt.Sprintf("BUG: flushed to %d past the log end %d", end, l.end))
	}
	l.observe(now)
	l.flushed = max(l.flushed, end)
	moved := l.advance()
	return l.effects(moved, l.decide(now, live))
}

// Started says that the leader's log now starts at start.
func (l *Leader) Started(start batch.Offset) {
	if start < l.start || start > l.hw {
		panic(fmt.Sprintf("BUG: log start moved from %d to %d with the high watermark at %d", l.start, start, l.hw))
	}
	l.start = start
}

// Follow begins a new attempt of a follower: what it reported before no longer
// counts. Progressed follows at once with the position that was checked.
func (l *Leader) Follow(m Member, now time.Time) {
	l.observe(now)
	f := l.follower(m.ID)
	if f == nil || m.Epoch < f.member.Epoch {
		return
	}
	f.forget()
	f.member = m
	f.following = true
	if !f.maximal() {
		f.mark, f.markAt, f.caughtUp = 0, time.Time{}, time.Time{}
	}
}

// Progressed counts a position that the feed has checked: equal leader epoch,
// and a log that is a prefix of the leader's. It is ignored unless this
// incarnation has an open attempt.
func (l *Leader) Progressed(m Member, p Position, now time.Time, live Live) Effects {
	l.observe(now)
	f := l.follower(m.ID)
	if f == nil || !f.following || f.member != m {
		return l.effects(false, nil)
	}
	l.checkPosition(f, p)
	f.position, f.known = p, true
	f.behind = f.committed && p.Written < l.hw
	l.time(f, now)
	if !f.committed {
		f.refresh(live)
	}
	moved := l.advance()
	return l.effects(moved, l.decide(now, live))
}

// Behind says that a follower at the equal leader epoch asked to be fed from
// end and was not accepted (its log diverged or ends below the leader's start).
// A member of the ISR that lacks what is committed has to leave it.
func (l *Leader) Behind(m Member, end batch.Offset, now time.Time, live Live) Effects {
	l.observe(now)
	f := l.follower(m.ID)
	if f == nil || m.Epoch < f.member.Epoch || !f.committed || end >= l.hw {
		return l.effects(false, nil)
	}
	f.behind = true
	return l.effects(false, l.decide(now, live))
}

// Gone says that a follower's attempt ended. It stays a member of the ISR and
// its last position still holds the high watermark, but until it follows again
// it can neither join nor be counted as having answered.
func (l *Leader) Gone(m Member) {
	if f := l.follower(m.ID); f != nil && f.member == m {
		f.following = false
	}
}

// Tick judges who has fallen behind and retries what is pending. One that comes
// earlier than asked for does no harm and leaves the one asked for standing.
func (l *Leader) Tick(now time.Time, live Live) Effects {
	l.observe(now)
	if !now.Before(l.wakeAt) {
		l.wakeAt = time.Time{}
	}
	l.refresh(live)
	moved := l.advance()
	return l.effects(moved, l.decide(now, live))
}

// Installed takes a new Image state of the same leader epoch, or the same state
// again after the broker of a replica changed. An older state is ignored.
func (l *Leader) Installed(s State, now time.Time, live Live) Effects {
	l.observe(now)
	switch {
	case s.LeaderEpoch != l.s.LeaderEpoch:
		panic(fmt.Sprintf("BUG: state of leader epoch %d installed in epoch %d", s.LeaderEpoch, l.s.LeaderEpoch))
	case s.PartitionEpoch < l.s.PartitionEpoch:
		return l.effects(false, nil)
	case s.PartitionEpoch == l.s.PartitionEpoch && !slices.Equal(s.ISR, l.s.ISR):
		panic(fmt.Sprintf("BUG: ISR %v and %v at one partition epoch %d", l.s.ISR, s.ISR, s.PartitionEpoch))
	}
	flushedBefore := l.countsFlushed()
	if s.PartitionEpoch > l.s.PartitionEpoch {
		l.pending = pending{}
	}
	l.pending.holdUntil = time.Time{}
	l.install(s, now)
	l.recount(flushedBefore, now)
	l.refresh(live)
	moved := l.advance()
	return l.effects(moved, l.decide(now, live))
}

// install replaces the committed state and keeps what is known of the replicas that stay.
func (l *Leader) install(s State, now time.Time) {
	if !slices.Contains(s.ISR, l.c.Self.ID) {
		panic(fmt.Sprintf("BUG: leader %d is not in its ISR %v", l.c.Self.ID, s.ISR))
	}
	moved := s.PartitionEpoch != l.s.PartitionEpoch || l.followers == nil
	old := l.followers
	if moved {
		l.settleEnd, l.settleAt = l.end, now.Add(l.c.LagMax)
	}
	l.s = s
	l.s.Replicas, l.s.ISR = slices.Clone(s.Replicas), slices.Clone(s.ISR)
	l.followers = make([]follower, 0, len(s.Replicas))
	for _, id := range s.Replicas {
		if id == l.c.Self.ID {
			continue
		}
		f := follower{member: Member{ID: id}}
		if i := slices.IndexFunc(old, func(o follower) bool { return o.member.ID == id }); i >= 0 {
			f = old[i]
		}
		in := slices.Contains(s.ISR, id)
		if in && !f.committed {
			f.caughtUp, f.mark, f.markAt = now, l.end, now
		}
		f.committed = in
		f.behind = f.behind && in
		if moved {
			f.proposed = false
		}
		l.followers = append(l.followers, f)
	}
}

// HW is the high watermark.
func (l *Leader) HW() batch.Offset { return l.hw }

// EpochStart is where the log ended when this leader epoch began.
func (l *Leader) EpochStart() batch.Offset { return l.epochStart }

// Epoch is the leader epoch.
func (l *Leader) Epoch() batch.Epoch { return l.s.LeaderEpoch }

// Servable tells whether all that earlier leaders may have acknowledged is below
// the high watermark, so that the latest offset may be told.
func (l *Leader) Servable() bool { return l.hw >= l.epochStart }

// CommittedISR is the size of the committed ISR.
func (l *Leader) CommittedISR() int { return len(l.s.ISR) }

// BelowMinISR tells whether the committed ISR is too small to acknowledge anything.
func (l *Leader) BelowMinISR() bool { return len(l.s.ISR) < int(l.s.MinISR) }

// InSync tells whether a broker is in the committed ISR.
func (l *Leader) InSync(id fsm.BrokerID) bool { return slices.Contains(l.s.ISR, id) }

// Covers tells whether a broker in the committed ISR, with an open attempt, holds
// the offset o or ends there, as far as it has reported; end is its log end then.
func (l *Leader) Covers(id fsm.BrokerID, o batch.Offset) (end batch.Offset, ok bool) {
	f := l.follower(id)
	if f == nil || !f.committed || !f.following || !f.known || o < f.position.LogStart || o > f.position.Written {
		return 0, false
	}
	return f.position.Written, true
}

// LogStartLow is the lowest log start offset of the leader and of all replicas
// that live, or -1 while that of one of them is not known.
func (l *Leader) LogStartLow() batch.Offset {
	low := l.start
	for i := range l.followers {
		switch f := &l.followers[i]; {
		case f.eligible && !f.known:
			return -1
		case f.eligible:
			low = min(low, f.position.LogStart)
		}
	}
	return low
}

// Heard tells whether every member of the maximal ISR still follows this leader
// epoch and answered a question that was sent at or after since; heard gives
// the time at which the last answered question to a member was sent. Then no
// other leader had acted by that time, so a leader that lost its controller may
// go on. It never holds below min ISR: only then can a broker outside the ISR,
// one of the ELR, have been elected.
func (l *Leader) Heard(since time.Time, heard func(Member) time.Time) bool {
	if l.BelowMinISR() {
		return false
	}
	for i := range l.followers {
		f := &l.followers[i]
		if !f.committed && !f.proposed {
			continue
		}
		if !f.following || heard(f.member).Before(since) {
			return false
		}
	}
	return true
}

// follower finds a replica other than the leader; nil when there is none of that id.
func (l *Leader) follower(id fsm.BrokerID) *follower {
	for i := range l.followers {
		if l.followers[i].member.ID == id {
			return &l.followers[i]
		}
	}
	return nil
}

// effects gathers what an event led to, and asks for the next Tick when it is
// needed earlier than the one already asked for.
func (l *Leader) effects(moved bool, c *Change) Effects {
	e := Effects{HWMoved: moved, HW: l.hw, Propose: c}
	if at := l.nextTick(); !at.IsZero() && (l.wakeAt.IsZero() || at.Before(l.wakeAt)) {
		l.wakeAt, e.WakeAt = at, at
	}
	return e
}
