package storage

import (
	"errors"
	"fmt"
	"io"

	"github.com/weirmq/weir/wire/batch"
	"github.com/weirmq/weir/wire/compress"
)

// maxInflated bounds what one stored batch may inflate to when its records must
// be looked at. What was accepted is far below it.
const maxInflated = 1 << 28

// recordAt is one record as the time queries answer it.
type recordAt struct {
	offset batch.Offset
	time   int64
	epoch  batch.Epoch
	found  bool
}

// OffsetAt returns the first record below end whose timestamp is ts or later:
// its offset, timestamp and leader epoch; false when there is none.
func (l *Log) OffsetAt(ts int64, end batch.Offset) (batch.Offset, int64, batch.Epoch, bool, error) {
	r, err := l.query(func(v *view, start batch.Offset) (recordAt, error) {
		for _, s := range v.segs {
			if s.end() <= start || s.base >= end || s.loadNewest().time < ts {
				continue
			}
			r, err := l.firstSince(s, ts, max(start, s.base), end)
			if err != nil || r.found {
				return r, err
			}
		}
		return recordAt{}, nil
	})
	return r.offset, r.time, r.epoch, r.found, err
}

// MaxTimestamp returns the first of the records below end with the greatest
// timestamp: its offset, timestamp and leader epoch; false when there is none.
func (l *Log) MaxTimestamp(end batch.Offset) (batch.Offset, int64, batch.Epoch, bool, error) {
	r, err := l.query(func(v *view, start batch.Offset) (recordAt, error) {
		var best *segment
		newest := batch.NoTimestamp
		for _, s := range v.segs {
			if s.end() <= start || s.base >= end {
				continue
			}
			t, err := l.newestWithin(s, start, end)
			if err != nil {
				return recordAt{}, err
			}
			if t > newest {
				best, newest = s, t
			}
		}
		if best == nil {
			return recordAt{}, nil
		}
		return l.firstSince(best, newest, max(start, best.base), end)
	})
	return r.offset, r.time, r.epoch, r.found, err
}

// query runs a search through the view inside the file gate, again when a cut
// took a segment from under it.
func (l *Log) query(search func(v *view, start batch.Offset) (recordAt, error)) (recordAt, error) {
	d := l.d
	d.reads.enter()
	defer d.reads.leave()
	for {
		if d.offline.Load() != nil {
			return recordAt{}, l.wrap("search", d.Offline())
		}
		v := l.view.Load()
		r, err := search(v, l.Start())
		if err == nil {
			return r, nil
		}
		if l.view.Load() == v {
			return recordAt{}, l.wrap("search", err)
		}
	}
}

// walk runs f with a walker over a segment whose file is claimed meanwhile; the
// caller is inside the file gate.
func (l *Log) walk(s *segment, f func(w walker) error) error {
	if !s.file.pin() {
		return ErrClosed
	}
	defer s.file.unpin()
	file, err := l.d.readers.acquire(&s.file.r, (*reading)(s.file))
	if err != nil {
		return err
	}
	defer l.d.readers.release(&s.file.r)
	buf := l.d.buffers.Get().(*[readWindow]byte)
	defer l.d.buffers.Put(buf)
	return f(walker{l: l, s: s, f: file, buf: buf[:]})
}

// firstSince returns the first record of a segment at or after ts, from start on
// and below end.
func (l *Log) firstSince(s *segment, ts int64, start, end batch.Offset) (recordAt, error) {
	var found recordAt
	err := l.walk(s, func(w walker) error {
		segEnd, size := s.bounds()
		from := start
		// All before the batch that an entry at or below ts names are older.
		if e, ok := s.floor(timeIndex, func(e entry) bool { return e.key > ts }); ok {
			from = max(from, s.base+batch.Offset(e.val))
		}
		if from >= segEnd || start >= end {
			return nil
		}
		at, err := w.find(from, segEnd, size)
		for err == nil && !found.found && at.base < end {
			at, err = w.from(at.pos, size, noKey, func(sp spot) bool { return sp.time >= ts })
			if err != nil || at.base >= end {
				break
			}
			found, err = w.recordSince(at, ts, start, end)
			at.pos += at.size
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return w.blame(from, err)
	})
	return found, err
}

// recordSince looks for the record in one batch.
func (w walker) recordSince(at spot, ts int64, start, end batch.Offset) (recordAt, error) {
	var found recordAt
	err := w.records(at, func(r batch.Record, e batch.Epoch) bool {
		if r.Timestamp >= ts && r.Offset >= start && r.Offset < end {
			found = recordAt{r.Offset, r.Timestamp, e, true}
		}
		return !found.found
	})
	return found, err
}

// records calls f with the records of one batch until it returns false.
func (w walker) records(at spot, f func(r batch.Record, e batch.Epoch) bool) error {
	sc := newScanner(w.f, at.pos, at.pos+at.size, nil)
	b, err := sc.whole(at.size)
	if err != nil {
		return err
	}
	if err := b.CheckCRC(); err != nil {
		return &badBatch{at.pos, err.Error()}
	}
	payload := b.Payload()
	if b.Codec() != batch.None {
		payload, err = compress.Inflate(compress.Codec(b.Codec()), nil, payload, maxInflated)
		if err != nil {
			return &badBatch{at.pos, fmt.Sprintf("inflate: %v", err)}
		}
	}
	for r, err := range b.Records(payload) {
		if err != nil {
			return &badBatch{at.pos, err.Error()}
		}
		if !f(r, b.Epoch()) {
			return nil
		}
	}
	return nil
}

// newestWithin is the greatest timestamp of a segment's records from start on and
// below end. Only batches that reach past either are opened.
func (l *Log) newestWithin(s *segment, start, end batch.Offset) (int64, error) {
	if t := s.loadNewest(); t.time == batch.NoTimestamp || start <= s.base && t.offset < end {
		return t.time, nil
	}
	newest := batch.NoTimestamp
	err := l.walk(s, func(w walker) error {
		var inner error
		err := w.heads(max(start, s.base), end, func(h batch.Batch, pos, size int64) {
			switch {
			case inner != nil || h.NewestTimestamp() <= newest:
			case h.Base() >= start && h.End() <= end:
				newest = h.MaxTimestamp()
			default:
				inner = w.records(spot{pos: pos, size: size}, func(r batch.Record, _ batch.Epoch) bool {
					if r.Offset >= start && r.Offset < end {
						newest = max(newest, r.Timestamp)
					}
					return true
				})
			}
		})
		if err == nil {
			err = w.blame(start, inner)
		}
		return err
	})
	return newest, err
}
