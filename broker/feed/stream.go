package feed

import (
	"time"

	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// stream is one handle on the leader's side, with its last attempt.
type stream struct {
	ref   Ref
	tp    fsm.TopicPartition
	epoch batch.Epoch
	open  bool // the attempt was accepted and has not ended

	position isr.Position // as last counted
	sent     batch.Offset // end of what was handed to the connection, exclusive
	unacked  []span       // of which not yet written by the follower, in order
	inFlight int          // their bytes

	reply    Frame // Diverged or Refused that ended the attempt, to be sent
	replying bool  // in the queue of replies
	queued   bool  // in the queue of streams that may have records
	stalled  bool  // out of the queue because its window is full
	marking  bool  // in the queue of watermarks
	answer   bool  // the mark answers a Follow

	told Leading // the watermarks that the follower was last sent
}

// span is one Feed that was sent.
type span struct {
	end   batch.Offset
	bytes int
}

// gone is the verdict that the attempt ended.
func (s *stream) gone() Verdict {
	return Verdict{Kind: VerdictGone, TP: s.tp, Epoch: s.epoch}
}

// queue is a first-in, first-out list of streams, each in it at most once.
type queue struct {
	list []*stream
	head int
}

func (q *queue) len() int { return len(q.list) - q.head }

func (q *queue) push(s *stream) { q.list = append(q.list, s) }

func (q *queue) pop() *stream {
	s := q.list[q.head]
	q.list[q.head] = nil
	q.head++
	if q.head == len(q.list) {
		q.list, q.head = q.list[:0], 0
	} else if q.head > 64 && q.head > len(q.list)/2 {
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	return s
}

// wake queues a stream that may have records to send.
func (d *Feeder) wake(s *stream) {
	if !s.queued && s.open {
		s.queued, s.stalled = true, false
		d.ready.push(s)
	}
}

// mark queues a stream whose watermarks are to be told.
func (d *Feeder) mark(s *stream, now time.Time) {
	if s.marking {
		return
	}
	if d.marks.len() == 0 {
		d.markAt = now.Add(d.w.MarkDelay)
	}
	s.marking = true
	d.marks.push(s)
}

// refuse ends a stream's attempt and tells the follower.
func (d *Feeder) refuse(s *stream, r Refused) {
	d.shut(s)
	r.Ref = s.ref
	d.answer(s, r)
}

// answer queues the frame that ended or declined an attempt.
func (d *Feeder) answer(s *stream, f Frame) {
	s.reply = f
	if !s.replying {
		s.replying = true
		d.replies.push(s)
	}
}

// shut ends a stream's attempt; its window bytes die with it.
func (d *Feeder) shut(s *stream) {
	if !s.open {
		return
	}
	s.open = false
	delete(d.open, s.tp)
	d.inFlight -= s.inFlight
	s.inFlight, s.unacked = 0, s.unacked[:0]
}
