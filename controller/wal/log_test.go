package wal

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"github.com/weirmq/weir/storage/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small is a size of segments with which a few entries need several.
const small = 64 << 10

func newMem(t testing.TB) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem(1)
	if err := errors.Join(m.Mkdir("raft", 0o700), m.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	return m
}

// openQuiet opens a log without a keeper, so that a test decides when it does what.
func openQuiet(t testing.TB, fsys vfs.FS) *Log {
	t.Helper()
	l, err := open(fsys, "raft", small)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// tend does what the keeper does.
func tend(l *Log) error {
	if err := l.removeDead(); err != nil {
		return err
	}
	if err := l.makeSpare(0, func() error { return nil }); !errors.Is(err, ErrNoRoom) {
		return err
	}
	return nil
}

func mustTend(t testing.TB, l *Log) {
	t.Helper()
	if err := tend(l); err != nil {
		t.Fatal(err)
	}
}

// content is all that a log gives its reader, as text.
func content(l *Log) (string, error) {
	var out strings.Builder
	first, err := l.FirstIndex()
	last, err2 := l.LastIndex()
	if err := errors.Join(err, err2); err != nil {
		return "", err
	}
	fmt.Fprintf(&out, "%d to %d\n", first, last)
	for i := first; i <= last && i > 0; i++ {
		var e raft.Log
		if err := l.GetLog(i, &e); err != nil {
			return "", err
		}
		out.WriteString(text(&e))
	}
	s, _ := l.current()
	writeValues(&out, s.values)
	return out.String(), nil
}

func text(e *raft.Log) string {
	return fmt.Sprintf("%d %d %v %q %q %v\n", e.Index, e.Term, e.Type, e.Data, e.Extensions, e.AppendedAt.UnixNano())
}

func writeValues(out *strings.Builder, values map[string][]byte) {
	for _, k := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(out, "%s=%x\n", k, values[k])
	}
}

