package storage

import (
	"errors"
	"fmt"

	"github.com/weirmq/weir/wire/batch"
)

// RaiseStart moves the log start offset up to o at once; that it is written down
// and the files below it go follows in the background, in this order. After a
// crash in between the log starts where it did. A start at or above o is left as
// it is.
func (l *Log) RaiseStart(o batch.Offset) error {
	if err := l.raiseStart(o); err != nil {
		return l.wrap("raise the start of", err)
	}
	l.d.trims.add(l)
	return nil
}

func (l *Log) raiseStart(o batch.Offset) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return ErrClosed
	case l.d.offline.Load() != nil:
		return l.d.Offline()
	case o > l.End():
		return fmt.Errorf("to %d past the end %d: %w", o, l.End(), ErrOffsetOutOfRange)
	case o <= l.Start():
		return nil
	}
	l.start.Store(int64(o))
	l.setEpochs(l.epochs.cutStart(o))
	l.enqueue()
	return nil
}

// trims are the logs whose start was raised and whose files have not gone yet.
type trims struct {
	reaper *reaper // wakes who takes them
	logs   []*Log  // guarded by reaper.mu
}

func (t *trims) add(l *Log) {
	t.reaper.mu.Lock()
	t.logs = append(t.logs, l)
	t.reaper.mu.Unlock()
	t.reaper.signal()
}

func (t *trims) take() []*Log {
	t.reaper.mu.Lock()
	defer t.reaper.mu.Unlock()
	logs := t.logs
	t.logs = nil
	return logs
}

// trim writes the raised starts down, all in one file, and then removes what lies
// below them.
func (d *Dir) trim() {
	logs := d.trims.take()
	if len(logs) == 0 {
		return
	}
	err := d.starts.write()
	for _, l := range logs {
		if err != nil || d.stopping() {
			break // the next start finds what is left
		}
		err = l.dropExpired()
	}
	if err != nil && !errors.Is(err, ErrClosed) && d.offline.Load() == nil {
		d.o.Logger.Warn("old segments are not removed yet; it is tried again with the next ones", "folder", d.path, "error", err)
	}
}

// stopping tells whether Close has begun.
func (d *Dir) stopping() bool {
	select {
	case <-d.stop:
		return true
	default:
		return false
	}
}

// dropExpired removes the files below the start.
func (l *Log) dropExpired() error {
	l.maint.take()
	defer l.giveMaint()
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	if closed {
		return nil
	}
	return l.letGoBelowStart()
}

// closeExpired begins a new segment when the last one lies wholly below the start,
// so that it can go. A disk without room for the new file keeps the old one.
func (l *Log) closeExpired() error {
	l.d.writes.enter()
	defer l.d.writes.leave()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.expiredLocked() {
		return nil
	}
	_, err := l.roll(l.view.Load().last().end())
	if errors.Is(err, ErrFull) || errors.Is(err, ErrBusy) {
		return nil
	}
	return err
}

// expiredLocked tells whether the last segment has batches, and all of them lie below
// the start that is written down; mu is held.
func (l *Log) expiredLocked() bool {
	s := l.view.Load().last()
	return s != nil && s.size() > 0 && s.end() <= l.recordedStart() && !l.closed && l.damage.Load() == nil
}

// AdvanceStart moves the log start offset up to o and removes the segments that
// lie wholly below it. It returns when the new start is durable. A start at or
// above o is left as it is.
func (l *Log) AdvanceStart(o batch.Offset) error {
	l.maint.take()
	defer l.giveMaint()
	if err := l.advanceStart(o); err != nil {
		return l.wrap("advance the start of", err)
	}
	return nil
}

func (l *Log) advanceStart(o batch.Offset) error {
	if err := l.flushBelow(o); err != nil {
		return err
	}
	l.mu.Lock()
	switch {
	case l.closed:
		l.mu.Unlock()
		return ErrClosed
	case o > l.End():
		l.mu.Unlock()
		return fmt.Errorf("to %d past the end %d: %w", o, l.End(), ErrOffsetOutOfRange)
	case o <= l.Start() && l.startRecorded.Load() == l.start.Load():
		l.mu.Unlock()
		return l.letGoBelowStart()
	}
	o = max(o, l.Start())
	l.start.Store(int64(o))
	l.setEpochs(l.epochs.cutStart(o))
	l.enqueue()
	l.mu.Unlock()
	if err := l.d.starts.write(); err != nil {
		return err
	}
	return l.letGoBelowStart()
}

// recordedStart is the start as far as it is written down: no file is removed for
// one that a crash would forget.
func (l *Log) recordedStart() batch.Offset {
	return min(l.Start(), batch.Offset(l.startRecorded.Load()))
}

// letGoBelowStart removes the files below a start that is written down; the caller
// has maint. What is remembered of producers goes to the disk first, since the
// batches that it could be rebuilt from are about to go, and so does the last epoch
// of a log that keeps no batch.
func (l *Log) letGoBelowStart() error {
	if err := l.keepLastEpoch(); err != nil {
		return err
	}
	if err := l.closeExpired(); err != nil {
		return err
	}
	l.mu.Lock()
	n := l.belowStart()
	unwritten := false
	if n > 0 {
		base := l.view.Load().segs[n].base
		unwritten = !covered(l.snaps.filed, base, batch.Offset(l.recorded.Load()))
		if unwritten && l.snaps.last < base {
			l.snaps.want(l.End(), &l.producers)
		}
	}
	l.mu.Unlock()
	if n == 0 {
		return nil
	}
	if unwritten {
		if err := l.writeDown(); err != nil {
			return err
		}
	}
	return l.dropBelowStart()
}

// belowStart counts the segments that may go, which the last one never does; mu is held.
func (l *Log) belowStart() int {
	segs, start := l.view.Load().segs, l.recordedStart()
	n := 0
	for n < len(segs)-1 && segs[n].end() <= start {
		n++
	}
	return n
}

// writeDown flushes the log and writes down that it did: a start believes no snapshot of
// producers, and no epochs, past the recovery point that it finds. On a full disk the
// batches go all the same, and a start may know less: room is worth more.
func (l *Log) writeDown() error {
	err := l.d.flush([]*Log{l})
	if err == nil {
		err = l.d.recoveryPoints.write()
	}
	if err != nil && l.d.offline.Load() != nil {
		return err
	}
	return nil
}

// keepLastEpoch writes down a log of which all batches are about to go: a start finds the
// last epoch in its file then.
func (l *Log) keepLastEpoch() error {
	l.mu.Lock()
	empties := l.expiredLocked()
	l.mu.Unlock()
	if !empties {
		return nil
	}
	return l.writeDown()
}

// dropBelowStart removes the segments before the start, but never the last one.
func (l *Log) dropBelowStart() error {
	l.mu.Lock()
	v, n := l.view.Load(), l.belowStart()
	if n == 0 {
		l.mu.Unlock()
		return nil
	}
	kept := &view{segs: v.segs[n:]}
	l.letGo(kept)
	snaps := l.snaps.drop(func(o batch.Offset) bool { return o < kept.segs[0].base })
	l.publish(kept)
	l.mu.Unlock()
	for i := n - 1; i >= 0; i-- {
		if err := l.setAside(v.segs[i]); err != nil {
			return l.fail(err)
		}
	}
	if err := l.removeSnapshots(snaps); err != nil {
		return l.fail(err)
	}
	return l.syncFolder()
}
