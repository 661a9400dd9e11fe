package batch

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

func TestHeader(t *testing.T) {
	bld := three()
	bld.Producer(77, 3, math.MaxInt32)
	bld.Transactional()
	b := bld.Bytes()
	crc := b.CRC()
	b.Assign(1000, 12)
	if b.CRC() != crc || b.CheckCRC() != nil {
		t.Errorf("Assign changed the CRC's content: %v", b.CheckCRC())
	}
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"Base", b.Base(), Offset(1000)},
		{"Last", b.Last(), Offset(1002)},
		{"End", b.End(), Offset(1003)},
		{"Size", b.Size(), len(b)},
		{"Epoch", b.Epoch(), Epoch(12)},
		{"Magic", b.Magic(), Magic},
		{"Attributes", b.Attributes(), int16(bitTransactional)},
		{"LastDelta", b.LastDelta(), int32(2)},
		{"FirstTimestamp", b.FirstTimestamp(), testNow - 10},
		{"MaxTimestamp", b.MaxTimestamp(), testNow - 4},
		{"ProducerID", b.ProducerID(), int64(77)},
		{"ProducerEpoch", b.ProducerEpoch(), int16(3)},
		{"FirstSequence", b.FirstSequence(), int32(math.MaxInt32)},
		{"LastSequence", b.LastSequence(), int32(1)},
		{"Count", b.Count(), int32(3)},
		{"Codec", b.Codec(), None},
		{"Payload", len(b.Payload()), len(b) - HeaderSize},
		{"LogAppendTime", b.LogAppendTime(), false},
		{"Transactional", b.Transactional(), true},
		{"Control", b.Control(), false},
		{"HasProducer", b.HasProducer(), true},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, c.got, c.want)
		}
	}
}

func TestAddSequence(t *testing.T) {
	for _, c := range []struct{ seq, n, want int32 }{
		{0, 0, 0},
		{5, 4, 9},
		{math.MaxInt32, 0, math.MaxInt32},
		{math.MaxInt32, 1, 0},
		{math.MaxInt32 - 1, 3, 1},
		{math.MaxInt32, math.MaxInt32, math.MaxInt32 - 1},
	} {
		if got := AddSequence(c.seq, c.n); got != c.want {
			t.Errorf("AddSequence(%d, %d): got %d, want %d", c.seq, c.n, got, c.want)
		}
	}
	b := three().Bytes()
	if got := b.LastSequence(); got != NoSequence {
		t.Errorf("LastSequence without a producer: got %d, want %d", got, NoSequence)
	}
}

func TestStampAppendTime(t *testing.T) {
	b := three().Bytes()
	b.StampAppendTime(testNow + 500)
	if !b.LogAppendTime() || b.MaxTimestamp() != testNow+500 {
		t.Errorf("got bit %v and max timestamp %d", b.LogAppendTime(), b.MaxTimestamp())
	}
	if err := b.CheckCRC(); err != nil {
		t.Error(err)
	}
	for _, r := range collect(t, b, b.Payload()) {
		if r.Timestamp != testNow+500 {
			t.Errorf("record at %d has timestamp %d, want that of the leader", r.Offset, r.Timestamp)
		}
	}
}

func TestNext(t *testing.T) {
	one, two := three().Bytes(), filled(5000, 100)
	one.Assign(10, 1)
	two.Assign(13, 1)
	p := append(bytes.Clone(one), two...)
	b, rest, err := Next(p)
	if err != nil || !bytes.Equal(b, one) || !bytes.Equal(rest, two) {
		t.Fatalf("got %d bytes and %d more, error %v", len(b), len(rest), err)
	}
	if cap(b) != len(b) {
		t.Errorf("the batch can grow into its neighbour")
	}
	for n := range len(one) {
		if _, rest, err := Next(one[:n]); !errors.Is(err, ErrShort) || len(rest) != n {
			t.Fatalf("%d of %d bytes: got error %v and %d left, want ErrShort", n, len(one), err, len(rest))
		}
	}
}

func TestNextRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(Batch)
	}{
		{"length -1", put32(atLength, -1)},
		{"length 0", put32(atLength, 0)},
		{"length below a header", put32(atLength, HeaderSize-PrefixSize-1)},
		{"length int32 min", put32(atLength, math.MinInt32)},
		{"magic 0", func(b Batch) { b[atMagic] = 0 }},
		{"magic 1", func(b Batch) { b[atMagic] = 1 }},
		{"magic 3", func(b Batch) { b[atMagic] = 3 }},
		{"magic 127", func(b Batch) { b[atMagic] = 127 }},
		{"magic 255", func(b Batch) { b[atMagic] = 255 }},
		{"negative base", put64(atBase, -1)},
		{"base int64 min", put64(atBase, math.MinInt64)},
		{"end overflows", put64(atBase, math.MaxInt64-2)},
		{"negative last delta", put32(atLastDelta, -1)},
		{"last delta int32 min", put32(atLastDelta, math.MinInt32)},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := three().Bytes()
			c.edit(b)
			var bad *CorruptError
			if _, _, err := Next(b); !errors.As(err, &bad) {
				t.Errorf("got %v, want a CorruptError", err)
			}
		})
	}
	b := three().Bytes()
	put64(atBase, math.MaxInt64-3)(b)
	if got, _, err := Next(b); err != nil || got.End() != math.MaxInt64 {
		t.Errorf("the greatest end: %v", err)
	}
	put32(atLength, math.MaxInt32)(b)
	if _, _, err := Next(b); !errors.Is(err, ErrShort) {
		t.Errorf("length of 2 GiB: got %v, want ErrShort", err)
	}
}

func TestCheckCRC(t *testing.T) {
	b := three().Bytes()
	for i := atCRC; i < len(b); i++ {
		b[i] ^= 0x10
		var bad *CorruptError
		if err := b.CheckCRC(); !errors.As(err, &bad) {
			t.Errorf("byte %d flipped: got %v, want a CorruptError", i, err)
		}
		b[i] ^= 0x10
	}
	if err := b.CheckCRC(); err != nil {
		t.Error(err)
	}
}

func TestRunBatches(t *testing.T) {
	one, two := three().Bytes(), three().Bytes()
	two.Assign(3, 1)
	var ends []Offset
	for b, err := range Run(append(bytes.Clone(one), two...)).Batches() {
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, b.End())
	}
	if len(ends) != 2 || ends[0] != 3 || ends[1] != 6 {
		t.Errorf("got ends %v, want 3 and 6", ends)
	}
	n := 0
	for _, err := range Run(append(bytes.Clone(one), two[:40]...)).Batches() {
		if n++; n == 2 && !errors.Is(err, ErrShort) {
			t.Errorf("cut second batch: got %v, want ErrShort", err)
		}
	}
	if n != 2 {
		t.Errorf("walked %d steps of a batch and a cut one, want 2", n)
	}
}

// TestOracleHeader has a client's library read our header and write the same bytes.
func TestOracleHeader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bld := NewBuilder(rapid.Int64Range(0, testNow).Draw(t, "first"))
		for range rapid.IntRange(1, 20).Draw(t, "records") {
			bld.Add(rapid.Int64Range(0, testNow).Draw(t, "ts"), nil, rapid.SliceOf(rapid.Byte()).Draw(t, "value"))
		}
		bld.Producer(rapid.Int64().Draw(t, "pid"), rapid.Int16().Draw(t, "epoch"), rapid.Int32().Draw(t, "seq"))
		b := bld.Bytes()
		b.Assign(Offset(rapid.Int64Range(0, math.MaxInt64-100).Draw(t, "base")), Epoch(rapid.Int32().Draw(t, "leader epoch")))
		var k kmsg.RecordBatch
		if err := k.ReadFrom(b); err != nil {
			t.Fatalf("the client does not read the batch: %v", err)
		}
		if got := k.AppendTo(nil); !bytes.Equal(got, b) {
			t.Fatalf("the client writes it otherwise:\n got %x\nwant %x", got, []byte(b))
		}
		same := k.FirstOffset == int64(b.Base()) && k.PartitionLeaderEpoch == int32(b.Epoch()) && k.Magic == b.Magic() &&
			uint32(k.CRC) == b.CRC() && k.Attributes == b.Attributes() && k.LastOffsetDelta == b.LastDelta() &&
			k.FirstTimestamp == b.FirstTimestamp() && k.MaxTimestamp == b.MaxTimestamp() && k.ProducerID == b.ProducerID() &&
			k.ProducerEpoch == b.ProducerEpoch() && k.FirstSequence == b.FirstSequence() && k.NumRecords == b.Count() &&
			bytes.Equal(k.Records, b.Payload())
		if !same {
			t.Fatalf("fields differ: %+v", k)
		}
	})
}

func FuzzNext(f *testing.F) {
	f.Add([]byte(three().Bytes()))
	f.Add([]byte(filled(300, 10)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, p []byte) {
		total := 0
		for b, err := range Run(p).Batches() {
			if err != nil {
				break
			}
			total += b.Size()
			if b.Base() < 0 || b.End() <= b.Base() || b.Size() < HeaderSize {
				t.Fatalf("base %d, end %d, %d bytes", b.Base(), b.End(), b.Size())
			}
			_ = b.CheckCRC()
			_ = b.LastSequence()
		}
		if total > len(p) {
			t.Fatalf("batches of %d bytes in %d", total, len(p))
		}
	})
}
