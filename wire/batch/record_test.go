package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

func TestRecords(t *testing.T) {
	b := three().Bytes()
	b.Assign(100, 1)
	all := collect(t, b, b.Payload())
	if len(all) != 3 {
		t.Fatalf("got %d records, want 3", len(all))
	}
	for i, want := range []Record{
		{Offset: 100, Timestamp: testNow - 10, Key: []byte("k0"), Value: []byte("v0")},
		{Offset: 101, Timestamp: testNow - 4, Key: []byte("k1")},
		{Offset: 102, Timestamp: testNow - 7, Key: []byte("k2"), Value: []byte{}},
	} {
		got := all[i]
		if got.Offset != want.Offset || got.Timestamp != want.Timestamp || !bytes.Equal(got.Key, want.Key) ||
			!bytes.Equal(got.Value, want.Value) || (got.Value == nil) != (want.Value == nil) {
			t.Errorf("record %d: got %+v, want %+v", i, got, want)
		}
	}
	var headers []Header
	for h := range all[1].Headers() {
		headers = append(headers, h)
	}
	if all[1].HeaderCount() != 2 || len(headers) != 2 || headers[0].Key != "trace" || !bytes.Equal(headers[0].Value, []byte{1, 2}) ||
		headers[1].Key != "" || headers[1].Value != nil {
		t.Errorf("got headers %+v", headers)
	}
	for range b.Records(b.Payload()) {
		break // ends early without a word
	}
	for range all[1].Headers() {
		break
	}
}

// malformed are record sections of a batch that claims one record.
var malformed = []struct {
	name    string
	section []byte
	fault   string
}{
	{"nothing", nil, faultLength},
	{"length past the end", []byte{14, 0, 0, 0, 1, 1, 0}, faultLength},
	{"length -1", []byte{1, 0, 0, 0, 1, 1, 0}, faultLength},
	{"length int32 max", []byte{0xfe, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 1, 1, 0}, faultLength},
	{"length of six bytes", []byte{0x8c, 0x80, 0x80, 0x80, 0x80, 0x00, 0, 0, 0, 1, 1, 0}, faultLength},
	{"length above 32 bits", []byte{0x8c, 0x80, 0x80, 0x80, 0x10, 0, 0, 0, 1, 1, 0}, faultLength},
	{"endless varint", bytes.Repeat([]byte{0xff}, 30), faultLength},
	{"length 0", []byte{0}, faultField},
	{"ends after attributes", []byte{2, 0}, faultField},
	{"endless timestamp", append([]byte{26, 0}, bytes.Repeat([]byte{0x80}, 12)...), faultField},
	{"timestamp above 64 bits", []byte{32, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0, 1, 1, 0, 0}, faultField},
	{"key length -2", []byte{12, 0, 0, 0, 3, 1, 0}, faultField},
	{"key past the record", []byte{12, 0, 0, 0, 100, 1, 0}, faultField},
	{"value length int32 min", []byte{20, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0}, faultField},
	{"header count -1", []byte{12, 0, 0, 0, 1, 1, 1}, faultHeaders},
	{"header count 2^31-1", []byte{20, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f}, faultHeaders},
	{"header count 1 without one", []byte{12, 0, 0, 0, 1, 1, 2}, faultHeaders},
	{"header key null", []byte{16, 0, 0, 0, 1, 1, 2, 1, 1}, faultHeader},
	{"header key past the record", []byte{16, 0, 0, 0, 1, 1, 2, 40, 1}, faultHeader},
	{"header value length -2", []byte{16, 0, 0, 0, 1, 1, 2, 0, 3}, faultHeader},
	{"bytes after the headers", []byte{18, 0, 0, 0, 1, 1, 2, 0, 1, 9}, faultRest},
	{"bytes after no headers", []byte{14, 0, 0, 0, 1, 1, 0, 9}, faultRest},
}

func TestRecordsRefuses(t *testing.T) {
	for _, c := range malformed {
		t.Run(c.name, func(t *testing.T) {
			var r raw
			if got := r.parse(c.section); got != c.fault {
				t.Errorf("parse: got %q, want %q", got, c.fault)
			}
			b := payload(1, c.section...)
			steps := 0
			for _, err := range b.Records(b.Payload()) {
				steps++
				var bad *CorruptError
				if !errors.As(err, &bad) {
					t.Errorf("got %v, want a CorruptError", err)
				}
			}
			if steps != 1 {
				t.Errorf("walked %d steps, want 1", steps)
			}
		})
	}
}

func TestRecordsCount(t *testing.T) {
	for _, count := range []int32{math.MinInt32, -1, 0, 1, 2, 4, math.MaxInt32} {
		b := three().Bytes()
		put32(atCount, count)(b)
		var last error
		for _, err := range b.Records(b.Payload()) {
			last = err
		}
		if last == nil {
			t.Errorf("count %d over 3 records: no error", count)
		}
	}
}

