package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/storage/vfs"
)

var (
	// ErrKeyNotFound is the answer for a value that was never set; Raft compares the text.
	ErrKeyNotFound = errors.New("not found")
	// ErrNoRoom is the answer to entries that the disk has no room for. Nothing was written.
	ErrNoRoom = errors.New("the disk has no room for the cluster's metadata")
)

// Log is Raft's log and its stable values; doc.go describes it.
type Log struct {
	fsys     vfs.FS
	dir      string
	identity [16]byte
	// segmentBytes is the size of segments, but for the first ones and those of large entries.
	segmentBytes int64
	lock         io.Closer

	// turn holds a token while somebody writes, which guards what is here.
	turn chan struct{}
	// end is where the next block goes in the segment in use, number that of the last block,
	// and last its kind.
	end    int64
	number uint64
	last   kind
	// payload and block are memory for the next block.
	payload, block []byte
	// emptied tells that all entries were deleted and none stored since.
	emptied bool

	// making holds a token while somebody makes or removes segments.
	making chan struct{}
	// hurry tells the keeper that somebody waits for it, wake that there is something to do. Capacity 1.
	hurry, wake chan struct{}
	stop        chan struct{}
	keeper      sync.WaitGroup

	mu sync.RWMutex // guards what is below
	// state is what is on the disk.
	state state
	// cut is the first of the newest entries that are deleted as soon as others replace them;
	// 0 for none.
	cut uint64
	// segments are all of them in order, without gaps; the last one is in use.
	segments []*segment
	// spare is the one that comes next; nil when it is not made yet.
	spare *segment
	// failed is why nothing is written any more.
	failed error
	closed bool
}

// FirstIndex is the index of the oldest entry, 0 when there is none.
func (l *Log) FirstIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.state.first, nil
}

// LastIndex is the index of the newest entry, 0 when there is none.
func (l *Log) LastIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.lastLocked(), nil
}

func (l *Log) lastLocked() uint64 {
	if l.cut != 0 {
		return l.cut - 1
	}
	return l.state.last
}

// find returns where an entry is; the segment is nil when there is none.
func (l *Log) find(index uint64) (*segment, place) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	p, ok := l.state.place(index)
	if !ok || index > l.lastLocked() {
		return nil, p
	}
	return l.segments[uint64(p.seq)-l.segments[0].seq], p
}

// GetLog reads an entry.
func (l *Log) GetLog(index uint64, e *raft.Log) error {
	for {
		s, p := l.find(index)
		if s == nil {
			return raft.ErrLogNotFound
		}
		err := s.decodeAt(p, index, e)
		if errors.Is(err, fs.ErrClosed) && !l.isClosed() {
			continue // the segment was removed: so was the entry
		}
		if err != nil {
			return fmt.Errorf("read entry %d: %w", index, err)
		}
		return nil
	}
}

func (l *Log) isClosed() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.closed
}

// Get reads a value; the caller may keep it.
func (l *Log) Get(key []byte) ([]byte, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	v, ok := l.state.values[string(key)]
	if !ok {
		return nil, ErrKeyNotFound
	}
	return slices.Clone(v), nil
}

