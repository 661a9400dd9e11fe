package storage

import (
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// waiting is a durable log's owner that waits for flushed ends.
type waiting struct {
	l     *Log
	moved chan struct{} // capacity 1
}

func durable(l *Log) *waiting {
	w := &waiting{l, make(chan struct{}, 1)}
	l.SetDurable(func() {
		select {
		case w.moved <- struct{}{}:
		default:
		}
	})
	return w
}

// until waits until the log is flushed to end.
func (w *waiting) until(t *testing.T, end batch.Offset) {
	t.Helper()
	limit := time.After(time.Minute)
	for w.l.Flushed() < end {
		select {
		case <-w.moved:
		case <-limit:
			t.Fatalf("flushed to %d, want %d", w.l.Flushed(), end)
		}
	}
}

// H31: TestCommitsShareAFlush holds up the first flush of two durable logs until many
// more appends wait: one further round serves them all, in both logs.
func TestCommitsShareAFlush(t *testing.T) {
	m := vfs.NewMem(1)
	var syncs, rest atomic.Int64 // of segment files
	entered, release := make(chan struct{}), make(chan struct{})
	var first sync.Once
	hook := func(op vfs.Op, name string) error {
		if op != vfs.OpSync || !strings.HasSuffix(name, logSuffix) {
			return nil
		}
		if strings.Contains(name, "/rest-") {
			rest.Add(1)
			return nil
		}
		syncs.Add(1)
		first.Do(func() {
			close(entered)
			<-release
		})
		return nil
	}
	o := testOptions()
	o.FlushInterval, o.SegmentBytes = time.Hour, 1<<20
	d, err := OpenDir(vfs.NewFaulty(m, hook), testDir, o)
	if err != nil {
		t.Fatal(err)
	}
	a, b, other := mustCreate(t, d, "a", 0), mustCreate(t, d, "b", 0), mustCreate(t, d, "rest", 0)
	wa := durable(a)
	mustAppend(t, a, makeBatch(1, 1, 1), 1)
	<-entered
	wb := durable(b)
	for range 500 {
		mustAppend(t, a, makeBatch(1, 1, 1), 1)
		mustAppend(t, b, makeBatch(1, 1, 1), 1)
		mustAppend(t, other, makeBatch(1, 1, 1), 1)
	}
	if got := a.Flushed(); got != 0 {
		t.Errorf("flushed to %d before the first sync has returned", got)
	}
	close(release)
	wa.until(t, 501)
	wb.until(t, 500)
	if n := syncs.Load(); n > 4 {
		t.Errorf("%d syncs for 1001 appends to two logs, want at most 4", n)
	}
	if rest.Load() > 0 || other.Flushed() != 0 {
		t.Errorf("a log that is not durable was flushed to %d with the others", other.Flushed())
	}
	c := mustOpen(t, m.CrashClone(0), testOptions())
	if ends := [2]batch.Offset{c.Log("a", 0).End(), c.Log("b", 0).End()}; ends != [2]batch.Offset{501, 500} {
		t.Errorf("after a loss of power the logs end at %v", ends)
	}
	mustClose(t, c)
	a.SetDurable(nil)
	mustAppend(t, a, makeBatch(1, 1, 1), 1)
	mustClose(t, d)
}

// TestCommitWaitsForNoCut: who holds a log's token while an append wants to be
// flushed has it flushed when giving that back, and others do not wait for it.
func TestCommitWaitsForNoCut(t *testing.T) {
	d := mustOpen(t, vfs.NewMem(1), testOptions())
	a, b := mustCreate(t, d, "a", 0), mustCreate(t, d, "b", 0)
	told := 0
	a.SetDurable(func() { told++ })
	durable(b)
	commit := func() {
		if err := d.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	commit()
	if told != 1 {
		t.Errorf("told %d times at first, want once", told)
	}
	mustAppend(t, a, makeBatch(1, 1, 1), 1)
	mustAppend(t, b, makeBatch(1, 1, 1), 1)
	a.maint.take()
	commit()
	commit()
	if a.Flushed() != 0 || b.Flushed() != 1 {
		t.Errorf("flushed to %d and %d while the first is held, want 0 and 1", a.Flushed(), b.Flushed())
	}
	a.giveMaint()
	commit()
	if a.Flushed() != 1 || told != 2 {
		t.Errorf("flushed to %d after the token was given back, told %d times", a.Flushed(), told)
	}
	commit()
	if told != 2 {
		t.Errorf("told %d times with nothing to flush", told)
	}
	mustAppend(t, a, makeBatch(1, 1, 1), 1)
	if err := d.Delete(a); err != nil {
		t.Fatal(err)
	}
	commit()
	mustClose(t, d)
}

// TestCommitAfterADiskWasCrowded: a flush that could not be made is made later.
func TestCommitAfterADiskWasCrowded(t *testing.T) {
	m := vfs.NewMem(1)
	var crowded error
	hook := func(op vfs.Op, name string) error {
		if op == vfs.OpSync && strings.HasSuffix(name, logSuffix) {
			return crowded
		}
		return nil
	}
	d, err := OpenDir(vfs.NewFaulty(m, hook), testDir, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	l := mustCreate(t, d, "a", 0)
	durable(l)
	mustAppend(t, l, makeBatch(1, 1, 1), 1)
	crowded = syscall.EMFILE
	if err := d.Commit(); err == nil || d.Offline() != nil {
		t.Fatalf("commit: %v, offline %v", err, d.Offline())
	}
	crowded = nil
	if err := d.Tick(); err != nil || l.Flushed() != 1 {
		t.Fatalf("flushed to %d after a tick, %v", l.Flushed(), err)
	}
	mustClose(t, d)
}

// TestUnsyncedSince follows the age of the tail through a flush.
func TestUnsyncedSince(t *testing.T) {
	o := testOptions()
	now := time.UnixMilli(1000)
	o.Now = func() time.Time { return now }
	o.FlushBytes = 300
	d := mustOpen(t, vfs.NewMem(1), o)
	a, b := mustCreate(t, d, "a", 0), mustCreate(t, d, "b", 0)
	check := func(what string, want time.Time) {
		t.Helper()
		if got := d.UnsyncedSince(); !got.Equal(want) {
			t.Errorf("%s: the tail is from %v, want %v", what, got, want)
		}
	}
	check("nothing appended", time.Time{})
	at := func(ms int64) time.Time { now = time.UnixMilli(ms); return now }
	second := at(2000)
	mustAppend(t, a, makeBatch(1, 1, 1), 1)
	third := at(3000)
	mustAppend(t, b, makeBatch(1, 1, 1), 1)
	at(4000)
	mustAppend(t, a, makeBatch(1, 1, 1), 1)
	check("three appends", second)
	if len(d.wake) > 0 {
		t.Errorf("%d bytes have a flush begin before its time", d.Unsynced())
	}
	if err := a.Flush(); err != nil {
		t.Fatal(err)
	}
	check("the log of the oldest is flushed", third)
	mustAppend(t, a, makeBatch(1, 1, 300), 1)
	if len(d.wake) != 1 {
		t.Errorf("%d bytes, and no flush is asked for", d.Unsynced())
	}
	if err := d.Tick(); err != nil {
		t.Fatal(err)
	}
	check("all is flushed", time.Time{})
	mustClose(t, d)
}
