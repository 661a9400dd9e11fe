package vfs

import (
	"io"
	"io/fs"
	"math/rand/v2"
	"sync/atomic"
)

// OpSend is a call that moves a file's bytes past File, by its descriptor.
const OpSend Op = "send"

// watchSlots is how many calls a Watch knows of at once: more than the gates of a data
// folder let into the kernel. Calls beyond it go unwatched, beside that many that are.
const watchSlots = 256

// bulkShare is how much longer a call that stands for much work may take: it counts for
// that much less.
const bulkShare = 10

// Watch is a file system that passes all calls on and knows which have not returned. A
// call costs two atomic writes to a place of its own: no clock, no timer, no allocation.
//
// Time is counted in ticks that the owner makes, so that a process which was stopped in
// the middle of a call has not waited for the disk.
type Watch struct {
	fs    FS
	ticks atomic.Uint32 // made so far
	slots [watchSlots]slot
}

// slot is the place of one call, on a cache line of its own.
type slot struct {
	call atomic.Uint64 // the tick it began at << 8 | its number; 0 while the slot is free
	name atomic.Pointer[string]
	_    [48]byte
}

// Waiting is the call that has waited longest for the disk.
type Waiting struct {
	Op   Op
	Name string
	// Ticks is how many whole ticks have passed since it began; 0 when no call has waited
	// for one.
	Ticks int
}

// The numbers of the calls, from 1.
const (
	numOpen = iota + 1
	numCreate
	numMkdir
	numRename
	numRemove
	numRemoveAll
	numReadDir
	numStat
	numSyncDir
	numSyncAll
	numLock
	numFree
	numReadAt
	numWriteAt
	numWrite
	numSync
	numTruncate
	numSize
	numClose
	numSend
)

// watchedOps are the calls by their numbers.
var watchedOps = [...]Op{
	numOpen: OpOpen, numCreate: OpCreate, numMkdir: OpMkdir, numRename: OpRename, numRemove: OpRemove, numRemoveAll: OpRemoveAll,
	numReadDir: OpReadDir, numStat: OpStat, numSyncDir: OpSyncDir, numSyncAll: OpSyncAll, numLock: OpLock, numFree: OpFree,
	numReadAt: OpReadAt, numWriteAt: OpWriteAt, numWrite: OpWrite, numSync: OpSync, numTruncate: OpTruncate, numSize: OpSize,
	numClose: OpClose, numSend: OpSend,
}

// NewWatch returns a Watch over fsys.
func NewWatch(fsys FS) *Watch { return &Watch{fs: fsys} }

// Tick counts one tick and returns the call that has waited longest. It has one caller
// at a time.
func (w *Watch) Tick() Waiting {
	now := w.ticks.Add(1)
	var longest Waiting
	for i := range w.slots {
		s := &w.slots[i]
		call := s.call.Load()
		if call == 0 {
			continue
		}
		op := watchedOps[call&0xff]
		waited := int(int32(now-uint32(call>>8))) - 1 // it may have begun at the very end of its first tick
		if op == OpRemoveAll || op == OpSyncAll {
			waited /= bulkShare
		}
		if waited > longest.Ticks {
			longest = Waiting{Op: op, Ticks: waited}
			if name := s.name.Load(); name != nil {
				longest.Name = *name
			}
		}
	}
	return longest
}

// Call is one call under way.
type Call struct{ s *slot }

// End says that it has returned.
func (c Call) End() {
	if c.s != nil {
		c.s.call.Store(0)
	}
}

// begin notes the beginning of a call. The name is kept until the slot is used again.
func (w *Watch) begin(num uint64, name *string) Call {
	call := uint64(w.ticks.Load())<<8 | num
	at := rand.Uint32()
	for i := range uint32(watchSlots) {
		s := &w.slots[(at+i)%watchSlots]
		if s.call.Load() == 0 && s.call.CompareAndSwap(0, call) {
			s.name.Store(name)
			return Call{s}
		}
	}
	return Call{}
}

