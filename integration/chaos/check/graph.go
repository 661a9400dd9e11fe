package check

import (
	"math"
	"slices"
	"sort"

	"github.com/weirmq/weir/integration/chaos/history"
)

// edges is a set of kinds of edges.
type edges uint8

const (
	edgeWW      edges = 1 << iota // one wrote right before the other
	edgeWR                        // one read what the other wrote
	edgeProcess                   // one process did both, one after the other
	edgeTime                      // one completed before the other began
	edgeNone    edges = 0
	edgeAll           = edgeWW | edgeWR | edgeProcess | edgeTime
)

func (e edges) String() string {
	switch e {
	case edgeWW:
		return "written before"
	case edgeWR:
		return "read by"
	case edgeProcess:
		return "same process"
	case edgeTime:
		return "completed before"
	}
	return ""
}

// graph is what had to come before what. Its nodes are the operations and, above
// them, one for each completion in order of time; its edges lead from a node to those
// before it and are found when asked for.
type graph struct {
	a    *analysis
	ops  uint32
	done []uint32 // ok operations by completion
}

func newGraph(a *analysis) *graph {
	g := &graph{a: a, ops: a.ops.len()}
	for i := range g.ops {
		if a.ops.at(i).outcome == history.OK {
			g.done = append(g.done, i)
		}
	}
	slices.SortStableFunc(g.done, func(x, y uint32) int {
		return int(min(max(a.ops.at(x).complete-a.ops.at(y).complete, -1), 1))
	})
	return g
}

func (g *graph) size() uint32 { return g.ops + uint32(len(g.done)) }

// counts tells whether an operation happened.
func (g *graph) counts(i uint32) bool {
	op := g.a.ops.at(i)
	return op.outcome == history.OK || op.committed
}

// cursor is a place in the list of a node's edges.
type cursor struct {
	stage edges // the kind of edge, edgeNone before the first
	i, j  uint32
}

// next is the node at the other end of the next edge of some kinds, and its kind.
// The last is followed by ok = false.
func (g *graph) next(v uint32, c *cursor, kinds edges) (w uint32, kind edges, ok bool) {
	if v >= g.ops {
		return g.earlier(v-g.ops, c)
	}
	if !g.counts(v) {
		return 0, 0, false
	}
	for {
		switch {
		case c.stage == edgeNone:
			g.enter(v, c, edgeWW)
		case c.stage > edgeTime:
			return 0, 0, false
		}
		if kinds&c.stage != 0 {
			if w, ok = g.step(v, c); ok {
				return w, c.stage, true
			}
		}
		g.enter(v, c, c.stage<<1)
	}
}

// enter puts the cursor before the edges of a kind.
func (g *graph) enter(v uint32, c *cursor, stage edges) {
	*c = cursor{stage: stage}
	switch stage {
	case edgeWW:
		c.i = g.a.ops.at(v).sends
	case edgeWR:
		c.i = g.a.ops.at(v).ranges
	case edgeProcess:
		c.i, c.j = g.a.ops.at(v).prev, math.MaxUint32
	}
}

func (g *graph) step(v uint32, c *cursor) (uint32, bool) {
	switch c.stage {
	case edgeWW:
		return g.written(v, c)
	case edgeWR:
		return g.read(v, c)
	case edgeProcess:
		return g.sameProcess(v, c)
	default:
		return g.completed(v, c)
	}
}

// earlier are the edges of the nth completion: the one before it and its operation.
func (g *graph) earlier(n uint32, c *cursor) (uint32, edges, bool) {
	c.i++
	switch {
	case c.i == 1:
		return g.done[n], edgeTime, true
	case c.i == 2 && n > 0:
		return g.ops + n - 1, edgeTime, true
	}
	return 0, 0, false
}

// written are the writers of the records right before those that v wrote.
func (g *graph) written(v uint32, c *cursor) (uint32, bool) {
	_, to := g.a.sendsOf(v)
	for c.i < to {
		e := g.a.entries.at(*g.a.sends.at(c.i))
		c.i++
		if e.pos < 2 {
			continue
		}
		if w, ok := g.writer(g.a.keys[e.key].order[e.pos-2], v); ok {
			return w, true
		}
	}
	return 0, false
}

// writer is who wrote an entry, if that is another than v and happened.
func (g *graph) writer(entry, v uint32) (uint32, bool) {
	w := g.a.entries.at(entry).writer
	return w - 1, w != 0 && w-1 != v && g.counts(w-1)
}

// read are the writers of what v read.
func (g *graph) read(v uint32, c *cursor) (uint32, bool) {
	_, to := g.a.rangesOf(v)
	for c.i < to {
		r := g.a.ranges.at(c.i)
		if c.j == r.count {
			c.i, c.j = c.i+1, 0
			continue
		}
		k := g.a.keys[r.key]
		entry := k.at(r.from+int64(c.j)) - 1
		c.j++
		if w, ok := g.writer(entry, v); ok {
			return w, true
		}
	}
	return 0, false
}

// sameProcess are the operations of v's process that were over when v began, back to
// one before which all others were over. In c.j is the index, from 1, of the one that
// began first.
func (g *graph) sameProcess(v uint32, c *cursor) (uint32, bool) {
	begin := g.a.ops.at(v).invoke
	for c.i != 0 {
		w := c.i - 1
		op := g.a.ops.at(w)
		c.i = op.prev
		if op.outcome != history.OK || op.complete > begin {
			continue
		}
		if c.j != math.MaxUint32 && op.complete <= g.a.ops.at(c.j-1).invoke {
			c.i = 0
			return 0, false
		}
		if c.j == math.MaxUint32 || op.invoke < g.a.ops.at(c.j-1).invoke {
			c.j = w + 1
		}
		return w, true
	}
	return 0, false
}

// completed is the last completion before v began.
func (g *graph) completed(v uint32, c *cursor) (uint32, bool) {
	if c.i > 0 {
		return 0, false
	}
	c.i++
	begin := g.a.ops.at(v).invoke
	n := sort.Search(len(g.done), func(i int) bool { return g.a.ops.at(g.done[i]).complete >= begin })
	return g.ops + uint32(n) - 1, n > 0
}
