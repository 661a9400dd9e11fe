package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// cutFiles does on the disk what a cut has done in memory, and makes it durable:
// segments are dropped, the last before the first, and the one that is left is
// shortened.
func (l *Log) cutFiles(last *segment, dropped []*segment, snaps []batch.Offset) error {
	for i := len(l.beyond) - 1; i >= 0; i-- {
		if err := l.removeSegment(l.beyond[i]); err != nil {
			return err
		}
	}
	l.beyond = nil
	for i := len(dropped) - 1; i >= 0; i-- {
		if err := l.setAside(dropped[i]); err != nil {
			return err
		}
	}
	if last != nil && last.cut {
		if err := l.shortenFile(last); err != nil {
			return err
		}
	}
	if err := l.removeSnapshots(snaps); err != nil {
		return err
	}
	return l.syncFolder()
}

// setAside renames the file of a segment that the view no longer has, so that
// its name is free, and gives up the view's claim. Ranges go on reading it.
func (l *Log) setAside(s *segment) error {
	for _, k := range []indexKind{offsetIndex, timeIndex} {
		if err := removeIfThere(l.d.fs, s.indexPath(k)); err != nil {
			return err
		}
	}
	n := l.asideCount.Add(1)
	old := s.file.path()
	l.paths.Lock()
	s.file.aside.Store(n)
	err := l.d.fs.Rename(old, s.file.path())
	l.paths.Unlock()
	if isFull(err) {
		err = l.d.fs.Remove(old) // needs no room; only readers without a descriptor notice
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // gone is as good
		return fmt.Errorf("set segment aside: %w", err)
	}
	s.file.unpin()
	return nil
}

// removeSegment removes the files of a segment that is in no view.
func (l *Log) removeSegment(base batch.Offset) error {
	for _, suffix := range []string{indexSuffix, timeSuffix, logSuffix} {
		if err := removeIfThere(l.d.fs, l.filePath(fileName(base, suffix))); err != nil {
			return err
		}
	}
	return nil
}

func removeIfThere(fsys vfs.FS, name string) error {
	err := fsys.Remove(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// shortenFile cuts the files of a segment to what it says they hold.
func (l *Log) shortenFile(s *segment) error {
	f, err := l.d.writers.acquire(&s.file.w, (*appending)(s.file))
	if err != nil {
		return err
	}
	defer l.d.writers.release(&s.file.w)
	if err := f.Truncate(s.size()); err != nil {
		return fmt.Errorf("cut %s: %w", s.file.path(), err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", s.file.path(), err)
	}
	for _, k := range []indexKind{offsetIndex, timeIndex} {
		if err := truncateIfThere(l.d.fs, s.indexPath(k), int64(s.index(k).load().filed*k.size())); err != nil {
			return err
		}
	}
	return nil
}

func truncateIfThere(fsys vfs.FS, name string, size int64) error {
	f, err := fsys.Open(name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	if err = f.Truncate(size); err != nil {
		err = fmt.Errorf("cut %s: %w", name, err)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

func (l *Log) removeSnapshots(offsets []batch.Offset) error {
	for _, o := range offsets {
		if err := removeIfThere(l.d.fs, l.filePath(fileName(o, snapshotSuffix))); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) syncFolder() error {
	if err := l.d.fs.SyncDir(l.Dir()); err != nil {
		return l.fail(fmt.Errorf("sync folder %s: %w", l.Dir(), err))
	}
	return nil
}

// keepEnd gives a log that has no segment an empty one, if it does not end at 0:
// its name then says where the log ends.
func (l *Log) keepEnd(end batch.Offset) error {
	if end == 0 || len(l.view.Load().segs) > 0 {
		return nil
	}
	s, _, err := l.createSegment(end)
	if err != nil {
		return l.openFailed(err)
	}
	l.d.writers.release(&s.file.w)
	l.mu.Lock()
	l.publish(&view{segs: []*segment{s}})
	l.since = 0
	l.mu.Unlock()
	return l.syncFolder()
}
