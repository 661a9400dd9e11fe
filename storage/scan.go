package storage

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/weirmq/weir/wire/batch"
)

// castagnoli is the table of CRC32C, which the library computes once.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// headAttributes is where the bytes that a batch's CRC covers begin.
const headAttributes = 21

// badBatch says why the bytes at a position are not a whole batch. It is not an
// error of the disk: those are returned as they are.
type badBatch struct {
	pos int64
	msg string
}

func (e *badBatch) Error() string { return fmt.Sprintf("byte %d: %s", e.pos, e.msg) }

// scanner walks the batches of a segment file through a window of it, so that
// small batches cost one read for many and a large one never has to fit.
type scanner struct {
	f    io.ReaderAt
	pos  int64 // where the present batch begins
	size int64 // where the file ends for this scan
	buf  []byte
	win  []byte // the bytes of the file from at on
	at   int64
}

// scanWindow is the window of recovery; readWindow that of a lookup, which finds
// its batch within one index interval.
const (
	scanWindow = 256 << 10
	readWindow = 8 << 10
)

func newScanner(f io.ReaderAt, pos, size int64, buf []byte) scanner {
	return scanner{f: f, pos: pos, size: size, buf: buf}
}

// window makes the n bytes at pos visible, n at most len(buf) and within size.
func (s *scanner) window(pos int64, n int) ([]byte, error) {
	if pos < s.at || pos+int64(n) > s.at+int64(len(s.win)) {
		got, err := s.f.ReadAt(s.buf[:min(int64(len(s.buf)), s.size-pos)], pos)
		s.at, s.win = pos, s.buf[:got]
		if err != nil && !errors.Is(err, io.EOF) {
			s.win = nil
			return nil, err
		}
		if got < n {
			return nil, &badBatch{s.pos, fmt.Sprintf("the file ends %d bytes early", n-got)}
		}
	}
	return s.win[pos-s.at:][:n], nil
}

// head returns the header of the batch at pos and the batch's size. It returns
// io.EOF at the end and a *badBatch when no whole batch is there. Only the
// header may be looked at, and only until the next call.
func (s *scanner) head() (batch.Batch, int64, error) {
	rest := s.size - s.pos
	if rest == 0 {
		return nil, 0, io.EOF
	}
	if rest < batch.HeaderSize {
		return nil, 0, &badBatch{s.pos, fmt.Sprintf("%d bytes are no header", rest)}
	}
	p, err := s.window(s.pos, batch.HeaderSize)
	if err != nil {
		return nil, 0, err
	}
	size, err := batch.SizeOf(p)
	if err != nil {
		return nil, 0, &badBatch{s.pos, err.Error()}
	}
	h := batch.Batch(p)
	switch {
	case int64(size) > rest:
		return nil, 0, &badBatch{s.pos, fmt.Sprintf("a batch of %d bytes in the last %d", size, rest)}
	case h.Magic() != batch.Magic:
		return nil, 0, &badBatch{s.pos, fmt.Sprintf("magic %d", h.Magic())}
	case h.Base() < 0 || h.LastDelta() < 0 || h.End() < 0:
		return nil, 0, &badBatch{s.pos, fmt.Sprintf("base offset %d and delta %d", h.Base(), h.LastDelta())}
	}
	return h, int64(size), nil
}

// skip goes to the batch after one of the given size.
func (s *scanner) skip(size int64) { s.pos += size }

// checkCRC reads the batch at pos, whose header and size head has returned, in
// pieces, and compares its checksum. The header is no longer valid after it.
func (s *scanner) checkCRC(want uint32, size int64) error {
	sum := uint32(0)
	for at, end := s.pos+headAttributes, s.pos+size; at < end; {
		n := int(min(end-at, int64(len(s.buf))))
		if in := s.at + int64(len(s.win)) - at; in > 0 && at >= s.at {
			n = min(n, int(in))
		}
		p, err := s.window(at, n)
		if err != nil {
			return err
		}
		sum = crc32.Update(sum, castagnoli(), p)
		at += int64(n)
	}
	if sum != want {
		return &badBatch{s.pos, fmt.Sprintf("CRC32C is %08x, the header says %08x", sum, want)}
	}
	return nil
}

// whole reads the whole batch at pos into memory.
func (s *scanner) whole(size int64) (batch.Batch, error) {
	p := make([]byte, size)
	n, err := s.f.ReadAt(p, s.pos)
	if int64(n) < size {
		if err == nil || errors.Is(err, io.EOF) {
			return nil, &badBatch{s.pos, "the file ends early"}
		}
		return nil, err
	}
	b, _, err := batch.Next(p)
	if err != nil {
		return nil, &badBatch{s.pos, err.Error()}
	}
	return b, nil
}
