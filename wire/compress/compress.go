package compress

import (
	"errors"
	"fmt"
	"io"
)

// Codec is a way to compress, numbered as in a batch's attributes.
type Codec int8

// The codecs.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

// String is the codec's name as the configuration spells it.
func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("codec %d", int8(c))
}

// ErrTooLarge says that the output would pass the limit. It has a method
// TooLarge, so that a package that may not import this one can tell.
var ErrTooLarge error = tooLarge{}

type tooLarge struct{}

func (tooLarge) Error() string  { return "the uncompressed data is larger than the limit" }
func (tooLarge) TooLarge() bool { return true }

// ErrUnknownCodec says that a codec's number is none of the five.
var ErrUnknownCodec = errors.New("unknown compression codec")

// CorruptError says that the input is not what the codec writes.
type CorruptError struct {
	Codec Codec
	Err   error
}

func (e *CorruptError) Error() string { return fmt.Sprintf("corrupt %s data: %s", e.Codec, e.Err) }

// Unwrap is the codec's own error.
func (e *CorruptError) Unwrap() error { return e.Err }

// Inflate appends to dst what src holds. It adds at most limit bytes: past that
// it returns ErrTooLarge. Every other error on a known codec is a *CorruptError.
// dst and src must not overlap; on an error the result is nil.
func Inflate(codec Codec, dst, src []byte, limit int) ([]byte, error) {
	limit = max(limit, 0)
	var err error
	switch codec {
	case None:
		if len(src) > limit {
			return nil, ErrTooLarge
		}
		return append(dst, src...), nil
	case Gzip:
		dst, err = gunzip(dst, src, limit)
	case Snappy:
		dst, err = unsnap(dst, src, limit)
	case LZ4:
		dst, err = unlz4(dst, src, limit)
	case Zstd:
		dst, err = unzstd(dst, src, limit)
	default:
		return nil, fmt.Errorf("uncompress: %w: %d", ErrUnknownCodec, codec)
	}
	switch {
	case err == nil:
		return dst, nil
	case errors.Is(err, ErrTooLarge):
		return nil, ErrTooLarge
	}
	return nil, &CorruptError{Codec: codec, Err: err}
}

// Deflate appends to dst the compressed form of src. Level 0 is the codec's
// default; others are the codec's own scale, and snappy has none.
func Deflate(codec Codec, dst, src []byte, level int) ([]byte, error) {
	switch codec {
	case None:
		return append(dst, src...), nil
	case Gzip:
		return gzipped(dst, src, level)
	case Snappy:
		return snapped(dst, src), nil
	case LZ4:
		return lz4ed(dst, src, level)
	case Zstd:
		return zstded(dst, src, level)
	}
	return nil, fmt.Errorf("compress: %w: %d", ErrUnknownCodec, codec)
}

// minRoom is the least room that grow adds.
const minRoom = 4 << 10

// room makes sure that dst can take want more bytes, and no more than that.
func room(dst []byte, want int) []byte {
	if cap(dst)-len(dst) >= want {
		return dst
	}
	grown := make([]byte, len(dst), len(dst)+want)
	copy(grown, dst)
	return grown
}

// drain appends what r yields to dst, at most limit bytes. guess is how much that
// is likely to be.
func drain(dst []byte, r io.Reader, guess, limit int) ([]byte, error) {
	start, end := len(dst), len(dst)+limit
	dst = room(dst, min(guess, limit))
	for len(dst) < end {
		if len(dst) == cap(dst) {
			dst = room(dst, min(max(minRoom, len(dst)-start), end-len(dst)))
		}
		n, err := r.Read(dst[len(dst):min(cap(dst), end)])
		dst = dst[:len(dst)+n]
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return dst, exhausted(r)
}

// exhausted checks that r has no byte left.
func exhausted(r io.Reader) error {
	var one [1]byte
	_, err := io.ReadFull(r, one[:])
	if err == io.EOF {
		return nil
	}
	if err == nil {
		return ErrTooLarge
	}
	return err
}

// sink is an io.Writer that appends.
type sink struct{ p []byte }

func (s *sink) Write(p []byte) (int, error) {
	s.p = append(s.p, p...)
	return len(p), nil
}
