package broker

import (
	"errors"
	"slices"

	"github.com/weirmq/weir/broker/feed"
	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire/batch"
)

// errStaleAttempt means that the role or the leader epoch changed under a feed:
// what it brought belongs to the past.
var errStaleAttempt = errors.New("the partition has left this leader epoch")

// The leader's side. Every call names the leader epoch that the feed decided in
// and does nothing when it is over.

// leading is what a follower node may see of this partition.
func (p *Partition) leading(peer fsm.BrokerID) (feed.Leading, feed.Code) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.role == roleGone, p.role == roleLeader && !slices.Contains(p.replicas, peer):
		return feed.Leading{}, feed.CodeUnknown
	case p.role != roleLeader:
		return feed.Leading{}, feed.CodeNotLeader
	}
	return feed.Leading{Epoch: p.epoch, Start: p.log.Start(), End: p.log.End(), HW: p.hw}, feed.CodeNone
}

// opened begins a member's attempt at a checked position: from now on appends
// wake f. False means that the epoch is over.
func (p *Partition) opened(f *feeder, m isr.Member, epoch batch.Epoch, at isr.Position) bool {
	p.mu.Lock()
	if p.role != roleLeader || p.epoch != epoch {
		p.mu.Unlock()
		return false
	}
	if !slices.Contains(p.feeders, f) {
		p.feeders = append(slices.Clone(p.feeders), f)
	}
	now := p.env.now()
	p.lead.Follow(m, now)
	todo := p.absorbLocked(p.lead.Progressed(m, at, now, p.env.live))
	p.mu.Unlock()
	p.carryOut(todo)
	return true
}

// progressed counts a member's position.
func (p *Partition) progressed(m isr.Member, epoch batch.Epoch, at isr.Position) {
	p.mu.Lock()
	if p.role != roleLeader || p.epoch != epoch {
		p.mu.Unlock()
		return
	}
	todo := p.absorbLocked(p.lead.Progressed(m, at, p.env.now(), p.env.live))
	p.mu.Unlock()
	p.carryOut(todo)
}

// behind says that a member's log ends below what it would have to hold.
func (p *Partition) behind(m isr.Member, epoch batch.Epoch, end batch.Offset) {
	p.mu.Lock()
	if p.role != roleLeader || p.epoch != epoch {
		p.mu.Unlock()
		return
	}
	todo := p.absorbLocked(p.lead.Behind(m, end, p.env.now(), p.env.live))
	p.mu.Unlock()
	p.carryOut(todo)
}

// gone ends a member's attempt.
func (p *Partition) gone(f *feeder, m isr.Member, epoch batch.Epoch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.role != roleLeader || p.epoch != epoch {
		return
	}
	if i := slices.Index(p.feeders, f); i >= 0 {
		p.feeders = slices.Delete(slices.Clone(p.feeders), i, i+1)
	}
	p.lead.Gone(m)
}

// readFeed reads records for a follower. The epoch is checked again after the
// read: the Range then holds bytes of this epoch's log, which it pins.
func (p *Partition) readFeed(epoch batch.Epoch, from, end batch.Offset, maxBytes int) (storage.Range, error) {
	r, err := p.log.Read(from, end, maxBytes)
	if err != nil {
		p.trouble(err)
		return storage.Range{}, err
	}
	if !p.leads(epoch) {
		r.Release()
		return storage.Range{}, errStaleAttempt
	}
	return r, nil
}

// suspect checks the batch at an offset after a follower received it broken. One
// that is broken on this disk, too, costs this replica its seats.
func (p *Partition) suspect(epoch batch.Epoch, at batch.Offset) {
	r, err := p.readFeed(epoch, at, p.log.End(), 1)
	if err != nil || r.Len() == 0 {
		return // it is read again when it is sent again, and that reports the error
	}
	defer r.Release()
	b := make(batch.Batch, r.FirstBatchLen())
	if n, err := r.ReadAt(b, 0); n < len(b) {
		p.trouble(err)
		return
	}
	if b.CheckCRC() == nil && b.Base() <= at {
		return // it broke on its way
	}
	p.mu.Lock()
	p.corrupt = at
	p.mu.Unlock()
	p.env.log.Error("a batch is broken on the disk", "topic", p.log.Topic(), "partition", p.tp.Partition, "offset", int64(at))
	p.env.damaged(p)
}

func (p *Partition) leads(epoch batch.Epoch) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.role == roleLeader && p.epoch == epoch
}

// The follower's side. Every call names the leader epoch of its attempt and
// fails with errStaleAttempt when it is over.

