package broker

import (
	"errors"
	"fmt"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire/batch"
)

// The timestamps of ListOffsets that do not stand for a time.
const (
	timestampLatest        = -1
	timestampEarliest      = -2
	timestampMax           = -3
	timestampEarliestLocal = -4
)

// ReadRequest asks for the batches of one partition, as a consumer.
type ReadRequest struct {
	// Offset is the first wanted.
	Offset batch.Offset
	// MaxBytes bounds the answer, except that the first batch comes whole.
	MaxBytes int
	// LeaderEpoch is the one the client knows, NoEpoch when none.
	LeaderEpoch batch.Epoch
	// LastFetchedEpoch is that of the last batch the client has, NoEpoch when none.
	LastFetchedEpoch batch.Epoch
	// Committed asks for what committed transactions wrote only.
	Committed bool
	// AnyReplica says that the client may read from followers. Others take whoever
	// answers for the leader.
	AnyReplica bool
	// Rack is where the client is, "" when it does not say.
	Rack string
}

// EpochEnd is a leader epoch and the end of its batches.
type EpochEnd struct {
	Epoch batch.Epoch
	End   batch.Offset
}

// ReadResult is the answer to a ReadRequest. The taker releases Range.
type ReadResult struct {
	// Range holds whole batches; it may start before the wanted offset and is
	// empty when nothing is readable yet.
	Range storage.Range
	// HW is the high watermark, LSO the last stable offset, LogStart the log start offset.
	HW, LSO, LogStart batch.Offset
	// Diverging is set, and Range empty, when the client's last batch is not in this log.
	Diverging *EpochEnd
	// Preferred is set, and Range empty, when the client should read from that replica.
	Preferred *fsm.BrokerID
}

// OffsetResult is the answer to OffsetFor: Offset and Timestamp are -1 when there is none.
type OffsetResult struct {
	Offset      batch.Offset
	Timestamp   int64
	LeaderEpoch batch.Epoch
}

// served is one consistent look at a partition that may be read here.
type served struct {
	epoch     batch.Epoch
	hw        batch.Offset
	servable  bool
	following bool          // another node leads, and this one knows the high watermark from it
	preferred *fsm.BrokerID // the replica that the client should read from instead
}

