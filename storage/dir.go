package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// Dir is a data folder: the logs in it, what they share, and the background work
// for all of them.
type Dir struct {
	fs   vfs.FS
	path string
	o    Options
	prev *CleanStop
	lock io.Closer

	reads, writes   gate
	readers         *fileCache
	writers         *fileCache
	buffers         sync.Pool // of *[readWindow]byte
	windows         sync.Pool // of *[proofWindow]byte
	offline         atomic.Pointer[error]
	low             atomic.Bool // less than MinFreeBytes are free
	total, free     atomic.Uint64
	unsynced        atomic.Int64
	hwChanged       atomic.Bool
	recoveryChanged atomic.Bool

	recoveryPoints, hws, starts, cleans checkpointer

	mu     sync.RWMutex
	logs   map[partition]*Log     // guarded by mu, as all below; nil while a log is being created
	sorted []*Log                 // by name
	stale  map[partition]struct{} // names without a log that the checkpoint files may mention
	lost   map[partition]marks    // those of them that had no folder when the Dir was opened: see OpenLost

	commits commits

	dirtyMu sync.Mutex
	dirty   []*Log // guarded by dirtyMu: to be flushed with the next tick

	reaper  reaper
	trims   trims
	scrub   scrubber
	cleaner cleaner

	ticked     token // the right to run Tick
	looked     int   // guarded by ticked: the index in sorted that lookAround came to
	checkpoint time.Duration
	expiry     time.Duration

	stop chan struct{} // closed to end the goroutines
	wake chan struct{} // of capacity 1: flush now
	done sync.WaitGroup
}

// CleanStop is what a run leaves when it ended in order.
type CleanStop struct {
	// BrokerEpoch is the epoch under which the broker was registered.
	BrokerEpoch int64
}

// Path is the folder's path.
func (d *Dir) Path() string { return d.path }

// FS is the file system it lies on.
func (d *Dir) FS() vfs.FS { return d.fs }

// PreviousStop returns what the run before left; false when it did not end in
// order, or there was none.
func (d *Dir) PreviousStop() (CleanStop, bool) {
	if d.prev == nil {
		return CleanStop{}, false
	}
	return *d.prev, true
}

// Logs returns the logs, sorted by topic and partition.
func (d *Dir) Logs() []*Log {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Clone(d.sorted)
}

// Log returns the log of a partition, nil when there is none.
func (d *Dir) Log(topic string, p int32) *Log {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.logs[partition{topic, p}]
}

// Offline returns a non-nil error, which is ErrOffline, once a write or fsync
// went wrong. It stays so: what the kernel holds of the files is no longer known.
func (d *Dir) Offline() error {
	if e := d.offline.Load(); e != nil {
		return *e
	}
	return nil
}

// fail takes the folder offline and returns the error to answer with. Errors
// that are not of the disk, or that passed through here before, change nothing.
func (d *Dir) fail(err error) error {
	if errors.Is(err, ErrOffline) || errors.Is(err, ErrClosed) {
		return err
	}
	err = fmt.Errorf("%w: %w", ErrOffline, err)
	if d.offline.CompareAndSwap(nil, &err) {
		d.o.Logger.Error("data folder is offline; its replicas are lost to this node until it is repaired and restarted", "folder", d.path, "error", err)
	}
	return err
}

// Space is the size in bytes of the folder's volume and the room left on it, as of
// the last tick; 0, 0 when that is unknown.
func (d *Dir) Space() (total, free uint64) { return d.total.Load(), d.free.Load() }

// Unsynced is how many bytes were appended and not flushed yet.
func (d *Dir) Unsynced() int64 { return d.unsynced.Load() }

func byName(a, b *Log) int { return comparePartitions(a.p, b.p) }

func comparePartitions(a, b partition) int {
	if c := strings.Compare(a.topic, b.topic); c != 0 {
		return c
	}
	return int(a.id) - int(b.id)
}

// insert makes a log known; mu is held.
func (d *Dir) insert(l *Log) {
	d.logs[l.p] = l
	i, _ := slices.BinarySearchFunc(d.sorted, l, byName)
	d.sorted = slices.Insert(d.sorted, i, l)
}

// Create makes the log of a new partition: a folder with the topic's id in it,
// durable when Create returns, and no other file until the first append.
func (d *Dir) Create(topic string, p int32, id ID) (*Log, error) {
	name := partition{topic, p}
	if !validTopic(topic) || p < 0 {
		return nil, fmt.Errorf("create partition folder %q: not a name", name)
	}
	if d.offline.Load() != nil {
		return nil, fmt.Errorf("create %s: %w", name, d.Offline())
	}
	d.mu.Lock()
	_, exists := d.logs[name]
	_, stale := d.stale[name]
	if !exists {
		d.logs[name] = nil
		delete(d.lost, name)
	}
	d.mu.Unlock()
	if exists {
		return nil, fmt.Errorf("create %s: %w", name, ErrExists)
	}
	l, err := d.create(name, id, stale)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		delete(d.logs, name)
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	delete(d.stale, name)
	d.insert(l)
	return l, nil
}

