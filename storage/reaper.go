package storage

import "sync"

// reaper is the list of files and folders to be removed, by a goroutine of its
// own where there is one: removing a large file can take the disk a while, and
// whoever gives up the last claim on it is a reader that must not wait.
type reaper struct {
	mu    sync.Mutex
	paths []string      // guarded by mu
	wake  chan struct{} // of capacity 1: there is something to do
}

func (r *reaper) add(path string) {
	r.mu.Lock()
	r.paths = append(r.paths, path)
	r.mu.Unlock()
	r.signal()
}

func (r *reaper) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *reaper) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	paths := r.paths
	r.paths = nil
	return paths
}

// reap removes what is on the list. What cannot be removed now is found again
// when the folder is opened.
func (d *Dir) reap() {
	for _, path := range d.reaper.take() {
		if err := d.fs.RemoveAll(path); err != nil {
			d.o.Logger.Warn("cannot remove deleted data; it is tried again after a restart", "path", path, "error", err)
		}
	}
}
