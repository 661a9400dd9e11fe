package storage

import (
	"fmt"
	"testing"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

func benchDir(b *testing.B) *Dir {
	b.Helper()
	o := DefaultOptions()
	o.FlushInterval = 0
	d, err := OpenDir(vfs.OS(), b.TempDir(), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := d.Close(nil); err != nil {
			b.Error(err)
		}
	})
	return d
}

var benchSizes = []struct {
	name string
	size int
}{{"1KiB", 1 << 10}, {"1MiB", 1 << 20}}

// refill keeps a benchmark from filling the disk.
func refill(b *testing.B, l *Log) {
	if l.Size() < 2<<30 {
		return
	}
	b.StopTimer()
	if err := l.ResetTo(0); err != nil {
		b.Fatal(err)
	}
	l.d.reap()
	b.StartTimer()
}

func BenchmarkAppendLeader(b *testing.B) {
	for _, s := range benchSizes {
		b.Run(s.name, func(b *testing.B) {
			l := mustCreate(b, benchDir(b), "t", 0)
			rec := makeBatch(1, 1000, s.size)
			b.SetBytes(int64(len(rec)))
			b.ReportAllocs()
			for b.Loop() {
				refill(b, l)
				if _, err := l.AppendLeader(rec, 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendReplica(b *testing.B) {
	for _, s := range benchSizes {
		b.Run(s.name, func(b *testing.B) {
			l := mustCreate(b, benchDir(b), "t", 0)
			rec := makeBatch(1, 1000, s.size)
			b.SetBytes(int64(len(rec)))
			b.ReportAllocs()
			for b.Loop() {
				refill(b, l)
				rec.Assign(l.End(), 1)
				if err := l.AppendReplica(batch.Run(rec), 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRead finds and releases a Range, without reading its bytes.
func BenchmarkRead(b *testing.B) {
	l := mustCreate(b, benchDir(b), "t", 0)
	const batches = 100_000
	for range batches {
		mustAppend(b, l, makeBatch(1, 1000, 1<<10), 1)
	}
	for _, flushed := range []bool{false, true} {
		if flushed {
			if err := l.Flush(); err != nil {
				b.Fatal(err)
			}
		}
		for name, from := range map[string]batch.Offset{"tail": batches - 1, "middle": batches / 2} {
			b.Run(fmt.Sprintf("%s/flushed=%v", name, flushed), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					r, err := l.Read(from, l.End(), 1<<20)
					if err != nil || r.Len() == 0 {
						b.Fatal(r, err)
					}
					r.Release()
				}
			})
		}
	}
}

// BenchmarkRecover opens a folder with a log of 64 MiB, of which nothing or all
// must be read.
func BenchmarkRecover(b *testing.B) {
	for _, c := range []struct {
		name string
		stop *CleanStop
	}{{"clean", &CleanStop{1}}, {"unclean", nil}} {
		b.Run(c.name, func(b *testing.B) {
			dir := b.TempDir()
			o := DefaultOptions()
			o.FlushInterval = 0
			d, err := OpenDir(vfs.OS(), dir, o)
			if err != nil {
				b.Fatal(err)
			}
			l := mustCreate(b, d, "t", 0)
			for l.Size() < 64<<20 {
				mustAppend(b, l, makeBatch(1, 1000, 1<<10), 1)
			}
			if c.stop == nil {
				d.closeFiles()
				if err := d.lock.Close(); err != nil {
					b.Fatal(err)
				}
			} else if err := d.Close(c.stop); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			for b.Loop() {
				d, err := OpenDir(vfs.OS(), dir, o)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if c.stop == nil {
					d.closeFiles()
					err = d.lock.Close()
				} else {
					err = d.Close(c.stop)
				}
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
