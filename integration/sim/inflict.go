package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirmq/weir/fsm"
)

// inflict makes a fault happen, if it can now: a loss that nobody could survive
// does not.
func (w *world) inflict(f Fault) {
	n, m := w.nodes[f.Node%len(w.nodes)], w.nodes[f.Peer%len(w.nodes)]
	r := rand.New(rand.NewPCG(f.Seed, 0xfa))
	if !w.possible(f, n) {
		return
	}
	w.note(n.id, "fault: %v", f)
	if w.strike(f, n, m, r) {
		w.report.Faults++
		if w.struck != nil {
			w.struck(w, f)
		}
	}
}

// countOnce returns what counts a fault the first time that some part of it took effect.
func (w *world) countOnce() func(bool) {
	counted := false
	return func(effect bool) {
		if effect && !counted {
			counted = true
			w.report.Faults++
		}
	}
}

// strike is one fault. It tells whether it took effect at once: what ends a process that has
// ended, or holds up what is held up, does not count, and what strikes later counts itself.
func (w *world) strike(f Fault, n, m *node, r *rand.Rand) bool {
	switch f.Kind {
	case FaultCrash:
		return w.down(n, f.For, func() { n.end(false) })
	case FaultPower:
		return w.down(n, f.For, func() { n.end(true) })
	case FaultCrashAt, FaultPowerAt:
		return w.stopWithin(n, f, r)
	case FaultWipe:
		return w.down(n, f.For, func() {
			n.end(true)
			n.wipe()
		})
	case FaultBlackout, FaultDisks, FaultRelapse, FaultUnclean:
		return w.strikeAll(f, r)
	case FaultStop:
		effect := !n.stopping
		n.shutdown(func() { w.after(f.For, n.start) })
		return effect
	case FaultLeaderKill:
		w.killLeader(f, r)
		return false
	case FaultLeaderCut:
		return w.isolateLeader(f, r)
	case FaultPause, FaultSlowDisk, FaultLag, FaultLateChange, FaultClientCut, FaultAnswers:
		return w.holdUp(f, n, r)
	case FaultDiskError, FaultDiskFull:
		return w.failDisk(f, n, r)
	case FaultRejoin, FaultWaver, FaultRot, FaultReassign:
		return w.aim(f, n, r)
	case FaultController:
		was := w.raft.term
		if w.raft.leader != nil {
			w.raft.elect()
		}
		return w.raft.term != was
	case FaultDurability:
		return w.changeDurability(w.plan.Topics[f.Node%len(w.plan.Topics)])
	case FaultRecreate:
		return w.recreate(w.plan.Topics[f.Node%len(w.plan.Topics)])
	case FaultTrim:
		return w.trim(n, r)
	case FaultClock, FaultStep:
		w.stepClocks(f, n, r)
		return true
	}
	return w.disturb(f, n, m)
}

// holdUp is a fault that lasts, of one process. A second one only makes it last longer.
func (w *world) holdUp(f Fault, n *node, r *rand.Rand) bool {
	var until *time.Duration
	switch f.Kind {
	case FaultPause:
		until = &n.pausedUntil
	case FaultSlowDisk:
		until = &n.stalledUntil
	case FaultLag:
		until = &n.metaHeld
	case FaultLateChange:
		if p := w.drawPart(r); p != nil && w.leaderOf(p) != nil {
			n = w.leaderOf(p)
		}
		until = &n.changesLate
	case FaultClientCut:
		until = &n.clientCut
	default:
		until = &n.answersLost
	}
	effect := n.up && *until <= w.now
	*until = max(*until, w.now+f.For)
	return effect
}

// failDisk is a fault of a disk that goes by.
func (w *world) failDisk(f Fault, n *node, r *rand.Rand) bool {
	if f.Kind == FaultDiskError {
		effect := n.up && n.disk.failAfter < 0
		n.disk.failAfter = r.IntN(40)
		return effect
	}
	effect := n.up && n.fullUntil <= w.now
	n.fullUntil = max(n.fullUntil, w.now+f.For)
	n.disk.SetCapacity(n.disk.Used() + int64(r.IntN(3000)))
	w.after(f.For, func() { n.disk.SetCapacity(-1) })
	return effect
}

// aim is a fault that is made for one rule.
func (w *world) aim(f Fault, n *node, r *rand.Rand) bool {
	switch f.Kind {
	case FaultRejoin:
		return w.rejoin(f, r)
	case FaultRot:
		effect := n.up && n.dir != nil
		w.decay(n, f, r)
		return effect
	case FaultWaver:
		w.waver(f, r)
	case FaultReassign:
		w.reassign(f, r)
	}
	return false
}

