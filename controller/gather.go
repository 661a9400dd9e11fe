package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weirmq/weir/fsm"
)

// gatherInterval is the least time between two entries of proposals.
const gatherInterval = 5 * time.Millisecond

// gatherer makes one entry of what all nodes propose at about the same time. Problem: an entry
// costs every node a write of its log with two syncs, the leader a call and a push of the
// commit index for each follower, and all a new Image for everybody who follows it. That is
// several times what the commands of a usual entry cost, and it is CPU and not time that
// bounds how many there can be.
//
// The first proposal after a while goes at once; what comes within gatherInterval of it goes
// together when that is over. Rejected: waiting for the entry before to be committed, which
// makes a slow disk twice as slow; a delay for all, which the controller's own decisions and
// a quiet cluster would pay too.
type gatherer struct {
	n    *Node
	wake chan struct{} // capacity 1: something waits

	mu      sync.Mutex // leaf; guards what is below
	waiting []*gathered
	closed  bool
}

// gathered is one node's entry on its way into a common one.
type gathered struct {
	entry []byte
	// answer is called once, and does not block.
	answer func(appliedEntry, error)
}

type gatheredOutcome struct {
	applied appliedEntry
	err     error
}

// errGathererClosed is the answer to what was surely not done.
var errGathererClosed = fmt.Errorf("commit an entry: %w: %w", errNotController, ErrClosed)

func newGatherer(n *Node) *gatherer {
	return &gatherer{n: n, wake: make(chan struct{}, 1)}
}

// apply gets a well-formed entry committed, with others, and returns its own results.
func (g *gatherer) apply(ctx context.Context, entry []byte) (appliedEntry, error) {
	done := make(chan gatheredOutcome, 1)
	g.add(&gathered{entry: entry, answer: func(a appliedEntry, err error) { done <- gatheredOutcome{a, err} }})
	select {
	case o := <-done:
		return o.applied, o.err
	case <-ctx.Done():
		return appliedEntry{}, fmt.Errorf("commit an entry: %w: %w", ErrUnknown, ctx.Err())
	}
}

// add has a well-formed entry committed, with others. It does not wait.
func (g *gatherer) add(e *gathered) {
	g.mu.Lock()
	closed := g.closed
	if !closed {
		g.waiting = append(g.waiting, e)
	}
	g.mu.Unlock()
	if closed {
		e.answer(appliedEntry{}, errGathererClosed)
		return
	}
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// run hands entries to Raft until stop closes; then it answers what is left.
func (g *gatherer) run(stop <-chan struct{}) {
	pause := time.NewTimer(gatherInterval)
	defer pause.Stop()
	for {
		select {
		case <-g.wake:
		case <-stop:
			g.close()
			return
		}
		for some := g.take(); len(some) > 0; some = g.take() {
			g.n.goFunc(func() { g.commit(some) })
			pause.Reset(gatherInterval)
			select {
			case <-pause.C:
			case <-stop:
				g.close()
				return
			}
		}
	}
}

// take takes what fits into the next entry.
func (g *gatherer) take() []*gathered {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, size := 0, 0
	for n < len(g.waiting) && (n == 0 || size+len(g.waiting[n].entry) <= entrySizeMax) {
		size += len(g.waiting[n].entry)
		n++
	}
	some := g.waiting[:n:n]
	if g.waiting = g.waiting[n:]; len(g.waiting) == 0 {
		g.waiting = nil
	}
	return some
}

// commit commits one common entry and hands out the results.
func (g *gatherer) commit(some []*gathered) {
	ctx, cancel := context.WithTimeout(g.n.ctx, g.n.cfg.CallTimeout)
	defer cancel()
	entries := make([][]byte, len(some))
	for i, e := range some {
		entries[i] = e.entry
	}
	entry, counts, err := fsm.JoinEntries(entries)
	if err != nil {
		panic(fmt.Sprintf("BUG: join entries that were checked: %v", err))
	}
	a, err := g.n.apply(ctx, entry)
	for i, e := range some {
		own := appliedEntry{}
		if err == nil {
			own = appliedEntry{index: a.index, results: a.results[:counts[i]]}
			a.results = a.results[counts[i]:]
		}
		e.answer(own, err)
	}
}

// close answers what waits, and what comes later: the node is closing.
func (g *gatherer) close() {
	g.mu.Lock()
	g.closed = true
	waiting := g.waiting
	g.waiting = nil
	g.mu.Unlock()
	for _, e := range waiting {
		e.answer(appliedEntry{}, errGathererClosed)
	}
}
