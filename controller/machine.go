package controller

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/fsm"
)

// machine is the raft.FSM: it applies entries to the Image and publishes each new one.
// Raft calls it from one goroutine; everybody else only loads.
type machine struct {
	state atomic.Pointer[published]
	exit  func(error)

	mu sync.Mutex
	// running is set once Raft has started: from then on a failed Restore ends the process.
	// Before, Raft tries an older snapshot.
	running bool
	// restored is the index of the last snapshot installed while running.
	restored uint64
	// halted is why nothing is applied any more.
	halted error
	// hashes are the newest Images' indexes and hashes, a ring: the controller compares
	// other nodes' with them.
	hashes [hashesKept]imageHash
	next   int
}

// hashesKept covers what a controller may be ahead of a heartbeat that is on its way.
const hashesKept = 4096

// imageHash is what an Image hashes to.
type imageHash struct{ index, hash uint64 }

// published is one Image and the signal that it has been replaced.
type published struct {
	image    *fsm.Image
	replaced chan struct{}
}

// appliedEntry is what Raft hands back to the proposer of an entry.
type appliedEntry struct {
	index   uint64
	results []fsm.Result
	err     error
}

func newMachine(exit func(error)) *machine {
	m := &machine{exit: exit}
	m.state.Store(&published{image: fsm.NewImage(), replaced: make(chan struct{})})
	return m
}

// Image is the newest Image.
func (m *machine) Image() *fsm.Image { return m.state.Load().image }

// Changed is closed when the Image that a later call of Image would have returned is
// replaced. Take it before the Image it guards.
func (m *machine) Changed() <-chan struct{} { return m.state.Load().replaced }

func (m *machine) publish(im *fsm.Image) {
	m.mu.Lock()
	m.hashes[m.next%hashesKept] = imageHash{im.Index(), im.Hash()}
	m.next++
	m.mu.Unlock()
	old := m.state.Swap(&published{image: im, replaced: make(chan struct{})})
	close(old.replaced)
}

// agrees compares another node's Image with ours at the same index. known is false when we
// have not been there, or long ago.
func (m *machine) agrees(other imageHash) (same, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := m.next - 1; i >= 0 && i > m.next-1-hashesKept; i-- {
		if h := m.hashes[i%hashesKept]; h.index <= other.index {
			return h == other, h.index == other.index
		}
	}
	return false, false
}

// wait returns when the Image has reached index. Raft's own applied index counts what was
// queued, not what was applied.
func (m *machine) wait(ctx context.Context, index uint64) error {
	for {
		changed := m.Changed()
		if m.Image().Index() >= index {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for metadata index %d: %w", index, ctx.Err())
		}
	}
}

// Apply applies one entry. Refusals are results. Bytes that are no entry are refused the same
// way on every node; an entry that only a newer version knows stops this node, since nodes
// that know it go on with another Image.
func (m *machine) Apply(l *raft.Log) any {
	if err := m.haltedErr(); err != nil {
		return appliedEntry{index: l.Index, err: err}
	}
	commands, err := fsm.DecodeEntry(l.Data)
	if err != nil {
		err = fmt.Errorf("decode the metadata entry at index %d: %w", l.Index, err)
		if !errors.Is(err, fsm.ErrMalformed) {
			m.halt(err)
		}
		return appliedEntry{index: l.Index, err: err}
	}
	im, results := fsm.ApplyEntry(m.Image(), l.Index, commands)
	m.publish(im)
	return appliedEntry{index: l.Index, results: results}
}

// Snapshot takes the pointer; the Image is immutable.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	if err := m.haltedErr(); err != nil {
		return nil, err
	}
	return snapshot{m.Image()}, nil
}

// Restore decodes a snapshot aside and swaps it in. While running it is the leader's
// snapshot, and Raft would carry on with the old Image after an error: the process ends.
// It also ends when the same snapshot arrives again, because a restart is what resets
// the log that keeps asking for it.
func (m *machine) Restore(r io.ReadCloser) error {
	im, err := fsm.ReadSnapshot(bufio.NewReader(r))
	_ = r.Close()
	if err != nil {
		err = fmt.Errorf("read a metadata snapshot: %w", err)
		if m.isRunning() {
			m.halt(err)
		}
		return err
	}
	if m.again(im.Index()) {
		err := fmt.Errorf("the snapshot at metadata index %d was installed twice", im.Index())
		m.halt(err)
		return err
	}
	m.publish(im)
	return nil
}

func (m *machine) again(index uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.running {
		return false
	}
	same := m.restored != 0 && m.restored == index
	m.restored = index
	return same
}

// run tells the machine that Raft has started.
func (m *machine) run() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = true
}

func (m *machine) isRunning() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running
}

func (m *machine) haltedErr() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.halted
}

// halt stops applying for good and asks for the end of the process.
func (m *machine) halt(reason error) {
	m.mu.Lock()
	first := m.halted == nil
	if first {
		m.halted = reason
	}
	m.mu.Unlock()
	if first {
		m.exit(reason)
	}
}

// snapshot is an Image on its way to disk.
type snapshot struct{ image *fsm.Image }

// Persist writes the Image beside Apply.
func (s snapshot) Persist(sink raft.SnapshotSink) error {
	if err := fsm.WriteSnapshot(sink, s.image); err != nil {
		_ = sink.Cancel()
		return fmt.Errorf("write a metadata snapshot: %w", err)
	}
	return sink.Close()
}

// Release has nothing to release: the garbage collector keeps what is referenced.
func (s snapshot) Release() {}
