package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/weirmq/weir/wire"
)

const (
	// aheadSize is how much a connection reads without knowing how much comes. It
	// holds most requests that carry no records, and is all the memory that a
	// silent connection keeps for reading.
	aheadSize = 512
	// lengthSize is the size of a frame's length, which does not count itself.
	lengthSize = 4
	// minFrame is the shortest request header: key, version, correlation id, null client id.
	minFrame = 10
	// peekSize is what of a frame decides whether the rest is read at all: key and version.
	peekSize = 4

	// decodeFactor times the size of a frame, and no more than decodeMax, plus
	// decodeSlack, is what decoding may allocate.
	decodeFactor = 4
	decodeMax    = 32 << 20
	decodeSlack  = 64 << 10

	// answerMax is the most that answering one request is taken to need.
	answerMax = 64 << 20
)

var (
	errIdle      = errors.New("the connection was idle for too long")
	errFrameSlow = errors.New("a request arrived too slowly")
	errFrameCut  = errors.New("the connection ended in the middle of a request")
)

// frameError says why what a client sent is not read any further.
type frameError struct{ msg string }

func (e *frameError) Error() string { return e.msg }

// frame is one request: bytes are what follows the length. They are valid until
// release, or until the next frame is read.
type frame struct {
	bytes []byte
	buf   *buffer // where bytes live; nil while they are in the reader's own memory
	lease lease
}

// frameLimits is what a frameReader holds its client to.
type frameLimits struct {
	idle time.Duration // silence between frames
	step time.Duration // time for each step of a frame to arrive
	most int           // the largest frame of any API
	// of is what holds for one API; false: there is no such API here.
	of func(wire.Key) (apiLimits, bool)
}

// apiLimits is what the requests of one API are held to.
type apiLimits struct {
	maxBytes int // the largest frame
	// factor times its size is what a request takes until it has been answered,
	// where that is more than decoding it takes.
	factor int
}

// charge is what a frame of n bytes takes of the budget beside its bytes.
func (l apiLimits) charge(n int) int64 {
	return int64(max(decodeCharge(n), min(l.factor*n, answerMax)))
}

// frameReader reads the frames of one connection. It belongs to the connection's reader.
type frameReader struct {
	c       net.Conn
	limits  frameLimits
	budget  *budget
	buffers *buffers
	busy    func() bool  // requests are in flight, so silence is not idleness
	ended   func() error // not nil: no more frames are wanted

	ahead [aheadSize]byte // ahead[r:w] has been read and not used yet
	r, w  int
	frame frame // the one that next returned last
}

// next reads one frame, which is good until the next call. Between frames it
// waits for the idle limit and returns io.EOF when the client closes.
//
// A frame is read in growing steps. Each takes its bytes of the budget first and
// then has the same time to arrive, so a length alone costs nothing, a client that
// drips gets nowhere, and larger frames need to come faster.
func (f *frameReader) next(ctx context.Context) (*frame, error) {
	if err := f.fill(lengthSize); err != nil {
		return nil, err
	}
	n := int(int32(binary.BigEndian.Uint32(f.ahead[f.r:])))
	if n < minFrame {
		return nil, &frameError{fmt.Sprintf("a request of %d bytes is too short", n)}
	}
	if n > f.limits.most { // it need not say of which API
		return nil, &frameError{fmt.Sprintf("a request of %d bytes is larger than %d", n, f.limits.most)}
	}
	if err := f.fill(lengthSize + peekSize); err != nil {
		return nil, err
	}
	key := wire.Key(binary.BigEndian.Uint16(f.ahead[f.r+lengthSize:]))
	api, ok := f.limits.of(key)
	if !ok {
		return nil, &frameError{fmt.Sprintf("there is no API with key %d here", key)}
	}
	if n > api.maxBytes {
		return nil, &frameError{fmt.Sprintf("a request of %d bytes with key %d is larger than %d", n, key, api.maxBytes)}
	}
	f.frame = frame{lease: lease{b: f.budget}}
	if err := f.body(ctx, &f.frame, n, api.charge(n)); err != nil {
		f.release(&f.frame)
		return nil, err
	}
	return &f.frame, nil
}

