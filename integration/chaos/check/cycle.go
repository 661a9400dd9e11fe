package check

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirmq/weir/integration/chaos/history"
)

// startsMax is from how many nodes of a component a shortest cycle is sought.
const startsMax = 32

// cycleKind is a kind of cycle and the edges it is made of.
type cycleKind struct {
	kind  Kind
	edges edges
}

// ladders are the kinds of cycles, each ladder from the strictest to the loosest: a
// component is reported as the strictest of a ladder. The last ladder is for
// components that neither of the others explains.
func ladders() [3][]cycleKind {
	return [3][]cycleKind{
		{{G0, edgeWW}, {G0Process, edgeWW | edgeProcess}, {G0Realtime, edgeWW | edgeProcess | edgeTime}},
		{{G1c, edgeWR}, {G1cProcess, edgeWR | edgeProcess}, {G1cRealtime, edgeWR | edgeProcess | edgeTime}},
		{{G1cWW, edgeWW | edgeWR}, {G1cWWProcess, edgeWW | edgeWR | edgeProcess}, {G1cWWRealtime, edgeAll}},
	}
}

// cycles looks for operations that each had to come before the other.
func (a *analysis) cycles() {
	g := newGraph(a)
	for _, c := range g.components(nil, edgeAll) {
		known := false
		for i, ladder := range ladders() {
			if i == len(ladders())-1 && known {
				break
			}
			known = a.climb(g, c, ladder) || known
		}
	}
}

// climb reports a component as the strictest kind of a ladder that it holds.
func (a *analysis) climb(g *graph, component []uint32, ladder []cycleKind) bool {
	for _, rung := range ladder {
		found := g.components(component, rung.edges)
		for _, c := range found {
			cycle := g.shortest(c, rung.edges)
			a.add(rung.kind, -int64(len(cycle)), func() Anomaly {
				out := Anomaly{Offset: history.NoOffset, Cycle: cycle, Text: fmt.Sprintf("%d operations, each before the next, the last before the first", len(cycle))}
				for _, s := range cycle {
					out.At = max(out.At, s.Invoke+s.Took)
				}
				return out
			})
		}
		if len(found) > 0 {
			return true
		}
	}
	return false
}

// tarjan is the search for strongly connected components, without recursion.
type tarjan struct {
	g     *graph
	kinds edges
	index []uint32 // order of the visit, from 1; over once its component is complete
	low   []uint32
	next  uint32
	stack []uint32
	calls []call
	local map[uint32]uint32 // of a search within some nodes: their numbers
	out   [][]uint32
}

type call struct {
	node uint32
	at   cursor
}

const over = math.MaxUint32

// components are the sets of more than one node that reach each other, among some
// nodes or, for nil, all.
func (g *graph) components(among []uint32, kinds edges) [][]uint32 {
	t := &tarjan{g: g, kinds: kinds}
	n := g.size()
	if among != nil {
		n = uint32(len(among))
		t.local = make(map[uint32]uint32, n)
		for i, v := range among {
			t.local[v] = uint32(i)
		}
	}
	t.index, t.low = make([]uint32, n), make([]uint32, n)
	if among == nil {
		for v := range n {
			t.visit(v)
		}
	}
	for _, v := range among {
		t.visit(v)
	}
	return t.out
}

// number is a node's place in the tables.
func (t *tarjan) number(v uint32) (uint32, bool) {
	if t.local == nil {
		return v, true
	}
	n, ok := t.local[v]
	return n, ok
}

func (t *tarjan) enter(v, n uint32) {
	t.next++
	t.index[n], t.low[n] = t.next, t.next
	t.stack = append(t.stack, v)
	t.calls = append(t.calls, call{node: v})
}

func (t *tarjan) visit(root uint32) {
	if n, _ := t.number(root); t.index[n] == 0 {
		t.enter(root, n)
	}
	for len(t.calls) > 0 {
		c := &t.calls[len(t.calls)-1]
		n, _ := t.number(c.node)
		w, _, ok := t.g.next(c.node, &c.at, t.kinds)
		if !ok {
			t.leave(c.node, n)
			continue
		}
		m, in := t.number(w)
		switch {
		case !in:
		case t.index[m] == 0:
			t.enter(w, m)
		case t.index[m] != over:
			t.low[n] = min(t.low[n], t.index[m])
		}
	}
}

// leave ends the visit of a node: it may be the root of a component.
func (t *tarjan) leave(v, n uint32) {
	t.calls = t.calls[:len(t.calls)-1]
	if len(t.calls) > 0 {
		up, _ := t.number(t.calls[len(t.calls)-1].node)
		t.low[up] = min(t.low[up], t.low[n])
	}
	if t.low[n] != t.index[n] {
		return
	}
	at := len(t.stack) - 1
	for t.stack[at] != v {
		at--
	}
	for _, w := range t.stack[at:] {
		m, _ := t.number(w)
		t.index[m] = over
	}
	if len(t.stack)-at > 1 {
		t.out = append(t.out, slices.Clone(t.stack[at:]))
	}
	t.stack = t.stack[:at]
}

// hop is how a search came to a node.
type hop struct {
	from uint32
	edge edges
}

// shortest is a cycle in a component, the shortest through any of its first nodes.
func (g *graph) shortest(component []uint32, kinds edges) []Step {
	in := make(map[uint32]bool, len(component))
	for _, v := range component {
		in[v] = true
	}
	var best []Step
	tried := 0
	for _, v := range component {
		if v >= g.ops || tried == startsMax {
			continue
		}
		tried++
		if c := g.cycleFrom(v, in, kinds); best == nil || len(c) < len(best) {
			best = c
		}
	}
	return best
}

// cycleFrom is the shortest cycle through a node of a component.
func (g *graph) cycleFrom(start uint32, in map[uint32]bool, kinds edges) []Step {
	came := map[uint32]hop{}
	for queue := []uint32{start}; len(queue) > 0; queue = queue[1:] {
		v := queue[0]
		for c := (cursor{}); ; {
			w, kind, ok := g.next(v, &c, kinds)
			if !ok {
				break
			}
			if w == start {
				return g.steps(start, hop{v, kind}, came)
			}
			if _, seen := came[w]; in[w] && !seen {
				came[w] = hop{v, kind}
				queue = append(queue, w)
			}
		}
	}
	panic("BUG: a component of a graph without a cycle")
}

// steps follows a search back to its start. The search went from later to earlier,
// so what it came from last is what comes next; nodes of time are left out.
func (g *graph) steps(start uint32, last hop, came map[uint32]hop) []Step {
	out := []Step{g.stepOf(start, last.edge)}
	for v := last.from; v != start; {
		h := came[v]
		if v < g.ops {
			out = append(out, g.stepOf(v, h.edge))
		}
		v = h.from
	}
	return out
}

func (g *graph) stepOf(v uint32, edge edges) Step {
	op := g.a.ops.at(v)
	return Step{Op: v, Process: op.process, Func: op.fn, Outcome: op.outcome,
		Invoke: time.Duration(op.invoke), Took: time.Duration(op.complete - op.invoke), Edge: edge.String()}
}
