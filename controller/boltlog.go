package controller

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

var (
	// errKeyNotFound is the answer for a value that was never set; Raft compares the text.
	errKeyNotFound = errors.New("not found")
	// errNoRoom is the answer to entries that the disk has no room for. Nothing was written.
	errNoRoom = errors.New("the disk has no room for the cluster's metadata")
)

// The buckets of the file, and the only key of bucketState.
const (
	bucketLogs  = "logs"
	bucketState = "state"
	keyState    = "state"
)

// boltLog keeps Raft's log and its stable values in one file of bbolt.
//
// Problem: bbolt trusts its pages. A flipped bit in one may end in a panic, also on a goroutine
// that nobody can guard, or give other content than was stored: an older transaction, a log
// without its end, another command. And a write that finds the disk full ends it.
//
// Invariants:
//   - What it opens is what it stored, or it does not open: checkFile reads every page that
//     counts before bbolt does, and what the pages say is held against checksums of our own
//     (entries) and against the one record that names the first entry, the last one and all
//     values (logState).
//   - Entries are written only into room that the file has already (room), so that a full disk
//     is an answer that nothing was written, and not a failure in the middle.
//   - Entries that a leader's replace are removed in the transaction that stores those, or not
//     at all: Raft goes on believing in the old ones when the new ones find no room.
//
// Rejected: a second file of checksums (two files, two syncs), and giving up a spare file when
// the disk is full (whoever filled it takes that room too).
type boltLog struct {
	db   *bbolt.DB
	path string
	// turn holds a token while somebody writes, which guards room, size and emptied.
	turn chan struct{}
	room *room
	size int64 // what bbolt uses of the file
	// emptied tells that the whole log was deleted and nothing stored since.
	emptied bool

	mu sync.Mutex // leaf; guards what is below
	// state is what is in the file. It is replaced, never changed.
	state logState
	// cut is the first of the newest entries that are deleted as soon as others replace them;
	// 0 for none.
	cut uint64
	// broken is set by a panic out of bbolt, after which its locks may be held for ever.
	broken bool
}

// openBoltLog opens the file at path, or makes it. Damage is a *DamageError.
func openBoltLog(path string) (*boltLog, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := createBoltLog(path); err != nil {
			return nil, err
		}
	}
	b := &boltLog{path: path, turn: make(chan struct{}, 1)}
	o := boltOptions()
	o.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		f, err := os.OpenFile(name, flag&^os.O_CREATE, mode)
		if err == nil {
			err = b.inspect(f)
		}
		if err != nil && f != nil {
			_ = f.Close()
			f = nil
		}
		return f, err
	}
	return b, b.guarded(func() (err error) { b.db, err = bbolt.Open(path, 0o600, o); return err })
}

// inspect locks the file, as bbolt will, checks it, and makes room behind it.
func (b *boltLog) inspect(f *os.File) error {
	if err := lockWithin(f, storeLockWait); err != nil {
		return err
	}
	state, size, err := checkFile(f)
	if err != nil {
		return err
	}
	b.state, b.size, b.room = state, size, newRoom(f)
	return b.room.take(size, 0)
}

func boltOptions() *bbolt.Options {
	return &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType, Timeout: storeLockWait, NoStatistics: true}
}

// createBoltLog makes the file aside, so that one with its name always is complete.
func createBoltLog(path string) error {
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	db, err := bbolt.Open(fresh, 0o600, boltOptions())
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte(bucketLogs))
		state, err2 := tx.CreateBucket([]byte(bucketState))
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		return state.Put([]byte(keyState), logState{tx: uint64(tx.ID())}.encode())
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path)) // the file syncs what it holds, not its name
}

// guard turns a panic into an error. bbolt reads the file as memory: where it can not be read
// any more, or its bytes have changed after the check, it panics.
func guard(op func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &panicError{r}
		}
	}()
	return op()
}

// panicError is a panic of bbolt.
type panicError struct{ value any }

func (e *panicError) Error() string {
	return fmt.Sprintf("it can not be read, or has changed under our hands: %v", e.value)
}

func (b *boltLog) current() (logState, uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state, b.cut
}

// FirstIndex is the index of the oldest entry, 0 when there is none.
func (b *boltLog) FirstIndex() (uint64, error) {
	s, cut := b.current()
	if cut != 0 && cut <= s.first {
		return 0, nil
	}
	return s.first, nil
}

// LastIndex is the index of the newest entry, 0 when there is none.
func (b *boltLog) LastIndex() (uint64, error) {
	s, cut := b.current()
	if cut != 0 {
		return cut - 1, nil
	}
	return s.last, nil
}

// GetLog reads an entry.
func (b *boltLog) GetLog(index uint64, l *raft.Log) error {
	if s, cut := b.current(); index == 0 || index < s.first || index > s.last || cut != 0 && index >= cut {
		return raft.ErrLogNotFound
	}
	err := b.guarded(func() error {
		return b.db.View(func(tx *bbolt.Tx) error {
			if v := tx.Bucket([]byte(bucketLogs)).Get(entryKey(index)); v != nil {
				return decodeEntry(index, v, l)
			}
			// It was deleted since, or it is lost.
			s, err := decodeState(tx.Bucket([]byte(bucketState)).Get([]byte(keyState)))
			if err == nil && index >= s.first && index <= s.last {
				return fmt.Errorf("entry %d of %d to %d is missing", index, s.first, s.last)
			}
			if err != nil {
				return err
			}
			return raft.ErrLogNotFound
		})
	})
	if d := (*DamageError)(nil); err == nil || errors.Is(err, raft.ErrLogNotFound) || errors.As(err, &d) {
		return err
	}
	return &DamageError{b.path, err}
}

