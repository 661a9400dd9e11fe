package compress

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/klauspost/compress/s2"

	"github.com/weirmq/weir/integration/seeds"
)

const testLimit = 1 << 20

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func bomb(t *testing.T, codec Codec) []byte {
	t.Helper()
	p, err := Deflate(codec, nil, make([]byte, 64<<20), 0)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func nested(t *testing.T) []byte {
	t.Helper()
	p, err := Deflate(Gzip, nil, bomb(t, Gzip), 0)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// zstdFrame is a frame header with a window of 2^(10+exponent) bytes and no
// content size, followed by blocks.
func zstdFrame(exponent byte, blocks ...[]byte) []byte {
	p := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, exponent << 3}
	for _, b := range blocks {
		p = append(p, b...)
	}
	return p
}

// rle is a block that repeats one byte; a block begins with 1 bit last, 2 bits
// kind, 21 bits size.
func rle(size uint32, last uint32) []byte {
	v := last | 1<<1 | size<<3
	return []byte{byte(v), byte(v >> 8), byte(v >> 16), 'x'}
}

// sized is a frame that declares its content size in 8 bytes and holds little.
func sized(size uint64) []byte {
	p := []byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0}
	p = binary.LittleEndian.AppendUint64(p, size)
	return append(p, rle(5, 1)...)
}

func skippable(times int, size uint32) []byte {
	var p []byte
	for range times {
		p = binary.LittleEndian.AppendUint32(p, 0x184D2A50)
		p = binary.LittleEndian.AppendUint32(p, size)
		p = append(p, make([]byte, min(size, 4))...)
	}
	return p
}

// lz4Frame is a frame header for blocks of 4 MiB without a content size, and body.
func lz4Frame(body ...byte) []byte {
	var w bytes.Buffer
	small, _ := Deflate(LZ4, nil, nil, 0)
	w.Write(small[:4])
	w.Write([]byte{0x60, 0x70, 0x73}) // independent blocks, 4 MiB, checksum of these two
	w.Write(body)
	return w.Bytes()
}

func lz4Literal(n int) []byte {
	p := binary.LittleEndian.AppendUint32(nil, uint32(n)|1<<31)
	return append(p, make([]byte, n)...)
}

// TestHostile feeds each decoder what would make a careless one run away.
func TestHostile(t *testing.T) {
	seeds.Alone(t)
	tooLarge, corrupt := true, false
	endless := bytes.Repeat(rle(128<<10-1, 0), 3000)
	for _, c := range []struct {
		name  string
		codec Codec
		src   []byte
		large bool
	}{
		{"gzip bomb", Gzip, bomb(t, Gzip), tooLarge},
		{"gzip bomb of many members", Gzip, bytes.Repeat(bomb(t, Gzip), 3), tooLarge},
		{"gzip empty", Gzip, nil, corrupt},
		{"gzip cut", Gzip, bomb(t, Gzip)[:700], corrupt},
		{"gzip garbage", Gzip, []byte("this is not gzip at all"), corrupt},
		{"snappy bomb", Snappy, bomb(t, Snappy), tooLarge},
		{"snappy empty", Snappy, nil, corrupt},
		{"snappy length of 4 GiB", Snappy, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0}, corrupt},
		{"snappy length beyond its ratio", Snappy, []byte{0x80, 0x80, 0x20, 0, 0}, corrupt},
		{"snappy endless varint", Snappy, bytes.Repeat([]byte{0xff}, 40), corrupt},
		{"s2 repeats", Snappy, s2.Encode(nil, make([]byte, 512<<10)), corrupt},
		{"xerial block of 0x7fffffff", Snappy, append(xerial(), 0x7f, 0xff, 0xff, 0xff, 1), corrupt},
		{"xerial block of 0xffffffff", Snappy, append(xerial(), 0xff, 0xff, 0xff, 0xff, 1), corrupt},
		{"xerial cut length", Snappy, append(xerial(), 0, 0), corrupt},
		{"xerial empty block", Snappy, xerial(nil), corrupt},
		{"xerial in xerial", Snappy, xerial(xerial([]byte{1, 0, 'a'})), corrupt},
		{"lz4 bomb", LZ4, bomb(t, LZ4), tooLarge},
		{"lz4 no end mark", LZ4, lz4Frame(lz4Literal(100)...), corrupt},
		{"lz4 block above the frame's size", LZ4, lz4Frame(0xff, 0xff, 0xff, 0x7f, 1), corrupt},
		{"lz4 header only", LZ4, lz4Frame(), corrupt},
		{"lz4 skippable frames", LZ4, skippable(100_000, 0), corrupt},
		{"lz4 legacy", LZ4, []byte{0x02, 0x21, 0x4c, 0x18, 0, 0, 0, 0}, corrupt},
		{"lz4 empty", LZ4, nil, corrupt},
		{"zstd bomb", Zstd, bomb(t, Zstd), tooLarge},
		{"zstd declares less than it holds", Zstd, append(sized(5), bytes.Repeat(sized(100_000), 20)...), corrupt},
		{"zstd many frames", Zstd, bytes.Repeat(zstdFrame(10, rle(100_000, 1)), 20), tooLarge},
		{"zstd endless blocks", Zstd, zstdFrame(10, endless), tooLarge},
		{"zstd window of 2 GiB", Zstd, zstdFrame(21, rle(5, 1)), corrupt},
		{"zstd window of 1 TiB", Zstd, zstdFrame(30, rle(5, 1)), corrupt},
		{"zstd declares 2^60 bytes", Zstd, sized(1 << 60), tooLarge},
		{"zstd declares more than it holds", Zstd, sized(900_000), corrupt},
		{"zstd declares nothing and holds some", Zstd, sized(0), corrupt},
		{"zstd first block bad", Zstd, zstdFrame(10, []byte{0x45, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}), corrupt},
		{"zstd skippable past the end", Zstd, skippable(1, 0xffffffff), corrupt},
		{"zstd garbage", Zstd, []byte("nothing of the kind"), corrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			var (
				p   []byte
				err error
			)
			spent := allocated(func() { p, err = Inflate(c.codec, nil, c.src, testLimit) })
			if p != nil {
				t.Errorf("got %d bytes beside the error", len(p))
			}
			var bad *CorruptError
			switch {
			case c.large && !errors.Is(err, ErrTooLarge):
				t.Errorf("got %v, want ErrTooLarge", err)
			case !c.large && !errors.As(err, &bad):
				t.Errorf("got %v, want a CorruptError", err)
			}
			if most := uint64(20 << 20); spent > most {
				t.Errorf("allocated %d bytes, more than %d", spent, most)
			}
		})
	}
}

