package storage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// Opening a log. Below the recovery point everything was flushed: it is trusted
// as it is, and if some of it is missing the replica is damaged, and nothing is
// cut. From the recovery point on every batch is read and checked, and the log is
// cut at the first that is not whole, not the next one, or older than the one
// before. After an orderly stop the recovery point is the end, and nothing is read.

// marks are what the checkpoint files say of a log.
type marks struct {
	recovery, hw, start, cleaned batch.Offset
	hasStart                     bool
}

// openLog opens the log in a folder and recovers it.
func openLog(d *Dir, p partition, m marks) (*Log, error) {
	path := filepath.Join(d.path, p.String())
	f, err := d.explore(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	l := newLog(d, p, f.id, path)
	r := recovery{l: l, found: f, marks: m, buf: make([]byte, scanWindow)}
	if err := r.run(); err != nil {
		for _, s := range r.segs {
			d.readers.drop(&s.file.r)
		}
		return nil, fmt.Errorf("recover %s: %w", path, err)
	}
	l.recorded.Store(int64(m.recovery))
	l.startRecorded.Store(int64(m.start))
	l.hwRecorded.Store(int64(m.hw))
	if l.noteCleaned(m.cleaned); m.cleaned > 0 {
		l.cleaning.Load().to.Store(int64(min(m.cleaned, l.End())))
	}
	l.hw.Store(int64(min(max(m.hw, l.Start()), l.End())))
	return l, nil
}

// recovery is one log being opened.
type recovery struct {
	l     *Log
	found found
	marks marks
	buf   []byte

	segs   []*segment // as they will be in the view
	end    batch.Offset
	epochs epochs // of the batches up to end, if the epoch file was there
	filed  epochs // those of flushed batches that the epoch file knows
	since  int
	synced bool // a segment was synced, and its name must be
	damage *CorruptError
}

func (r *recovery) run() error {
	r.epochs = r.found.epochs.cutEnd(r.marks.recovery)
	r.filed = r.epochs
	if err := r.settleStart(); err != nil {
		return err
	}
	if r.damage == nil {
		if err := r.trust(); err != nil {
			return err
		}
	}
	if r.damage == nil {
		if err := r.scan(); err != nil {
			return err
		}
	}
	return r.install()
}

// settleStart finds the log's start, and drops segments that lie below it or
// that a reset was about to drop. One that is still needed to tell which producers
// wrote what goes with a later trim.
func (r *recovery) settleStart() error {
	m, segs := &r.marks, r.found.segs
	if len(segs) > 0 && !m.hasStart && r.found.beginsAt(segs[0].base) {
		m.start = segs[0].base
	}
	r.l.start.Store(int64(m.start))
	r.end = m.start
	switch {
	case len(segs) == 0:
		return nil
	case segs[0].base > m.start && m.recovery > m.start:
		r.hurt(fileName(m.start, logSuffix), 0, m.start, "the log's first segment is missing")
		return nil
	case segs[0].base > m.start:
		return r.drop(0)
	}
	for len(segs) > 1 && segs[1].base <= m.start && covered(r.found.snaps, segs[1].base, m.recovery) {
		if err := r.l.removeSegment(segs[0].base); err != nil {
			return err
		}
		segs = segs[1:]
	}
	r.found.segs, r.end = segs, segs[0].base
	return nil
}

// lost tells whether the log, as found so far, ends before what was flushed. What
// lies below the start is no loss.
func (r *recovery) lost() bool {
	return r.end < r.marks.recovery && r.marks.recovery > r.marks.start
}

// hurt notes damage below the recovery point.
func (r *recovery) hurt(name string, pos int64, o batch.Offset, msg string) {
	if r.damage == nil {
		r.damage = &CorruptError{Path: r.l.filePath(name), Pos: pos, Offset: o, Msg: msg}
	}
}

// trust takes over the segments that lie wholly below the recovery point. Where
// one ends is where the next begins, and its last batches are looked at to see that
// it does. One that ends at the recovery point may have
// been cut there, and its indexes not yet, so it is looked at.
func (r *recovery) trust() error {
	segs := r.found.segs
	for i := 0; i+1 < len(segs) && segs[i+1].base < r.marks.recovery; i++ {
		next := segs[i+1].base
		if segs[i].size == 0 || next-segs[i].base > maxRelative+1 {
			r.hurt(fileName(segs[i].base, logSuffix), 0, segs[i].base, "a closed segment is empty")
			return nil
		}
		s, err := r.closedSegment(segs[i], next)
		if err != nil {
			return err
		}
		if r.segs, r.end = append(r.segs, s), s.end(); r.damage != nil {
			return nil
		}
	}
	return nil
}

// scan reads what lies above the recovery point.
func (r *recovery) scan() error {
	segs := r.found.segs
	for i := len(r.segs); i < len(segs); i++ {
		if i > 0 && segs[i].base != r.end {
			return r.gap(i)
		}
		s := newSegment(newSegFile(r.l, segs[i].base))
		s.setTail(s.base, 0)
		r.segs = append(r.segs, s)
		whole, err := r.scanSegment(s, segs[i].size)
		if err != nil {
			return err
		}
		if !whole || r.damage != nil {
			return r.rest(i + 1)
		}
		if i+1 < len(segs) && segs[i+1].base == r.end {
			s.addTime(s.newest)
			s.sealed = true
		}
	}
	if r.lost() {
		r.hurt("", 0, r.end, fmt.Sprintf("the log ends at %d and was flushed to %d", r.end, r.marks.recovery))
	}
	return nil
}

// gap ends the log before segment i, which does not begin where the log ends.
func (r *recovery) gap(i int) error {
	if r.lost() {
		r.hurt(fileName(r.end, logSuffix), 0, r.end, "a segment is missing")
	}
	return r.rest(i)
}

// rest deals with the segments from i on, which come after the log's end: they
// are dropped, or kept beside a damaged log.
func (r *recovery) rest(i int) error {
	if r.damage == nil && r.lost() {
		r.hurt("", 0, r.end, fmt.Sprintf("the log ends at %d and was flushed to %d", r.end, r.marks.recovery))
	}
	if r.damage == nil {
		return r.drop(i)
	}
	return nil
}

// drop removes the segments from i on.
func (r *recovery) drop(i int) error {
	segs := r.found.segs
	for n := len(segs) - 1; n >= i; n-- {
		r.l.d.o.Logger.Warn("segment past the end of the log is dropped", "partition", r.l.p.String(), "segment", int64(segs[n].base), "bytes", segs[n].size, "end", int64(r.end))
		if err := r.l.removeSegment(segs[n].base); err != nil {
			return err
		}
	}
	r.found.segs = segs[:i]
	return r.l.d.fs.SyncDir(r.l.Dir())
}

// scanSegment walks a segment: without the bytes up to the recovery point, with
// them after it. It returns false when the segment was cut.
func (r *recovery) scanSegment(s *segment, size int64) (bool, error) {
	f, err := r.l.d.fs.Open(s.file.path(), os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	bad, err := r.walk(s, f, size)
	if err == nil && bad != nil {
		err = r.cut(s, f, size, bad)
	}
	if err == nil && r.end > r.marks.recovery {
		r.synced = true
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return bad == nil, err
}

// walk finds the segment's end: the end of its last good batch. It returns what
// is wrong with the bytes after that, if there are any.
func (r *recovery) walk(s *segment, f vfs.File, size int64) (*badBatch, error) {
	pos, err := r.restoreIndexes(s, f, size)
	if err != nil {
		return nil, err
	}
	sc := newScanner(f, pos, size, r.buf)
	first := pos > 0
	for {
		h, n, err := sc.head()
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err == nil && !first {
			err = r.follows(h, sc.pos)
		}
		if err == nil {
			err = r.verify(&sc, h, n)
		}
		if bad := (*badBatch)(nil); errors.As(err, &bad) {
			return bad, nil
		}
		if err != nil {
			return nil, err
		}
		// The CRC may have moved the window from under the header.
		if h, n, err = sc.head(); err != nil {
			return nil, err
		}
		r.note(s, h, sc.pos, n, first)
		first = false
		sc.skip(n)
	}
}

// follows judges the offset of a batch. That of the first in a walk is the one that
// the index names.
func (r *recovery) follows(h batch.Batch, pos int64) error {
	if h.Base() != r.end {
		return &badBatch{pos, fmt.Sprintf("the batch begins at offset %d, not %d", h.Base(), r.end)}
	}
	return nil
}

// verify judges a batch: one above the recovery point must be whole, and so must the one
// that ends there, which might only say so; one below it need only be of the epoch that the
// epoch file knows.
func (r *recovery) verify(sc *scanner, h batch.Batch, n int64) error {
	base, last := h.Base(), h.Last()
	s := r.segs[len(r.segs)-1]
	flushed, known := h.End() <= r.marks.recovery, r.filed.at(base)
	switch {
	case base < r.end:
		return &badBatch{sc.pos, fmt.Sprintf("the batch begins at offset %d, not %d", base, r.end)}
	case last-s.base > maxRelative:
		return &badBatch{sc.pos, fmt.Sprintf("offset %d is too far from %d", last, s.base)}
	case flushed && known != batch.NoEpoch && h.Epoch() != known:
		return &badBatch{sc.pos, fmt.Sprintf("epoch %d where the log had %d", h.Epoch(), known)}
	case h.End() < r.marks.recovery:
		return nil
	case h.Epoch() < r.epochs.last() || h.Epoch() < 0:
		return &badBatch{sc.pos, fmt.Sprintf("epoch %d comes after %d", h.Epoch(), r.epochs.last())}
	}
	return sc.checkCRC(h.CRC(), n)
}

// note takes over a batch; the first after an index entry is in the index.
func (r *recovery) note(s *segment, h batch.Batch, pos, size int64, indexed bool) {
	if indexed {
		s.newest = stampMax(s.newest, h)
		r.since = int(size)
	} else {
		r.since = s.note(h, pos, size, r.since, r.l.d.o.IndexIntervalBytes)
	}
	r.epochs = r.epochs.add(h.Epoch(), h.Base())
	r.end = h.End()
	s.setTail(r.end, pos+size)
}

func stampMax(t stamp, h batch.Batch) stamp {
	if h.NewestTimestamp() > t.time {
		return stamp{h.NewestTimestamp(), h.Last()}
	}
	return t
}

// cut ends a segment at its last good batch, on the disk too, unless what is bad
// was flushed.
func (r *recovery) cut(s *segment, f vfs.File, size int64, bad *badBatch) error {
	if r.lost() {
		if err := r.hurtEnd(s, f, spot{base: s.base}, bad); err != nil {
			return err
		}
		r.end = s.end()
		return nil
	}
	r.l.d.o.Logger.Warn("log is cut at the first bad batch after the recovery point", "file", s.file.path(), "position", bad.pos,
		"bytes", size-bad.pos, "end", int64(r.end), "reason", bad.msg)
	if err := f.Truncate(bad.pos); err != nil {
		return err
	}
	return f.Sync()
}

// install makes what was recovered the log's state.
func (r *recovery) install() error {
	l := r.l
	if r.end < l.Start() { // nothing is left above the start
		if err := r.vanish(); err != nil {
			return err
		}
	}
	if r.damage != nil {
		l.markDamaged(r.damage)
		for _, f := range r.found.segs[len(r.segs):] {
			l.beyond = append(l.beyond, f.base)
		}
	}
	if r.synced {
		if err := l.d.fs.SyncDir(l.Dir()); err != nil {
			return err
		}
	}
	l.since = r.since
	l.publish(&view{segs: r.segs, empty: r.end})
	for _, s := range r.segs {
		s.doubt()
	}
	l.flushed.Store(int64(r.end))
	l.recovery.Store(int64(r.marks.recovery))
	for _, s := range r.segs {
		if s.sealed && s.timed {
			l.dirty = append(l.dirty, dirtySegment{segment: s})
		}
	}
	if err := r.restoreEpochs(); err != nil {
		return err
	}
	if err := r.restoreProducers(); err != nil {
		return err
	}
	if len(l.dirty) > 0 || l.epochsOld || r.end > r.marks.recovery {
		l.enqueue()
	}
	return nil
}

// vanish drops all segments: the log lost what lay above its start, or is
// damaged and shows none of them.
func (r *recovery) vanish() error {
	for _, s := range r.segs {
		s.file.unpin()
	}
	r.segs, r.end, r.epochs, r.since = nil, r.l.Start(), nil, 0
	if r.damage == nil {
		return r.drop(0)
	}
	return nil
}

// restoreEpochs takes the leader epochs from the file up to the recovery point
// and from the batches after it, or from all batches when the file lacks some. A log
// without a batch knows the epoch of the last one that it had, if that was flushed.
func (r *recovery) restoreEpochs() error {
	l := r.l
	es := r.epochs
	if r.lacksEpochs() {
		es = nil
		for _, s := range r.segs {
			err := l.walk(s, func(w walker) error {
				return w.heads(max(s.base, l.Start()), r.end, func(h batch.Batch, _, _ int64) { es = es.add(h.Epoch(), h.Base()) })
			})
			if err != nil && l.damage.Load() == nil {
				return err
			}
		}
	}
	es = es.cutEnd(r.end).cutStart(l.Start())
	if len(es) == 0 && r.end == l.Start() && r.marks.recovery >= r.end && r.damage == nil {
		es = r.found.epochs.passed(r.end)
	}
	l.setEpochs(es)
	l.epochsOld = !slices.Equal(l.epochs, r.found.epochs)
	return nil
}

// lacksEpochs tells whether epochs of flushed batches are not in the file: there is
// none, or it was written for a log start that was not written down itself.
func (r *recovery) lacksEpochs() bool {
	start := r.l.Start()
	return r.marks.recovery > start && (!r.found.known || len(r.epochs) == 0 || r.epochs[0].start > start)
}

// restoreProducers takes the state of the producers from the newest snapshot
// that was flushed, and from the batches after it.
func (r *recovery) restoreProducers() error {
	l := r.l
	l.snaps.filed = r.found.snaps
	slices.Sort(l.snaps.filed)
	first, limit := batch.Offset(0), min(r.marks.recovery, r.end)
	if len(r.segs) > 0 {
		first = r.segs[0].base
	}
	if err := l.removeSnapshots(l.snaps.drop(func(o batch.Offset) bool { return o < first || o > limit })); err != nil {
		return err
	}
	if len(l.snaps.filed) == 0 || l.snaps.last != r.end {
		l.snaps.since = l.Size()
	}
	ps, err := l.rebuildProducers(r.end)
	if err != nil && l.damage.Load() == nil {
		return err
	}
	l.producers = ps
	return nil
}
