package storage

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// removals are what a hand from outside takes of a log with segments at 0, 20, 41, 62,
// 81 and 101 that ends at 119, and where the log is damaged then.
var removals = map[string]struct {
	names []string // of files; nil for the folder
	at    batch.Offset
}{
	"the folder":        {nil, 0},
	"all files":         {[]string{"*"}, 0},
	"the first segment": {[]string{"00000000000000000000.log"}, 0},
	"a middle segment":  {[]string{"00000000000000000041.log"}, 41},
	"the last segment":  {[]string{"00000000000000000101.log"}, 101},
}

// takeAway removes files, or the folder, behind the back of a log.
func takeAway(t *testing.T, m *vfs.Mem, names []string) {
	t.Helper()
	folder := filepath.Join(testDir, "t-0")
	if names == nil {
		if err := m.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
		return
	}
	entries, err := m.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		for _, pattern := range names {
			if ok, err := filepath.Match(pattern, e.Name()); err != nil {
				t.Fatal(err)
			} else if ok {
				if err := m.Remove(filepath.Join(folder, e.Name())); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// finders are the ways to come upon files that are gone.
var finders = map[string]struct {
	before bool // appends to the log before the files go
	last   bool // looks at nothing but what was appended to
	find   func(t *testing.T, d *Dir, l *Log)
}{
	"a tick of an idle folder": {find: func(t *testing.T, d *Dir, _ *Log) { tick(t, d) }},
	"a tick after an append":   {before: true, find: func(t *testing.T, d *Dir, _ *Log) { tick(t, d) }},
	"a flush":                  {before: true, last: true, find: func(_ *testing.T, _ *Dir, l *Log) { _ = l.Flush() }},
	"the committer": {before: true, last: true, find: func(t *testing.T, d *Dir, l *Log) {
		told := 0
		l.SetDurable(func() { told++ })
		if err := d.Commit(); err != nil || told == 0 {
			t.Errorf("commit: %v, told %d times", err, told)
		}
	}},
	"appends that roll": {last: true, find: func(_ *testing.T, _ *Dir, l *Log) {
		for range 40 {
			_, _ = l.AppendLeader(makeBatch(1, 1, 300), 9)
		}
	}},
	"reads": {find: func(t *testing.T, _ *Dir, l *Log) {
		if _, err := readLog(l, 1000); err == nil {
			t.Error("a log without a file was read to its end")
		}
	}},
	"a scrub": {find: func(t *testing.T, d *Dir, _ *Log) {
		if _, err := d.Scrub(1 << 30); err != nil {
			t.Error(err)
		}
	}},
}

func tick(t *testing.T, d *Dir) {
	t.Helper()
	if err := d.Tick(); err != nil {
		t.Fatal(err)
	}
}

// TestFilesGoneWhileOpen takes files away from a log that is open: it is damaged where
// they are missing, the other log and the folder go on, and a cut makes a whole log again.
func TestFilesGoneWhileOpen(t *testing.T) {
	clean, batches := cleanFolder(t)
	for what, r := range removals {
		for how, f := range finders {
			t.Run(what+", found by "+how, func(t *testing.T) {
				m := clean.ProcessClone()
				d := mustOpen(t, m, testOptions())
				other := mustCreate(t, d, "other", 0)
				l := d.Log("t", 0)
				told := 0
				l.OnDamage(func() { told++ })
				if f.before {
					mustAppend(t, l, makeBatch(1, 1, 1), 9)
				}
				flushed := l.Flushed()
				takeAway(t, m, r.names)
				f.find(t, d, l)
				if f.last && r.names != nil && r.at < 101 {
					if l.Damaged() != nil && what != "all files" {
						t.Error("it looked further than it has to")
					}
					tick(t, d)
				}
				var corrupt *CorruptError
				errors.As(l.Damaged(), &corrupt)
				if corrupt == nil || corrupt.Offset != r.at || told == 0 {
					t.Fatalf("damage %v, want it at %d, told %d times", l.Damaged(), r.at, told)
				}
				if f.before && (r.at >= 101 || r.names == nil) && l.Flushed() != flushed {
					t.Errorf("flushed went from %d to %d", flushed, l.Flushed())
				}
				if _, err := l.AppendLeader(makeBatch(1, 1, 1), 9); !errors.As(err, &corrupt) {
					t.Errorf("append: %v", err)
				}
				mustAppend(t, other, makeBatch(1, 1, 1), 1)
				if err := errors.Join(other.Flush(), d.Offline()); err != nil {
					t.Fatal(err)
				}
				fetchAgain(t, d, l, batches, r.at)
				reopened(t, m, l.End())
			})
		}
	}
}

// fetchAgain cuts a damaged log where it is damaged and appends again what is missing.
func fetchAgain(t *testing.T, d *Dir, l *Log, batches []batch.Batch, at batch.Offset) {
	t.Helper()
	if err := l.TruncateTo(max(min(at, l.End()), l.Start())); err != nil {
		t.Fatal(err)
	}
	if l.Damaged() != nil || l.End() != at {
		t.Fatalf("after the cut: %v, end %d, want %d", l.Damaged(), l.End(), at)
	}
	for _, b := range batches {
		if b.Base() < at {
			continue
		}
		if err := l.AppendReplica(batch.Run(bytes.Clone(b)), 9); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, d)
}

// reopened checks a folder in which all logs have to be whole.
func reopened(t *testing.T, m *vfs.Mem, end batch.Offset) {
	t.Helper()
	if err := Check(m, testDir); err != nil {
		t.Fatal(err)
	}
	d := mustOpen(t, m, testOptions())
	defer mustClose(t, d)
	l := d.Log("t", 0)
	if l == nil || l.Damaged() != nil || l.End() != end || l.ID() != (ID{1, 2, 3}) {
		t.Fatalf("opened again: %+v, want an end at %d", l, end)
	}
	if _, lost := d.OpenLost("t", 0, l.ID()); lost {
		t.Error("a log that is there was lost")
	}
}

// TestFilesGoneAtTheEnd takes the files away before a stop, which has to end all the same.
// The next start finds the loss, however the one before ended.
func TestFilesGoneAtTheEnd(t *testing.T) {
	clean, batches := cleanFolder(t)
	for what, r := range removals {
		t.Run(what, func(t *testing.T) {
			m := clean.ProcessClone()
			d := mustOpen(t, m, testOptions())
			mustAppend(t, d.Log("t", 0), makeBatch(1, 1, 1), 9)
			takeAway(t, m, r.names)
			mustClose(t, d)
			d = mustOpen(t, m, testOptions())
			l := d.Log("t", 0)
			if l == nil {
				l, _ = d.OpenLost("t", 0, ID{1, 2, 3})
			}
			if r.names != nil && r.names[0] == "*" { // it has no identity, and the broker sets it aside
				if err := d.Stray(l); err != nil {
					t.Fatal(err)
				}
				l, _ = d.OpenLost("t", 0, ID{1, 2, 3})
			}
			damagedAt(t, l, r.at)
			fetchAgain(t, d, l, batches, r.at)
			reopened(t, m, 119)
		})
	}
}

// TestFolderGoneAtTheStart removes a folder between two runs. A log is known then that is
// damaged and has no folder, at this start and at each one after it, until it is cut.
func TestFolderGoneAtTheStart(t *testing.T) {
	m, batches := cleanFolder(t)
	takeAway(t, m, nil)
	for _, stop := range []*CleanStop{nil, {1}, nil} {
		d := mustOpen(t, m, testOptions())
		if d.Log("t", 0) != nil {
			t.Fatal("there is a log without a folder")
		}
		if err := errors.Join(d.recoveryPoints.write(), d.hws.write(), d.starts.write()); err != nil { // before it is asked for
			t.Fatal(err)
		}
		if stop == nil {
			if err := d.Close(nil); err != nil { // and never was
				t.Fatal(err)
			}
			d = mustOpen(t, m, testOptions())
		}
		l, lost := d.OpenLost("t", 0, ID{1, 2, 3})
		if _, again := d.OpenLost("t", 0, ID{1, 2, 3}); !lost || again {
			t.Fatalf("lost %v, and again %v", lost, again)
		}
		damagedAt(t, l, 0)
		if err := d.writeCheckpoints(); err != nil {
			t.Fatal(err)
		}
		tick(t, d)
		if err := d.Close(stop); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Stat(filepath.Join(testDir, "t-0")); err == nil {
			t.Fatal("a lost log has a folder")
		}
	}
	for _, cut := range []func(*Log) error{
		func(l *Log) error { return l.TruncateTo(l.End()) },
		func(l *Log) error { return l.ResetTo(0) },
	} {
		m := m.ProcessClone()
		d := mustOpen(t, m, testOptions())
		l, _ := d.OpenLost("t", 0, ID{1, 2, 3})
		if err := cut(l); err != nil {
			t.Fatal(err)
		}
		fetchAgain(t, d, l, batches, 0)
		reopened(t, m, 119)
	}
}

// TestLostLogThatStarted loses the folder of a log whose start has moved.
func TestLostLogThatStarted(t *testing.T) {
	m, batches := cleanFolder(t)
	d := mustOpen(t, m, testOptions())
	if err := d.Log("t", 0).AdvanceStart(41); err != nil {
		t.Fatal(err)
	}
	mustClose(t, d)
	takeAway(t, m, nil)
	d = mustOpen(t, m, testOptions())
	l, _ := d.OpenLost("t", 0, ID{1, 2, 3})
	damagedAt(t, l, 41)
	fetchAgain(t, d, l, batches, 41)
	reopened(t, m, 119)
}

// TestLostNameIsUsedAgain gives the name of a lost log to another topic: by Create, which
// wants nothing of what was lost, or after nobody asked for it.
func TestLostNameIsUsedAgain(t *testing.T) {
	for name, forget := range map[string]bool{"created": false, "forgotten": true} {
		t.Run(name, func(t *testing.T) {
			m, _ := cleanFolder(t)
			takeAway(t, m, nil)
			d := mustOpen(t, m, testOptions())
			if forget {
				d.ForgetLost()
				tick(t, d)
			} else {
				mustAppend(t, mustCreate(t, d, "t", 0), makeBatch(1, 1, 1), 1)
			}
			if _, lost := d.OpenLost("t", 0, ID{9}); lost {
				t.Fatal("it is still lost")
			}
			mustClose(t, d)
			if !forget {
				reopened(t, m, 1)
				return
			}
			d = mustOpen(t, m, testOptions())
			if _, lost := d.OpenLost("t", 0, ID{9}); lost {
				t.Error("it is lost again after a restart")
			}
			mustClose(t, d)
		})
	}
}

// TestDeleteWhatIsGone deletes logs whose folders are gone, and uses the name again.
func TestDeleteWhatIsGone(t *testing.T) {
	for name, open := range map[string]bool{"while open": true, "at the start": false} {
		t.Run(name, func(t *testing.T) {
			m, _ := cleanFolder(t)
			if !open {
				takeAway(t, m, nil)
			}
			d := mustOpen(t, m, testOptions())
			l := d.Log("t", 0)
			if open {
				takeAway(t, m, nil)
			} else {
				l, _ = d.OpenLost("t", 0, ID{1, 2, 3})
			}
			if err := d.Delete(l); err != nil {
				t.Fatal(err)
			}
			mustAppend(t, mustCreate(t, d, "t", 0), makeBatch(1, 1, 1), 1)
			tick(t, d) // removes what was deleted
			mustClose(t, d)
			reopened(t, m, 1)
		})
	}
}

// TestIdentityIsWrittenAgain removes only the file with the topic's id.
func TestIdentityIsWrittenAgain(t *testing.T) {
	m, _ := cleanFolder(t)
	d := mustOpen(t, m, testOptions())
	takeAway(t, m, []string{metadataFile})
	tick(t, d)
	if err := d.Log("t", 0).Damaged(); err != nil {
		t.Error(err)
	}
	mustClose(t, d)
	reopened(t, m, 119)
}

// TestTicksLookAtAll takes the folder of one of many logs away: it is found within the
// ticks that it takes to look at all, and no tick looks at more than it may.
func TestTicksLookAtAll(t *testing.T) {
	const logs = 3*lookLogs + 5
	m := vfs.NewMem(1)
	looks := 0
	d := mustOpen(t, vfs.NewFaulty(m, func(op vfs.Op, _ string) error {
		if op == vfs.OpReadDir {
			looks++
		}
		return nil
	}), testOptions())
	for i := range logs {
		mustCreate(t, d, "t", int32(i))
	}
	if err := m.RemoveAll(filepath.Join(testDir, "t-77")); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		looks = 0
		tick(t, d)
		if looks > lookLogs {
			t.Fatalf("a tick looked at %d folders", looks)
		}
	}
	if d.Log("t", 77).Damaged() == nil {
		t.Error("a folder that is gone was not found in a round")
	}
	mustClose(t, d)
}

// TestRetentionOfWhatIsGone lets a log's start pass a segment whose file is gone.
func TestRetentionOfWhatIsGone(t *testing.T) {
	m, batches := cleanFolder(t)
	d := mustOpen(t, m, testOptions())
	l := d.Log("t", 0)
	takeAway(t, m, []string{"00000000000000000000.log"})
	if err := l.RaiseStart(41); err != nil {
		t.Fatal(err)
	}
	tick(t, d)
	tick(t, d)
	if err := errors.Join(d.Offline(), l.Damaged()); err != nil {
		t.Fatal(err)
	}
	takeAway(t, m, []string{"00000000000000000062.log"})
	tick(t, d)
	if err := l.RaiseStart(70); err != nil {
		t.Fatal(err)
	}
	tick(t, d)
	fetchAgain(t, d, l, batches[:0], 70)
	reopened(t, m, 70)
}
