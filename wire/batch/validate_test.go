package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// refused checks that Validate refuses p for the reason, at the record.
func refused(t *testing.T, p []byte, r Rules, reason Reason, record int) {
	t.Helper()
	b, err := Validate(p, r)
	var bad *InvalidError
	if !errors.As(err, &bad) || b != nil {
		t.Fatalf("got a batch of %d bytes and error %v, want %s", len(b), err, reason)
	}
	if bad.Reason != reason || bad.Record != record {
		t.Errorf("got %q (record %d), want %q (record %d)", bad, bad.Record, reason, record)
	}
}

func TestValidateAccepts(t *testing.T) {
	for _, c := range []struct {
		name  string
		batch func(*testing.T) Batch
		edit  func(*Rules)
	}{
		{"plain", func(*testing.T) Batch { return three().Bytes() }, nil},
		{"compacted topic with keys", func(*testing.T) Batch { return three().Bytes() }, func(r *Rules) { r.CompactedTopic = true }},
		{"gzip", func(t *testing.T) Batch {
			b := three()
			if err := b.Compress(Gzip, gzipped); err != nil {
				t.Fatal(err)
			}
			return b.Bytes()
		}, nil},
		{"idempotent, sequence at its end", func(*testing.T) Batch {
			b := three()
			b.Producer(9, math.MaxInt16, math.MaxInt32)
			return b.Bytes()
		}, nil},
		{"transactional with producer", func(*testing.T) Batch {
			b := three()
			b.Producer(9, 0, 0)
			b.Transactional()
			return b.Bytes()
		}, nil},
		{"no timestamps", func(*testing.T) Batch {
			b := NewBuilder(NoTimestamp)
			b.Add(NoTimestamp, nil, []byte("v"))
			return b.Bytes()
		}, func(r *Rules) { r.BeforeMax, r.AfterMax = 1000, 1000 }},
		{"timestamps at both ends", func(*testing.T) Batch {
			b := NewBuilder(testNow)
			b.Add(testNow-1000, nil, nil)
			b.Add(testNow+2000, nil, nil)
			return b.Bytes()
		}, func(r *Rules) { r.BeforeMax, r.AfterMax = 1000, 2000 }},
		{"far future where allowed", func(*testing.T) Batch {
			b := NewBuilder(math.MaxInt64)
			b.Add(math.MaxInt64, nil, nil)
			return b.Bytes()
		}, func(r *Rules) { r.AfterMax = math.MaxInt64 }},
		{"leader's time, whatever the client's", func(*testing.T) Batch {
			b := NewBuilder(0)
			b.Add(math.MaxInt64, nil, nil)
			return b.Bytes()
		}, func(r *Rules) { r.AppendTime = true; r.BeforeMax, r.AfterMax = 0, 0 }},
		{"as large as the topic takes", func(*testing.T) Batch { return filled(5000, 100) }, func(r *Rules) {
			r.MaxBatchBytes = filled(5000, 100).Size()
		}},
		{"unused attribute bits", func(*testing.T) Batch {
			b := three().Bytes()
			b[atAttributes] |= 0x80
			b.setCRC()
			return b
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, p := rules(), c.batch(t)
			if c.edit != nil {
				c.edit(&r)
			}
			want := bytes.Clone(p.Payload())
			b, err := Validate(p, r)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(b.Payload(), want) {
				t.Errorf("the records were changed")
			}
			if err := b.CheckCRC(); err != nil {
				t.Error(err)
			}
			if b.LogAppendTime() != r.AppendTime || r.AppendTime && b.MaxTimestamp() != r.Now {
				t.Errorf("append time is %v at %d, want %v", b.LogAppendTime(), b.MaxTimestamp(), r.AppendTime)
			}
		})
	}
}

