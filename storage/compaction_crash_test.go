package storage

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// H42: TestCompactionCrash cuts the power, or kills the process, before every call of
// cleanings that changes the disk. What was flushed is there: the newest value of each key,
// in order and unchanged, the producers and the epochs.
func TestCompactionCrash(t *testing.T) {
	points := 0
	for seed := range int64(1) {
		w := newCompactWorld(t, seed)
		doing := ""
		armed := false
		w.mem = vfs.NewMem(seed)
		w.fs = vfs.NewFaulty(w.mem, func(op vfs.Op, name string) error {
			if !armed || !op.Mutates() {
				return nil
			}
			points++
			at := fmt.Sprintf("%s, before %s %s", doing, op, name)
			w.inspectClone(at+", killed", w.mem.ProcessClone())
			for _, s := range []int64{0, w.rng.Int63()} {
				w.inspectClone(fmt.Sprintf("%s, seed %d", at, s), w.mem.CrashClone(s))
			}
			return nil
		})
		w.open()
		for round := range 3 {
			for range 25 {
				w.appendSome()
			}
			w.l.SetHW(w.end)
			w.now = w.now.Add(compactRetention * time.Millisecond)
			if round == 1 { // what the checkpoints say is old
				if err := w.l.Flush(); err != nil {
					t.Fatal(err)
				}
			} else {
				w.tick()
			}
			doing, armed = fmt.Sprintf("round %d", round), true
			w.clean()
			armed = false
			w.check()
		}
	}
	if points < 100 {
		t.Fatalf("only %d points", points)
	}
}

// inspectClone opens what a crash left, compares it with all that was appended, cleans it
// and compares again.
func (w *compactWorld) inspectClone(at string, m *vfs.Mem) {
	w.t.Helper()
	fail := func(format string, args ...any) {
		w.t.Helper()
		w.t.Fatalf("%s: %s", at, fmt.Sprintf(format, args...))
	}
	o := w.options()
	d, err := OpenDir(m, testDir, o)
	if err != nil {
		fail("open: %v", err)
	}
	l := d.Log("t", 0)
	how := w.how
	l.SetCompaction(&how)
	for _, cleaned := range []bool{false, true} {
		if cleaned {
			l.SetHW(w.l.HW())
			for more := true; more; {
				if more, err = d.Clean(); err != nil {
					fail("clean: %v", err)
				}
			}
			d.reap()
		}
		if l.Damaged() != nil || l.End() != w.end || l.Start() != w.start {
			fail("log from %d to %d, want %d to %d; damage %v", l.Start(), l.End(), w.start, w.end, l.Damaged())
		}
		batches, err := readLog(l, 600)
		if err != nil {
			fail("read: %v", err)
		}
		got := recordsOf(w.t, batches, l.Start())
		for _, err := range []error{
			survivors(got, w.facts, w.start, w.l.HW(), w.now.UnixMilli()), unexplained(got, w.facts, l.HW()),
			sameProducers(l, w.l), unfinished(m, l),
		} {
			if err != nil {
				fail("cleaned %v: %v", cleaned, err)
			}
		}
	}
	if err := d.Close(&CleanStop{1}); err != nil {
		fail("close: %v", err)
	}
	if err := Check(m, testDir); err != nil {
		fail("check: %v", err)
	}
}

// unfinished finds files of cleaned segments that a start should have removed or renamed.
func unfinished(m *vfs.Mem, l *Log) error {
	entries, err := m.ReadDir(l.Dir())
	if err != nil {
		return err
	}
	for _, e := range entries {
		for _, suffix := range []string{".cleaned", ".swap", ".deleted"} {
			if strings.HasSuffix(e.Name(), suffix) {
				return fmt.Errorf("%s is left", e.Name())
			}
		}
	}
	return nil
}

// unexplained finds a record that is gone because of one above the high watermark.
func unexplained(got, facts []fact, hw batch.Offset) error {
	there := map[batch.Offset]bool{}
	for _, f := range got {
		there[f.offset] = true
	}
	gone := map[string]batch.Offset{}
	for _, f := range facts {
		if o, ok := gone[f.key]; ok && f.offset >= hw {
			return fmt.Errorf("%s at %d is gone, replaced by one at %d and the high watermark is %d", f.key, o, f.offset, hw)
		}
		delete(gone, f.key)
		if !there[f.offset] {
			gone[f.key] = f.offset
		}
	}
	return nil
}

// sameProducers compares what tells a retry from a new batch. A time may be that of what
// is left of a batch.
func sameProducers(got, want *Log) error {
	a, b := got.Producers(), want.Producers()
	if len(a) != len(b) {
		return fmt.Errorf("%d producers, want %d", len(a), len(b))
	}
	for i := range a {
		if a[i].LastTimestamp = b[i].LastTimestamp; a[i] != b[i] {
			return fmt.Errorf("producer %+v, want %+v", a[i], b[i])
		}
	}
	return nil
}

