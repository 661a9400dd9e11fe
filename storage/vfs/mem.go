package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mem is a file system in memory that can be crashed. It keeps two states: what
// its users see, and what is sure to survive a power failure; the difference is
// a list of single steps, of which a crash keeps some.
type Mem struct {
	mu       sync.RWMutex
	root     *node
	dirOps   []dirOp // changes of names since the last SyncDir of their folder, oldest first
	locks    map[string]bool
	used     int64
	capacity int64 // bytes that files may hold together; negative is no limit
	boot     string
	crashes  int64
	seed     int64
}

// node is a file or a folder; it lives as long as a name or a handle leads to it.
type node struct {
	dir bool

	data    []byte     // what readers see
	synced  []byte     // what survives any crash
	pending []fileStep // what happened since the last Sync, oldest first
	links   int        // names that lead here in the visible state

	entries map[string]*node // names as users see them
	durable map[string]*node // names that survive any crash
}

// fileStep is one change of a file: a write, or a change of size when data is nil.
type fileStep struct {
	off  int64
	data []byte
}

// dirOp is one change of names, atomic in a crash: a rename has two parts.
type dirOp struct{ parts []dirPart }

// dirPart sets or (nil) removes one name in one folder.
type dirPart struct {
	dir  *node
	name string
	to   *node
}

// NewMem returns an empty file system; seed determines what crashes of it keep.
func NewMem(seed int64) *Mem {
	return &Mem{root: newFolder(), locks: map[string]bool{}, capacity: -1, boot: "boot-0", seed: seed}
}

func newFolder() *node {
	return &node{dir: true, entries: map[string]*node{}, durable: map[string]*node{}}
}

// SetCapacity bounds the bytes that all files may hold together; a write past it
// stores what fits and returns ENOSPC. A negative bound is none.
func (m *Mem) SetCapacity(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = n
}

// Used returns the bytes that all files hold together.
func (m *Mem) Used() int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.used
}

func pathErr(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

func split(name string) []string {
	name = strings.Trim(path.Clean("/"+name), "/")
	if name == "" {
		return nil
	}
	return strings.Split(name, "/")
}

// find returns the node of a name, or nil.
func (m *Mem) find(name string) *node {
	n := m.root
	for _, part := range split(name) {
		if n == nil || !n.dir {
			return nil
		}
		n = n.entries[part]
	}
	return n
}

// parent returns the folder that holds name, and the last part of the name.
func (m *Mem) parent(name string) (*node, string, error) {
	parts := split(name)
	if len(parts) == 0 {
		return nil, "", fs.ErrInvalid
	}
	dir := m.find(strings.Join(parts[:len(parts)-1], "/"))
	if dir == nil || !dir.dir {
		return nil, "", fs.ErrNotExist
	}
	return dir, parts[len(parts)-1], nil
}

// change makes one atomic change of names visible and remembers it as not durable.
func (m *Mem) change(parts ...dirPart) {
	for _, p := range parts {
		if old := p.dir.entries[p.name]; old != nil {
			m.unlinked(old)
		}
		if p.to == nil {
			delete(p.dir.entries, p.name)
			continue
		}
		p.dir.entries[p.name] = p.to
		p.to.links++
		if p.to.links == 1 && !p.to.dir {
			m.used += int64(len(p.to.data))
		}
	}
	m.dirOps = append(m.dirOps, dirOp{parts: parts})
}

func (m *Mem) unlinked(n *node) {
	n.links--
	if n.links == 0 && !n.dir {
		m.used -= int64(len(n.data))
	}
}

// Open implements FS.
func (m *Mem) Open(name string, flag int, _ fs.FileMode) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent(name)
	if err != nil {
		return nil, pathErr("open", name, err)
	}
	n := dir.entries[base]
	switch {
	case n == nil && flag&createFlag == 0:
		return nil, pathErr("open", name, fs.ErrNotExist)
	case n != nil && flag&createFlag != 0 && flag&exclFlag != 0:
		return nil, pathErr("open", name, fs.ErrExist)
	case n != nil && n.dir:
		return nil, pathErr("open", name, syscall.EISDIR)
	case n == nil:
		if m.capacity >= 0 && m.used >= m.capacity {
			return nil, pathErr("open", name, syscall.ENOSPC)
		}
		n = &node{}
		m.change(dirPart{dir, base, n})
	}
	if flag&truncFlag != 0 && len(n.data) > 0 {
		m.resize(n, 0)
	}
	return &memFile{m: m, n: n, name: name, writable: flag&writeFlags != 0}, nil
}