// headerFaults are edits of three's header, whose CRC is right unless named.
var headerFaults = []struct {
	name   string
	edit   func(Batch)
	reason Reason
}{
	{"length 13", put32(atLength, 13), CorruptMessage},
	{"length 0", put32(atLength, 0), CorruptMessage},
	{"length -1", put32(atLength, -1), CorruptMessage},
	{"length beyond the bytes", put32(atLength, 10_000), InvalidRecord},
	{"length 2^31-1", put32(atLength, math.MaxInt32), InvalidRecord},
	{"magic -1", func(b Batch) { b[atMagic] = 255 }, CorruptMessage},
	{"magic 3", func(b Batch) { b[atMagic] = 3 }, CorruptMessage},
	{"magic 127", func(b Batch) { b[atMagic] = 127 }, CorruptMessage},
	{"magic 0", func(b Batch) { b[atMagic] = 0 }, InvalidRecord},
	{"magic 1", func(b Batch) { b[atMagic] = 1 }, InvalidRecord},
	{"base 1", put64(atBase, 1), InvalidRecord},
	{"base -1", put64(atBase, -1), InvalidRecord},
	{"base int64 max", put64(atBase, math.MaxInt64), InvalidRecord},
	{"crc", func(b Batch) { b[atCRC] ^= 1 }, CorruptMessage},
	{"a record's byte", func(b Batch) { b[len(b)-1] ^= 1 }, CorruptMessage},
	{"count 0", put32(atCount, 0), InvalidRecord},
	{"count -1", put32(atCount, -1), InvalidRecord},
	{"count 2", put32(atCount, 2), InvalidRecord},
	{"count 2^31-1", put32(atCount, math.MaxInt32), InvalidRecord},
	{"last delta -1", put32(atLastDelta, -1), InvalidRecord},
	{"last delta 2^31-1", put32(atLastDelta, math.MaxInt32), InvalidRecord},
	{"last delta int32 min", put32(atLastDelta, math.MinInt32), InvalidRecord},
	{"last delta 3", put32(atLastDelta, 3), InvalidRecord},
	{"control", setBits(bitControl), InvalidRecord},
	{"transactional without producer", setBits(bitTransactional), InvalidRecord},
	{"producer without sequence", put64(atProducerID, 5), InvalidRecord},
	{"codec 5", setBits(5), UnsupportedCompression},
	{"codec 7", setBits(7), UnsupportedCompression},
	{"append time by the client", setBits(bitAppendTime), InvalidTimestamp},
	{"gzip bit on plain records", setBits(1), InvalidRecord},
	{"count 4", put32(atCount, 4), InvalidRecord},
	{"count 0 with its delta", func(b Batch) { put32(atCount, 0)(b); put32(atLastDelta, -1)(b) }, InvalidRecord},
	{"count -5 with its delta", func(b Batch) { put32(atCount, -5)(b); put32(atLastDelta, -6)(b) }, InvalidRecord},
	{"count int32 min with its delta", func(b Batch) { put32(atCount, math.MinInt32)(b); put32(atLastDelta, math.MaxInt32)(b) }, InvalidRecord},
}

func TestValidateHeader(t *testing.T) {
	for _, c := range headerFaults {
		t.Run(c.name, func(t *testing.T) {
			b := three().Bytes()
			c.edit(b)
			refused(t, b, rules(), c.reason, -1)
		})
	}
	for _, first := range []int64{math.MinInt64, -2, math.MaxInt64} {
		t.Run(fmt.Sprintf("first timestamp %d", first), func(t *testing.T) {
			b := three().Bytes()
			put64(atFirstTime, first)(b)
			refused(t, b, rules(), InvalidTimestamp, 0)
		})
	}
	t.Run("producer epoch -1", func(t *testing.T) {
		b := three()
		b.Producer(5, -1, 0)
		refused(t, b.Bytes(), rules(), InvalidRecord, -1)
	})
	for _, sequence := range []int32{NoSequence, -2, math.MinInt32} {
		t.Run(fmt.Sprintf("sequence %d", sequence), func(t *testing.T) {
			b := three()
			b.Producer(5, 0, sequence)
			refused(t, b.Bytes(), rules(), InvalidRecord, -1)
		})
	}
}

