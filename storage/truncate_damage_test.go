package storage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// sixBatches is a log of six batches of sixteen records in one segment without index, all
// flushed, and the size of each.
func sixBatches(t *testing.T, fsys vfs.FS) (*Dir, *Log, int64) {
	t.Helper()
	o := testOptions()
	o.SegmentBytes, o.IndexIntervalBytes = 1<<20, 1<<20
	d := mustOpen(t, fsys, o)
	l := mustCreate(t, d, "t", 0)
	var b batch.Batch
	for range 6 {
		b = makeBatch(16, 1000, 3)
		mustAppend(t, l, b, 1)
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	return d, l, int64(len(b))
}

// healed cuts a log at the damage that is known, and further ahead as long as a cut finds
// more, as a replica does.
func healed(l *Log) error {
	for {
		was := (*CorruptError)(nil)
		if !errors.As(l.Damaged(), &was) {
			return nil
		}
		err := l.TruncateTo(max(was.Offset, l.Start()))
		now := (*CorruptError)(nil)
		if errors.As(l.Damaged(), &now) && (err == nil || now.Offset >= was.Offset) {
			return errors.Join(err, now)
		}
	}
}

var sixBatchesFile = filepath.Join(testDir, "t-0", fileName(0, logSuffix))

// TestCutOverDamage flips a bit of the second batch while the log is open, which wrote it,
// and cuts further back. Either nothing is cut and the damage is named where it is, so that
// a second cut takes it away, or the cut is exact.
func TestCutOverDamage(t *testing.T) {
	for at := range int64(batch.HeaderSize) {
		for bit := range 8 {
			for _, end := range []batch.Offset{32, 48, 64} {
				m := vfs.NewMem(1)
				_, l, size := sixBatches(t, m)
				flipBit(t, m, sixBatchesFile, size+at, bit)
				if r, err := l.Read(0, 32, 1<<20); err == nil {
					r.Release() // which may have believed what the bit says
				}
				err := l.TruncateTo(end)
				if err == nil {
					info, statErr := m.Stat(sixBatchesFile)
					if statErr != nil || l.End() != end || info.Size() != int64(end)/16*size {
						t.Fatalf("bit %d of byte %d: cut to %d: end %d, file of %d bytes, %v", bit, at, end, l.End(), info.Size(), statErr)
					}
					continue
				}
				if l.Damaged() == nil || l.End() != 96 {
					t.Fatalf("bit %d of byte %d: cut to %d: %v, damage %v, end %d", bit, at, end, err, l.Damaged(), l.End())
				}
				if err := healed(l); err != nil || l.End() > 16 {
					t.Fatalf("bit %d of byte %d: cut at the damage: %v, end %d", bit, at, err, l.End())
				}
			}
		}
	}
}

// TestCutAtAStartWithDamageBelow begins logs within a batch that rots, and behind one in
// the same file. All of it goes: a log that could not be cut would take no part for good.
func TestCutAtAStartWithDamageBelow(t *testing.T) {
	for _, start := range []batch.Offset{24, 32} {
		m := vfs.NewMem(1)
		d, l, size := sixBatches(t, m)
		if err := l.AdvanceStart(start); err != nil {
			t.Fatal(err)
		}
		mustClose(t, d)
		d = mustOpen(t, m, testOptions())
		l = d.Log("t", 0)
		flipBit(t, m, sixBatchesFile, size+size/2+20, 1)
		scrubAll(t, d)
		if l.Damaged() == nil {
			t.Fatal("the scrub found nothing")
		}
		if err := healed(l); err != nil || l.Damaged() != nil || l.End() != start {
			t.Errorf("start %d: cut: %v, damage %v, end %d", start, err, l.Damaged(), l.End())
		}
		next := makeBatch(1, 1, 1)
		mustAppend(t, l, next, 9)
		mustClose(t, d)
	}
}

// TestCutOfWhatCannotBeListed removes a segment whose folder cannot be listed: a cut finds
// it out all the same.
func TestCutOfWhatCannotBeListed(t *testing.T) {
	m := vfs.NewMem(1)
	deaf := false
	_, l, _ := sixBatches(t, vfs.NewFaulty(m, func(op vfs.Op, name string) error {
		if deaf && op == vfs.OpReadDir {
			return &fs.PathError{Op: "open", Path: name, Err: os.ErrPermission}
		}
		return nil
	}))
	if err := m.Remove(sixBatchesFile); err != nil {
		t.Fatal(err)
	}
	deaf = true
	if err := l.TruncateTo(64); err == nil || l.Damaged() == nil || l.End() != 96 {
		t.Errorf("cut: %v, damage %v, end %d", err, l.Damaged(), l.End())
	}
}

// TestBatchThatLiesUpToTheRecoveryPoint flips the count of a batch so that it seems to end
// where the recovery point is, with sound batches in between. What comes next is not the
// torn end of a log: all of it was flushed.
func TestBatchThatLiesUpToTheRecoveryPoint(t *testing.T) {
	m := vfs.NewMem(1)
	o := testOptions()
	o.CheckpointInterval, o.Now = time.Nanosecond, time.Now
	d := mustOpen(t, m, o)
	l := mustCreate(t, d, "t", 0)
	for range 3 {
		mustAppend(t, l, makeBatch(1, 1000, 3), 1)
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	tick(t, d) // writes the recovery point, 3
	for range 5 {
		mustAppend(t, l, makeBatch(1, 1000, 3), 1)
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	m = m.ProcessClone()
	flipBit(t, m, sixBatchesFile, 26, 1) // of the first batch: it counts three records
	l = mustOpen(t, m, testOptions()).Log("t", 0)
	var bad *CorruptError
	if !errors.As(l.Damaged(), &bad) || bad.Offset != 0 {
		t.Errorf("damage %v, the log ends at %d", l.Damaged(), l.End())
	}
}
