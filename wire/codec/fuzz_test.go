package codec

import (
	"math"
	"reflect"
	"runtime"
	"testing"
)

// FuzzCodec lets the fuzzer choose which fields to read, and from what. Reading
// must not panic, not allocate above its bound, and give values that come back
// from their own encoding.
func FuzzCodec(f *testing.F) {
	every := make([]byte, fieldKinds)
	for i := range every {
		every[i] = byte(i)
	}
	for _, flexible := range []bool{false, true} {
		for _, e := range []everything{sample(), nulls()} {
			w := NewWriter(nil).Flexible(flexible)
			e.code(w)
			f.Add(flexible, every, w.Bytes())
		}
		f.Add(flexible, []byte{12, 12, 12, 12}, []byte{0xff, 0xff, 0xff, 0xff, 0x0f})
		f.Add(flexible, []byte{26}, []byte{0, 0x0f, 0x42, 0x40})
	}
	f.Fuzz(func(t *testing.T, flexible bool, fields, input []byte) {
		fields = fields[:min(len(fields), 64)]
		limit := 4*uint64(len(input)) + 64<<10
		var (
			e everything
			c *Coder
		)
		n := allocated64(limit, func() {
			e = everything{}
			c = NewReader(input, Budget(len(input))).Flexible(flexible)
			e.some(c, fields)
		})
		if n >= limit {
			t.Errorf("reading %d bytes allocated %d, bound %d", len(input), n, limit)
		}
		if c.Err() != nil {
			return
		}
		w := NewWriter(nil).Flexible(flexible)
		e.some(w, fields)
		if w.Err() != nil {
			t.Fatalf("writing what was read: %v", w.Err())
		}
		var first, second everything
		r := NewReader(w.Bytes(), math.MaxInt).Flexible(flexible)
		first.some(r, fields)
		if err := r.End(); err != nil {
			t.Fatalf("reading what was written: %v", err)
		}
		w2 := NewWriter(nil).Flexible(flexible)
		first.some(w2, fields)
		second.some(NewReader(w2.Bytes(), math.MaxInt).Flexible(flexible), fields)
		first.F64, second.F64 = 0, 0 // may be NaN
		if !reflect.DeepEqual(first, second) {
			t.Errorf("got  %+v\nwant %+v", second, first)
		}
	})
}

// fieldKinds is the number of kinds of fields that some chooses from.
const fieldKinds = 28

// some codes a choice of fields, in the order chosen.
func (e *everything) some(c *Coder, fields []byte) {
	kinds := [fieldKinds]func(){
		func() { c.Int8(&e.I8) }, func() { c.Uint8(&e.U8) }, func() { c.Bool(&e.B) }, func() { c.Int16(&e.I16) },
		func() { c.Uint16(&e.U16) }, func() { c.Int32(&e.I32) }, func() { c.Uint32(&e.U32) }, func() { c.Int64(&e.I64) },
		func() { c.Uint64(&e.U64) }, func() { c.Float64(&e.F64) }, func() { c.UUID(&e.ID) }, func() { c.Uvarint(&e.Uvar) },
		func() { c.Uvarlong(&e.Uvarlong) }, func() { c.Varint(&e.Var) }, func() { c.Varlong(&e.Varlong) },
		func() { c.String(&e.S) }, func() { c.NullableString(&e.NS) }, func() { c.Bytes32(&e.P) },
		func() { c.NullableBytes32(&e.NP) }, func() { c.Int32s(&e.Ints) }, func() { c.NullableInt32s(&e.NInts) },
		func() { c.Int64s(&e.Longs) }, func() { c.Strings(&e.Strings) }, func() { c.UUIDs(&e.IDs) },
		func() { Array(c, &e.Pairs, codePair) }, func() { NullableArray(c, &e.NPairs, codePair) },
		func() { NullableStruct(c, &e.One, 24, codePair) },
		func() {
			Tagged(c, e, TagSet(0).With(0, e.Tag0 != nil).With(3, e.Tag3 != 0), codeEverythingTag)
		},
	}
	for _, k := range fields {
		kinds[int(k)%fieldKinds]()
	}
}

// allocated64 gives the bytes that fn allocates, the least of a few tries.
func allocated64(limit uint64, fn func()) uint64 {
	least := uint64(math.MaxUint64)
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		fn()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
		if least < limit {
			break
		}
	}
	return least
}