// guarded is guard, and notes that bbolt is not to be used any more.
func (b *boltLog) guarded(op func() error) error {
	err := guard(op)
	if p := (*panicError)(nil); errors.As(err, &p) {
		b.mu.Lock()
		b.broken = true
		b.mu.Unlock()
		return &DamageError{b.path, err}
	}
	return err
}

// StoreLog stores one entry.
func (b *boltLog) StoreLog(l *raft.Log) error { return b.StoreLogs([]*raft.Log{l}) }

// StoreLogs appends entries, in the place of those that were cut. With errNoRoom nothing has
// changed, and what was cut is back.
func (b *boltLog) StoreLogs(ls []*raft.Log) error {
	if len(ls) == 0 {
		return nil
	}
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	cut := b.cutNow()
	err := b.update(entriesNeed(ls), func(logs *bbolt.Bucket, s *logState) error {
		if cut != 0 {
			if err := deleteEntries(logs, cut, s.last); err != nil {
				return err
			}
			s.last = cut - 1
		}
		for _, l := range ls {
			if s.last != 0 && l.Index != s.last+1 {
				return fmt.Errorf("entry %d can not follow entry %d", l.Index, s.last)
			}
			if s.first == 0 {
				s.first = l.Index
			}
			s.last = l.Index
			if err := logs.Put(entryKey(l.Index), encodeEntry(l)); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case err == nil:
		b.emptied = false
	case errors.Is(err, errNoRoom) && b.emptied:
		// Raft may believe in entries that are deleted already.
		return fmt.Errorf("what was to replace the whole log finds no room on the disk: %s", err.Error())
	}
	return err
}

// cutNow ends the cut: what comes next either carries it out or takes it back.
func (b *boltLog) cutNow() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	cut := b.cut
	b.cut = 0
	return cut
}

// DeleteRange deletes the oldest entries up to last, or cuts the newest ones from first on.
func (b *boltLog) DeleteRange(first, last uint64) error {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	s, cut := b.current()
	if s.last == 0 || last < s.first {
		return nil
	}
	if first > s.first {
		return b.cutFrom(first, last)
	}
	if cut != 0 && last >= cut-1 {
		last = s.last
	}
	last = min(last, s.last)
	err := b.update(0, func(logs *bbolt.Bucket, s *logState) error {
		if err := deleteEntries(logs, s.first, last); err != nil {
			return err
		}
		s.first = last + 1
		if last == s.last {
			s.first, s.last = 0, 0
		}
		return nil
	})
	if err == nil && last == s.last {
		b.emptied = true
		b.cutNow()
	}
	return err
}

// cutFrom hides the newest entries from first on.
func (b *boltLog) cutFrom(first, last uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if last < b.state.last && (b.cut == 0 || last < b.cut-1) {
		return fmt.Errorf("entries %d to %d are in the middle of the log, which goes to %d", first, last, b.state.last)
	}
	if first <= b.state.last && (b.cut == 0 || first < b.cut) {
		b.cut = first
	}
	return nil
}

func deleteEntries(logs *bbolt.Bucket, first, last uint64) error {
	for i := first; i <= last; i++ {
		if err := logs.Delete(entryKey(i)); err != nil {
			return err
		}
	}
	return nil
}

// Set stores a value. It may use the room that is kept from entries.
func (b *boltLog) Set(key, value []byte) error {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	return b.update(0, func(_ *bbolt.Bucket, s *logState) error {
		values := maps.Clone(s.values)
		if values == nil {
			values = make(map[string][]byte)
		}
		values[string(key)] = append([]byte(nil), value...)
		s.values = values
		return nil
	})
}

// Get reads a value; the caller may keep it.
func (b *boltLog) Get(key []byte) ([]byte, error) {
	s, _ := b.current()
	v, ok := s.values[string(key)]
	if !ok {
		return nil, errKeyNotFound
	}
	return append([]byte(nil), v...), nil
}

// SetUint64 stores a number.
func (b *boltLog) SetUint64(key []byte, value uint64) error {
	return b.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 reads a number.
func (b *boltLog) GetUint64(key []byte) (uint64, error) {
	v, err := b.Get(key)
	if err != nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("%s is no number but %d bytes", key, len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}

// update commits one change, by whoever has the turn. need is how many bytes it may add to the
// file; 0 is for what must go through with the room that is kept.
func (b *boltLog) update(need int64, change func(*bbolt.Bucket, *logState) error) error {
	next, _ := b.current()
	err := b.guarded(func() error {
		tx, err := b.db.Begin(true)
		if err != nil {
			return err
		}
		b.size = tx.Size()
		if err = b.room.take(b.size, need); err == nil {
			err = change(tx.Bucket([]byte(bucketLogs)), &next)
		}
		if err == nil {
			next.tx = uint64(tx.ID())
			err = tx.Bucket([]byte(bucketState)).Put([]byte(keyState), next.encode())
		}
		if err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	})
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.state = next
	b.mu.Unlock()
	return nil
}

// hasRoom tells whether entries of any usual size would find room now: a leader that has
// room for its first entry only would be none for long.
func (b *boltLog) hasRoom() bool {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	return b.room.reach(b.size+entriesNeed(nil)+2*entrySizeMax+roomKept) == nil
}

// Close closes the file. After a panic of bbolt it only lets go of it.
func (b *boltLog) Close() error {
	b.mu.Lock()
	broken := b.broken
	b.mu.Unlock()
	if broken {
		return b.room.file.Close()
	}
	err := b.db.Close()
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return nil
	}
	return err
}