func TestValidateExtent(t *testing.T) {
	b := three().Bytes()
	for n := range len(b) {
		refused(t, b[:n], rules(), InvalidRecord, -1)
	}
	refused(t, append(bytes.Clone(b), three().Bytes()...), rules(), InvalidRecord, -1)
	refused(t, append(bytes.Clone(b), 0), rules(), InvalidRecord, -1)
	refused(t, NewBuilder(testNow).Bytes(), rules(), InvalidRecord, -1) // no record at all
	for size := PrefixSize + minLength; size < HeaderSize; size++ {
		short := bytes.Clone(b[:size])
		binary.BigEndian.PutUint32(short[atLength:], uint32(size-PrefixSize))
		refused(t, short, rules(), CorruptMessage, -1)
		Batch(short).setCRC()
		refused(t, short, rules(), CorruptMessage, -1)
	}
}

// TestValidateOrder has two faults at once: the one that Kafka finds first counts.
func TestValidateOrder(t *testing.T) {
	small := func(r *Rules) { r.MaxBatchBytes = 70 }
	segment := func(r *Rules) { r.MaxSegmentBytes = 70 }
	both := func(r *Rules) { small(r); segment(r) }
	oldZstd := func(r *Rules) { r.ZstdAllowed = false }
	badCRC := func(b Batch) { b[atCRC] ^= 1 }
	for _, c := range []struct {
		name   string
		edits  []func(Batch)
		rules  func(*Rules)
		reason Reason
	}{
		{"size field before magic", []func(Batch){put32(atLength, 5), func(b Batch) { b[atMagic] = 0 }}, nil, CorruptMessage},
		{"unknown magic before a cut batch", []func(Batch){put32(atLength, 9999), func(b Batch) { b[atMagic] = 9 }}, nil, CorruptMessage},
		{"zstd version before base offset", []func(Batch){setBits(4), put64(atBase, 5)}, oldZstd, UnsupportedCompression},
		{"zstd version before crc", []func(Batch){setBits(4), badCRC}, oldZstd, UnsupportedCompression},
		{"base offset before size", []func(Batch){put64(atBase, 5)}, small, InvalidRecord},
		{"size before crc", []func(Batch){badCRC}, small, MessageTooLarge},
		{"topic before segment", nil, both, MessageTooLarge},
		{"segment before crc", []func(Batch){badCRC}, segment, RecordListTooLarge},
		{"crc before count", []func(Batch){put32(atCount, -1), badCRC}, nil, CorruptMessage},
		{"crc before codec", []func(Batch){setBits(6), badCRC}, nil, CorruptMessage},
		{"count before control", []func(Batch){setBits(bitControl), put32(atCount, 9)}, nil, InvalidRecord},
		{"control before append time", []func(Batch){setBits(bitControl | bitAppendTime)}, nil, InvalidRecord},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, r := three().Bytes(), rules()
			for _, edit := range c.edits {
				edit(b)
			}
			if c.rules != nil {
				c.rules(&r)
			}
			refused(t, b, r, c.reason, -1)
		})
	}
}

func TestValidateRecords(t *testing.T) {
	for _, c := range malformed {
		t.Run(c.name, func(t *testing.T) { refused(t, payload(1, c.section...), rules(), InvalidRecord, 0) })
	}
	good := three().Bytes().Payload()
	t.Run("more records than the count", func(t *testing.T) { refused(t, payload(2, good...), rules(), InvalidRecord, -1) })
	t.Run("fewer records than the count", func(t *testing.T) { refused(t, payload(4, good...), rules(), InvalidRecord, 3) })
	t.Run("delta 1 first", func(t *testing.T) {
		refused(t, payload(1, 12, 0, 0, 2, 1, 1, 0), rules(), InvalidRecord, 0)
	})
	t.Run("delta int32 max", func(t *testing.T) {
		refused(t, payload(1, 20, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0x0f, 1, 1, 0), rules(), InvalidRecord, 0)
	})
	t.Run("delta -1", func(t *testing.T) {
		refused(t, payload(1, 12, 0, 0, 1, 1, 1, 0), rules(), InvalidRecord, 0)
	})
}

