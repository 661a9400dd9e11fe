package codec

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/weirmq/weir/integration/seeds"
)

// everything has one field of each kind.
type everything struct {
	I8       int8
	U8       uint8
	B        bool
	I16      int16
	U16      uint16
	I32      int32
	U32      uint32
	I64      int64
	U64      uint64
	F64      float64
	ID       [16]byte
	Uvar     uint32
	Uvarlong uint64
	Var      int32
	Varlong  int64
	S        string
	NS       *string
	PS       *string
	P        []byte
	NP       []byte
	Ints     []int32
	NInts    []int32
	Longs    []int64
	Strings  []string
	IDs      [][16]byte
	Pairs    []pair
	NPairs   []pair
	One      *pair
	Tag0     *pair
	Tag3     int32
	Raw      [3]byte
	Rest     []byte
}

type pair struct {
	Key   string
	Value int32
}

func codePair(c *Coder, p *pair) {
	c.String(&p.Key)
	c.Int32(&p.Value)
	c.Tags()
}

func (e *everything) code(c *Coder) {
	c.Int8(&e.I8)
	c.Uint8(&e.U8)
	c.Bool(&e.B)
	c.Int16(&e.I16)
	c.Uint16(&e.U16)
	c.Int32(&e.I32)
	c.Uint32(&e.U32)
	c.Int64(&e.I64)
	c.Uint64(&e.U64)
	c.Float64(&e.F64)
	c.UUID(&e.ID)
	c.Uvarint(&e.Uvar)
	c.Uvarlong(&e.Uvarlong)
	c.Varint(&e.Var)
	c.Varlong(&e.Varlong)
	c.String(&e.S)
	c.NullableString(&e.NS)
	c.PresentString(&e.PS)
	c.Bytes32(&e.P)
	c.NullableBytes32(&e.NP)
	c.Int32s(&e.Ints)
	c.NullableInt32s(&e.NInts)
	c.Int64s(&e.Longs)
	c.Strings(&e.Strings)
	c.UUIDs(&e.IDs)
	Array(c, &e.Pairs, codePair)
	NullableArray(c, &e.NPairs, codePair)
	NullableStruct(c, &e.One, 24, codePair)
	Tagged(c, e, TagSet(0).With(0, e.Tag0 != nil).With(3, e.Tag3 != 0), codeEverythingTag)
	c.Raw(e.Raw[:])
	c.Rest(&e.Rest)
}

func codeEverythingTag(c *Coder, e *everything, tag uint32) bool {
	switch tag {
	case 0:
		Struct(c, &e.Tag0, 24, codePair)
	case 3:
		c.Int32(&e.Tag3)
	default:
		return false
	}
	return true
}

func sample() everything {
	s, long := "nullable", strings.Repeat("long", 50)
	return everything{
		I8: -8, U8: 200, B: true, I16: math.MinInt16, U16: math.MaxUint16, I32: math.MinInt32, U32: math.MaxUint32,
		I64: math.MinInt64, U64: math.MaxUint64, F64: -0.5, ID: [16]byte{1, 15: 16},
		Uvar: math.MaxUint32, Uvarlong: math.MaxUint64, Var: math.MinInt32, Varlong: math.MinInt64,
		S: long, NS: &s, PS: &long, P: []byte{1, 2}, NP: []byte{}, Ints: []int32{1, -1}, NInts: []int32{}, Longs: []int64{1 << 40},
		Strings: []string{"", "a"}, IDs: [][16]byte{{2}}, Pairs: []pair{{"k", 1}, {"", 2}}, NPairs: []pair{{"n", 3}},
		One: &pair{"one", 4}, Tag0: &pair{long, 5}, Tag3: 6, Raw: [3]byte{7, 8, 9}, Rest: []byte("rest"),
	}
}

func nulls() everything {
	empty := ""
	return everything{PS: &empty, P: []byte{}, Ints: []int32{}, Longs: []int64{}, Strings: []string{}, IDs: [][16]byte{}, Pairs: []pair{}, Rest: []byte{}}
}

