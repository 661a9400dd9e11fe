package broker

import (
	"context"
	"fmt"

	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire/batch"
)

// The log start offset of a partition is its leader's to move: by retention, or
// because a client asked for it. It only rises and never passes the high
// watermark. Followers learn of it on the feed and move theirs.

// toHighWatermark asks Trim for everything that is committed.
const toHighWatermark batch.Offset = -1

// Trim makes to the log start offset and returns when that is on the disk here;
// wait returns, with the least of their starts, when all live replicas have moved
// theirs.
func (p *Partition) Trim(to batch.Offset) (wait func(context.Context) (batch.Offset, error), err error) {
	s, err := p.serve(batch.NoEpoch)
	if err != nil {
		return nil, err
	}
	if to == toHighWatermark {
		to = s.hw
	}
	if to < 0 || to > s.hw {
		return nil, fmt.Errorf("%w: %d is not in [0, %d]", errOutOfRange, to, s.hw)
	}
	if err := p.log.AdvanceStart(to); err != nil {
		p.trouble(err)
		return nil, readError(err)
	}
	p.started(s.epoch)
	return func(ctx context.Context) (batch.Offset, error) { return p.awaitTrim(ctx, s.epoch, to) }, nil
}

// started tells everybody that the log starts elsewhere now.
func (p *Partition) started(epoch batch.Epoch) {
	p.mu.Lock()
	if p.role != roleLeader || p.epoch != epoch {
		p.mu.Unlock()
		return
	}
	p.lead.Started(p.log.Start())
	p.signalLocked()
	todo := after{feeders: p.feeders, news: newsMarks}
	p.mu.Unlock()
	p.carryOut(todo)
}

// awaitTrim waits within the leader epoch for all live replicas to start at or above to.
func (p *Partition) awaitTrim(ctx context.Context, epoch batch.Epoch, to batch.Offset) (batch.Offset, error) {
	w := NewWatcher()
	defer p.Unwatch(w)
	p.awaitingTrim(1)
	defer p.awaitingTrim(-1)
	for {
		p.Watch(w)
		p.mu.Lock()
		if p.role != roleLeader || p.epoch != epoch {
			p.mu.Unlock()
			return -1, errNotLeader
		}
		low := p.lead.LogStartLow()
		p.mu.Unlock()
		if low >= to {
			return low, nil
		}
		select {
		case <-w.C():
		case <-ctx.Done():
			return -1, ctx.Err()
		}
	}
}

// awaitingTrim counts who waits for positions to bring log starts.
func (p *Partition) awaitingTrim(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trims += n
}

// trimmedLocked signals those who wait for the replicas' log starts, after anything
// that may have changed them or who counts as live.
func (p *Partition) trimmedLocked() {
	if p.trims > 0 {
		p.signalLocked()
	}
}

// expire lets go of what retention allows, if this node leads. It tells whether
// anything goes.
func (p *Partition) expire(r storage.Retention) (bool, error) {
	s, err := p.serve(batch.NoEpoch)
	if err != nil {
		return false, nil // the leader decides
	}
	to, any := p.log.Expired(r, s.hw)
	if !any {
		return false, nil
	}
	if err := p.log.RaiseStart(to); err != nil {
		p.trouble(err)
		return false, err
	}
	p.started(s.epoch)
	return true, nil
}

// EpochEnd answers where a leader epoch ends in this log, for a client that knows
// current as the present one: the largest epoch at or below asked, with its end.
// For an epoch that is not known yet both are -1; for one that is gone it is the
// epoch asked for, with the log's start.
func (p *Partition) EpochEnd(current, asked batch.Epoch) (EpochEnd, error) {
	s, err := p.serve(current)
	none := EpochEnd{Epoch: batch.NoEpoch, End: -1}
	switch {
	case err != nil:
		return none, err
	case asked < 0 || asked > s.epoch:
		return none, nil
	case asked == s.epoch:
		return EpochEnd{Epoch: asked, End: p.log.End()}, nil // whether it has batches or not
	}
	e, end := p.log.EpochEnd(asked)
	if e == batch.NoEpoch {
		e = asked
	}
	return EpochEnd{Epoch: e, End: end}, nil
}

// Producers lists the idempotent producers that this leader remembers.
func (p *Partition) Producers() ([]storage.Producer, error) {
	if _, err := p.serve(batch.NoEpoch); err != nil {
		return nil, err
	}
	return p.log.Producers(), nil
}
