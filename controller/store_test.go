package controller

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
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
	db, err := openBoltLog(filepath.Join(t.TempDir(), storeFile))
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

// stepBacking fails a deletion on demand.
type stepBacking struct {
	backing
	steps [][2]uint64
	fail  int // the number of the deletion that fails
}

func (b *stepBacking) DeleteRange(first, last uint64) error {
	b.steps = append(b.steps, [2]uint64{first, last})
	if len(b.steps) == b.fail {
		return errors.New("input/output error")
	}
	return b.backing.DeleteRange(first, last)
}

// TestStoreDeletesOldestInSteps: the oldest entries go in steps, from the oldest on, so that
// whatever is left when one fails is a log without a gap; the newest go in one.
func TestStoreDeletesOldestInSteps(t *testing.T) {
	db, err := openBoltLog(filepath.Join(t.TempDir(), storeFile))
	if err != nil {
		t.Fatal(err)
	}
	b := &stepBacking{backing: db, fail: 4}
	s := newStore(b, time.Minute, func(error) {})
	defer func() { _ = s.close() }()
	const first, last = 11, 10 + 5*deleteStep
	var ls []*raft.Log
	for i := uint64(first); i <= last; i++ {
		ls = append(ls, &raft.Log{Index: i, Term: 1})
	}
	if err := s.StoreLogs(ls); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteRange(last-2*deleteStep+1, last); err != nil || len(b.steps) != 1 {
		t.Fatalf("the newest went in %v, %v; want one step", b.steps, err)
	}
	if err := s.DeleteRange(first, last-2*deleteStep); err == nil {
		t.Fatal("the failure is not reported")
	}
	want := [][2]uint64{{last - 2*deleteStep + 1, last}, {first, 10 + deleteStep}, {11 + deleteStep, 10 + 2*deleteStep}, {11 + 2*deleteStep, 10 + 3*deleteStep}}
	if !slices.Equal(b.steps, want) {
		t.Errorf("deleted %v, want %v", b.steps, want)
	}
	if i, err := db.FirstIndex(); err != nil || i != 11+2*deleteStep {
		t.Errorf("the log begins at %d, %v; want %d", i, err, 11+2*deleteStep)
	}
}

func TestStoreIsLocked(t *testing.T) {
	dir := t.TempDir()
	s, err := openStore(dir, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.close() }()
	if again, err := openStore(dir, func(error) {}); err == nil {
		_ = again.close()
		t.Fatal("two stores opened one file")
	}
}

// TestDeleteRangeLeavesNothing guards against cursors that skip entries while deleting:
// what is left of a truncated tail would come back as log after a restart.
func TestDeleteRangeLeavesNothing(t *testing.T) {
	s, err := openStore(t.TempDir(), func(err error) { t.Errorf("exit: %v", err) })
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
	const cut = 500 + 3*deleteStep + 7
	if err := s.DeleteRange(501, cut); err != nil { // in several steps
		t.Fatal(err)
	}
	if err := s.DeleteRange(last-deleteStep-99, last); err != nil { // at once
		t.Fatal(err)
	}
	for i := uint64(1); i <= last; i++ {
		err := s.GetLog(i, &raft.Log{})
		if kept := i > cut && i < last-deleteStep-99; kept != (err == nil) {
			t.Fatalf("entry %d: %v, want kept %v", i, err, kept)
		}
	}
}
