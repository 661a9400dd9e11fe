package vfs

import (
	"errors"
	"io"
	"io/fs"
)

// Op names a call of FS or File for a hook.
type Op string

// The calls that a hook is asked about.
const (
	OpOpen      Op = "open"
	OpCreate    Op = "create" // an open that may create or truncate
	OpMkdir     Op = "mkdir"
	OpRename    Op = "rename"
	OpRemove    Op = "remove"
	OpRemoveAll Op = "removeall"
	OpReadDir   Op = "readdir"
	OpStat      Op = "stat"
	OpSyncDir   Op = "syncdir"
	OpSyncAll   Op = "syncall"
	OpLock      Op = "lock"
	OpFree      Op = "free"
	OpReadAt    Op = "readat"
	OpWriteAt   Op = "writeat"
	OpWrite     Op = "write"
	OpSync      Op = "sync"
	OpTruncate  Op = "truncate"
	OpSize      Op = "size"
	OpClose     Op = "close"
)

// Mutates tells whether the call can change what a crash leaves behind.
func (o Op) Mutates() bool {
	switch o {
	case OpCreate, OpMkdir, OpRename, OpRemove, OpRemoveAll, OpSyncDir, OpSyncAll,
		OpWriteAt, OpWrite, OpSync, OpTruncate:
		return true
	}
	return false
}

// Hook is asked before a call is passed on, with the file's name. An error is
// returned to the caller in place of the call; a hook that blocks is a stall.
// It runs on the caller's goroutine and may be called by many at once.
type Hook func(op Op, name string) error

// Short is an error a Hook can return for a write: the first N bytes are written
// and Err is returned, as a full disk does it.
type Short struct {
	N   int
	Err error
}

func (s *Short) Error() string { return "short write: " + s.Err.Error() }

// Unwrap returns the error that the caller of the write sees.
func (s *Short) Unwrap() error { return s.Err }

// Faulty wraps an FS and asks a hook before every call.
type Faulty struct {
	fs   FS
	hook Hook
}

// NewFaulty returns fsys with hook before every call.
func NewFaulty(fsys FS, hook Hook) *Faulty { return &Faulty{fs: fsys, hook: hook} }

// Open implements FS.
func (f *Faulty) Open(name string, flag int, perm fs.FileMode) (File, error) {
	op := OpOpen
	if flag&(createFlag|truncFlag) != 0 {
		op = OpCreate
	}
	if err := f.hook(op, name); err != nil {
		return nil, err
	}
	file, err := f.fs.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &faultyFile{File: file, name: name, hook: f.hook}, nil
}

// Mkdir implements FS.
func (f *Faulty) Mkdir(name string, perm fs.FileMode) error {
	if err := f.hook(OpMkdir, name); err != nil {
		return err
	}
	return f.fs.Mkdir(name, perm)
}

// MkdirAll implements FS.
func (f *Faulty) MkdirAll(name string, perm fs.FileMode) error {
	if err := f.hook(OpMkdir, name); err != nil {
		return err
	}
	return f.fs.MkdirAll(name, perm)
}

// Rename implements FS; the hook gets the old name.
func (f *Faulty) Rename(oldName, newName string) error {
	if err := f.hook(OpRename, oldName); err != nil {
		return err
	}
	return f.fs.Rename(oldName, newName)
}

// Remove implements FS.
func (f *Faulty) Remove(name string) error {
	if err := f.hook(OpRemove, name); err != nil {
		return err
	}
	return f.fs.Remove(name)
}

// RemoveAll implements FS.
func (f *Faulty) RemoveAll(name string) error {
	if err := f.hook(OpRemoveAll, name); err != nil {
		return err
	}
	return f.fs.RemoveAll(name)
}

// ReadDir implements FS.
func (f *Faulty) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := f.hook(OpReadDir, name); err != nil {
		return nil, err
	}
	return f.fs.ReadDir(name)
}

// Stat implements FS.
func (f *Faulty) Stat(name string) (fs.FileInfo, error) {
	if err := f.hook(OpStat, name); err != nil {
		return nil, err
	}
	return f.fs.Stat(name)
}

// SyncDir implements FS.
func (f *Faulty) SyncDir(dir string) error {
	if err := f.hook(OpSyncDir, dir); err != nil {
		return err
	}
	return f.fs.SyncDir(dir)
}

// SyncAll implements FS.
func (f *Faulty) SyncAll(dir string) error {
	if err := f.hook(OpSyncAll, dir); err != nil {
		return err
	}
	return f.fs.SyncAll(dir)
}

// Lock implements FS.
func (f *Faulty) Lock(name string) (io.Closer, error) {
	if err := f.hook(OpLock, name); err != nil {
		return nil, err
	}
	return f.fs.Lock(name)
}

// Space implements FS.
func (f *Faulty) Space(dir string) (total, free uint64, err error) {
	if err := f.hook(OpFree, dir); err != nil {
		return 0, 0, err
	}
	return f.fs.Space(dir)
}

// BootID implements FS.
func (f *Faulty) BootID() string { return f.fs.BootID() }

// faultyFile asks the hook before every call on an open file.
type faultyFile struct {
	File
	name string
	hook Hook
}

func (f *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.hook(OpReadAt, f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	err := f.hook(OpWriteAt, f.name)
	if s := (*Short)(nil); errors.As(err, &s) {
		n, _ := f.File.WriteAt(p[:min(s.N, len(p))], off)
		return n, s.Err
	}
	if err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *faultyFile) Write(p []byte) (int, error) {
	err := f.hook(OpWrite, f.name)
	if s := (*Short)(nil); errors.As(err, &s) {
		n, _ := f.File.Write(p[:min(s.N, len(p))])
		return n, s.Err
	}
	if err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

func (f *faultyFile) Sync() error {
	if err := f.hook(OpSync, f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *faultyFile) Truncate(size int64) error {
	if err := f.hook(OpTruncate, f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *faultyFile) Size() (int64, error) {
	if err := f.hook(OpSize, f.name); err != nil {
		return 0, err
	}
	return f.File.Size()
}

// Close closes the file whatever the hook says, since a test must not leak
// descriptors, and then reports the hook's error.
func (f *faultyFile) Close() error {
	err := f.hook(OpClose, f.name)
	if e := f.File.Close(); err == nil {
		err = e
	}
	return err
}
