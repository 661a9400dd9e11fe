package feed

import (
	"time"

	"github.com/weirmq/weir/wire/batch"
)

// Next returns the next thing to send. Order: answers that end attempts, pings,
// watermarks that are due, then records, one Feed of a partition in turn.
func (d *Feeder) Next(v View, now time.Time) Out {
	d.items = d.items[:0]
	if d.closed {
		return Out{}
	}
	for d.replies.len() > 0 {
		s := d.replies.pop()
		s.replying = false
		if f := s.reply; f != nil {
			s.reply = nil
			return Out{Kind: OutFrame, Frame: f}
		}
	}
	if f, ok := d.pings.next(); ok {
		return Out{Kind: OutFrame, Frame: f}
	}
	if d.marks.len() > 0 && (d.urgent > 0 || !now.Before(d.markAt)) {
		if out := d.nextMarks(v); out.Kind != OutNone {
			return out
		}
	}
	if out := d.nextSend(v); out.Kind != OutNone {
		return out
	}
	if d.marks.len() > 0 {
		return Out{WakeAt: d.markAt}
	}
	return Out{}
}

// markNow queues a stream whose Follow was accepted: it is answered at once.
func (d *Feeder) markNow(s *stream) {
	if !s.answer {
		s.answer = true
		d.urgent++
	}
	if !s.marking {
		s.marking = true
		d.marks.push(s)
	}
}

// nextMarks gathers watermarks of as many partitions as one frame may hold.
func (d *Feeder) nextMarks(v View) Out {
	for d.marks.len() > 0 && len(d.items) < MaxItems {
		s := d.marks.pop()
		s.marking = false
		answer := s.answer
		if answer {
			s.answer = false
			d.urgent--
		}
		if !s.open {
			continue
		}
		lead, code := v.Leading(s.tp)
		if r, ended := end(s, lead, code); ended {
			return d.endNow(s, r)
		}
		if answer || lead.HW != s.told.HW || lead.Start != s.told.Start {
			s.told = lead
			d.items = append(d.items, MarkItem{Ref: s.ref, HW: lead.HW, LogStart: lead.Start})
		}
	}
	if len(d.items) == 0 {
		return Out{}
	}
	return Out{Kind: OutFrame, Frame: Mark{Items: d.items}}
}

// nextSend finds the next partition in turn that has records and room for them.
func (d *Feeder) nextSend(v View) Out {
	for d.ready.len() > 0 && d.roomForFeed() {
		s := d.ready.pop()
		s.queued = false
		if !s.open {
			continue
		}
		if !d.fits(s) {
			s.stalled = true
			continue
		}
		lead, code := v.Leading(s.tp)
		if r, ended := end(s, lead, code); ended {
			return d.endNow(s, r)
		}
		if s.sent >= lead.End {
			continue
		}
		return Out{Kind: OutSend, Send: Send{
			Ref: s.ref, TP: s.tp, Epoch: s.epoch, From: s.sent, End: lead.End,
			MaxBytes: d.w.FeedBytes, lead: lead,
		}}
	}
	return Out{}
}

// end tells whether the leader's state leaves an open attempt no way to go on.
func end(s *stream, lead Leading, code Code) (Refused, bool) {
	switch {
	case code != CodeNone:
		return Refused{Code: code}, true
	case lead.Epoch != s.epoch:
		return Refused{Code: CodeNotLeader}, true
	case s.sent < lead.Start:
		return Refused{Code: CodeOutOfRange, LogStart: lead.Start, End: lead.End}, true
	}
	return Refused{}, false
}

// endNow ends an attempt with a frame that is sent at once. Watermarks that were
// gathered before it are queued again.
func (d *Feeder) endNow(s *stream, r Refused) Out {
	for _, i := range d.items {
		if t := d.streams[i.Handle]; t != nil && t.ref == i.Ref {
			d.markNow(t)
		}
	}
	d.items = d.items[:0]
	gone := s.gone()
	d.shut(s)
	r.Ref = s.ref
	return Out{Kind: OutFrame, Frame: r, Gone: &gone}
}

// roomForFeed tells whether the connection's window lets another Feed go.
func (d *Feeder) roomForFeed() bool {
	return d.inFlight == 0 || d.inFlight+d.w.FeedBytes <= d.w.ConnBytes
}

// fits tells whether the partition's window does.
func (d *Feeder) fits(s *stream) bool {
	return s.inFlight == 0 || s.inFlight+d.w.FeedBytes <= d.w.PartitionBytes
}

// Sent takes what the shell read for a Send, before any of it goes to the
// connection, and returns the frame that goes ahead of it. It is false when the
// attempt ended meanwhile or nothing was read: then nothing may be sent.
func (d *Feeder) Sent(o Send, end batch.Offset, bytes int) (Feed, bool) {
	s := d.streams[o.Handle]
	if s == nil || !s.open || s.ref != o.Ref || s.sent != o.From || bytes <= 0 || end <= o.From {
		return Feed{}, false
	}
	s.sent, s.told = end, o.lead
	s.unacked = append(s.unacked, span{end, bytes})
	s.inFlight += bytes
	d.inFlight += bytes
	if end < o.End {
		d.wake(s)
	}
	return Feed{Ref: o.Ref, HW: o.lead.HW, LogStart: o.lead.Start, Size: bytes}, true
}

// Failed says that the records of a Send could not be read; the attempt ends
// with the given code, and the verdict is to be applied to the partition. With
// CodeOutOfRange, when the log start moved past From, Next decides by the View.
func (d *Feeder) Failed(dst []Verdict, o Send, code Code) []Verdict {
	s := d.streams[o.Handle]
	if s == nil || !s.open || s.ref != o.Ref {
		return dst
	}
	if code == CodeOutOfRange {
		d.wake(s)
		return dst
	}
	dst = append(dst, s.gone())
	d.refuse(s, Refused{Code: code})
	return dst
}
