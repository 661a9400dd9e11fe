package feed

import (
	"fmt"
	"time"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// ActionKind says what a received frame asks of the follower's shell.
type ActionKind uint8

// The kinds of actions.
const (
	ActionDrain    ActionKind = iota + 1 // read Size bytes and drop them: their attempt is dead
	ActionAppend                         // read Size bytes, append them, then call Appended; HW and LogStart hold after it
	ActionMark                           // HW and LogStart moved
	ActionTruncate                       // cut the log to CutTo(Epoch, End, …), then call Truncated
	ActionReset                          // the log lies outside the leader's: ResetTo(LogStart), then call Truncated
	ActionRefused                        // the leader does not feed this partition now; it is asked again by itself
)

// Action is what a received frame asks of the follower's shell.
type Action struct {
	Kind ActionKind
	Ref
	TP          fsm.TopicPartition
	LeaderEpoch batch.Epoch  // of the attempt; an action holds only while it is followed
	Size        int          // of ActionAppend and ActionDrain
	HW          batch.Offset // of ActionAppend and ActionMark
	LogStart    batch.Offset // the leader's; not of ActionTruncate
	Epoch       batch.Epoch  // of ActionTruncate: the leader's largest epoch not above the own last one
	End         batch.Offset // of ActionTruncate: its end there; of ActionReset: the leader's log end
	Code        Code         // of ActionRefused
}

// Follower is the follower's side of one connection: all partitions that this
// node follows on one leader node.
type Follower struct {
	byTP     map[fsm.TopicPartition]*followed
	byHandle map[Handle]*followed
	handle   Handle
	attempt  Attempt

	control []request   // in order: what is to be sent about attempts
	dirty   []*followed // with progress to report
	parked  []*followed // refused, to be asked again
	wakeAt  time.Time   // the earliest of them; zero when there is none
	pings   pinger
}

// NewFollower begins a connection to a leader node.
func NewFollower() *Follower {
	return &Follower{byTP: make(map[fsm.TopicPartition]*followed), byHandle: make(map[Handle]*followed)}
}

// CutTo is the common point to which a follower cuts its log after Diverged:
// the end of its own largest epoch that is not above the leader's answer, or
// the leader's end of it, whichever is lower. It may lie below the own log
// start; then the log is reset to start there.
func CutTo(epoch batch.Epoch, end batch.Offset, own func(batch.Epoch) (batch.Epoch, batch.Offset)) batch.Offset {
	_, ownEnd := own(epoch)
	return min(ownEnd, end)
}

// Add begins to follow a partition in a leader epoch. A partition that is
// followed already, in an older epoch, is dropped first.
func (f *Follower) Add(tp fsm.TopicPartition, e batch.Epoch, l Local) Handle {
	f.Remove(tp)
	f.handle++
	p := &followed{tp: tp, handle: f.handle, epoch: e, local: l}
	f.byTP[tp], f.byHandle[p.handle] = p, p
	f.ask(p)
	return p.handle
}

// Remove stops following a partition. A node calls it before it acts on a newer
// leader epoch.
func (f *Follower) Remove(tp fsm.TopicPartition) {
	p := f.byTP[tp]
	if p == nil {
		return
	}
	delete(f.byTP, tp)
	delete(f.byHandle, p.handle)
	if p.attempt != 0 {
		f.control = append(f.control, request{frame: Unfollow{Ref: p.ref()}})
	}
	p.attempt, p.state = 0, stateRemoved
}

// Receive takes one frame of the leader and appends what it asks for to dst.
// After an error the connection has to be closed.
func (f *Follower) Receive(dst []Action, fr Frame, now time.Time) ([]Action, error) {
	switch fr := fr.(type) {
	case Feed:
		return append(dst, f.feed(fr)), nil
	case Mark:
		return f.marked(dst, fr), nil
	case Diverged:
		return f.diverged(dst, fr)
	case Refused:
		return f.refused(dst, fr, now)
	case Ping:
		f.pings.asked(fr.Number)
		return dst, nil
	case Pong:
		return dst, f.pings.answered(fr.Number)
	default:
		return dst, fmt.Errorf("%w: frame of kind %d from a leader", ErrProtocol, fr.Kind())
	}
}

// Appended says that the log grew by an ActionAppend of this attempt.
func (f *Follower) Appended(r Ref, l Local) {
	if p := f.current(r); p != nil {
		if l.Written < p.local.Written {
			panic(fmt.Sprintf("BUG: log end of %s went back from %d to %d by an append", name(p.tp), p.local.Written, l.Written))
		}
		// What is on disk is read apart from the end and may come late.
		l.Flushed = max(l.Flushed, p.local.Flushed)
		l.LogStart = max(l.LogStart, p.local.LogStart)
		p.local, p.fails = l, 0
		f.touch(p)
	}
}

// Flushed says that a partition's log is on disk up to end, as read from the log
// just now.
func (f *Follower) Flushed(tp fsm.TopicPartition, end batch.Offset) {
	if p := f.byTP[tp]; p != nil && min(end, p.local.Written) > p.local.Flushed {
		p.local.Flushed = min(end, p.local.Written)
		f.touch(p)
	}
}

// Started says that a partition's log start moved.
func (f *Follower) Started(tp fsm.TopicPartition, start batch.Offset) {
	if p := f.byTP[tp]; p != nil && start > p.local.LogStart {
		p.local.LogStart = start
		f.touch(p)
	}
}

// Truncated says that the log was cut or reset as an action of this attempt
// asked: the partition is followed again from there.
func (f *Follower) Truncated(r Ref, l Local) {
	p := f.current(r)
	if p == nil || p.state != stateCutting {
		return
	}
	if p.cut && (l.Written > p.local.Written || l.Written == p.local.Written && l.LastEpoch >= p.local.LastEpoch) {
		panic(fmt.Sprintf("BUG: cutting %s left %+v of %+v", name(p.tp), l, p.local))
	}
	p.local = l
	f.ask(p)
}

// Bad says that the batch at the given offset of this attempt failed its CRC.
// What came before it was appended; the rest is asked for again after a pause, a longer
// one each time.
func (f *Follower) Bad(r Ref, at batch.Offset, l Local, now time.Time) {
	if p := f.current(r); p != nil {
		p.local = l
		f.control = append(f.control, request{frame: Bad{Ref: r, Offset: at}})
		f.fail(p, now)
	}
}

// Retry ends this attempt for a reason of the follower's own and asks again
// after a pause, a longer one each time until something is appended.
func (f *Follower) Retry(r Ref, l Local, now time.Time) {
	if p := f.current(r); p != nil {
		p.local = l
		f.fail(p, now)
	}
}

// WakeAt is when Pending has something by itself; zero when never.
func (f *Follower) WakeAt() time.Time { return f.wakeAt }

// Ping queues a Ping.
func (f *Follower) Ping(now time.Time) { f.pings.ping(now) }
