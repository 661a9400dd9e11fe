package storage

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// readRange reads a range and checks its batches.
func readRange(r Range) error {
	defer r.Release()
	p := make([]byte, r.Len())
	if n, err := r.ReadAt(p, 0); n < len(p) {
		return err
	}
	at := r.First()
	for b, err := range batch.Run(p).Batches() {
		if err != nil {
			return err
		}
		if err := b.CheckCRC(); err != nil {
			return err
		}
		if b.Base() != at {
			return errors.New("batches do not follow each other")
		}
		at = b.End()
	}
	if at != r.End() {
		return errors.New("range does not end where its batches do")
	}
	return nil
}

// H37: TestReadersAndCuts has readers, an appender, flushes and cuts at once. Below
// the safe offset, which is never cut, as nothing below a high watermark is, all
// reads must succeed; above it a cut may show as a short read, never as bytes
// that were not written.
func TestReadersAndCuts(t *testing.T) {
	for name, fsys := range map[string]vfs.FS{"mem": vfs.NewMem(1), "os": vfs.OS()} {
		t.Run(name, func(t *testing.T) {
			o := testOptions()
			o.FlushInterval, o.CheckpointInterval, o.Now = time.Millisecond, time.Millisecond, time.Now
			o.MaxOpenFiles = 8
			o.GateWidth = 4
			d, err := OpenDir(fsys, t.TempDir(), o)
			if err != nil {
				t.Fatal(err)
			}
			l := mustCreate(t, d, "t", 0)
			var safe atomic.Int64
			var done atomic.Bool
			var wg sync.WaitGroup
			start := func(f func() error) {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for !done.Load() {
						if err := f(); err != nil {
							t.Error(err)
							done.Store(true)
						}
					}
				}()
			}
			var next int64
			for range 3 { // below the safe offset everything works
				start(func() error {
					end := batch.Offset(safe.Load())
					from := batch.Offset(atomic.AddInt64(&next, 7)) % max(end, 1)
					r, err := l.Read(from, end, 2000)
					if err != nil {
						return err
					}
					if err := readRange(r); err != nil {
						return err
					}
					_, _, _, _, err = l.OffsetAt(1050, end)
					return err
				})
			}
			start(func() error { // above it a cut may come in between
				r, err := l.Read(batch.Offset(safe.Load()), l.End(), 2000)
				if err == nil {
					err = readRange(r)
				}
				if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, ErrOffsetOutOfRange) {
					return nil
				}
				return err
			})
			for i := range 600 {
				mustAppend(t, l, makeBatch(1+i%3, int64(1000+i), i%300), batch.Epoch(i/50))
				if i%10 == 9 {
					safe.Store(int64(l.End()) - 10)
				}
				if i%25 == 24 {
					if err := l.TruncateTo(batch.Offset(safe.Load()) + 2); err != nil {
						t.Error(err)
					}
				}
				if i%100 == 99 {
					if err := l.Flush(); err != nil {
						t.Error(err)
					}
				}
			}
			done.Store(true)
			wg.Wait()
			if err := d.Close(&CleanStop{1}); err != nil {
				t.Fatal(err)
			}
			if err := Check(fsys, d.Path()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// H37: TestRangeOutlivesItsSegment reads a Range after its segment was dropped and
// another file took its name, and after its log was deleted.
func TestRangeOutlivesItsSegment(t *testing.T) {
	for name, end := range map[string]func(d *Dir, l *Log) error{
		"reset":                func(_ *Dir, l *Log) error { return l.ResetTo(0) },
		"truncated to nothing": func(_ *Dir, l *Log) error { return l.TruncateTo(0) },
		"deleted":              func(d *Dir, l *Log) error { return d.Delete(l) },
		"set aside":            func(d *Dir, l *Log) error { return d.Stray(l) },
	} {
		t.Run(name, func(t *testing.T) {
			m := vfs.NewMem(1)
			d := mustOpen(t, m, testOptions())
			l := mustCreate(t, d, "t", 0)
			mustAppend(t, l, makeBatch(3, 1000, 100), 1)
			r, err := l.Read(0, l.End(), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if err := end(d, l); err != nil {
				t.Fatal(err)
			}
			if name == "reset" || name == "truncated to nothing" {
				mustAppend(t, l, makeBatch(5, 2000, 10), 2)
			}
			if err := d.Tick(); err != nil {
				t.Fatal(err)
			}
			used := m.Used()
			if err := readRange(r); err != nil {
				t.Fatalf("read after: %v", err)
			}
			if err := d.Tick(); err != nil {
				t.Fatal(err)
			}
			if name != "set aside" && m.Used() >= used {
				t.Fatalf("%d bytes in use after the last claim, %d before", m.Used(), used)
			}
			if name == "set aside" && m.Used() != used {
				t.Fatal("a stray log was removed")
			}
			mustClose(t, d)
		})
	}
}

// TestDescriptors reads more segments than may be open, with some held.
func TestDescriptors(t *testing.T) {
	o := testOptions()
	o.SegmentBytes, o.MaxOpenFiles = 200, 4
	d := mustOpen(t, vfs.NewMem(1), o)
	l := mustCreate(t, d, "t", 0)
	for range 20 {
		mustAppend(t, l, makeBatch(1, 1000, 120), 1)
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	var held []Held
	var ranges []Range
	for i := range 20 {
		r, err := l.Read(batch.Offset(i), l.End(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		ranges = append(ranges, r)
		if i%5 == 0 {
			h, err := r.Hold()
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, h)
		}
	}
	for i, h := range held {
		p := make([]byte, 61)
		if _, err := h.File().ReadAt(p, h.Pos()); err != nil || batch.Batch(p).Base() != batch.Offset(5*i) {
			t.Fatalf("held descriptor %d: %v", i, err)
		}
	}
	if n := d.readers.openCount(); n < len(held) || n > len(held)+1 {
		t.Fatalf("%d descriptors are open with %d held", n, len(held))
	}
	for _, h := range held {
		h.Release()
	}
	for _, r := range ranges {
		if err := readRange(r); err != nil {
			t.Fatal(err)
		}
	}
	if n := d.readers.openCount(); n > 2 {
		t.Fatalf("%d descriptors are open for readers, 2 may be", n)
	}
	if n := d.writers.openCount(); n > 2 {
		t.Fatalf("%d descriptors are open for writers, 2 may be", n)
	}
	mustClose(t, d)
}