func drawRecord(t *rapid.T) (int64, []byte, []byte, []Header) {
	bytesOrNull := rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 0, 200), rapid.Just([]byte(nil)))
	headers := make([]Header, rapid.IntRange(0, 4).Draw(t, "headers"))
	for i := range headers {
		headers[i] = Header{Key: rapid.String().Draw(t, "header key"), Value: bytesOrNull.Draw(t, "header value")}
	}
	return rapid.Int64Range(0, math.MaxInt64).Draw(t, "ts"), bytesOrNull.Draw(t, "key"), bytesOrNull.Draw(t, "value"), headers
}

// oracle encodes the record with a client's library.
func oracle(timeDelta int64, offsetDelta int32, key, value []byte, headers []Header) []byte {
	k := kmsg.Record{TimestampDelta64: timeDelta, OffsetDelta: offsetDelta, Key: key, Value: value}
	for _, h := range headers {
		k.Headers = append(k.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
	}
	body := k.AppendTo(nil)[1:] // a length of 0 takes one byte
	return append(binary.AppendVarint(nil, int64(len(body))), body...)
}

// TestOracleRecords compares the builder's records with a client's, byte for
// byte, and has the iterator give back what was put in.
func TestOracleRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.Int64Range(0, testNow).Draw(t, "first")
		b := NewBuilder(first)
		var want []Record
		var wantHeaders [][]Header
		var section []byte
		for i := range rapid.IntRange(1, 12).Draw(t, "records") {
			ts, key, value, headers := drawRecord(t)
			b.Add(ts, key, value, headers...)
			section = append(section, oracle(ts-first, int32(i), key, value, headers)...)
			want = append(want, Record{Offset: Offset(i), Timestamp: ts, Key: key, Value: value})
			wantHeaders = append(wantHeaders, headers)
		}
		out := b.Bytes()
		if !bytes.Equal(out.Payload(), section) {
			t.Fatalf("a client writes the records otherwise:\n got %x\nwant %x", out.Payload(), section)
		}
		i := 0
		for got, err := range out.Records(out.Payload()) {
			if err != nil {
				t.Fatal(err)
			}
			if got.Offset != want[i].Offset || got.Timestamp != want[i].Timestamp || !same(got.Key, want[i].Key) || !same(got.Value, want[i].Value) {
				t.Fatalf("record %d: got %+v, want %+v", i, got, want[i])
			}
			n := 0
			for h := range got.Headers() {
				if h.Key != wantHeaders[i][n].Key || !same(h.Value, wantHeaders[i][n].Value) {
					t.Fatalf("record %d: header %d is %+v, want %+v", i, n, h, wantHeaders[i][n])
				}
				n++
			}
			if n != len(wantHeaders[i]) {
				t.Fatalf("record %d: %d headers, want %d", i, n, len(wantHeaders[i]))
			}
			i++
		}
		if i != len(want) {
			t.Fatalf("%d records, want %d", i, len(want))
		}
	})
}

func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func TestVarints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-200, 200)).Draw(t, "v")
		p := appendVarlong(nil, v)
		if want := binary.AppendVarint(nil, v); !bytes.Equal(p, want) || varlongSize(v) != len(want) {
			t.Fatalf("%d: got %x of size %d, want %x", v, p, varlongSize(v), want)
		}
		if got, at := varlong(p, 0); got != v || at != len(p) {
			t.Fatalf("varlong: got %d up to %d, want %d", got, at, v)
		}
		if got, at := varint(p, 0); v == int64(int32(v)) && (got != int32(v) || at != len(p)) {
			t.Fatalf("varint: got %d up to %d, want %d", got, at, v)
		} else if v != int64(int32(v)) && at != -1 {
			t.Fatalf("varint took %d", v)
		}
		if _, at := varlong(p, -1); at != -1 {
			t.Fatalf("varlong went on after a fault")
		}
		if _, at := varlong(p[:len(p)-1], 0); at != -1 {
			t.Fatalf("varlong read past the end")
		}
	})
}

func FuzzRecords(f *testing.F) {
	b := three().Bytes()
	f.Add(int32(3), false, b.Payload())
	for _, c := range malformed {
		f.Add(int32(1), true, c.section)
	}
	f.Fuzz(func(t *testing.T, count int32, appendTime bool, section []byte) {
		b := payload(count)
		if appendTime {
			b.StampAppendTime(testNow)
		}
		n, size := 0, 0
		for r, err := range b.Records(section) {
			if err != nil {
				break
			}
			n++
			size += len(r.Key) + len(r.Value)
			for h := range r.Headers() {
				size += len(h.Key) + len(h.Value)
			}
		}
		if n > len(section)/7 || size > len(section) { // no record takes less than 7 bytes
			t.Fatalf("%d records with %d bytes of content in %d", n, size, len(section))
		}
	})
}
