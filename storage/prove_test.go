package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/weirmq/weir/integration/seeds"
	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// flipBit changes one bit of a file.
func flipBit(t *testing.T, m *vfs.Mem, path string, pos int64, bit int) {
	t.Helper()
	f, err := m.Open(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	_, err = f.ReadAt(b[:], pos)
	b[0] ^= 1 << bit
	_, e := f.WriteAt(b[:], pos)
	if err := errors.Join(err, e, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// placed is a batch with the place where it lies.
type placed struct {
	batch.Batch
	path string
	pos  int64
}

// place tells in which file and where each batch of cleanFolder lies.
func place(m *vfs.Mem, t *testing.T, batches []batch.Batch) []placed {
	t.Helper()
	var out []placed
	path, pos := "", int64(0)
	for _, b := range batches {
		name := filepath.Join(testDir, "t-0", fileName(b.Base(), logSuffix))
		if _, err := m.Stat(name); err == nil {
			path, pos = name, 0
		}
		out = append(out, placed{b, path, pos})
		pos += int64(len(b))
	}
	return out
}

// readSound reads the log from everywhere in steps of about maxBytes and fails when
// anything comes that was not written. It returns whether all came.
func readSound(t *testing.T, l *Log, batches []batch.Batch, maxBytes int) bool {
	t.Helper()
	if end := batches[len(batches)-1].End(); l.End() > end {
		t.Fatalf("the log ends at %d and was written to %d", l.End(), end)
	}
	byBase := map[batch.Offset]batch.Batch{}
	for _, b := range batches {
		byBase[b.Base()] = b
	}
	all := true
	for from := l.Start(); from < l.End(); from++ {
		r, err := l.Read(from, l.End(), maxBytes)
		var corrupt *CorruptError
		if errors.As(err, &corrupt) {
			all = false
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, r.Len())
		_, err = r.ReadAt(p, 0)
		first, end := r.First(), r.End()
		r.Release()
		if err != nil {
			t.Fatal(err)
		}
		next := first
		for b, err := range batch.Run(p).Batches() {
			if err != nil {
				t.Fatalf("read from %d: %v", from, err)
			}
			if want := byBase[next]; string(want) != string(b) {
				t.Fatalf("read from %d: the batch at %d was not written", from, next)
			}
			next = b.End()
		}
		if first > from || next != end || end <= from {
			t.Fatalf("read from %d: batches from %d to %d, range to %d", from, first, next, end)
		}
	}
	return all
}

// TestFlippedBitsAreNotServed flips each bit of the header of a batch, and some of its
// records, in the first, a middle and the last batch of a closed segment and of the
// last one. Whatever is read then was written; a scrub finds the damage; a cut there
// leaves a log that is sound and goes on.
func TestFlippedBitsAreNotServed(t *testing.T) {
	clean, batches := cleanFolder(t)
	all := place(clean, t, batches)
	for _, i := range targets(all) {
		b := all[i]
		for at := range int64(batch.HeaderSize + 3) {
			bit := int((at + b.pos) % 8)
			m := clean.ProcessClone()
			flipBit(t, m, b.path, b.pos+at, bit)
			name := fmt.Sprintf("bit %d of byte %d of the batch at %d", bit, at, b.Base())
			d := mustOpen(t, m, testOptions())
			l := d.Log("t", 0)
			if readSound(t, l, batches, 400) && l.End() == batches[len(batches)-1].End() {
				t.Fatalf("%s: all was read", name)
			}
			scrubAll(t, d)
			var corrupt *CorruptError
			if !errors.As(l.Damaged(), &corrupt) || corrupt.Offset != b.Base() {
				t.Fatalf("%s: damage %v", name, l.Damaged())
			}
			if err := l.TruncateTo(corrupt.Offset); err != nil || l.End() != b.Base() || l.Damaged() != nil {
				t.Fatalf("%s: cut: %v, end %d, damage %v", name, err, l.End(), l.Damaged())
			}
			scrubAll(t, d)
			mustAppend(t, l, makeBatch(1, 1, 1), 9)
			if err := l.Damaged(); err != nil || d.Unproven() > 0 {
				t.Fatalf("%s: after the cut: %v, %d bytes unproven", name, err, d.Unproven())
			}
			mustClose(t, d)
			if err := Check(m, testDir); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
}

// TestOldAndNewInOneSegment flips the header of the first and of the last but one batch
// of a segment that an earlier run wrote, appends behind it, and cuts between the two:
// what is read was written.
func TestOldAndNewInOneSegment(t *testing.T) {
	seeds.Alone(t)
	clean, batches := cleanFolder(t)
	all := place(clean, t, batches)
	first := len(all) - 1
	for all[first].pos > 0 {
		first--
	}
	for _, b := range []placed{all[first], all[len(all)-2]} {
		for at := range int64(batch.HeaderSize) {
			for bit := range 8 {
				if readsOldAndNew(t, clean.ProcessClone(), batches, b, at, bit) {
					t.Fatalf("bit %d of byte %d of the batch at %d: all was read", bit, at, b.Base())
				}
			}
		}
	}
}

// readsOldAndNew tells whether all was read with a bit of a batch flipped.
func readsOldAndNew(t *testing.T, m *vfs.Mem, batches []batch.Batch, b placed, at int64, bit int) bool {
	t.Helper()
	d := mustOpen(t, m, testOptions())
	flipBit(t, m, b.path, b.pos+at, bit) // while the log is open
	l := d.Log("t", 0)
	if end := batches[len(batches)-1].Base(); bit == 0 { // first of all
		was := l.End()
		var corrupt *CorruptError
		switch err := l.TruncateTo(end); {
		case d.Offline() != nil:
			t.Fatal(d.Offline())
		case err == nil && l.End() == end:
			batches = batches[:len(batches)-1]
		case !errors.As(err, &corrupt) || l.Damaged() == nil || l.End() != was:
			t.Fatalf("bit %d of byte %d: cut: %v, damage %v, end %d", bit, at, err, l.Damaged(), l.End())
		}
	}
	written := append([]batch.Batch(nil), batches...)
	for l.Damaged() == nil && len(written) < len(batches)+3 {
		next := makeBatch(2, 1, 10)
		mustAppend(t, l, next, 9)
		if written = append(written, next); next.Base() != written[len(written)-2].End() {
			return false // the cut took the damage away
		}
	}
	whole := readSound(t, l, written, 300)
	if err := d.Close(nil); err != nil {
		t.Fatal(err)
	}
	return whole
}

// targets are a first, a middle and a last batch of a closed segment, and of the last.
func targets(all []placed) []int {
	var out []int
	last := all[len(all)-1].path
	for i, b := range all {
		ends := i+1 == len(all) || all[i+1].path != b.path
		closed := filepath.Base(b.path) == "00000000000000000041.log"
		if (closed || b.path == last) && (b.pos == 0 || ends || b.pos > 500 && b.pos < 600) {
			out = append(out, i)
		}
	}
	return out
}

// scrubAll scrubs in small steps until there is nothing left to do.
func scrubAll(t *testing.T, d *Dir) {
	t.Helper()
	for n := 0; ; n++ {
		done, err := d.Scrub(200)
		if err != nil || n > 10_000 {
			t.Fatal(n, err)
		}
		if done == 0 {
			return
		}
	}
}

// TestFlippedBitsAnywhere flips two bits anywhere in the segments, and sometimes in an
// index, again and again: whatever is read, in whatever pieces, was written.
func TestFlippedBitsAnywhere(t *testing.T) {
	seeds.Alone(t)
	clean, batches := cleanFolder(t)
	all := place(clean, t, batches)
	rng := seeded(t, 5)
	for range 400 {
		m := clean.ProcessClone()
		misled := false
		for range 2 {
			b := all[rng.Intn(len(all))]
			flipBit(t, m, b.path, b.pos+rng.Int63n(int64(len(b.Batch))), rng.Intn(8))
			index := b.path[:len(b.path)-len(logSuffix)] + indexSuffix
			if info, err := m.Stat(index); err == nil && info.Size() > 0 && rng.Intn(4) == 0 {
				misled = true
				flipBit(t, m, index, rng.Int63n(info.Size()), rng.Intn(8))
			}
		}
		d := mustOpen(t, m, testOptions())
		l := d.Log("t", 0)
		if rng.Intn(2) == 0 {
			if _, err := d.Scrub(rng.Int63n(5000)); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			readSound(t, l, batches, 1+rng.Intn(2000))
		}
		for range 10 { // the cuts of a follower, until nothing is wrong any more
			var corrupt *CorruptError
			if scrubAll(t, d); !errors.As(l.Damaged(), &corrupt) {
				break
			}
			if err := l.TruncateTo(corrupt.Offset); err != nil {
				t.Fatal(err)
			}
		}
		if !readSound(t, l, batches, 1000) || l.Damaged() != nil {
			t.Fatalf("after the cuts: %v", l.Damaged())
		}
		mustClose(t, d)
		if err := Check(m, testDir); err != nil && !misled {
			t.Fatal(err)
		}
	}
}
