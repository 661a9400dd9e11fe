package storage

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/integration/seeds"
	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// H34: TestEpochFileCannotBeWritten has no room for the epoch file while records are
// flushed: a restart must not begin past an epoch that is nowhere but in batches.
func TestEpochFileCannotBeWritten(t *testing.T) {
	m := vfs.NewMem(1)
	full := false
	o := testOptions()
	o.CheckpointInterval = time.Nanosecond
	now := time.UnixMilli(1e12)
	o.Now = func() time.Time { now = now.Add(time.Second); return now }
	d, err := OpenDir(vfs.NewFaulty(m, func(op vfs.Op, name string) error {
		if full && op == vfs.OpCreate && strings.Contains(name, epochFile) {
			return syscall.ENOSPC
		}
		return nil
	}), testDir, o)
	if err != nil {
		t.Fatal(err)
	}
	l := mustCreate(t, d, "t", 0)
	mustAppend(t, l, makeBatch(2, 1000, 10), 1)
	if err := d.Tick(); err != nil {
		t.Fatal(err)
	}
	full = true
	for l.Size() < 3*o.SegmentBytes { // so that nothing of epoch 1 is in the last segment
		mustAppend(t, l, makeBatch(2, 1000, 100), 2)
	}
	if err := errors.Join(d.Tick(), d.Tick()); err != nil {
		t.Fatal(err)
	}
	if l.Flushed() != l.End() {
		t.Fatalf("flushed %d of %d", l.Flushed(), l.End())
	}
	check := func(when string) {
		t.Helper()
		c := mustOpen(t, m.CrashClone(0), testOptions())
		again := c.Log("t", 0)
		if e, end := again.EpochEnd(1); again.End() != l.End() || again.LastEpoch() != 2 || e != 1 || end != 2 {
			t.Fatalf("%s: end %d, last epoch %d, epoch %d ends at %d", when, again.End(), again.LastEpoch(), e, end)
		}
		mustClose(t, c)
	}
	check("without the file")
	full = false
	if err := d.Tick(); err != nil {
		t.Fatal(err)
	}
	check("with it")
	if got := l.recorded.Load(); got != int64(l.End()) {
		t.Fatalf("recovery point %d of %d", got, l.End())
	}
	mustClose(t, d)
}

// TestNoAppendBesideACut tries to append at every call of a cut.
func TestNoAppendBesideACut(t *testing.T) {
	m := vfs.NewMem(1)
	var l *Log
	tried, cutting := 0, false
	d, err := OpenDir(vfs.NewFaulty(m, func(op vfs.Op, name string) error {
		if cutting && op.Mutates() {
			tried++
			if _, err := l.AppendLeader(makeBatch(1, 1000, 10), 5); !errors.Is(err, ErrBusy) {
				t.Errorf("append before %s %s: %v", op, name, err)
			}
		}
		return nil
	}), testDir, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	l = mustCreate(t, d, "t", 0)
	for range 30 {
		mustAppend(t, l, makeBatch(1, 1000, 300), 1)
	}
	for _, cut := range []func() error{func() error { return l.TruncateTo(20) }, func() error { return l.ResetTo(4) }} {
		cutting = true
		err := cut()
		cutting = false
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, l, makeBatch(1, 1000, 10), 5)
	}
	if tried < 8 {
		t.Fatalf("only %d calls", tried)
	}
	mustClose(t, d)
}

