package wal

import (
	"errors"
	"fmt"
	"time"
)

const (
	// SegmentBytes is how large segments become.
	SegmentBytes = 8 << 20
	// firstBytes is the size of the first one. Each further one has twice as much as the one
	// before, up to SegmentBytes, so that a young log costs little.
	firstBytes = 1 << 20
	// keptMax is how much of the segment in use is kept for values and deletions, which are
	// never refused, while there is no spare one; a quarter of a small one.
	keptMax = 2 << 20
	// stridePause is how long the keeper waits between strides of a segment that nobody waits
	// for, so that appends have the disk.
	stridePause = 25 * time.Millisecond
)

// errStopped ends the making of a segment when the log is closed.
var errStopped = errors.New("the log is closed")

// kept is how much of a segment is kept, at most limit.
func kept(size, limit int64) int64 { return min(limit, size/4) }

// leastSize is how large a segment must be to have n bytes besides what is kept.
func leastSize(n, limit int64) int64 { return pages(min(n+n/3+pageBytes, n+limit)) }

// makeRoom makes sure that a block with that much payload fits in the segment in use, which it
// may have to begin. Entries leave keptMax, which is the limit then; for what must go through it is 0, and want of
// room is no ErrNoRoom but the end.
func (l *Log) makeRoom(payload int, limit int64) error {
	roll, err := l.findRoom(payload, limit)
	if errors.Is(err, ErrNoRoom) && limit == 0 {
		return l.fail(fmt.Errorf("the room that is kept for terms, votes and deletions is used up: %s", err.Error()))
	}
	if err != nil || !roll {
		return err
	}
	return l.roll()
}

// HasRoom tells whether entries of this many bytes would find room now.
func (l *Log) HasRoom(bytes int) bool {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	_, err := l.findRoom(bytes, keptMax)
	return err == nil
}

// findRoom tells whether a block fits in the segment in use, or in the spare one (roll), which it makes
// when that is what is missing.
func (l *Log) findRoom(payload int, limit int64) (roll bool, err error) {
	if int64(payload) > segmentMax/2 {
		return false, fmt.Errorf("%d bytes are too many for one write", payload)
	}
	s, _ := l.current()
	need := blockBytes(payload) + pageBytes // an end block must fit behind it
	start := pageBytes + blockBytes(len(appendValues(l.payload[:0], s.values)))
	for {
		l.mu.RLock()
		in, spare, failed := l.segments[len(l.segments)-1], l.spare, l.failed
		l.mu.RUnlock()
		left := in.size - l.end
		switch {
		case failed != nil:
			return false, fmt.Errorf("the log is not written any more: %w", failed)
		case spare != nil && need <= left || need <= left-kept(in.size, limit):
			return false, nil
		case spare != nil && start+need <= spare.size-kept(spare.size, limit):
			return true, nil
		}
		if err := l.demandSpare(leastSize(start+need, limit)); err != nil {
			return false, err
		}
	}
}

// roll ends the segment in use and begins the spare one.
func (l *Log) roll() error {
	l.mu.RLock()
	s, in, spare := l.state, l.segments[len(l.segments)-1], l.spare
	l.mu.RUnlock()
	l.payload = l.payload[:0]
	if err := l.write(in, kindEnd, s.bounds); err != nil {
		return err
	}
	return l.begin(spare)
}

// begin writes the first block of a segment and makes it the one in use.
func (l *Log) begin(s *segment) error {
	st, _ := l.current()
	l.end, l.payload = pageBytes, appendValues(l.payload[:0], st.values)
	if err := l.write(s, kindStart, st.bounds); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s == l.spare {
		l.segments, l.spare = append(l.segments, s), nil
	}
	l.wakeKeeper()
	return nil
}

func (l *Log) wakeKeeper() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// keep makes spare segments and removes dead ones until the log is closed.
func (l *Log) keep() {
	for {
		select {
		case <-l.wake:
		case <-l.stop:
			return
		}
		l.making <- struct{}{}
		err := l.removeDead()
		if err == nil {
			err = l.makeSpare(0, l.pace())
		}
		<-l.making
		if err != nil && !errors.Is(err, ErrNoRoom) && !errors.Is(err, errStopped) {
			_ = l.fail(err)
		}
	}
}

// pace is the keeper's pause between strides; there is none from when somebody waits.
func (l *Log) pace() func() error {
	hurried := false
	return func() error {
		wait := stridePause
		if hurried {
			wait = 0
		}
		select {
		case <-l.stop:
			return errStopped
		case <-l.hurry:
			hurried = true
		case <-time.After(wait):
		}
		return nil
	}
}

// demandSpare makes a spare segment of at least this size, or waits for the keeper that does, by whoever has the turn.
func (l *Log) demandSpare(least int64) error {
	select {
	case l.hurry <- struct{}{}:
	default:
	}
	l.making <- struct{}{}
	defer func() { <-l.making }()
	select {
	case <-l.hurry:
	default:
	}
	err := l.makeSpare(least, func() error { return nil })
	if err != nil && !errors.Is(err, ErrNoRoom) {
		return l.fail(err)
	}
	return err
}

// makeSpare makes sure of a spare segment of at least this size, larger if the disk allows. With 0 it
// has the size that it should have.
func (l *Log) makeSpare(least int64, pause func() error) error {
	l.mu.RLock()
	in, spare := l.segments[len(l.segments)-1], l.spare
	l.mu.RUnlock()
	if spare != nil && spare.size >= least {
		return nil
	}
	size := max(least, min(l.segmentBytes, 2*in.size))
	if least == 0 {
		least = size
	}
	for ; ; size = max(pages(size/2), least) {
		s, err := l.tryMake(in.seq+1, size, pause)
		if err == nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.spare = s
			if spare != nil {
				return spare.file.Close()
			}
			return nil
		}
		if !isNoSpace(err) && !errors.Is(err, ErrNoRoom) {
			return fmt.Errorf("make segment %d: %w", in.seq+1, err)
		}
		if size == least {
			return ErrNoRoom
		}
	}
}

func (l *Log) tryMake(seq uint64, size int64, pause func() error) (*segment, error) {
	_, free, err := l.fsys.Space(l.dir)
	if err != nil {
		return nil, err
	}
	if free < uint64(size) {
		return nil, ErrNoRoom
	}
	return makeSegment(l.fsys, l.dir, l.identity, seq, size, pause)
}

// removeDead removes the segments in which no entry is left. A crash may leave any of them.
func (l *Log) removeDead() error {
	l.mu.Lock()
	live := l.segments[len(l.segments)-1].seq
	if len(l.state.places) > 0 {
		live = uint64(l.state.places[0].seq)
	}
	dead := l.segments[:live-l.segments[0].seq]
	l.segments = l.segments[len(dead):]
	l.mu.Unlock()
	for _, s := range dead {
		if err := errors.Join(s.file.Close(), l.fsys.Remove(s.path)); err != nil {
			return fmt.Errorf("remove segment %d: %w", s.seq, err)
		}
	}
	if len(dead) == 0 {
		return nil
	}
	return l.fsys.SyncDir(l.dir)
}