func (d *Dir) create(name partition, id ID, stale bool) (*Log, error) {
	if stale {
		// The offsets of an earlier partition of this name must not be taken for ours.
		for _, c := range []*checkpointer{&d.recoveryPoints, &d.hws, &d.starts, &d.cleans} {
			if err := c.write(); err != nil {
				return nil, err
			}
		}
	}
	d.writes.enter()
	defer d.writes.leave()
	path := filepath.Join(d.path, name.String())
	if _, err := d.fs.Stat(path); err == nil {
		return nil, ErrExists
	}
	if err := d.giveFolder(path, id); err != nil {
		return nil, err
	}
	return newLog(d, name, id, path), nil
}

// giveFolder is makeFolder, after whose failure nothing is left or the Dir is offline.
func (d *Dir) giveFolder(path string, id ID) error {
	err := d.makeFolder(path, id)
	if err == nil {
		return nil
	}
	if e := passing(err); e != nil {
		return errors.Join(e, d.fs.RemoveAll(path+newSuffix))
	}
	return d.fail(err)
}

// makeFolder makes a partition's folder appear whole and durable, or not at all.
func (d *Dir) makeFolder(path string, id ID) error {
	tmp := path + newSuffix
	if err := d.fs.RemoveAll(tmp); err != nil {
		return err
	}
	if err := d.fs.Mkdir(tmp, 0o755); err != nil {
		return err
	}
	if err := WriteFileAtomic(d.fs, filepath.Join(tmp, metadataFile), encodeMetadata(id)); err != nil {
		return err
	}
	if err := d.fs.Rename(tmp, path); err != nil {
		return err
	}
	return d.fs.SyncDir(d.path)
}

// Delete removes a log for good: its folder is renamed, durably, before Delete
// returns, and its files are removed in the background when no Range needs them.
func (d *Dir) Delete(l *Log) error {
	if err := d.remove(l, deleteSuffix); err != nil {
		return l.wrap("delete", err)
	}
	return nil
}

// Stray sets a log aside that is not to be served and not to be deleted either:
// its folder is renamed and kept.
func (d *Dir) Stray(l *Log) error {
	if err := d.remove(l, straySuffix); err != nil {
		return l.wrap("set aside", err)
	}
	return nil
}

func (d *Dir) remove(l *Log, suffix string) error {
	l.maint.take()
	defer l.giveMaint()
	if d.offline.Load() != nil {
		return d.Offline()
	}
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	l.mu.Unlock()
	if closed {
		return ErrClosed
	}
	if err := d.renameFolder(l, suffix); err != nil {
		if e := passing(err); e != nil {
			l.mu.Lock()
			l.closed = false
			l.mu.Unlock()
			return e
		}
		return d.fail(err)
	}
	d.mu.Lock()
	delete(d.logs, l.p)
	d.sorted = slices.DeleteFunc(d.sorted, func(x *Log) bool { return x == l })
	d.stale[l.p] = struct{}{}
	if suffix == straySuffix && l.id == (ID{}) {
		d.noteLost(l.p, marks{recovery: max(l.End(), batch.Offset(l.recovery.Load()))}) // whosever it was
	}
	d.mu.Unlock()
	d.recoveryChanged.Store(true)
	d.hwChanged.Store(true)
	l.release(suffix == deleteSuffix)
	return nil
}

func (d *Dir) renameFolder(l *Log, suffix string) error {
	old := l.Dir()
	for n := 0; ; n++ {
		path := filepath.Join(d.path, asideName(l.p, l.id, n, suffix))
		if _, err := d.fs.Stat(path); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		l.paths.Lock()
		err := d.fs.Rename(old, path)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // somebody was faster; nothing of this log is to touch what gets its name next
		}
		if err == nil {
			l.path.Store(&path)
		}
		l.paths.Unlock()
		if err != nil {
			return err
		}
		return d.fs.SyncDir(d.path)
	}
}

// release gives up all that a log which is gone from the Dir has a claim on.
func (l *Log) release(reap bool) {
	l.mu.Lock()
	v := l.view.Load()
	l.letGo(&view{})
	l.noteSynced(l.unsynced, 0)
	l.mu.Unlock()
	l.reap.Store(reap)
	for _, s := range v.segs {
		s.file.unpin()
	}
	l.closeFile()
}

// closeFile counts one user of the folder less, and has it removed after the last.
func (l *Log) closeFile() {
	if l.files.Add(-1) == 0 && l.reap.Load() {
		l.d.reaper.add(l.Dir())
	}
}

// unused closes a segment file that nobody has a claim on, and has it removed if
// it was set aside.
func (d *Dir) unused(f *segFile) {
	d.readers.drop(&f.r)
	d.writers.drop(&f.w)
	if f.aside.Load() > 0 {
		d.reaper.add(f.path())
	}
	f.log.closeFile()
}
