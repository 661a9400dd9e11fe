package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// Reassignments: an operator gives partitions other replicas, changes its mind, and gives
// up. They are a fault to the rest: replicas that were whole are gone, and others that
// had nothing lead.

// move is a target that was asked for, and may come to pass for a while, also where its
// controller was lost or the request comes twice.
type move struct {
	tp     fsm.TopicPartition
	target []fsm.BrokerID
	until  time.Duration
}

// moveLasts is longer than any request is under way.
const moveLasts = callTimeout + 10*time.Second

// reassign moves a partition, and may give it another target, or cancel that, while it moves.
func (w *world) reassign(f Fault, r *rand.Rand) {
	p := w.drawPart(r)
	if p == nil {
		return
	}
	count, at := w.countOnce(), time.Duration(0)
	for range 1 + r.IntN(3) {
		target := w.drawTarget(r)
		if at > 0 && r.IntN(2) == 0 {
			target = nil
		}
		w.after(at, func() {
			if !w.healed && w.movable() {
				count(w.ask(p, target))
			}
		})
		at += time.Duration(r.Int64N(int64(2*f.For) + 1))
	}
}

// movable tells whether nothing is about to be lost: who counts on a member does not know
// that others take over from it.
func (w *world) movable() bool {
	return w.now >= w.strikes && !slices.ContainsFunc(w.nodes, (*node).doomed)
}

// drawTarget draws replicas: any, seldom a single one, whose loss nobody could bear.
func (w *world) drawTarget(r *rand.Rand) []fsm.BrokerID {
	size := 2 + r.IntN(min(len(w.nodes), 4)-1)
	switch {
	case r.IntN(10) == 0:
		size = 1
	case r.IntN(3) == 0:
		size = 2
	}
	var target []fsm.BrokerID
	for _, i := range r.Perm(len(w.nodes))[:size] {
		target = append(target, w.nodes[i].id)
	}
	return target
}

// ask has any node ask the controller for a reassignment; nil cancels the one that runs.
func (w *world) ask(p *part, target []fsm.BrokerID) bool {
	n := w.nodes[w.rand.IntN(len(w.nodes))]
	if !n.awake() || n.epoch == 0 || !w.bearable(p, target, nil) {
		return false
	}
	if target != nil {
		w.moves = append(w.moves, move{p.tp, target, w.now + moveLasts})
	}
	w.note(n.id, "asks for %v as replicas of %s", target, p.name())
	n.try(callTimeout, func(t *term, reply func(any, error)) { t.reassign(p.tp, target, reply) }, func(any, error) {})
	return true
}

// reassign is AlterPartitionReassignments of one partition, as package controller does it.
func (t *term) reassign(tp fsm.TopicPartition, target []fsm.BrokerID, reply func(any, error)) {
	t.post(func(then func()) {
		c, err := elect.Reassign(t.n.im, tp, target)
		if err != nil {
			t.n.w.note(t.n.id, "refuses to reassign: %v", err)
			reply(nil, nil)
			then()
			return
		}
		t.commit([]fsm.Command{fsm.ChangeReplicas{Items: []fsm.ReplicaChange{c}}}, func([]fsm.Result, uint64) {
			t.n.w.report.Moves++
			reply(true, nil)
			then()
		}, func(err error) {
			reply(nil, err)
			then()
		})
	})
}

// finishReassignments completes what can be.
func (t *term) finishReassignments(then func()) {
	var c fsm.ChangeReplicas
	for tp := range t.n.im.Reassigning() {
		if item, ok := elect.FinishReassignment(t.n.im, tp); ok {
			c.Items = append(c.Items, item)
		}
	}
	if len(c.Items) == 0 {
		then()
		return
	}
	t.commitAll([][]fsm.Command{{c}}, then)
}

// targets are the sets of replicas that a partition may have without the rest of those it
// has now.
func (w *world) targets(p *part, s fsm.Partition) [][]fsm.BrokerID {
	var out [][]fsm.BrokerID
	if s.Reassigning() {
		out = append(out, s.Target(), s.Current())
	}
	for _, m := range w.moves {
		if m.tp == p.tp && m.until > w.now {
			out = append(out, m.target)
		}
	}
	return out
}

// sparesMoved tells whether whoever a partition may be moved to can do without n.
func (w *world) sparesMoved(p *part, s fsm.Partition, n *node) bool {
	return !slices.ContainsFunc(w.targets(p, s), func(set []fsm.BrokerID) bool { return !w.bearable(p, set, n) })
}

// bearable tells whether of a set of replicas so many are whole, and none of them n, that
// an ISR of the minimum has one of them: what rots unseen would be all that is left else.
func (w *world) bearable(p *part, set []fsm.BrokerID, n *node) bool {
	t, ok := w.raft.image.Topic(p.tp.Topic)
	if !ok || len(set) == 0 {
		return true
	}
	hollow := 0
	for _, id := range set {
		if m := w.node(id); m == n || m.isDamaged(p.tp) || !m.intact() || m.doomed() {
			hollow++
		}
	}
	return hollow < int(fsm.EffectiveMinISR(t.Config.MinISR, set, nil))
}

