package wal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/integration/seeds"
	"github.com/weirmq/weir/storage/vfs"
)

// sample is a log in a folder: several segments, a spare one, a deleted beginning, replaced
// entries, blocks of several pages. past is what each page was before it was what it is.
type sample struct {
	files map[string][]byte
	want  string
	past  map[string]map[int][]byte
	// idle are the files in which no entry is.
	idle map[string]bool
}

// noteWrites remembers what is overwritten.
func (s *sample) noteWrites(l *Log, m *vfs.Mem) {
	for _, seg := range append(l.segments[:len(l.segments):len(l.segments)], l.spare) {
		if seg == nil {
			continue
		}
		now, err := vfs.ReadFile(m, seg.path)
		if err != nil {
			panic(err)
		}
		was, ok := s.files[seg.path]
		for at := 0; ok && at < len(now); at += pageBytes {
			if old := was[at : at+pageBytes]; !bytes.Equal(old, now[at:at+pageBytes]) {
				if s.past[seg.path] == nil {
					s.past[seg.path] = map[int][]byte{}
				}
				s.past[seg.path][at] = old
			}
		}
		s.files[seg.path] = now
	}
}

func newSample(t testing.TB, segmentBytes int64) *sample {
	t.Helper()
	m := newMem(t)
	l, err := open(m, "raft", segmentBytes)
	if err != nil {
		t.Fatal(err)
	}
	s := &sample{files: map[string][]byte{}, past: map[string]map[int][]byte{}, idle: map[string]bool{}}
	step := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		s.noteWrites(l, m)
	}
	step(l.SetUint64([]byte("term"), 1))
	for i := uint64(1); i < 6; i++ {
		step(l.StoreLogs(entries(i, i, 1+i/3, 60)))
	}
	step(l.StoreLogs(entries(6, 7, 2, 2500)))
	step(l.DeleteRange(1, 2))
	step(l.DeleteRange(7, 7), l.StoreLogs(entries(7, 8, 3, 300)))
	step(l.Set([]byte("vote"), []byte("12345678somebody")))
	step(tend(l))
	step(l.StoreLogs(entries(9, 10, 3, 30)))
	s.want = mustContent(t, l)
	for path := range s.files {
		seq, _ := sequence(filepath.Base(path))
		s.idle[path] = seq < l.state.placesFrom() || seq > l.inUse().seq
	}
	step(l.Close())
	return s
}

