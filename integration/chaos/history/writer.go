package history

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"
)

const (
	magic   = "WEIRHIS"
	version = 1

	// flushBytes is when a buffer is written: large enough that a write per flush
	// costs nothing, small enough that a crash of the writer loses little.
	flushBytes = 64 << 10
	// frameMax bounds what a reader allocates for one frame.
	frameMax = 64 << 20
)

// Kinds of frames.
const (
	frameHeader byte = iota + 1
	frameOp
	frameWindow
	frameName
)

// Writer appends entries to a history, from many goroutines.
type Writer struct {
	mu      sync.Mutex
	w       io.Writer
	buf     []byte // frames not yet written
	scratch []byte // the body of the frame being made
	err     error  // the first error of w: nothing is written after it
}

// NewWriter begins a history on w.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	out := &Writer{w: w, buf: append([]byte(magic), version)}
	err := out.add(frameHeader, func(b []byte) []byte {
		b = binary.AppendUvarint(b, h.Seed)
		b = binary.AppendVarint(b, h.StartUnix)
		return appendString(b, h.Command)
	})
	return out, err
}

// Append adds an operation that completed. The op is the caller's again when
// Append returns.
func (w *Writer) Append(op *Op) error {
	return w.add(frameOp, func(b []byte) []byte { return appendOp(b, op) })
}

// Window adds a fault that ended.
func (w *Writer) Window(f Window) error {
	return w.add(frameWindow, func(b []byte) []byte {
		b = binary.AppendVarint(b, f.Start)
		b = binary.AppendVarint(b, f.End)
		b = appendString(b, f.Kind)
		b = appendString(b, f.Target)
		if f.Survivable {
			return append(b, 1)
		}
		return append(b, 0)
	})
}

// Name says what a key stands for.
func (w *Writer) Name(n Name) error {
	return w.add(frameName, func(b []byte) []byte {
		b = binary.AppendUvarint(b, uint64(n.Key))
		return appendString(b, n.Name)
	})
}

// Flush writes what is buffered.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flushLocked()
}

func (w *Writer) add(kind byte, body func([]byte) []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	w.scratch = body(append(w.scratch[:0], kind))
	if len(w.scratch) > frameMax {
		return fmt.Errorf("history entry of %d bytes, the limit is %d", len(w.scratch), frameMax)
	}
	w.buf = binary.AppendUvarint(w.buf, uint64(len(w.scratch)))
	w.buf = append(w.buf, w.scratch...)
	if len(w.buf) < flushBytes {
		return nil
	}
	return w.flushLocked()
}

func (w *Writer) flushLocked() error {
	if w.err != nil || len(w.buf) == 0 {
		return w.err
	}
	n, err := w.w.Write(w.buf)
	if err == nil && n < len(w.buf) {
		err = io.ErrShortWrite
	}
	if err != nil {
		w.err = fmt.Errorf("write history: %w", err)
		return w.err
	}
	w.buf = w.buf[:0]
	return nil
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendOp(b []byte, op *Op) []byte {
	b = append(b, byte(op.Func)<<4|byte(op.Outcome))
	b = binary.AppendUvarint(b, uint64(op.Process))
	b = binary.AppendVarint(b, op.Invoke)
	b = binary.AppendVarint(b, op.Complete-op.Invoke)
	b = appendRecords(b, op.Sends)
	b = appendRecords(b, op.Polls)
	b = appendKeys(b, op.Keys)
	b = appendKeys(b, op.Rebalanced)
	b = binary.AppendUvarint(b, uint64(op.Group))
	b = binary.AppendVarint(b, int64(op.Generation))
	b = binary.AppendUvarint(b, uint64(len(op.Positions)))
	for _, p := range op.Positions {
		b = binary.AppendUvarint(b, uint64(p.Key))
		b = binary.AppendVarint(b, p.Offset)
	}
	return b
}

// appendRecords writes the number of records, then runs: key, length, and for each
// record how far offset and value are from those before it in the run.
func appendRecords(b []byte, rs []Record) []byte {
	b = binary.AppendUvarint(b, uint64(len(rs)))
	for len(rs) > 0 {
		n := 1
		for n < len(rs) && rs[n].Key == rs[0].Key {
			n++
		}
		b = binary.AppendUvarint(b, uint64(rs[0].Key))
		b = binary.AppendUvarint(b, uint64(n))
		var last Record
		for _, r := range rs[:n] {
			b = binary.AppendVarint(b, r.Offset-last.Offset)
			b = binary.AppendVarint(b, int64(r.Value-last.Value))
			last = r
		}
		rs = rs[n:]
	}
	return b
}

func appendKeys(b []byte, keys []Key) []byte {
	b = binary.AppendUvarint(b, uint64(len(keys)))
	for _, k := range keys {
		b = binary.AppendUvarint(b, uint64(k))
	}
	return b
}
