package storage

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/weirmq/weir/wire/batch"
)

// A cut takes bytes away for good, and a crash must find the log as it was
// before or after, or at least as one history: never the old tail under a new
// one. So, in this order: the recovery point on the disk is lowered, so that the
// missing bytes are not taken for damage; readers and End see the cut; files are
// dropped from the last to the first and the last one left is shortened; all of
// that is made durable; only then are appends allowed again, into a new segment.

// TruncateTo removes everything from the batch that holds end on, and returns
// when that is durable. End is then the first offset of that batch. Of a log that ends
// before it nothing goes but the memory of an epoch whose batches the start has passed;
// an end below Start is ErrOffsetOutOfRange. Where bytes below end turn out to be damaged
// nothing is cut: the log is Damaged then, and that is the error.
func (l *Log) TruncateTo(end batch.Offset) error {
	l.maint.take()
	defer l.giveMaint()
	if err := l.truncateTo(end); err != nil {
		return l.wrap("truncate", err)
	}
	return nil
}

func (l *Log) truncateTo(end batch.Offset) error {
	if end < l.Start() {
		return fmt.Errorf("to %d below the start %d: %w", end, l.Start(), ErrOffsetOutOfRange)
	}
	if e := l.damage.Load(); end > l.End() || end == l.End() && (e == nil || max(e.Offset, l.Start()) < end) {
		l.forgetEpochs(end)
		return nil
	}
	if err := l.beginCut(); err != nil {
		return err
	}
	defer l.endCut()
	if err := l.restoreFolder(); err != nil {
		return err
	}
	v, dropped, err := l.soundView(end)
	if err != nil {
		return err
	}
	if err := l.lowerRecovery(v.end()); err != nil {
		return err
	}
	if err := l.lowerHW(v.end()); err != nil {
		return err
	}
	if err := l.lowerCleaned(v.end()); err != nil {
		return err
	}
	return l.install(v, dropped)
}

// forgetEpochs drops an epoch that has no batch below end.
func (l *Log) forgetEpochs(end batch.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if kept := l.epochs.cutEnd(end); len(kept) < len(l.epochs) {
		l.setEpochs(kept)
		l.enqueue()
	}
}

