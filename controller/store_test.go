package controller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/controller/wal"
	"github.com/weirmq/weir/storage/vfs"
)

// faultyBacking fails or hangs in StoreLogs on demand.
type faultyBacking struct {
	backing
	fail error
	hang chan struct{}
}

func (f *faultyBacking) StoreLogs(ls []*raft.Log) error {
	if f.hang != nil {
		<-f.hang
	}
	if f.fail != nil {
		return f.fail
	}
	return f.backing.StoreLogs(ls)
}

func newFaulty(t *testing.T, deadline time.Duration) (*store, *faultyBacking, chan error) {
	t.Helper()
	db, err := wal.Open(vfs.OS(), t.TempDir(), 64<<10)
	if err != nil {
		t.Fatal(err)
	}
	f := &faultyBacking{backing: db}
	exited := make(chan error, 4)
	s := newStore(f, deadline, func(err error) { exited <- err })
	t.Cleanup(func() { _ = s.close() })
	return s, f, exited
}

func TestStoreIsPoisonedByItsFirstError(t *testing.T) {
	s, f, exited := newFaulty(t, time.Minute)
	entry := &raft.Log{Index: 1, Term: 1, Data: []byte("x")}
	if err := s.StoreLog(entry); err != nil {
		t.Fatal(err)
	}
	if err := s.GetLog(2, &raft.Log{}); !errors.Is(err, raft.ErrLogNotFound) {
		t.Fatalf("a missing entry: %v", err)
	}
	if _, err := s.Get([]byte("none")); err == nil || err.Error() != "not found" {
		t.Fatalf("a missing key: %v; Raft compares the text", err)
	}
	f.fail = errors.New("input/output error")
	if err := s.StoreLog(entry); !errors.Is(err, f.fail) {
		t.Fatalf("got %v, want the disk's error", err)
	}
	if err := <-exited; !errors.Is(err, f.fail) {
		t.Fatalf("exit was called with %v", err)
	}
	f.fail = nil
	if err := s.StoreLog(entry); !errors.Is(err, errPoisoned) {
		t.Fatalf("a write after the error: %v, want poisoned", err)
	}
	if _, err := s.LastIndex(); !errors.Is(err, errPoisoned) {
		t.Fatalf("a read after the error: %v, want poisoned", err)
	}
	if len(exited) != 0 {
		t.Fatalf("exit was called again: %v", <-exited)
	}
}

func TestStoreIsPoisonedByAStall(t *testing.T) {
	s, f, exited := newFaulty(t, 20*time.Millisecond)
	f.hang = make(chan struct{})
	done := make(chan error)
	go func() { done <- s.StoreLog(&raft.Log{Index: 1}) }()
	if err := <-exited; err == nil {
		t.Fatal("exit was called without a reason")
	}
	close(f.hang)
	if err := <-done; !errors.Is(err, errPoisoned) {
		t.Fatalf("the write that came back late: %v, want poisoned", err)
	}
}

// TestStoreWatchCountsItsTicks: however long a process was stopped in the middle of a write,
// that is one tick when it goes on.
func TestStoreWatchCountsItsTicks(t *testing.T) {
	var w watch
	for i := 1; i < watchSlices; i++ {
		if w.tick() {
			t.Fatalf("the deadline passed at tick %d of %d", i, watchSlices)
		}
	}
	if !w.tick() {
		t.Fatal("the deadline never passes")
	}
}

func TestStoreErrorsAfterCloseDoNotExit(t *testing.T) {
	s, _, exited := newFaulty(t, time.Minute)
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if err := s.StoreLog(&raft.Log{Index: 1}); err == nil {
		t.Fatal("a write after close succeeded")
	}
	if len(exited) != 0 {
		t.Fatalf("exit was called: %v", <-exited)
	}
}

// TestStoreTellsOfRoom: that there is none is passed to Raft, told once, and poisons nothing.
func TestStoreTellsOfRoom(t *testing.T) {
	s, f, exited := newFaulty(t, time.Minute)
	var said []bool
	s.roomChanged = func(short bool) { said = append(said, short) }
	for _, f.fail = range []error{nil, errNoRoom, errNoRoom, nil, nil} {
		last, err := s.LastIndex()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.StoreLog(&raft.Log{Index: last + 1}); !errors.Is(err, f.fail) {
			t.Errorf("got %v, want %v", err, f.fail)
		}
	}
	if fmt.Sprint(said) != "[true false]" || len(exited) != 0 {
		t.Errorf("the changes told are %v; exit was called %d times", said, len(exited))
	}
}

func TestStoreIsLocked(t *testing.T) {
	dir := t.TempDir()
	s, err := openStore(vfs.OS(), dir, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.close() }()
	if again, err := openStore(vfs.OS(), dir, func(error) {}); err == nil {
		_ = again.close()
		t.Fatal("two stores opened one file")
	}
}

// TestDeleteRangeLeavesNothing guards against entries that are skipped while deleting: what is left of a truncated tail would come back as log after a restart.
func TestDeleteRangeLeavesNothing(t *testing.T) {
	s, err := openStore(vfs.OS(), t.TempDir(), func(err error) { t.Errorf("exit: %v", err) })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.close() }()
	const last = 5000
	var ls []*raft.Log
	for i := uint64(1); i <= last; i++ {
		ls = append(ls, &raft.Log{Index: i, Term: 1, Data: make([]byte, 100)})
	}
	if err := s.StoreLogs(ls); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteRange(1001, last); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteRange(1, 500); err != nil {
		t.Fatal(err)
	}
	if err := s.StoreLogs(ls[1000:]); err != nil {
		t.Fatal(err)
	}
	const cut, tail = 3579, 1123
	if err := s.DeleteRange(501, cut); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteRange(last-tail, last); err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); i <= last; i++ {
		err := s.GetLog(i, &raft.Log{})
		if kept := i > cut && i < last-tail; kept != (err == nil) {
			t.Fatalf("entry %d: %v, want kept %v", i, err, kept)
		}
	}
}