// compactFault runs a cleaning whose n-th call that changes the disk fails.
func compactFault(t *testing.T, n int, fault error) (w *compactWorld, site string, err error) {
	w = newCompactWorld(t, 9)
	w.mem = vfs.NewMem(9)
	armed, points := false, 0
	w.fs = vfs.NewFaulty(w.mem, func(op vfs.Op, name string) error {
		if !armed || !op.Mutates() {
			return nil
		}
		points++
		if points != n {
			return nil
		}
		site = fmt.Sprintf("%s %s", op, name)
		if op == vfs.OpWriteAt {
			return &vfs.Short{N: 30, Err: fault}
		}
		return fault
	})
	w.open()
	for range 50 {
		w.appendSome()
	}
	w.l.SetHW(w.end)
	w.now = w.now.Add(compactRetention * time.Millisecond)
	w.tick()
	armed = true
	for more := true; more && err == nil; {
		more, err = w.d.Clean()
	}
	armed = false
	return w, site, err
}

// TestCompactionEIO lets every call of a cleaning fail once: the folder goes offline, and
// has lost nothing when it is opened again.
func TestCompactionEIO(t *testing.T) {
	offline := 0
	for n := 1; ; n++ {
		w, site, err := compactFault(t, n, syscall.EIO)
		if site == "" {
			break
		}
		if w.d.Offline() == nil {
			t.Fatalf("%s: the folder is not offline (%v)", site, err)
		}
		offline++
		w.inspectClone("EIO at "+site, w.mem.ProcessClone())
	}
	if offline < 20 {
		t.Fatalf("only %d faults took the folder offline", offline)
	}
}

// TestCompactionFull lets every call of a cleaning find the disk full once: the cleaning is
// given up, the log is what it was, and the next one is as good as any.
func TestCompactionFull(t *testing.T) {
	put := 0
	for n := 1; ; n++ {
		w, site, err := compactFault(t, n, syscall.ENOSPC)
		if site == "" {
			break
		}
		if w.d.Offline() != nil {
			if !errors.Is(w.d.Offline(), syscall.ENOSPC) {
				t.Fatalf("%s: %v", site, w.d.Offline())
			}
			continue // a removal or a sync that wants room: not what a full disk does
		}
		if err != nil {
			t.Fatalf("%s: %v", site, err)
		}
		put++
		w.checkAbove(w.l.HW()) // some segments may have been cleaned
		w.inspectClone("full at "+site, w.mem.ProcessClone())
		w.now = w.now.Add(2 * cleanRetry)
		w.clean()
		w.check()
		if w.l.CleanedTo() == 0 {
			t.Fatalf("%s: nothing was cleaned afterwards", site)
		}
		w.reopen()
		w.check()
	}
	if put < 10 {
		t.Fatalf("only %d times was the disk full", put)
	}
}

// catchUp replicates from a leader's log to a follower's, as the feed does.
func catchUp(t testing.TB, from, to *Log) {
	t.Helper()
	for to.End() < from.End() {
		r, err := from.Read(to.End(), from.End(), 500)
		if err != nil {
			t.Fatal(err)
		}
		run := make(batch.Run, r.Len())
		if _, err := r.ReadAt(run, 0); err != nil {
			t.Fatal(err)
		}
		r.Release()
		if err := to.AppendReplica(run, from.LastEpoch()); err != nil {
			t.Fatal(err)
		}
	}
}

// S15: TestCompactionFollowers has followers that were away for a while, or are new, catch
// up with a leader that has cleaned its log. Each keeps the newest value of every key, as
// the leader does, and cleans its own log in its own time.
func TestCompactionFollowers(t *testing.T) {
	trimmed := 0
	for seed := range int64(25) {
		w := newCompactWorld(t, seed)
		var followers []*Log
		for i := range 4 {
			followers = append(followers, mustCreate(t, w.d, "follower", int32(i)))
		}
		for range 6 {
			for range 15 {
				w.appendSome()
			}
			catchUp(t, w.l, followers[w.rng.Intn(3)])
			w.l.SetHW(w.end)
			w.now = w.now.Add(compactRetention / 3 * time.Millisecond)
			w.tick()
			w.clean()
			w.check()
			f := followers[w.rng.Intn(3)]
			how := w.how
			f.SetCompaction(&how)
			f.SetHW(f.End())
			w.tick()
			w.clean()
		}
		for _, f := range followers {
			if b, err := w.l.Read(min(f.End(), w.end-1), w.end, 1); err == nil {
				if b.First() < f.End() {
					trimmed++
				}
				b.Release()
			}
			catchUp(t, w.l, f)
			if f.End() != w.end {
				t.Fatalf("follower ends at %d, leader at %d", f.End(), w.end)
			}
			batches, err := readLog(f, 600)
			if err != nil {
				t.Fatal(err)
			}
			if err := survivors(recordsOf(t, batches, 0), w.facts, w.start, w.l.HW(), w.now.UnixMilli()); err != nil {
				t.Fatalf("seed %d: follower: %v", seed, err)
			}
			for e := batch.Epoch(0); e <= w.epoch; e++ {
				gotE, gotEnd := f.EpochEnd(e)
				wantE, wantEnd := w.l.EpochEnd(e)
				if gotE != wantE || gotEnd != wantEnd {
					t.Fatalf("end of epoch %d: follower %d and %d, leader %d and %d", e, gotE, gotEnd, wantE, wantEnd)
				}
			}
			if err := sameProducers(f, w.l); err != nil {
				t.Fatalf("follower: %v", err)
			}
		}
	}
	if trimmed < 5 {
		t.Fatalf("only %d followers ended within a filler", trimmed)
	}
}
