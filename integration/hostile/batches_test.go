package hostile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/wire/batch"
	"github.com/weirmq/weir/wire/compress"
)

// Where the fields of a record batch lie.
const (
	atBase       = 0
	atLength     = 8
	atEpoch      = 12
	atMagic      = 16
	atCRC        = 17
	atAttributes = 21
	atLastDelta  = 23
	atCount      = 57
)

// The codes of Produce that inputs name.
const (
	ok          = 0
	corrupt     = 2
	tooLarge    = 10
	badAcks     = 21
	badTime     = 32
	unsupported = 35
	badSequence = 45
	oldEpoch    = 47
	noCodec     = 76
	badRecord   = 87
)

// plain is a good batch of one record.
func plain() []byte { return records(1) }

// records is a good batch of n records.
func records(n int) []byte {
	now := time.Now().UnixMilli()
	b := batch.NewBuilder(now)
	for i := range n {
		b.Add(now, nil, fmt.Appendf(nil, "record %d", i))
	}
	return b.Bytes()
}

// produced is a good batch of a producer's.
func produced(id int64, epoch int16, sequence int32) []byte {
	now := time.Now().UnixMilli()
	b := batch.NewBuilder(now)
	b.Add(now, nil, []byte("numbered"))
	b.Producer(id, epoch, sequence)
	return b.Bytes()
}

// sealed gives a batch that was tampered with the checksum that it should have.
func sealed(p []byte) []byte {
	binary.BigEndian.PutUint32(p[atCRC:], crc32.Checksum(p[atAttributes:], crc32.MakeTable(crc32.Castagnoli)))
	return p
}

// with32 is a batch with one field of 32 bits changed.
func with32(p []byte, at int, v int32) []byte {
	binary.BigEndian.PutUint32(p[at:], uint32(v))
	return sealed(p)
}

// with64 is a batch with one field of 64 bits changed.
func with64(p []byte, at int, v int64) []byte {
	binary.BigEndian.PutUint64(p[at:], uint64(v))
	return sealed(p)
}

// holding is a batch of one record whose section of records is p, in a codec.
func holding(codec compress.Codec, p []byte) []byte {
	b := append(bytes.Clone(plain()[:batch.HeaderSize]), p...)
	b[atAttributes+1] |= byte(codec)
	binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-batch.PrefixSize))
	return sealed(b)
}

// record is the section of records of a batch that has one, with that value.
func record(value []byte) []byte {
	b := batch.NewBuilder(0)
	b.Add(0, nil, value)
	return b.Bytes().Payload()
}

// produceRequest sends one batch to the prey.
func (a *attack) produceRequest(p []byte) *kmsg.ProduceRequest {
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks, r.TimeoutMillis = 9, -1, 30_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = prey
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = p
	t.Partitions = append(t.Partitions, part)
	r.Topics = append(r.Topics, t)
	return r
}

// produce sends one batch and returns the code of its answer.
func (a *attack) produce(c *conn, p []byte) int16 {
	a.Helper()
	return c.ask(a.produceRequest(p)).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode
}

// a batch and how it must be answered.
type sample struct {
	name string
	p    []byte
	want int16
}

// answered sends batches and checks the answers.
func answered(outcome string, samples func() []sample) func(*attack) string {
	return func(a *attack) string {
		c := a.dial()
		for _, s := range samples() {
			a.code(s.name, a.produce(c, s.p), s.want)
		}
		a.code("a good batch after them", a.produce(c, plain()), ok)
		return outcome
	}
}

func batchInputs() []input {
	return []input{
		{number: 21, name: "counts of records: -1, 2^31-1, not those that are there", run: answered("87", counts)},
		{number: 22, name: "batch lengths above the frame, below the header", run: answered("87, 2", lengths)},
		{number: 23, name: "a wrong checksum; a right one over compressed garbage", run: answered("2, 87", sums)},
		{number: 24, name: "magic 0, 1, 3, 127", run: answered("87, 2", magics)},
		{number: 25, name: "bombs in every codec", memory: 128 << 20, run: answered("10, 87", bombs)},
		{number: 26, name: "control and transactional batches", run: answered("87, 35", controls)},
		{number: 27, name: "base offset, leader epoch, last offset delta at their limits", run: answered("87; the epoch is the leader's", limits)},
		{number: 28, name: "headers -1 and 2^31-1, key and value of length -2", run: answered("87", fields)},
		{number: 29, name: "producer epochs and sequences at their limits, a million producers", run: producers},
		{number: 30, name: "timestamps -2, the least and the greatest", run: answered("32", times)},
		{number: 31, name: "acks 2 and -2, timeouts -1 and 2^31-1", run: acknowledgements},
	}
}

func counts() []sample {
	count := func(n, last int32) []byte { return with32(with32(records(2), atCount, n), atLastDelta, last) }
	return []sample{
		{"-1 records", count(-1, -2), badRecord},
		{"-1 records, last 1", count(-1, 1), badRecord},
		{"no records", count(0, -1), badRecord},
		{"2^31-1 records", count(math.MaxInt32, math.MaxInt32-1), badRecord},
		{"one record where there are two", count(1, 0), badRecord},
		{"three records where there are two", count(3, 2), badRecord},
	}
}