// install makes a view with fewer bytes the log's, on the disk too.
func (l *Log) install(v *view, dropped []*segment) error {
	end := v.end()
	l.mu.Lock()
	l.letGo(v)
	if s := v.last(); s != nil && s.cut && !l.view.Load().holds(s) {
		l.dirty = append(l.dirty, dirtySegment{segment: s})
	}
	l.publish(v)
	l.setEpochs(l.epochs.cutEnd(end))
	snaps := l.snaps.drop(func(o batch.Offset) bool { return o > end })
	l.mu.Unlock()
	if err := l.cutFiles(v.last(), dropped, snaps); err != nil {
		return l.fail(err)
	}
	if err := l.keepEnd(end); err != nil {
		return err
	}
	ps, err := l.rebuildProducers(end)
	if bad := (*CorruptError)(nil); err != nil && !errors.As(err, &bad) {
		return l.fail(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.producers = ps
	l.heal(end)
	return err // of damage below the cut, which is to be taken away by another one
}

// heal forgets damage that a cut took away; mu is held.
func (l *Log) heal(end batch.Offset) {
	if e := l.damage.Load(); e != nil && max(e.Offset, l.Start()) >= end {
		l.damage.Store(nil)
	}
}

// letGo takes the segments that are not in v off the list to be flushed; mu is
// held, and maint.
func (l *Log) letGo(v *view) {
	kept := l.dirty[:0]
	for _, ds := range l.dirty {
		if v.holds(ds.segment) {
			kept = append(kept, ds)
			continue
		}
		if ds.f != nil {
			l.d.writers.release(&ds.file.w)
		}
		if ds.segment == l.view.Load().last() {
			l.w = nil
		}
	}
	clear(l.dirty[len(kept):])
	l.dirty = kept
}

// ResetTo removes everything and lets the log begin, empty, at start. It returns
// when that is durable.
func (l *Log) ResetTo(start batch.Offset) error {
	l.maint.take()
	defer l.giveMaint()
	if err := l.resetTo(start); err != nil {
		return l.wrap("reset", err)
	}
	return nil
}

func (l *Log) resetTo(start batch.Offset) error {
	if start < 0 {
		return fmt.Errorf("to %d: %w", start, ErrOffsetOutOfRange)
	}
	before := l.Start()
	if err := l.beginCut(); err != nil {
		return err
	}
	defer l.endCut()
	if err := l.restoreFolder(); err != nil {
		return err
	}
	if err := l.lowerRecovery(min(start, before)); err != nil {
		return err
	}
	if err := l.lowerHW(start); err != nil {
		return err
	}
	if err := l.lowerCleaned(0); err != nil {
		return err
	}
	if err := l.dropEpochFile(); err != nil {
		return err
	}
	l.start.Store(int64(start))
	if err := l.d.starts.write(); err != nil {
		l.start.Store(int64(before))
		return err
	}
	v := &view{empty: start}
	l.mu.Lock()
	dropped := l.view.Load().segs
	l.letGo(v)
	l.publish(v)
	l.setEpochs(nil)
	l.producers = producers{max: l.d.o.MaxProducers}
	snaps := l.snaps.drop(func(batch.Offset) bool { return true })
	l.flushed.Store(int64(start))
	l.recovery.Store(int64(start))
	l.damage.Store(nil)
	l.mu.Unlock()
	if err := l.cutFiles(nil, dropped, snaps); err != nil {
		return l.fail(err)
	}
	return l.keepEnd(start)
}

// flushBelow flushes what lies below a new start, so that no start that is written down
// lies past what a loss of power leaves, and what follows it can be told from a log that
// never had anything. On a full disk the start moves all the same.
func (l *Log) flushBelow(o batch.Offset) error {
	if o <= l.Start() || o > l.End() || o <= l.Flushed() {
		return nil
	}
	if err := l.d.flush([]*Log{l}); err != nil && l.d.offline.Load() != nil {
		return err
	}
	return nil
}

// dropEpochFile removes the epoch file of a log that is about to begin anew: what it
// says would be taken for the history of what lies below the new start.
func (l *Log) dropEpochFile() error {
	err := l.d.fs.Remove(l.filePath(epochFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = l.syncFolder()
	}
	if err != nil {
		return l.fail(err)
	}
	l.mu.Lock()
	l.epochsOld = true
	l.mu.Unlock()
	return nil
}

// beginCut stops appends until endCut.
func (l *Log) beginCut() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.d.offline.Load() != nil {
		return l.d.Offline()
	}
	if l.closed {
		return ErrClosed
	}
	l.busy = true
	return nil
}

// lowerRecovery lowers the recovery point to where the log will end, in memory
// and, if it is higher there, on the disk.
func (l *Log) lowerRecovery(end batch.Offset) error {
	l.flushed.Store(min(l.flushed.Load(), int64(end)))
	l.recovery.Store(min(l.recovery.Load(), int64(end)))
	if l.recorded.Load() <= int64(end) {
		return nil
	}
	return l.d.recoveryPoints.write()
}

// lowerHW lowers the high watermark to where the log will end, on the disk too: a
// start clips it to the log's end only, and would find one that covers what was
// appended since, which nobody has committed. It lies past a cut only where records
// that were committed are lost.
func (l *Log) lowerHW(end batch.Offset) error {
	if l.HW() > end {
		l.SetHW(end)
	}
	if l.hwRecorded.Load() <= int64(end) {
		return nil
	}
	return l.d.hws.write()
}

func (l *Log) endCut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy = false
	l.enqueue()
}

// soundView is cutView of a log that is sound below end, flushed or not: who cuts it
// takes what lies there for what it was. What is found not to be is noted.
func (l *Log) soundView(end batch.Offset) (*view, []*segment, error) {
	_ = l.look() // which notes it
	if e := l.damage.Load(); e != nil && max(e.Offset, l.Start()) < end {
		return nil, nil, e
	}
	v, dropped, err := l.cutView(end)
	if c := (*CorruptError)(nil); errors.As(err, &c) {
		if end == l.Start() { // what is rotten lies below the start: it goes with the rest
			return &view{empty: end}, l.view.Load().segs, nil
		}
		l.markDamaged(c)
	}
	return v, dropped, err
}

// cutView returns the view of the log cut at the batch that holds end, and the
// segments that it drops.
func (l *Log) cutView(end batch.Offset) (*view, []*segment, error) {
	v := l.view.Load()
	i := v.find(end)
	if i == len(v.segs) { // damaged where it ends: only bytes past the end go
		segs, dropped, empty := v.segs, []*segment(nil), v.empty
		if s := v.last(); s != nil && s.base == end { // nothing in it is whole, and its name is the next one's
			segs, dropped, empty = segs[:i-1], segs[i-1:], end
		}
		kept, err := l.closeLast(segs)
		return &view{segs: kept, empty: empty}, dropped, err
	}
	s := v.segs[i]
	at := spot{base: s.base} // where nothing of it is to stay, or the start has passed what was gone
	there := l.has(s)
	if !there && end > max(s.base, l.Start()) {
		return nil, nil, l.missing(s.file.path(), s.base)
	}
	if end > s.base && there {
		err := l.inGate(func() error {
			return l.walk(s, func(w walker) error {
				var err error
				at, err = w.provenAt(end)
				return err
			})
		})
		if err != nil {
			return nil, nil, err
		}
	}
	if at.base < l.Start() { // nothing above the start is left
		return &view{empty: l.Start()}, v.segs, nil
	}
	if at.pos == 0 {
		kept, err := l.closeLast(v.segs[:i])
		return &view{segs: kept, empty: s.base}, v.segs[i:], err
	}
	short, err := l.shortened(s, at)
	if err != nil {
		return nil, nil, err
	}
	return &view{segs: append(v.segs[:i:i], short)}, v.segs[i+1:], nil
}

// closeLast returns the segments with the last one as if it was cut at its end, so
// that the next append opens another.
func (l *Log) closeLast(segs []*segment) ([]*segment, error) {
	if len(segs) == 0 {
		return nil, nil
	}
	n := len(segs) - 1
	s := segs[n]
	end, size := s.bounds()
	short, err := l.shortened(s, spot{pos: size, base: end})
	return append(segs[:n:n], short), err
}

// shortened returns the segment cut before a batch. It shares the file.
func (l *Log) shortened(s *segment, at spot) (*segment, error) {
	c := &segment{file: s.file, base: s.base, cut: true, sealed: true, timed: true}
	c.setTail(at.base, at.pos)
	c.old.Store(min(s.old.Load(), c.tail.Load()))
	c.sound.Store(min(s.sound.Load(), c.tail.Load()))
	rel := int64(at.base - s.base)
	c.offs.tail.Store(s.indexBelow(offsetIndex, func(e entry) bool { return e.key < rel }))
	c.times.tail.Store(s.indexBelow(timeIndex, func(e entry) bool { return int64(e.val) < rel }))
	err := l.inGate(func() error {
		return l.walk(c, func(w walker) error {
			newest := stamp{batch.NoTimestamp, c.base}
			if e, ok := c.floor(timeIndex, func(entry) bool { return false }); ok {
				newest = stamp{e.key, c.base + batch.Offset(e.val)}
			}
			var err error
			c.newest, err = w.newest(newest.offset, at.base, newest)
			return err
		})
	})
	c.addTime(c.newest)
	return c, err
}

// inGate runs f inside the file gate.
func (l *Log) inGate(f func() error) error {
	l.d.reads.enter()
	defer l.d.reads.leave()
	return f()
}