// disturb is a fault of the network.
func (w *world) disturb(f Fault, n, m *node) bool {
	effect := false
	switch f.Kind {
	case FaultCut:
		return w.cutFor(n, m, f.For)
	case FaultSplit:
		effect = w.cutFor(n, m, f.For)
		effect = w.cutFor(m, n, f.For) || effect
	case FaultIsolate:
		return w.isolate(n, f.For)
	case FaultWall:
		effect = w.walls[n.index] == 0
		w.wallIn(n, f.For)
	case FaultReset:
		for _, s := range slices.Concat(n.sources, m.sources) {
			if c := s.conn; c != nil && (c.to == n || c.to == m) {
				effect = true
				c.closeFollower()
			}
		}
	case FaultSlowLink:
		d, s := f.For/20, w.slow // heal replaces it
		effect = s[n.index][m.index] == 0
		s[n.index][m.index] += d
		w.after(f.For, func() { s[n.index][m.index] -= d })
	}
	return effect
}

// cutFor stops what one node sends to another, and tells whether it got there before.
func (w *world) cutFor(from, to *node, d time.Duration) bool {
	c := w.cut // heal replaces it
	whole := c[from.index][to.index] == 0
	c[from.index][to.index]++
	w.after(d, func() { c[from.index][to.index]-- })
	return whole
}

// down ends a node that is up and starts it again later.
func (w *world) down(n *node, d time.Duration, end func()) bool {
	if !n.up {
		return false
	}
	end()
	w.after(d, n.start)
	return true
}

// stopWithin ends a node in the middle of some work on files, soon.
func (w *world) stopWithin(n *node, f Fault, r *rand.Rand) bool {
	if !n.up {
		return false
	}
	effect := n.disk.stopAfter < 0
	n.disk.power = f.Kind == FaultPowerAt
	n.disk.stopAfter, n.disk.torn = r.IntN(60), r.IntN(200)
	life := n.life
	w.after(f.For, func() {
		if n.life == life && !w.healed {
			n.end(false) // it did too little: the process ends anyway
		}
		w.after(f.For/2, n.start)
	})
	return effect
}

// blackout cuts the power of all machines, and starts them again one after the other.
func (w *world) blackout(f Fault, r *rand.Rand) {
	w.blackouts++
	for _, n := range w.nodes {
		if n.up {
			n.end(true)
		} else {
			n.losePower()
		}
		w.after(time.Duration(r.Int64N(int64(f.For))), n.start)
	}
}

// loseDisks has one member of an ISR stop in order. All other nodes that have the
// partition lose their disks, or what they had not flushed, at once or later, and come
// back one after the other, as it does.
func (w *world) loseDisks(f Fault, r *rand.Rand) bool {
	p := w.drawPart(r)
	if p == nil {
		return false
	}
	s, ok := w.raft.image.Partition(p.tp)
	if !ok || len(s.ISR) < 2 {
		return false
	}
	last := w.node(s.ISR[r.IntN(len(s.ISR))])
	if !last.awake() || !last.intact() || last.isDamaged(p.tp) {
		return false
	}
	wait := time.Duration(r.IntN(2)) * f.For // so long that the others go on without it, or not
	last.shutdown(func() {
		w.after(wait, func() { w.strikeOthers(f, s.Replicas, last, r) })
	})
	return true
}

// strikeOthers takes the power of all replicas but the last, and some of their disks.
func (w *world) strikeOthers(f Fault, replicas []fsm.BrokerID, last *node, r *rand.Rand) {
	if w.healed {
		last.start()
		return
	}
	w.disasters++
	all := r.IntN(2) == 0
	for _, id := range replicas {
		n := w.node(id)
		w.after(time.Duration(r.Int64N(int64(f.For))), n.start)
		if n == last {
			continue
		}
		if n.up {
			n.end(true)
		} else {
			n.losePower()
		}
		if all || r.IntN(2) == 0 {
			n.wipe()
		}
	}
}

// killLeader ends the leader of a partition, and then, a few times, the one that
// was elected instead, soon after it could acknowledge something.
func (w *world) killLeader(f Fault, r *rand.Rand) {
	p := w.drawPart(r)
	if p == nil {
		return
	}
	count, at := w.countOnce(), time.Duration(0)
	for range 1 + r.IntN(3) {
		w.after(at, func() {
			if l := w.leaderOf(p); l != nil && !w.healed {
				count(w.down(l, f.For, func() { l.end(false) }))
			}
		})
		at += time.Duration(r.Int64N(int64(2 * time.Second)))
	}
}