func TestValidateKeysAndTimes(t *testing.T) {
	build := func(first int64, times ...int64) Batch {
		b := NewBuilder(first)
		for _, ts := range times {
			b.Add(ts, nil, []byte("v"))
		}
		return b.Bytes()
	}
	tight := rules()
	tight.BeforeMax, tight.AfterMax = 1000, 2000
	old := rules()
	old.BeforeMax = testNow + 100
	someKeys := NewBuilder(testNow)
	someKeys.Add(testNow, []byte("k"), nil)
	someKeys.Add(testNow, nil, nil)
	someKeys.Add(testNow, nil, nil)
	compacted := tight
	compacted.CompactedTopic = true
	for _, c := range []struct {
		name   string
		batch  Batch
		rules  Rules
		reason Reason
		record int
	}{
		{"too old", build(testNow, testNow, testNow-1001), tight, InvalidTimestamp, 1},
		{"too new", build(testNow, testNow, testNow, testNow+2001), tight, InvalidTimestamp, 2},
		{"negative", build(0, -2), rules(), InvalidTimestamp, 0},
		{"int64 max", build(0, math.MaxInt64), rules(), InvalidTimestamp, 0},
		{"wraps past the top", payload64(math.MaxInt64, 2), rules(), InvalidTimestamp, 0},
		{"wraps past the bottom", payload64(math.MinInt64, 1), rules(), InvalidTimestamp, 0},
		{"negative where anything old is allowed", build(0, -2), old, InvalidTimestamp, 0},
		{"wraps into the range", build(math.MinInt64, testNow), rules(), InvalidTimestamp, 0},
		{"no key at first", someKeys.Bytes(), compacted, InvalidRecord, 1},
		{"no key", build(testNow, testNow), compacted, InvalidRecord, 0},
		{"timestamp goes before key", build(testNow, testNow, 5), compacted, InvalidTimestamp, 1},
	} {
		t.Run(c.name, func(t *testing.T) { refused(t, c.batch, c.rules, c.reason, c.record) })
	}
}

// payload64 is one record whose timestamp delta is the zigzag byte given.
func payload64(first int64, zigzag byte) Batch {
	b := payload(1, 12, 0, zigzag, 0, 1, 1, 0)
	put64(atFirstTime, first)(b)
	return b
}

func TestValidateCompressed(t *testing.T) {
	compressed := func(section []byte, count int32) Batch {
		b := NewBuilder(testNow)
		b.b = append(b.b, section...)
		b.count, b.newest = count, testNow
		if err := b.Compress(Gzip, gzipped); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	bomb := compressed(make([]byte, 8<<20), 1)
	if bomb.Size() > 20_000 {
		t.Fatalf("the bomb has %d bytes", bomb.Size())
	}
	refused(t, bomb, rules(), MessageTooLarge, -1)
	refused(t, compressed(three().Bytes().Payload(), 2), rules(), InvalidRecord, -1)
	refused(t, compressed([]byte{12, 0, 0, 0, 3, 1, 0}, 1), rules(), InvalidRecord, 0)
	r := rules()
	r.MaxInflated = 0
	refused(t, compressed(three().Bytes().Payload(), 3), r, MessageTooLarge, -1)
	r = rules()
	r.Inflate = func(int8, []byte, []byte, int) ([]byte, error) { return nil, underLimit{} }
	refused(t, compressed(three().Bytes().Payload(), 3), r, InvalidRecord, -1)
	garbage := three().Bytes()
	setBits(byte(LZ4))(garbage)
	refused(t, garbage, rules(), InvalidRecord, -1)
}

// TestValidateMaxTimestamp has a client that lies about the greatest timestamp.
func TestValidateMaxTimestamp(t *testing.T) {
	for _, claim := range []int64{math.MinInt64, -1, 0, testNow + 1e9, math.MaxInt64} {
		b := three().Bytes()
		put64(atMaxTime, claim)(b)
		got, err := Validate(b, rules())
		if err != nil {
			t.Fatal(err)
		}
		if got.MaxTimestamp() != testNow-4 || got.CheckCRC() != nil {
			t.Errorf("claimed %d: got %d, want %d with a right CRC", claim, got.MaxTimestamp(), testNow-4)
		}
	}
}

// TestValidateAgrees checks that what Validate accepts, Records walks to its end.
func TestValidateAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := NewBuilder(rapid.Int64Range(0, testNow).Draw(t, "first"))
		n := rapid.IntRange(1, 10).Draw(t, "records")
		for range n {
			_, key, value, headers := drawRecord(t)
			b.Add(rapid.Int64Range(0, testNow).Draw(t, "ts"), key, value, headers...)
		}
		p := b.Bytes()
		for range rapid.IntRange(0, 2).Draw(t, "flips") {
			p[rapid.IntRange(HeaderSize, len(p)-1).Draw(t, "at")] ^= byte(1 << rapid.IntRange(0, 7).Draw(t, "bit"))
		}
		p.setCRC()
		got, err := Validate(p, rules())
		if err != nil {
			return
		}
		walked := 0
		for r, err := range got.Records(got.Payload()) {
			if err != nil || r.Offset != Offset(walked) || r.Timestamp > got.MaxTimestamp() {
				t.Fatalf("record %d: offset %d, timestamp %d of %d, error %v", walked, r.Offset, r.Timestamp, got.MaxTimestamp(), err)
			}
			walked++
		}
		if walked != n {
			t.Fatalf("walked %d records of %d", walked, n)
		}
	})
}