func TestRoundTrip(t *testing.T) {
	for name, in := range map[string]everything{"values": sample(), "nulls": nulls()} {
		for _, flexible := range []bool{false, true} {
			want := in
			w := NewWriter([]byte("before")).Flexible(flexible)
			want.code(w)
			if w.Err() != nil {
				t.Fatal(w.Err())
			}
			p, ok := bytes.CutPrefix(w.Bytes(), []byte("before"))
			if !ok {
				t.Fatalf("what dst held is gone: %q", w.Bytes())
			}
			var got everything
			r := NewReader(p, Budget(len(p))).Flexible(flexible)
			got.code(r)
			if err := r.End(); err != nil {
				t.Fatalf("%s, flexible %v: %v", name, flexible, err)
			}
			if !flexible {
				want.Tag0, want.Tag3 = nil, 0
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s, flexible %v\n got %+v\nwant %+v", name, flexible, got, want)
			}
			short(t, p, flexible)
		}
	}
}

// short: every prefix of the encoding, up to the rest, ends inside a field.
func short(t *testing.T, p []byte, flexible bool) {
	t.Helper()
	for n := range len(p) - 4 {
		var got everything
		r := NewReader(p[:n:n], 1<<20).Flexible(flexible)
		got.code(r)
		if !errors.Is(r.Err(), ErrShort) && n < len(p)-7 {
			t.Fatalf("the first %d of %d bytes, flexible %v: %v", n, len(p), flexible, r.Err())
		}
	}
}

// one reads hex with fn and gives how much was read and the error.
func one(t *testing.T, text string, flexible bool, fn func(*Coder)) (int, error) {
	t.Helper()
	p, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	c := NewReader(p, 1<<20).Flexible(flexible)
	fn(c)
	return c.Offset(), c.Err()
}

// TestForms fixes the bytes of each form.
func TestForms(t *testing.T) {
	s := "hi"
	for name, tc := range map[string]struct {
		flexible bool
		want     string
		write    func(c *Coder)
	}{
		"bool":                   {false, "01", func(c *Coder) { v := true; c.Bool(&v) }},
		"int16":                  {false, "fffe", func(c *Coder) { v := int16(-2); c.Int16(&v) }},
		"float64":                {false, "bfe0000000000000", func(c *Coder) { v := -0.5; c.Float64(&v) }},
		"uvarint 300":            {false, "ac02", func(c *Coder) { v := uint32(300); c.Uvarint(&v) }},
		"varint -1":              {false, "01", func(c *Coder) { v := int32(-1); c.Varint(&v) }},
		"varint least":           {false, "ffffffff0f", func(c *Coder) { v := int32(math.MinInt32); c.Varint(&v) }},
		"varlong least":          {false, "ffffffffffffffffff01", func(c *Coder) { v := int64(math.MinInt64); c.Varlong(&v) }},
		"string":                 {false, "00026869", func(c *Coder) { c.String(&s) }},
		"compact string":         {true, "036869", func(c *Coder) { c.String(&s) }},
		"null string":            {false, "ffff", func(c *Coder) { var v *string; c.NullableString(&v) }},
		"compact null string":    {true, "00", func(c *Coder) { var v *string; c.NullableString(&v) }},
		"bytes":                  {false, "000000020506", func(c *Coder) { v := []byte{5, 6}; c.Bytes32(&v) }},
		"compact bytes":          {true, "030506", func(c *Coder) { v := []byte{5, 6}; c.Bytes32(&v) }},
		"nil bytes, not null":    {false, "00000000", func(c *Coder) { var v []byte; c.Bytes32(&v) }},
		"null bytes":             {false, "ffffffff", func(c *Coder) { var v []byte; c.NullableBytes32(&v) }},
		"compact null bytes":     {true, "00", func(c *Coder) { var v []byte; c.NullableBytes32(&v) }},
		"array":                  {false, "00000001 00000007", func(c *Coder) { v := []int32{7}; c.Int32s(&v) }},
		"compact array":          {true, "02 00000007", func(c *Coder) { v := []int32{7}; c.Int32s(&v) }},
		"null array":             {false, "ffffffff", func(c *Coder) { var v []int32; c.NullableInt32s(&v) }},
		"compact null array":     {true, "00", func(c *Coder) { var v []int32; c.NullableInt32s(&v) }},
		"null struct":            {true, "ff", func(c *Coder) { var v *pair; NullableStruct(c, &v, 24, codePair) }},
		"struct":                 {true, "01 02 61 00000001 00", func(c *Coder) { v := &pair{"a", 1}; NullableStruct(c, &v, 24, codePair) }},
		"no tags, not flexible":  {false, "", func(c *Coder) { c.Tags() }},
		"no tags":                {true, "00", func(c *Coder) { c.Tags() }},
		"a gap":                  {false, "000003e8", func(c *Coder) { c.Gap(1000) }},
		"a compact gap":          {true, "e907", func(c *Coder) { c.Gap(1000) }},
		"an empty gap":           {true, "01", func(c *Coder) { c.Gap(0) }},
		"tags 0 and 3":           {true, "02 00 07 02 61 00000001 00 03 04 00000009", func(c *Coder) { writeTags(c, &pair{"a", 1}) }},
		"a tag above 127 bytes":  {true, "02 00 8601 8001" + strings.Repeat("78", 127) + "00000001 00 03 04 00000009", func(c *Coder) { writeTags(c, &pair{strings.Repeat("x", 127), 1}) }},
		"raw bytes, no length":   {true, "0506", func(c *Coder) { c.Raw([]byte{5, 6}) }},
		"the version is nowhere": {true, "", func(c *Coder) { c.SetVersion(9) }},
	} {
		c := NewWriter(nil).Flexible(tc.flexible)
		tc.write(c)
		if got, want := hex.EncodeToString(c.Bytes()), strings.ReplaceAll(tc.want, " ", ""); got != want || c.Err() != nil {
			t.Errorf("%s: got %s, %v; want %s", name, got, c.Err(), want)
		}
	}
}

