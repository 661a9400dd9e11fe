package vfs

import (
	"io"
	"io/fs"
	"os"
	"strings"
)

const (
	readOnly   = os.O_RDONLY
	createFlag = os.O_CREATE
	truncFlag  = os.O_TRUNC
	exclFlag   = os.O_EXCL
	writeFlags = os.O_WRONLY | os.O_RDWR
)

// osFS is the real file system.
type osFS struct{}

// OS returns the file system of the operating system.
func OS() FS { return osFS{} }

func (osFS) Open(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Mkdir(name string, perm fs.FileMode) error    { return os.Mkdir(name, perm) }
func (osFS) MkdirAll(name string, perm fs.FileMode) error { return os.MkdirAll(name, perm) }
func (osFS) Rename(oldName, newName string) error         { return os.Rename(oldName, newName) }
func (osFS) Remove(name string) error                     { return os.Remove(name) }
func (osFS) RemoveAll(name string) error                  { return os.RemoveAll(name) }
func (osFS) ReadDir(name string) ([]fs.DirEntry, error)   { return os.ReadDir(name) }
func (osFS) Stat(name string) (fs.FileInfo, error)        { return os.Stat(name) }

// SyncDir is an fsync of the folder; a file system that cannot do that says so
// with an error, since durability of names would be lost silently otherwise.
func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if e := d.Close(); err == nil {
		err = e
	}
	return err
}

func (osFS) BootID() string {
	p, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(p))
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// osFile is a file of the operating system.
type osFile struct{ *os.File }

func (f osFile) Write(p []byte) (int, error) {
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	return f.WriteAt(p, size)
}

func (f osFile) Sync() error { return syncData(f.File) }

func (f osFile) Size() (int64, error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

func (f osFile) Fd() (uintptr, bool) { return f.File.Fd(), true }
