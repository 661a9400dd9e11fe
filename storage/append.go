package storage

import (
	"fmt"
	"os"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// Appended says where an append put the batch.
type Appended struct {
	// First and Last are the offsets of its first and last record.
	First, Last batch.Offset
	// Duplicate: the batch was appended before, and this is where.
	Duplicate bool
	// AppendTime is the time in ms that the leader stamped on the records, -1
	// when they carry their producer's time.
	AppendTime int64
}

// AppendLeader appends one batch that batch.Validate accepted, as the leader of
// epoch e. It gives the batch the next offsets and the epoch, in place; the
// slice is the caller's again when it returns. A batch that an idempotent
// producer sends again is not appended.
func (l *Log) AppendLeader(b batch.Batch, e batch.Epoch) (Appended, error) {
	l.d.writes.enter()
	defer l.d.writes.leave()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.appendable(); err != nil {
		return Appended{}, l.wrap("append to", err)
	}
	if e < l.LastEpoch() {
		return Appended{}, l.wrap("append to", fmt.Errorf("leader epoch %d is below %d: %w", e, l.LastEpoch(), ErrEpoch))
	}
	if b.HasProducer() && !b.Control() {
		original, duplicate, err := l.producers.check(sequenceOf(b))
		if err != nil {
			return Appended{}, l.wrap("append to", err)
		}
		if duplicate {
			return Appended{original.firstOffset(), original.lastOffset, true, appendTime(b, original.timestamp)}, nil
		}
	}
	base := l.End()
	b.Assign(base, e)
	if err := l.write(b, base, b.Last()); err != nil {
		return Appended{}, l.wrap("append to", err)
	}
	l.noteRun(batch.Run(b))
	return Appended{First: base, Last: b.Last(), AppendTime: appendTime(b, b.MaxTimestamp())}, nil
}

func appendTime(b batch.Batch, time int64) int64 {
	if b.LogAppendTime() {
		return time
	}
	return batch.NoTimestamp
}

// AppendReplica appends batches as the leader of epoch attempt sent them: the
// first begins where the log ends, each further one where the one before ends,
// and their epochs neither fall nor exceed the attempt's. Of a filler (batch.Filler)
// that begins before the end only the rest is appended; it is cut in place. Checksums are
// verified here, before the lock. When it returns an error some batches of a run that
// spans segments may have been appended; End tells.
func (l *Log) AppendReplica(run batch.Run, attempt batch.Epoch) error {
	if err := checkRun(run, attempt); err != nil {
		return l.wrap("replicate to", err)
	}
	l.d.writes.enter()
	defer l.d.writes.leave()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.appendable(); err != nil {
		return l.wrap("replicate to", err)
	}
	first, _, _ := batch.Next(run)
	if end := l.End(); first.Filler() && first.Base() < end && end < first.End() {
		first.TrimFront(end) // it took the place of batches some of which are here
	}
	if base, end := first.Base(), l.End(); base != end {
		return l.wrap("replicate to", fmt.Errorf("batch at %d, log end %d: %w", base, end, ErrGap))
	}
	if e := first.Epoch(); e < l.LastEpoch() {
		return l.wrap("replicate to", fmt.Errorf("batch of epoch %d after %d: %w", e, l.LastEpoch(), ErrEpoch))
	}
	for len(run) > 0 {
		part, last := l.part(run)
		if err := l.write(part, l.End(), last); err != nil {
			return l.wrap("replicate to", err)
		}
		l.noteRun(part)
		run = run[len(part):]
	}
	return nil
}

// checkRun checks what can be checked of a run without the log.
func checkRun(run batch.Run, attempt batch.Epoch) error {
	if len(run) == 0 {
		return fmt.Errorf("empty run: %w", batch.ErrShort)
	}
	var before batch.Batch
	for b, err := range run.Batches() {
		if err != nil {
			return err
		}
		if err := b.CheckCRC(); err != nil {
			return err
		}
		if e := b.Epoch(); e > attempt || e < 0 || before != nil && e < before.Epoch() {
			return fmt.Errorf("batch at %d of epoch %d in an attempt of %d: %w", b.Base(), e, attempt, ErrEpoch)
		}
		if before != nil && b.Base() != before.End() {
			return fmt.Errorf("batch at %d follows one that ends at %d: %w", b.Base(), before.End(), ErrGap)
		}
		before = b
	}
	return nil
}

// part returns as many batches of a checked run as one segment takes, and the
// last offset among them; mu is held.
func (l *Log) part(run batch.Run) (batch.Run, batch.Offset) {
	first, _, _ := batch.Next(run)
	base, used := first.Base(), int64(0)
	if s := l.view.Load().last(); s != nil && !s.cut && s.fits(len(first), first.Last(), l.limit()) && !l.outdated(s, first.MaxTimestamp()) {
		base, used = s.base, s.size()
	}
	n, last := 0, first.Last()
	for rest := []byte(run); len(rest) > 0; {
		b, after, err := batch.Next(rest)
		if err != nil {
			panic(fmt.Sprintf("BUG: a checked run does not parse: %v", err))
		}
		rest = after
		if n > 0 && (used+int64(n+len(b)) > l.limit() || b.Last()-base > maxRelative) {
			break
		}
		n, last = n+len(b), b.Last()
	}
	return run[:n:n], last
}

// appendable tells why nothing can be appended now; mu is held.
func (l *Log) appendable() error {
	switch {
	case l.d.offline.Load() != nil:
		return l.d.Offline()
	case l.closed:
		return ErrClosed
	case l.busy:
		return ErrBusy
	case l.damage.Load() != nil:
		return l.Damaged()
	case l.d.low.Load():
		return fmt.Errorf("less than %d bytes are free: %w", l.d.o.MinFreeBytes, ErrFull)
	}
	return nil
}

// write appends bytes that hold the offsets from base to last with one write,
// and publishes nothing; mu is held.
func (l *Log) write(p []byte, base, last batch.Offset) error {
	s, err := l.writable(batch.Batch(p).MaxTimestamp(), len(p), base, last)
	if err != nil {
		return err
	}
	size := s.size()
	n, err := l.w.WriteAt(p, size)
	if err == nil && n == len(p) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("%d of %d bytes written", n, len(p))
	}
	return l.writeFailed(s, size, err)
}

