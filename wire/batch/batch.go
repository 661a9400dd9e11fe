package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"math"
)

// Offset is the position of one record in a partition's log. Names that end in
// "Offset", First or Last are inclusive; names that end in End are exclusive.
type Offset int64

// Epoch is a leader epoch: the number of the reign under which a batch was appended.
type Epoch int32

// NoEpoch is the leader epoch of a log that holds no batch, and of a client
// that does not know one.
const NoEpoch Epoch = -1

const (
	// HeaderSize is the length of a batch that holds no records.
	HeaderSize = 61
	// PrefixSize is how many bytes of a batch SizeOf needs to see.
	PrefixSize = 12
	// Magic is the one version of the format that there is.
	Magic int8 = 2
	// NoProducer is the producer id of a batch that is not idempotent.
	NoProducer int64 = -1
	// NoSequence is the first sequence of such a batch.
	NoSequence int32 = -1
	// NoTimestamp is the timestamp of a record that carries none.
	NoTimestamp int64 = -1
)

// Positions of the header's fields, and of the bits of the attributes.
const (
	atBase          = 0
	atLength        = 8
	atEpoch         = 12
	atMagic         = 16
	atCRC           = 17
	atAttributes    = 21
	atLastDelta     = 23
	atFirstTime     = 27
	atMaxTime       = 35
	atProducerID    = 43
	atProducerEpoch = 51
	atSequence      = 53
	atCount         = 57

	codecMask        = 0x07
	bitAppendTime    = 0x08
	bitTransactional = 0x10
	bitControl       = 0x20
)

// Codecs, as the attributes number them.
const (
	None   int8 = 0
	Gzip   int8 = 1
	Snappy int8 = 2
	LZ4    int8 = 3
	Zstd   int8 = 4
)

// ErrShort says that the bytes end before the batch does.
var ErrShort = errors.New("record batch is cut short")

// castagnoli is the table of CRC32C. It is never written.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CorruptError says that bytes are not a record batch.
type CorruptError struct {
	Base Offset // the base offset that the header claims
	Msg  string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("corrupt record batch at offset %d: %s", e.Base, e.Msg)
}

// Batch is a view of exactly one whole record batch, its 12-byte prefix included.
type Batch []byte

// Run is a view of one or more whole batches, back to back.
type Run []byte

// SizeOf is the whole size of the batch whose first PrefixSize bytes or more are given.
func SizeOf(header []byte) (int, error) {
	if len(header) < PrefixSize {
		return 0, ErrShort
	}
	n := int32(binary.BigEndian.Uint32(header[atLength:]))
	if n < HeaderSize-PrefixSize {
		return 0, corrupt(header, "length field %d is below %d", n, HeaderSize-PrefixSize)
	}
	return PrefixSize + int(n), nil
}

// Next splits the first whole batch off p. It returns ErrShort when p ends
// before the batch does and a *CorruptError when no batch begins at p. It does
// not look at the CRC.
func Next(p []byte) (Batch, []byte, error) {
	size, err := SizeOf(p)
	if err != nil {
		return nil, p, err
	}
	if len(p) > atMagic && int8(p[atMagic]) != Magic {
		return nil, p, corrupt(p, "magic %d is not %d", int8(p[atMagic]), Magic)
	}
	if len(p) < size {
		return nil, p, ErrShort
	}
	b := Batch(p[:size:size])
	base, last := b.Base(), b.LastDelta()
	if base < 0 || last < 0 || base > math.MaxInt64-1-Offset(last) {
		return nil, p, corrupt(p, "last offset delta %d is out of range", last)
	}
	return b, p[size:], nil
}

func corrupt(p []byte, format string, args ...any) *CorruptError {
	return &CorruptError{Base: Offset(binary.BigEndian.Uint64(p[atBase:])), Msg: fmt.Sprintf(format, args...)}
}

// Batches walks the run. It ends after the first error.
func (r Run) Batches() iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for rest := []byte(r); len(rest) > 0; {
			b, after, err := Next(rest)
			if !yield(b, err) || err != nil {
				return
			}
			rest = after
		}
	}
}

// Base is the offset of the first record.
func (b Batch) Base() Offset { return Offset(b.int64(atBase)) }

// Last is the offset of the last record; where compaction removed it, the one it had.
func (b Batch) Last() Offset { return b.Base() + Offset(b.LastDelta()) }

