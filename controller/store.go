package controller

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/controller/wal"
	"github.com/weirmq/weir/storage/vfs"
)

// storeDeadline is how long one write of Raft's log may take. A leader whose disk hangs
// would otherwise keep its leadership for ever while nothing commits.
const storeDeadline = 4 * time.Second

var (
	// errNoRoom is the answer to entries that the disk has no room for. Nothing was written.
	errNoRoom = wal.ErrNoRoom
	// errKeyNotFound is the answer for a value that was never set.
	errKeyNotFound = wal.ErrKeyNotFound
)

// errPoisoned is what every operation answers after the first failure.
var errPoisoned = errors.New("the Raft store failed earlier and is not used any more")

// backing is what store wraps: a wal.Log, or a faulty one in tests.
type backing interface {
	raft.LogStore
	raft.StableStore
	HasRoom(bytes int) bool
	Close() error
}

// store is Raft's log and stable store with a deadline. The first error or stall poisons it
// and calls exit: an fsync that failed once must not be retried and trusted, and Raft itself
// would carry on. Only errNoRoom, before which nothing was written, is passed to Raft: a leader
// steps down, a follower refuses the entries.
type store struct {
	db       backing
	deadline time.Duration
	exit     func(error)
	// stored is told of entries that were written.
	stored func([]*raft.Log)
	// roomChanged is told when entries begin to be refused for want of room, and when they are taken again.
	roomChanged func(short bool)
	short       atomic.Bool

	mu       sync.Mutex
	poisoned bool
	closed   bool
}

func openStore(fsys vfs.FS, dir string, exit func(error)) (*store, error) {
	db, err := wal.Open(fsys, dir, wal.SegmentBytes)
	if d := (*wal.DamageError)(nil); errors.As(err, &d) {
		return nil, err // which says it all
	}
	if err != nil {
		return nil, fmt.Errorf("open the metadata in %s: %w", dir, err)
	}
	return newStore(db, storeDeadline, exit), nil
}

func newStore(db backing, deadline time.Duration, exit func(error)) *store {
	return &store{db: db, deadline: deadline, exit: exit, stored: func([]*raft.Log) {}, roomChanged: func(bool) {}}
}

// IsMonotonic makes Raft delete its whole log when a snapshot is installed, so that no
// conflicting entry survives at the snapshot's index.
func (s *store) IsMonotonic() bool { return true }

func (s *store) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

func (s *store) StoreLogs(ls []*raft.Log) error {
	err := s.write("store log entries", func() error { return s.db.StoreLogs(ls) })
	if short := errors.Is(err, errNoRoom); (short || err == nil) && s.short.Swap(short) != short {
		s.roomChanged(short)
	}
	if err == nil {
		s.stored(ls)
	}
	return err
}

// hasRoom tells whether entries of any usual size would find room now: a leader that has
// room for its first entry only would be none for long.
func (s *store) hasRoom() bool { return s.db.HasRoom(2 * entrySizeMax) }

// DeleteRange deletes the oldest entries, or the newest ones as soon as others replace them.
func (s *store) DeleteRange(first, last uint64) error {
	return s.write("delete log entries", func() error { return s.db.DeleteRange(first, last) })
}

func (s *store) Set(key, value []byte) error {
	return s.write("set "+string(key), func() error { return s.db.Set(key, value) })
}

func (s *store) SetUint64(key []byte, value uint64) error {
	return s.write("set "+string(key), func() error { return s.db.SetUint64(key, value) })
}

func (s *store) FirstIndex() (i uint64, err error) {
	err = s.read("read the first index", func() error { i, err = s.db.FirstIndex(); return err })
	return i, err
}

func (s *store) LastIndex() (i uint64, err error) {
	err = s.read("read the last index", func() error { i, err = s.db.LastIndex(); return err })
	return i, err
}

func (s *store) GetLog(index uint64, l *raft.Log) error {
	return s.read("read a log entry", func() error { return s.db.GetLog(index, l) })
}

func (s *store) Get(key []byte) (v []byte, err error) {
	err = s.read("get "+string(key), func() error { v, err = s.db.Get(key); return err })
	return v, err
}

