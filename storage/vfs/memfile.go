package vfs

import (
	"io"
	"io/fs"
	"math/rand"
	"strconv"
	"syscall"
)

// memFile is an open file of Mem.
type memFile struct {
	m        *Mem
	n        *node
	name     string
	writable bool
	closed   bool
}

func (f *memFile) check(op string, write bool) error {
	if f.closed {
		return pathErr(op, f.name, fs.ErrClosed)
	}
	if write && !f.writable {
		return pathErr(op, f.name, syscall.EBADF)
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.RLock()
	defer f.m.mu.RUnlock()
	if err := f.check("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathErr("read", f.name, fs.ErrInvalid)
	}
	if off >= int64(len(f.n.data)) {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return f.writeAt(p, off)
}

func (f *memFile) Write(p []byte) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return f.writeAt(p, int64(len(f.n.data)))
}

func (f *memFile) writeAt(p []byte, off int64) (int, error) {
	if err := f.check("write", true); err != nil {
		return 0, err
	}
	n := len(p)
	if grow := off + int64(n) - int64(len(f.n.data)); f.m.capacity >= 0 && grow > 0 && f.n.links > 0 {
		if over := f.m.used + grow - f.m.capacity; over > 0 {
			n = int(max(int64(n)-over, 0))
		}
	}
	if n > 0 {
		f.m.write(f.n, fileStep{off: off, data: append([]byte(nil), p[:n]...)})
	}
	if n < len(p) {
		return n, pathErr("write", f.name, syscall.ENOSPC)
	}
	return n, nil
}

func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("truncate", true); err != nil {
		return err
	}
	f.m.resize(f.n, size)
	return nil
}

func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("sync", false); err != nil {
		return err
	}
	f.n.sync()
	return nil
}

func (f *memFile) Size() (int64, error) {
	f.m.mu.RLock()
	defer f.m.mu.RUnlock()
	if err := f.check("stat", false); err != nil {
		return 0, err
	}
	return int64(len(f.n.data)), nil
}

func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("close", false); err != nil {
		return err
	}
	f.closed = true
	return nil
}

func (f *memFile) Fd() (uintptr, bool) { return 0, false }

func (m *Mem) write(n *node, s fileStep) {
	before := len(n.data)
	n.data = s.apply(n.data)
	n.pending = append(n.pending, s)
	if n.links > 0 {
		m.used += int64(len(n.data) - before)
	}
}

func (m *Mem) resize(n *node, size int64) { m.write(n, fileStep{off: size}) }

// sync makes the content durable by doing the pending steps on the durable copy.
func (n *node) sync() {
	for _, s := range n.pending {
		n.synced = s.apply(n.synced)
	}
	n.pending = nil
}

// apply returns content after the step; it may reuse content's memory.
func (s fileStep) apply(content []byte) []byte {
	if s.data == nil {
		return resized(content, int(s.off))
	}
	if end := int(s.off) + len(s.data); end > len(content) {
		content = resized(content, end)
	}
	copy(content[s.off:], s.data)
	return content
}

func resized(content []byte, size int) []byte {
	if size <= len(content) {
		return content[:size]
	}
	old := len(content)
	if size <= cap(content) {
		content = content[:size]
		clear(content[old:])
		return content
	}
	grown := make([]byte, size, max(size, 2*old))
	copy(grown, content)
	return grown
}

// ProcessClone returns the file system as the next process finds it after this
// one was killed: everything written is there, locks are free, and the boot id
// is the same. The clone and m share nothing.
func (m *Mem) ProcessClone() *Mem {
	m.mu.RLock()
	defer m.mu.RUnlock()
	c := m.cloner(nil)
	c.keepAll = true
	return c.clone(m.boot)
}

// CrashClone returns the file system as the machine finds it after a power
// failure at this moment: of what was not synced, seed chooses what survives,
// write by write and name by name; a write may be cut anywhere or be replaced by
// zeros. Seed 0 loses all of it. The clone has a new boot id, and shares nothing
// with m.
func (m *Mem) CrashClone(seed int64) *Mem {
	m.mu.Lock()
	m.crashes++
	boot := "boot-" + strconv.FormatInt(m.seed, 10) + "-" + strconv.FormatInt(m.crashes, 10) + "/" + m.boot
	m.mu.Unlock()
	m.mu.RLock()
	defer m.mu.RUnlock()
	if seed == 0 {
		return m.cloner(nil).clone(boot)
	}
	return m.cloner(rand.New(rand.NewSource(seed ^ m.seed<<32))).clone(boot)
}

// cloner copies one state of a Mem; rng nil keeps nothing that was not synced.
type cloner struct {
	m       *Mem
	rng     *rand.Rand
	keep    float64 // the chance of one step to survive, chosen per crash
	keepAll bool
	names   map[*node]map[string]*node // folders as the crash leaves them
	copies  map[*node]*node
}

func (m *Mem) cloner(rng *rand.Rand) *cloner {
	c := &cloner{m: m, rng: rng, names: map[*node]map[string]*node{}, copies: map[*node]*node{}}
	if rng != nil {
		c.keep = []float64{0.2, 0.5, 0.8, 0.95}[rng.Intn(4)]
	}
	return c
}

func (c *cloner) clone(boot string) *Mem {
	for _, op := range c.m.dirOps {
		if c.keepAll || c.rng != nil && c.rng.Float64() < c.keep {
			op.apply(c.namesOf)
		}
	}
	out := &Mem{locks: map[string]bool{}, capacity: c.m.capacity, boot: boot, seed: c.m.seed}
	out.root = c.copyNode(c.m.root)
	for _, n := range c.copies {
		if !n.dir {
			out.used += int64(len(n.data))
		}
	}
	return out
}

// namesOf returns the crash's own copy of a folder's names.
func (c *cloner) namesOf(dir *node) map[string]*node {
	names, ok := c.names[dir]
	if !ok {
		names = make(map[string]*node, len(dir.durable))
		for name, n := range dir.durable {
			names[name] = n
		}
		c.names[dir] = names
	}
	return names
}

func (c *cloner) copyNode(n *node) *node {
	if done := c.copies[n]; done != nil {
		done.links++
		return done
	}
	out := &node{dir: n.dir, links: 1}
	c.copies[n] = out
	if !n.dir {
		out.data = c.content(n)
		out.synced = append([]byte(nil), out.data...)
		return out
	}
	out.entries, out.durable = map[string]*node{}, map[string]*node{}
	names := c.namesOf(n)
	for _, name := range sortedNames(names) {
		child := c.copyNode(names[name])
		out.entries[name], out.durable[name] = child, child
	}
	return out
}

// content returns what the crash leaves of a file.
func (c *cloner) content(n *node) []byte {
	if c.keepAll {
		return append([]byte(nil), n.data...)
	}
	content := append([]byte(nil), n.synced...)
	if c.rng == nil {
		return content
	}
	for _, s := range n.pending {
		switch {
		case c.rng.Float64() < c.keep:
			content = s.apply(content)
		case s.data == nil: // a change of size happens or does not
		case c.rng.Intn(3) == 0: // torn: the first part arrived
			content = fileStep{off: s.off, data: s.data[:c.rng.Intn(len(s.data)+1)]}.apply(content)
		case c.rng.Intn(2) == 0: // the size arrived, the bytes did not
			if end := int(s.off) + len(s.data); end > len(content) {
				content = resized(content, end)
			}
		}
	}
	return content
}