func writeTags(c *Coder, p *pair) {
	e := everything{Tag0: p, Tag3: 9}
	Tagged(c, &e, TagSet(0).With(0, true).With(3, true), codeEverythingTag)
}

func TestHoles(t *testing.T) {
	c := NewWriter([]byte("xx")).Flexible(true)
	c.Gap(10)
	c.Gap(0)
	c.Gap(200)
	want := []Hole{{At: 3, Size: 10}, {At: 6, Size: 200}}
	if !reflect.DeepEqual(c.Holes(), want) {
		t.Errorf("holes %v, want %v", c.Holes(), want)
	}
}

func TestRefused(t *testing.T) {
	str := func(c *Coder) { var v string; c.String(&v) }
	nullable := func(c *Coder) { var v *string; c.NullableString(&v) }
	byteField := func(c *Coder) { var v []byte; c.Bytes32(&v) }
	ints := func(c *Coder) { var v []int32; c.Int32s(&v) }
	tags := func(c *Coder) { c.Tags() }
	uvarint := func(c *Coder) { var v uint32; c.Uvarint(&v) }
	uvarlong := func(c *Coder) { var v uint64; c.Uvarlong(&v) }
	known := func(c *Coder) { var e everything; Tagged(c, &e, 0, codeEverythingTag) }
	for name, tc := range map[string]struct {
		flexible bool
		input    string
		read     func(*Coder)
		want     error
	}{
		"empty int32":                      {false, "", func(c *Coder) { var v int32; c.Int32(&v) }, ErrShort},
		"null string":                      {false, "ffff", str, ErrNull},
		"compact null string":              {true, "00", str, ErrNull},
		"string of -2":                     {false, "fffe", nullable, ErrLength},
		"string past the end":              {false, "0003 6161", str, ErrShort},
		"compact string past the end":      {true, "04 6161", str, ErrShort},
		"compact string of 32768":          {true, "818002", str, ErrLength},
		"compact string of 2^32-2":         {true, "ffffffff0f", nullable, ErrLength},
		"null bytes":                       {false, "ffffffff", byteField, ErrNull},
		"compact null bytes":               {true, "00", byteField, ErrNull},
		"bytes of -2":                      {false, "fffffffe", byteField, ErrLength},
		"compact bytes of 2^32-2":          {true, "ffffffff0f", byteField, ErrLength},
		"bytes of 2^31-1":                  {false, "7fffffff", byteField, ErrShort},
		"null array":                       {false, "ffffffff", ints, ErrNull},
		"compact null array":               {true, "00", ints, ErrNull},
		"array of 1,000,001":               {false, "000f4241", ints, ErrLength},
		"array of a million":               {false, "000f4240 00", ints, ErrShort},
		"array of 2^31-1":                  {false, "7fffffff", ints, ErrLength},
		"array of three, one there":        {false, "00000003 00000001", ints, ErrShort},
		"uvarint of five bytes, too large": {false, "ffffffff1f", uvarint, ErrVarint},
		"uvarint of six bytes":             {false, "808080808001", uvarint, ErrVarint},
		"uvarint without end":              {false, "ffffffffffffffffffffffff", uvarint, ErrVarint},
		"uvarint of five bytes, no end":    {false, "8080808080", uvarint, ErrVarint},
		"uvarint cut short":                {false, "8080", uvarint, ErrShort},
		"uvarlong, too large":              {false, "ffffffffffffffffff02", uvarlong, ErrVarint},
		"uvarlong without end":             {false, strings.Repeat("ff", 11), uvarlong, ErrVarint},
		"uvarlong of ten bytes, no end":    {false, strings.Repeat("80", 10), uvarlong, ErrVarint},
		"uvarlong cut short":               {false, "8080", uvarlong, ErrShort},
		"10,001 tags":                      {true, "914e", tags, ErrTags},
		"2^32-1 tags":                      {true, "ffffffff0f", tags, ErrTags},
		"a tag missing":                    {true, "02 05 00", tags, ErrShort},
		"a tag past the end":               {true, "01 05 02 00", tags, ErrShort},
		"a tag of 2^32-1 bytes":            {true, "01 05 ffffffff0f", tags, ErrShort},
		"a tag twice":                      {true, "02 05 00 05 00", tags, ErrTags},
		"tags descending":                  {true, "02 05 00 04 00", tags, ErrTags},
		"a known tag with a byte more":     {true, "01 03 05 00000001 00", known, ErrTags},
		"a known tag with a byte less":     {true, "01 03 03 00000001", known, ErrShort},
		"a byte left":                      {true, "00 00", func(c *Coder) { c.Tags(); _ = c.End() }, ErrTrailing},
	} {
		if _, err := one(t, tc.input, tc.flexible, tc.read); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

// TestAccepted holds forms that are odd but legal.
func TestAccepted(t *testing.T) {
	for name, tc := range map[string]struct {
		flexible bool
		input    string
		read     func(*Coder)
	}{
		"a padded varint":          {false, "8000", func(c *Coder) { var v uint32; c.Uvarint(&v) }},
		"a uvarint of 2^32-1":      {false, "ffffffff0f", func(c *Coder) { var v uint32; c.Uvarint(&v) }},
		"a uvarlong of 2^64-1":     {false, "ffffffffffffffffff01", func(c *Coder) { var v uint64; c.Uvarlong(&v) }},
		"a tag of 2^32-1":          {true, "02 03 00 ffffffff0f 01 aa", func(c *Coder) { c.Tags() }},
		"10,000 tags":              {true, "904e" + tenThousandTags(), func(c *Coder) { c.Tags() }},
		"a bool of 2":              {false, "02", func(c *Coder) { var v bool; c.Bool(&v) }},
		"tags that are not there":  {false, "", func(c *Coder) { c.Tags() }},
		"unknown among known tags": {true, "03 00 07 02 61 00000001 00 01 01 ff 03 04 00000009", func(c *Coder) { var e everything; Tagged(c, &e, 0, codeEverythingTag) }},
	} {
		read, err := one(t, tc.input, tc.flexible, tc.read)
		if all := len(strings.ReplaceAll(tc.input, " ", "")) / 2; err != nil || read != all {
			t.Errorf("%s: %v, read %d of %d", name, err, read, all)
		}
	}
}

func tenThousandTags() string {
	w := NewWriter(nil)
	for tag := range uint32(10_000) {
		w.Uvarint(&tag)
		zero := uint32(0)
		w.Uvarint(&zero)
	}
	return hex.EncodeToString(w.Bytes())
}

// TestErrorSticks: after an error nothing is read and nothing changes, and the
// first error is the one that is told.
func TestErrorSticks(t *testing.T) {
	for _, flexible := range []bool{false, true} {
		c := NewReader(bytes.Repeat([]byte{0x01}, 4096), 1<<20).Flexible(flexible)
		var id [16]byte
		c.UUID(&id)
		c.Fail(ErrNull)
		got, want := sample(), sample()
		got.code(c)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("flexible %v: a Coder with an error changed its message\n got %+v\nwant %+v", flexible, got, want)
		}
		var codecErr *Error
		if !errors.As(c.Err(), &codecErr) || !errors.Is(c.Err(), ErrNull) || codecErr.Offset != 16 {
			t.Errorf("the first error became %v", c.Err())
		}
	}
}

func TestWriteErrors(t *testing.T) {
	long := strings.Repeat("x", 1<<15)
	for name, write := range map[string]func(*Coder){
		"long string":          func(c *Coder) { c.String(&long) },
		"long nullable string": func(c *Coder) { p := &long; c.NullableString(&p) },
		"long array":           func(c *Coder) { v := make([]int32, 1_000_001); c.Int32s(&v) },
	} {
		for _, flexible := range []bool{false, true} {
			c := NewWriter(nil).Flexible(flexible)
			if write(c); !errors.Is(c.Err(), ErrLength) {
				t.Errorf("%s, flexible %v: %v", name, flexible, c.Err())
			}
		}
	}
	c := NewWriter(nil)
	var absent *string
	if c.PresentString(&absent); !errors.Is(c.Err(), ErrNull) {
		t.Errorf("an absent string was written: %v", c.Err())
	}
	c = NewWriter(nil)
	var none *pair
	if Struct(c, &none, 24, codePair); !errors.Is(c.Err(), ErrNull) {
		t.Errorf("an absent struct was written: %v", c.Err())
	}
}

// TestBudget: what is allocated is charged first, and a message that asks for more
// is refused before it gets it.
func TestBudget(t *testing.T) {
	w := NewWriter(nil)
	many := make([]pair, 5000)
	ArrayOf(w, &many, 24, codePair)
	read := func(budget int) error {
		var v []pair
		c := NewReader(w.Bytes(), budget)
		ArrayOf(c, &v, 24, codePair)
		return c.Err()
	}
	least := 128*24 + 128*24/8 + 8 + 5000*24 + 8<<10
	if err := read(least); err != nil {
		t.Errorf("with %d bytes: %v", least, err)
	}
	if err := read(least - 1); !errors.Is(err, ErrBudget) {
		t.Errorf("with %d bytes: %v", least-1, err)
	}
	s := strings.Repeat("s", 100)
	w = NewWriter(nil)
	w.String(&s)
	for budget, want := range map[int]error{111: ErrBudget, 112: nil} {
		var v string
		c := NewReader(w.Bytes(), budget)
		if c.String(&v); !errors.Is(c.Err(), want) {
			t.Errorf("a string of 100 bytes with %d bytes: %v", budget, c.Err())
		}
	}
	c := NewReader([]byte{0, 0, 1, 0, 1, 2, 3}, 0)
	var ints []int32
	if c.Int32s(&ints); !errors.Is(c.Err(), ErrShort) {
		t.Errorf("a count above the bytes that remain is refused before it is charged: %v", c.Err())
	}
	record := bytes.Repeat([]byte{1}, 1<<20)
	w = NewWriter(nil)
	w.Bytes32(&record)
	var v []byte
	c = NewReader(w.Bytes(), 0)
	if c.Bytes32(&v); c.Err() != nil || len(v) != 1<<20 {
		t.Errorf("byte fields alias the input and so cost nothing: %v", c.Err())
	}
}

// TestChargeCoversAllocation: the budget is charged at least what the runtime
// really allocates, and not much more.
func TestChargeCoversAllocation(t *testing.T) {
	seeds.Alone(t)
	if raceDetector {
		t.Skip("the race detector allocates for itself")
	}
	const budget = 1 << 30
	check := func(name string, n int, write, read func(c *Coder)) {
		t.Helper()
		w := NewWriter(nil)
		write(w)
		var charged uint64
		real := allocated64(0, func() {
			c := NewReader(w.Bytes(), budget)
			read(c)
			if c.Err() != nil {
				t.Fatalf("%s of %d: %v", name, n, c.Err())
			}
			charged = budget - uint64(c.budget)
		})
		const coder = 512 // the Coder itself, and what the test's closures take
		if real > charged+coder || charged > real+real/3+16<<10 {
			t.Errorf("%s of %d: charged %d, allocated %d", name, n, charged, real)
		}
	}
	for n := range 70 {
		texts := make([]string, 5000)
		for i := range texts {
			texts[i] = strings.Repeat("x", n)
		}
		check("strings", n, func(c *Coder) { c.Strings(&texts) }, func(c *Coder) { var v []string; c.Strings(&v) })
		check("nullable strings", n, func(c *Coder) { Array(c, &texts, (*Coder).String) }, func(c *Coder) {
			var v []*string
			ArrayOf(c, &v, 8, (*Coder).NullableString)
		})
	}
	for n := 1; n < 200_000; n = n*5/4 + 1 {
		longs := make([]int64, n)
		check("int64s", n, func(c *Coder) { c.Int64s(&longs) }, func(c *Coder) { var v []int64; c.Int64s(&v) })
		lists := [][]int64{longs[:min(n, 100)], longs[:min(n, 100)]}
		many := make([][]int64, 0, 200)
		for range 100 {
			many = append(many, lists...)
		}
		check("lists", n, func(c *Coder) { ArrayOf(c, &many, 24, (*Coder).Int64s) }, func(c *Coder) {
			var v [][]int64
			ArrayOf(c, &v, 24, (*Coder).Int64s)
		})
	}
}

// TestGrowth: arrays longer than what is allocated at first arrive whole.
func TestGrowth(t *testing.T) {
	for _, n := range []int{0, 1, preallocate - 1, preallocate, preallocate + 1, 2500} {
		want := make([]int32, n)
		for i := range want {
			want[i] = int32(i)
		}
		w := NewWriter(nil)
		w.Int32s(&want)
		var got []int32
		c := NewReader(w.Bytes(), 1<<20)
		c.Int32s(&got)
		if c.End() != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%d elements: got %d, %v", n, len(got), c.Err())
		}
	}
}

// TestBrokenInvariants: misuse by our own code panics.
func TestBrokenInvariants(t *testing.T) {
	for name, misuse := range map[string]func(){
		"a gap while reading": func() { NewReader(nil, 0).Gap(1) },
		"a negative gap":      func() { NewWriter(nil).Gap(-1) },
		"a tag that is present but not known": func() {
			Tagged(NewWriter(nil).Flexible(true), &pair{}, TagSet(0).With(9, true), func(*Coder, *pair, uint32) bool { return false })
		},
	} {
		func() {
			defer func() {
				if r := recover(); r == nil || !strings.HasPrefix(r.(string), "BUG: codec: ") {
					t.Errorf("%s: recovered %v", name, r)
				}
			}()
			misuse()
		}()
	}
}
