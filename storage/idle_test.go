package storage

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/weirmq/weir/integration/allocs"
	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// TestIdleCost opens a thousand logs that nobody uses.
func TestIdleCost(t *testing.T) {
	const logs = 1000
	m := vfs.NewMem(1)
	d := mustOpen(t, m, testOptions())
	for i := range logs {
		mustCreate(t, d, "topic", int32(i))
	}
	mustClose(t, d)
	goroutines := runtime.NumGoroutine()
	o := DefaultOptions()
	o.MinFreeBytes = -1
	before := heap()
	d, err := OpenDir(m, testDir, o)
	if err != nil {
		t.Fatal(err)
	}
	perLog := (int64(heap()) - int64(before)) / logs
	t.Logf("%d bytes per idle log", perLog)
	if perLog > 2048 {
		t.Errorf("an idle log costs %d bytes", perLog)
	}
	if n := runtime.NumGoroutine() - goroutines; n > 5 {
		t.Errorf("%d goroutines for %d logs", n, logs)
	}
	if n := d.readers.openCount() + d.writers.openCount(); n > 0 {
		t.Errorf("%d segments are open", n)
	}
	if err := d.Close(nil); err != nil {
		t.Fatal(err)
	}
}

// TestIdleFiles reopens logs with data and finds nothing open but the lock.
func TestIdleFiles(t *testing.T) {
	dir := t.TempDir()
	open := func() *Dir {
		d, err := OpenDir(vfs.OS(), dir, testOptions())
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := open()
	for i := range 20 {
		l := mustCreate(t, d, "topic", int32(i))
		for range 100 {
			mustAppend(t, l, producerBatchOf(int64(i), 0, int32(l.End()), 1), 1)
		}
	}
	mustClose(t, d)
	before := descriptors(t)
	d = open()
	if n := descriptors(t) - before; n != 1 {
		t.Errorf("%d files are open", n)
	}
	mustClose(t, d)
	if n := descriptors(t) - before; n != 0 {
		t.Errorf("%d files stay open", n)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc/self/fd on this system")
	}
	return len(entries)
}

func heap() uint64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// TestUnprovenReadAllocs reads what an earlier run wrote, one batch after another, and
// holds the proof to no allocation.
func TestUnprovenReadAllocs(t *testing.T) {
	o := DefaultOptions()
	o.FlushInterval = 0
	dir := t.TempDir()
	for _, last := range []bool{false, true} {
		d, err := OpenDir(vfs.OS(), dir, o)
		if err != nil {
			t.Fatal(err)
		}
		if last {
			l, from := d.Log("t", 0), batch.Offset(0)
			got := testing.AllocsPerRun(100, func() {
				r, err := l.Read(from, l.End(), 50<<10)
				if err != nil {
					t.Fatal(err)
				}
				from = r.End()
				r.Release()
			})
			if got > 0 {
				t.Errorf("a read of what is not proven allocates %v times", got)
			}
			if n := l.Size() - d.Unproven(); n == 0 || n == l.Size() {
				t.Errorf("reads have proven %d bytes of %d", n, l.Size())
			}
		} else {
			l := mustCreate(t, d, "t", 0)
			for range 8000 {
				mustAppend(t, l, makeBatch(1, 1000, 1<<10), 1)
			}
		}
		mustClose(t, d)
	}
}

// TestAppendAllocs holds the append path to one allocation, whatever the size.
func TestAppendAllocs(t *testing.T) {
	o := DefaultOptions()
	o.FlushInterval = 0
	d, err := OpenDir(vfs.OS(), t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1 << 10, 1 << 20} {
		l := mustCreate(t, d, fmt.Sprintf("t%d", size), 0)
		b := makeBatch(1, 1000, size)
		mustAppend(t, l, b, 1)
		got := allocs.Least(func() {
			if _, err := l.AppendLeader(b, 1); err != nil {
				t.Fatal(err)
			}
		})
		if got > 1 {
			t.Errorf("appending %d bytes allocates %v times", size, got)
		}
		got = allocs.Least(func() {
			r, err := l.Read(l.End()-1, l.End(), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			r.Release()
		})
		if got > 0 {
			t.Errorf("reading the tail allocates %v times", got)
		}
	}
	if err := d.Close(nil); err != nil {
		t.Fatal(err)
	}
}