func (s *store) GetUint64(key []byte) (v uint64, err error) {
	err = s.read("get "+string(key), func() error { v, err = s.db.GetUint64(key); return err })
	return v, err
}

// write runs one operation under the deadline. It runs in place: when it hangs, exit ends
// the process around it.
func (s *store) write(what string, op func() error) error {
	if s.isPoisoned() {
		return errPoisoned
	}
	w := s.watch(what)
	err := op()
	w.stop()
	return s.outcome(what, err)
}

// watchSlices is how many times a watch looks up within the deadline.
const watchSlices = 8

// watch poisons the store when an operation takes too long. It counts its own ticks, not the
// clock: a process that was stopped in the middle of a write has not waited for the disk.
type watch struct {
	over  atomic.Bool
	timer *time.Timer
	ticks int // touched by the timer's function only
}

func (s *store) watch(what string) *watch {
	w := &watch{}
	slice := s.deadline / watchSlices
	w.timer = time.AfterFunc(time.Hour, func() {
		switch {
		case w.over.Load():
		case w.tick():
			s.poison(fmt.Errorf("%s: no answer from the disk in %v", what, s.deadline))
		default:
			w.timer.Reset(slice)
		}
	})
	w.timer.Reset(slice)
	return w
}

// tick counts one slice of waiting and tells whether the deadline has passed.
func (w *watch) tick() bool {
	w.ticks++
	return w.ticks >= watchSlices
}

func (w *watch) stop() {
	w.over.Store(true)
	w.timer.Stop()
}

func (s *store) read(what string, op func() error) error {
	if s.isPoisoned() {
		return errPoisoned
	}
	return s.outcome(what, op())
}

// outcome poisons the store on a real error; a missing entry or key is none, nor is want of
// room for entries. It also refuses
// what came back after the deadline: exit has been called and nothing may build on it.
func (s *store) outcome(what string, err error) error {
	if err == nil {
		if s.isPoisoned() {
			return errPoisoned
		}
		return nil
	}
	if errors.Is(err, raft.ErrLogNotFound) || errors.Is(err, errKeyNotFound) || errors.Is(err, errNoRoom) {
		return err
	}
	err = fmt.Errorf("%s: %w", what, err)
	s.poison(err)
	return err
}

func (s *store) isPoisoned() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.poisoned
}

func (s *store) poison(reason error) {
	s.mu.Lock()
	first := !s.poisoned && !s.closed
	s.poisoned = true
	s.mu.Unlock()
	if first {
		s.exit(fmt.Errorf("the Raft store failed: %w", reason))
	}
}

// close closes the file; Raft must have stopped. Late operations fail without calling exit.
func (s *store) close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	return s.db.Close()
}

// logCacheSize is how many newest entries are kept in memory for followers.
const logCacheSize = 128

// logCache is Raft's cache of newest entries, which hides the store's errors in a text of its
// own: this one passes them on, since what certainly was not stored is done elsewhere.
type logCache struct {
	*raft.LogCache
	below *lastOutcome
}

// lastOutcome keeps what the last StoreLogs answered. It belongs to Raft's main loop.
type lastOutcome struct {
	*store
	err error
}

func newLogCache(s *store) (*logCache, error) {
	below := &lastOutcome{store: s}
	c, err := raft.NewLogCache(logCacheSize, below)
	if err != nil {
		return nil, fmt.Errorf("make the log cache: %w", err)
	}
	return &logCache{c, below}, nil
}

// StoreLogs stores entries and keeps them.
func (o *lastOutcome) StoreLogs(ls []*raft.Log) error {
	o.err = o.store.StoreLogs(ls)
	return o.err
}

// StoreLogs stores entries and keeps them.
func (c *logCache) StoreLogs(ls []*raft.Log) error {
	if err := c.LogCache.StoreLogs(ls); err != nil {
		return c.below.err
	}
	return nil
}

// StoreLog is StoreLogs for one.
func (c *logCache) StoreLog(l *raft.Log) error { return c.StoreLogs([]*raft.Log{l}) }