// writeFailed makes the log what it was before a write. With a full disk it can
// go on from there; after any other error nothing is sure any more.
func (l *Log) writeFailed(s *segment, size int64, err error) error {
	if isFull(err) {
		cutErr := l.w.Truncate(size)
		if cutErr == nil {
			return fmt.Errorf("%w: %w", ErrFull, err)
		}
		err = fmt.Errorf("cut after a failed write: %w", cutErr)
	}
	return l.d.fail(fmt.Errorf("write %s: %w", s.file.path(), err))
}

// writable returns the segment that the next n bytes go to, the first of which
// are a batch of the given time, with w open; mu is held.
func (l *Log) writable(time int64, n int, base, last batch.Offset) (*segment, error) {
	s := l.view.Load().last()
	if s == nil || s.cut || !s.fits(n, last, l.limit()) || l.outdated(s, time) {
		return l.roll(base)
	}
	if l.w != nil {
		return s, nil
	}
	f, err := l.d.writers.acquire(&s.file.w, (*appending)(s.file))
	if err != nil {
		return nil, l.openFailed(err)
	}
	l.w = f
	l.markDirty(s, f)
	return s, nil
}

// openFailed tells an error that passes from one that does not.
func (l *Log) openFailed(err error) error {
	if e := passing(err); e != nil {
		l.d.wakeFlush() // which lets descriptors go
		return e
	}
	return l.fail(err)
}

// dirtySegment is a segment that the next flush must look at. Its descriptor is
// held as long as it is listed; f is nil when only index entries are missing.
type dirtySegment struct {
	*segment
	f vfs.File
}

// markDirty lists a segment to be flushed, with its descriptor, which the caller
// holds and the list now does; mu is held.
func (l *Log) markDirty(s *segment, f vfs.File) {
	l.dirty = append(l.dirty, dirtySegment{s, f})
	l.enqueue()
}

// enqueue puts the log on the dir's list to be flushed; mu is held.
func (l *Log) enqueue() {
	if !l.queued {
		l.queued = true
		l.d.enqueue(l)
	}
}

// roll closes the last segment and opens one that begins at base; mu is held.
// The file is created first, so that a full disk changes nothing.
func (l *Log) roll(base batch.Offset) (*segment, error) {
	s, f, err := l.createSegment(base)
	if err != nil {
		return nil, l.openFailed(err)
	}
	v := l.view.Load()
	if old := v.last(); old != nil {
		l.seal(old)
	}
	l.snaps.want(base, &l.producers)
	l.w, l.since, l.dirChanged = f, 0, true
	l.markDirty(s, f)
	l.publish(&view{segs: append(v.segs[:len(v.segs):len(v.segs)], s)})
	return s, nil
}

// createSegment creates the file of a segment and holds its descriptor.
func (l *Log) createSegment(base batch.Offset) (*segment, vfs.File, error) {
	name := l.filePath(fileName(base, logSuffix))
	f, err := l.d.fs.Open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("create segment: %w", err)
	}
	s := newSegment(newSegFile(l, base))
	s.setTail(base, 0)
	l.d.writers.acquireNew(&s.file.w, f)
	return s, f, nil
}

// seal ends a segment: its time index gets the greatest timestamp as its last
// entry, and the next flush writes its index files whole; mu is held.
func (l *Log) seal(s *segment) {
	if s.sealed {
		return
	}
	if t, ok := s.knownNewest(); ok {
		s.addTime(t)
	}
	s.sealed = true
	if l.w == nil {
		l.dirty = append(l.dirty, dirtySegment{segment: s})
	}
}

// noteRun makes batches that were just written part of the log; mu is held.
// Readers see the new end last.
func (l *Log) noteRun(run batch.Run) {
	s := l.view.Load().last()
	end, pos := s.bounds()
	for rest := []byte(run); len(rest) > 0; {
		b, after, err := batch.Next(rest)
		if err != nil {
			panic(fmt.Sprintf("BUG: a checked run does not parse: %v", err))
		}
		rest = after
		l.since = s.note(b, pos, int64(len(b)), l.since, l.d.o.IndexIntervalBytes)
		l.noteEpoch(b.Epoch(), b.Base())
		if b.HasProducer() {
			l.producers.noteBatch(b, l.d.o.Steady().Milliseconds())
		}
		pos, end = pos+int64(len(b)), b.End()
	}
	s.setTail(end, pos)
	l.noteUnsynced(int64(len(run)))
	l.snaps.since += int64(len(run))
	l.size.Add(int64(len(run)))
	l.end.Store(int64(end))
	l.commitSoon()
}

func (l *Log) noteEpoch(e batch.Epoch, base batch.Offset) {
	if e > l.epochs.last() {
		l.setEpochs(l.epochs.add(e, base))
	}
}
