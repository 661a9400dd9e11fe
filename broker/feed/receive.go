package feed

import (
	"fmt"

	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// follow begins a new attempt, or declines it. Whatever attempt the handle or
// the partition had before ends here.
func (d *Feeder) follow(dst []Verdict, f Follow, v View) ([]Verdict, error) {
	s, err := d.stream(f)
	if err != nil {
		return dst, err
	}
	for _, old := range []*stream{s, d.open[f.TP]} {
		if old != nil && old.open {
			dst = append(dst, old.gone())
			d.shut(old)
		}
	}
	s.ref, s.epoch, s.reply = f.Ref, f.LeaderEpoch, nil
	lead, code := v.Leading(f.TP)
	if reply := judge(f, lead, code, v); reply != nil {
		d.answer(s, reply)
		if code == CodeNone && lead.Epoch == f.LeaderEpoch && f.Written < lead.HW {
			dst = append(dst, Verdict{Kind: VerdictBehind, TP: f.TP, Epoch: f.LeaderEpoch, Offset: f.Written})
		}
		return dst, nil
	}
	s.open, s.sent = true, f.Written
	s.position = isr.Position{Written: f.Written, Flushed: f.Flushed, LogStart: f.LogStart}
	d.open[f.TP] = s
	d.wake(s)
	d.markNow(s)
	return append(dst, Verdict{Kind: VerdictOpened, TP: f.TP, Epoch: f.LeaderEpoch, Position: s.position}), nil
}

// stream finds or makes the stream of a FOLLOW and checks that handle and attempt rise.
func (d *Feeder) stream(f Follow) (*stream, error) {
	if f.Attempt <= d.lastAttempt {
		return nil, fmt.Errorf("%w: attempt %d after attempt %d", ErrProtocol, f.Attempt, d.lastAttempt)
	}
	s := d.streams[f.Handle]
	switch {
	case s == nil && f.Handle <= d.lastHandle:
		return nil, fmt.Errorf("%w: handle %d used again", ErrProtocol, f.Handle)
	case s == nil && (len(d.streams) >= maxHandles || d.queues() > 3*maxHandles):
		return nil, fmt.Errorf("%w: more than %d handles", ErrProtocol, maxHandles)
	case s != nil && s.tp != f.TP:
		return nil, fmt.Errorf("%w: handle %d moved from %s to %s", ErrProtocol, f.Handle, name(s.tp), name(f.TP))
	}
	d.lastAttempt = f.Attempt
	if s == nil {
		d.lastHandle = f.Handle
		s = &stream{tp: f.TP}
		d.streams[f.Handle] = s
	}
	return s, nil
}

func (d *Feeder) queues() int { return d.replies.len() + d.ready.len() + d.marks.len() }

// judge decides on a FOLLOW; nil accepts it. The leader epoch comes first: at
// another one nothing that either side says of its log means anything to the
// other. Then comes the leader's start, since below it the leader knows
// nothing; then divergence, which also finds a log that is too long.
func judge(f Follow, lead Leading, code Code, v View) Frame {
	refused := Refused{Ref: f.Ref, Code: code, LogStart: lead.Start, End: lead.End}
	switch {
	case code != CodeNone:
		refused.LogStart, refused.End = 0, 0
		return refused
	case f.LeaderEpoch < lead.Epoch:
		refused.Code = CodeOldEpoch
		return refused
	case f.LeaderEpoch > lead.Epoch:
		refused.Code = CodeNewEpoch
		return refused
	case f.Written < lead.Start:
		refused.Code = CodeOutOfRange
		return refused
	}
	empty := f.Written == f.LogStart
	if empty && f.LastEpoch == batch.NoEpoch {
		if f.Written > lead.End {
			refused.Code = CodeOutOfRange
			return refused
		}
		return nil // an empty log shares everything with any other
	}
	// When all that the leader has is of later epochs, e is NoEpoch and end the
	// leader's start: nothing of the follower's log can be compared, not even what
	// lies below that start, and it begins anew there. One that is empty there
	// remembers an epoch of what both have let go.
	e, end := v.EpochEnd(f.TP, f.LastEpoch)
	if e == batch.NoEpoch && empty && f.Written == end {
		return nil
	}
	if e != f.LastEpoch || end < f.Written {
		return Diverged{Ref: f.Ref, Epoch: e, End: end}
	}
	return nil
}

// progress counts the positions of attempts that are open and drops the others.
func (d *Feeder) progress(dst []Verdict, f Progress) ([]Verdict, error) {
	for _, i := range f.Items {
		s, err := d.current(i.Ref)
		if err != nil {
			return dst, err
		}
		if s == nil {
			continue
		}
		if i.Written < s.position.Written || i.Flushed < s.position.Flushed || i.Written > s.sent {
			return dst, fmt.Errorf("%w: progress of %s from %+v to %+v, sent up to %d",
				ErrProtocol, name(s.tp), s.position, i, s.sent)
		}
		s.position = isr.Position{Written: i.Written, Flushed: i.Flushed, LogStart: i.LogStart}
		d.acknowledge(s)
		dst = append(dst, Verdict{Kind: VerdictProgressed, TP: s.tp, Epoch: s.epoch, Position: s.position})
	}
	return dst, nil
}

// acknowledge gives back the window bytes of what the follower has written.
func (d *Feeder) acknowledge(s *stream) {
	n := 0
	for n < len(s.unacked) && s.unacked[n].end <= s.position.Written {
		s.inFlight -= s.unacked[n].bytes
		d.inFlight -= s.unacked[n].bytes
		n++
	}
	s.unacked = append(s.unacked[:0], s.unacked[n:]...)
	if s.stalled && d.fits(s) {
		d.wake(s)
	}
}

// current finds the stream whose open attempt is named; nil when the attempt is
// dead. An attempt that was never announced is a violation.
func (d *Feeder) current(r Ref) (*stream, error) {
	if r.Attempt > d.lastAttempt || r.Handle > d.lastHandle {
		return nil, fmt.Errorf("%w: attempt %+v was never announced", ErrProtocol, r)
	}
	if s := d.streams[r.Handle]; s != nil && s.open && s.ref == r {
		return s, nil
	}
	return nil, nil
}

// unfollow ends an attempt and forgets its handle.
func (d *Feeder) unfollow(dst []Verdict, f Unfollow) ([]Verdict, error) {
	s, err := d.current(f.Ref)
	if err != nil {
		return dst, err
	}
	if s != nil {
		dst = append(dst, s.gone())
		d.shut(s)
	}
	if s := d.streams[f.Handle]; s != nil && s.ref == f.Ref {
		s.reply = nil
		delete(d.streams, f.Handle)
	}
	return dst, nil
}

// bad ends an attempt and reports the batch that arrived broken.
func (d *Feeder) bad(dst []Verdict, f Bad) ([]Verdict, error) {
	s, err := d.current(f.Ref)
	if err != nil || s == nil {
		return dst, err
	}
	if f.Offset >= s.sent {
		return dst, fmt.Errorf("%w: bad batch at %d of %s, sent up to %d", ErrProtocol, f.Offset, name(s.tp), s.sent)
	}
	dst = append(dst, s.gone(), Verdict{Kind: VerdictBad, TP: s.tp, Epoch: s.epoch, Offset: f.Offset})
	d.shut(s)
	return dst, nil
}

// name is a partition in an error message.
func name(tp fsm.TopicPartition) string { return fmt.Sprintf("%x-%d", tp.Topic, tp.Partition) }