// serve checks that this node leads, and may answer a consumer that knows leaderEpoch.
func (p *Partition) serve(leaderEpoch batch.Epoch) (served, error) {
	if p.env.hung.Load() {
		return served{}, errStaleSession
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.serveLocked(leaderEpoch)
}

func (p *Partition) serveLocked(leaderEpoch batch.Epoch) (served, error) {
	switch err := p.epochErrorLocked(leaderEpoch); {
	case err != nil:
		return served{}, err
	case p.role != roleLeader:
		return served{}, errNotLeader
	case !p.mayServeLocked():
		return served{}, errStaleSession
	}
	return served{epoch: p.epoch, hw: p.hw, servable: p.lead.Servable()}, nil
}

func (p *Partition) epochErrorLocked(leaderEpoch batch.Epoch) error {
	switch {
	case p.role == roleGone:
		return p.left
	case leaderEpoch != batch.NoEpoch && leaderEpoch < p.epoch:
		return errFencedEpoch
	case leaderEpoch > p.epoch:
		return errUnknownEpoch
	}
	return nil
}

// look checks that this node may answer r, as leader, or as follower if the
// client knows that there are such answers.
func (p *Partition) look(r ReadRequest) (served, error) {
	if p.env.hung.Load() {
		return served{}, errStaleSession
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.role != roleFollower || !r.AnyReplica {
		s, err := p.serveLocked(r.LeaderEpoch)
		if err == nil && r.Rack != "" {
			s.preferred = p.preferredLocked(r)
		}
		return s, err
	}
	if err := p.epochErrorLocked(r.LeaderEpoch); err != nil {
		return served{}, err
	}
	if !p.env.fresh() {
		return served{}, errStaleSession // it would grow old without telling
	}
	if !p.follow.Told() {
		return served{}, errOffsetNotAvailable
	}
	return served{epoch: p.epoch, hw: p.hw, following: true}, nil
}

// preferredLocked finds a replica in the client's rack for a leader in another
// one: in sync, eligible, and holding the offset wanted; of several the one that
// holds most. This node's rack turns the choice on (KIP-392).
func (p *Partition) preferredLocked(r ReadRequest) *fsm.BrokerID {
	im := p.env.image()
	self, _ := im.Broker(p.env.self)
	if self.Rack == "" || self.Rack == r.Rack {
		return nil
	}
	best, most := fsm.NoBroker, batch.Offset(-1)
	for _, id := range p.replicas {
		b, ok := im.Broker(id)
		if id == p.env.self || !ok || b.Rack != r.Rack || !b.Eligible() {
			continue
		}
		if end, ok := p.lead.Covers(id, r.Offset); ok && end > most {
			best, most = id, end
		}
	}
	if best == fsm.NoBroker {
		return nil
	}
	found := best
	return &found
}

// Read returns batches below the high watermark. An offset between the high
// watermark and the log end gives an empty Range and no error from the leader; a
// follower has heard of that high watermark only, and says that the offset is
// not available.
func (p *Partition) Read(r ReadRequest) (ReadResult, error) {
	s, err := p.look(r)
	if err != nil {
		return ReadResult{}, err
	}
	// What lies below the high watermark is never truncated, so the log is read without the lock.
	start, end := p.log.Start(), p.log.End()
	res := ReadResult{HW: s.hw, LSO: s.hw, LogStart: start}
	switch {
	case r.Offset >= start && r.Offset <= end:
	case s.following && r.LeaderEpoch == batch.NoEpoch:
		return res, errNotLeader // who takes us for the leader would take our word for it
	default:
		return res, fmt.Errorf("%w: offset %d is not in [%d, %d]", errOutOfRange, r.Offset, start, end)
	}
	if s.following && r.Offset > s.hw {
		return res, errOffsetNotAvailable
	}
	if r.LastFetchedEpoch != batch.NoEpoch {
		if at, diverges := divergence(p.log, r.LastFetchedEpoch, r.Offset); diverges {
			res.Diverging = &at
			return res, nil
		}
	}
	if res.Preferred = s.preferred; res.Preferred != nil || r.Offset >= s.hw {
		return res, nil
	}
	res.Range, err = p.log.Read(r.Offset, s.hw, r.MaxBytes)
	if err != nil {
		p.trouble(err)
		return res, readError(err)
	}
	return res, nil
}

// divergence compares the reader's last epoch and end with the log's own history.
func divergence(l *storage.Log, last batch.Epoch, end batch.Offset) (EpochEnd, bool) {
	e, epochEnd := l.EpochEnd(last)
	if e == batch.NoEpoch {
		// All batches of that epoch are gone: only a reader at or before the log start agrees with us.
		return EpochEnd{Epoch: last, End: epochEnd}, end > epochEnd
	}
	return EpochEnd{Epoch: e, End: epochEnd}, e < last || epochEnd < end
}

func readError(err error) error {
	if errors.Is(err, storage.ErrOffsetOutOfRange) {
		return fmt.Errorf("%w: %w", errOutOfRange, err)
	}
	return fmt.Errorf("%w: %w", errStorage, err)
}

// OffsetFor answers ListOffsets: one of the special timestamps, or the first
// record at or after a time.
func (p *Partition) OffsetFor(timestamp int64, leaderEpoch batch.Epoch, committed bool) (OffsetResult, error) {
	s, err := p.serve(leaderEpoch)
	if err != nil {
		return OffsetResult{}, err
	}
	none := OffsetResult{Offset: -1, Timestamp: -1, LeaderEpoch: batch.NoEpoch}
	switch timestamp {
	case timestampLatest:
		if !s.servable {
			return none, errOffsetNotAvailable
		}
		return OffsetResult{Offset: s.hw, Timestamp: -1, LeaderEpoch: s.epoch}, nil
	case timestampEarliest, timestampEarliestLocal:
		return OffsetResult{Offset: p.log.Start(), Timestamp: -1, LeaderEpoch: batch.NoEpoch}, nil
	}
	res, found, err := p.search(timestamp, s.hw)
	switch {
	case err != nil:
		return none, readError(err)
	case found:
		return res, nil
	case !s.servable:
		return none, errOffsetNotAvailable // the record may lie above the high watermark we know
	}
	return none, nil
}

func (p *Partition) search(timestamp int64, hw batch.Offset) (OffsetResult, bool, error) {
	var res OffsetResult
	var found bool
	var err error
	if timestamp == timestampMax {
		res.Offset, res.Timestamp, res.LeaderEpoch, found, err = p.log.MaxTimestamp(hw)
	} else {
		res.Offset, res.Timestamp, res.LeaderEpoch, found, err = p.log.OffsetAt(timestamp, hw)
	}
	return res, found, err
}
