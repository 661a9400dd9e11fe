package wire

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/weirmq/weir/wire/codec"
)

// bound is what decoding n bytes may allocate, budget and all.
func bound(n int) uint64 { return 4*uint64(n) + 64<<10 }

// allocates gives the bytes that fn allocates: the least of a few tries, since
// others allocate in the same process.
func allocates(limit uint64, fn func()) uint64 {
	least := ^uint64(0)
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

// golden gives the bodies of one kind in the golden file of a version.
func golden(t testing.TB, a API, v int16, kind string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", strconv.Itoa(int(a.Key)), fmt.Sprintf("%d.hex", v)))
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for paragraph := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		if k, rest, _ := strings.Cut(paragraph, "\n"); k == kind {
			out = append(out, unhex(t, rest))
		}
	}
	return out
}

// pick turns two fuzzed bytes into an API and one of its versions.
func pick(key, version uint8) (API, int16) {
	all := APIs()
	a := all[int(key)%len(all)]
	return a, a.Min + int16(version)%(a.Max-a.Min+1)
}

// seed adds the golden bodies of every API and version, whole and cut.
func seed(f *testing.F, kind string) {
	for i, a := range APIs() {
		for v := a.Min; v <= a.Max; v++ {
			for _, body := range golden(f, a, v, kind) {
				f.Add(uint8(i), uint8(v-a.Min), body)
				f.Add(uint8(i), uint8(v-a.Min), body[:len(body)*2/3])
			}
		}
	}
	f.Add(uint8(3), uint8(1), []byte{0x03, 0x37, 0xf9, 0x80})
	f.Add(uint8(3), uint8(9), []byte{0xff, 0xff, 0xff, 0xff, 0x07})
}

// FuzzDecodeRequest: no body of any key and version makes decoding panic or
// allocate more than its bound, and what decodes survives a round trip.
func FuzzDecodeRequest(f *testing.F) {
	seed(f, "request")
	f.Fuzz(func(t *testing.T, key, version uint8, body []byte) {
		a, v := pick(key, version)
		frame, err := EncodeRequest(nil, RequestHeader{Key: a.Key, Version: v}, &raw{key: a.Key, body: body})
		if err != nil {
			t.Fatal(err)
		}
		frame = frame[FramePrefix:]
		var req Request
		limit := bound(len(frame))
		n := allocates(limit, func() { _, req, err = decode(frame) })
		if n >= limit {
			t.Errorf("%s %d: decoding %d bytes allocated %d, bound %d", a.Name, v, len(frame), n, limit)
		}
		checkOutcome(t, a, v, req, err, func() Message { return a.NewRequest() })
	})
}

// FuzzDecodeResponse is the same for responses.
func FuzzDecodeResponse(f *testing.F) {
	seed(f, "response")
	f.Fuzz(func(t *testing.T, key, version uint8, body []byte) {
		a, v := pick(key, version)
		frame, _, err := EncodeResponse(nil, ResponseHead{Key: a.Key, Version: v}, &raw{key: a.Key, body: body})
		if err != nil {
			t.Fatal(err)
		}
		frame = frame[FramePrefix:]
		var resp Response
		limit := bound(len(frame))
		n := allocates(limit, func() { _, resp, err = DecodeResponse(frame, a.Key, v, codec.Budget(len(frame))) })
		if n >= limit {
			t.Errorf("%s %d: decoding %d bytes allocated %d, bound %d", a.Name, v, len(frame), n, limit)
		}
		checkOutcome(t, a, v, resp, err, func() Message { return a.NewResponse() })
	})
}

// raw is a message whose body is given as bytes.
type raw struct {
	key  Key
	body []byte
}

func (r *raw) Key() Key            { return r.key }
func (r *raw) code(c *codec.Coder) { c.Rest(&r.body) }

// checkOutcome: a decoding either ends in a malformed error, or in a message that
// encodes and decodes to itself.
func checkOutcome(t *testing.T, a API, v int16, m Message, err error, fresh func() Message) {
	t.Helper()
	var malformed *MalformedError
	if err != nil {
		if !errors.As(err, &malformed) {
			t.Errorf("%s %d: %v", a.Name, v, err)
		}
		return
	}
	fresh1, fresh2 := fresh(), fresh()
	decodeBody(t, a, v, fresh1, encodeBody(t, a, v, m))
	decodeBody(t, a, v, fresh2, encodeBody(t, a, v, fresh1))
	if !reflect.DeepEqual(fresh1, fresh2) {
		t.Errorf("%s %d:\n got %+v\nwant %+v", a.Name, v, fresh2, fresh1)
	}
}

// FuzzHeader: whole frames, whose key and version are the fuzzer's too.
func FuzzHeader(f *testing.F) {
	for _, text := range []string{
		"", "00", "0012 0000 00000001", "0012 0000 00000001 0001 61", "0012 0003 00000001 0001 61 00 0261 0261 00",
		"0012 7fff 00000001 0001 61", "0012 ffff 00000001", "7fff 0000 00000001 ffff", "0003 0009 00000001 ffff 01 00 01 61 01 00 00 00",
		"0003 0001 00000000 ffff 0337f980", "0000 0002 00000000 ffff", "0007 0000 00000000 00000001",
	} {
		f.Add(unhex(f, text))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		var (
			h   RequestHeader
			req Request
			err error
		)
		limit := bound(len(frame))
		if n := allocates(limit, func() { h, req, err = decode(frame) }); n >= limit {
			t.Errorf("decoding %d bytes allocated %d, bound %d", len(frame), n, limit)
		}
		var unsupported *UnsupportedError
		a, known := Lookup(h.Key)
		switch {
		case errors.As(err, &unsupported):
			if known && a.Supports(h.Version) {
				t.Errorf("%v, but the table has it", err)
			}
		case err == nil:
			back, encodeErr := EncodeRequest(nil, h, req)
			if encodeErr != nil {
				t.Fatalf("encode what was decoded: %v", encodeErr)
			}
			h2, _, decodeErr := decode(back[FramePrefix:])
			if decodeErr != nil || !reflect.DeepEqual(h, h2) {
				t.Errorf("header %+v came back as %+v, %v", h, h2, decodeErr)
			}
		}
	})
}