// TestUnflushedBatchesMustFollow ends a log, above its recovery point, before a
// batch that is whole but is not the next one.
func TestUnflushedBatchesMustFollow(t *testing.T) {
	for name, assign := range map[string]func(b batch.Batch){
		"older epoch": func(b batch.Batch) { b.Assign(4, 2) },
		"gap":         func(b batch.Batch) { b.Assign(5, 3) },
		"overlap":     func(b batch.Batch) { b.Assign(3, 3) },
		"no epoch":    func(b batch.Batch) { b.Assign(4, batch.NoEpoch) },
	} {
		t.Run(name, func(t *testing.T) {
			m := vfs.NewMem(1)
			d := mustOpen(t, m, testOptions())
			l := mustCreate(t, d, "t", 0)
			mustAppend(t, l, makeBatch(4, 1000, 10), 3)
			mustClose(t, d)
			b := makeBatch(2, 1000, 10)
			assign(b)
			f, err := m.Open(filepath.Join(testDir, "t-0", "00000000000000000000.log"), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Write(b); err != nil {
				t.Fatal(err)
			}
			d = mustOpen(t, m, testOptions())
			l = d.Log("t", 0)
			if size, _ := f.Size(); l.End() != 4 || l.Damaged() != nil || size != l.Size() {
				t.Fatalf("end %d, damage %v, %d of %d bytes", l.End(), l.Damaged(), l.Size(), size)
			}
			mustClose(t, d)
		})
	}
}

// H35: TestMissingIndexes opens logs whose index files are gone.
func TestMissingIndexes(t *testing.T) {
	clean, batches := cleanFolder(t)
	for _, suffix := range []string{indexSuffix, timeSuffix} {
		m := clean.ProcessClone()
		for _, base := range []batch.Offset{0, 41, 101} {
			if err := m.Remove(filepath.Join(testDir, "t-0", fileName(base, suffix))); err != nil {
				t.Fatal(err)
			}
		}
		d := mustOpen(t, m, testOptions())
		l := d.Log("t", 0)
		got, err := readLog(l, 400)
		if err != nil || len(got) != len(batches) {
			t.Fatalf("read %d of %d: %v", len(got), len(batches), err)
		}
		if o, ts, _, ok, err := l.MaxTimestamp(l.End()); err != nil || !ok || ts != 1050 {
			t.Fatalf("greatest timestamp %d at %d, %v, %v", ts, o, ok, err)
		}
		mustClose(t, d)
		if err := Check(m, testDir); err != nil {
			t.Fatal(err)
		}
		for _, base := range []batch.Offset{0, 20, 41, 62, 81, 101} {
			path := filepath.Join(testDir, "t-0", fileName(base, suffix))
			want, err1 := vfs.ReadFile(clean, path)
			have, err2 := vfs.ReadFile(m, path)
			if err := errors.Join(err1, err2); err != nil || string(want) != string(have) {
				t.Fatalf("%s is %x, was %x: %v", path, have, want, err)
			}
		}
	}
}

// TestCutToNothing crashes a cut that drops all segments, in many ways: what is
// left must begin where the log did.
func TestCutToNothing(t *testing.T) {
	seeds.Alone(t)
	m := vfs.NewMem(1)
	cutting := false
	d, err := OpenDir(vfs.NewFaulty(m, func(op vfs.Op, name string) error {
		if !cutting || !op.Mutates() {
			return nil
		}
		for seed := range int64(60) {
			c := mustOpen(t, m.CrashClone(seed), testOptions())
			if l := c.Log("t", 0); l.Start() != 0 || l.Damaged() != nil {
				t.Fatalf("before %s %s, seed %d: start %d, %v", op, name, seed, l.Start(), l.Damaged())
			}
			mustClose(t, c)
		}
		return nil
	}), testDir, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	l := mustCreate(t, d, "t", 0)
	for range 40 {
		mustAppend(t, l, makeBatch(1, 1000, 300), 1)
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	cutting = true
	err = l.TruncateTo(0)
	cutting = false
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, d)
}

// TestEpochFileAheadOfTheStart: the epoch file was written under a raised start
// that did not get to the disk, so what it lacks is found in the batches.
func TestEpochFileAheadOfTheStart(t *testing.T) {
	m := vfs.NewMem(1)
	d := mustOpen(t, m, testOptions())
	l := mustCreate(t, d, "a", 0)
	for e := range batch.Epoch(4) {
		for range 5 {
			mustAppend(t, l, makeBatch(1, 1, 100), e)
		}
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := d.writeCheckpoints(); err != nil {
		t.Fatal(err)
	}
	if err := l.RaiseStart(12); err != nil {
		t.Fatal(err)
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	d2 := mustOpen(t, m.CrashClone(0), testOptions())
	l = d2.Log("a", 0)
	if l.Start() != 0 || l.End() != 20 {
		t.Fatalf("the log is [%d, %d), want [0, 20)", l.Start(), l.End())
	}
	for e := range batch.Epoch(4) {
		if got, end := l.EpochEnd(e); got != e || end != batch.Offset(5*e+5) {
			t.Errorf("epoch %d: epoch %d ends at %d", e, got, end)
		}
	}
	fsys := d2.FS()
	mustClose(t, d2)
	if err := Check(fsys, testDir); err != nil {
		t.Error(err)
	}
	mustClose(t, d)
}