// TestHostileButValid is odd input that is within the format, and must end soon.
func TestHostileButValid(t *testing.T) {
	seeds.Alone(t)
	var members bytes.Buffer
	for range 10_000 {
		w := gzip.NewWriter(&members)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name  string
		codec Codec
		src   []byte
		want  int
	}{
		{"gzip of gzip is opened once", Gzip, nested(t), len(bomb(t, Gzip))},
		{"ten thousand empty gzip members", Gzip, members.Bytes(), 0},
		{"skippable zstd frames", Zstd, skippable(100_000, 4), 0},
		{"small zstd frame with a window of 128 MiB", Zstd, zstdFrame(17, rle(5, 1)), 5},
		{"lz4 with blocks of 4 MiB", LZ4, lz4Frame(append(lz4Literal(100), 0, 0, 0, 0)...), 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			var (
				p   []byte
				err error
			)
			spent := allocated(func() { p, err = Inflate(c.codec, nil, c.src, testLimit) })
			if err != nil || len(p) != c.want {
				t.Errorf("got %d bytes, error %v, want %d", len(p), err, c.want)
			}
			if most := uint64(20 << 20); spent > most {
				t.Errorf("allocated %d bytes, more than %d", spent, most)
			}
		})
	}
}

// FuzzInflate checks that no input panics or passes the limit, and that whatever
// is read can be written and read again.
func FuzzInflate(f *testing.F) {
	for _, codec := range codecs {
		for _, src := range [][]byte{nil, []byte("abcabcabcabcabcabcabc"), make([]byte, 3000)} {
			p, err := Deflate(codec, nil, src, 0)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(int8(codec), p, 4096)
		}
	}
	f.Add(int8(Snappy), xerial([]byte{1, 0, 'a'}), 10)
	f.Add(int8(Zstd), zstdFrame(17, rle(5, 1)), 10)
	f.Add(int8(Zstd), sized(100), 1000)
	f.Add(int8(LZ4), lz4Frame(lz4Literal(10)...), 100)
	f.Fuzz(func(t *testing.T, codec int8, src []byte, limit int) {
		limit %= testLimit
		p, err := Inflate(Codec(codec), nil, src, limit)
		if err != nil {
			var bad *CorruptError
			if !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrUnknownCodec) && !errors.As(err, &bad) {
				t.Fatalf("an error of no known kind: %v", err)
			}
			return
		}
		if len(p) > max(limit, 0) {
			t.Fatalf("%d bytes with a limit of %d", len(p), limit)
		}
		again, err := Deflate(Codec(codec), nil, p, 0)
		if err != nil {
			t.Fatal(err)
		}
		if q, err := Inflate(Codec(codec), nil, again, len(p)); err != nil || !bytes.Equal(p, q) {
			t.Fatalf("%d bytes do not round trip: %v", len(p), err)
		}
	})
}