// isolateLeader cuts the leader of a partition off from all nodes. Clients reach it.
func (w *world) isolateLeader(f Fault, r *rand.Rand) bool {
	if p := w.drawPart(r); p != nil {
		if l := w.leaderOf(p); l != nil {
			return w.isolate(l, f.For)
		}
	}
	return false
}

// isolate cuts a node off from all others, and tells whether one of them heard it, or was heard.
func (w *world) isolate(n *node, d time.Duration) bool {
	effect := false
	for _, x := range w.nodes {
		if x != n {
			effect = w.cutFor(n, x, d) || effect
			effect = w.cutFor(x, n, d) || effect
		}
	}
	return effect
}

func (w *world) drawPart(r *rand.Rand) *part {
	if len(w.parts) == 0 {
		return nil
	}
	return w.parts[r.IntN(len(w.parts))]
}

// leaderOf is the node that leads a partition by the newest metadata, or nil.
func (w *world) leaderOf(p *part) *node {
	s, ok := w.raft.image.Partition(p.tp)
	if !ok {
		return nil
	}
	return w.node(s.Leader)
}

// possible tells whether a fault leaves enough for the promises to be kept: of
// each partition one whole log must stay among those that may be elected.
func (w *world) possible(f Fault, n *node) bool {
	switch f.Kind {
	case FaultPower, FaultPowerAt, FaultWipe, FaultStop:
		return n.up && w.spares(n, f.Kind)
	case FaultBlackout, FaultDisks, FaultRelapse, FaultUnclean:
		if w.anyRot() {
			return false
		}
		w.strikes = max(w.strikes, w.now+3*f.For)
	case FaultRot:
		return w.now >= w.strikes
	case FaultReassign:
		return w.movable()
	}
	return true
}

// spares tells whether others hold all that n might lose.
func (w *world) spares(n *node, k FaultKind) bool {
	im := w.raft.image
	for _, p := range w.parts {
		s, ok := im.Partition(p.tp)
		if !ok || !slices.Contains(s.Replicas, n.id) {
			continue
		}
		if k == FaultPower && s.Durability == fsm.DurabilityFsync {
			continue // that costs nothing
		}
		if !w.sparesPart(p, s, n) {
			return false
		}
	}
	return true
}

// sparesPart tells whether others hold all that n might lose of a partition.
func (w *world) sparesPart(p *part, s fsm.Partition, n *node) bool {
	if s.MinISR < 2 {
		return false // one copy is enough to acknowledge: its loss is one that is documented
	}
	return slices.ContainsFunc(slices.Concat(s.ISR, s.ELR), func(id fsm.BrokerID) bool { return w.sure(p, s, id, n) }) &&
		w.hollow(p, s, n) < int(s.MinISR) && w.sparesMoved(p, s, n)
}

// hollow counts who has lost something, or, like n, is about to: of those with a seat
// in the ISR, or in one that is proposed, and all whose logs rot, since what rots
// unseen is not fetched again before it has a seat. As many as the minimum and they
// alone would be an ISR: whoever is whole could lose its seat by a restart before
// the cluster knows.
func (w *world) hollow(p *part, s fsm.Partition, n *node) int {
	seats := slices.Clone(s.ISR)
	for _, c := range p.proposals {
		if c.LeaderEpoch != s.LeaderEpoch || c.PartitionEpoch != s.PartitionEpoch {
			continue
		}
		for _, m := range c.ISR {
			if !slices.Contains(seats, m.ID) {
				seats = append(seats, m.ID)
			}
		}
	}
	count := 0
	for _, id := range s.Replicas {
		m, seated := w.node(id), slices.Contains(seats, id)
		if m == n || m.isDamaged(p.tp) || seated && (!m.intact() || m.doomed()) {
			count++
		}
	}
	return count
}

// doomed tells whether a loss of power is on its way.
func (n *node) doomed() bool { return n.disk.stopAfter >= 0 && n.disk.power }

// sure tells whether a member other than n is whole, about to lose nothing, and
// stays a member whatever becomes of the proposals under way.
func (w *world) sure(p *part, s fsm.Partition, id fsm.BrokerID, n *node) bool {
	m := w.node(id)
	if m == n || !m.intact() || m.isDamaged(p.tp) || m.doomed() || m.stopping {
		return false
	}
	for _, c := range p.proposals {
		if c.LeaderEpoch == s.LeaderEpoch && c.PartitionEpoch == s.PartitionEpoch &&
			!slices.ContainsFunc(c.ISR, func(x fsm.Member) bool { return x.ID == id }) {
			return false
		}
	}
	return true
}
