package storage

import (
	"errors"
	"fmt"
	"os"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// A flush makes what a set of logs holds at one moment durable. It runs in
// steps, each for all the logs before the next, so that many files cost one
// syncfs: take down what is there (under each log's lock); write what belongs
// beside the batches (indexes, epochs, producers); sync; give the written files
// their names; sync the folders; publish the flushed ends. Appends go on all the
// while; the token maint of each log keeps cuts away.

const (
	// syncAllFiles is how many files are synced one by one at most; beyond, one
	// syncfs is cheaper, though it also waits for what others wrote.
	syncAllFiles = 64
	// indexBatch is how many index entries wait in memory: half a megabyte of
	// log that a restart may have to walk without them.
	indexBatch = 128
)

// flushJob is one log's part of a flush.
type flushJob struct {
	l          *Log
	end        batch.Offset
	unsynced   int64
	began      int64 // ns; what is appended later is younger
	segs       []flushSegment
	epochs     epochs
	epochsOld  bool
	snaps      []pendingSnapshot
	dirChanged bool

	finish  func(vfs.File) error // syncs a file that was written, unless one syncfs will
	renames []renaming
	written []batch.Offset // offsets of the snapshots that have their names
	failed  bool           // something beside the batches could not be written: no room
	lost    bool           // the log's files are gone: the rest of the flush leaves it alone
}

// renaming is a file beside the batches whose temporary form is written, and what
// is done when it has its name.
type renaming struct {
	path string
	note func()
}

// leaveUnsynced is what a job does with written files when a syncfs follows.
func leaveUnsynced(vfs.File) error { return nil }

// flushSegment is a segment as it was when the flush began.
type flushSegment struct {
	dirtySegment
	size   int64
	counts [2]int // entries of the indexes to be in the files; negative: as they are
	whole  bool   // the segment was closed before the flush began
}

// flush makes the logs durable; the caller has their maint tokens.
func (d *Dir) flush(logs []*Log) error {
	if d.offline.Load() != nil {
		return d.Offline()
	}
	jobs := make([]*flushJob, len(logs))
	files := 0
	for i, l := range logs {
		jobs[i] = l.beginFlush()
		files += jobs[i].files()
	}
	all := files > syncAllFiles
	if all {
		for _, j := range jobs {
			j.finish = leaveUnsynced
		}
	}
	for _, step := range []func() error{
		func() error { return eachJob(jobs, (*flushJob).writeBeside) },
		func() error { return d.syncFiles(jobs, all) },
		func() error { return eachJob(jobs, (*flushJob).present) },
		func() error { return eachJob(jobs, (*flushJob).rename) },
		func() error { return d.syncFolders(jobs) },
		func() error { return eachJob(jobs, (*flushJob).publish) },
	} {
		err := step()
		if err != nil && isCrowded(err) {
			return errors.Join(passing(err), eachJob(jobs, (*flushJob).undo))
		}
		if err != nil {
			return d.fail(err)
		}
	}
	return nil
}

// undo leaves all for the next flush.
func (j *flushJob) undo() error {
	l := j.l
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dirChanged, l.epochsOld = true, true
	l.snaps.pending = append(j.snaps[:len(j.snaps):len(j.snaps)], l.snaps.pending...)
	l.enqueue()
	return nil
}

// eachJob calls f for each log, but for those whose files turn out to be gone.
func eachJob(jobs []*flushJob, f func(*flushJob) error) error {
	for _, j := range jobs {
		if j.lost {
			continue
		}
		if err := f(j); err != nil {
			if j.lost = j.l.vanished(err) != nil; !j.lost {
				return err
			}
		}
	}
	return nil
}

// beginFlush takes down what there is to flush.
func (l *Log) beginFlush() *flushJob {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.snaps.since >= l.d.o.SnapshotBytes {
		l.snaps.want(l.End(), &l.producers)
	}
	j := &flushJob{
		l: l, end: l.End(), unsynced: l.unsynced, began: l.d.o.Now().UnixNano(), dirChanged: l.dirChanged,
		epochs: l.epochs, epochsOld: l.epochsOld, snaps: l.snaps.pending, finish: vfs.File.Sync,
	}
	for _, ds := range l.dirty {
		fs := flushSegment{dirtySegment: ds, size: ds.size(), counts: [2]int{-1, -1}, whole: ds.sealed}
		for _, k := range []indexKind{offsetIndex, timeIndex} {
			if t := ds.index(k).load(); ds.sealed || len(t.unfiled()) >= indexBatch {
				fs.counts[k] = t.count()
			}
		}
		j.segs = append(j.segs, fs)
	}
	l.dirChanged, l.epochsOld = false, false
	l.waits.Store(false)
	l.snaps.pending = nil
	return j
}

// files is about how many files the job has to sync.
func (j *flushJob) files() int {
	n := len(j.segs) + len(j.snaps)
	if j.epochsOld {
		n++
	}
	return n
}

// writeBeside writes what belongs beside the batches. None of it is needed to
// keep a record, so a full disk only leaves it for later.
func (j *flushJob) writeBeside() error {
	for i := range j.segs {
		for _, k := range []indexKind{offsetIndex, timeIndex} {
			if err := j.tolerate(j.writeIndex(&j.segs[i], k)); err != nil {
				return err
			}
		}
	}
	for _, s := range j.snaps {
		err := j.writeTmp(fileName(s.offset, snapshotSuffix), s.data, func() { j.written = append(j.written, s.offset) })
		if err = j.tolerate(err); err != nil {
			return err
		}
	}
	if !j.epochsOld {
		return nil
	}
	return j.tolerate(j.writeTmp(epochFile, j.epochs.encode(), func() { j.epochsOld = false }))
}

func (j *flushJob) writeTmp(name string, data []byte, note func()) error {
	path := j.l.filePath(name)
	if err := writeTmp(j.l.d.fs, path, data, j.finish); err != nil {
		return err
	}
	j.renames = append(j.renames, renaming{path, note})
	return nil
}

// tolerate passes every error on but want of room, which it notes.
func (j *flushJob) tolerate(err error) error {
	if err != nil && isFull(err) {
		j.failed = true
		return nil
	}
	return err
}

// writeIndex appends the entries in memory to an index file. That of a closed
// segment is made even without entries, and synced: nobody rebuilds it later.
func (j *flushJob) writeIndex(s *flushSegment, k indexKind) error {
	count := s.counts[k]
	if count < 0 {
		return nil
	}
	t := s.index(k).load()
	s.counts[k] = -1 // until it is done
	f, err := j.l.d.fs.Open(s.indexPath(k), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("open index: %w", err)
	}
	var p []byte
	for _, e := range t.unfiled()[:count-t.filed] {
		p = k.append(p, e)
	}
	err = writeEntries(f, p, int64(t.filed*k.size()))
	if err == nil && s.whole {
		err = j.finish(f)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", s.indexPath(k), err)
	}
	s.counts[k] = count
	j.dirChanged = j.dirChanged || t.filed == 0
	return nil
}

// writeEntries writes bytes at pos and leaves the file as it was when they do
// not fit.
func writeEntries(f vfs.File, p []byte, pos int64) error {
	if len(p) == 0 {
		return nil
	}
	if _, err := f.WriteAt(p, pos); err != nil {
		return errors.Join(err, f.Truncate(pos))
	}
	return nil
}

// syncFiles syncs the files of all jobs, one by one or in one call.
func (d *Dir) syncFiles(jobs []*flushJob, all bool) error {
	if all {
		err := d.fs.SyncAll(d.path)
		if !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
		if err := eachJob(jobs, (*flushJob).syncTmp); err != nil {
			return err
		}
	}
	var files []flushSegment
	for _, j := range jobs {
		for _, s := range j.segs {
			if s.f != nil {
				files = append(files, s)
			}
		}
	}
	return d.syncEach(files)
}

// syncTmp syncs the files that writeTmp left unsynced for a syncfs that the
// system turned out not to have.
func (j *flushJob) syncTmp() error {
	for _, r := range j.renames {
		path := r.path
		f, err := j.l.d.fs.Open(path+tmpSuffix, os.O_RDWR, 0)
		if err != nil {
			return fmt.Errorf("sync %s: %w", path, err)
		}
		err = f.Sync()
		if e := f.Close(); err == nil {
			err = e
		}
		if err != nil {
			return fmt.Errorf("sync %s: %w", path, err)
		}
	}
	return nil
}

// rename gives the files that writeTmp wrote, and that are synced, their names.
func (j *flushJob) rename() error {
	for _, r := range j.renames {
		err := j.l.d.fs.Rename(r.path+tmpSuffix, r.path)
		if err == nil {
			r.note()
			j.dirChanged = true
			continue
		}
		if err = j.tolerate(err); err != nil {
			return fmt.Errorf("replace %s: %w", r.path, err)
		}
	}
	return nil
}

// syncFolders syncs the folders in which names changed, one by one or in one call.
func (d *Dir) syncFolders(jobs []*flushJob) error {
	var changed []*flushJob
	for _, j := range jobs {
		if j.dirChanged {
			changed = append(changed, j)
		}
	}
	if len(changed) > syncAllFiles {
		err := d.fs.SyncAll(d.path)
		if !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	return eachJob(changed, func(j *flushJob) error {
		if err := d.fs.SyncDir(j.l.Dir()); err != nil {
			return fmt.Errorf("sync folder %s: %w", j.l.Dir(), err)
		}
		return nil
	})
}

// publish tells what is durable now and lets go of what needs no further flush.
func (j *flushJob) publish() error {
	l := j.l
	l.mu.Lock()
	l.flushed.Store(max(l.flushed.Load(), int64(j.end)))
	l.epochsOld = l.epochsOld || j.epochsOld
	l.noteSynced(j.unsynced, j.began)
	for _, s := range j.segs {
		j.settle(s)
	}
	if l.recoverable(j) && l.recovery.Swap(int64(j.end)) != int64(j.end) {
		l.d.recoveryChanged.Store(true)
	}
	surplus := j.settleSnapshots()
	if len(l.dirty) > 0 || l.epochsOld || len(l.snaps.pending) > 0 {
		l.enqueue()
	}
	l.mu.Unlock()
	if j.failed {
		l.d.o.Logger.Warn("no room for index, epochs or producer snapshot; later", "partition", l.p.String())
	}
	return l.removeSnapshots(surplus)
}

// recoverable tells whether a restart can begin where the flush ended: the epochs
// before it are written, and so are the indexes of the segments before it, which
// are not looked at again; mu is held.
func (l *Log) recoverable(j *flushJob) bool {
	if j.epochsOld || l.damage.Load() != nil {
		return false
	}
	for _, ds := range l.dirty {
		if ds.sealed && ds.end() <= j.end {
			return false
		}
	}
	return true
}

// settle takes a flushed segment off the list unless more was appended to it, or
// an index of a closed one is not written; the log's mu is held.
func (j *flushJob) settle(s flushSegment) {
	l := j.l
	for _, k := range []indexKind{offsetIndex, timeIndex} {
		if s.counts[k] >= 0 {
			s.index(k).filed(s.counts[k])
		}
	}
	unwritten := s.sealed && !(s.whole && s.counts[offsetIndex] >= 0 && s.counts[timeIndex] >= 0)
	for i, ds := range l.dirty {
		if ds.segment != s.segment {
			continue
		}
		if ds.size() == s.size && ds.f != nil {
			l.d.writers.release(&ds.file.w)
			if l.view.Load().last() == ds.segment {
				l.w = nil
			}
			l.dirty[i].f = nil
		}
		if l.dirty[i].f == nil && !unwritten {
			l.dirty = append(l.dirty[:i:i], l.dirty[i+1:]...)
		}
		return
	}
}

// settleSnapshots notes the snapshots that were written, keeps the others for
// later, and returns those not needed any more; the log's mu is held.
func (j *flushJob) settleSnapshots() []batch.Offset {
	l := j.l
	for _, o := range j.written {
		l.snaps.wrote(o)
	}
	if len(j.written) < len(j.snaps) {
		l.snaps.pending = append(j.snaps[:len(j.snaps):len(j.snaps)], l.snaps.pending...)
	}
	return l.snaps.drop(l.snaps.surplus(l.view.Load()))
}

// flushOne makes one log durable.
func (d *Dir) flushOne(l *Log) error {
	l.maint.take()
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	if closed && d.offline.Load() == nil {
		l.maint.give()
		return l.wrap("flush", ErrClosed)
	}
	err := d.flushTaken([]*Log{l})
	if err == nil && l.Flushed() < l.End() {
		err = l.Damaged() // its files are gone
	}
	if err != nil {
		return l.wrap("flush", err)
	}
	return nil
}

// enqueue puts a log on the list of those to flush.
func (d *Dir) enqueue(l *Log) {
	d.dirtyMu.Lock()
	d.dirty = append(d.dirty, l)
	d.dirtyMu.Unlock()
	if d.writers.crowded() {
		d.wakeFlush()
	}
}

// flushDirty makes durable what was appended since it last ran, but for logs
// that are being cut, whose turn comes again, and durable ones, which are the
// committer's.
func (d *Dir) flushDirty() error {
	d.dirtyMu.Lock()
	dirty := d.dirty
	d.dirty = nil
	d.dirtyMu.Unlock()
	var logs []*Log
	for _, l := range dirty {
		taken, closed := l.takeOpen()
		switch {
		case closed:
		case !taken:
			d.enqueue(l)
		case !l.takeQueued():
			l.giveMaint()
		default:
			logs = append(logs, l)
		}
	}
	return d.flushTaken(logs)
}

// takeQueued takes a log off the list of those to flush and tells whether it is
// to be flushed now.
func (l *Log) takeQueued() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queued = false
	dirty := len(l.dirty) > 0 || l.dirChanged || l.epochsOld || len(l.snaps.pending) > 0
	if dirty && l.durable.Load() != nil {
		l.waits.Store(true) // giving the token back lists it
		return false
	}
	return dirty
}
