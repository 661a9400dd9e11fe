package storage

import (
	"errors"
	"fmt"
	"io"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// walker finds batches in one segment: an index entry says where to begin, and
// headers lead from there. What the index says is checked against what lies at
// the position; if it is wrong, the walk begins at the segment's first byte.
type walker struct {
	l   *Log
	s   *segment
	f   vfs.File
	buf []byte
}

// noKey says that a walk does not begin at an index entry.
const noKey = -1

// find returns the batch that holds offset o or, in a hole that compaction left,
// the next one; end and size are the segment's bounds, and o lies below end.
func (w walker) find(o, end batch.Offset, size int64) (spot, error) {
	if pos, ok := w.s.hinted(o); ok && pos < size {
		at, err := w.from(pos, size, noKey, func(spot) bool { return true })
		if err == nil && at.base == o && at.end <= end {
			return at, nil
		}
	}
	rel := int64(o - w.s.base)
	e, ok := w.s.floor(offsetIndex, func(e entry) bool { return e.key > rel })
	if ok && int64(e.val) < size {
		at, err := w.from(int64(e.val), size, e.key, func(sp spot) bool { return sp.end > o })
		if err == nil && at.end <= end {
			return at, nil
		}
		if !misled(err) {
			return spot{}, err
		}
	}
	at, err := w.from(0, size, noKey, func(sp spot) bool { return sp.end > o })
	if err != nil {
		return spot{}, w.corrupt(o, err)
	}
	if at.end > end {
		return spot{}, w.corrupt(o, &badBatch{at.pos, fmt.Sprintf("the batch ends at %d and the segment at %d", at.end, end)})
	}
	return at, nil
}

// misled tells whether a walk ended because no batch lay where it looked, and
// not because the disk erred.
func misled(err error) bool {
	bad := (*badBatch)(nil)
	return err == nil || errors.As(err, &bad) || errors.Is(err, io.EOF)
}

// from walks from a batch's position to the first batch for which stop holds.
// The batch at the position must be the one of the index entry with that key.
func (w walker) from(pos, size, key int64, stop func(spot) bool) (spot, error) {
	sc := newScanner(w.f, pos, size, w.buf)
	for {
		h, n, err := sc.head()
		if err != nil {
			return spot{}, err
		}
		if key != noKey && int64(h.Last()-w.s.base) != key {
			return spot{}, &badBatch{pos, "not the batch that the index means"}
		}
		at := spot{sc.pos, n, h.Base(), h.End(), h.MaxTimestamp()}
		if stop(at) {
			return at, nil
		}
		sc.skip(n)
		key = noKey
	}
}

// clip returns the end of the last whole batch that leaves a Range that begins
// with first within most bytes, and the offset there; it is the end of first at
// the least. There are more bytes than that before stop.
func (w walker) clip(first spot, stop, most int64) (int64, batch.Offset, error) {
	limit := first.pos + most
	if first.size >= most {
		return first.pos + first.size, first.end, nil
	}
	over := func(sp spot) bool { return sp.pos+sp.size > limit }
	e, ok := w.s.floor(offsetIndex, func(e entry) bool { return int64(e.val) > limit })
	if ok && int64(e.val) > first.pos && int64(e.val) < stop {
		at, err := w.from(int64(e.val), stop, e.key, over)
		if err == nil {
			return at.pos, at.base, nil
		}
		if !misled(err) {
			return 0, 0, err
		}
	}
	at, err := w.from(first.pos, stop, noKey, over)
	if err != nil {
		return 0, 0, w.corrupt(first.base, err)
	}
	return at.pos, at.base, nil
}

// heads calls f with the header, position and size of every batch from the one that
// holds from on that begins before end.
func (w walker) heads(from, end batch.Offset, f func(h batch.Batch, pos, size int64)) error {
	segEnd, size := w.s.bounds()
	if from >= min(end, segEnd) {
		return nil
	}
	at, err := w.find(from, segEnd, size)
	if err != nil {
		return err
	}
	sc := newScanner(w.f, at.pos, size, w.buf)
	for {
		h, n, err := sc.head()
		if errors.Is(err, io.EOF) || err == nil && h.Base() >= end {
			return nil
		}
		if err != nil {
			return w.corrupt(at.base, err)
		}
		f(h, sc.pos, n)
		sc.skip(n)
	}
}

// newest returns the greatest timestamp of the batches from the one that holds
// from on that begin before end, or best if none is greater.
func (w walker) newest(from, end batch.Offset, best stamp) (stamp, error) {
	err := w.heads(from, end, func(h batch.Batch, _, _ int64) {
		best = stampMax(best, h)
	})
	return best, err
}

// blame is corrupt for an error that may be none.
func (w walker) blame(o batch.Offset, err error) error {
	if err == nil {
		return nil
	}
	return w.corrupt(o, err)
}

// sound proves the segment from its first byte up to the batch that holds o. It
// returns that one, or, as a spot without size, the place before it where batches
// cease to be sound, and the offset that is missing there.
func (w walker) sound(o batch.Offset) (spot, error) {
	p := w.proveAnew()
	return p.upTo(o)
}

// corrupt turns a bad batch below a segment's end into a CorruptError, and notes
// that the replica is damaged if it was flushed. Errors of the disk pass through.
// What was looked for may lie behind the damage, so the offset is that where
// batches cease to be sound.
func (w walker) corrupt(o batch.Offset, err error) error {
	bad := &badBatch{w.s.size(), "the batch is missing"}
	if !errors.Is(err, io.EOF) && !errors.As(err, &bad) {
		return err
	}
	last, err := w.sound(o)
	if err != nil {
		return err
	}
	return w.damaged(&CorruptError{Path: w.s.file.path(), Pos: bad.pos, Offset: min(o, last.base), Msg: bad.msg})
}
