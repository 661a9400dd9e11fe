package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// recoveryWorkers is how many logs are opened at once, per processor: opening
// waits for the disk as much as it computes.
const recoveryWorkers = 4

// OpenDir opens a data folder, makes it if need be, locks it (vfs.ErrLocked when
// another process has it) and opens all logs in it. Nothing is written before
// the clean-stop file of the run before is gone.
func OpenDir(fsys vfs.FS, path string, o Options) (*Dir, error) {
	d := newDir(fsys, path, o.withDefaults())
	if err := MakeFolder(fsys, path); err != nil {
		return nil, fmt.Errorf("make data folder %s: %w", path, err)
	}
	lock, err := fsys.Lock(filepath.Join(path, lockFile))
	if err != nil {
		return nil, fmt.Errorf("open data folder %s: %w", path, err)
	}
	d.lock = lock
	if err := d.load(); err != nil {
		d.closeFiles()
		return nil, errors.Join(fmt.Errorf("open data folder %s: %w", path, err), lock.Close())
	}
	d.start()
	return d, nil
}

// MakeFolder makes a folder and those that lead to it, so that a crash does not
// take their names back.
func MakeFolder(fsys vfs.FS, path string) error {
	_, err := fsys.Stat(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := MakeFolder(fsys, parent); err != nil {
			return err
		}
	}
	if err := fsys.Mkdir(path, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return fsys.SyncDir(parent)
}

func newDir(fsys vfs.FS, path string, o Options) *Dir {
	writers := o.GateWidth / minGateWidth
	d := &Dir{
		fs: fsys, path: path, o: o,
		reads: newGate(o.GateWidth - writers), writes: newGate(writers),
		readers: newFileCache(o.MaxOpenFiles / 2), writers: newFileCache(o.MaxOpenFiles / 2),
		logs: map[partition]*Log{}, stale: map[partition]struct{}{}, lost: map[partition]marks{},
		ticked: newToken(), checkpoint: o.Steady(), expiry: o.Steady(),
		stop: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	d.scrub.round = o.Steady()
	d.commits.wake = make(chan struct{}, 1)
	d.reaper.wake = make(chan struct{}, 1)
	d.trims.reaper = &d.reaper
	d.buffers.New = func() any { return new([readWindow]byte) }
	d.windows.New = func() any { return new([proofWindow]byte) }
	d.recoveryPoints = checkpointer{
		d: d, name: recoveryFile, busy: newToken(), value: func(l *Log) batch.Offset { return batch.Offset(l.recovery.Load()) },
		note: func(l *Log, o batch.Offset) { l.recorded.Store(int64(o)) }, lost: func(m marks) batch.Offset { return m.recovery },
	}
	d.hws = checkpointer{
		d: d, name: hwFile, busy: newToken(), value: (*Log).HW,
		note: func(l *Log, o batch.Offset) { l.hwRecorded.Store(int64(o)) }, lost: func(m marks) batch.Offset { return m.hw },
	}
	d.starts = checkpointer{
		d: d, name: startFile, busy: newToken(), value: (*Log).Start,
		note: func(l *Log, o batch.Offset) { l.startRecorded.Store(int64(o)) }, lost: func(m marks) batch.Offset { return m.start },
	}
	d.cleans = checkpointer{
		d: d, name: cleanFile, busy: newToken(), value: (*Log).CleanedTo,
		note: (*Log).noteCleaned, lost: func(marks) batch.Offset { return 0 },
	}
	return d
}

func (d *Dir) load() error {
	if err := d.takeCleanStop(); err != nil {
		return err
	}
	var files [4]offsets
	for i, name := range []string{recoveryFile, hwFile, startFile, cleanFile} {
		var err error
		files[i], err = readOffsets(d.fs, filepath.Join(d.path, name))
		var bad *CorruptError
		if errors.As(err, &bad) {
			d.o.Logger.Error("checkpoint file is unreadable and ignored", "error", err)
			err = nil
		}
		if err != nil {
			return err
		}
	}
	names, err := d.sortFolders()
	if err != nil {
		return err
	}
	if err := d.openLogs(names, files); err != nil {
		return err
	}
	if err := d.lowerHWs(); err != nil {
		return err
	}
	if err := d.adopt(files[2]); err != nil {
		return err
	}
	for _, file := range files {
		for p := range file {
			if d.logs[p] == nil {
				d.stale[p] = struct{}{}
				d.noteLost(p, marks{recovery: files[0][p], hw: files[1][p], start: files[2][p]})
			}
		}
	}
	d.look()
	return nil
}

// adopt writes down the starts of logs that came without one, as from Kafka.
func (d *Dir) adopt(starts offsets) error {
	for _, l := range d.sorted {
		if l.Start() > 0 && starts[l.p] != l.Start() {
			return d.starts.write()
		}
	}
	return nil
}

// takeCleanStop reads the clean-stop file and removes it, durably.
func (d *Dir) takeCleanStop() error {
	path := filepath.Join(d.path, cleanStopFile)
	data, err := vfs.ReadFile(d.fs, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if stop, ok := parseCleanStop(data); ok {
		d.prev = &stop
	}
	if err := d.fs.Remove(path); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return d.fs.SyncDir(d.path)
}

// sortFolders returns the partitions that have a folder, and has what was
// deleted before the last stop removed.
func (d *Dir) sortFolders() ([]partition, error) {
	entries, err := d.fs.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	var names []partition
	for _, e := range entries {
		path := filepath.Join(d.path, e.Name())
		p, isPartition := parsePartition(e.Name())
		switch {
		case !e.IsDir():
			if strings.HasSuffix(e.Name(), tmpSuffix) {
				err = removeIfThere(d.fs, path)
			}
		case isPartition:
			names = append(names, p)
		case asideFolder(e.Name(), deleteSuffix):
			d.reaper.add(path)
		case strings.HasSuffix(e.Name(), newSuffix) && isNamed(strings.TrimSuffix(e.Name(), newSuffix)):
			err = d.fs.RemoveAll(path) // it never held a record
		}
		if err != nil {
			return nil, err
		}
	}
	return names, nil
}

func isNamed(name string) bool {
	_, ok := parsePartition(name)
	return ok
}

// asideFolder tells whether a folder has a name that asideName gives; a long
// topic's may be cut, so only the form of its end is looked at.
func asideFolder(name, suffix string) bool {
	head, ok := strings.CutSuffix(name, suffix)
	dot := strings.LastIndexByte(head, '.')
	return ok && dot > 0 && len(head)-dot > 2*len(ID{})
}

// openLogs opens the logs of all partitions, several at a time where there may be
// goroutines.
func (d *Dir) openLogs(names []partition, files [4]offsets) error {
	open := func(p partition) error {
		start, hasStart := files[2][p]
		l, err := openLog(d, p, marks{recovery: files[0][p], hw: files[1][p], start: start, hasStart: hasStart, cleaned: files[3][p]})
		if err != nil {
			return err
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.insert(l)
		return nil
	}
	if d.o.FlushInterval > 0 {
		return sideBySide(names, open)
	}
	var errs []error
	for _, p := range names {
		errs = append(errs, open(p))
	}
	return errors.Join(errs...)
}

// sideBySide calls open for all names on a few goroutines and waits for them.
func sideBySide(names []partition, open func(partition) error) error {
	work := make(chan partition)
	var (
		wg   sync.WaitGroup
		errs = make([]error, recoveryWorkers*runtime.GOMAXPROCS(0))
	)
	for i := range errs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for p := range work {
				errs[i] = errors.Join(errs[i], open(p))
			}
		}()
	}
	for _, p := range names {
		work <- p
	}
	close(work)
	wg.Wait()
	return errors.Join(errs...)
}

// lowerHWs writes the high watermarks down if one of them lies past the end of its
// log, before anything is appended there: see Log.lowerHW.
func (d *Dir) lowerHWs() error {
	for _, l := range d.Logs() {
		if l.hwRecorded.Load() > l.hw.Load() {
			if err := d.hws.write(); err != nil && d.offline.Load() != nil {
				return err
			}
			return nil
		}
	}
	return nil
}

// Close makes everything durable and lets the folder go. With stop, and if
// nothing went wrong, it leaves the clean-stop file that tells the next run so.
func (d *Dir) Close(stop *CleanStop) error {
	close(d.stop)
	d.done.Wait()
	err := d.Offline()
	if err == nil {
		err = d.closeLogs()
	}
	if err == nil && stop != nil {
		err = d.leaveCleanStop(*stop)
	}
	closed := fmt.Errorf("data folder %s: %w", d.path, ErrClosed)
	d.offline.CompareAndSwap(nil, &closed)
	d.closeFiles()
	if e := d.lock.Close(); err == nil && e != nil {
		err = fmt.Errorf("unlock %s: %w", d.path, e)
	}
	return err
}

// closeLogs ends all logs with whole indexes and a snapshot of their producers,
// and writes the checkpoints.
func (d *Dir) closeLogs() error {
	logs := d.Logs()
	for _, l := range logs {
		l.maint.take()
		defer l.giveMaint()
		l.finish()
	}
	d.trims.take() // their starts are written below; what lies under them goes after the next start
	d.reap()
	if err := d.flush(logs); err != nil {
		return err
	}
	for _, l := range logs {
		if l.unfinished() {
			return fmt.Errorf("close %s: %w", l.p, ErrFull)
		}
	}
	return errors.Join(d.recoveryPoints.write(), d.hws.write(), d.starts.write())
}

// finish stops appends and lists what a stopped log must have on the disk.
func (l *Log) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.queued = false
	s := l.view.Load().last()
	if s == nil || l.damage.Load() != nil {
		return
	}
	if s.unfiled() {
		l.seal(s)
	}
	if l.snaps.last != l.End() || len(l.snaps.filed) == 0 {
		l.snaps.want(l.End(), &l.producers)
	}
}

// unfinished tells whether the last flush left something for the next one.
func (l *Log) unfinished() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queued
}

func (d *Dir) leaveCleanStop(stop CleanStop) error {
	data, err := encodeCleanStop(stop)
	if err != nil {
		return fmt.Errorf("encode clean stop: %w", err)
	}
	return WriteFileAtomic(d.fs, filepath.Join(d.path, cleanStopFile), data)
}

// closeFiles closes the descriptors of all segments.
func (d *Dir) closeFiles() {
	for _, l := range d.Logs() {
		for _, s := range l.view.Load().segs {
			d.readers.drop(&s.file.r)
			d.writers.drop(&s.file.w)
		}
	}
}
