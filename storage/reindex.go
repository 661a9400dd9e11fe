package storage

import (
	"errors"
	"io/fs"
	"os"
	"sort"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// closedSegment is a segment whose index files are taken as they are, if they lead to
// its end. When they do not, or one is missing, both are made again.
func (r *recovery) closedSegment(f foundSegment, end batch.Offset) (*segment, error) {
	s := newSegment(newSegFile(r.l, f.base))
	s.setTail(end, f.size)
	s.sealed, s.timed = true, false
	for _, k := range []indexKind{offsetIndex, timeIndex} {
		info, err := r.l.d.fs.Stat(s.indexPath(k))
		if errors.Is(err, fs.ErrNotExist) {
			return s, r.reindex(s)
		}
		if err != nil {
			return nil, err
		}
		s.index(k).tail.Store(tailAfter(int(info.Size())/k.size(), -1, nil))
	}
	led, err := r.ledToEnd(s)
	if err == nil && !led {
		err = r.reindex(s)
	}
	return s, err
}

// ledToEnd walks the headers from the last batch that the offset index names to the
// segment's end, and tells whether the index named one. Where the segment lacks its
// end, the log does from there on.
func (r *recovery) ledToEnd(s *segment) (bool, error) {
	f, err := r.l.d.fs.Open(s.file.path(), os.O_RDONLY, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	pos, next := int64(0), s.base
	if e, ok := s.floor(offsetIndex, func(e entry) bool { return int64(e.val) >= s.size() }); ok {
		sc := newScanner(f, int64(e.val), s.size(), r.buf[:readWindow])
		h, _, err := sc.head()
		if err != nil || int64(h.Last()-s.base) != e.key {
			if misled(err) {
				err = nil
			}
			return false, err
		}
		pos, next = int64(e.val), h.Base()
	}
	w := walker{l: r.l, s: s, f: f, buf: r.buf[:readWindow]}
	p := w.proveAt(pos, next)
	p.epochs = r.filed
	bad, err := p.skim(func(batch.Batch, int64, int64) {})
	if bad != nil {
		s.setTail(p.next, bad.pos)
		err = r.hurtEnd(s, f, spot{pos: pos, base: next}, bad)
	}
	return true, err
}

// hurtEnd ends a segment, and the log, before damage: at the segment's end as it was
// found by headers alone, where something is wrong, or at an earlier batch, from one
// at a known place on, that is not whole. Lengths lead astray when they are.
func (r *recovery) hurtEnd(s *segment, f vfs.File, from spot, bad *badBatch) error {
	w := walker{l: r.l, s: s, f: f, buf: r.buf[:readWindow]}
	p := w.proveAt(from.pos, from.base)
	p.epochs, p.sound, p.old = r.filed, 0, p.sc.size
	_, err := p.upTo(s.end())
	if err != nil {
		return err
	}
	s.setTail(p.next, p.sc.pos)
	r.hurt(s.file.name(), p.sc.pos, p.next, bad.msg)
	return nil
}

// reindex makes the indexes of a closed segment from its headers.
func (r *recovery) reindex(s *segment) error {
	r.l.d.o.Logger.Info("index is made again", "file", s.file.path())
	for _, k := range []indexKind{offsetIndex, timeIndex} {
		if err := removeIfThere(r.l.d.fs, s.indexPath(k)); err != nil {
			return err
		}
		s.index(k).tail.Store(tailAfter(0, -1, nil))
	}
	s.timed = true
	since := 0
	err := r.l.walk(s, func(w walker) error {
		p := w.proveAt(0, s.base)
		p.epochs = r.filed
		bad, err := p.skim(func(h batch.Batch, pos, size int64) {
			since = s.note(h, pos, size, since, r.l.d.o.IndexIntervalBytes)
		})
		if bad != nil {
			s.setTail(p.next, bad.pos)
			err = r.hurtEnd(s, w.f, spot{base: s.base}, bad)
		}
		return err
	})
	s.addTime(s.newest)
	return err
}

// restoreIndexes takes over the entries of a segment's index files that speak of
// offsets below the recovery point, cuts the files after them, and returns the
// position of the last batch they name: the walk begins there.
//
// After a crash each file may lack its end, on its own. The last time entry says
// what the greatest timestamp was up to one batch, so only offset entries up to
// that batch are kept, and the walk finds the greatest timestamp of the rest.
func (r *recovery) restoreIndexes(s *segment, f vfs.File, size int64) (int64, error) {
	rel := int64(r.marks.recovery - s.base)
	offs, err := r.readIndex(s, offsetIndex, func(e entry) bool { return e.key < rel && int64(e.val) < size })
	if err != nil {
		return 0, err
	}
	for len(offs) > 0 && !r.names(s, f, size, offs[len(offs)-1]) {
		offs = offs[:len(offs)/2] // whatever was written there, it is not an index of this file
	}
	times, err := r.readIndex(s, timeIndex, func(e entry) bool { return int64(e.val) < rel })
	if err != nil {
		return 0, err
	}
	for len(times) > 0 && !r.namesTime(s, f, size, offs, times[len(times)-1]) {
		times = times[:len(times)/2]
	}
	if _, clean := r.l.d.PreviousStop(); !clean || len(times) == 0 {
		offs = offs[:upTo(offs, lastVal(times))]
	}
	if err := r.keepIndex(s, offsetIndex, offs); err != nil {
		return 0, err
	}
	if err := r.keepIndex(s, timeIndex, times); err != nil {
		return 0, err
	}
	if n := len(times); n > 0 {
		s.newest = stamp{times[n-1].key, s.base + batch.Offset(times[n-1].val)}
	}
	r.since = 0
	return int64(lastVal(offs)), nil
}

// upTo is how many offset index entries speak of offsets up to rel.
func upTo(offs []entry, rel uint32) int {
	return sort.Search(len(offs), func(i int) bool { return offs[i].key > int64(rel) })
}

// lastVal is the value of the last entry, 0 when there is none.
func lastVal(entries []entry) uint32 {
	if n := len(entries); n > 0 {
		return entries[n-1].val
	}
	return 0
}

// readIndex reads an index file as far as ok holds; a missing one has no entries.
func (r *recovery) readIndex(s *segment, k indexKind, ok func(entry) bool) ([]entry, error) {
	f, err := r.l.d.fs.Open(s.indexPath(k), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	return k.readAll(f, size, ok)
}

// keepIndex makes the entries the index of a segment, and cuts the file after them.
func (r *recovery) keepIndex(s *segment, k indexKind, entries []entry) error {
	last := int64(-1)
	if n := len(entries); n > 0 {
		last = entries[n-1].key
	}
	s.index(k).tail.Store(tailAfter(len(entries), last, nil))
	info, err := r.l.d.fs.Stat(s.indexPath(k))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if kept := int64(len(entries) * k.size()); kept < info.Size() {
		return truncateIfThere(r.l.d.fs, s.indexPath(k), kept)
	}
	return nil
}

// names tells whether an offset index entry points at the batch it means.
func (r *recovery) names(s *segment, f vfs.File, size int64, e entry) bool {
	sc := newScanner(f, int64(e.val), size, r.buf)
	h, _, err := sc.head()
	return err == nil && int64(h.Last()-s.base) == e.key
}

// namesTime tells whether a time index entry names a batch that has its timestamp.
func (r *recovery) namesTime(s *segment, f vfs.File, size int64, offs []entry, e entry) bool {
	sc := newScanner(f, int64(lastVal(offs[:upTo(offs, e.val)])), size, r.buf)
	for {
		h, n, err := sc.head()
		if err != nil {
			return false
		}
		if last := int64(h.Last() - s.base); last >= int64(e.val) {
			return last == int64(e.val) && h.MaxTimestamp() == e.key
		}
		sc.skip(n)
	}
}
