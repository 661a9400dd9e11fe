package batch

import (
	"encoding/binary"
	"fmt"
)

// Builder makes a batch: for control records, tools and tests. Calls go in the
// order Add, Compress, Bytes; the others at any time.
type Builder struct {
	b          Batch // header, still blank, and the records so far
	first      int64
	newest     int64
	count      int32
	producer   int64
	epoch      int16
	sequence   int32
	attributes int16
}

// NewBuilder begins an empty batch without a producer.
func NewBuilder(baseTimestamp int64) *Builder {
	return &Builder{
		b:        make([]byte, HeaderSize, 512),
		first:    baseTimestamp,
		newest:   NoTimestamp,
		producer: NoProducer,
		epoch:    -1,
		sequence: NoSequence,
	}
}

// Add appends one record. Key and value are copied; nil means null.
func (b *Builder) Add(timestamp int64, key, value []byte, headers ...Header) {
	if b.attributes&codecMask != 0 {
		panic("BUG: a record added to a batch that is compressed already")
	}
	size := 1 + varlongSize(timestamp-b.first) + varlongSize(int64(b.count)) +
		sizeLengthened(key) + sizeLengthened(value) + varlongSize(int64(len(headers)))
	for _, h := range headers {
		size += varlongSize(int64(len(h.Key))) + len(h.Key) + sizeLengthened(h.Value)
	}
	p := appendVarint(b.b, int32(size))
	p = append(p, 0)
	p = appendVarlong(p, timestamp-b.first)
	p = appendVarint(p, b.count)
	p = appendLengthened(p, key)
	p = appendLengthened(p, value)
	p = appendVarint(p, int32(len(headers)))
	for _, h := range headers {
		p = appendVarint(p, int32(len(h.Key)))
		p = append(p, h.Key...)
		p = appendLengthened(p, h.Value)
	}
	b.b = p
	b.count++
	b.newest = max(b.newest, timestamp)
}

// Producer makes the batch idempotent.
func (b *Builder) Producer(id int64, epoch int16, sequence int32) {
	b.producer, b.epoch, b.sequence = id, epoch, sequence
}

// Transactional makes the batch part of a transaction.
func (b *Builder) Transactional() { b.attributes |= bitTransactional }

// Control makes the batch a marker of the coordinator's.
func (b *Builder) Control() { b.attributes |= bitControl }

// Compress replaces the records by what deflate makes of them. deflate appends
// to dst, which does not overlap src.
func (b *Builder) Compress(codec int8, deflate func(dst, src []byte) ([]byte, error)) error {
	p, err := deflate(make([]byte, HeaderSize, 512), b.b[HeaderSize:])
	if err != nil {
		return fmt.Errorf("compress %d records: %w", b.count, err)
	}
	b.b = p
	b.attributes |= int16(codec) & codecMask
	return nil
}

// Bytes is the finished batch, with base offset 0 and no leader epoch. It is the
// builder's own buffer: add nothing afterwards.
func (b *Builder) Bytes() Batch {
	p := b.b
	p.Assign(0, NoEpoch)
	be := binary.BigEndian
	be.PutUint32(p[atLength:], uint32(len(p)-PrefixSize))
	p[atMagic] = byte(Magic)
	be.PutUint16(p[atAttributes:], uint16(b.attributes))
	be.PutUint32(p[atLastDelta:], uint32(b.count-1))
	be.PutUint64(p[atFirstTime:], uint64(b.first))
	be.PutUint64(p[atMaxTime:], uint64(b.newest))
	be.PutUint64(p[atProducerID:], uint64(b.producer))
	be.PutUint16(p[atProducerEpoch:], uint16(b.epoch))
	be.PutUint32(p[atSequence:], uint32(b.sequence))
	be.PutUint32(p[atCount:], uint32(b.count))
	p.setCRC()
	return p
}

func sizeLengthened(p []byte) int {
	if p == nil {
		return 1
	}
	return varlongSize(int64(len(p))) + len(p)
}

func appendLengthened(dst, p []byte) []byte {
	if p == nil {
		return appendVarint(dst, -1)
	}
	return append(appendVarint(dst, int32(len(p))), p...)
}
