package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirmq/weir/fsm"
)

// ISR changes that reach the controller late. What their leader makes of the silence,
// and what happens to the members meanwhile, is what rules about unknown outcomes are
// for.

// proposeLate has a command reach the controller late, perhaps after its sender gave
// up, and no answer come back. Whoever is added to an ISR by it ends meanwhile and
// comes back, often without what it had, or is cut off from the leader.
func (n *node) proposeLate(patience time.Duration, c fsm.Command, done func(fsm.Result, error)) {
	w := n.w
	if n.changesAfter > w.now {
		n.proposeAfter(patience, c, done)
		return
	}
	n.do(w.between(patience/8, patience), laneControl, func() { done(fsm.Result{}, errUnknown) })
	w.note(n.id, "has a change under way that will be late")
	late := w.between(200*time.Millisecond, 2*time.Second)
	if w.chance(500) {
		late *= 5
	}
	w.arrive(late, c)
	for _, item := range c.(fsm.ChangeISR).Items {
		w.strikeAdded(n, item)
	}
}

// arrive has a command reach the controller after a while, from nobody who listens.
func (w *world) arrive(late time.Duration, c fsm.Command) {
	data := fsm.EncodeEntry(nil, []fsm.Command{c})
	w.after(late, func() {
		if l := w.raft.leader; l.awake() {
			l.serve(func(t *term, reply func(any, error)) { t.propose(data, reply) }, func(any, error) {})
		}
	})
}

// proposeAfter has a command reach the controller just after its sender gave up on it:
// what the leader does then it does without a breath. Whoever the command adds is cut off
// from the leader meanwhile.
func (n *node) proposeAfter(patience time.Duration, c fsm.Command, done func(fsm.Result, error)) {
	w := n.w
	told := min(n.patience+w.between(50*time.Millisecond, time.Second), patience)
	late := told + w.between(0, 400*time.Millisecond)
	n.do(told, laneControl, func() { done(fsm.Result{}, errUnknown) })
	w.note(n.id, "has a change under way that will be done after it is given up")
	w.arrive(late, c)
	for _, item := range c.(fsm.ChangeISR).Items {
		s, ok := w.raft.image.Partition(item.TP)
		for _, m := range item.ISR {
			if x := w.node(m.ID); ok && !slices.Contains(s.ISR, m.ID) && !w.healed {
				w.cutFor(x, n, late+100*time.Millisecond)
				w.cutFor(n, x, late+100*time.Millisecond)
			}
		}
	}
}

// rejoin ends a member of an ISR, which is to come back while the changes of its leader
// are done only after they are given up.
func (w *world) rejoin(f Fault, r *rand.Rand) bool {
	p := w.drawPart(r)
	if p == nil {
		return false
	}
	s, ok := w.raft.image.Partition(p.tp)
	l := w.leaderOf(p)
	if !ok || l == nil || len(s.ISR) < 2 {
		return false
	}
	others := slices.DeleteFunc(slices.Clone(s.ISR), func(id fsm.BrokerID) bool { return id == l.id })
	m := w.node(others[r.IntN(len(others))])
	w.delay(l, f.For, w.plan.LagMax) // so long that m can keep nothing back any more
	if w.raft.leader == l || w.raft.leader == m {
		w.raft.electOther(l, m)
	}
	return w.down(m, f.For/20, func() { m.end(false) })
}

// waver changes a topic's durability and changes it back before the ISR changes that
// say so, of the leaders of its partitions, are done; a few times.
func (w *world) waver(f Fault, r *rand.Rand) {
	t := w.plan.Topics[f.Node%len(w.plan.Topics)]
	count, at := w.countOnce(), time.Duration(0)
	for range 1 + r.IntN(3) {
		pause := 100*time.Millisecond + time.Duration(r.Int64N(int64(500*time.Millisecond)))
		w.after(at, func() { count(w.turn(t, f.For)) })
		w.after(at+pause, func() { count(w.turn(t, f.For)) })
		at += pause + time.Duration(r.Int64N(int64(4*time.Second)))
	}
}

// turn changes a topic's durability while the changes of its leaders are late.
func (w *world) turn(t TopicPlan, d time.Duration) bool {
	if w.healed {
		return false
	}
	for _, p := range w.parts {
		if l := w.leaderOf(p); p.topic == t.Name && l != nil {
			w.delay(l, d, 200*time.Millisecond)
		}
	}
	return w.changeDurability(t)
}

// delay has a leader's ISR changes be done only after they are given up, for a while:
// not before the given patience is over.
func (w *world) delay(l *node, d, patience time.Duration) {
	l.changesLate = max(l.changesLate, w.now+d)
	l.changesAfter, l.patience = max(l.changesAfter, w.now+d), patience
}

// strikeAdded ends a member that a change adds, if others hold all that it has, or
// cuts it off from the leader.
func (w *world) strikeAdded(l *node, c fsm.ISRChange) {
	s, ok := w.raft.image.Partition(c.TP)
	if !ok || w.healed {
		return
	}
	for _, m := range c.ISR {
		n := w.node(m.ID)
		if slices.Contains(s.ISR, m.ID) || !n.up {
			continue
		}
		if w.chance(400) {
			d := w.between(3*time.Second, 9*time.Second)
			w.cutFor(n, l, d)
			w.cutFor(l, n, d)
			return
		}
		w.after(w.between(0, 20*time.Millisecond), func() {
			if !n.up || w.healed || !w.spares(n, FaultWipe) {
				return
			}
			w.down(n, w.between(50*time.Millisecond, 500*time.Millisecond), func() {
				n.end(true)
				if w.chance(500) {
					n.wipe()
				}
			})
		})
		return
	}
}
