package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"
)

var codecs = []Codec{None, Gzip, Snappy, LZ4, Zstd}

// samples are inputs of every shape that matters to a codec.
func samples() map[string][]byte {
	noise := make([]byte, 200_000)
	x := uint64(88172645463325252)
	for i := range noise {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		noise[i] = byte(x)
	}
	return map[string][]byte{
		"empty": {},
		"byte":  {7},
		"text":  []byte(strings.Repeat("the broker keeps what it has acknowledged. ", 3000)),
		"zeros": make([]byte, 1<<20),
		"noise": noise,
	}
}

func TestRoundTrip(t *testing.T) {
	for _, codec := range codecs {
		for name, src := range samples() {
			t.Run(fmt.Sprintf("%s/%s", codec, name), func(t *testing.T) {
				small, err := Deflate(codec, []byte("ab"), src, 0)
				if err != nil {
					t.Fatal(err)
				}
				if string(small[:2]) != "ab" {
					t.Fatalf("Deflate overwrote dst: %q", small[:2])
				}
				got, err := Inflate(codec, []byte("xyz"), small[2:], len(src))
				if err != nil {
					t.Fatalf("inflate at the exact limit: %v", err)
				}
				if string(got[:3]) != "xyz" || !bytes.Equal(got[3:], src) {
					t.Fatalf("got %d bytes, want %d, or other content", len(got)-3, len(src))
				}
				if len(src) == 0 {
					return
				}
				if p, err := Inflate(codec, nil, small[2:], len(src)-1); !errors.Is(err, ErrTooLarge) || p != nil {
					t.Fatalf("one byte below the size: got %d bytes, error %v, want ErrTooLarge", len(p), err)
				}
			})
		}
	}
}

func TestRoundTripProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		codec := rapid.SampledFrom(codecs).Draw(t, "codec")
		piece := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "piece")
		src := bytes.Repeat(piece, rapid.IntRange(1, 2000).Draw(t, "times"))
		level := rapid.IntRange(0, 9).Draw(t, "level")
		small, err := Deflate(codec, nil, src, level)
		if err != nil {
			t.Fatal(err)
		}
		spare := rapid.IntRange(0, 5000).Draw(t, "spare")
		got, err := Inflate(codec, make([]byte, 0, spare), small, len(src)+spare)
		if err != nil || !bytes.Equal(got, src) {
			t.Fatalf("got %d bytes, error %v, want the %d bytes of the source", len(got), err, len(src))
		}
	})
}

func TestLevels(t *testing.T) {
	src := samples()["text"]
	for _, codec := range []Codec{Gzip, LZ4, Zstd} {
		for _, level := range []int{1, 3, 9} {
			small, err := Deflate(codec, nil, src, level)
			if err != nil {
				t.Fatalf("%s at level %d: %v", codec, level, err)
			}
			if got, err := Inflate(codec, nil, small, len(src)); err != nil || !bytes.Equal(got, src) {
				t.Errorf("%s at level %d does not round trip: %v", codec, level, err)
			}
		}
		if codec == Zstd {
			continue // takes any level and chooses the nearest it has
		}
		if _, err := Deflate(codec, nil, src, 77); err == nil {
			t.Errorf("%s took level 77", codec)
		}
	}
}

// TestClientReads has a client's library read what we write, and the other way round.
func TestClientReads(t *testing.T) {
	client := kgo.DefaultDecompressor()
	for codec, option := range map[Codec]kgo.CompressionCodec{
		Gzip: kgo.GzipCompression(), Snappy: kgo.SnappyCompression(), LZ4: kgo.Lz4Compression(), Zstd: kgo.ZstdCompression(),
	} {
		compressor, err := kgo.DefaultCompressor(option)
		if err != nil {
			t.Fatal(err)
		}
		for name, src := range samples() {
			ours, err := Deflate(codec, nil, src, 0)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := client.Decompress(ours, kgo.CompressionCodecType(codec)); err != nil || !bytes.Equal(got, src) {
				t.Errorf("%s/%s: the client reads %d bytes of ours, error %v", codec, name, len(got), err)
			}
			theirs, used := compressor.Compress(new(bytes.Buffer), src)
			if used != kgo.CompressionCodecType(codec) {
				t.Fatalf("%s/%s: the client used codec %d", codec, name, used)
			}
			if got, err := Inflate(codec, nil, theirs, len(src)); err != nil || !bytes.Equal(got, src) {
				t.Errorf("%s/%s: we read %d bytes of the client's, error %v", codec, name, len(got), err)
			}
		}
	}
}

