package storage

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// TestCompaction does at random what happens to a compacted log, and compares it with all
// that was ever appended.
func TestCompaction(t *testing.T) {
	dropped, emptied := int64(0), 0
	for seed := range int64(20) {
		w := newCompactWorld(t, seed)
		for range 400 {
			w.step()
			w.check()
		}
		dropped += w.d.CleanerStats().DroppedRecords
		batches, err := readLog(w.l, 600)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range batches {
			if b.Count() == 0 && b.HasProducer() {
				emptied++
			}
		}
	}
	if dropped < 1000 || emptied < 5 {
		t.Fatalf("only %d records dropped, %d batches kept for their producers", dropped, emptied)
	}
}

// filled appends until there are some closed segments, all committed and flushed.
func (w *compactWorld) filled(batches int) {
	for range batches {
		w.appendSome()
	}
	w.l.SetHW(w.end)
	w.now = w.now.Add(3 * time.Second)
	w.tick()
}

// TestCompactionLimits cleans nothing that is not committed, not flushed, in the last
// segment, too young, or behind a transaction.
func TestCompactionLimits(t *testing.T) {
	none := func(t *testing.T, w *compactWorld, why string) {
		t.Helper()
		before := w.records()
		w.clean()
		if after := w.records(); !reflect.DeepEqual(before, after) || w.l.CleanedTo() > 0 {
			t.Fatalf("%s: cleaned to %d, %d records of %d", why, w.l.CleanedTo(), len(after), len(before))
		}
	}
	t.Run("uncommitted", func(t *testing.T) {
		w := newCompactWorld(t, 1)
		w.filled(60)
		w.l.SetHW(w.l.view.Load().segs[0].end() - 1)
		none(t, w, "one below the first segment's end")
		w.l.SetHW(w.l.HW() + 1)
		if w.clean(); w.l.CleanedTo() != w.l.HW() {
			t.Fatalf("cleaned to %d of %d", w.l.CleanedTo(), w.l.HW())
		}
	})
	t.Run("unflushed", func(t *testing.T) {
		w := newCompactWorld(t, 2)
		for range 60 {
			w.appendSome()
		}
		w.l.SetHW(w.end)
		none(t, w, "unflushed")
	})
	t.Run("young", func(t *testing.T) {
		w := newCompactWorld(t, 3)
		w.filled(60)
		w.how.MinLagMs = 10_000
		w.l.SetCompaction(&w.how)
		none(t, w, "too young")
		w.now = w.now.Add(11 * time.Second)
		if w.clean(); w.l.CleanedTo() == 0 {
			t.Fatal("nothing was cleaned")
		}
	})
	t.Run("ratio", func(t *testing.T) {
		w := newCompactWorld(t, 4)
		w.filled(60)
		w.clean()
		w.filled(12)
		w.how.MinRatio = 0.99
		w.l.SetCompaction(&w.how)
		to := w.l.CleanedTo()
		w.clean()
		if w.l.CleanedTo() != to {
			t.Fatal("cleaned for too small a share")
		}
		w.how.MaxLagMs = 5000
		w.l.SetCompaction(&w.how)
		w.now = w.now.Add(10 * time.Second)
		w.clean()
		w.tick()
		if w.clean(); w.l.CleanedTo() != w.end {
			t.Fatalf("overdue: cleaned to %d of %d", w.l.CleanedTo(), w.end)
		}
	})
	t.Run("transaction", func(t *testing.T) {
		w := newCompactWorld(t, 5)
		w.filled(20)
		b := batch.NewBuilder(w.now.UnixMilli())
		b.Add(w.now.UnixMilli(), []byte("key-1"), []byte("aborted, perhaps"), batch.Header{Key: "h"})
		b.Producer(77, 0, 0)
		b.Transactional()
		a := mustAppend(t, w.l, b.Bytes(), w.epoch)
		w.end, w.blocked = a.Last+1, true
		w.filled(60)
		if w.clean(); w.l.CleanedTo() != a.First {
			t.Fatalf("cleaned to %d, the transaction is at %d", w.l.CleanedTo(), a.First)
		}
	})
}

// TestCompactionIdle finds that a clean log is not read again, not even by the next run.
func TestCompactionIdle(t *testing.T) {
	w := newCompactWorld(t, 1)
	w.filled(80)
	w.clean()
	mustClose(t, w.d)
	w.open()
	w.l.SetHW(w.end)
	for range 10 {
		w.clean()
	}
	if n := w.d.CleanerStats().ReadBytes; n > 0 {
		t.Fatalf("%d bytes were read to clean a clean log", n)
	}
	w.filled(80)
	w.clean()
	if w.d.CleanerStats().ReadBytes == 0 {
		t.Fatal("nothing was cleaned at all")
	}
}

