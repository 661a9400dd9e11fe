package storage

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// damages are ways to lose what was flushed, in a log of segments at 0, 20, 41,
// 62, 81 and 101 that ends at 119, and where the log then ends.
var damages = map[string]struct {
	harm func(m *vfs.Mem, path func(name string) string) error
	end  batch.Offset
}{
	"missing segment": {func(m *vfs.Mem, path func(string) string) error {
		return m.Remove(path("00000000000000000101.log"))
	}, 101},
	"short closed segment": {func(m *vfs.Mem, path func(string) string) error {
		return truncateIfThere(m, path("00000000000000000041.log"), 1000)
	}, 55},
	"closed segment without its last batch": {func(m *vfs.Mem, path func(string) string) error {
		info, err := m.Stat(path("00000000000000000041.log"))
		if err != nil {
			return err
		}
		return truncateIfThere(m, path("00000000000000000041.log"), info.Size()-205)
	}, 59},
	"short closed segment without indexes": {func(m *vfs.Mem, path func(string) string) error {
		return errors.Join(truncateIfThere(m, path("00000000000000000041.log"), 1000),
			m.Remove(path("00000000000000000041.index")), m.Remove(path("00000000000000000041.timeindex")))
	}, 55},
	"nothing whole in a closed segment": {func(m *vfs.Mem, path func(string) string) error {
		return truncateIfThere(m, path("00000000000000000041.log"), 40)
	}, 41},
	"empty closed segment": {func(m *vfs.Mem, path func(string) string) error {
		return truncateIfThere(m, path("00000000000000000041.log"), 0)
	}, 41},
	"missing first segment": {func(m *vfs.Mem, path func(string) string) error {
		return m.Remove(path("00000000000000000000.log"))
	}, 0},
	"short last segment": {func(m *vfs.Mem, path func(string) string) error {
		return truncateIfThere(m, path("00000000000000000101.log"), 700)
	}, 110},
	"nothing whole in the last segment": {func(m *vfs.Mem, path func(string) string) error {
		return truncateIfThere(m, path("00000000000000000101.log"), 30)
	}, 101},
	"empty last segment": {func(m *vfs.Mem, path func(string) string) error {
		return truncateIfThere(m, path("00000000000000000101.log"), 0)
	}, 101},
	"zeros in the last segment": {func(m *vfs.Mem, path func(string) string) error {
		f, err := m.Open(path("00000000000000000101.log"), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteAt(make([]byte, 20), 1331)
		return errors.Join(err, f.Close())
	}, 118},
	"no segment": {func(m *vfs.Mem, path func(string) string) error {
		for _, base := range []batch.Offset{0, 20, 41, 62, 81, 101} {
			if err := m.Remove(path(fileName(base, logSuffix))); err != nil {
				return err
			}
		}
		return nil
	}, 0},
}

func sizes(t *testing.T, m *vfs.Mem) map[string]int64 {
	t.Helper()
	entries, err := m.ReadDir(filepath.Join(testDir, "t-0"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int64{}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != logSuffix {
			continue
		}
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = info.Size()
	}
	return out
}

// H36: TestDamage harms what was flushed: nothing is cut, nothing is appended, and
// what lies before can be read.
func TestDamage(t *testing.T) {
	for name, c := range damages {
		t.Run(name, func(t *testing.T) {
			m, batches := cleanFolder(t)
			if err := c.harm(m, func(file string) string { return filepath.Join(testDir, "t-0", file) }); err != nil {
				t.Fatal(err)
			}
			if Check(m, testDir) == nil {
				t.Fatal("check finds nothing wrong")
			}
			before := sizes(t, m)
			for _, stop := range []*CleanStop{nil, {1}, nil} { // no way of stopping launders it
				d := mustOpen(t, m, testOptions())
				l := d.Log("t", 0)
				damagedAt(t, l, c.end)
				got, err := readLog(l, 1000)
				if err != nil || len(got) > 0 && got[len(got)-1].End() != c.end {
					t.Fatalf("read %d batches: %v", len(got), err)
				}
				if err := d.Close(stop); err != nil {
					t.Fatal(err)
				}
				for file, size := range sizes(t, m) {
					if before[file] != size {
						t.Fatalf("%s had %d bytes and has %d", file, before[file], size)
					}
				}
			}
			heal(t, m.ProcessClone(), batches, func(l *Log) error { return l.TruncateTo(l.End()) }, c.end)
			heal(t, m.ProcessClone(), batches, func(l *Log) error { return l.ResetTo(70) }, 70)
			if c.end > 40 {
				heal(t, m.ProcessClone(), batches, func(l *Log) error { return l.TruncateTo(38) }, 38)
			}
		})
	}
}

func damagedAt(t *testing.T, l *Log, end batch.Offset) {
	t.Helper()
	var corrupt *CorruptError
	if !errors.As(l.Damaged(), &corrupt) || corrupt.Offset != end || l.End() != end {
		t.Fatalf("damage %v, end %d, want %d", l.Damaged(), l.End(), end)
	}
	if _, err := l.AppendLeader(makeBatch(1, 1, 1), 99); !errors.As(err, &corrupt) {
		t.Fatalf("append: %v", err)
	}
}

// heal cuts a damaged log and goes on with it.
func heal(t *testing.T, m *vfs.Mem, batches []batch.Batch, cut func(*Log) error, end batch.Offset) {
	t.Helper()
	d := mustOpen(t, m, testOptions())
	l := d.Log("t", 0)
	if err := cut(l); err != nil {
		t.Fatal(err)
	}
	if l.Damaged() != nil || l.End() != end {
		t.Fatalf("after the cut: %v, end %d, want %d", l.Damaged(), l.End(), end)
	}
	for _, b := range batches {
		if b.Base() < end {
			continue
		}
		b = bytes.Clone(b)
		b.Assign(l.End(), b.Epoch())
		if err := l.AppendReplica(batch.Run(b), 9); err != nil {
			t.Fatal(err)
		}
	}
	end = l.End()
	mustClose(t, d)
	if err := Check(m, testDir); err != nil {
		t.Fatal(err)
	}
	d = mustOpen(t, m, testOptions())
	if l := d.Log("t", 0); l.Damaged() != nil || l.End() != end {
		t.Fatalf("opened again: %v, end %d, want %d", l.Damaged(), l.End(), end)
	}
	mustClose(t, d)
}

// TestDamageFoundByARead harms a closed segment, where recovery does not look. A
// read that comes to it, or past it, finds it, and a cut where it says it is leaves a
// log that is whole.
func TestDamageFoundByARead(t *testing.T) {
	path := filepath.Join(testDir, "t-0", "00000000000000000041.log")
	for name, harm := range map[string]func(m *vfs.Mem, pos int64) error{
		"an offset leaps":  func(m *vfs.Mem, pos int64) error { return overwrite(m, path, pos+4, 0x20) },
		"a length leaps":   func(m *vfs.Mem, pos int64) error { return overwrite(m, path, pos+8, 0x20) },
		"a length is zero": func(m *vfs.Mem, pos int64) error { return overwrite(m, path, pos+8, 0, 0, 0, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			m, batches := cleanFolder(t)
			var pos int64 // of the second batch of the segment
			for _, b := range batches {
				if b.Base() == 41 {
					pos = int64(b.Size())
				}
			}
			if err := harm(m, pos); err != nil {
				t.Fatal(err)
			}
			d := mustOpen(t, m, testOptions())
			l := d.Log("t", 0)
			if l.Damaged() != nil {
				t.Fatal("recovery reads the whole of closed segments")
			}
			var corrupt *CorruptError
			for from := batch.Offset(61); from > 40 && l.Damaged() == nil; from-- {
				r, err := l.Read(from, l.End(), 300)
				if err == nil {
					r.Release()
				} else if !errors.As(err, &corrupt) {
					t.Fatal(err)
				}
			}
			if corrupt == nil || !errors.Is(l.Damaged(), corrupt) {
				t.Fatalf("read: %v, damage %v", corrupt, l.Damaged())
			}
			if err := l.TruncateTo(corrupt.Offset); err != nil || l.Damaged() != nil || l.End() != corrupt.Offset || l.End() < 41 {
				t.Fatalf("cut: %v, damage %v, end %d, want %d", err, l.Damaged(), l.End(), corrupt.Offset)
			}
			mustAppend(t, l, makeBatch(1, 1, 1), 9)
			mustClose(t, d)
			if err := Check(m, testDir); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// overwrite puts bytes into a file.
func overwrite(m *vfs.Mem, path string, pos int64, bytes ...byte) error {
	f, err := m.Open(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(bytes, pos)
	return errors.Join(err, f.Close())
}

// H35: TestTornTail cuts what was never flushed, and says nothing of damage.
func TestTornTail(t *testing.T) {
	m := vfs.NewMem(1)
	d := mustOpen(t, m, testOptions())
	l := mustCreate(t, d, "t", 0)
	for range 5 {
		mustAppend(t, l, makeBatch(1, 1000, 100), 1)
	}
	if err := errors.Join(l.Flush(), d.recoveryPoints.write()); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		mustAppend(t, l, makeBatch(1, 1000, 100), 1)
	}
	size := l.Size()
	for lost := int64(1); lost < size/2; lost += 7 {
		c := m.ProcessClone()
		if err := truncateIfThere(c, filepath.Join(testDir, "t-0", "00000000000000000000.log"), size-lost); err != nil {
			t.Fatal(err)
		}
		d := mustOpen(t, c, testOptions())
		l := d.Log("t", 0)
		if want := batch.Offset((size - lost) / (size / 10)); l.End() != want || l.Damaged() != nil {
			t.Fatalf("%d of %d bytes lost: end %d, want %d, damage %v", lost, size, l.End(), want, l.Damaged())
		}
		mustClose(t, d)
	}
	if err := d.Close(nil); err != nil {
		t.Fatal(err)
	}
}

// TestCheckFindsFlippedBits flips bits anywhere in a stopped folder. Each shows,
// but for the fields that nothing covers.
func TestCheckFindsFlippedBits(t *testing.T) {
	clean, _ := cleanFolder(t)
	if err := Check(clean, testDir); err != nil {
		t.Fatal(err)
	}
	rng := seeded(t, 3)
	found, flips := 0, 300
	for range flips {
		m := clean.ProcessClone()
		script := make([]byte, 7)
		rng.Read(script)
		script[1], script[6] = 5, 1<<rng.Intn(8)
		names := mutate(t, m, filepath.Join(testDir, "t-0"), script)
		if Check(m, testDir) != nil {
			found++
		} else if ext := filepath.Ext(names[0]); ext != logSuffix && ext != ".metadata" && ext != ".timeindex" {
			t.Errorf("a flipped bit in %s does not show", names[0])
		}
	}
	if found < flips*8/10 {
		t.Errorf("%d of %d flips show", found, flips)
	}
}