func mustContent(t testing.TB, l *Log) string {
	t.Helper()
	s, err := content(l)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func entries(first, last, term uint64, size int) []*raft.Log {
	var es []*raft.Log
	for i := first; i <= last; i++ {
		es = append(es, &raft.Log{Index: i, Term: term, Type: raft.LogCommand, Data: bytes.Repeat([]byte{byte(i)}, size), AppendedAt: time.Unix(int64(i), 5)})
	}
	return es
}

// TestLogKeeps: what is stored is there after a restart, over many segments and a write that is
// larger than any of them.
func TestLogKeeps(t *testing.T) {
	m := newMem(t)
	l := openQuiet(t, m)
	one := &raft.Log{Index: 7, Term: 3, Type: raft.LogConfiguration, Data: []byte("d"), Extensions: []byte("ext"), AppendedAt: time.Unix(9, 9)}
	err := errors.Join(l.StoreLog(one), l.StoreLogs(entries(8, 500, 4, 100)), l.Set([]byte("k"), []byte("v")), l.SetUint64([]byte("n"), 1<<60),
		l.StoreLogs(entries(501, 503, 4, 70_000)), l.Set([]byte("empty"), nil))
	for i := uint64(504); i < 600; i++ {
		err = errors.Join(err, l.StoreLogs(entries(i, i, 5, int(i%509))))
	}
	if err != nil {
		t.Fatal(err)
	}
	var e raft.Log
	if err := l.GetLog(7, &e); err != nil || text(&e) != text(one) {
		t.Fatalf("stored %+v, read %+v: %v", one, e, err)
	}
	if n, err := l.GetUint64([]byte("n")); err != nil || n != 1<<60 {
		t.Fatalf("read %d, %v", n, err)
	}
	if v, err := l.Get([]byte("empty")); err != nil || len(v) != 0 {
		t.Fatalf("an empty value is %q, %v", v, err)
	}
	if _, err := l.Get([]byte("none")); !errors.Is(err, ErrKeyNotFound) || err.Error() != "not found" {
		t.Fatalf("a missing key: %v; Raft compares the text", err)
	}
	if _, err := l.GetUint64([]byte("k")); err == nil || errors.Is(err, ErrKeyNotFound) {
		t.Fatalf("a text read as a number: %v", err)
	}
	for _, i := range []uint64{0, 6, 600} {
		if err := l.GetLog(i, &e); !errors.Is(err, raft.ErrLogNotFound) {
			t.Fatalf("entry %d: %v", i, err)
		}
	}
	for _, es := range [][]*raft.Log{entries(602, 603, 4, 1), entries(599, 600, 4, 1), {{Index: 600}, {Index: 602}}} {
		if err := l.StoreLogs(es); err == nil {
			t.Fatalf("entries from %d were stored behind entry 599", es[0].Index)
		}
	}
	before := mustContent(t, l)
	if len(l.segments) < 4 {
		t.Errorf("only %d segments", len(l.segments))
	}
	if after := mustContent(t, openQuiet(t, m.CrashClone(0))); after != before {
		t.Fatalf("before the crash:\n%s\nafter:\n%s", before, after)
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	if after := mustContent(t, openQuiet(t, m)); after != before {
		t.Fatalf("before the restart:\n%s\nafter:\n%s", before, after)
	}
	if err := l.StoreLog(one); err == nil {
		t.Error("a closed log stores")
	}
}

// TestLogOnADisk runs on the file system of the machine, with its keeper and readers beside it.
func TestLogOnADisk(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(vfs.OS(), dir, small)
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for i := uint64(1); ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				first, _ := l.FirstIndex()
				last, _ := l.LastIndex()
				var e raft.Log
				index := first + i%(last-first+1)
				if err := l.GetLog(index, &e); err != nil && !errors.Is(err, raft.ErrLogNotFound) || err == nil && e.Index != index {
					t.Errorf("entry %d: %+v, %v", index, e, err)
					return
				}
			}
		})
	}
	for i := uint64(1); i < 150 && err == nil; i += 2 {
		err = errors.Join(l.StoreLogs(entries(i, i+1, i, 3000)))
		switch {
		case i%50 == 1:
			err = errors.Join(err, l.DeleteRange(1, i/2))
		case i%7 == 0:
			err = errors.Join(err, l.DeleteRange(i, i+1), l.StoreLogs(entries(i, i+1, i+1, 300)))
		}
	}
	close(stop)
	readers.Wait()
	if err != nil {
		t.Fatal(err)
	}
	before := mustContent(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = Open(vfs.OS(), dir, small); err != nil {
		t.Fatal(err)
	}
	if after := mustContent(t, l); after != before {
		t.Errorf("before the restart:\n%s\nafter:\n%s", before, after)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestLogCut: the newest entries go with those that replace them.
func TestLogCut(t *testing.T) {
	m := newMem(t)
	l := openQuiet(t, m)
	if err := l.StoreLogs(entries(1, 20, 1, 10)); err != nil {
		t.Fatal(err)
	}
	before := mustContent(t, l)
	if err := l.DeleteRange(11, 15); err == nil {
		t.Fatal("entries in the middle were deleted")
	}
	if err := l.DeleteRange(11, 20); err != nil {
		t.Fatal(err)
	}
	last, _ := l.LastIndex()
	if err := l.GetLog(11, &raft.Log{}); last != 10 || !errors.Is(err, raft.ErrLogNotFound) {
		t.Fatalf("after the cut the log ends at %d, and entry 11 gives %v", last, err)
	}
	if now := mustContent(t, openQuiet(t, m.CrashClone(0))); now != before {
		t.Fatalf("a cut alone is on the disk:\n%s", now)
	}
	m.SetCapacity(m.Used())
	if err := l.StoreLogs(entries(11, 11, 2, small)); !errors.Is(err, ErrNoRoom) {
		t.Fatalf("a full disk gives %v", err)
	}
	if now := mustContent(t, l); now != before {
		t.Fatalf("entries that found no room have changed the log:\n%s\nwant:\n%s", now, before)
	}
	m.SetCapacity(-1)
	if err := errors.Join(l.DeleteRange(11, 20), l.StoreLogs(entries(11, 12, 2, 10)), l.Close()); err != nil {
		t.Fatal(err)
	}
	l = openQuiet(t, m)
	var e raft.Log
	if err := l.GetLog(11, &e); err != nil || e.Term != 2 {
		t.Fatalf("entry 11 is of term %d, %v; want 2", e.Term, err)
	}
	if last, _ := l.LastIndex(); last != 12 {
		t.Fatalf("the log ends at %d, want 12", last)
	}
	// A cut that reaches the oldest, and old entries deleted up to a cut.
	if err := errors.Join(l.DeleteRange(6, 12), l.DeleteRange(1, 5)); err != nil {
		t.Fatal(err)
	}
	if first, _ := l.FirstIndex(); first != 0 {
		t.Fatalf("an empty log begins at %d", first)
	}
	if err := l.StoreLogs(entries(50, 60, 3, 10)); err != nil {
		t.Fatal(err)
	}
	if first, _ := l.FirstIndex(); first != 50 {
		t.Fatalf("the log begins at %d, want 50", first)
	}
}

// fill stores entries until there is no room for more of them, and returns the next index.
func fill(t *testing.T, l *Log, next uint64) uint64 {
	t.Helper()
	for ; next < 10_000; next++ {
		if err := l.StoreLogs(entries(next, next, 1, 1000)); errors.Is(err, ErrNoRoom) {
			return next
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("the disk never is full")
	return 0
}

// TestLogOnAFullDisk: entries are refused before anything is written, values and deletions are
// not, and all of it goes on when there is room.
func TestLogOnAFullDisk(t *testing.T) {
	m := newMem(t)
	l := openQuiet(t, m)
	mustTend(t, l)
	m.SetCapacity(m.Used())
	next := fill(t, l, 1)
	if next < 10 {
		t.Errorf("only %d entries found room in what was there", next)
	}
	before := mustContent(t, l)
	for range 3 {
		if err := l.StoreLogs(entries(next, next+1, 1, 1000)); !errors.Is(err, ErrNoRoom) {
			t.Fatalf("entries on a full disk: %v", err)
		}
	}
	if l.HasRoom(1) {
		t.Error("there is room on a full disk")
	}
	if now := mustContent(t, openQuiet(t, m.CrashClone(0))); now != before {
		t.Errorf("entries that found no room are there:\n%s", now)
	}
	if err := errors.Join(l.SetUint64([]byte("term"), 7), l.DeleteRange(1, 3)); err != nil {
		t.Fatalf("values and deletions on a full disk: %v", err)
	}
	m.SetCapacity(-1)
	if !l.HasRoom(10 * small) {
		t.Error("there is no room on an empty disk")
	}
	if err := l.StoreLogs(entries(next, next+1, 1, 1000)); err != nil {
		t.Fatalf("when there is room: %v", err)
	}
	// Deleted entries make room by themselves.
	next = fillAgain(t, m, l, next+2)
	if err := l.DeleteRange(1, next-1); err != nil {
		t.Fatal(err)
	}
	// Now Raft may believe in what is not there.
	if err := l.StoreLogs(entries(next, next, 1, 1000)); err == nil || errors.Is(err, ErrNoRoom) {
		t.Fatalf("entries that replace the whole log find no room: %v; want an end", err)
	}
	mustTend(t, l)
	if err := l.StoreLogs(entries(next, next, 1, 1000)); err != nil {
		t.Errorf("after the deletion of everything: %v", err)
	}
}

func fillAgain(t *testing.T, m *vfs.Mem, l *Log, next uint64) uint64 {
	t.Helper()
	m.SetCapacity(m.Used())
	return fill(t, l, next)
}

// TestRoomOfValuesEnds: the room that is kept is large, not endless; its end is no want of room
// for entries, which a node would go on with.
func TestRoomOfValuesEnds(t *testing.T) {
	m := newMem(t)
	l := openQuiet(t, m)
	m.SetCapacity(m.Used())
	fill(t, l, 1)
	count := 0
	for ; ; count++ {
		err := l.SetUint64([]byte("term"), uint64(count))
		if errors.Is(err, ErrNoRoom) || count > 1000 {
			t.Fatalf("after %d: %v", count, err)
		}
		if err != nil {
			break
		}
	}
	if count < 3 {
		t.Errorf("there was room for %d", count)
	}
	if n, err := openQuiet(t, m.CrashClone(0)).GetUint64([]byte("term")); err != nil || n != uint64(count)-1 {
		t.Errorf("the last one is %d, %v; want %d", n, err, count-1)
	}
}

// TestSmallSparesOnANearlyFullDisk: what is left of a disk is used.
func TestSmallSparesOnANearlyFullDisk(t *testing.T) {
	m := newMem(t)
	l := openQuiet(t, m)
	m.SetCapacity(m.Used() + small/2)
	fill(t, l, 1)
	if left := m.Used(); left < small+small/4 {
		t.Errorf("%d bytes are used of %d", left, small+small/2)
	}
}

// TestDeadSegmentsAreRemoved: the log holds few more segments than it has entries for, also
// when a crash leaves some of the dead ones.
func TestDeadSegmentsAreRemoved(t *testing.T) {
	m := newMem(t)
	l := openQuiet(t, m)
	for i := uint64(1); i < 300; i++ {
		if err := l.StoreLogs(entries(i, i, 1, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	all := len(l.segments)
	if err := l.DeleteRange(1, 280); err != nil {
		t.Fatal(err)
	}
	want := mustContent(t, l)
	crashed := m.CrashClone(0)
	// Some of them were removed before the crash.
	for seq := l.segments[0].seq + 1; seq < l.state.placesFrom(); seq += 2 {
		if err := crashed.Remove(segmentPath("raft", seq)); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range []*vfs.Mem{m, crashed} {
		if m == crashed {
			l = openQuiet(t, m)
		}
		mustTend(t, l)
		if now := mustContent(t, l); now != want {
			t.Errorf("got:\n%s\nwant:\n%s", now, want)
		}
		seqs, _, err := listSegments(m, "raft")
		if err != nil || len(seqs) > 5 || all < 10 {
			t.Errorf("%d of %d segments are left, %v", len(seqs), all, err)
		}
	}
}

// placesFrom is the first segment with an entry.
func (s *state) placesFrom() uint64 { return uint64(s.places[0].seq) }

// TestLogIsLocked: one process has it.
func TestLogIsLocked(t *testing.T) {
	m := newMem(t)
	openQuiet(t, m)
	if _, err := open(m, "raft", small); !errors.Is(err, vfs.ErrLocked) || !strings.Contains(err.Error(), "another process holds it") {
		t.Errorf("two opened one log: %v", err)
	}
}

// TestWhatAKilledProcessLeftIsSynced: what only the kernel has is not built upon.
func TestWhatAKilledProcessLeftIsSynced(t *testing.T) {
	m := newMem(t)
	l := openQuiet(t, m)
	if err := l.StoreLogs(entries(1, 3, 1, 10)); err != nil {
		t.Fatal(err)
	}
	synced := false
	f := vfs.NewFaulty(m.ProcessClone(), func(op vfs.Op, name string) error {
		synced = synced || op == vfs.OpSync && name == segmentPath("raft", 1)
		return nil
	})
	openQuiet(t, f)
	if !synced {
		t.Error("the segment in use was not synced")
	}
}

// TestLogFailsForGood: after a write that failed nothing is written, though it would succeed.
func TestLogFailsForGood(t *testing.T) {
	for _, bad := range []vfs.Op{vfs.OpWriteAt, vfs.OpSync} {
		var broken error
		f := vfs.NewFaulty(newMem(t), func(op vfs.Op, _ string) error {
			if op == bad {
				return broken
			}
			return nil
		})
		l := openQuiet(t, f)
		mustTend(t, l)
		broken = errors.New("input/output error")
		if err := l.StoreLogs(entries(1, 1, 1, 1)); !errors.Is(err, broken) {
			t.Fatalf("%s fails: %v", bad, err)
		}
		was := broken
		broken = nil
		for _, err := range []error{l.StoreLogs(entries(1, 1, 1, 1)), l.Set([]byte("k"), nil)} {
			if !errors.Is(err, was) {
				t.Errorf("after a failure of %s: %v", bad, err)
			}
		}
		if l.HasRoom(1) {
			t.Error("a log that failed has room")
		}
	}
}

// TestKeeperFailureIsTold: a disk that fails beside the log's writes fails the log.
func TestKeeperFailureIsTold(t *testing.T) {
	broken := errors.New("input/output error")
	f := vfs.NewFaulty(newMem(t), func(op vfs.Op, name string) error {
		if op == vfs.OpSync && filepath.Base(name) == "0000000000000002"+suffix+freshSuffix {
			return broken
		}
		return nil
	})
	l, err := Open(f, "raft", small)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for i := uint64(1); i < 1000; i++ {
		if err = l.StoreLogs(entries(i, i, 1, 1000)); err != nil {
			break
		}
	}
	if !errors.Is(err, broken) {
		t.Errorf("the log goes on: %v", err)
	}
}