// End is the offset after the last record.
func (b Batch) End() Offset { return b.Last() + 1 }

// Size is the length of the batch in bytes.
func (b Batch) Size() int { return len(b) }

// Epoch is the leader epoch under which the batch was appended.
func (b Batch) Epoch() Epoch { return Epoch(b.int32(atEpoch)) }

// Magic is the version of the format.
func (b Batch) Magic() int8 { return int8(b[atMagic]) }

// CRC is the checksum that the header holds.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[atCRC:]) }

// Attributes are the bits that name codec, timestamp type and kind.
func (b Batch) Attributes() int16 { return int16(binary.BigEndian.Uint16(b[atAttributes:])) }

// LastDelta is the last offset relative to the base.
func (b Batch) LastDelta() int32 { return b.int32(atLastDelta) }

// FirstTimestamp is what the records' timestamps are relative to, in ms.
func (b Batch) FirstTimestamp() int64 { return b.int64(atFirstTime) }

// MaxTimestamp is the greatest timestamp of the records, in ms.
func (b Batch) MaxTimestamp() int64 { return b.int64(atMaxTime) }

// ProducerID is the id of an idempotent producer, else NoProducer.
func (b Batch) ProducerID() int64 { return b.int64(atProducerID) }

// ProducerEpoch is the epoch of that producer.
func (b Batch) ProducerEpoch() int16 { return int16(binary.BigEndian.Uint16(b[atProducerEpoch:])) }

// FirstSequence is the producer's number of the first record, else NoSequence.
func (b Batch) FirstSequence() int32 { return b.int32(atSequence) }

// LastSequence is the producer's number of the last record, else NoSequence.
func (b Batch) LastSequence() int32 {
	first := b.FirstSequence()
	if first < 0 {
		return NoSequence
	}
	return AddSequence(first, b.LastDelta())
}

// AddSequence is the sequence n records after seq: numbers run to 2^31-1 and
// then start again at 0. Neither argument is negative.
func AddSequence(seq, n int32) int32 {
	return int32((uint32(seq) + uint32(n)) & math.MaxInt32)
}

// Count is how many records the header claims.
func (b Batch) Count() int32 { return b.int32(atCount) }

// Codec is the compression of the record section.
func (b Batch) Codec() int8 { return int8(b[atAttributes+1] & codecMask) }

// Payload is the record section, compressed as it is.
func (b Batch) Payload() []byte { return b[HeaderSize:] }

// LogAppendTime says that the leader set the timestamps: each record has MaxTimestamp.
func (b Batch) LogAppendTime() bool { return b[atAttributes+1]&bitAppendTime != 0 }

// Transactional says that the batch belongs to a transaction.
func (b Batch) Transactional() bool { return b[atAttributes+1]&bitTransactional != 0 }

// Control says that the batch is a transaction's marker, not records of a client.
func (b Batch) Control() bool { return b[atAttributes+1]&bitControl != 0 }

// HasProducer says that the batch is idempotent.
func (b Batch) HasProducer() bool { return b.ProducerID() > NoProducer }

// Assign writes base offset and leader epoch, the two fields outside the CRC.
func (b Batch) Assign(base Offset, e Epoch) {
	binary.BigEndian.PutUint64(b[atBase:], uint64(base))
	binary.BigEndian.PutUint32(b[atEpoch:], uint32(e))
}

// StampAppendTime marks the batch as timed by the leader, at ms, and computes
// the CRC anew. The records keep their deltas, which readers then ignore.
func (b Batch) StampAppendTime(ms int64) {
	b[atAttributes+1] |= bitAppendTime
	b.setMaxTimestamp(ms)
}

func (b Batch) setMaxTimestamp(ms int64) {
	binary.BigEndian.PutUint64(b[atMaxTime:], uint64(ms))
	b.setCRC()
}

func (b Batch) setCRC() { binary.BigEndian.PutUint32(b[atCRC:], b.sum()) }

func (b Batch) sum() uint32 { return crc32.Checksum(b[atAttributes:], castagnoli) }

// CheckCRC compares the checksum in the header with that of the bytes.
func (b Batch) CheckCRC() error {
	if got, want := b.sum(), b.CRC(); got != want {
		return corrupt(b, "CRC32C is %08x, the header says %08x", got, want)
	}
	return nil
}

func (b Batch) int32(at int) int32 { return int32(binary.BigEndian.Uint32(b[at:])) }
func (b Batch) int64(at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }
