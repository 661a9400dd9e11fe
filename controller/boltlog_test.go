package controller

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/integration/seeds"
)

// fillDisk takes all room from a store, as somebody does who fills its disk.
func fillDisk(b *boltLog) {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	b.room.end = 0
	b.room.allocate = func(*os.File, int64, int64) error { return syscall.ENOSPC }
}

// clearDisk gives it back.
func clearDisk(b *boltLog) {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	b.room.allocate = allocateBlocks
}

func openTestLog(t *testing.T, path string) *boltLog {
	t.Helper()
	b, err := openBoltLog(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// content is all that a log gives its reader, as text.
func content(b *boltLog) (string, error) {
	var out strings.Builder
	first, err := b.FirstIndex()
	last, err2 := b.LastIndex()
	if err := errors.Join(err, err2); err != nil {
		return "", err
	}
	fmt.Fprintf(&out, "%d to %d\n", first, last)
	for i := first; i <= last && i > 0; i++ {
		var l raft.Log
		if err := b.GetLog(i, &l); err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "%d %d %v %q %q %v\n", l.Index, l.Term, l.Type, l.Data, l.Extensions, l.AppendedAt.UnixNano())
	}
	s, _ := b.current()
	for _, k := range slices.Sorted(maps.Keys(s.values)) {
		fmt.Fprintf(&out, "%s=%x\n", k, s.values[k])
	}
	return out.String(), nil
}

func mustContent(t *testing.T, b *boltLog) string {
	t.Helper()
	s, err := content(b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func entries(first, last, term uint64, size int) []*raft.Log {
	var ls []*raft.Log
	for i := first; i <= last; i++ {
		ls = append(ls, &raft.Log{Index: i, Term: term, Type: raft.LogCommand, Data: bytes.Repeat([]byte{byte(i)}, size), AppendedAt: time.Unix(int64(i), 5)})
	}
	return ls
}

// TestBoltLogKeeps: what is stored is there after a restart.
func TestBoltLogKeeps(t *testing.T) {
	path := filepath.Join(t.TempDir(), storeFile)
	b := openTestLog(t, path)
	one := &raft.Log{Index: 7, Term: 3, Type: raft.LogConfiguration, Data: []byte("d"), Extensions: []byte("ext"), AppendedAt: time.Unix(9, 9)}
	if err := errors.Join(b.StoreLog(one), b.StoreLogs(entries(8, 500, 4, 100)), b.Set([]byte("k"), []byte("v")), b.SetUint64([]byte("n"), 1<<60)); err != nil {
		t.Fatal(err)
	}
	var l raft.Log
	if err := b.GetLog(7, &l); err != nil || l.Index != 7 || l.Term != 3 || l.Type != one.Type || string(l.Data) != "d" || string(l.Extensions) != "ext" || !l.AppendedAt.Equal(one.AppendedAt) {
		t.Fatalf("stored %+v, read %+v: %v", one, l, err)
	}
	if n, err := b.GetUint64([]byte("n")); err != nil || n != 1<<60 {
		t.Fatalf("read %d, %v", n, err)
	}
	if err := b.StoreLogs(entries(502, 503, 4, 1)); err == nil {
		t.Fatal("an entry was stored behind a gap")
	}
	before := mustContent(t, b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if after := mustContent(t, openTestLog(t, path)); after != before {
		t.Fatalf("before the restart:\n%s\nafter:\n%s", before, after)
	}
}

// TestBoltLogCut: the newest entries go with those that replace them.
func TestBoltLogCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), storeFile)
	b := openTestLog(t, path)
	if err := b.StoreLogs(entries(1, 20, 1, 10)); err != nil {
		t.Fatal(err)
	}
	before := mustContent(t, b)
	if err := b.DeleteRange(11, 20); err != nil {
		t.Fatal(err)
	}
	last, _ := b.LastIndex()
	if err := b.GetLog(11, &raft.Log{}); last != 10 || !errors.Is(err, raft.ErrLogNotFound) {
		t.Fatalf("after the cut the log ends at %d, and entry 11 gives %v", last, err)
	}
	fillDisk(b)
	if err := b.StoreLogs(entries(11, 12, 2, 10)); !errors.Is(err, errNoRoom) {
		t.Fatalf("a full disk gives %v", err)
	}
	if now := mustContent(t, b); now != before {
		t.Fatalf("entries that found no room have changed the log:\n%s\nwant:\n%s", now, before)
	}
	clearDisk(b)
	if err := errors.Join(b.DeleteRange(11, 20), b.StoreLogs(entries(11, 12, 2, 10)), b.Close()); err != nil {
		t.Fatal(err)
	}
	b = openTestLog(t, path)
	var l raft.Log
	if err := b.GetLog(11, &l); err != nil || l.Term != 2 {
		t.Fatalf("entry 11 is of term %d, %v; want 2", l.Term, err)
	}
	if last, _ := b.LastIndex(); last != 12 {
		t.Fatalf("the log ends at %d, want 12", last)
	}
	// A cut that reaches the oldest, and old entries deleted up to a cut.
	if err := errors.Join(b.DeleteRange(6, 12), b.DeleteRange(1, 5)); err != nil {
		t.Fatal(err)
	}
	if first, _ := b.FirstIndex(); first != 0 {
		t.Fatalf("an empty log begins at %d", first)
	}
	if err := b.StoreLogs(entries(50, 60, 3, 10)); err != nil {
		t.Fatal(err)
	}
	if first, _ := b.FirstIndex(); first != 50 {
		t.Fatalf("the log begins at %d, want 50", first)
	}
}

// TestBoltLogOnAFullDisk: entries are refused, values and deletions are not, and all of it
// goes on when there is room.
func TestBoltLogOnAFullDisk(t *testing.T) {
	b := openTestLog(t, filepath.Join(t.TempDir(), storeFile))
	s := newStore(b, time.Minute, func(err error) { t.Errorf("exit: %v", err) })
	var said []bool
	b.room.changed = func(short bool) { said = append(said, short) }
	if err := s.StoreLogs(entries(1, 10, 1, 1000)); err != nil {
		t.Fatal(err)
	}
	fillDisk(b)
	for range 3 {
		if err := s.StoreLogs(entries(11, 12, 1, 1000)); !errors.Is(err, errNoRoom) {
			t.Fatalf("entries on a full disk: %v", err)
		}
	}
	if b.hasRoom() {
		t.Error("there is room on a full disk")
	}
	if err := errors.Join(s.Set([]byte("vote"), []byte("x")), s.DeleteRange(1, 3)); err != nil {
		t.Fatalf("values and deletions on a full disk: %v", err)
	}
	clearDisk(b)
	if err := s.StoreLogs(entries(11, 12, 1, 1000)); err != nil {
		t.Fatalf("when there is room: %v", err)
	}
	if fmt.Sprint(said) != "[true false]" {
		t.Errorf("the changes told are %v", said)
	}
	// After the whole log is gone Raft may believe in what is not there.
	if err := s.DeleteRange(1, 12); err != nil {
		t.Fatal(err)
	}
	fillDisk(b)
	if err := b.StoreLogs(entries(12, 12, 1, 10)); err == nil || errors.Is(err, errNoRoom) {
		t.Fatalf("entries that replace the whole log find no room: %v; want an end", err)
	}
}

// TestRoomIsHeld: what the runway promises is there without asking the disk.
func TestRoomIsHeld(t *testing.T) {
	free, asked := int64(64<<20), 0
	r := &room{changed: func(bool) {}}
	r.free = func(*os.File) (int64, error) { return free, nil }
	r.allocate = func(_ *os.File, from, to int64) error {
		asked++
		free -= to - from
		return nil
	}
	need := entriesNeed(entries(1, 1, 1, 100))
	if err := r.take(1<<20, need); err != nil || asked != 1 {
		t.Fatalf("%v, asked %d times", err, asked)
	}
	free = 0 // somebody takes all of it
	for size := int64(1 << 20); size <= 1<<20+roomStep; size += 1 << 20 {
		if err := r.take(size, need); err != nil || asked != 1 {
			t.Fatalf("at %d: %v, asked %d times", size, err, asked)
		}
	}
	if err := r.take(2<<20+roomStep, need); !errors.Is(err, errNoRoom) {
		t.Fatalf("beyond the runway: %v", err)
	}
	if r.end-(2<<20+roomStep) < roomKept {
		t.Error("nothing is kept for votes")
	}
	if err := r.take(2<<20+roomStep, 0); err != nil {
		t.Fatalf("a vote: %v", err)
	}
	// A start on a full disk finds again what the file has.
	again := &room{held: r.end, free: r.free, changed: func(bool) {}}
	again.allocate = func(_ *os.File, from, to int64) error {
		if from != 0 || to > r.end {
			return syscall.ENOSPC
		}
		return nil
	}
	if err := again.take(1<<20, need); err != nil {
		t.Fatalf("after a restart: %v", err)
	}
	// Without allocation it is enough that there is room now.
	free, r.allocate = 64<<20, func(*os.File, int64, int64) error { return errNoAllocation }
	if err := r.take(64<<20, need); err != nil {
		t.Fatalf("without allocation: %v", err)
	}
	r.allocate = func(*os.File, int64, int64) error { return syscall.EIO }
	if err := r.take(64<<20, need); !errors.Is(err, syscall.EIO) {
		t.Fatalf("a broken disk: %v", err)
	}
}

// damageSample makes a file with pages of all kinds: several levels, values with pages of their
// own, free pages, a deleted beginning.
func damageSample(t *testing.T) (path, want string) {
	path = filepath.Join(t.TempDir(), storeFile)
	b := openTestLog(t, path)
	for i := uint64(1); i < 300; i += 20 {
		if err := b.StoreLogs(entries(i, i+19, 1+i/100, 60)); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(b.StoreLogs(entries(301, 303, 9, 9000)), b.DeleteRange(1, 100), b.SetUint64([]byte(keyTerm), 9),
		b.Set([]byte(keyVote), []byte("12345678somebody")), b.StoreLogs(entries(304, 340, 9, 30)))
	if err != nil {
		t.Fatal(err)
	}
	want = mustContent(t, b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return path, want
}

// openDamaged opens a damaged file and tells whether that went well, with the content wanted.
func openDamaged(t *testing.T, path, want, what string) bool {
	t.Helper()
	b, err := openBoltLog(path)
	if err != nil {
		if d := (*DamageError)(nil); !errors.As(err, &d) {
			t.Errorf("%s: %v; want a DamageError", what, err)
		}
		return false
	}
	defer func() { _ = b.Close() }()
	if got, err := content(b); err != nil || got != want {
		t.Errorf("%s: it opens with other content, %v", what, err)
	}
	return true
}

// damageFlips is how many random bits TestBoltLogFlippedBits flips, one at a time.
const damageFlips = 500

// TestBoltLogFlippedBits flips each bit that matters most, and others at random. A store then
// opens with what was stored, or says that it is damaged.
func TestBoltLogFlippedBits(t *testing.T) {
	path, want := damageSample(t)
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(seeds.For(t))
	rng := rand.New(rand.NewPCG(seed, 0))
	at := make(map[int]bool)
	for page := 0; page < len(sound); page += os.Getpagesize() {
		for i := range pageHead + pageElement {
			at[page+i] = true
		}
	}
	for i := range pageHead + metaSum + 8 { // both heads of the file whole
		at[i], at[os.Getpagesize()+i] = true, true
	}
	for range damageFlips {
		at[rng.IntN(len(sound))] = true
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	opened := 0
	for i := range at {
		flipped := sound[i] ^ 1<<rng.IntN(8)
		if _, err := f.WriteAt([]byte{flipped}, int64(i)); err != nil {
			t.Fatal(err)
		}
		if openDamaged(t, path, want, fmt.Sprintf("byte %d was %x and is %x", i, sound[i], flipped)) {
			opened++
		}
		if _, err := f.WriteAt(sound[i:i+1], int64(i)); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of %d flips in %d bytes made no difference", opened, len(at), len(sound))
	if opened == 0 || opened == len(at) || !openDamaged(t, path, want, "nothing was changed") {
		t.Error("the trial tries nothing")
	}
}

// TestBoltLogLostPages zeroes pages, puts others in their place, and cuts the file.
func TestBoltLogLostPages(t *testing.T) {
	path, want := damageSample(t)
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(uint64(seeds.For(t)), 0))
	size := os.Getpagesize()
	for page := range len(sound) / size {
		b := bytes.Clone(sound)
		clear(b[page*size : (page+1)*size])
		tryDamaged(t, path, b, want, fmt.Sprintf("page %d is empty", page))
		b = bytes.Clone(sound)
		from := rng.IntN(len(sound) / size)
		copy(b[page*size:(page+1)*size], sound[from*size:])
		tryDamaged(t, path, b, want, fmt.Sprintf("page %d is a copy of page %d", page, from))
		for range 4 {
			b = bytes.Clone(sound)
			for i := range 64 {
				b[page*size+i] = byte(rng.Uint32())
			}
			tryDamaged(t, path, b, want, fmt.Sprintf("page %d begins with anything", page))
		}
		tryDamaged(t, path, sound[:page*size+rng.IntN(size)], want, fmt.Sprintf("the file ends in page %d", page))
	}
}

func tryDamaged(t *testing.T, path string, b []byte, want, what string) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	openDamaged(t, path, want, what)
}

// TestBoltLogChangedWhileOpen: what changes after the check is an error, and no panic.
func TestBoltLogChangedWhileOpen(t *testing.T) {
	path, _ := damageSample(t)
	b := openTestLog(t, path)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rest := make([]byte, b.size-2*int64(os.Getpagesize()))
	for i := range rest {
		rest[i] = 0xff
	}
	if _, err := f.WriteAt(rest, 2*int64(os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	var d *DamageError
	if err := b.GetLog(200, &raft.Log{}); !errors.As(err, &d) {
		t.Errorf("reading gives %v; want a DamageError", err)
	}
}
