package controller

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/fsm"
)

func entryOf(index uint64, cs ...fsm.Command) *raft.Log {
	return &raft.Log{Index: index, Data: fsm.EncodeEntry(nil, cs)}
}

func newTestMachine() (*machine, chan error) {
	exited := make(chan error, 4)
	return newMachine(func(err error) { exited <- err }), exited
}

func TestMachineAppliesAndAnswersEachCommand(t *testing.T) {
	m, exited := newTestMachine()
	changed := m.Changed()
	a := m.Apply(entryOf(7, fsm.InitCluster{ClusterID: "c"}, fsm.InitCluster{ClusterID: "d"})).(appliedEntry)
	if a.err != nil || a.index != 7 || a.results[0].Err != nil || !errors.Is(a.results[1].Err, fsm.OtherCluster) {
		t.Fatalf("got %+v", a)
	}
	if im := m.Image(); im.ClusterID() != "c" || im.Index() != 7 {
		t.Fatalf("the Image is of cluster %q at %d", im.ClusterID(), im.Index())
	}
	select {
	case <-changed:
	default:
		t.Fatal("the change was not signalled")
	}
	if len(exited) != 0 {
		t.Fatal(<-exited)
	}
}

func TestMachineWaitsForItsOwnIndex(t *testing.T) {
	m, _ := newTestMachine()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := m.wait(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("waited for an index that never came: %v", err)
	}
	done := make(chan error)
	go func() { done <- m.wait(context.Background(), 3) }()
	for i := uint64(1); i <= 3; i++ {
		m.Apply(entryOf(i, fsm.InitCluster{ClusterID: "c"}))
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestMachineMalformedEntryIsARefusal(t *testing.T) {
	m, exited := newTestMachine()
	good := entryOf(1, fsm.InitCluster{ClusterID: "c"})
	if a := m.Apply(&raft.Log{Index: 1, Data: good.Data[:len(good.Data)-1]}).(appliedEntry); !errors.Is(a.err, fsm.ErrMalformed) {
		t.Fatalf("got %+v, want a malformed entry", a)
	}
	if a := m.Apply(entryOf(2, fsm.InitCluster{ClusterID: "c"})).(appliedEntry); a.err != nil {
		t.Fatalf("the next entry: %v", a.err)
	}
	if len(exited) != 0 {
		t.Fatalf("exit was called: %v", <-exited)
	}
}

func TestMachineHaltsAtAnEntryOfANewerVersion(t *testing.T) {
	m, exited := newTestMachine()
	a := m.Apply(&raft.Log{Index: 1, Data: []byte{0xff, 1}}).(appliedEntry)
	var unknown *fsm.UnknownCommandError
	if err := <-exited; !errors.As(err, &unknown) || a.err == nil {
		t.Fatalf("exit with %v, answer %+v", err, a)
	}
	if a := m.Apply(entryOf(2, fsm.InitCluster{ClusterID: "c"})).(appliedEntry); a.err == nil || m.Image().Index() != 0 {
		t.Fatalf("it went on: %+v, index %d", a, m.Image().Index())
	}
	if _, err := m.Snapshot(); err == nil {
		t.Fatal("a halted machine gives snapshots")
	}
}

func snapshotOf(t *testing.T, m *machine) []byte {
	t.Helper()
	s, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var sink bufferSink
	if err := s.Persist(&sink); err != nil || !sink.closed {
		t.Fatalf("persist: %v, closed %v", err, sink.closed)
	}
	return sink.Bytes()
}

func TestMachineRestores(t *testing.T) {
	old, _ := newTestMachine()
	old.Apply(entryOf(9, fsm.InitCluster{ClusterID: "c"}))
	p := snapshotOf(t, old)
	m, exited := newTestMachine()
	m.run()
	changed := m.Changed()
	if err := m.Restore(io.NopCloser(bytes.NewReader(p))); err != nil {
		t.Fatal(err)
	}
	<-changed
	if im := m.Image(); im.Index() != 9 || im.Hash() != old.Image().Hash() {
		t.Fatalf("restored index %d, hash %x; want 9, %x", im.Index(), im.Hash(), old.Image().Hash())
	}
	if err := m.Restore(io.NopCloser(bytes.NewReader(p))); err == nil || <-exited == nil {
		t.Fatal("the same snapshot was installed twice without an exit")
	}
}

func TestMachineKeepsItsImageWhenASnapshotIsBad(t *testing.T) {
	old, _ := newTestMachine()
	old.Apply(entryOf(9, fsm.InitCluster{ClusterID: "c"}))
	p := snapshotOf(t, old)
	p[len(p)/2] ^= 1
	m, exited := newTestMachine()
	m.Apply(entryOf(1, fsm.InitCluster{ClusterID: "kept"}))
	if err := m.Restore(io.NopCloser(bytes.NewReader(p))); err == nil || m.Image().ClusterID() != "kept" {
		t.Fatalf("restore of a damaged snapshot: %v, cluster %s", err, m.Image().ClusterID())
	}
	if len(exited) != 0 {
		t.Fatal("a bad snapshot at start ended the process; Raft should try an older one")
	}
	m.run()
	if err := m.Restore(io.NopCloser(bytes.NewReader(p))); err == nil || <-exited == nil {
		t.Fatal("a bad snapshot of the leader did not end the process")
	}
}

// bufferSink is a raft.SnapshotSink in memory.
type bufferSink struct {
	bytes.Buffer
	closed bool
}

func (s *bufferSink) Close() error  { s.closed = true; return nil }
func (s *bufferSink) ID() string    { return "test" }
func (s *bufferSink) Cancel() error { return nil }
