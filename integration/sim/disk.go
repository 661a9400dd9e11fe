package sim

import (
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/weirmq/weir/storage/vfs"
)

// stopped is panicked with when a node's process or machine ends in the middle
// of its work on files.
type stopped struct{ power bool }

// disk is a node's file system: vfs.Mem with faults, and with a look at which
// bytes of which file were handed out.
type disk struct {
	*vfs.Mem
	// stopAfter is how many more calls that change something are made before the
	// process (or, with power, the machine) ends; negative: none such is planned.
	stopAfter int
	power     bool
	torn      int // how many bytes of a write are made before the process ends there
	// failAfter is the same for an input/output error.
	failAfter int
	files     map[string]*inode // .log files by path
	w         *world
}

// inode is one file whatever its name.
type inode struct {
	served int64 // end of what a reader has got
}

func newDisk(w *world, m *vfs.Mem) *disk {
	return &disk{Mem: m, stopAfter: -1, failAfter: -1, files: map[string]*inode{}, w: w}
}

// turn comes before every call that changes something.
func (d *disk) turn() error {
	if d.stopAfter == 0 {
		panic(stopped{d.power})
	}
	if d.failAfter == 0 {
		d.failAfter = -1
		return syscall.EIO
	}
	d.stopAfter, d.failAfter = max(d.stopAfter-1, -1), max(d.failAfter-1, -1)
	return nil
}

// Open implements vfs.FS.
func (d *disk) Open(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	if flag&(os.O_CREATE|os.O_TRUNC) != 0 {
		if err := d.turn(); err != nil {
			return nil, err
		}
	}
	f, err := d.Mem.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	i := d.files[name]
	if i == nil || flag&os.O_EXCL != 0 {
		i = &inode{}
		if strings.HasSuffix(name, ".log") {
			d.files[name] = i
		}
	}
	return &diskFile{File: f, d: d, i: i, name: name}, nil
}

// Mkdir implements vfs.FS.
func (d *disk) Mkdir(name string, perm fs.FileMode) error {
	if err := d.turn(); err != nil {
		return err
	}
	return d.Mem.Mkdir(name, perm)
}

// MkdirAll implements vfs.FS.
func (d *disk) MkdirAll(name string, perm fs.FileMode) error {
	if err := d.turn(); err != nil {
		return err
	}
	return d.Mem.MkdirAll(name, perm)
}

// Rename implements vfs.FS.
func (d *disk) Rename(oldName, newName string) error {
	if err := d.turn(); err != nil {
		return err
	}
	if err := d.Mem.Rename(oldName, newName); err != nil {
		return err
	}
	moved := map[string]*inode{}
	for name, i := range d.files {
		if name == oldName || strings.HasPrefix(name, oldName+"/") {
			moved[newName+strings.TrimPrefix(name, oldName)] = i
			delete(d.files, name)
		}
	}
	for name, i := range moved {
		d.files[name] = i
	}
	return nil
}

// Remove implements vfs.FS.
func (d *disk) Remove(name string) error {
	if err := d.turn(); err != nil {
		return err
	}
	if err := d.Mem.Remove(name); err != nil {
		return err
	}
	delete(d.files, name)
	return nil
}

// RemoveAll implements vfs.FS.
func (d *disk) RemoveAll(name string) error {
	if err := d.turn(); err != nil {
		return err
	}
	return d.Mem.RemoveAll(name)
}

// SyncDir implements vfs.FS.
func (d *disk) SyncDir(name string) error {
	if err := d.turn(); err != nil {
		return err
	}
	return d.Mem.SyncDir(name)
}

// SyncAll implements vfs.FS.
func (d *disk) SyncAll(name string) error {
	if err := d.turn(); err != nil {
		return err
	}
	return d.Mem.SyncAll(name)
}

// diskFile is an open file.
type diskFile struct {
	vfs.File
	d    *disk
	i    *inode
	name string
}

// WriteAt implements vfs.File. Bytes that a reader has got may not be written again.
func (f *diskFile) WriteAt(p []byte, off int64) (int, error) {
	f.check(off)
	if f.d.stopAfter == 0 && f.d.torn > 0 {
		_, _ = f.File.WriteAt(p[:min(f.d.torn, len(p))], off)
	}
	if err := f.d.turn(); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

// Write implements vfs.File.
func (f *diskFile) Write(p []byte) (int, error) {
	if err := f.d.turn(); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

func (f *diskFile) check(off int64) {
	if off < f.i.served {
		f.d.w.fail("no position twice", "%s is written at %d again, served to %d", f.name, off, f.i.served)
	}
}

// Sync implements vfs.File.
func (f *diskFile) Sync() error {
	if err := f.d.turn(); err != nil {
		return err
	}
	return f.File.Sync()
}

// Truncate implements vfs.File.
func (f *diskFile) Truncate(size int64) error {
	if err := f.d.turn(); err != nil {
		return err
	}
	return f.File.Truncate(size)
}