// Mkdir implements FS.
func (m *Mem) Mkdir(name string, _ fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent(name)
	if err != nil {
		return pathErr("mkdir", name, err)
	}
	if dir.entries[base] != nil {
		return pathErr("mkdir", name, fs.ErrExist)
	}
	m.change(dirPart{dir, base, newFolder()})
	return nil
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(name string, _ fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir := m.root
	for _, part := range split(name) {
		next := dir.entries[part]
		if next == nil {
			next = newFolder()
			m.change(dirPart{dir, part, next})
		}
		if !next.dir {
			return pathErr("mkdir", name, syscall.ENOTDIR)
		}
		dir = next
	}
	return nil
}

// Rename implements FS.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, oldBase, err := m.parent(oldName)
	if err != nil {
		return pathErr("rename", oldName, err)
	}
	to, newBase, err := m.parent(newName)
	if err != nil {
		return pathErr("rename", newName, err)
	}
	n := from.entries[oldBase]
	if n == nil {
		return pathErr("rename", oldName, fs.ErrNotExist)
	}
	if old := to.entries[newBase]; old == n {
		return nil
	} else if old != nil && (old.dir != n.dir || len(old.entries) > 0) {
		return pathErr("rename", newName, fs.ErrExist)
	}
	m.change(dirPart{to, newBase, n}, dirPart{from, oldBase, nil})
	return nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent(name)
	if err != nil {
		return pathErr("remove", name, err)
	}
	n := dir.entries[base]
	if n == nil {
		return pathErr("remove", name, fs.ErrNotExist)
	}
	if len(n.entries) > 0 {
		return pathErr("remove", name, syscall.ENOTEMPTY)
	}
	m.change(dirPart{dir, base, nil})
	return nil
}

// RemoveAll implements FS.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent(name)
	if err != nil || dir.entries[base] == nil {
		return nil
	}
	m.empty(dir.entries[base])
	m.change(dirPart{dir, base, nil})
	return nil
}

func (m *Mem) empty(n *node) {
	for _, name := range sortedNames(n.entries) {
		m.empty(n.entries[name])
		m.change(dirPart{n, name, nil})
	}
}

func sortedNames(entries map[string]*node) []string {
	names := make([]string, 0, len(entries))
	for name := range entries {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// ReadDir implements FS.
func (m *Mem) ReadDir(name string) ([]fs.DirEntry, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n := m.find(name)
	if n == nil || !n.dir {
		return nil, pathErr("readdir", name, fs.ErrNotExist)
	}
	out := make([]fs.DirEntry, 0, len(n.entries))
	for _, base := range sortedNames(n.entries) {
		out = append(out, fs.FileInfoToDirEntry(infoOf(base, n.entries[base])))
	}
	return out, nil
}

// Stat implements FS.
func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n := m.find(name)
	if n == nil {
		return nil, pathErr("stat", name, fs.ErrNotExist)
	}
	return infoOf(path.Base(path.Clean("/"+name)), n), nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(name)
	if n == nil || !n.dir {
		return pathErr("syncdir", name, fs.ErrNotExist)
	}
	rest := m.dirOps[:0]
	for _, op := range m.dirOps {
		if !op.touches(n) {
			rest = append(rest, op)
			continue
		}
		op.apply(func(d *node) map[string]*node { return d.durable })
	}
	m.dirOps = rest
	return nil
}

func (o dirOp) touches(dir *node) bool {
	for _, p := range o.parts {
		if p.dir == dir {
			return true
		}
	}
	return false
}

func (o dirOp) apply(names func(dir *node) map[string]*node) {
	for _, p := range o.parts {
		if p.to == nil {
			delete(names(p.dir), p.name)
		} else {
			names(p.dir)[p.name] = p.to
		}
	}
}

// SyncAll implements FS.
func (m *Mem) SyncAll(string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, op := range m.dirOps {
		op.apply(func(d *node) map[string]*node { return d.durable })
	}
	m.dirOps = nil
	m.syncTree(m.root)
	return nil
}

func (m *Mem) syncTree(n *node) {
	n.sync()
	for _, child := range n.entries {
		m.syncTree(child)
	}
}

// Lock implements FS.
func (m *Mem) Lock(name string) (io.Closer, error) {
	f, err := m.Open(name, createFlag|writeFlags, 0o644)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := path.Clean("/" + name)
	if m.locks[key] {
		return nil, fmt.Errorf("lock %s: %w", name, ErrLocked)
	}
	m.locks[key] = true
	return &memLock{File: f, m: m, key: key}, nil
}

type memLock struct {
	File
	m   *Mem
	key string
}

func (l *memLock) Close() error {
	l.m.mu.Lock()
	delete(l.m.locks, l.key)
	l.m.mu.Unlock()
	return l.File.Close()
}

// Space implements FS.
func (m *Mem) Space(string) (total, free uint64, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.capacity < 0 {
		return 1 << 41, 1 << 40, nil
	}
	return uint64(m.capacity), uint64(max(m.capacity-m.used, 0)), nil
}

// BootID implements FS.
func (m *Mem) BootID() string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.boot
}

// memInfo describes a node.
type memInfo struct {
	name string
	size int64
	dir  bool
}

func infoOf(name string, n *node) memInfo {
	return memInfo{name: name, size: int64(len(n.data)), dir: n.dir}
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) IsDir() bool        { return i.dir }
func (i memInfo) ModTime() time.Time { return time.Time{} }
func (i memInfo) Sys() any           { return nil }
func (i memInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
