package isr

import (
	"fmt"
	"time"

	"github.com/weirmq/weir/wire/batch"
)

// follower is what the leader knows of one other replica.
type follower struct {
	member   Member   // whose position it is; broker epoch 0 before the first attempt
	position Position // meaningful when known
	known    bool     // reported by this member in this leader epoch

	following bool // an attempt is open
	eligible  bool // its broker lives at the member's epoch, as of the last Live
	committed bool // in the committed ISR
	proposed  bool // in an ISR that was proposed at this partition epoch and may still be applied
	behind    bool // in the ISR, yet it showed an end below the high watermark

	// One lag mark: the log end at a time. Once the counted end reaches it, the
	// follower was caught up at that time, and the next mark is set.
	mark     batch.Offset
	markAt   time.Time
	caughtUp time.Time // the latest time at which it is known to have been caught up
}

// forget drops all that an earlier attempt or incarnation reported. The lag clock
// of a member goes on: reconnecting wins no time.
func (f *follower) forget() {
	f.position, f.known, f.following = Position{}, false, false
}

// refresh takes the broker's registration from the Image. A newer incarnation
// than the one that reported has nothing to do with that one's log.
func (f *follower) refresh(live Live) {
	epoch, eligible := live(f.member.ID)
	if f.member.Epoch != 0 && epoch > f.member.Epoch {
		f.forget()
		f.member.Epoch = 0
	}
	f.eligible = eligible && (f.member.Epoch == 0 || f.member.Epoch == epoch)
}

func (l *Leader) refresh(live Live) {
	for i := range l.followers {
		l.followers[i].refresh(live)
	}
}

// counted is the end of a follower's log as it counts towards the high watermark.
func (l *Leader) counted(f *follower) batch.Offset {
	if l.countsFlushed() {
		return f.position.Flushed
	}
	return f.position.Written
}

// countedEnd is the leader's own.
func (l *Leader) countedEnd() batch.Offset {
	if l.countsFlushed() {
		return l.flushed
	}
	return l.end
}

// maximal tells whether the high watermark has to wait for a follower whatever
// becomes of the proposals.
func (f *follower) maximal() bool { return f.committed || f.proposed }

// advance moves the high watermark as far as the counted ends allow and tells
// whether it moved.
func (l *Leader) advance() bool {
	if l.BelowMinISR() {
		return false
	}
	low := l.countedEnd()
	for i := range l.followers {
		f := &l.followers[i]
		if !f.maximal() && !l.nearlyIn(f) {
			continue
		}
		if !f.known {
			return false
		}
		low = min(low, l.counted(f))
	}
	if low <= l.hw {
		return false
	}
	l.hw = low
	return true
}

// nearlyIn tells whether a follower outside the ISR keeps up so well that the
// high watermark waits for it: if it did not, a follower could hardly ever
// reach a high watermark that moves with every append, and so never join.
func (l *Leader) nearlyIn(f *follower) bool {
	return f.known && f.following && f.eligible && l.keepsUp(f, l.seen)
}

// atEnd tells whether a follower has all there is.
func (l *Leader) atEnd(f *follower) bool { return f.known && l.counted(f) >= l.end }

// keepsUp tells whether a follower was caught up within the lag limit.
func (l *Leader) keepsUp(f *follower, now time.Time) bool {
	return l.atEnd(f) || !f.caughtUp.IsZero() && now.Sub(f.caughtUp) <= l.c.LagMax
}

// time moves a follower's lag mark after it reported a position.
func (l *Leader) time(f *follower, now time.Time) {
	switch end := l.counted(f); {
	case end >= l.end:
		f.caughtUp = now
	case f.markAt.IsZero():
		// Its first report, and it lacks something: timed from here.
	case end >= f.mark:
		f.caughtUp = later(f.caughtUp, f.markAt)
	default:
		return
	}
	f.mark, f.markAt = l.end, now
}

// startClocks starts the clock of each follower that had all there was before
// an append up to end.
func (l *Leader) startClocks(end batch.Offset, now time.Time) {
	for i := range l.followers {
		if f := &l.followers[i]; l.atEnd(f) {
			f.caughtUp, f.mark, f.markAt = now, end, now
		}
	}
}

// observe takes note of the time. While a clock runs, some event or Tick comes
// at least every quarter of the lag limit; if none came for half of it, this
// node stood still and cannot blame its followers: whoever kept up when it was
// last awake starts anew.
func (l *Leader) observe(now time.Time) {
	if !now.After(l.seen) {
		return
	}
	if !l.wakeAt.IsZero() && now.Sub(l.seen) > l.c.LagMax/2 {
		for i := range l.followers {
			if f := &l.followers[i]; l.keepsUp(f, l.seen) {
				f.caughtUp, f.mark, f.markAt = now, l.end, now
			}
		}
	}
	l.seen = now
}

// nextTick is when the next Tick is needed; zero when nothing waits for time to pass.
func (l *Leader) nextTick() time.Time {
	at := l.pending.wakeAt()
	if l.pending.phase == PhaseInstalled && l.mayConfirm() {
		next := l.seen.Add(l.c.LagMax / 4)
		if l.settleAt.After(l.seen) {
			next = earlier(l.settleAt, next)
		}
		at = earlier(at, next)
	}
	for i := range l.followers {
		f := &l.followers[i]
		if l.atEnd(f) || !l.keepsUp(f, l.seen) || !f.maximal() && !l.nearlyIn(f) {
			continue
		}
		at = earlier(at, f.caughtUp.Add(l.c.LagMax+1))
		at = earlier(at, l.seen.Add(l.c.LagMax/4))
	}
	return at
}

// checkPosition asserts what package feed guarantees of a position.
func (l *Leader) checkPosition(f *follower, p Position) {
	if p.Written > l.end || p.Flushed > p.Written {
		panic(fmt.Sprintf("BUG: position %+v of broker %d with the log end at %d", p, f.member.ID, l.end))
	}
	if f.known && (p.Written < f.position.Written || p.Flushed < f.position.Flushed) {
		panic(fmt.Sprintf("BUG: position of broker %d went back from %+v to %+v in one attempt", f.member.ID, f.position, p))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// earlier is the earlier of two times of which a may be unset.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