// xerial frames blocks as the Java library does.
func xerial(blocks ...[]byte) []byte {
	p := append([]byte(xerialMagic), 0, 0, 0, 1, 0, 0, 0, 1)
	for _, b := range blocks {
		p = binary.BigEndian.AppendUint32(p, uint32(len(b)))
		p = append(p, b...)
	}
	return p
}

func TestXerial(t *testing.T) {
	src := samples()["text"]
	var blocks [][]byte
	for rest := src; len(rest) > 0; {
		n := min(32<<10, len(rest))
		blocks = append(blocks, snapped(nil, rest[:n]))
		rest = rest[n:]
	}
	framed := xerial(blocks...)
	if got, err := Inflate(Snappy, nil, framed, len(src)); err != nil || !bytes.Equal(got, src) {
		t.Fatalf("got %d bytes, error %v", len(got), err)
	}
	if _, err := Inflate(Snappy, nil, framed, len(src)-1); !errors.Is(err, ErrTooLarge) {
		t.Errorf("below the size: %v", err)
	}
	if got, err := Inflate(Snappy, nil, xerial(), 10); err != nil || len(got) != 0 {
		t.Errorf("a frame without blocks: %d bytes, error %v", len(got), err)
	}
}

// TestZstdStream has frames without a content size, as the Java client writes
// them, which shrink so well that the first guesses at a buffer are too small.
func TestZstdStream(t *testing.T) {
	src := bytes.Repeat(samples()["text"], 40)
	for _, frames := range []int{1, 3} {
		var small bytes.Buffer
		for range frames {
			w, err := zstd.NewWriter(&small, zstd.WithEncoderConcurrency(1))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(w, bytes.NewReader(src)); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		}
		want := bytes.Repeat(src, frames)
		for _, limit := range []int{len(want), len(want) + 1, 1 << 30} {
			got, err := Inflate(Zstd, []byte("ab"), small.Bytes(), limit)
			if err != nil || !bytes.Equal(got[2:], want) {
				t.Errorf("%d frames, limit %d: got %d bytes, error %v, want %d", frames, limit, len(got), err, len(want))
			}
			if cap(got) > 8*len(want) {
				t.Errorf("%d frames, limit %d: room for %d bytes to hold %d", frames, limit, cap(got), len(want))
			}
		}
		if _, err := Inflate(Zstd, nil, small.Bytes(), len(want)-1); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%d frames, below the size: %v", frames, err)
		}
	}
}

// TestRoomIsUsed gives every codec all the room it may fill: it must not make more.
func TestRoomIsUsed(t *testing.T) {
	src := samples()["text"]
	var stream bytes.Buffer
	w, err := zstd.NewWriter(&stream, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(w, bytes.NewReader(src)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	inputs := map[string][]byte{"zstd without a size": stream.Bytes()}
	for _, codec := range codecs {
		if inputs[codec.String()], err = Deflate(codec, nil, src, 0); err != nil {
			t.Fatal(err)
		}
	}
	for name, small := range inputs {
		codec := Zstd
		for _, c := range codecs {
			if c.String() == name {
				codec = c
			}
		}
		for _, limit := range []int{len(src) - 1, len(src) / 2, len(src), len(src) + 1} {
			dst := make([]byte, limit)
			p, err := Inflate(codec, dst[:0:limit], small, limit)
			if limit < len(src) {
				if !errors.Is(err, ErrTooLarge) {
					t.Errorf("%s, limit %d of %d: got %v, want ErrTooLarge", name, limit, len(src), err)
				}
				continue
			}
			if err != nil || !bytes.Equal(p, src) || &p[0] != &dst[0] {
				t.Errorf("%s, limit %d of %d: got %d bytes, error %v, or another buffer", name, limit, len(src), len(p), err)
			}
		}
	}
}

func TestUnknownCodec(t *testing.T) {
	for _, codec := range []Codec{-1, 5, 127} {
		if _, err := Inflate(codec, nil, nil, 1); !errors.Is(err, ErrUnknownCodec) {
			t.Errorf("Inflate with %d: %v", codec, err)
		}
		if _, err := Deflate(codec, nil, nil, 0); !errors.Is(err, ErrUnknownCodec) {
			t.Errorf("Deflate with %d: %v", codec, err)
		}
	}
}

func BenchmarkInflate(b *testing.B) {
	src := samples()["text"]
	for _, codec := range codecs {
		small, err := Deflate(codec, nil, src, 0)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(codec.String(), func(b *testing.B) {
			dst := make([]byte, 0, len(src)+1)
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Inflate(codec, dst, small, len(src)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
