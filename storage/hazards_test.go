package storage

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// TestEveryHazardHasATest keeps the list of hazards that this package answers for:
// the comment of some test names each.
func TestEveryHazardHasATest(t *testing.T) {
	want := map[string]string{
		"H31": "what is said to be flushed survives a loss of power", "H32": "an error of a sync is final",
		"H33": "names are durable, too", "H34": "a torn checkpoint file", "H35": "a torn tail, and an index that lies",
		"H36": "damage below what was flushed", "H37": "a cut under a reader",
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`// (H3\d)(?:, (H3\d))*: `)
	have := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllString(string(text), -1) {
			for _, h := range regexp.MustCompile(`H3\d`).FindAllString(m, -1) {
				have[h] = true
			}
		}
	}
	for _, h := range slices.Sorted(maps.Keys(want)) {
		if !have[h] {
			t.Errorf("no test for %s: %s", h, want[h])
		}
	}
}

// H33: TestNamesAreFlushed makes many small segments durable by commits, and cuts
// the power after each: no flushed record is in a file whose name is lost.
func TestNamesAreFlushed(t *testing.T) {
	m := vfs.NewMem(1)
	o := testOptions()
	o.SegmentBytes = 500
	d := mustOpen(t, m, o)
	l := mustCreate(t, d, "a", 0)
	durable(l)
	for range 30 {
		mustAppend(t, l, makeBatch(2, 1, 100), 1)
		if err := d.Commit(); err != nil {
			t.Fatal(err)
		}
		if l.Flushed() != l.End() {
			t.Fatalf("flushed to %d of %d", l.Flushed(), l.End())
		}
		c := mustOpen(t, m.CrashClone(0), o)
		got := c.Log("a", 0)
		if got.End() != l.Flushed() || got.Damaged() != nil {
			t.Fatalf("the log ends at %d after a loss of power, %v; it was flushed to %d", got.End(), got.Damaged(), l.Flushed())
		}
		mustClose(t, c)
	}
	mustClose(t, d)
}

// H34: TestTornCheckpoints opens folders in which a checkpoint file was cut short,
// as one that is not replaced as a whole can be: no record is lost by that, and
// none comes back.
func TestTornCheckpoints(t *testing.T) {
	m, batches := cleanFolder(t)
	start, end := batches[0].Base(), batches[len(batches)-1].End()
	for _, file := range []string{recoveryFile, hwFile, startFile, filepath.Join("t-0", epochFile)} {
		path := filepath.Join(testDir, file)
		whole, err := vfs.ReadFile(m, path)
		if err != nil {
			t.Fatal(err)
		}
		for size := range whole {
			torn := m.ProcessClone()
			if err := truncateIfThere(torn, path, int64(size)); err != nil {
				t.Fatal(err)
			}
			d := mustOpen(t, torn, testOptions())
			l := d.Log("t", 0)
			if l.Start() > start || l.End() != end || l.Damaged() != nil {
				t.Fatalf("%s of %d bytes: the log is [%d, %d), want [%d, %d): %v", file, size, l.Start(), l.End(), start, end, l.Damaged())
			}
			for e := range l.LastEpoch() + 1 {
				if got, at := l.EpochEnd(e); fmt.Sprint(got, at) != fmt.Sprint(epochEnd(batches, e)) {
					t.Fatalf("%s of %d bytes: epoch %d: %d ends at %d, want %v", file, size, e, got, at, epochEnd(batches, e))
				}
			}
			mustClose(t, d)
		}
	}
}

// epochEnd is EpochEnd as the batches have it.
func epochEnd(batches []batch.Batch, e batch.Epoch) string {
	last, end := batch.NoEpoch, batches[0].Base()
	for _, b := range batches {
		if b.Epoch() <= e {
			last, end = b.Epoch(), b.End()
		}
	}
	return fmt.Sprint(last, end)
}

// H35: TestIndexesLie changes each byte of the index files of a stopped folder: a
// read checks where an entry points, so what it finds is right all the same.
func TestIndexesLie(t *testing.T) {
	m, batches := cleanFolder(t)
	folder := filepath.Join(testDir, "t-0")
	entries, err := m.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if ext != offsetIndex.suffix() && ext != timeIndex.suffix() {
			continue
		}
		path := filepath.Join(folder, e.Name())
		whole, err := vfs.ReadFile(m, path)
		if err != nil {
			t.Fatal(err)
		}
		for at := range whole {
			lied := m.ProcessClone()
			flip(t, lied, path, int64(at), whole[at])
			d := mustOpen(t, lied, testOptions())
			checkReads(t, fmt.Sprintf("%s changed at %d", e.Name(), at), d.Log("t", 0), batches)
			if err := d.Close(nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func flip(t *testing.T, m *vfs.Mem, path string, at int64, b byte) {
	t.Helper()
	f, err := m.Open(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // a file in memory
	if _, err := f.WriteAt([]byte{b ^ 0x41}, at); err != nil {
		t.Fatal(err)
	}
}

// checkReads reads a batch from the middle of each.
func checkReads(t *testing.T, what string, l *Log, batches []batch.Batch) {
	t.Helper()
	for _, b := range batches {
		at := (b.Base() + b.Last()) / 2
		r, err := l.Read(at, l.End(), 1)
		if err != nil {
			t.Errorf("%s: a read of %d: %v", what, at, err)
			continue
		}
		if r.First() != b.Base() || r.End() != b.End() {
			t.Errorf("%s: a read of %d gives [%d, %d), want [%d, %d)", what, at, r.First(), r.End(), b.Base(), b.End())
		}
		r.Release()
	}
}

// TestWatermarkOfWhatWasLost (H15): a high watermark that is on the disk does not cover
// what comes after a cut below it, whether that was asked for or found at a start.
func TestWatermarkOfWhatWasLost(t *testing.T) {
	for name, lose := range map[string]func(*Dir, *vfs.Mem) *vfs.Mem{
		"cut": func(d *Dir, m *vfs.Mem) *vfs.Mem {
			if err := d.Log("t", 0).TruncateTo(3); err != nil {
				t.Fatal(err)
			}
			return m
		},
		"reset": func(d *Dir, m *vfs.Mem) *vfs.Mem {
			if err := d.Log("t", 0).ResetTo(3); err != nil {
				t.Fatal(err)
			}
			return m
		},
		"power": func(d *Dir, m *vfs.Mem) *vfs.Mem { return m.CrashClone(0) },
	} {
		t.Run(name, func(t *testing.T) {
			m := vfs.NewMem(1)
			d := mustOpen(t, m, testOptions())
			l := mustCreate(t, d, "t", 0)
			mustAppend(t, l, makeBatch(3, 1, 10), 0)
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
			mustAppend(t, l, makeBatch(7, 1, 10), 0)
			l.SetHW(10)
			if err := errors.Join(d.recoveryPoints.write(), d.hws.write()); err != nil {
				t.Fatal(err)
			}
			next := lose(d, m)
			if next != m {
				mustClose(t, d)
				d = mustOpen(t, next, testOptions())
			}
			l = d.Log("t", 0)
			if l.End() != 3 || l.HW() > 3 {
				t.Fatalf("the log ends at %d with a high watermark of %d, want 3", l.End(), l.HW())
			}
			mustAppend(t, l, makeBatch(5, 1, 10), 1)
			killed := next.ProcessClone()
			mustClose(t, d)
			d = mustOpen(t, killed, testOptions())
			if hw := d.Log("t", 0).HW(); hw > 3 {
				t.Errorf("the high watermark is %d after a start, 3 was the last that was known", hw)
			}
			mustClose(t, d)
		})
	}
}
