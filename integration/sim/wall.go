package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// Firewalls that refuse: what they stop looks like a process that has ended, and is none.

// drawWalls puts a node behind a firewall now and then in the runs that have a group: whoever
// believes what it refuses replaces a coordinator that goes on serving.
func (p *Plan) drawWalls() {
	if !p.Group {
		return
	}
	r := rand.New(rand.NewPCG(p.Seed, 0x3a11))
	for range 1 + r.IntN(4) {
		at := 4*time.Second + time.Duration(r.Int64N(int64(p.Span-4*time.Second)))
		p.Faults = append(p.Faults, drawFault(r, *p, at, FaultWall))
	}
	slices.SortStableFunc(p.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
}

// wallIn stops all messages between a node and the others. Connections are reset, and new ones
// refused, at both ends at once.
func (w *world) wallIn(n *node, d time.Duration) {
	w.isolate(n, d)
	walls := w.walls // heal replaces it
	walls[n.index]++
	w.after(d, func() { walls[n.index]-- })
	n.walled = w.now + d
	for _, m := range w.nodes {
		if m != n {
			w.resetAll(n, m)
			w.resetAll(m, n)
		}
	}
}

// resetAll ends the connections by which one node follows another, as each end learns of it.
func (w *world) resetAll(from, to *node) {
	for _, s := range from.sources {
		if c := s.conn; c != nil && c.to == to {
			from.do(w.between(0, time.Millisecond), laneControl, c.closeFollower)
		}
	}
	if c := to.feeders[from.index]; c != nil {
		to.do(w.between(0, time.Millisecond), laneControl, c.shut)
	}
}

// walledOff tells whether a dial between two nodes is refused by a firewall.
func (w *world) walledOff(n, m *node) bool {
	return n != m && w.walls[n.index]+w.walls[m.index] > 0
}
