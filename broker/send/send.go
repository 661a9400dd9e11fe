package send

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/weirmq/weir/storage"
)

const (
	// bufferBytes is the one buffer of a response. It is also how much is written
	// between two looks at the deadline.
	bufferBytes = 64 << 10
	// copyBelow is the size from which a range is sent by sendfile: below it a
	// read and a write shared with the head cost less. Measured over loopback, CPU
	// of both ends per GB: ten ranges of 16 KiB 1.2 s sent and 0.7 s copied, of
	// 64 KiB 0.4 s and 0.5 s.
	copyBelow = 32 << 10
	// deadlineShare is which part of the stall time may pass before the deadline
	// is moved again: moving it costs more than reading the clock.
	deadlineShare = 8
)

// ErrShortFile says that a segment ended before the range that was read from it.
var ErrShortFile = errors.New("segment file is shorter than the range")

// Hole is a place in an encoded head where the bytes of a range belong.
type Hole struct {
	At   int // index in the head before which the bytes go
	Size int // how many
}

// Response writes head to c with the ranges in its holes, ranges[i] in holes[i].
// It releases all ranges. The peer may take nothing for at most stall. After an
// error the caller must close c.
func Response(c net.Conn, head []byte, holes []Hole, ranges []storage.Range, stall time.Duration) error {
	s := senders.Get().(*sender)
	defer s.recycle()
	s.adopt(ranges)
	defer s.release()
	return s.respond(c, head, holes, stall)
}

// source is what a sender asks of a range. Tests stand in for it.
type source interface {
	Len() int
	ReadAt(p []byte, off int) (int, error)
	Release()
	// hold pins the range's file for one call of sendfile, until letGo.
	hold() (file, error)
	letGo()
}

// file is a held file: where the range begins in it. It has no descriptor when
// onlyCopy is set.
type file struct {
	fd       int
	pos      int64
	onlyCopy bool
}

// stored is the source that a log gives.
type stored struct {
	storage.Range
	held storage.Held
}

func (r *stored) hold() (file, error) {
	h, err := r.Hold()
	if err != nil {
		return file{}, err
	}
	r.held = h
	fd, ok := h.File().Fd()
	return file{fd: int(fd), pos: h.Pos(), onlyCopy: !ok}, nil
}

func (r *stored) letGo() { r.held.Release() }

// sender is the state of one response. It has a buffer only between two waits for
// the peer that are long for a reason: not while sendfile waits, nor for a response
// without holes. A crowd of peers that take nothing thus holds little memory.
type sender struct {
	conn     net.Conn
	raw      syscall.RawConn // nil when everything is copied
	stall    time.Duration
	extended time.Time // when the deadline was last set

	block   *[bufferBytes]byte // where buf lies; nil while there is none
	buf     []byte             // written by nobody yet
	ranges  []stored           // what sources points into
	sources []source           // released by release

	// The range that step is sending, how far it is and why it ended.
	current source
	sent    int
	err     error
	step    func(fd uintptr) bool
}

var senders = sync.Pool{New: func() any {
	s := new(sender)
	s.step = s.sendSome
	return s
}}

// blocks are the buffers that no sender has.
var blocks = sync.Pool{New: func() any { return new([bufferBytes]byte) }}

// takeBuffer makes sure that there is a buffer.
func (s *sender) takeBuffer() {
	if s.block == nil {
		s.block = blocks.Get().(*[bufferBytes]byte)
		s.buf = s.block[:0]
	}
}

// giveBuffer gives back the buffer, which is empty or of no more use.
func (s *sender) giveBuffer() {
	if s.block != nil {
		blocks.Put(s.block)
		s.block, s.buf = nil, nil
	}
}

func (s *sender) adopt(ranges []storage.Range) {
	for _, r := range ranges {
		s.ranges = append(s.ranges, stored{Range: r})
	}
	for i := range s.ranges {
		s.sources = append(s.sources, &s.ranges[i])
	}
}

func (s *sender) release() {
	for _, r := range s.sources {
		r.Release()
	}
}

// recycle empties the sender and gives it back to the pool.
func (s *sender) recycle() {
	clear(s.ranges)
	clear(s.sources)
	s.giveBuffer()
	s.ranges, s.sources = s.ranges[:0], s.sources[:0]
	s.conn, s.raw, s.current, s.err = nil, nil, nil, nil
	senders.Put(s)
}

