package storage

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/weirmq/weir/wire/batch"
)

// windowSize is how many batches of a producer are remembered: as many as a
// client may have in flight, so that a retry of any of them is recognised.
const windowSize = 5

// producerBatch is one remembered batch.
type producerBatch struct {
	lastOffset batch.Offset
	timestamp  int64
	lastSeq    int32
	delta      int32 // records in the batch less one
}

func (b producerBatch) firstSeq() int32 { return (b.lastSeq - b.delta) & math.MaxInt32 }

func (b producerBatch) firstOffset() batch.Offset { return b.lastOffset - batch.Offset(b.delta) }

// producer is what is remembered of one idempotent producer.
type producer struct {
	used    int64 // when it last appended here, ms of this process's steady clock
	epoch   int16
	n       int8
	batches [windowSize]producerBatch // the first n, oldest first
}

// lastSeq is the last sequence appended in this epoch, or NoSequence.
func (p *producer) lastSeq() int32 {
	if p.n == 0 {
		return batch.NoSequence
	}
	return p.batches[p.n-1].lastSeq
}

// push remembers a batch of the producer, forgetting the oldest beyond five and
// all of an older epoch.
func (p *producer) push(epoch int16, b producerBatch) {
	if epoch != p.epoch {
		p.epoch, p.n = epoch, 0
	}
	if p.n == windowSize {
		copy(p.batches[:], p.batches[1:])
		p.n--
	}
	p.batches[p.n] = b
	p.n++
}

// producers is the window of idempotent producers of one log. It is pure: the
// clock is an argument. The zero value is empty.
type producers struct {
	byID map[int64]*producer
	max  int // producers remembered; 0 is no bound
}

// sequence is what a batch says of its producer.
type sequence struct {
	id          int64
	epoch       int16
	first, last int32
}

func sequenceOf(b batch.Batch) sequence {
	return sequence{b.ProducerID(), b.ProducerEpoch(), b.FirstSequence(), b.LastSequence()}
}

// check judges a client's batch. When it was appended before and is still
// remembered it returns where; otherwise it returns an error unless the batch is
// the next one of its producer.
func (ps *producers) check(s sequence) (duplicate producerBatch, found bool, err error) {
	p := ps.byID[s.id]
	if p == nil {
		return producerBatch{}, false, nil
	}
	switch {
	case s.epoch < p.epoch:
		return producerBatch{}, false, fmt.Errorf("producer %d epoch %d is below %d: %w", s.id, s.epoch, p.epoch, ErrInvalidProducerEpoch)
	case s.epoch > p.epoch:
		if s.first != 0 {
			return producerBatch{}, false, fmt.Errorf("producer %d begins epoch %d at sequence %d: %w", s.id, s.epoch, s.first, ErrOutOfOrderSequence)
		}
		return producerBatch{}, false, nil
	}
	for _, b := range p.batches[:p.n] {
		if b.firstSeq() == s.first && b.lastSeq == s.last {
			return b, true, nil
		}
	}
	if last := p.lastSeq(); s.first != nextSequence(last) {
		return producerBatch{}, false, fmt.Errorf("producer %d epoch %d sends sequence %d after %d: %w", s.id, s.epoch, s.first, last, ErrOutOfOrderSequence)
	}
	return producerBatch{}, false, nil
}

// nextSequence is the sequence after last, which wraps to 0; 0 after NoSequence.
func nextSequence(last int32) int32 { return (last + 1) & math.MaxInt32 }

// note remembers a batch that was appended, whoever judged it.
func (ps *producers) note(s sequence, b producerBatch, now int64) {
	p := ps.byID[s.id]
	if p == nil {
		p = ps.insert(s.id, s.epoch)
	}
	p.push(s.epoch, b)
	p.used = now
}

// noteBatch is note for a batch that lies in the log.
func (ps *producers) noteBatch(b batch.Batch, now int64) {
	if !b.HasProducer() || b.Control() || b.FirstSequence() < 0 {
		return
	}
	ps.note(sequenceOf(b), producerBatch{lastOffset: b.Last(), timestamp: b.MaxTimestamp(), lastSeq: b.LastSequence(), delta: b.LastDelta()}, now)
}

func (ps *producers) insert(id int64, epoch int16) *producer {
	if ps.byID == nil {
		ps.byID = map[int64]*producer{}
	}
	if ps.max > 0 && len(ps.byID) >= ps.max {
		ps.evict()
	}
	p := &producer{epoch: epoch}
	ps.byID[id] = p
	return p
}

// evict forgets the eighth of the producers that were idle longest, so that the
// cost of looking for them is shared by as many insertions.
func (ps *producers) evict() {
	used := make([]int64, 0, len(ps.byID))
	for _, p := range ps.byID {
		used = append(used, p.used)
	}
	slices.Sort(used)
	left := max(len(used)/8, 1)
	limit := used[left-1]
	for id, p := range ps.byID {
		if p.used <= limit && left > 0 {
			delete(ps.byID, id)
			left--
		}
	}
}

// expire forgets the producers that appended nothing since the given time.
func (ps *producers) expire(since int64) {
	for id, p := range ps.byID {
		if p.used < since {
			delete(ps.byID, id)
		}
	}
}

// Producer is what a log remembers of one idempotent producer.
type Producer struct {
	ID            int64
	Epoch         int16
	LastSequence  int32 // NoSequence when nothing of its epoch is remembered
	LastTimestamp int64 // of its last batch, NoTimestamp as above
}

// Producers returns the idempotent producers that the log remembers, by id.
func (l *Log) Producers() []Producer {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]Producer, 0, len(l.producers.byID))
	for id, p := range l.producers.byID {
		r := Producer{ID: id, Epoch: p.epoch, LastSequence: p.lastSeq(), LastTimestamp: batch.NoTimestamp}
		if p.n > 0 {
			r.LastTimestamp = p.batches[p.n-1].timestamp
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Producer) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