// checkMoved checks a new state of a partition against the one before: who leaves is not
// missed.
func (w *world) checkMoved(p *part, was, s fsm.Partition) {
	p.steady = min(p.steady, p.end)
	for _, id := range was.Replicas {
		if !slices.Contains(s.Replicas, id) {
			w.checkLeaver(p, was, s, id)
			if p.held != nil {
				p.held[id-1] = 0 // it is asked for nothing any more
			}
		}
	}
	if !slices.Equal(was.ISR, s.ISR) {
		p.steady = p.end
	}
}

// checkLeaver checks that others do for a replica that leaves: what is to replace it is in
// sync, enough stay, and no other disk lacks what was committed before they were the ISR. The
// epoch of the leader that counted it is over.
func (w *world) checkLeaver(p *part, was, s fsm.Partition, id fsm.BrokerID) {
	w.report.Left++
	fail := func(format string, args ...any) {
		w.fail("nobody leaves who is needed", "node %d leaves %s, %v, now %v: "+format, append([]any{id, p.name(), stateText(was), stateText(s)}, args...)...)
	}
	if s.LeaderEpoch == was.LeaderEpoch {
		fail("in the same leader epoch")
	}
	removed := slices.Contains(was.Removing, id)
	needed := was.Seated(id) || slices.Contains(was.LastMembers, id)
	if !removed && !slices.Contains(was.Adding, id) {
		fail("unannounced")
	}
	if (removed || needed) && len(s.ISR) < int(s.MinISR) {
		fail("too few stay")
	}
	for _, a := range was.Adding {
		if removed && !slices.Contains(was.ISR, a) {
			fail("node %d is not in sync", a)
		}
	}
	for _, m := range s.ISR {
		if n := w.node(m); needed && n.intact() && !n.isDamaged(p.tp) && n.onDisk(p.tp) < p.steady {
			fail("node %d has %d on its disk, %d was committed", m, n.onDisk(p.tp), p.steady)
		}
	}
}

// onDisk is to where the log of a partition is on the node's disk.
func (n *node) onDisk(tp fsm.TopicPartition) batch.Offset {
	if r := n.replica(tp); n.up && r != nil {
		return r.log.Flushed()
	}
	if h := n.journal(tp); h != nil {
		return h.flushed
	}
	return 0
}

// settleMoves is the operator after the faults: what can not complete, since some that it
// waits for stay away, is cancelled, or gets a target that is there; what has too few
// replicas left that are there gets others.
func (w *world) settleMoves(round int) {
	for _, p := range w.parts {
		s, ok := w.raft.image.Partition(p.tp)
		if !ok || len(w.moves) == 0 {
			continue
		}
		there := w.there(s.Replicas)
		if s.Reassigning() && (len(w.there(s.Target())) == len(s.Target()) || round == 0) {
			continue // it completes by itself
		}
		all := slices.Clone(s.Replicas)
		for _, n := range w.nodes {
			if !n.away && !slices.Contains(all, n.id) {
				all = append(all, n.id)
			}
		}
		switch {
		case s.Reassigning():
			w.ask(p, [][]fsm.BrokerID{nil, there, all}[round%3])
		case len(there) < int(s.MinISR):
			w.ask(p, w.there(all)[:min(len(w.there(all)), max(len(s.Replicas), 2))])
		}
	}
}

// there are those of some brokers that are not away for good.
func (w *world) there(ids []fsm.BrokerID) []fsm.BrokerID {
	return slices.DeleteFunc(slices.Clone(ids), func(id fsm.BrokerID) bool { return w.node(id).away })
}

// restlessFolder tells of a folder that a node should have deleted.
func (w *world) restlessFolder() string {
	for _, n := range w.nodes {
		if n.away || n.dir == nil {
			continue
		}
		for _, l := range n.dir.Logs() {
			tp := logOf(l)
			if _, ok := n.im.Partition(tp); ok && !hosts(n.im, tp, n.id) {
				return "node " + n.String() + " has the folder of a replica that was removed"
			}
		}
	}
	return ""
}

// keepsMoved tells whether a core surely keeps a leader by whatever set of replicas a
// partition may have. Who is asked to take over, and may not have been yet, is to be there.
func (w *world) keepsMoved(core []*node, p *part, s fsm.Partition) bool {
	for _, m := range w.moves {
		if m.tp == p.tp && m.until > w.now && slices.ContainsFunc(m.target, func(id fsm.BrokerID) bool { return !slices.Contains(ids(core), id) }) {
			return false
		}
	}
	for _, set := range w.targets(p, s) {
		some := s
		some.ISR = slices.DeleteFunc(slices.Clone(s.ISR), func(id fsm.BrokerID) bool { return !slices.Contains(set, id) })
		if len(some.ISR) > 0 && !w.keepsLeader(core, p, some) {
			return false
		}
	}
	return true
}