func TestValidateAllocatesNothing(t *testing.T) {
	b, r := filled(1<<20-2000, 1024), rules()
	if n := testing.AllocsPerRun(10, func() {
		if _, err := Validate(b, r); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Validate allocates %v times, want 0", n)
	}
}

func TestReasonNames(t *testing.T) {
	seen := map[string]bool{}
	for r := InvalidRecord; r <= InvalidTimestamp; r++ {
		seen[r.String()] = true
	}
	if len(seen) != 6 || Reason(99).String() != "reason 99" {
		t.Errorf("got names %v and %s", seen, Reason(99))
	}
}

func FuzzValidate(f *testing.F) {
	f.Add([]byte(three().Bytes()), true, false)
	for _, c := range headerFaults {
		b := three().Bytes()
		c.edit(b)
		f.Add([]byte(b), false, true)
	}
	for _, c := range malformed {
		f.Add([]byte(payload(1, c.section...)), true, true)
	}
	f.Fuzz(func(t *testing.T, p []byte, appendTime, compacted bool) {
		p = bytes.Clone(p)
		if len(p) >= HeaderSize {
			Batch(p).setCRC() // so that the fuzzer gets past it
		}
		r := rules()
		r.AppendTime, r.CompactedTopic = appendTime, compacted
		b, err := Validate(p, r)
		if err != nil {
			var bad *InvalidError
			if !errors.As(err, &bad) || bad.Reason < InvalidRecord || bad.Reason > InvalidTimestamp {
				t.Fatalf("an error of no known kind: %v", err)
			}
			return
		}
		if b.Base() != 0 || b.End() != Offset(b.Count()) || b.CheckCRC() != nil || len(b) != len(p) {
			t.Fatalf("accepted base %d, end %d, count %d, %v", b.Base(), b.End(), b.Count(), b.CheckCRC())
		}
		if _, _, err := Next(b); err != nil {
			t.Fatalf("accepted what Next refuses: %v", err)
		}
	})
}

func BenchmarkValidate(b *testing.B) {
	for _, value := range []int{10, 100, 1024, 10_000} {
		b.Run(fmt.Sprintf("1MiB/value=%d", value), func(b *testing.B) {
			p, r := filled(1<<20-12_000, value), rules()
			b.SetBytes(int64(len(p)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Validate(p, r); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(p.Count()), "ns/record")
		})
	}
}

// BenchmarkWalk is Validate without the checksum.
func BenchmarkWalk(b *testing.B) {
	p, r := filled(1<<20-12_000, 1024), rules()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := checkRecords(p, p.Payload(), r); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(p.Count()), "ns/record")
}

func BenchmarkRecords(b *testing.B) {
	p := filled(1<<20-12_000, 1024)
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range p.Records(p.Payload()) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(p.Count()), "ns/record")
}
