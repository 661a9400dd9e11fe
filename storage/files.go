package storage

import (
	"fmt"
	"sync"

	"github.com/weirmq/weir/storage/vfs"
)

// handle is a file that can be opened when it is needed and closed when it is
// not: the descriptor cache decides. All fields belong to the cache's lock.
type handle struct {
	f          vfs.File
	holds      int     // uses in progress; a descriptor with any is never closed
	closed     bool    // the file is on its way out: close at the last release
	prev, next *handle // neighbours in the list of idle descriptors
}

// opener opens the file behind a handle.
type opener interface{ open() (vfs.File, error) }

// fileCache keeps descriptors open up to a number. Readers and writers have a
// cache each, so that reading a thousand old segments cannot take the
// descriptors that appends need.
type fileCache struct {
	max int

	mu   sync.Mutex
	open int    // descriptors open now
	idle handle // ring of those without a hold: idle.next was used last
}

func newFileCache(most int) *fileCache {
	c := &fileCache{max: max(most, 1)}
	c.idle.prev, c.idle.next = &c.idle, &c.idle
	return c
}

func (h *handle) unlink() {
	if h.prev != nil {
		h.prev.next, h.next.prev = h.next, h.prev
		h.prev, h.next = nil, nil
	}
}

// acquire returns the open file and keeps it open until release.
func (c *fileCache) acquire(h *handle, o opener) (vfs.File, error) {
	c.mu.Lock()
	h.holds++
	h.unlink()
	if f := h.f; f != nil {
		c.mu.Unlock()
		return f, nil
	}
	c.mu.Unlock()

	f, err := o.open()
	if err != nil {
		c.mu.Lock()
		h.holds--
		c.mu.Unlock()
		return nil, err
	}
	return c.adopt(h, f), nil
}

// adopt stores the file that a holder opened. When another holder was faster,
// its file is the one, and this one is closed.
func (c *fileCache) adopt(h *handle, f vfs.File) vfs.File {
	c.mu.Lock()
	if first := h.f; first != nil {
		c.mu.Unlock()
		f.Close()
		return first
	}
	h.f = f
	c.open++
	victim := c.victim()
	c.mu.Unlock()
	if victim != nil {
		victim.Close()
	}
	return f
}

// acquireNew is acquire for a file that the caller has just created.
func (c *fileCache) acquireNew(h *handle, f vfs.File) {
	c.mu.Lock()
	h.holds++
	c.mu.Unlock()
	c.adopt(h, f)
}

// release ends one use.
func (c *fileCache) release(h *handle) {
	c.mu.Lock()
	h.holds--
	if h.holds < 0 {
		panic(fmt.Sprintf("BUG: file released %d times too often", -h.holds))
	}
	var victim vfs.File
	if h.holds == 0 && h.f != nil {
		if h.closed {
			victim = c.take(h)
		} else {
			h.next, h.prev = c.idle.next, &c.idle
			h.next.prev, h.prev.next = h, h
			victim = c.victim()
		}
	}
	c.mu.Unlock()
	if victim != nil {
		victim.Close()
	}
}

// drop closes the file now, or at its last release. Nobody acquires it after.
func (c *fileCache) drop(h *handle) {
	c.mu.Lock()
	h.closed = true
	var victim vfs.File
	if h.holds == 0 && h.f != nil {
		victim = c.take(h)
	}
	c.mu.Unlock()
	if victim != nil {
		victim.Close()
	}
}

// take takes the file out of its handle; the lock is held.
func (c *fileCache) take(h *handle) vfs.File {
	f := h.f
	h.unlink()
	h.f = nil
	c.open--
	return f
}

// victim takes one idle file out when too many are open; the lock is held.
func (c *fileCache) victim() vfs.File {
	if c.open <= c.max || c.idle.prev == &c.idle {
		return nil
	}
	return c.take(c.idle.prev)
}

// crowded tells whether all descriptors are in use and one more would be too
// many: writers then ask for a flush, which lets go of theirs.
func (c *fileCache) crowded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open >= c.max && c.idle.prev == &c.idle
}

// openCount is how many descriptors are open.
func (c *fileCache) openCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}
