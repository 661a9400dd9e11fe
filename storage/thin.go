package storage

import (
	"fmt"

	"github.com/weirmq/weir/wire/batch"
	"github.com/weirmq/weir/wire/compress"
)

// Problem: of all records of a key only the newest is to stay, and yet a replica must be
// able to tell a record that was cleaned away from one that was lost, and a producer's
// retry from a new batch.
//
// Invariants: what is left keeps its offsets, its epochs and its order. Batches stay
// contiguous: where whole ones go, one filler of 61 bytes covers their offsets, so proofs,
// recovery and replication go on to see every hole as damage. Epochs begin where they
// began. The batches by which a log remembers its producers stay, if only as headers. A
// deletion stays until the horizon that the first cleaning stamped on it has passed, and
// not even then while a replica may not have seen it (Compaction.HoldDeletes).
//
// Rejected: gaps in the offsets, as Kafka leaves them. A follower whose leader lost a
// batch could not tell that from a cleaning. A filler costs one header for each run of
// batches that are gone, and cleaning merges neighbours.

// thinner takes superseded records out of batches that come in order. It is pure.
type thinner struct {
	keys    *offsetMap
	end     batch.Offset // what lies from here on is left alone: keys knows nothing of it
	now     int64
	retain  int64          // ms from the first cleaning to a deletion's horizon
	hold    bool           // deletions stay whatever their horizon
	windows []batch.Offset // last offsets of batches that producers are remembered by, rising

	out     []byte // what became of the batches, for the caller to take
	changed bool   // it is not what came in; for the caller to reset
	horizon int64  // the least of the deletions that stay; NoHorizon when there are none
	dropped int64  // records

	fill  bool // a filler for [base, next) of epoch is to come
	base  batch.Offset
	next  batch.Offset
	epoch batch.Epoch

	keep                            func(batch.Offset, []byte, bool) bool // keeps, as a value made once
	expired                         bool                                  // the present batch's horizon has passed
	plain, section, timed, deflated []byte
}

func newThinner(keys *offsetMap, end batch.Offset) *thinner {
	t := &thinner{keys: keys, end: end, horizon: batch.NoHorizon}
	t.keep = t.keeps
	return t
}

// keeps judges one record. One without a key cannot be told from others and goes, as in
// Kafka: a topic that became compacted may have some.
func (t *thinner) keeps(o batch.Offset, key []byte, deletes bool) bool {
	if key == nil || t.keys.newer(key, o) || deletes && t.expired {
		t.dropped++
		return false
	}
	return true
}

// add takes the next batch; its bytes are the caller's again when it returns.
func (t *thinner) add(b batch.Batch) error {
	switch {
	case b.Base() >= t.end, b.Control(), b.Transactional():
		t.pass(b)
		return nil
	case b.Count() == 0 && t.remembered(b):
		t.pass(b)
		return nil
	case b.Count() == 0:
		t.cover(b)
		return nil
	}
	payload, err := t.inflate(b)
	if err != nil {
		return err
	}
	stamped := b.DeleteHorizon()
	t.expired = stamped != batch.NoHorizon && t.now >= stamped && !t.hold
	section, left, err := b.Thin(t.section[:0], payload, t.keep)
	t.section = section
	if err != nil {
		return uncleanable(section, left, err)
	}
	return t.leave(b, left)
}

// leave puts out what is left of a batch, in t.section.
func (t *thinner) leave(b batch.Batch, left batch.Thinned) error {
	horizon := batch.NoHorizon
	if left.Deletes > 0 {
		t.noteHorizon(b.DeleteHorizon())
		if b.DeleteHorizon() == batch.NoHorizon {
			horizon = t.now + t.retain
			t.noteHorizon(horizon)
		}
	}
	switch {
	case left.Count == 0 && t.remembered(b):
		t.settle()
		t.out, t.changed = b.AppendEmptied(t.out), true
		return nil
	case left.Count == 0:
		t.cover(b)
		t.changed = true
		return nil
	case left.Count == b.Count() && horizon == batch.NoHorizon:
		t.pass(b)
		return nil
	}
	section, err := t.encode(b, horizon)
	if err != nil {
		return fmt.Errorf("%w: %w", errUncleanable, err)
	}
	t.settle()
	t.out, t.changed = b.AppendRebuilt(t.out, section, left, horizon), true
	return nil
}

// uncleanable tells what an error of batch.Thin means.
func uncleanable(_ []byte, _ batch.Thinned, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errUncleanable, err)
}

func (t *thinner) noteHorizon(h int64) {
	if h != batch.NoHorizon && (t.horizon == batch.NoHorizon || h < t.horizon) {
		t.horizon = h
	}
}

// inflate is the uncompressed record section of a batch.
func (t *thinner) inflate(b batch.Batch) ([]byte, error) {
	if b.Codec() == batch.None {
		return b.Payload(), nil
	}
	p, err := compress.Inflate(compress.Codec(b.Codec()), t.plain[:0], b.Payload(), maxInflated)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUncleanable, err)
	}
	t.plain = p
	return p, nil
}

// encode is t.section as b stores its records.
func (t *thinner) encode(b batch.Batch, horizon int64) (section []byte, err error) {
	section = t.section
	if horizon != batch.NoHorizon {
		if section, err = b.Retime(t.timed[:0], section, horizon); err != nil {
			return nil, err
		}
		t.timed = section
	}
	if b.Codec() == batch.None {
		return section, nil
	}
	if section, err = compress.Deflate(compress.Codec(b.Codec()), t.deflated[:0], section, 0); err != nil {
		return nil, err
	}
	t.deflated = section
	return section, nil
}

// remembered tells whether a producer is remembered by the batch.
func (t *thinner) remembered(b batch.Batch) bool {
	for len(t.windows) > 0 && t.windows[0] < b.Last() {
		t.windows = t.windows[1:]
	}
	return b.HasProducer() && len(t.windows) > 0 && t.windows[0] == b.Last()
}

// pass puts a batch out as it is.
func (t *thinner) pass(b batch.Batch) {
	t.settle()
	t.out = append(t.out, b...)
}

// cover has a filler cover a batch of which nothing is left.
func (t *thinner) cover(b batch.Batch) {
	if t.fill && t.epoch == b.Epoch() {
		t.next, t.changed = b.End(), true
		return
	}
	t.settle()
	t.fill, t.base, t.next, t.epoch = true, b.Base(), b.End(), b.Epoch()
	t.changed = t.changed || !b.Filler()
}

// settle puts the filler out that is to come.
func (t *thinner) settle() {
	if t.fill {
		t.out, t.fill = batch.AppendFiller(t.out, t.base, t.next-1, t.epoch), false
	}
}

// windowsBelow lists the batches below end by which producers are remembered, by their
// last offsets.
func (ps *producers) windowsBelow(end batch.Offset) []batch.Offset {
	var last []batch.Offset
	for _, p := range ps.byID {
		for _, b := range p.batches[:p.n] {
			if b.lastOffset < end {
				last = append(last, b.lastOffset)
			}
		}
	}
	return last
}