// BeginSend notes the beginning of a call that reads f by its descriptor. The caller
// ends it.
func BeginSend(f File) Call {
	if w, ok := f.(*watchedFile); ok {
		return w.watch.begin(numSend, &w.name)
	}
	return Call{}
}

// Open implements FS.
func (w *Watch) Open(name string, flag int, perm fs.FileMode) (File, error) {
	f := &watchedFile{watch: w, name: name}
	num := uint64(numOpen)
	if flag&(createFlag|truncFlag) != 0 {
		num = numCreate
	}
	defer w.begin(num, &f.name).End()
	file, err := w.fs.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	f.File = file
	return f, nil
}

// Mkdir implements FS.
func (w *Watch) Mkdir(name string, perm fs.FileMode) error {
	defer w.begin(numMkdir, &name).End()
	return w.fs.Mkdir(name, perm)
}

// MkdirAll implements FS.
func (w *Watch) MkdirAll(name string, perm fs.FileMode) error {
	defer w.begin(numMkdir, &name).End()
	return w.fs.MkdirAll(name, perm)
}

// Rename implements FS.
func (w *Watch) Rename(oldName, newName string) error {
	defer w.begin(numRename, &oldName).End()
	return w.fs.Rename(oldName, newName)
}

// Remove implements FS.
func (w *Watch) Remove(name string) error {
	defer w.begin(numRemove, &name).End()
	return w.fs.Remove(name)
}

// RemoveAll implements FS. It may take longer than other calls.
func (w *Watch) RemoveAll(name string) error {
	defer w.begin(numRemoveAll, &name).End()
	return w.fs.RemoveAll(name)
}

// ReadDir implements FS.
func (w *Watch) ReadDir(name string) ([]fs.DirEntry, error) {
	defer w.begin(numReadDir, &name).End()
	return w.fs.ReadDir(name)
}

// Stat implements FS.
func (w *Watch) Stat(name string) (fs.FileInfo, error) {
	defer w.begin(numStat, &name).End()
	return w.fs.Stat(name)
}

// SyncDir implements FS.
func (w *Watch) SyncDir(dir string) error {
	defer w.begin(numSyncDir, &dir).End()
	return w.fs.SyncDir(dir)
}

// SyncAll implements FS. It may take longer than other calls: it waits for what other
// programs wrote, too.
func (w *Watch) SyncAll(dir string) error {
	defer w.begin(numSyncAll, &dir).End()
	return w.fs.SyncAll(dir)
}

// Lock implements FS.
func (w *Watch) Lock(name string) (io.Closer, error) {
	defer w.begin(numLock, &name).End()
	return w.fs.Lock(name)
}

// Space implements FS.
func (w *Watch) Space(dir string) (total, free uint64, err error) {
	defer w.begin(numFree, &dir).End()
	return w.fs.Space(dir)
}

// BootID implements FS.
func (w *Watch) BootID() string { return w.fs.BootID() }

// watchedFile is an open file of a Watch. Fd is the file's own; see BeginSend.
type watchedFile struct {
	File
	watch *Watch
	name  string // as it was opened
}

func (f *watchedFile) begin(num uint64) Call { return f.watch.begin(num, &f.name) }

func (f *watchedFile) ReadAt(p []byte, off int64) (int, error) {
	c := f.begin(numReadAt)
	n, err := f.File.ReadAt(p, off)
	c.End()
	return n, err
}

func (f *watchedFile) WriteAt(p []byte, off int64) (int, error) {
	c := f.begin(numWriteAt)
	n, err := f.File.WriteAt(p, off)
	c.End()
	return n, err
}

func (f *watchedFile) Write(p []byte) (int, error) {
	defer f.begin(numWrite).End()
	return f.File.Write(p)
}

func (f *watchedFile) Sync() error {
	defer f.begin(numSync).End()
	return f.File.Sync()
}

func (f *watchedFile) Truncate(size int64) error {
	defer f.begin(numTruncate).End()
	return f.File.Truncate(size)
}

func (f *watchedFile) Size() (int64, error) {
	defer f.begin(numSize).End()
	return f.File.Size()
}

func (f *watchedFile) Close() error {
	defer f.begin(numClose).End()
	return f.File.Close()
}
