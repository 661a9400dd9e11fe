package broker

import (
	"context"
	"sync"
)

// budget is the process-wide count of bytes that requests may hold between the
// moment their length is read and the moment they are done with.
//
// Problem: frames are read in growing steps, so a connection holds part of what
// it needs while it waits for the rest; with a plain semaphore a crowd of half
// read frames could hold everything and wait for each other for ever.
//
// Rule: waiters are served in order, and when the bytes are used up exactly one
// lease, the filling one, may overdraw until its frame is whole. Then its
// request runs, ends, and gives everything back, so somebody always advances.
// The next lease may overdraw only after the debt is paid: no more than the size of the budget
// plus one request is ever held.
type budget struct {
	mu      sync.Mutex
	free    int64           // guarded by mu; below zero while a lease overdraws
	filling *lease          // guarded by mu; the one lease that may overdraw
	waiters []*budgetWaiter // guarded by mu; first come, first served
}

// budgetWaiter is one lease that waits for n more bytes; ready is closed by the grant.
type budgetWaiter struct {
	l     *lease
	n     int64
	ready chan struct{}
}

func newBudget(sizeBytes int64) *budget {
	return &budget{free: sizeBytes}
}

// lease is what one request holds of the budget. It belongs to one goroutine at
// a time; the zero lease of a budget holds nothing.
type lease struct {
	b    *budget
	held int64
}

// grow adds n bytes to what l holds, and waits for them if need be.
func (l *lease) grow(ctx context.Context, n int64) error {
	b := l.b
	b.mu.Lock()
	if len(b.waiters) == 0 && b.mayTakeLocked(l, n) || b.filling == l {
		b.takeLocked(l, n)
		b.mu.Unlock()
		return nil
	}
	w := &budgetWaiter{l: l, n: n, ready: make(chan struct{})}
	b.waiters = append(b.waiters, w)
	b.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		return b.abandon(w, ctx.Err())
	}
}

// filled says that l's frame is whole: it must not overdraw any further.
func (l *lease) filled() {
	b := l.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.filling == l {
		b.filling = nil
		b.grantLocked()
	}
}

// release gives back all that l holds. Releasing twice is harmless.
func (l *lease) release() {
	if l.b == nil {
		return
	}
	b := l.b
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += l.held
	l.held = 0
	if b.filling == l {
		b.filling = nil
	}
	b.grantLocked()
}

// unused is the number of bytes that nobody holds.
func (b *budget) unused() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.free
}

func (b *budget) mayTakeLocked(l *lease, n int64) bool {
	return b.free >= n || b.filling == l || b.filling == nil && b.free >= 0
}

func (b *budget) takeLocked(l *lease, n int64) {
	if b.free < n {
		b.filling = l
	}
	b.free -= n
	l.held += n
}

// grantLocked serves the waiters in order, as far as the bytes go.
func (b *budget) grantLocked() {
	for len(b.waiters) > 0 {
		w := b.waiters[0]
		if !b.mayTakeLocked(w.l, w.n) {
			return
		}
		b.waiters[0] = nil
		b.waiters = b.waiters[1:]
		b.takeLocked(w.l, w.n)
		close(w.ready)
	}
	b.waiters = nil
}

// abandon takes w out of the line. A grant that came first stands; the caller
// releases the lease in either case.
func (b *budget) abandon(w *budgetWaiter, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, other := range b.waiters {
		if other == w {
			b.waiters = append(b.waiters[:i], b.waiters[i+1:]...)
			b.grantLocked()
			return err
		}
	}
	return err
}
