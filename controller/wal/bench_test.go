package wal

import (
	"fmt"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/storage/vfs"
)

// BenchmarkStoreLogs appends one entry a time to the disk, as a leader does, with old ones deleted.
func BenchmarkStoreLogs(b *testing.B) {
	for _, size := range []int{200, 2 << 10, 16 << 10, 256 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			l, err := Open(vfs.OS(), b.TempDir(), SegmentBytes)
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close() //nolint:errcheck // nothing of it is read again
			e := []*raft.Log{{Data: make([]byte, size)}}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				e[0].Index++
				if err := l.StoreLogs(e); err != nil {
					b.Fatal(err)
				}
				if e[0].Index%4096 == 0 {
					if err := l.DeleteRange(1, e[0].Index-2048); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkGetLog reads entries that the kernel has.
func BenchmarkGetLog(b *testing.B) {
	l, err := Open(vfs.OS(), b.TempDir(), SegmentBytes)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nothing of it is read again
	if err := l.StoreLogs(entries(1, 1000, 1, 2<<10)); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	var e raft.Log
	for i := uint64(0); b.Loop(); i++ {
		if err := l.GetLog(1+i%1000, &e); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen starts with twenty thousand small entries, each of which takes a page.
func BenchmarkOpen(b *testing.B) {
	fsys := vfs.NewMem(1)
	if err := fsys.Mkdir("raft", 0o700); err != nil {
		b.Fatal(err)
	}
	l, err := open(fsys, "raft", SegmentBytes)
	if err != nil {
		b.Fatal(err)
	}
	for i := uint64(1); i <= 20_000; i++ {
		if err := l.StoreLogs(entries(i, i, 1, 200)); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
		if l, err = open(fsys, "raft", SegmentBytes); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
}
