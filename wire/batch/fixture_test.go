package batch

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"testing"
)

const testNow = int64(1_700_000_000_000)

// rules are those of a topic with Kafka's defaults.
func rules() Rules {
	return Rules{
		MaxBatchBytes:   1048588,
		MaxSegmentBytes: 1 << 30,
		Now:             testNow,
		BeforeMax:       math.MaxInt64,
		AfterMax:        3_600_000,
		ZstdAllowed:     true,
		MaxInflated:     1 << 20,
		Inflate:         gunzip,
	}
}

var errOtherCodec = errors.New("the test knows gzip alone")

type overLimit struct{}

func (overLimit) Error() string  { return "over the limit" }
func (overLimit) TooLarge() bool { return true }

// underLimit is an error that could have been of that kind and is not.
type underLimit struct{}

func (underLimit) Error() string  { return "not over the limit" }
func (underLimit) TooLarge() bool { return false }

// gunzip is Rules.Inflate for gzip: the other codecs are not this package's.
func gunzip(codec int8, dst, src []byte, limit int) ([]byte, error) {
	if codec != Gzip {
		return nil, errOtherCodec
	}
	r, err := gzip.NewReader(bytes.NewReader(src))
	if err != nil {
		return nil, err
	}
	p, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if len(p) > limit {
		return nil, fmt.Errorf("gzip: %w", overLimit{})
	}
	return append(dst, p...), nil
}

func gzipped(dst, src []byte) ([]byte, error) {
	buf := bytes.NewBuffer(dst)
	w := gzip.NewWriter(buf)
	if _, err := w.Write(src); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// three is a good batch of three records.
func three() *Builder {
	b := NewBuilder(testNow - 10)
	b.Add(testNow-10, []byte("k0"), []byte("v0"))
	b.Add(testNow-4, []byte("k1"), nil, Header{Key: "trace", Value: []byte{1, 2}}, Header{Key: "", Value: nil})
	b.Add(testNow-7, []byte("k2"), []byte{})
	return b
}

// filled is a batch of about size bytes in records with values of valueBytes.
func filled(size, valueBytes int) Batch {
	b := NewBuilder(testNow)
	value := make([]byte, valueBytes)
	for len(b.b) < size {
		b.Add(testNow+int64(b.count%100), nil, value)
	}
	return b.Bytes()
}

// put32 and friends change a header's field; sealed makes the CRC right again.
func put32(at int, v int32) func(Batch) {
	return func(b Batch) { binary.BigEndian.PutUint32(b[at:], uint32(v)); b.setCRC() }
}

func put64(at int, v int64) func(Batch) {
	return func(b Batch) { binary.BigEndian.PutUint64(b[at:], uint64(v)); b.setCRC() }
}

func setBits(bits byte) func(Batch) {
	return func(b Batch) { b[atAttributes+1] |= bits; b.setCRC() }
}

// payload is b with its record section replaced by records, and count of them.
func payload(count int32, records ...byte) Batch {
	b := NewBuilder(testNow)
	b.b = append(b.b, records...)
	b.count, b.newest = count, testNow
	return b.Bytes()
}

func collect(t testing.TB, b Batch, section []byte) []Record {
	t.Helper()
	var all []Record
	for r, err := range b.Records(section) {
		if err != nil {
			t.Fatalf("record %d: %v", len(all), err)
		}
		all = append(all, r)
	}
	return all
}
