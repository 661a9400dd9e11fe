package storage

import (
	"fmt"
	"sync"
	"time"
)

// Problem: a log that is to be on the disk before a record counts must be flushed
// at once, and a flush costs the same for one record and for a thousand.
//
// Steps: an append to such a log lists it, and wakes the committer. That flushes
// all logs which are listed in one round; what is appended meanwhile waits for the
// next. So a round grows with the load, and there is never more than one.
//
// Invariant: a log with waits set is listed, or somebody holds its maint token and
// lists it when giving that back. A round therefore never waits for a cut.
//
// Rejected: a timer that gathers appends for some time. Alone, a record would wait
// for it; under load the disk is the better timer.

// syncWidth is how many files of one round are synced at once: journaling file
// systems commit them together.
const syncWidth = 16

// commits are the logs that wait for the committer.
type commits struct {
	wake chan struct{} // capacity 1: logs are listed

	mu   sync.Mutex // a leaf
	logs []*Log
}

// SetDurable has each append made durable as soon as can be, many together, and
// notify called after each flush of the log, at first soon after this call; nil
// ends it. It is called without any lock, on a goroutine of the Dir, or, when
// there is none, in Commit and Tick.
func (l *Log) SetDurable(notify func()) {
	if notify == nil {
		l.durable.Store(nil)
		return
	}
	l.durable.Store(&notify)
	l.waits.Store(true)
	l.d.commits.add(l)
}

// committed tells who waits that the log was flushed.
func (l *Log) committed() {
	if notify := l.durable.Load(); notify != nil {
		(*notify)()
	}
}

// commitSoon has what was just appended flushed, if the log is durable; mu is held.
func (l *Log) commitSoon() {
	if l.durable.Load() == nil {
		return
	}
	l.waits.Store(true)
	l.d.commits.add(l)
}

// giveMaint ends the work for which the token was taken.
func (l *Log) giveMaint() {
	l.maint.give()
	if l.waits.Load() {
		l.d.commits.add(l)
	}
}

// takeOpen takes the token of a log if nobody has it and the log is not closed.
func (l *Log) takeOpen() (taken, closed bool) {
	if !l.maint.tryTake() {
		return false, false
	}
	l.mu.Lock()
	closed = l.closed
	l.mu.Unlock()
	if closed {
		l.waits.Store(false)
		l.maint.give()
		return false, true
	}
	return true, false
}

// add lists a log unless it is.
func (c *commits) add(l *Log) {
	c.mu.Lock()
	if !l.listed {
		l.listed = true
		c.logs = append(c.logs, l)
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *commits) take() []*Log {
	c.mu.Lock()
	defer c.mu.Unlock()
	logs := c.logs
	c.logs = nil
	for _, l := range logs {
		l.listed = false
	}
	return logs
}

// Commit makes what was appended to durable logs durable. Only the owner of a Dir
// without goroutines calls it. An error is the folder going offline.
func (d *Dir) Commit() error {
	var logs []*Log
	for _, l := range d.commits.take() {
		if taken, _ := l.takeOpen(); taken {
			logs = append(logs, l)
		}
	}
	return d.flushTaken(logs)
}

// flushTaken flushes logs whose tokens are taken, and gives those back.
func (d *Dir) flushTaken(logs []*Log) error {
	if len(logs) == 0 {
		return nil
	}
	err := d.flush(logs)
	for _, l := range logs {
		l.giveMaint()
	}
	if err == nil {
		for _, l := range logs {
			l.committed()
		}
	}
	return err
}

// runCommits is the committer.
func (d *Dir) runCommits() {
	defer d.done.Done()
	for {
		select {
		case <-d.stop:
			return
		case <-d.commits.wake:
		}
		err := d.Commit()
		if d.offline.Load() != nil {
			return
		}
		if err != nil { // it passes; the next tick lists them again
			d.o.Logger.Warn("a flush is put off", "folder", d.path, "error", err)
		}
	}
}

// syncEach syncs files, some at once unless the Dir is to have no goroutines.
func (d *Dir) syncEach(files []flushSegment) error {
	if d.o.FlushInterval <= 0 || len(files) == 1 {
		for _, s := range files {
			if err := s.sync(); err != nil {
				return err
			}
		}
		return nil
	}
	var wg sync.WaitGroup
	var mu sync.Mutex // guards first
	var first error
	for _, share := range shares(files, syncWidth) {
		wg.Go(func() {
			for _, s := range share {
				if err := s.sync(); err != nil {
					mu.Lock()
					first = err
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	return first
}

// sync makes the segment's bytes durable.
func (s flushSegment) sync() error {
	if err := s.f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", s.file.path(), err)
	}
	return nil
}

// shares cuts a list into at most n parts.
func shares(files []flushSegment, n int) [][]flushSegment {
	var parts [][]flushSegment
	for size := (len(files) + n - 1) / n; len(files) > 0; {
		k := min(size, len(files))
		parts, files = append(parts, files[:k]), files[k:]
	}
	return parts
}

// noteUnsynced counts appended bytes until a flush has taken them; mu is held.
func (l *Log) noteUnsynced(n int64) {
	if l.unsynced == 0 {
		l.unsyncedAt.Store(l.d.o.Now().UnixNano())
	}
	l.unsynced += n
	if all := l.d.unsynced.Add(n); l.d.o.FlushBytes > 0 && all >= l.d.o.FlushBytes {
		l.d.wakeFlush()
	}
}

// noteSynced takes the bytes that a flush which began at began has made durable;
// mu is held.
func (l *Log) noteSynced(n, began int64) {
	l.unsynced -= n
	l.d.unsynced.Add(-n)
	if l.unsynced == 0 {
		began = 0 // what is left was appended after that
	}
	l.unsyncedAt.Store(began)
}

// UnsyncedSince is when the oldest of the bytes were appended that are not flushed
// yet; zero when there are none.
func (d *Dir) UnsyncedSince() time.Time {
	d.mu.RLock()
	defer d.mu.RUnlock()
	oldest := int64(0)
	for _, l := range d.sorted {
		if at := l.unsyncedAt.Load(); at != 0 && (oldest == 0 || at < oldest) {
			oldest = at
		}
	}
	if oldest == 0 {
		return time.Time{}
	}
	return time.Unix(0, oldest)
}
