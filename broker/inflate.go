package broker

import (
	"context"
	"errors"

	"github.com/weirmq/weir/wire/compress"
)

const (
	// inflateRatio is by how much records are taken to grow at first; those that
	// grow more are uncompressed again into a larger buffer.
	inflateRatio = 8
	// inflateFactor times the largest batch of a topic, and no more than
	// inflateMax, is what its records may take uncompressed.
	inflateFactor = 32
	inflateMax    = 64 << 20
)

// maxInflated is what the records of one batch may take uncompressed.
func maxInflated(maxBatchBytes int) int {
	return min(inflateFactor*max(maxBatchBytes, bufferFirst), inflateMax)
}

// inflater bounds the memory of all batches that are uncompressed at a time.
type inflater struct{ budget *budget }

func newInflater(sizeBytes int64) *inflater { return &inflater{newBudget(sizeBytes)} }

// inflation is the uncompressed content of one batch at a time.
type inflation struct {
	in      *inflater
	buffers *buffers
	lease   lease
	buf     *buffer
}

// inflate uncompresses src to at most limit bytes. The result lives until release.
//
// Each try takes its buffer of the budget before it is made, so a small batch
// that would grow without end is stopped at the limit and costs the budget no
// more than the steps on the way there.
func (x *inflation) inflate(ctx context.Context, codec int8, src []byte, limit int) ([]byte, error) {
	x.release()
	x.lease = lease{b: x.in.budget}
	for size := min(limit, inflateRatio*len(src)); ; size = min(limit, bufferGrowth*size) {
		size = max(size, 1)
		if err := x.take(ctx, min(bufferFit(size), max(limit, 1))); err != nil {
			return nil, err
		}
		room := x.buf.bytes
		p, err := compress.Inflate(compress.Codec(codec), room[:0:len(room)], src, len(room))
		if !errors.Is(err, compress.ErrTooLarge) || len(room) >= limit {
			return p, err
		}
		size = len(room)
	}
}

// take replaces the buffer by one of size bytes.
func (x *inflation) take(ctx context.Context, size int) error {
	x.buffers.put(x.buf)
	x.buf = nil
	if err := x.lease.grow(ctx, int64(size)-x.lease.held); err != nil {
		return err
	}
	x.buf = x.buffers.get(size)
	return nil
}

// release gives back what is held. Releasing nothing is harmless.
func (x *inflation) release() {
	x.buffers.put(x.buf)
	x.buf = nil
	x.lease.release()
}