func lengths() []sample {
	return []sample{
		{"longer than the frame", with32(plain(), atLength, 1000), badRecord},
		{"2^31-1", with32(plain(), atLength, math.MaxInt32), badRecord},
		{"-1", with32(plain(), atLength, -1), corrupt},
		{"13", with32(plain(), atLength, 13), corrupt},
		{"30, and no more bytes", with32(plain(), atLength, 30)[:batch.PrefixSize+30], corrupt},
		{"nothing", nil, badRecord},
		{"ten bytes", plain()[:10], badRecord},
		{"two batches", append(plain(), plain()...), badRecord},
	}
}

func sums() []sample {
	wrong := plain()
	wrong[atCRC]++
	all := []sample{{"a wrong checksum", wrong, corrupt}}
	garbage := bytes.Repeat([]byte{0xa5, 0x17, 0x00, 0xff}, 100)
	for _, codec := range []compress.Codec{compress.Gzip, compress.Snappy, compress.LZ4, compress.Zstd} {
		all = append(all, sample{"garbage as " + codec.String(), holding(codec, garbage), badRecord},
			sample{"nothing as " + codec.String(), holding(codec, nil), badRecord})
	}
	return append(all, sample{"codec 5", holding(5, garbage), noCodec}, sample{"codec 7", holding(7, garbage), noCodec})
}

func magics() []sample {
	magic := func(m byte) []byte {
		p := plain()
		p[atMagic] = m
		return sealed(p)
	}
	return []sample{{"magic 0", magic(0), badRecord}, {"magic 1", magic(1), badRecord}, {"magic 3", magic(3), corrupt},
		{"magic 127", magic(127), corrupt}, {"magic -1", magic(0xff), corrupt}}
}

func bombs() []sample {
	zeros := make([]byte, 80<<20)
	var all []sample
	for _, codec := range []compress.Codec{compress.Gzip, compress.Zstd} {
		p := deflated(codec, zeros)
		all = append(all, sample{"80 MiB of zeros as " + codec.String(), holding(codec, p), tooLarge},
			sample{"the same once more inside", holding(codec, deflated(codec, p)), badRecord})
	}
	for _, codec := range []compress.Codec{compress.Snappy, compress.LZ4} { // they do not get so small
		all = append(all, sample{"16 MiB of zeros as " + codec.String(), holding(codec, deflated(codec, zeros[:16<<20])), badRecord})
	}
	xerial := append([]byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}, 0x7f, 0xff, 0xff, 0xff, 1, 2, 3)
	lz4 := []byte{0x04, 0x22, 0x4d, 0x18, 0x60, 0x70, 0x73, 0, 0, 0x40, 0x80} // blocks of 4 MiB, no end mark
	skippable := bytes.Repeat([]byte{0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0}, 100_000)
	window := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 1, 0, 0} // 2 GiB
	return append(all,
		sample{"a snappy chunk of 2^31-1 bytes", holding(compress.Snappy, xerial), badRecord},
		sample{"a snappy length of 2^32-1", holding(compress.Snappy, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0}), badRecord},
		sample{"lz4 without an end", holding(compress.LZ4, lz4), badRecord},
		sample{"zstd with a window of 2 GiB", holding(compress.Zstd, window), badRecord},
		sample{"zstd frames to be skipped", holding(compress.Zstd, skippable), badRecord},
	)
}

// deflated compresses p; memory is all that it could fail for.
func deflated(codec compress.Codec, p []byte) []byte {
	out, err := compress.Deflate(codec, nil, p, 0)
	if err != nil {
		panic(err)
	}
	return out
}

func controls() []sample {
	control, txn := batch.NewBuilder(0), batch.NewBuilder(0)
	control.Add(0, []byte{0, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 0})
	control.Control()
	txn.Add(0, nil, []byte("x"))
	txn.Transactional()
	txn.Producer(77, 0, 0)
	orphan := batch.NewBuilder(0)
	orphan.Add(0, nil, []byte("x"))
	orphan.Transactional()
	return []sample{
		{"a control batch", control.Bytes(), badRecord},
		{"a transactional batch", txn.Bytes(), unsupported},
		{"a transactional batch without a producer", orphan.Bytes(), badRecord},
	}
}

func limits() []sample {
	return []sample{
		{"base offset 2^63-1", with64(plain(), atBase, math.MaxInt64), badRecord},
		{"base offset -2^63", with64(plain(), atBase, math.MinInt64), badRecord},
		{"base offset 1", with64(plain(), atBase, 1), badRecord},
		{"leader epoch 2^31-1", with32(plain(), atEpoch, math.MaxInt32), ok},
		{"leader epoch -2^31", with32(plain(), atEpoch, math.MinInt32), ok},
		{"last offset delta 2^31-1", with32(plain(), atLastDelta, math.MaxInt32), badRecord},
		{"last offset delta -2^31", with32(plain(), atLastDelta, math.MinInt32), badRecord},
		{"last offset delta -1", with32(plain(), atLastDelta, -1), badRecord},
	}
}