// release gives back what fr holds.
func (f *frameReader) release(fr *frame) {
	f.releaseBytes(fr)
	fr.lease.release()
}

// releaseBytes gives back the memory of fr's bytes, and keeps its lease.
func (f *frameReader) releaseBytes(fr *frame) {
	f.buffers.put(fr.buf)
	fr.buf, fr.bytes = nil, nil
}

// body reads the n bytes after the length, and takes the budget for what becomes
// of them. That is taken at once: a request that was read must not wait for more.
func (f *frameReader) body(ctx context.Context, fr *frame, n int, charge int64) error {
	if f.w-f.r >= lengthSize+n {
		fr.bytes = f.ahead[f.r+lengthSize : f.r+lengthSize+n]
		f.r += lengthSize + n
	} else {
		f.r += lengthSize
		if err := f.large(ctx, fr, n); err != nil {
			return err
		}
	}
	err := fr.lease.grow(ctx, charge)
	fr.lease.filled()
	return err
}

// large reads n bytes, of which the first may be in ahead, straight into fr's buffer.
func (f *frameReader) large(ctx context.Context, fr *frame, n int) error {
	got := 0
	for got < n {
		if fr.buf == nil || got == len(fr.buf.bytes) {
			if err := f.step(ctx, fr, got, n); err != nil {
				return err
			}
		}
		room := fr.buf.bytes[got:min(n, len(fr.buf.bytes))]
		if f.r < f.w {
			m := copy(room, f.ahead[f.r:f.w])
			f.r += m
			got += m
			continue
		}
		m, err := f.c.Read(room)
		got += m
		if err != nil && got < n {
			return cut(err)
		}
	}
	fr.bytes = fr.buf.bytes[:n]
	return nil
}

// step moves fr to a larger buffer and starts the clock for what goes into it.
func (f *frameReader) step(ctx context.Context, fr *frame, got, n int) error {
	size := bufferStep(got, n)
	if err := fr.lease.grow(ctx, int64(size-got)); err != nil {
		return err
	}
	larger := f.buffers.get(size)
	if fr.buf != nil {
		copy(larger.bytes, fr.buf.bytes[:got])
		f.buffers.put(fr.buf)
	}
	fr.buf = larger
	return f.within(f.limits.step)
}

// within gives the client the time d from now for what it has to send next.
//
// Whoever wants the reader to end makes ended say so and then moves the deadline
// into the past; asking ended after the deadline was set here misses neither.
func (f *frameReader) within(d time.Duration) error {
	if err := f.c.SetReadDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	return f.ended()
}

// fill reads ahead until n bytes are there.
func (f *frameReader) fill(n int) error {
	if f.w-f.r >= n {
		return nil
	}
	f.w = copy(f.ahead[:], f.ahead[f.r:f.w])
	f.r = 0
	for timed := false; f.w < n; {
		if !timed { // the first byte of a frame ends the idle time
			limit := f.limits.idle
			if f.w > 0 {
				limit, timed = f.limits.step, true
			}
			if err := f.within(limit); err != nil {
				return err
			}
		}
		m, err := f.c.Read(f.ahead[f.w:])
		f.w += m
		switch {
		case err == nil || f.w >= n:
		case f.w > 0:
			return cut(err)
		case errors.Is(err, os.ErrDeadlineExceeded):
			if !f.busy() {
				return errIdle
			}
		default:
			return err
		}
	}
	return nil
}

// cut names an error that came in the middle of a frame.
func cut(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errFrameSlow
	case errors.Is(err, io.EOF):
		return errFrameCut
	}
	return err
}

// decodeCharge is what decoding a frame of n bytes takes of the budget.
func decodeCharge(n int) int { return min(decodeFactor*n, decodeMax) }

// decodeBudget is what decoding a frame of n bytes may allocate.
func decodeBudget(n int) int { return decodeCharge(n) + decodeSlack }
