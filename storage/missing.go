package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirmq/weir/wire/batch"
)

// Problem: somebody removes a partition's folder, or files in it, while the node runs
// or is stopped. What was acknowledged on the strength of them is gone, and a log
// that simply began anew would be taken for whole.
//
// The rule: a log whose files are gone is damaged, as one whose bytes are. Whatever
// is taken away here is first taken out of the view, or the log is closed; so a file
// that the view has and the folder has not was taken by somebody else.
//
// Where it is found:
//   - at the start, by a checkpoint file that names a partition without a folder
//     (OpenLost): such a log is known, damaged from its start, and has no folder until
//     it is cut, so that the next start finds the same;
//   - at each flush, before anything counts as durable (flushJob.present);
//   - by whoever opens a segment to read or append (segFile.openAs), and by any other
//     call that meets a missing file (Log.fail);
//   - in logs that nobody uses, by Tick, which looks at some in turn (lookAround).
//
// A cut makes the folder again (restoreFolder).
//
// Rejected: to watch the folders by notifications of the kernel, which costs a watch a
// partition and misses what happens while nobody listens.

// lookLogs is how many folders one Tick looks at, so that idle logs cost the same,
// whatever their number, and a thousand are looked at within half a minute.
const lookLogs = 32

// OpenLost makes the log known that a checkpoint file named when the Dir was opened and
// that had no folder: it is damaged from its start on. False when there is none of that
// name.
func (d *Dir) OpenLost(topic string, p int32, id ID) (*Log, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := partition{topic, p}
	m, ok := d.lost[name]
	if _, exists := d.logs[name]; !ok || exists {
		return nil, false
	}
	l := newLog(d, name, id, filepath.Join(d.path, name.String()))
	l.start.Store(int64(m.start))
	l.flushed.Store(int64(m.start))
	l.hw.Store(int64(m.start))
	l.recovery.Store(int64(max(m.recovery, m.hw))) // which names the log in the file until it is cut
	l.recorded.Store(int64(m.recovery))
	l.startRecorded.Store(int64(m.start))
	l.hwRecorded.Store(int64(m.hw))
	l.publish(&view{empty: m.start})
	_ = l.missing(l.Dir(), m.start)
	d.recoveryChanged.Store(true)
	delete(d.lost, name)
	delete(d.stale, name)
	d.insert(l)
	return l, true
}

// noteLost remembers what the checkpoint files say of a partition without a folder. A
// start alone says nothing: that file is written seldom, and may name what was deleted.
func (d *Dir) noteLost(p partition, m marks) {
	if m.recovery > 0 || m.hw > 0 {
		d.lost[p] = m
	}
}

// ForgetLost says that nobody will ask for lost logs any more: the others were of topics
// that are gone.
func (d *Dir) ForgetLost() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.lost) > 0 {
		clear(d.lost)
		d.recoveryChanged.Store(true)
		d.hwChanged.Store(true)
	}
}

// lostLines are the lines of lost logs in a checkpoint file.
func (d *Dir) lostLines(value func(marks) batch.Offset) []string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var lines []string
	for p, m := range d.lost {
		if o := value(m); o > 0 {
			lines = append(lines, checkpointLine(p, o))
		}
	}
	slices.Sort(lines)
	return lines
}

// missing marks the log damaged from an offset on, where a file is gone.
func (l *Log) missing(path string, o batch.Offset) *CorruptError {
	l.markDamaged(&CorruptError{Path: path, Offset: max(o, l.Start()), Msg: "it is gone, and nothing here has removed it"})
	return l.damage.Load()
}

// fail answers an error of the disk that is the log's own affair if its files are gone,
// and takes the folder offline otherwise. The caller has maint or, unless the log is
// being cut, mu.
func (l *Log) fail(err error) error {
	if bad := l.vanished(err); bad != nil {
		return bad
	}
	return l.d.fail(err)
}

