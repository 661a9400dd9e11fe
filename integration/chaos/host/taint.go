package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Taint is a folder in front of a host's own, by FUSE, that passes every call on
// unless its Hook has something else in mind.
type Taint struct {
	mount, below string
	dev          *os.File
	serving      sync.WaitGroup

	mu    sync.Mutex
	hook  Hook
	nodes map[uint64]*inode
	ids   map[string]uint64 // of the names that exist, as far as the kernel has asked
	last  uint64            // id given
	files map[uint64]*os.File
	opens uint64 // handles given
}

// Hook is asked before a call that changes or reads a file: "write", "sync", "read",
// "rename", "create" or "remove", with the path within the folder. An error is the
// call's; a hook that waits is a disk that hangs.
type Hook func(op, path string) error

// inode is a file as the kernel knows it. A name that is used again is another one.
type inode struct {
	path string   // "" when it has been removed
	file *os.File // the newest that is open
}

const (
	fuseRoot     = 1
	fuseMaxWrite = 128 << 10
)

// newTaint mounts the folder below at mount.
func newTaint(below, mount string) (*Taint, error) {
	if err := os.MkdirAll(mount, 0o755); err != nil {
		return nil, err
	}
	// The descriptor is in blocking mode, so that reading it needs no poller.
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/fuse: %w", err)
	}
	t := &Taint{mount: mount, below: below, dev: os.NewFile(uintptr(fd), "/dev/fuse"), nodes: map[uint64]*inode{fuseRoot: {path: "."}},
		ids: map[string]uint64{".": fuseRoot}, last: fuseRoot, files: map[uint64]*os.File{}}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	if err := unix.Mount("weir-taint", mount, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return nil, errors.Join(fmt.Errorf("mount %s: %w", mount, err), t.dev.Close())
	}
	t.serving.Add(1)
	go t.serve()
	return t, nil
}

// Set makes hook the one that is asked; nil passes everything on.
func (t *Taint) Set(hook Hook) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hook = hook
}

// Close takes the mount away. Hooks that wait must have been let go.
func (t *Taint) Close() error {
	err := unix.Unmount(t.mount, unix.MNT_DETACH)
	t.serving.Wait()
	for _, f := range t.files {
		f.Close()
	}
	return errors.Join(err, t.dev.Close())
}

// ask asks the hook.
func (t *Taint) ask(op, path string) error {
	t.mu.Lock()
	hook := t.hook
	t.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(op, path)
}

// path is the path of a node within the folder.
func (t *Taint) path(node uint64) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[node]
	if n == nil || n.path == "" {
		return "", unix.ENOENT
	}
	return n.path, nil
}

func (t *Taint) real(path string) string { return filepath.Join(t.below, path) }

// child is the path of a name in a node.
func (t *Taint) child(parent uint64, name string) (string, error) {
	p, err := t.path(parent)
	return filepath.Join(p, name), err
}

// id is the node of a path that exists.
func (t *Taint) id(path string) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if id, ok := t.ids[path]; ok {
		return id
	}
	t.last++
	t.ids[path], t.nodes[t.last] = t.last, &inode{path: path}
	return t.last
}

// forget takes a name away from its node.
func (t *Taint) forget(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetLocked(path)
}

func (t *Taint) forgetLocked(path string) {
	if id, ok := t.ids[path]; ok {
		t.nodes[id].path = ""
		delete(t.ids, path)
	}
}

// moved follows a rename, of a folder with all that is in it.
func (t *Taint) moved(from, to string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetLocked(to)
	for path, id := range t.ids {
		rest, inside := strings.CutPrefix(path, from+"/")
		switch {
		case path == from:
			delete(t.ids, path)
			t.ids[to], t.nodes[id].path = id, to
		case inside:
			delete(t.ids, path)
			path = filepath.Join(to, rest)
			t.ids[path], t.nodes[id].path = id, path
		}
	}
}

// keep gives an open file a handle.
func (t *Taint) keep(node uint64, f *os.File) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.opens++
	t.files[t.opens] = f
	if n := t.nodes[node]; n != nil {
		n.file = f
	}
	return t.opens
}

// file is the open file of a handle and its node's path, "" after it was removed.
func (t *Taint) file(handle, node uint64) (*os.File, string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.files[handle]
	if f == nil {
		return nil, "", unix.EBADF
	}
	if n := t.nodes[node]; n != nil {
		return f, n.path, nil
	}
	return f, "", nil
}

func (t *Taint) release(handle, node uint64) {
	t.mu.Lock()
	f := t.files[handle]
	delete(t.files, handle)
	if n := t.nodes[node]; n != nil && n.file == f {
		n.file = nil
	}
	t.mu.Unlock()
	if f != nil {
		f.Close()
	}
}

// stat describes a node, also one whose name is gone while it is open.
func (t *Taint) stat(node uint64) (unix.Stat_t, error) {
	var st unix.Stat_t
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[node]
	switch {
	case n == nil:
		return st, unix.ENOENT
	case n.path != "":
		return st, unix.Lstat(t.real(n.path), &st)
	case n.file != nil:
		return st, unix.Fstat(int(n.file.Fd()), &st)
	}
	return st, unix.ENOENT
}

// Taint restarts the host's process with a Taint in front of its folder, and Clean
// without. The process must run, and is stopped in an orderly way.
func (h *Host) Taint() error {
	if err := h.Stop(); err != nil {
		return err
	}
	t, err := newTaint(filepath.Join(h.Dir, "disk"), filepath.Join(h.Dir, "tainted"))
	if err != nil {
		return err
	}
	h.taint = t
	return h.Start()
}

// Errors makes hook the one that decides about the calls of the host's process.
func (h *Host) Errors(hook Hook) {
	if h.taint != nil {
		h.taint.Set(hook)
	}
}

// Clean ends the host's process, takes the Taint away and starts the process.
func (h *Host) Clean() error {
	if h.taint == nil {
		return nil
	}
	h.taint.Set(nil)
	err := h.Kill()
	err = errors.Join(err, h.taint.Close())
	h.taint = nil
	return errors.Join(err, h.Start())
}