// folder makes a file system with these files; nil removes one.
func (s *sample) folder(t testing.TB, other map[string][]byte) *vfs.Mem {
	t.Helper()
	m := newMem(t)
	for path, b := range s.files {
		if o, ok := other[path]; ok {
			b = o
		}
		if b == nil {
			continue
		}
		f, err := m.Open(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err == nil {
			_, err = f.WriteAt(b, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// try opens a changed log and tells whether that went well, with the content wanted.
func (s *sample) try(t testing.TB, what string, other map[string][]byte) bool {
	t.Helper()
	return s.tryIn(t, what, s.folder(t, other))
}

func (s *sample) tryIn(t testing.TB, what string, m *vfs.Mem) bool {
	t.Helper()
	l, err := open(m, "raft", small)
	if err != nil {
		if d := (*DamageError)(nil); !errors.As(err, &d) || !strings.Contains(err.Error(), "restore a copy of its folder") {
			t.Errorf("%s: %v; want a DamageError", what, err)
		}
		return false
	}
	defer func() { _ = l.Close() }()
	if got, err := content(l); err != nil || got != s.want {
		t.Errorf("%s: it opens with other content, %v:\n%s\nwant:\n%s", what, err, got, s.want)
	}
	return true
}

// TestFlippedBits changes each byte of each sector that was written, and one of each other, one
// at a time. None is overlooked.
func TestFlippedBits(t *testing.T) {
	seeds.Alone(t)
	s := newSample(t, 20<<10)
	rng := rand.New(rand.NewPCG(uint64(seeds.For(t)), 0))
	tried := 0
	m := s.folder(t, nil)
	for path, sound := range s.files {
		f, err := m.Open(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		empty := -1
		for i := range sound {
			if i%sectorBytes == 0 {
				empty = -1
				if isZero(sound[i : i+sectorBytes]) {
					empty = i + rng.IntN(sectorBytes)
				}
			}
			if empty >= 0 && i != empty {
				continue
			}
			changed := sound[i] ^ 1<<rng.IntN(8)
			_, err := f.WriteAt([]byte{changed}, int64(i))
			if s.tryIn(t, fmt.Sprintf("byte %d of %s was %x and is %x", i, path, sound[i], changed), m) {
				t.Fatalf("the change of byte %d of %s is not found", i, path)
			}
			_, err2 := f.WriteAt(sound[i:i+1], int64(i))
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			tried++
		}
	}
	if len(s.files) < 3 || !s.tryIn(t, "nothing was changed", m) {
		t.Errorf("the trial tries nothing: %d files", len(s.files))
	}
	t.Logf("%d bytes in %d files", tried, len(s.files))
}

// TestFlippedBitsOfATornLog changes bytes of a log that was not closed, whose last block has
// sectors that are empty though they were written: what is acknowledged is not taken for torn.
func TestFlippedBitsOfATornLog(t *testing.T) {
	seeds.Alone(t)
	m := newMem(t)
	l := openQuiet(t, m)
	zeros := []*raft.Log{{Index: 1, Term: 1, Data: make([]byte, 3000)}}
	if err := l.StoreLogs(zeros); err != nil {
		t.Fatal(err)
	}
	s := &sample{files: map[string][]byte{}, want: mustContent(t, l)}
	s.noteWrites(l, m)
	path := l.inUse().path
	b := bytes.Clone(s.files[path])
	for i := 2 * pageBytes; i < 3*pageBytes; i += 3 {
		b[i] ^= 0x10
		if s.try(t, fmt.Sprintf("byte %d is changed", i), map[string][]byte{path: b}) {
			t.Errorf("the change of byte %d is not found", i)
		}
		b[i] ^= 0x10
	}
}

// TestLostPages empties pages, gives them the content they had before, puts others in their place, cuts and removes
// files. None of it is overlooked.
func TestLostPages(t *testing.T) {
	s := newSample(t, 20<<10)
	rng := rand.New(rand.NewPCG(uint64(seeds.For(t)), 0))
	var pagesOfAll [][]byte
	for _, b := range s.files {
		for at := 0; at < len(b); at += pageBytes {
			pagesOfAll = append(pagesOfAll, b[at:at+pageBytes])
		}
	}
	rolledBack := 0
	for path, sound := range s.files {
		change := func(what string, at int, page []byte) {
			b := bytes.Clone(sound)
			copy(b[at:], page)
			opened := s.try(t, fmt.Sprintf("page %d of %s %s", at/pageBytes, path, what), map[string][]byte{path: b})
			if opened != bytes.Equal(b, sound) && !bytes.Equal(sound[at:at+len(page)], s.closeBlock(path)) {
				t.Errorf("page %d of %s %s: opened %v", at/pageBytes, path, what, opened)
			}
		}
		for at := 0; at < len(sound); at += pageBytes {
			change("is empty", at, make([]byte, pageBytes))
			for _, page := range pagesOfAll {
				change("is another one", at, page)
			}
			if old, ok := s.past[path][at]; ok {
				change("is as it was", at, old)
				rolledBack++
			}
			random := make([]byte, 64)
			for i := range random {
				random[i] = byte(rng.Uint32())
			}
			change("begins with anything", at, random)
			if s.try(t, fmt.Sprintf("%s ends in page %d", path, at/pageBytes), map[string][]byte{path: sound[:at+rng.IntN(pageBytes)]}) {
				t.Errorf("%s ends in page %d: it opens", path, at/pageBytes)
			}
		}
	}
	if rolledBack < 10 {
		t.Errorf("only %d pages were rolled back", rolledBack)
	}
}

// closeBlock is the last page with a block in the segment in use. Without it the log counts as not closed.
func (s *sample) closeBlock(path string) []byte {
	b := s.files[path]
	for at := len(b) - pageBytes; at > 0; at -= pageBytes {
		if kind(b[at]) == kindClose {
			return b[at : at+pageBytes]
		}
	}
	return nil
}

// TestLostFiles: a log without one of its segments does not open, unless no entry was in it.
func TestLostFiles(t *testing.T) {
	s := newSample(t, 20<<10)
	opened := 0
	for path := range s.files {
		if s.try(t, path+" is missing", map[string][]byte{path: nil}) {
			opened++
			if !s.idle[path] {
				t.Errorf("%s may be missing", path)
			}
		}
		for other, b := range s.files {
			if other != path && s.try(t, path+" is a copy of "+other, map[string][]byte{path: b}) {
				t.Errorf("%s may be a copy of %s", path, other)
			}
		}
	}
	if opened == 0 || opened == len(s.files) {
		t.Errorf("%d of %d may be missing", opened, len(s.files))
	}
	stranger := newSample(t, 20<<10)
	for path := range s.files {
		if s.try(t, path+" is another log's", map[string][]byte{path: stranger.files[path]}) {
			t.Errorf("%s may be another log's", path)
		}
	}
}

// TestLostLastSegment: the segment before says that there was one.
func TestLostLastSegment(t *testing.T) {
	m := newMem(t)
	l := openQuiet(t, m)
	for i := uint64(1); l.inUse().seq == 1; i++ {
		if err := l.StoreLogs(entries(i, i, 1, 100)); err != nil {
			t.Fatal(err)
		}
	}
	crashed := m.CrashClone(0)
	if err := crashed.Remove(l.inUse().path); err != nil {
		t.Fatal(err)
	}
	var d *DamageError
	if _, err := open(crashed, "raft", small); !errors.As(err, &d) || !strings.Contains(err.Error(), "segment 2 is missing") {
		t.Errorf("without its last segment: %v; want a DamageError", err)
	}
}

// TestTornBlock: of a last block that was not synced any sectors may be there, and none.
func TestTornBlock(t *testing.T) {
	m := newMem(t)
	l := openQuiet(t, m)
	if err := l.StoreLogs(entries(1, 5, 1, 100)); err != nil {
		t.Fatal(err)
	}
	s := &sample{files: map[string][]byte{}, want: mustContent(t, l)}
	at, path := int(l.end), l.inUse().path
	if err := l.StoreLogs(entries(6, 7, 1, 2200)); err != nil { // more than a page, which the next block is not
		t.Fatal(err)
	}
	whole := mustContent(t, l)
	s.noteWrites(l, m)
	sectors := 0
	for i := at; i < int(l.end) && !isZero(s.files[path][i:i+sectorBytes]); i += sectorBytes {
		sectors++
	}
	for mask := range 1 << sectors {
		b := bytes.Clone(s.files[path])
		for i := range sectors {
			if mask&(1<<i) == 0 {
				clear(b[at+i*sectorBytes : at+(i+1)*sectorBytes])
			}
		}
		c := s
		if mask == 1<<sectors-1 {
			c = &sample{files: s.files, want: whole}
		}
		m := c.folder(t, map[string][]byte{path: b})
		l, err := open(m, "raft", small)
		if err != nil {
			t.Fatalf("sectors %b of %d: %v", mask, sectors, err)
		}
		if got := mustContent(t, l); got != c.want {
			t.Fatalf("sectors %b of %d: %s", mask, sectors, got)
		}
		// Nothing of it is left for the next one.
		last, _ := l.LastIndex()
		if err := l.StoreLogs(entries(last+1, last+1, 2, 2)); err != nil {
			t.Fatal(err)
		}
		want := mustContent(t, l)
		if got := mustContent(t, openQuiet(t, m.CrashClone(0))); got != want {
			t.Fatalf("sectors %b of %d, then another entry: %s\nwant: %s", mask, sectors, got, want)
		}
		_ = l.Close()
	}
	if sectors < 5 {
		t.Errorf("a block of %d sectors", sectors)
	}
}

// TestLogChangedWhileOpen: what changes after the check is an error when it is read.
func TestLogChangedWhileOpen(t *testing.T) {
	m := newMem(t)
	l := openQuiet(t, m)
	if err := l.StoreLogs(entries(1, 9, 1, 100)); err != nil {
		t.Fatal(err)
	}
	f, err := m.Open(l.inUse().path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var d *DamageError
	if _, err := f.WriteAt([]byte{0xff}, within(2*pageBytes, 700)); err != nil {
		t.Fatal(err)
	}
	damaged := 0
	for i := uint64(1); i < 10; i++ {
		if err := l.GetLog(i, &raft.Log{}); errors.As(err, &d) {
			damaged++
		} else if err != nil {
			t.Errorf("entry %d: %v", i, err)
		}
	}
	if damaged != 1 {
		t.Errorf("%d entries are damaged", damaged)
	}
	if err := f.Truncate(pageBytes); err != nil {
		t.Fatal(err)
	}
	if err := l.GetLog(1, &raft.Log{}); !errors.As(err, &d) {
		t.Errorf("a file that was cut gives %v; want a DamageError", err)
	}
}

// TestDamageNamesTheFile: the sentence says which file it is.
func TestDamageNamesTheFile(t *testing.T) {
	s := newSample(t, 20<<10)
	path := segmentPath("raft", 2)
	b := bytes.Clone(s.files[path])
	b[pageBytes+100]++
	_, err := open(s.folder(t, map[string][]byte{path: b}), "raft", small)
	if err == nil || !strings.Contains(err.Error(), filepath.Base(path)) {
		t.Errorf("%v", err)
	}
}
