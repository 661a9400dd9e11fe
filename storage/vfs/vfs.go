package vfs

import (
	"errors"
	"io"
	"io/fs"
)

// ErrLocked is returned by FS.Lock when another process holds the lock.
var ErrLocked = errors.New("locked by another process")

// FS is a file system. Names are slash-separated paths as os takes them, and
// errors can be told apart with errors.Is (fs.ErrNotExist, fs.ErrExist,
// syscall.ENOSPC and so on) whatever the implementation.
type FS interface {
	// Open opens a file with the flags of os.OpenFile.
	Open(name string, flag int, perm fs.FileMode) (File, error)
	// Mkdir makes one folder; its parent must exist.
	Mkdir(name string, perm fs.FileMode) error
	// MkdirAll makes a folder and all that lead to it.
	MkdirAll(name string, perm fs.FileMode) error
	// Rename replaces newName by oldName atomically.
	Rename(oldName, newName string) error
	// Remove removes a file or an empty folder.
	Remove(name string) error
	// RemoveAll removes a folder with all it holds; a missing one is no error.
	RemoveAll(name string) error
	// ReadDir lists a folder sorted by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	// Stat describes a file or folder.
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the names in a folder durable.
	SyncDir(dir string) error
	// SyncAll makes everything on the file system that holds dir durable.
	SyncAll(dir string) error
	// Lock takes an exclusive lock on a file, creating it, until the closer is
	// closed or the process ends. It does not wait: ErrLocked.
	Lock(name string) (io.Closer, error)
	// Space returns the size in bytes of the volume that holds dir, and how many of
	// them can still be written.
	Space(dir string) (total, free uint64, err error)
	// BootID names the present run of the kernel; empty when it is unknown. As
	// long as it stays the same, written bytes that were not synced are still there.
	BootID() string
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	// Write appends at the end of the file.
	io.Writer
	io.Closer
	// Sync makes content and size durable, but not the name.
	Sync() error
	// Truncate changes the size.
	Truncate(size int64) error
	// Size returns the present size.
	Size() (int64, error)
	// Fd returns the descriptor for sendfile; false when there is none and the
	// caller must copy.
	Fd() (uintptr, bool)
}

// ReadFile returns the whole content of a file.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.Open(name, readOnly, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	p := make([]byte, size)
	n, err := f.ReadAt(p, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return p[:n], nil
}
