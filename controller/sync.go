package controller

import (
	"context"
	"sync"
)

// Sync returns when the local Image holds everything that had been decided when it was called.
// The controller that says how far that is has verified its leadership since: one that was
// deposed, and a node that only such a one answers, waits in vain.
//
// A session does not tell as much. It says that its broker has not been silent for long enough to be
// replaced for that; a broker that lives is replaced at once where its port refuses, and slots
// move between brokers that live.
func (n *Node) Sync(ctx context.Context) error {
	s, first := n.syncs.join()
	if first {
		n.goFunc(n.syncs.run) // ends when nobody waits, or with the node
	}
	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return ctx.Err()
	case <-n.ctx.Done():
		return ErrClosed
	}
}

// syncs has those who wait at the same time share a call. Who comes while one is on its way waits
// for the next: what that one will say may have been true before, and not be any more.
type syncs struct {
	n *Node

	mu   sync.Mutex
	next *sharedSync // not begun; nil when nobody waits for it
	busy bool        // run is on its way
}

// sharedSync is one call and those who wait for it.
type sharedSync struct {
	done chan struct{}
	err  error // set before done closes
}

// join returns the next call that begins, and whether the caller has to start run.
func (s *syncs) join() (next *sharedSync, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = &sharedSync{done: make(chan struct{})}
	}
	first = !s.busy
	s.busy = true
	return s.next, first
}

// begin takes the next call; nil when nobody waits for one.
func (s *syncs) begin() *sharedSync {
	s.mu.Lock()
	defer s.mu.Unlock()
	cur := s.next
	s.next, s.busy = nil, cur != nil
	return cur
}

// run makes one call after the other while somebody waits.
func (s *syncs) run() {
	for cur := s.begin(); cur != nil; cur = s.begin() {
		cur.err = s.n.syncOnce()
		close(cur.done)
	}
}

// syncOnce asks the controller how far it is, and waits until the local Image is there.
func (n *Node) syncOnce() error {
	ctx, cancel := n.bounded(n.ctx)
	defer cancel()
	rep, err := n.call(ctx, &syncRequest{})
	if err != nil {
		return err
	}
	return n.machine.wait(ctx, rep.(*indexReply).index)
}
