package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// A cleaned segment takes the place of the ones that it was made from so that a crash
// leaves the old ones or the new one. Its files are written and synced under names that
// end in .cleaned, of which a start removes what it finds. The rename of its .log to
// .log.swap, made durable, is the decision: from there on a start finishes what is below.
// The old segments leave the view and then their names, the last before the first; that
// is made durable; the new files get their names; that is made durable. A Range keeps
// reading the old file.

// stage says under which name the files of a cleaned segment are.
type stage int32

const (
	stageDone    stage = iota // its own
	stageCleaned              // not decided
	stageSwap                 // decided
)

func (s stage) suffix() string {
	switch s {
	case stageCleaned:
		return cleanedSuffix
	case stageSwap:
		return swapSuffix
	}
	return ""
}

// rewrite makes one segment of a group of them.
func (c *pass) rewrite(group []*segment) error {
	n := newSegment(newSegFile(c.l, group[0].base))
	n.file.stage.Store(int32(stageCleaned))
	err := c.write(n, group)
	if err == nil && len(group) == 1 && !c.thin.changed {
		return c.l.unmake(n) // it is what it was
	}
	if err == nil {
		return c.swap(n, group)
	}
	if e := c.l.unmake(n); e != nil && !errors.Is(err, errSuperseded) {
		return c.l.cleanFailed(errors.Join(err, e))
	}
	return c.l.cleanFailed(err)
}

// cleanFailed tells errors after which nothing has changed from those of a disk that
// cannot be trusted any more.
func (l *Log) cleanFailed(err error) error {
	bad := (*CorruptError)(nil)
	for _, e := range []error{errSuperseded, errUncleanable, ErrClosed, ErrFull, ErrOffline} {
		if errors.Is(err, e) {
			return err
		}
	}
	if errors.As(err, &bad) {
		return err
	}
	if e := passing(err); e != nil {
		return e
	}
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	if closed {
		return ErrClosed // its folder has another name, or is gone
	}
	return l.fail(err)
}

// unmake removes the files of a segment that is not to be.
func (l *Log) unmake(n *segment) error {
	var errs []error
	l.paths.RLock()
	for _, path := range n.paths() {
		errs = append(errs, removeIfThere(l.d.fs, path))
	}
	l.paths.RUnlock()
	n.file.unpin()
	return errors.Join(errs...)
}

// paths are the names of the segment's files, the log itself last.
func (s *segment) paths() []string {
	return []string{s.indexPath(offsetIndex), s.indexPath(timeIndex), s.file.path()}
}

// write writes what is left of a group into the files of a new segment, and syncs them.
func (c *pass) write(n *segment, group []*segment) error {
	c.thin.changed = false
	room := int64(0)
	for _, s := range group {
		room += s.size()
	}
	if total, _ := c.d.Space(); total > 0 && c.d.o.MinFreeBytes > 0 && c.d.free.Load() < uint64(c.d.o.MinFreeBytes+room) {
		return fmt.Errorf("%d bytes more than the reserve are needed: %w", room, ErrFull)
	}
	f, err := c.l.createFile(n.file.path)
	if err != nil {
		return err
	}
	w := cleanWriter{c: c, s: n, f: f, end: n.base}
	err = w.fill(group)
	if err == nil {
		err = c.l.inGate(f.Sync)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	n.setTail(w.end, w.pos)
	n.addTime(n.newest)
	n.sealed = true
	if last := group[len(group)-1].end(); w.end != last {
		panic(fmt.Sprintf("BUG: cleaning %s from %d to %d left a segment up to %d", c.l.p, n.base, last, w.end))
	}
	for _, k := range []indexKind{offsetIndex, timeIndex} {
		if err := c.l.writeWholeIndex(n, k); err != nil {
			return err
		}
	}
	return nil
}

// createFile makes a file in the log's folder, wherever that is now.
func (l *Log) createFile(path func() string) (vfs.File, error) {
	l.d.reads.enter()
	defer l.d.reads.leave()
	l.paths.RLock()
	defer l.paths.RUnlock()
	f, err := l.d.fs.Open(path(), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("create a cleaned segment: %w", err)
	}
	return f, nil
}

// writeWholeIndex writes and syncs an index of a segment that nobody reads yet.
func (l *Log) writeWholeIndex(s *segment, k indexKind) error {
	t := s.index(k).load()
	p := make([]byte, 0, t.count()*k.size())
	for _, e := range t.entries() {
		p = k.append(p, e)
	}
	f, err := l.createFile(func() string { return s.indexPath(k) })
	if err != nil {
		return err
	}
	err = l.inGate(func() error {
		err := writeEntries(f, p, 0)
		if err == nil {
			err = f.Sync()
		}
		return err
	})
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("write an index of a cleaned segment: %w", err)
	}
	s.index(k).filed(t.count())
	return nil
}

