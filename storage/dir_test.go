package storage

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirmq/weir/storage/vfs"
)

func TestFolderNames(t *testing.T) {
	for name, want := range map[string]partition{
		"a-0": {"a", 0}, "a-b-12": {"a-b", 12}, "raft": {}, "a-": {}, "-1": {}, "a-01": {}, "a-+1": {}, "a--1": {"a-", 1},
		"a-2147483647": {"a", 2147483647}, "a-2147483648": {}, "a/b-1": {}, "..-1": {}, "a-0.new": {},
		"a-0." + strings.Repeat("0", 32) + "-delete": {}, strings.Repeat("x", 249) + "-0": {strings.Repeat("x", 249), 0}, strings.Repeat("x", 250) + "-0": {},
	} {
		got, ok := parsePartition(name)
		if ok != (want != partition{}) || ok && got != want {
			t.Errorf("%q: got %v, %v, want %v", name, got, ok, want)
		}
		if ok && got.String() != name {
			t.Errorf("%q comes back as %q", name, got)
		}
	}
	id := ID{0xab, 15: 0xcd}
	long := asideName(partition{strings.Repeat("x", 249), 12}, id, 3, deleteSuffix)
	if len(long) > maxNameLen || !asideFolder(long, deleteSuffix) {
		t.Errorf("aside name %q", long)
	}
	if got, want := asideName(partition{"t", 1}, id, 0, straySuffix), "t-1.ab0000000000000000000000000000cd-stray"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if asideFolder("topic-delete", deleteSuffix) {
		t.Error("topic-delete is not a folder to be deleted")
	}
}

