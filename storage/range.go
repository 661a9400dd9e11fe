package storage

import (
	"errors"
	"fmt"
	"io"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// Range is a run of whole batches in one segment file. It keeps the file from
// being removed until Release, but not from being cut: whoever sends it must be
// ready for fewer bytes than Len, and then close the connection.
//
// The zero Range is empty and need not be released.
type Range struct {
	file       *segFile
	pos        int64
	len        int
	firstLen   int
	first, end batch.Offset
}

// Len is the number of bytes.
func (r Range) Len() int { return r.len }

// First is the base offset of the first batch, which may lie before the offset
// that was asked for; of an empty Range it is the offset asked for.
func (r Range) First() batch.Offset { return r.first }

// End is the offset after the last batch.
func (r Range) End() batch.Offset { return r.end }

// FirstBatchLen is the size of the first batch.
func (r Range) FirstBatchLen() int { return r.firstLen }

// Release gives up the claim on the file. It must be called once for every
// Range that Read returned, and nothing but Len, First and End after it.
func (r Range) Release() {
	if r.file != nil {
		r.file.unpin()
	}
}

// Cut returns the first n bytes of the range, for a sender that has sent the
// rest or may send no more; the claim stays with r.
func (r Range) Cut(n int) Range {
	r.len = min(r.len, n)
	return r
}

// Held is a Range with its descriptor, for one call.
type Held struct {
	file *segFile
	f    vfs.File
	pos  int64
	call vfs.Call // the call, if it goes past the file
}

// Hold passes the file gate and keeps the descriptor open until Held.Release.
// Nothing that waits for a peer may happen in between: others queue at the gate, and
// a disk that lets the call wait for long is taken to hang.
func (r Range) Hold() (Held, error) {
	h, err := r.hold()
	if err == nil {
		h.call = vfs.BeginSend(h.f)
	}
	return h, err
}

func (r Range) hold() (Held, error) {
	if r.file == nil {
		return Held{}, errors.New("hold an empty range")
	}
	d := r.file.log.d
	if d.offline.Load() != nil {
		return Held{}, r.file.log.wrap("read", d.Offline())
	}
	d.reads.enter()
	f, err := d.readers.acquire(&r.file.r, (*reading)(r.file))
	if err != nil {
		d.reads.leave()
		return Held{}, r.file.log.wrap("read", err)
	}
	return Held{file: r.file, f: f, pos: r.pos}, nil
}

// File is the segment's file.
func (h Held) File() vfs.File { return h.f }

// Pos is where in the file the Range begins.
func (h Held) Pos() int64 { return h.pos }

// Release lets the descriptor go.
func (h Held) Release() {
	h.call.End()
	d := h.file.log.d
	d.readers.release(&h.file.r)
	d.reads.leave()
}

// ReadAt reads bytes of the range from off on. It returns io.EOF at the range's
// end and io.ErrUnexpectedEOF when the file is shorter than the range.
func (r Range) ReadAt(p []byte, off int) (int, error) {
	if off >= r.len {
		return 0, io.EOF
	}
	h, err := r.hold()
	if err != nil {
		return 0, err
	}
	defer h.Release()
	want := min(len(p), r.len-off)
	n, err := h.f.ReadAt(p[:want], h.pos+int64(off))
	switch {
	case n == want && want == len(p):
		return n, nil
	case n == want:
		return n, io.EOF
	case err == nil || errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	return n, r.file.log.wrap("read", err)
}

// Read returns whole batches from the one that holds from, up to but not past
// end, about maxBytes of them: the first is whole even if it is larger. The
// Range ends at the latest with its segment. It is empty when nothing lies
// between from and end, and an error when from is below Start or above End.
func (l *Log) Read(from, end batch.Offset, maxBytes int) (Range, error) {
	if l.d.offline.Load() != nil {
		return Range{}, l.wrap("read", l.d.Offline())
	}
	for {
		s, err := l.pinned(from)
		if err != nil {
			return Range{}, l.wrap("read", err)
		}
		if s == nil {
			return Range{first: from, end: from}, nil
		}
		r, err := l.readIn(s, from, end, maxBytes)
		if err == nil && r.file != nil {
			return r, nil
		}
		s.file.unpin()
		if err == nil {
			return r, nil
		}
		if l.view.Load().holds(s) {
			return Range{}, l.wrap("read", err)
		}
		// The segment was cut or dropped meanwhile: look again.
	}
}

// pinned returns the segment to read from in, with a claim on its file; nil when
// from is the log's end.
func (l *Log) pinned(from batch.Offset) (*segment, error) {
	for {
		v := l.view.Load()
		if from < l.Start() || from > v.end() {
			return nil, fmt.Errorf("offset %d is not within %d and %d: %w", from, l.Start(), v.end(), ErrOffsetOutOfRange)
		}
		i := v.find(from)
		if i == len(v.segs) {
			return nil, nil
		}
		if v.segs[i].file.pin() {
			return v.segs[i], nil
		}
		if l.view.Load() == v {
			return nil, ErrClosed // a log that goes drops its files and not its view
		}
	}
}

// spot is where a batch lies in its segment.
type spot struct {
	pos, size int64
	base, end batch.Offset
	time      int64 // its greatest timestamp
}

// readIn finds the bounds of a Range in a segment; its file is nil when the Range
// is empty.
func (l *Log) readIn(s *segment, from, end batch.Offset, maxBytes int) (Range, error) {
	if from >= end {
		return Range{first: from, end: from}, nil
	}
	d := l.d
	d.reads.enter()
	defer d.reads.leave()
	f, err := d.readers.acquire(&s.file.r, (*reading)(s.file))
	if err != nil {
		return Range{}, err
	}
	defer d.readers.release(&s.file.r)
	buf := d.buffers.Get().(*[readWindow]byte)
	defer d.buffers.Put(buf)
	w := walker{l: l, s: s, f: f, buf: buf[:]}

	segEnd, segSize := s.bounds()
	if !s.proven() && !s.ours(from) {
		return w.provenRange(from, end, maxBytes)
	}
	first, err := w.find(from, segEnd, segSize)
	if err != nil {
		return Range{}, err
	}
	if _, old := s.unpack(s.old.Load()); first.pos < old && !s.proven() { // led astray
		return w.provenRange(from, end, maxBytes)
	}
	stop, stopEnd := segSize, segEnd
	if end < segEnd {
		last, err := w.find(end, segEnd, segSize)
		if err != nil {
			return Range{}, err
		}
		stop, stopEnd = last.pos, last.base
	}
	if stop <= first.pos {
		return Range{first: from, end: from}, nil
	}
	if stop-first.pos > int64(maxBytes) {
		stop, stopEnd, err = w.clip(first, stop, int64(maxBytes))
		if err != nil {
			return Range{}, err
		}
	}
	return s.rangeOf(first, stop, stopEnd), nil
}

// rangeOf is the Range from a batch up to a place where another begins.
func (s *segment) rangeOf(first spot, stop int64, stopEnd batch.Offset) Range {
	s.hint(stopEnd, stop)
	return Range{s.file, first.pos, int(stop - first.pos), int(first.size), first.base, stopEnd}
}

// provenRange is readIn where not all is proven: it proves what it returns.
func (w walker) provenRange(from, end batch.Offset, maxBytes int) (Range, error) {
	buf := w.l.d.windows.Get().(*[proofWindow]byte)
	defer w.l.d.windows.Put(buf)
	w.buf = buf[:]
	first, stop, stopEnd, err := w.proveRange(from, end, int64(maxBytes))
	if err != nil || first.size == 0 {
		return Range{first: from, end: from}, err
	}
	return w.s.rangeOf(first, stop, stopEnd), nil
}
