package send

import (
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// drained is a connection whose other end reads all it can.
func drained(b *testing.B) net.Conn {
	c := loopback(b, 0)
	go func() {
		p := make([]byte, 256<<10)
		for {
			if _, err := io.ReadFull(c.client, p); err != nil {
				return
			}
		}
	}()
	return c.server
}

// cpu is the processor time this process has used, in and out of the kernel.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchmark sends responses of count ranges of size bytes each. The CPU time is
// that of both ends, and loopback's own.
func benchmark(b *testing.B, count, size int, onlyCopy bool) {
	f := onDiskB(b, count*size)
	c := drained(b)
	head := make([]byte, 100*(count+1))
	var (
		holes []Hole
		rs    []*ranged
	)
	for i := range count {
		holes = append(holes, Hole{At: 100 * (i + 1), Size: size})
		rs = append(rs, &ranged{f: f, pos: int64(i * size), n: size, onlyCopy: onlyCopy})
	}
	b.SetBytes(int64(count * size))
	b.ReportAllocs()
	before := cpu(b)
	for b.Loop() {
		if err := respond(c, head, holes, patient, rs...); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((cpu(b)-before).Seconds()/(float64(b.N)*float64(count*size)/1e9), "cpu-s/GB")
}

func onDiskB(b *testing.B, size int) *os.File {
	f := onDisk(b, nil)
	for written := 0; written < size; {
		n, err := f.Write(make([]byte, min(size-written, 1<<20)))
		if err != nil {
			b.Fatal(err)
		}
		written += n
	}
	return f
}

func BenchmarkResponse(b *testing.B) {
	for _, shape := range []struct{ count, size int }{
		{1, 1 << 10}, {1, 8 << 10}, {1, 16 << 10}, {1, 32 << 10}, {1, 64 << 10}, {1, 256 << 10}, {1, 1 << 20}, {1, 16 << 20},
		{10, 4 << 10}, {10, 16 << 10}, {10, 64 << 10}, {50, 1 << 20},
	} {
		for _, way := range []string{"send", "copy"} {
			b.Run(fmt.Sprintf("%s/%dx%dKiB", way, shape.count, shape.size>>10), func(b *testing.B) {
				benchmark(b, shape.count, shape.size, way == "copy")
			})
		}
	}
}
