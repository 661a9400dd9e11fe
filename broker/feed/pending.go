package feed

import (
	"fmt"
	"time"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// A refused partition is asked for again after a pause that doubles from
// retryMin to retryMax: short, since after an election the follower often knows
// of it before the leader does. One that could not take what it was sent waits up
// to failedMax: a disk that is full or broken does not mend within milliseconds, and
// each try costs the leader a read and the network the records.
const (
	retryMin  = 20 * time.Millisecond
	retryMax  = time.Second
	failedMax = 4 * time.Second
	// spreadShare is the part of a pause after a failure by which partitions differ, so
	// that all those of one disk do not come back at once.
	spreadShare = 4
)

// state is where a followed partition stands.
type state uint8

const (
	stateAsking  state = iota // a FOLLOW is to be sent
	stateAsked                // it was sent
	stateFed                  // it was answered by FEED or MARK
	stateCutting              // the log has to be cut or reset first
	stateParked               // refused; to be asked again at due
	stateRemoved
)

// followed is one partition on the follower's side.
type followed struct {
	tp      fsm.TopicPartition
	handle  Handle
	attempt Attempt // of the last FOLLOW sent; 0 before the first
	epoch   batch.Epoch
	local   Local
	state   state
	cut     bool // stateCutting came from DIVERGED: the log must get shorter
	dirty   bool // in the list of those with progress to report
	tries   int  // refused in a row
	fails   int  // failures in a row to take what the leader sent
	due     time.Time
}

func (p *followed) ref() Ref { return Ref{Handle: p.handle, Attempt: p.attempt} }

// open tells whether frames of the attempt count.
func (p *followed) open() bool { return p.state == stateAsked || p.state == stateFed }

// request is one entry of what is to be sent in order: a frame, or the FOLLOW of
// a partition in the form it has when it is sent.
type request struct {
	frame  Frame
	follow *followed
}

// current finds the partition whose attempt is named and not over; nil when there is none.
func (f *Follower) current(r Ref) *followed {
	if p := f.byHandle[r.Handle]; p != nil && p.attempt == r.Attempt && (p.open() || p.state == stateCutting) {
		return p
	}
	return nil
}

// ask queues a FOLLOW.
func (f *Follower) ask(p *followed) {
	p.state = stateAsking
	f.control = append(f.control, request{follow: p})
}

// touch queues the report of a partition's progress.
func (f *Follower) touch(p *followed) {
	if !p.dirty && p.open() {
		p.dirty = true
		f.dirty = append(f.dirty, p)
	}
}

// refuse parks a partition that the leader refused.
func (f *Follower) refuse(p *followed, now time.Time) {
	pause := min(retryMin<<min(p.tries, 16), retryMax)
	p.tries++
	f.park(p, now.Add(pause))
}

// fail parks a partition that could not take what it was sent. The leader's answers
// to the next try say nothing about this disk, so that only an append ends the row.
func (f *Follower) fail(p *followed, now time.Time) {
	pause := min(retryMin<<min(p.fails, 16), failedMax)
	if p.fails > 0 { // the first time is often an accident, and soon over
		pause += pause / spreadShare * time.Duration(p.handle%8) / 8
	}
	p.fails++
	f.park(p, now.Add(pause))
}

// park has a partition asked for again at a time.
func (f *Follower) park(p *followed, due time.Time) {
	p.state, p.due = stateParked, due
	f.parked = append(f.parked, p)
	if f.wakeAt.IsZero() || p.due.Before(f.wakeAt) {
		f.wakeAt = p.due
	}
}

// unpark asks again for what is due.
func (f *Follower) unpark(now time.Time) {
	if f.wakeAt.IsZero() || now.Before(f.wakeAt) {
		return
	}
	f.wakeAt = time.Time{}
	kept := f.parked[:0]
	for _, p := range f.parked {
		switch {
		case p.state != stateParked:
		case now.Before(p.due):
			kept = append(kept, p)
			if f.wakeAt.IsZero() || p.due.Before(f.wakeAt) {
				f.wakeAt = p.due
			}
		default:
			f.ask(p)
		}
	}
	clear(f.parked[len(kept):])
	f.parked = kept
}

// Pending appends what is to be sent now to dst, up to max frames in all: first
// what opens and ends attempts, in order, then progress, then answers to pings.
func (f *Follower) Pending(dst []Frame, maxFrames int, now time.Time) []Frame {
	f.unpark(now)
	n := 0
	for n < len(f.control) && len(dst) < maxFrames {
		if fr := f.take(f.control[n]); fr != nil {
			dst = append(dst, fr)
		}
		n++
	}
	f.control = append(f.control[:0], f.control[n:]...)
	for len(f.dirty) > 0 && len(dst) < maxFrames {
		if items := f.report(); len(items) > 0 {
			dst = append(dst, Progress{Items: items})
		}
	}
	for len(f.control) == 0 && len(dst) < maxFrames {
		fr, ok := f.pings.next()
		if !ok {
			break
		}
		dst = append(dst, fr)
	}
	return dst
}

// take makes the frame of a request; nil when it has become pointless.
func (f *Follower) take(r request) Frame {
	if r.follow == nil {
		return r.frame
	}
	p := r.follow
	if p.state != stateAsking {
		return nil
	}
	f.attempt++
	p.attempt, p.state = f.attempt, stateAsked
	return Follow{Ref: p.ref(), TP: p.tp, LeaderEpoch: p.epoch, Local: p.local}
}

// report gathers the progress of as many partitions as one frame may hold.
func (f *Follower) report() []ProgressItem {
	n := min(len(f.dirty), MaxItems)
	items := make([]ProgressItem, 0, n)
	for _, p := range f.dirty[:n] {
		p.dirty = false
		if p.open() {
			items = append(items, ProgressItem{
				Ref: p.ref(), Written: p.local.Written, Flushed: p.local.Flushed, LogStart: p.local.LogStart,
			})
		}
	}
	f.dirty = append(f.dirty[:0], f.dirty[n:]...)
	return items
}

// feed takes a FEED: records for an open attempt, or bytes to be dropped.
func (f *Follower) feed(fr Feed) Action {
	p := f.current(fr.Ref)
	if p == nil || !p.open() {
		return Action{Kind: ActionDrain, Ref: fr.Ref, Size: fr.Size}
	}
	p.state, p.tries = stateFed, 0
	a := p.action(ActionAppend)
	a.Size, a.HW, a.LogStart = fr.Size, fr.HW, fr.LogStart
	return a
}

func (p *followed) action(k ActionKind) Action {
	return Action{Kind: k, Ref: p.ref(), TP: p.tp, LeaderEpoch: p.epoch}
}

// marked takes a MARK.
func (f *Follower) marked(dst []Action, fr Mark) []Action {
	for _, i := range fr.Items {
		p := f.current(i.Ref)
		if p == nil || !p.open() {
			continue
		}
		p.state, p.tries = stateFed, 0
		a := p.action(ActionMark)
		a.HW, a.LogStart = i.HW, i.LogStart
		dst = append(dst, a)
	}
	return dst
}

// diverged takes a DIVERGED. Each one must make the log shorter, or the two
// sides would never agree. Without an epoch it says that nothing of the log can be
// compared: the log begins anew at the leader's start, in one step, since a member
// of the ISR that was cut to its own start would end below what is committed.
func (f *Follower) diverged(dst []Action, fr Diverged) ([]Action, error) {
	p := f.current(fr.Ref)
	if p == nil || !p.open() {
		return dst, nil
	}
	l := p.local
	if p.state != stateAsked || fr.Epoch > l.LastEpoch || fr.Epoch == l.LastEpoch && fr.End >= l.Written {
		return dst, fmt.Errorf("%w: %+v in answer to a log that ends at %d in epoch %d", ErrProtocol, fr, l.Written, l.LastEpoch)
	}
	if fr.Epoch == batch.NoEpoch {
		p.state, p.cut = stateCutting, false
		a := p.action(ActionReset)
		a.LogStart, a.End = fr.End, fr.End
		return append(dst, a), nil
	}
	p.state, p.cut = stateCutting, true
	a := p.action(ActionTruncate)
	a.Epoch, a.End = fr.Epoch, fr.End
	return append(dst, a), nil
}

// refused takes a REFUSED. Out of range is believed only if it agrees with the
// own log: below the leader's start, or an empty log above its end.
func (f *Follower) refused(dst []Action, fr Refused, now time.Time) ([]Action, error) {
	p := f.current(fr.Ref)
	if p == nil || !p.open() {
		return dst, nil
	}
	if fr.Code != CodeOutOfRange {
		f.refuse(p, now)
		a := p.action(ActionRefused)
		a.Code, a.LogStart = fr.Code, fr.LogStart
		return append(dst, a), nil
	}
	l := p.local
	if l.Written >= fr.LogStart && (l.Written <= fr.End || l.LastEpoch != batch.NoEpoch) {
		return dst, fmt.Errorf("%w: out of range [%d, %d] for a log that ends at %d in epoch %d",
			ErrProtocol, fr.LogStart, fr.End, l.Written, l.LastEpoch)
	}
	p.state, p.cut = stateCutting, false
	a := p.action(ActionReset)
	a.LogStart, a.End, a.Code = fr.LogStart, fr.End, fr.Code
	return append(dst, a), nil
}