// vanished returns the damage behind an error, nil when the error is not of that kind.
func (l *Log) vanished(err error) error {
	bad := (*CorruptError)(nil)
	if errors.As(err, &bad) {
		return err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return l.look()
}

// look finds the first segment whose file is gone, or that the folder is, and marks the
// log damaged there. What it can not list it does not judge.
func (l *Log) look() error {
	v := l.view.Load()
	entries, err := l.d.fs.ReadDir(l.Dir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil //nolint:nilerr // a disk that fails is found out by what needs it
	}
	for _, s := range v.segs {
		if s.end() <= l.Start() && s != v.last() {
			continue // it was to go
		}
		_, there := slices.BinarySearchFunc(entries, s.file.name(), func(e fs.DirEntry, name string) int { return strings.Compare(e.Name(), name) })
		if !there && l.view.Load().holds(s) { // else it was dropped meanwhile
			return l.missing(s.file.path(), s.base)
		}
	}
	if err != nil {
		return l.missing(l.Dir(), v.end())
	}
	return nil
}

// has tells whether the file of a segment is there.
func (l *Log) has(s *segment) bool {
	_, err := l.d.fs.Stat(s.file.path())
	return !errors.Is(err, fs.ErrNotExist)
}

// present makes sure that what was synced can be found again by its name.
func (j *flushJob) present() error {
	for _, s := range j.segs {
		if !j.l.has(s.segment) {
			return fmt.Errorf("flush %s: %w", s.file.path(), fs.ErrNotExist)
		}
	}
	return nil
}

// openFailed tells what it means that the file could not be opened: one that is in the
// view and is not there makes the log damaged.
func (f *segFile) openFailed(err error) error {
	if bad := f.log.vanished(err); bad != nil {
		return bad
	}
	return err
}

// lookAround looks at the next few folders, of logs that nobody is cutting.
func (d *Dir) lookAround() {
	for _, l := range d.someLogs() {
		if l.damage.Load() != nil {
			continue
		}
		if taken, _ := l.takeOpen(); !taken {
			continue
		}
		err := l.inGate(l.look)
		if err == nil {
			err = l.inGate(l.keepIdentity)
		}
		l.giveMaint()
		if bad := (*CorruptError)(nil); err != nil && !errors.As(err, &bad) && d.offline.Load() == nil {
			d.o.Logger.Warn("a folder can not be looked after; it is tried again", "folder", l.Dir(), "error", err)
		}
	}
}

// someLogs returns the logs whose turn it is; the caller has ticked.
func (d *Dir) someLogs() []*Log {
	d.mu.RLock()
	defer d.mu.RUnlock()
	n := len(d.sorted)
	some := make([]*Log, 0, min(n, lookLogs))
	for range cap(some) {
		d.looked = (d.looked + 1) % n
		some = append(some, d.sorted[d.looked])
	}
	return some
}

// restoreFolder makes the folder of a log that is about to be cut again, if it is gone;
// the caller has maint.
func (l *Log) restoreFolder() error {
	_, err := l.d.fs.Stat(l.Dir())
	if errors.Is(err, fs.ErrNotExist) {
		l.d.o.Logger.Warn("the folder of a partition was gone and is made again", "folder", l.Dir())
		return l.d.giveFolder(l.Dir(), l.id)
	}
	return l.keepIdentity()
}

// keepIdentity writes the topic's id down again, if that file is gone: without it the next
// start would set the folder aside.
func (l *Log) keepIdentity() error {
	path := l.filePath(metadataFile)
	_, err := l.d.fs.Stat(path)
	if !errors.Is(err, fs.ErrNotExist) || l.id == (ID{}) {
		return nil //nolint:nilerr // as in look
	}
	l.d.o.Logger.Warn("the file with a partition's topic id was gone and is written again", "file", path)
	if err := WriteFileAtomic(l.d.fs, path, encodeMetadata(l.id)); err != nil {
		if e := passing(err); e != nil {
			return e
		}
		return l.fail(err)
	}
	return nil
}