// local is the state of the log as the leader needs to know it.
func (p *Partition) local(epoch batch.Epoch) (feed.Local, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.followsLocked(epoch) {
		return feed.Local{}, errStaleAttempt
	}
	return p.localLocked(), nil
}

func (p *Partition) localLocked() feed.Local {
	end := p.log.End()
	return feed.Local{Written: end, Flushed: min(p.log.Flushed(), end), LastEpoch: p.log.LastEpoch(), LogStart: p.log.Start()}
}

func (p *Partition) followsLocked(epoch batch.Epoch) bool {
	return p.role == roleFollower && p.epoch == epoch
}

// appendFed appends what the leader sent, with one write. The CRCs have been checked.
func (p *Partition) appendFed(epoch batch.Epoch, run batch.Run, hw, logStart batch.Offset) (feed.Local, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.followsLocked(epoch) {
		return feed.Local{}, errStaleAttempt
	}
	if err := p.beginWithinLocked(run); err != nil {
		return p.localLocked(), err
	}
	if err := p.log.AppendReplica(run, epoch); err != nil {
		return p.localLocked(), err
	}
	err := p.markLocked(hw, logStart)
	return p.localLocked(), err
}

// beginWithinLocked lets an empty log begin with the whole of the batch inside
// which the leader's log starts; batches travel whole, and the start itself
// follows with the watermarks.
func (p *Partition) beginWithinLocked(run batch.Run) error {
	end := p.log.End()
	if p.log.Start() != end {
		return nil
	}
	first, _, err := batch.Next(run)
	if err != nil || first.Base() >= end || first.End() <= end || first.Filler() {
		return nil //nolint:nilerr // AppendReplica judges what is no batch
	}
	return p.log.ResetTo(first.Base())
}

// marked takes watermarks that moved without records.
func (p *Partition) marked(epoch batch.Epoch, hw, logStart batch.Offset) (feed.Local, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.followsLocked(epoch) {
		return feed.Local{}, errStaleAttempt
	}
	err := p.markLocked(hw, logStart)
	return p.localLocked(), err
}

func (p *Partition) markLocked(hw, logStart batch.Offset) error {
	was := p.hw
	p.hw = p.follow.Mark(hw, logStart, p.log.End())
	p.log.SetHW(p.hw)
	if p.hw != was {
		p.signalLocked() // consumers may read here, too
	}
	if start := p.follow.LogStart(); start > p.log.Start() {
		defer p.signalLocked()
		return p.log.RaiseStart(start)
	}
	return nil
}

// truncateFed cuts the log to the common point with the leader's, whose largest
// epoch not above our last one is last and ends at end. It holds the lock across
// the cut, which may wait for the disk: it is rare, makes only consumers that
// read here wait, and no change of role may come between the check and the cut.
func (p *Partition) truncateFed(epoch, last batch.Epoch, end batch.Offset) (feed.Local, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.followsLocked(epoch) {
		return feed.Local{}, errStaleAttempt
	}
	to := p.uncompactedLocked(feed.CutTo(last, end, p.log.EpochEnd))
	var err error
	if to < p.log.Start() {
		err = p.log.ResetTo(to)
	} else {
		err = p.log.TruncateTo(to)
	}
	return p.cutLocked(), err
}

// uncompactedLocked is where a follower cuts its log that is to end at to. Below the high
// watermark of a compacted log records are gone because of later ones; where those go too,
// after a loss of committed records, it takes all of it from the leader again.
func (p *Partition) uncompactedLocked(to batch.Offset) batch.Offset {
	if to < p.hw && p.log.Compacted() {
		return min(to, p.log.Start())
	}
	return to
}

// resetFed drops the whole log and starts where the leader's starts, since the
// two do not touch.
func (p *Partition) resetFed(epoch batch.Epoch, start batch.Offset) (feed.Local, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.followsLocked(epoch) {
		return feed.Local{}, errStaleAttempt
	}
	err := p.log.ResetTo(start)
	return p.cutLocked(), err
}

func (p *Partition) cutLocked() feed.Local {
	if below := p.follow.Truncated(p.log.Start(), p.log.End()); below {
		p.env.log.Error("log was cut below its high watermark: records that were shown to clients are gone",
			"topic", p.log.Topic(), "partition", p.tp.Partition, "end", int64(p.log.End()), "was", int64(p.hw))
	}
	p.hw = p.follow.HW()
	p.log.SetHW(p.hw)
	p.signalLocked()
	return p.localLocked()
}