// TestCompactionKeepsRanges reads what a Range was made for after its segment was replaced.
func TestCompactionKeepsRanges(t *testing.T) {
	w := newCompactWorld(t, 3)
	w.filled(60)
	r, err := w.l.Read(0, w.end, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, r.Len())
	if _, err := r.ReadAt(want, 0); err != nil {
		t.Fatal(err)
	}
	w.d.readers.drop(&r.file.r) // so that it is opened again, by its name
	r.file.r.closed = false
	w.clean()
	got := make([]byte, r.Len())
	if _, err := r.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("the range has other bytes after cleaning (%v)", err)
	}
	again, err := w.l.Read(0, w.end, 1<<20)
	if err != nil || again.Len() >= r.Len() {
		t.Fatalf("cleaning left %d bytes of %d (%v)", again.Len(), r.Len(), err)
	}
	again.Release()
	path := r.file.path()
	r.Release()
	w.d.reap()
	if _, err := w.mem.Stat(path); err == nil {
		t.Fatalf("%s is still there", path)
	}
}

// TestCompactionDamage finds a rotten batch instead of cleaning by it.
func TestCompactionDamage(t *testing.T) {
	w := newCompactWorld(t, 6)
	w.filled(60)
	s := w.l.view.Load().segs[1]
	f, err := w.mem.Open(s.file.path(), 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	var one [1]byte
	if _, err := f.ReadAt(one[:], 100); err != nil {
		t.Fatal(err)
	}
	one[0] ^= 1
	if _, err := f.WriteAt(one[:], 100); err != nil {
		t.Fatal(err)
	}
	if _, err := w.d.Clean(); err != nil {
		t.Fatal(err)
	}
	var bad *CorruptError
	if !errors.As(w.l.Damaged(), &bad) || bad.Offset < s.base || bad.Offset >= s.end() {
		t.Fatalf("damage %v, want one in %d to %d", w.l.Damaged(), s.base, s.end())
	}
	if w.l.CleanedTo() > 0 {
		t.Fatalf("cleaned to %d", w.l.CleanedTo())
	}
}

// H43: TestCompactionHoldsDeletes keeps a deletion past its horizon while a replica may not
// have seen it, and lets go of it afterwards, without any record being appended.
func TestCompactionHoldsDeletes(t *testing.T) {
	w := newCompactWorld(t, 8)
	w.how.HoldDeletes = true
	w.l.SetCompaction(&w.how)
	deletes := func() (n int) {
		for _, f := range w.records() {
			if f.value == nil && f.offset < w.l.CleanedTo() {
				n++
			}
		}
		return n
	}
	w.filled(60)
	w.clean()
	w.now = w.now.Add(2 * compactRetention * time.Millisecond)
	w.clean()
	if deletes() == 0 {
		t.Fatal("the deletions are gone")
	}
	how := w.how
	how.HoldDeletes = false
	w.l.SetCompaction(&how)
	w.clean()
	w.check()
	if n := deletes(); n > 0 {
		t.Fatalf("%d deletions are left", n)
	}
}

// H43: TestCompactionReplicaAway has a follower miss a deletion for longer than it is kept.
// Where the leader holds deletions for it, it learns of them.
func TestCompactionReplicaAway(t *testing.T) {
	for _, hold := range []bool{false, true} {
		w := newCompactWorld(t, 13)
		w.how.HoldDeletes = hold
		w.l.SetCompaction(&w.how)
		f := mustCreate(t, w.d, "follower", 0)
		one := func(value []byte) {
			b := batch.NewBuilder(w.now.UnixMilli())
			b.Add(w.now.UnixMilli(), []byte("k"), value, batch.Header{Key: "h"})
			a := mustAppend(t, w.l, b.Bytes(), w.epoch)
			w.end = a.Last + 1
		}
		one([]byte("v"))
		catchUp(t, w.l, f)
		one(nil)
		w.filled(60)
		w.clean()
		w.now = w.now.Add(2 * compactRetention * time.Millisecond)
		w.clean()
		catchUp(t, w.l, f)
		f.SetCompaction(&w.how)
		f.SetHW(w.end)
		w.tick()
		w.clean()
		batches, err := readLog(f, 600)
		if err != nil {
			t.Fatal(err)
		}
		risen := false
		for _, r := range recordsOf(t, batches, 0) {
			risen = risen || r.key == "k" && r.value != nil
		}
		if risen == hold {
			t.Fatalf("held %v, risen %v", hold, risen)
		}
	}
}

// TestCompactionAtOnce appends, reads, cuts nothing and cleans at the same time, on the
// Dir's goroutines.
func TestCompactionAtOnce(t *testing.T) {
	o := DefaultOptions()
	o.SegmentBytes, o.MinFreeBytes = 16<<10, -1
	o.FlushInterval, o.CleanerBackoff = time.Millisecond, time.Millisecond
	d := mustOpen(t, vfs.NewMem(1), o)
	l := mustCreate(t, d, "t", 0)
	how := DefaultCompaction()
	how.MinRatio = 0
	l.SetCompaction(&how)
	const keys = 50
	var newest [keys]batch.Offset
	for i := 0; i < 20_000 || d.CleanerStats().Runs < 20; i++ {
		b := batch.NewBuilder(1000)
		b.Add(1000, fmt.Append(nil, i%keys), fmt.Append(nil, i))
		a := mustAppend(t, l, b.Bytes(), 1)
		newest[i%keys] = a.First
		l.SetHW(a.First + 1)
		if i%200 == 0 {
			if _, err := readLog(l, 1<<20); err != nil {
				t.Fatal(err)
			}
		}
	}
	batches, err := readLog(l, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	there := map[batch.Offset]bool{}
	for _, b := range batches {
		for r, err := range b.Records(b.Payload()) {
			if err != nil {
				t.Fatal(err)
			}
			there[r.Offset] = true
		}
	}
	for k, o := range newest {
		if !there[o] {
			t.Errorf("the newest value of %d at %d is gone", k, o)
		}
	}
	mustClose(t, d)
}

// H42: TestCompactionCut cuts a log within what was cleaned, as only a loss of committed
// records makes a follower do. The checkpoint follows, on the disk too, and what is
// appended then is cleaned as anything else.
func TestCompactionCut(t *testing.T) {
	w := newCompactWorld(t, 10)
	w.filled(80)
	w.clean()
	w.filled(1)
	to := w.l.CleanedTo() / 2
	w.l.SetHW(to)
	w.cut(to)
	if w.l.CleanedTo() > w.end {
		t.Fatalf("cleaned to %d, the log ends at %d", w.l.CleanedTo(), w.end)
	}
	w.mem = w.mem.ProcessClone()
	w.fs = w.mem
	w.open()
	if w.l.CleanedTo() > w.end || w.l.End() != w.end || w.l.Damaged() != nil {
		t.Fatalf("cleaned to %d, the log ends at %d, want %d; damage %v", w.l.CleanedTo(), w.l.End(), w.end, w.l.Damaged())
	}
	w.filled(60)
	w.clean()
	if w.l.CleanedTo() <= w.end/2 {
		t.Fatalf("cleaned to %d of %d", w.l.CleanedTo(), w.end)
	}
}

// TestCompactionCutMeanwhile cuts the log in the middle of a cleaning: nothing is replaced
// because of records that are gone.
func TestCompactionCutMeanwhile(t *testing.T) {
	w := newCompactWorld(t, 11)
	w.filled(80)
	p, ok := w.l.dirtyPart(w.now.UnixMilli())
	if !ok {
		t.Fatal("nothing is dirty")
	}
	w.cut(w.end / 2)
	if err := w.l.clean(p); !errors.Is(err, errSuperseded) {
		t.Fatalf("got %v", err)
	}
	w.checkAbove(0)
}

// TestCompactionPolicy has nothing cleaned of a log whose policy ended, or never was.
func TestCompactionPolicy(t *testing.T) {
	w := newCompactWorld(t, 12)
	w.l.SetCompaction(nil)
	w.filled(80)
	if w.clean(); w.l.CleanedTo() > 0 || w.l.Compacted() {
		t.Fatalf("cleaned to %d", w.l.CleanedTo())
	}
	w.l.SetCompaction(&w.how)
	w.clean()
	w.l.SetCompaction(nil)
	if w.l.CleanedTo() == 0 || !w.l.Compacted() {
		t.Fatal("nothing was cleaned")
	}
	to := w.l.CleanedTo()
	w.filled(80)
	if w.clean(); w.l.CleanedTo() != to {
		t.Fatalf("cleaned to %d", w.l.CleanedTo())
	}
	if err := w.d.Delete(w.l); err != nil {
		t.Fatal(err)
	}
	w.l.SetCompaction(&w.how)
	if more, err := w.d.Clean(); more || err != nil || len(w.d.cleaner.watched()) > 0 {
		t.Fatalf("a deleted log is cleaned: %v, %v", more, err)
	}
}
