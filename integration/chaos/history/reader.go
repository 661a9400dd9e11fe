package history

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrTruncated ends a history whose last frame is not whole.
var ErrTruncated = errors.New("history ends within a frame")

// CorruptError is a frame that no Writer wrote.
type CorruptError struct {
	Frame int    // from 0
	What  string // is wrong with it
}

func (e *CorruptError) Error() string { return fmt.Sprintf("history, frame %d: %s", e.Frame, e.What) }

// Entry is one entry of a history: exactly one of its fields is set. What they
// point to is the Reader's and holds until its next call.
type Entry struct {
	Op     *Op
	Window *Window
	Name   *Name
}

// Reader reads a history as a stream.
type Reader struct {
	r      *bufio.Reader
	header Header
	frame  int // frames read
	body   []byte
	op     Op
	window Window
	name   Name
}

// NewReader begins to read a history.
func NewReader(r io.Reader) (*Reader, error) {
	out := &Reader{r: bufio.NewReaderSize(r, 1<<16)}
	start := make([]byte, len(magic)+1)
	if _, err := io.ReadFull(out.r, start); err != nil {
		return nil, fmt.Errorf("read a history's magic: %w", err)
	}
	if string(start[:len(magic)]) != magic {
		return nil, errors.New("not a history: it begins with other bytes")
	}
	if v := start[len(magic)]; v != version {
		return nil, fmt.Errorf("history of version %d, this program knows %d", v, version)
	}
	kind, d, err := out.next()
	if err != nil {
		return nil, err
	}
	if kind != frameHeader {
		return nil, out.corrupt("no header")
	}
	out.header = Header{Seed: d.uvarint(), StartUnix: d.varint(), Command: d.string()}
	return out, out.finish(d)
}

// Header is what the history says of its run.
func (r *Reader) Header() Header { return r.header }

// Next is the next entry, or io.EOF, ErrTruncated, a CorruptError or an error of
// the underlying reader.
func (r *Reader) Next() (Entry, error) {
	kind, d, err := r.next()
	if err != nil {
		return Entry{}, err
	}
	var e Entry
	switch kind {
	case frameOp:
		d.op(&r.op)
		e.Op = &r.op
		if r.op.Func == 0 || int(r.op.Func) >= Funcs || r.op.Outcome == 0 || int(r.op.Outcome) >= Outcomes {
			return Entry{}, r.corrupt("operation without function or outcome")
		}
	case frameWindow:
		r.window = Window{Start: d.varint(), End: d.varint(), Kind: d.string(), Target: d.string(), Survivable: d.byte() != 0}
		e.Window = &r.window
	case frameName:
		r.name = Name{Key: Key(d.uvarint()), Name: d.string()}
		e.Name = &r.name
	default:
		return Entry{}, r.corrupt(fmt.Sprintf("unknown kind %d", kind))
	}
	return e, r.finish(d)
}

// next reads one frame.
func (r *Reader) next() (byte, *decoder, error) {
	n, err := binary.ReadUvarint(r.r)
	switch {
	case errors.Is(err, io.EOF):
		return 0, nil, io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return 0, nil, ErrTruncated
	case err != nil:
		return 0, nil, fmt.Errorf("read history, frame %d: %w", r.frame, err)
	}
	if n == 0 || n > frameMax {
		return 0, nil, r.corrupt(fmt.Sprintf("length %d", n))
	}
	if uint64(cap(r.body)) < n {
		r.body = make([]byte, n)
	}
	r.body = r.body[:n]
	if _, err := io.ReadFull(r.r, r.body); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return 0, nil, ErrTruncated
		}
		return 0, nil, fmt.Errorf("read history, frame %d: %w", r.frame, err)
	}
	r.frame++
	return r.body[0], &decoder{b: r.body[1:]}, nil
}

func (r *Reader) finish(d *decoder) error {
	switch {
	case d.bad:
		return r.corrupt("its body ends early")
	case len(d.b) > 0:
		return r.corrupt(fmt.Sprintf("%d bytes too many", len(d.b)))
	}
	return nil
}

func (r *Reader) corrupt(what string) error {
	return &CorruptError{Frame: max(r.frame-1, 0), What: what}
}

// decoder reads a frame's body. After the first error everything reads as zero.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.bad = true
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	return d.took(v, n)
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	return int64(d.took(uint64(v), n))
}

func (d *decoder) took(v uint64, n int) uint64 {
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count reads the length of a list of which each element takes some bytes.
func (d *decoder) count() int {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return 0
	}
	return int(n)
}

func (d *decoder) string() string {
	n := d.count()
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func (d *decoder) op(op *Op) {
	c := d.byte()
	op.Func, op.Outcome = Func(c>>4), Outcome(c&0xf)
	op.Process = Process(d.uvarint())
	op.Invoke = d.varint()
	op.Complete = op.Invoke + d.varint()
	op.Sends = d.records(op.Sends[:0])
	op.Polls = d.records(op.Polls[:0])
	op.Keys = d.keys(op.Keys[:0])
	op.Rebalanced = d.keys(op.Rebalanced[:0])
	op.Group = Group(d.uvarint())
	op.Generation = int32(d.varint())
	op.Positions = op.Positions[:0]
	for n := d.count(); n > 0; n-- {
		op.Positions = append(op.Positions, Position{Key: Key(d.uvarint()), Offset: d.varint()})
	}
}

func (d *decoder) records(rs []Record) []Record {
	left := d.count()
	for left > 0 && !d.bad {
		last := Record{Key: Key(d.uvarint())}
		n := d.count()
		if n == 0 || n > left {
			d.bad = true
			return rs
		}
		left -= n
		for ; n > 0; n-- {
			last.Offset += d.varint()
			last.Value += Value(d.varint())
			rs = append(rs, last)
		}
	}
	return rs
}

func (d *decoder) keys(keys []Key) []Key {
	for n := d.count(); n > 0; n-- {
		keys = append(keys, Key(d.uvarint()))
	}
	return keys
}
