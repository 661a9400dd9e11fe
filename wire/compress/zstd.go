package compress

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// zstdWindow is the largest window taken, that of the reference implementation.
	zstdWindow = 128 << 20
	// zstdRatio is the most that a frame can shrink: a block of 4 bytes makes 128 KiB.
	zstdRatio = 32 << 10
	// zstdBlock is the most that one block makes.
	zstdBlock = 128 << 10
)

// unzstders decode whole inputs, on the caller's goroutine and never past the
// capacity of the output. Such a decoder needs no Close.
var unzstders = sync.Pool{New: func() any {
	d, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(zstdWindow),
		zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(fmt.Sprintf("BUG: zstd decoder options: %v", err))
	}
	return d
}}

// unzstd decodes into a buffer of the size that the frame declares, else into a
// guess; when that was too small, again into one four times as large. The library
// could grow the buffer itself, but it bounds what a decoder may make, not a call.
func unzstd(dst, src []byte, limit int) ([]byte, error) {
	d := unzstders.Get().(*zstd.Decoder)
	defer unzstders.Put(d)
	size := max(guessRatio*len(src), minRoom)
	var h zstd.Header
	if err := h.Decode(src); err == nil && h.HasFCS {
		if h.FrameContentSize > uint64(limit) {
			return nil, ErrTooLarge
		}
		size = min(int(h.FrameContentSize), zstdRatio*len(src))
	}
	at := len(dst)
	size = min(max(size, cap(dst)-at), limit)
	for {
		dst = room(dst, size)
		out, err := d.DecodeAll(src, dst[at:at:at+size])
		if err == nil {
			return dst[:at+len(out)], nil
		}
		if !ranOut(err, size-len(out)) {
			return nil, err
		}
		if size == limit {
			return nil, ErrTooLarge
		}
		size = min(max(guessRatio*size, minRoom), limit)
	}
}

// ranOut tells whether decoding ended for want of room, with left bytes of it
// unused. A block that does not fit is mostly called one that is larger than any
// block may be, which it can only be mistaken for when less than a block was left.
func ranOut(err error, left int) bool {
	return errors.Is(err, zstd.ErrDecoderSizeExceeded) ||
		left < zstdBlock && strings.Contains(err.Error(), "output bigger than max block size")
}

// zstders holds encoders of the default level.
var zstders = sync.Pool{New: func() any {
	e, err := newZstder(zstd.SpeedDefault)
	if err != nil {
		panic(fmt.Sprintf("BUG: zstd encoder options: %v", err))
	}
	return e
}}

func newZstder(level zstd.EncoderLevel) (*zstd.Encoder, error) {
	return zstd.NewWriter(nil,
		zstd.WithEncoderLevel(level),
		zstd.WithEncoderConcurrency(1),
		zstd.WithLowerEncoderMem(true),
		zstd.WithWindowSize(1<<20), // a batch is seldom larger
		zstd.WithZeroFrames(true))
}

func zstded(dst, src []byte, level int) ([]byte, error) {
	if level == 0 {
		e := zstders.Get().(*zstd.Encoder)
		defer zstders.Put(e)
		return e.EncodeAll(src, dst), nil
	}
	e, err := newZstder(zstd.EncoderLevelFromZstd(level))
	if err != nil {
		return nil, fmt.Errorf("compress with zstd at level %d: %w", level, err)
	}
	return e.EncodeAll(src, dst), nil
}