func folders(t *testing.T, m *vfs.Mem) string {
	t.Helper()
	entries, err := m.ReadDir(testDir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return strings.Join(names, " ")
}

func TestCreateDeleteStray(t *testing.T) {
	m := vfs.NewMem(1)
	d := mustOpen(t, m, testOptions())
	a := mustCreate(t, d, "a", 0)
	if _, err := d.Create("a", 0, ID{}); !errors.Is(err, ErrExists) {
		t.Fatalf("second create: %v", err)
	}
	if _, err := d.Create("../a", 0, ID{}); err == nil {
		t.Fatal("a name with a slash was accepted")
	}
	mustAppend(t, a, makeBatch(5, 1000, 10), 1)
	if err := a.AdvanceStart(3); err != nil {
		t.Fatal(err)
	}
	if err := d.Delete(a); err != nil {
		t.Fatal(err)
	}
	wantErr(t, d.Delete(a), ErrClosed)
	_, err := a.AppendLeader(makeBatch(1, 1, 1), 9)
	wantErr(t, err, ErrClosed)
	_, err = a.Read(3, 5, 10)
	wantErr(t, err, ErrClosed)
	for name, err := range map[string]error{"flush": a.Flush(), "truncate": a.TruncateTo(3), "reset": a.ResetTo(3), "advance": a.AdvanceStart(4)} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, want := folders(t, m), "a-0.01020300000000000000000000000000-delete"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	again := mustCreate(t, d, "a", 0)
	if again.Start() != 0 || again.End() != 0 || d.Log("a", 0) != again {
		t.Fatalf("a new log of an old name runs %d..%d", again.Start(), again.End())
	}
	if err := d.Tick(); err != nil {
		t.Fatal(err)
	}
	if got := folders(t, m); got != "a-0" {
		t.Fatalf("got %s", got)
	}
	mustAppend(t, again, makeBatch(1, 1, 1), 1)
	if err := d.Stray(again); err != nil {
		t.Fatal(err)
	}
	if err := d.Stray(mustCreate(t, d, "a", 0)); err != nil {
		t.Fatal(err)
	}
	if err := d.Tick(); err != nil {
		t.Fatal(err)
	}
	want := "a-0.01020300000000000000000000000000-stray a-0.010203000000000000000000000000001-stray"
	if got := folders(t, m); got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	mustClose(t, d)
	d = mustOpen(t, m, testOptions())
	if got := folders(t, m); got != want || len(d.Logs()) != 0 {
		t.Fatalf("got %s, want %s", got, want)
	}
	mustClose(t, d)
}

// TestOldOffsetsOfAName has checkpoints that speak of a log that is gone.
func TestOldOffsetsOfAName(t *testing.T) {
	m := vfs.NewMem(1)
	d := mustOpen(t, m, testOptions())
	l := mustCreate(t, d, "a", 0)
	mustAppend(t, l, makeBatch(50, 1000, 10), 1)
	l.SetHW(40)
	if err := l.AdvanceStart(30); err != nil {
		t.Fatal(err)
	}
	mustClose(t, d)
	if err := m.RemoveAll(l.Dir()); err != nil {
		t.Fatal(err)
	}
	d = mustOpen(t, m, testOptions())
	mustCreate(t, d, "a", 0)
	d = mustOpen(t, m.CrashClone(0), testOptions())
	l = d.Log("a", 0)
	if l.Start() != 0 || l.End() != 0 || l.HW() != 0 || l.Damaged() != nil {
		t.Fatalf("log %d..%d, HW %d, %v", l.Start(), l.End(), l.HW(), l.Damaged())
	}
	mustClose(t, d)
}

func TestLockAndCleanStop(t *testing.T) {
	m := vfs.NewMem(1)
	d := mustOpen(t, m, testOptions())
	if _, ok := d.PreviousStop(); ok {
		t.Fatal("a new folder was stopped before")
	}
	if _, err := OpenDir(m, testDir, testOptions()); !errors.Is(err, vfs.ErrLocked) {
		t.Fatalf("second open: %v", err)
	}
	mustClose(t, d)
	d = mustOpen(t, m, testOptions())
	if s, ok := d.PreviousStop(); !ok || s.BrokerEpoch != 7 {
		t.Fatalf("previous stop %v, %v", s, ok)
	}
	crashed := mustOpen(t, m.CrashClone(0), testOptions())
	if _, ok := crashed.PreviousStop(); ok {
		t.Fatal("the clean-stop file outlived the next start")
	}
	mustClose(t, crashed)
	if err := d.Close(nil); err != nil {
		t.Fatal(err)
	}
	d = mustOpen(t, m, testOptions())
	if _, ok := d.PreviousStop(); ok {
		t.Fatal("a stop without a mark left one")
	}
	mustClose(t, d)
}

func TestHighWatermark(t *testing.T) {
	m := vfs.NewMem(1)
	d := mustOpen(t, m, testOptions())
	l := mustCreate(t, d, "a", 0)
	mustAppend(t, l, makeBatch(9, 1000, 10), 1)
	l.SetHW(6)
	mustClose(t, d)
	d = mustOpen(t, m, testOptions())
	l = d.Log("a", 0)
	if l.HW() != 6 {
		t.Fatalf("HW %d", l.HW())
	}
	l.SetHW(50)
	mustClose(t, d)
	d = mustOpen(t, m, testOptions())
	if hw := d.Log("a", 0).HW(); hw != 9 {
		t.Fatalf("HW %d of a log that ends at 9", hw)
	}
	mustClose(t, d)
}

func TestUnsynced(t *testing.T) {
	d := mustOpen(t, vfs.NewMem(1), testOptions())
	l := mustCreate(t, d, "a", 0)
	b := makeBatch(2, 1000, 100)
	for range 100 {
		mustAppend(t, l, b, 1)
	}
	if got, want := d.Unsynced(), int64(100*len(b)); got != want {
		t.Fatalf("%d bytes unsynced, want %d", got, want)
	}
	if l.Flushed() != 0 {
		t.Fatalf("flushed %d", l.Flushed())
	}
	if err := d.Tick(); err != nil {
		t.Fatal(err)
	}
	if d.Unsynced() != 0 || l.Flushed() != l.End() {
		t.Fatalf("%d bytes unsynced, flushed %d of %d", d.Unsynced(), l.Flushed(), l.End())
	}
	mustClose(t, d)
}

// TestManyDirtyFiles flushes more files than are synced one by one.
func TestManyDirtyFiles(t *testing.T) {
	m := vfs.NewMem(1)
	syncs := map[vfs.Op]int{}
	d, err := OpenDir(vfs.NewFaulty(m, func(op vfs.Op, _ string) error { syncs[op]++; return nil }), testDir, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	const logs = syncAllFiles + 10
	for i := range logs {
		mustAppend(t, mustCreate(t, d, "a", int32(i)), makeBatch(1, 1, 1), 1)
	}
	clear(syncs)
	if err := d.Tick(); err != nil {
		t.Fatal(err)
	}
	if syncs[vfs.OpSyncAll] != 2 || syncs[vfs.OpSync] > 5 || syncs[vfs.OpSyncDir] > 5 {
		t.Fatalf("%d logs cost %v", logs, syncs)
	}
	c := mustOpen(t, m.CrashClone(0), testOptions())
	for i := range logs {
		if l := c.Log("a", int32(i)); l.End() != 1 || l.Damaged() != nil {
			t.Fatalf("log %d ends at %d, %v", i, l.End(), l.Damaged())
		}
	}
	mustClose(t, c)
	mustClose(t, d)
}