// GetUint64 reads a number.
func (l *Log) GetUint64(key []byte) (uint64, error) {
	v, err := l.Get(key)
	if err != nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("%s is no number but %d bytes", key, len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}

// SetUint64 stores a number.
func (l *Log) SetUint64(key []byte, value uint64) error {
	return l.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// Set stores a value. It may use the room that is kept from entries.
func (l *Log) Set(key, value []byte) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	s, _ := l.current()
	values := maps.Clone(s.values)
	values[string(key)] = append([]byte{}, value...)
	if err := l.makeRoom(len(appendValues(l.payload[:0], values)), 0); err != nil {
		return err
	}
	l.payload = appendValues(l.payload[:0], values)
	if err := l.write(l.inUse(), kindValues, s.bounds); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.values = values
	return nil
}

// StoreLog stores one entry.
func (l *Log) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

// StoreLogs appends entries, in the place of those that were cut. With ErrNoRoom nothing has
// changed, and what was cut is back.
func (l *Log) StoreLogs(es []*raft.Log) error {
	if len(es) == 0 {
		return nil
	}
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	s, last := l.current()
	size, before := 4, last
	for _, e := range es {
		if before != 0 && e.Index != before+1 || e.Index == 0 {
			return fmt.Errorf("entry %d can not follow entry %d", e.Index, before)
		}
		size, before = size+4+entrySize(e), e.Index
	}
	switch err := l.makeRoom(size, keptMax); {
	case errors.Is(err, ErrNoRoom) && l.emptied:
		// Raft may believe in entries that are deleted already.
		return fmt.Errorf("what was to replace the whole log finds no room on the disk: %s", err.Error())
	case errors.Is(err, ErrNoRoom):
		l.uncut()
		return err
	case err != nil:
		return err
	}
	b := bounds{s.first, before}
	if s.last == 0 {
		b.first = es[0].Index
	}
	in := l.inUse()
	places := l.encode(in, es)
	if err := l.write(in, kindEntries, b); err != nil {
		return err
	}
	l.emptied = false
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state, l.cut = l.state.replaced(es[0].Index, places), 0
	return nil
}

// encode makes entries the next payload, and returns their places in a segment.
func (l *Log) encode(in *segment, es []*raft.Log) []place {
	places := make([]place, len(es))
	b := binary.BigEndian.AppendUint32(l.payload[:0], uint32(len(es)))
	for i, e := range es {
		n := entrySize(e)
		b = binary.BigEndian.AppendUint32(b, uint32(n))
		places[i] = place{uint32(in.seq), uint32(within(l.end, int64(headerBytes+len(b)))), uint32(n)}
		b = appendEntry(b, e)
	}
	l.payload = b
	return places
}

// DeleteRange deletes the oldest entries up to last, or cuts the newest ones from first on.
func (l *Log) DeleteRange(first, last uint64) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	s, end := l.current()
	switch {
	case s.last == 0 || last < s.first:
		return nil
	case first > s.first:
		return l.cutFrom(first, last)
	}
	b := bounds{last + 1, s.last}
	if last >= end {
		b = bounds{}
	}
	if err := l.makeRoom(0, 0); err != nil {
		return err
	}
	l.payload = l.payload[:0]
	if err := l.write(l.inUse(), kindBounds, b); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = l.state.cutTo(b)
	if b.last == 0 {
		l.emptied, l.cut = true, 0
	}
	l.wakeKeeper()
	return nil
}

// cutFrom hides the newest entries from first on.
func (l *Log) cutFrom(first, last uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.lastLocked()
	if last < end {
		return fmt.Errorf("entries %d to %d are in the middle of the log, which goes to %d", first, last, end)
	}
	if first <= end {
		l.cut = first
	}
	return nil
}

func (l *Log) uncut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = 0
}

// current is what is on the disk, and the last entry that is not cut.
func (l *Log) current() (state, uint64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.state, l.lastLocked()
}

// inUse is the segment that is written to.
func (l *Log) inUse() *segment {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.segments[len(l.segments)-1]
}

// bufferKept is how large memory for blocks may be that is kept for the next one.
const bufferKept = 1 << 20

// write makes the payload the next block of a segment, which has room for it, by whoever has the turn. After an error
// nothing is written any more: nobody knows what is on the disk.
func (l *Log) write(in *segment, k kind, b bounds) error {
	h := header{kind: k, number: l.number + 1, bounds: b}
	l.block = sealBlock(l.block, in.sealer, l.end, h, l.payload)
	_, err := in.file.WriteAt(l.block, l.end)
	if err == nil {
		err = in.file.Sync()
	}
	if err != nil {
		return l.fail(fmt.Errorf("write block %d: %w", h.number, err))
	}
	l.number, l.last, l.end = h.number, k, l.end+int64(len(l.block))
	if cap(l.block) > bufferKept {
		l.block, l.payload = nil, nil
	}
	return nil
}

// fail makes err the answer to everything that would write.
func (l *Log) fail(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		l.failed = err
	}
	return err
}

// Close closes the log. What was written last is then known to be whole.
func (l *Log) Close() error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	if l.isClosed() {
		return nil
	}
	close(l.stop)
	l.keeper.Wait()
	s, _ := l.current()
	l.mu.RLock()
	failed := l.failed
	l.mu.RUnlock()
	in := l.inUse()
	var err error
	if failed == nil && l.last != kindClose && l.end+2*pageBytes <= in.size {
		l.payload = l.payload[:0]
		err = l.write(in, kindClose, s.bounds)
	}
	_ = l.fail(fs.ErrClosed)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return errors.Join(err, l.release())
}

// release closes the files.
func (l *Log) release() error {
	var errs []error
	for _, s := range l.segments {
		errs = append(errs, s.file.Close())
	}
	if l.spare != nil {
		errs = append(errs, l.spare.file.Close())
	}
	return errors.Join(append(errs, l.lock.Close())...)
}