// fields are records whose own fields lie: attributes, time delta, offset delta,
// then key, value and headers.
func fields() []sample {
	record := func(rest ...byte) []byte {
		body := append([]byte{0, 0, 0}, rest...)
		return holding(compress.None, append([]byte{byte(2 * len(body))}, body...))
	}
	const null = 1 // -1, in zigzag form
	huge := []byte{0xfe, 0xff, 0xff, 0xff, 0x0f}
	return []sample{
		{"-1 headers", record(null, null, 1), badRecord},
		{"2^31-1 headers", record(append([]byte{null, null}, huge...)...), badRecord},
		{"a key of length -2", record(3, null, 0), badRecord},
		{"a value of length -2", record(null, 3, 0), badRecord},
		{"a key of length 2^31-1", record(append(huge, null, 0)...), badRecord},
		{"a header with a null key", record(null, null, 2, null, null), badRecord},
		{"a header key of length -2", record(null, null, 2, 3, null), badRecord},
		{"a varint without end", record(bytes.Repeat([]byte{0xff}, 12)...), badRecord},
		{"a record of length -1", holding(compress.None, []byte{1, 0, 0, 0, null, null, 0}), badRecord},
		{"a record longer than the batch", holding(compress.None, []byte{0x7e, 0, 0, 0, null, null, 0}), badRecord},
	}
}

func times() []sample {
	at := func(base, ts int64) []byte {
		b := batch.NewBuilder(base)
		b.Add(ts, nil, []byte("x"))
		return b.Bytes()
	}
	return []sample{
		{"time -2", at(-2, -2), badTime},
		{"the greatest time", at(math.MaxInt64, math.MaxInt64), badTime},
		{"the least time", at(math.MinInt64, math.MinInt64), badTime},
		{"a delta past the greatest time", at(math.MaxInt64, math.MinInt64), badTime},
		{"time -1, which is none", at(-1, -1), ok},
	}
}

// producers sends what no idempotent client does; then come a million producers
// of one batch each, of which the broker remembers some thousands.
func producers(a *attack) string {
	c := a.dial()
	for _, s := range []sample{
		{"epoch -1", produced(1000, -1, 0), badRecord},
		{"epoch 32767", produced(1001, math.MaxInt16, 0), ok},
		{"an epoch after it that wrapped", produced(1001, math.MinInt16, 0), badRecord},
		{"an older epoch", produced(1001, 5, 0), oldEpoch},
		{"sequence -1", produced(1002, 0, -1), badRecord},
		{"sequence 2^31-1", produced(1003, 0, math.MaxInt32), ok},
		{"sequence 0 after it", produced(1003, 0, 0), ok},
		{"a gap", produced(1003, 0, 7), badSequence},
		{"the same batch again", produced(1003, 0, 0), ok},
		{"a new epoch that does not begin at 0", produced(1003, 1, 7), badSequence},
		{"the greatest producer id", produced(math.MaxInt64, 0, 0), ok},
		{"producer id -2", produced(-2, 0, 0), ok},
	} {
		a.code(s.name, a.produce(c, s.p), s.want)
	}
	const together = 20
	conns := make([]*conn, 4)
	for i := range conns {
		conns[i] = a.dial()
	}
	n := a.flood(len(conns), a.size(20_000, 1_000_000)/together, func(worker, n int) error {
		return a.freshProducers(conns[worker], int64(worker+1)<<40+int64(n*together), together)
	})
	return fmt.Sprintf("87, 47, 45; %d producers", n*together)
}

// freshProducers sends one batch of each of n producers that were never seen
// before, in one go, and then takes the answers.
func (a *attack) freshProducers(c *conn, first int64, n int) error {
	return c.many(n, func(i int) kmsg.Request {
		return a.produceRequest(produced(first+int64(i), 0, 0))
	}, func(resp kmsg.Response) error {
		if code := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode; code != ok {
			return fmt.Errorf("a batch of a new producer: code %d", code)
		}
		return nil
	})
}

func acknowledgements(a *attack) string {
	c := a.dial()
	for _, acks := range []int16{2, -2, math.MaxInt16, math.MinInt16} {
		r := a.produceRequest(plain())
		r.Acks = acks
		a.code(fmt.Sprintf("acks %d", acks), c.ask(r).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, badAcks)
	}
	for _, timeout := range []int32{-1, math.MinInt32, 0, math.MaxInt32} {
		r := a.produceRequest(plain())
		r.TimeoutMillis = timeout
		a.code(fmt.Sprintf("timeout %d", timeout), c.ask(r).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, ok)
	}
	r := a.produceRequest(with32(plain(), atCount, -1))
	r.Acks = 0
	c.raw(c.encode(r, "attacker"))
	c.closed()
	return "21; acks 0 and a bad batch: closed"
}