// cleanWriter writes batches to a new segment.
type cleanWriter struct {
	c     *pass
	s     *segment
	f     vfs.File
	pos   int64
	end   batch.Offset
	since int
}

// fill thins a group into the file.
func (w *cleanWriter) fill(group []*segment) error {
	t := w.c.thin
	t.out = t.out[:0]
	for _, s := range group {
		err := w.c.each(s, func(b batch.Batch) error {
			err := t.add(b)
			if err == nil && len(t.out) >= cleanWindow {
				err = w.flush()
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	t.settle()
	return w.flush()
}

// flush writes what the thinner has put out, and indexes it.
func (w *cleanWriter) flush() error {
	t := w.c.thin
	if len(t.out) == 0 {
		return nil
	}
	if err := w.c.spend(int64(len(t.out))); err != nil {
		return err
	}
	err := w.c.l.inGate(func() error {
		_, err := w.f.WriteAt(t.out, w.pos)
		return err
	})
	if err != nil {
		return fmt.Errorf("write a cleaned segment: %w", err)
	}
	for b, err := range batch.Run(t.out).Batches() {
		if err != nil || b.Base() != w.end {
			panic(fmt.Sprintf("BUG: cleaning %s put out a batch at %d where %d comes next: %v", w.c.l.p, b.Base(), w.end, err))
		}
		w.since = w.s.note(b, w.pos, int64(len(b)), w.since, w.c.d.o.IndexIntervalBytes)
		w.pos, w.end = w.pos+int64(len(b)), b.End()
	}
	w.c.d.cleaner.stats.written.Add(int64(len(t.out)))
	t.out = t.out[:0]
	return nil
}

// swap puts a cleaned segment in the place of a group, if the log was not cut since the
// cleaning began: a record that is gone may be why others were left out.
func (c *pass) swap(n *segment, group []*segment) error {
	l := c.l
	l.maint.take()
	defer l.giveMaint()
	l.mu.Lock()
	_, err := l.viewWith(n, group)
	if l.closed || l.d.offline.Load() != nil || c.p.state.cuts.Load() != c.p.cuts {
		err = errSuperseded
	}
	l.mu.Unlock()
	if err != nil {
		return errors.Join(err, l.unmake(n))
	}
	if err := l.restage(n, stageSwap); err != nil {
		if e := passing(err); e != nil {
			return errors.Join(e, l.unmakeSwap(n))
		}
		return l.fail(err)
	}
	if err := l.syncFolder(); err != nil {
		return err
	}
	l.mu.Lock()
	v, err := l.viewWith(n, group)
	if err != nil {
		l.mu.Unlock()
		panic(fmt.Sprintf("BUG: %s lost segments while its token was held: %v", l.p, err))
	}
	l.publish(v)
	l.mu.Unlock()
	for _, s := range slices.Backward(group) {
		if err := l.setAside(s); err != nil {
			return l.fail(err)
		}
	}
	if err := l.syncFolder(); err != nil {
		return err
	}
	return l.finishStage(n)
}

// finishStage gives a segment that has its place its name. A disk without room leaves it
// the one it has, under which a start finds it, too.
func (l *Log) finishStage(n *segment) error {
	if err := l.restage(n, stageDone); err != nil {
		if e := passing(err); e != nil {
			return e
		}
		return l.fail(err)
	}
	return l.syncFolder()
}

// finishStages does that for those that had to wait, before others take their names.
func (l *Log) finishStages(segs []*segment) error {
	for _, s := range segs {
		if stage(s.file.stage.Load()) != stageSwap {
			continue
		}
		l.maint.take()
		err := errSuperseded
		if l.view.Load().holds(s) {
			err = l.finishStage(s)
		}
		l.giveMaint()
		if err != nil {
			return err
		}
	}
	return nil
}

// unmakeSwap removes a segment some of whose files may have had their next names, but not
// the log itself, which comes last.
func (l *Log) unmakeSwap(n *segment) error {
	var errs []error
	for _, path := range n.paths()[:2] {
		errs = append(errs, removeIfThere(l.d.fs, strings.TrimSuffix(path, cleanedSuffix)+swapSuffix))
	}
	return errors.Join(append(errs, l.unmake(n))...)
}

// viewWith is the view with a segment in the place of a group; the caller has maint, so
// that nobody takes segments away.
func (l *Log) viewWith(n *segment, group []*segment) (*view, error) {
	v := l.view.Load()
	i := slices.Index(v.segs, group[0])
	if l.damage.Load() != nil || i < 0 || i+len(group) >= len(v.segs) || !slices.Equal(v.segs[i:i+len(group)], group) {
		return nil, errSuperseded
	}
	segs := append(slices.Clone(v.segs[:i]), n)
	return &view{segs: append(segs, v.segs[i+len(group):]...), empty: v.empty}, nil
}

// restage gives the files of a cleaned segment the names of their next stage, the log last.
func (l *Log) restage(n *segment, to stage) error {
	l.paths.Lock()
	defer l.paths.Unlock()
	from := stage(n.file.stage.Load())
	for i, path := range n.paths() {
		next := strings.TrimSuffix(path, from.suffix()) + to.suffix()
		err := l.d.fs.Rename(path, next)
		if i < 2 && to == stageDone && errors.Is(err, fs.ErrNotExist) {
			err = nil // it has its name from an earlier try, or a start makes it again
		}
		if err != nil {
			return fmt.Errorf("rename a cleaned segment: %w", err)
		}
	}
	n.file.stage.Store(int32(to))
	return nil
}

// finishSwaps ends what a crash left of a swap that was decided, and tells whether there
// was one. Other files of cleaned segments are left to be removed.
func (d *Dir) finishSwaps(dir string, entries []fs.DirEntry) (bool, error) {
	any := false
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), swapSuffix)
		base, isLog := parseFileName(name, logSuffix)
		if !ok || !isLog {
			continue
		}
		any = true
		if err := d.finishSwap(dir, base, entries); err != nil {
			return any, fmt.Errorf("finish the swap of %s: %w", filepath.Join(dir, name), err)
		}
	}
	return any, nil
}

// finishSwap removes the segments that a cleaned one replaces, and gives it its name.
func (d *Dir) finishSwap(dir string, base batch.Offset, entries []fs.DirEntry) error {
	path := filepath.Join(dir, fileName(base, logSuffix))
	end, err := d.endOf(path+swapSuffix, base)
	if err != nil {
		return err
	}
	if end == base {
		d.o.Logger.Error("a cleaned segment holds no batch and is dropped", "file", path+swapSuffix)
		return d.fs.Remove(path + swapSuffix)
	}
	d.o.Logger.Info("a cleaned segment takes the place of those it was made from", "file", path, "end", int64(end))
	for _, e := range slices.Backward(entries) {
		for _, suffix := range []string{indexSuffix, timeSuffix, logSuffix} {
			if o, ok := parseFileName(e.Name(), suffix); ok && o >= base && o < end {
				if err := removeIfThere(d.fs, filepath.Join(dir, e.Name())); err != nil {
					return err
				}
			}
		}
	}
	if err := d.fs.SyncDir(dir); err != nil {
		return err
	}
	for _, suffix := range []string{indexSuffix, timeSuffix, logSuffix} {
		name := filepath.Join(dir, fileName(base, suffix))
		if err := d.fs.Rename(name+swapSuffix, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return d.fs.SyncDir(dir)
}

// endOf walks the headers of a segment file to where its batches end.
func (d *Dir) endOf(path string, base batch.Offset) (batch.Offset, error) {
	f, err := d.fs.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	sc := newScanner(f, 0, size, make([]byte, readWindow))
	for end := base; ; {
		h, n, err := sc.head()
		if misled(err) && err != nil || err == nil && h.Base() < end {
			return end, nil
		}
		if err != nil {
			return 0, err
		}
		end = h.End()
		sc.skip(n)
	}
}
