package sim

import (
	"slices"

	"github.com/weirmq/weir/broker/feed"
	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire/batch"
)

// The leader's side of the feed.

func (r *replica) leading(peer fsm.BrokerID) (feed.Leading, feed.Code) {
	switch {
	case r.role == roleGone, r.role == roleLeader && !slices.Contains(r.peers, peer):
		return feed.Leading{}, feed.CodeUnknown
	case r.role != roleLeader:
		return feed.Leading{}, feed.CodeNotLeader
	}
	return feed.Leading{Epoch: r.epoch, Start: r.log.Start(), End: r.log.End(), HW: r.hw}, feed.CodeNone
}

func (r *replica) opened(c *conn, epoch batch.Epoch, at isr.Position) bool {
	if r.role != roleLeader || r.epoch != epoch {
		return false
	}
	r.checkPosition(c, at)
	if !slices.Contains(r.feeders, c) {
		r.feeders = append(slices.Clone(r.feeders), c)
	}
	now := r.n.clock()
	r.lead.Follow(c.peer, now)
	r.absorb(r.lead.Progressed(c.peer, at, now, r.live))
	return true
}

func (r *replica) progressed(c *conn, epoch batch.Epoch, at isr.Position) {
	if r.role != roleLeader || r.epoch != epoch {
		return
	}
	r.checkPosition(c, at)
	r.absorb(r.lead.Progressed(c.peer, at, r.n.clock(), r.live))
}

func (r *replica) behind(m isr.Member, epoch batch.Epoch, end batch.Offset) {
	if r.role == roleLeader && r.epoch == epoch {
		r.absorb(r.lead.Behind(m, end, r.n.clock(), r.live))
	}
}

func (r *replica) gone(c *conn, epoch batch.Epoch) {
	if r.role != roleLeader || r.epoch != epoch {
		return
	}
	if i := slices.Index(r.feeders, c); i >= 0 {
		r.feeders = slices.Delete(slices.Clone(r.feeders), i, i+1)
	}
	r.lead.Gone(c.peer)
}

// readFeed reads records for a follower.
func (r *replica) readFeed(epoch batch.Epoch, from, end batch.Offset, maxBytes int) (storage.Range, error) {
	rg, err := r.log.Read(from, end, maxBytes)
	if err != nil {
		return storage.Range{}, err
	}
	if r.role != roleLeader || r.epoch != epoch {
		rg.Release()
		return storage.Range{}, errStaleAttempt
	}
	return rg, nil
}

// The follower's side.

func (r *replica) follows(epoch batch.Epoch) bool { return r.role == roleFollower && r.epoch == epoch }

func (r *replica) local() feed.Local {
	end := r.log.End()
	return feed.Local{Written: end, Flushed: min(r.log.Flushed(), end), LastEpoch: r.log.LastEpoch(), LogStart: r.log.Start()}
}

// appendFed appends what the leader sent.
func (r *replica) appendFed(epoch batch.Epoch, run batch.Run, hw, logStart batch.Offset) (feed.Local, error) {
	if !r.follows(epoch) {
		return feed.Local{}, errStaleAttempt
	}
	if err := r.beginWithin(run); err != nil {
		return r.local(), err
	}
	err := r.work(-1, func() error { return r.log.AppendReplica(run, epoch) })
	for b, batchErr := range run.Batches() {
		if batchErr != nil || b.Base() != r.j.end() || b.End() > r.log.End() {
			break // of a run that went in only in part, or not at all
		}
		r.j.append(b)
	}
	if err != nil {
		return r.local(), err
	}
	r.appended()
	err = r.mark(hw, logStart)
	return r.local(), err
}

// beginWithin lets an empty log begin with the whole of the batch in which the
// leader's log starts; the start itself follows with the watermarks.
func (r *replica) beginWithin(run batch.Run) error {
	end := r.log.End()
	first, _, err := batch.Next(run)
	if err != nil || r.log.Start() != end || first.Base() >= end || first.End() <= end {
		return nil
	}
	err = r.work(0, func() error { return r.log.ResetTo(first.Base()) })
	if err == nil {
		r.j.reset(first.Base())
		r.h.rot = nil
	}
	return err
}

func (r *replica) marked(epoch batch.Epoch, hw, logStart batch.Offset) (feed.Local, error) {
	if !r.follows(epoch) {
		return feed.Local{}, errStaleAttempt
	}
	err := r.mark(hw, logStart)
	return r.local(), err
}

func (r *replica) mark(hw, logStart batch.Offset) error {
	r.hw = r.follow.Mark(hw, logStart, r.log.End())
	r.shown()
	r.log.SetHW(r.hw)
	var err error
	if start := r.follow.LogStart(); start > r.log.Start() {
		err = r.raise(start)
	}
	r.checkShown()
	return err
}

// raise moves the log start; that it is written down follows.
func (r *replica) raise(start batch.Offset) error {
	err := r.log.RaiseStart(start)
	r.j.advance(r.log.Start())
	return err
}

// begin has a leader's log begin at start, moved by advance or raise, and tells its followers.
func (r *replica) begin(move func(batch.Offset) error, start batch.Offset) {
	if err := move(start); err != nil {
		r.n.trouble(err)
	}
	r.lead.Started(r.log.Start())
	r.wakeFeeders(false)
}

// advance moves the log start and returns when that is durable.
func (r *replica) advance(start batch.Offset) error {
	err := r.work(-1, func() error { return r.log.AdvanceStart(start) })
	r.j.advance(r.log.Start()) // also when it could not be written down yet
	return err
}

// truncateFed cuts the log to the common point with the leader's.
func (r *replica) truncateFed(epoch, last batch.Epoch, end batch.Offset) (feed.Local, error) {
	if !r.follows(epoch) {
		return feed.Local{}, errStaleAttempt
	}
	r.n.w.report.Truncated++
	to := feed.CutTo(last, end, r.log.EpochEnd)
	r.n.w.note(r.n.id, "cuts %s from %d to %d", r.part.name(), r.log.End(), to)
	var err error
	if to < r.log.Start() {
		err = r.reset(to)
	} else {
		err = r.cut(to)
	}
	return r.shortened(), err
}

func (r *replica) resetFed(epoch batch.Epoch, start batch.Offset) (feed.Local, error) {
	if !r.follows(epoch) {
		return feed.Local{}, errStaleAttempt
	}
	r.n.w.note(r.n.id, "resets %s from [%d,%d) to %d", r.part.name(), r.log.Start(), r.log.End(), start)
	err := r.reset(start)
	return r.shortened(), err
}

func (r *replica) cut(to batch.Offset) error {
	err := r.work(to, func() error { return r.log.TruncateTo(to) })
	end := r.log.End()
	if err == nil {
		r.h.mended(end)
	}
	if end < r.j.end() {
		r.shownHW = min(r.shownHW, end)
		r.j.cut(to)
		r.n.w.touch(r.part)
	}
	return err
}

func (r *replica) reset(start batch.Offset) error {
	err := r.work(0, func() error { return r.log.ResetTo(start) })
	if err == nil {
		r.shownHW = 0
		r.j.reset(start)
		r.h.rot = nil
		r.n.w.touch(r.part)
	}
	return err
}

func (r *replica) shortened() feed.Local {
	r.follow.Truncated(r.log.Start(), r.log.End())
	r.hw = r.follow.HW()
	r.log.SetHW(r.hw)
	return r.local()
}