func (s *sender) respond(c net.Conn, head []byte, holes []Hole, stall time.Duration) error {
	checkHoles(head, holes, s.sources)
	s.conn, s.raw, s.stall = c, rawConn(c), stall
	if err := s.extend(time.Now()); err != nil {
		return err
	}
	if len(holes) == 0 {
		if err := s.writeAll(head); err != nil {
			return err
		}
		return c.SetWriteDeadline(time.Time{})
	}
	at := 0
	for i, h := range holes {
		if err := s.write(head[at:h.At]); err != nil {
			return err
		}
		at = h.At
		if err := s.send(s.sources[i]); err != nil {
			return err
		}
	}
	if err := s.write(head[at:]); err != nil {
		return err
	}
	if err := s.flush(); err != nil {
		return err
	}
	return c.SetWriteDeadline(time.Time{})
}

// checkHoles makes sure that the head promises what the ranges hold.
func checkHoles(head []byte, holes []Hole, sources []source) {
	if len(holes) != len(sources) {
		panic(fmt.Sprintf("BUG: a response with %d holes and %d ranges", len(holes), len(sources)))
	}
	at := 0
	for i, h := range holes {
		if h.At < at || h.At > len(head) || h.Size != sources[i].Len() {
			panic(fmt.Sprintf("BUG: hole %d of %d bytes at %d, after %d in a head of %d, for a range of %d bytes",
				i, h.Size, h.At, at, len(head), sources[i].Len()))
		}
		at = h.At
	}
}

// writeAll writes p in pieces, as it is.
func (s *sender) writeAll(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), bufferBytes)
		if err := s.writeOut(p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// write appends p to the buffer, or writes it out when it is large.
func (s *sender) write(p []byte) error {
	s.takeBuffer()
	if len(p) <= cap(s.buf)-len(s.buf) {
		s.buf = append(s.buf, p...)
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	for len(p) > cap(s.buf) {
		if err := s.writeOut(p[:cap(s.buf)]); err != nil {
			return err
		}
		p = p[cap(s.buf):]
	}
	s.buf = append(s.buf, p...)
	return nil
}

func (s *sender) flush() error {
	if len(s.buf) == 0 {
		return nil
	}
	err := s.writeOut(s.buf)
	s.buf = s.buf[:0]
	return err
}

func (s *sender) writeOut(p []byte) error {
	if err := s.progressed(); err != nil {
		return err
	}
	if _, err := s.conn.Write(p); err != nil {
		return fmt.Errorf("write %d bytes of a response: %w", len(p), err)
	}
	return nil
}

// send sends a whole range in the cheapest way there is.
func (s *sender) send(r source) error {
	if s.raw == nil || r.Len() < copyBelow {
		return s.copy(r)
	}
	if err := s.flush(); err != nil {
		return err
	}
	s.giveBuffer()
	return s.sendfile(r)
}

// copy appends the range to the buffer, which it writes out as often as it is full.
func (s *sender) copy(r source) error {
	s.takeBuffer()
	for off, n := 0, r.Len(); off < n; {
		if len(s.buf) == cap(s.buf) {
			if err := s.flush(); err != nil {
				return err
			}
		}
		at := len(s.buf)
		p := s.buf[at:min(cap(s.buf), at+n-off)]
		if err := readFull(r, p, off); err != nil {
			return err
		}
		s.buf = s.buf[:at+len(p)]
		off += len(p)
	}
	return nil
}

func readFull(r source, p []byte, off int) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = ErrShortFile
	}
	return fmt.Errorf("read %d bytes at %d of a range of %d: %w", len(p), off, r.Len(), err)
}

// progressed moves the deadline on when it was set some time ago.
func (s *sender) progressed() error {
	now := time.Now()
	if now.Sub(s.extended) < s.stall/deadlineShare {
		return nil
	}
	return s.extend(now)
}

func (s *sender) extend(now time.Time) error {
	s.extended = now
	if err := s.conn.SetWriteDeadline(now.Add(s.stall)); err != nil {
		return fmt.Errorf("set the write deadline of a response: %w", err)
	}
	return nil
}
