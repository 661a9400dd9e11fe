package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// inflict makes a fault happen, if it can now: a loss that nobody could survive
// does not.
func (w *world) inflict(f Fault) {
	n, m := w.nodes[f.Node%len(w.nodes)], w.nodes[f.Peer%len(w.nodes)]
	r := rand.New(rand.NewPCG(f.Seed, 0xfa))
	if !w.possible(f, n) {
		return
	}
	w.faults++
	w.report.Faults++
	w.note(n.id, "fault: %v", f)
	switch f.Kind {
	case FaultCrash:
		w.down(n, f.For, func() { n.end(false) })
	case FaultPower:
		w.down(n, f.For, func() { n.end(true) })
	case FaultCrashAt, FaultPowerAt:
		w.stopWithin(n, f, r)
	case FaultWipe:
		w.down(n, f.For, func() {
			n.end(true)
			n.wipe()
		})
	case FaultBlackout, FaultDisks, FaultRelapse, FaultUnclean:
		w.strikeAll(f, r)
	case FaultClock:
		w.skew = time.Duration(r.Int64N(int64(100*time.Minute))) - 50*time.Minute
	case FaultStep:
		w.stepClock(n, r)
	case FaultStop:
		n.shutdown(func() { w.after(f.For, n.start) })
	case FaultLeaderKill:
		w.killLeader(f, r)
	case FaultLeaderCut:
		w.isolateLeader(f, r)
	case FaultPause:
		n.pausedUntil = max(n.pausedUntil, w.now+f.For)
	case FaultSlowDisk:
		n.stalledUntil = max(n.stalledUntil, w.now+f.For)
	case FaultDiskError:
		n.disk.failAfter = r.IntN(40)
	case FaultDiskFull:
		n.disk.SetCapacity(n.disk.Used() + int64(r.IntN(3000)))
		w.after(f.For, func() { n.disk.SetCapacity(-1) })
	case FaultLag:
		n.metaHeld = max(n.metaHeld, w.now+f.For)
	case FaultLateChange:
		if p := w.drawPart(r); p != nil && w.leaderOf(p) != nil {
			n = w.leaderOf(p)
		}
		n.changesLate = max(n.changesLate, w.now+f.For)
	case FaultRejoin, FaultWaver, FaultRot, FaultReassign:
		w.aim(f, n, r)
	case FaultClientCut:
		n.clientCut = max(n.clientCut, w.now+f.For)
	case FaultAnswers:
		n.answersLost = max(n.answersLost, w.now+f.For)
	case FaultController:
		if l := w.raft.leader; l != nil {
			w.raft.elect()
		}
	case FaultDurability:
		w.changeDurability(w.plan.Topics[f.Node%len(w.plan.Topics)])
	case FaultRecreate:
		w.recreate(w.plan.Topics[f.Node%len(w.plan.Topics)])
	case FaultTrim:
		w.trim(n, r)
	default:
		w.disturb(f, n, m)
	}
}

// aim is a fault that is made for one rule.
func (w *world) aim(f Fault, n *node, r *rand.Rand) {
	switch f.Kind {
	case FaultRejoin:
		w.rejoin(f, r)
	case FaultWaver:
		w.waver(f, r)
	case FaultRot:
		w.decay(n, f, r)
	case FaultReassign:
		w.reassign(f, r)
	}
}

// disturb is a fault of the network.
func (w *world) disturb(f Fault, n, m *node) {
	switch f.Kind {
	case FaultCut:
		w.cutFor(n, m, f.For)
	case FaultSplit:
		w.cutFor(n, m, f.For)
		w.cutFor(m, n, f.For)
	case FaultIsolate:
		w.isolate(n, f.For)
	case FaultWall:
		w.wallIn(n, f.For)
	case FaultReset:
		for _, s := range slices.Concat(n.sources, m.sources) {
			if c := s.conn; c != nil && (c.to == n || c.to == m) {
				c.closeFollower()
			}
		}
	case FaultSlowLink:
		d, s := f.For/20, w.slow // heal replaces it
		s[n.index][m.index] += d
		w.after(f.For, func() { s[n.index][m.index] -= d })
	}
}

func (w *world) cutFor(from, to *node, d time.Duration) {
	c := w.cut // heal replaces it
	c[from.index][to.index]++
	w.after(d, func() { c[from.index][to.index]-- })
}

// down ends a node and starts it again later.
func (w *world) down(n *node, d time.Duration, end func()) {
	if !n.up {
		return
	}
	end()
	w.after(d, n.start)
}

// stopWithin ends a node in the middle of some work on files, soon.
func (w *world) stopWithin(n *node, f Fault, r *rand.Rand) {
	if !n.up {
		return
	}
	n.disk.power = f.Kind == FaultPowerAt
	n.disk.stopAfter, n.disk.torn = r.IntN(60), r.IntN(200)
	life := n.life
	w.after(f.For, func() {
		if n.life == life && !w.healed {
			n.end(false) // it did too little: the process ends anyway
		}
		w.after(f.For/2, n.start)
	})
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
func (w *world) loseDisks(f Fault, r *rand.Rand) {
	p := w.drawPart(r)
	if p == nil {
		return
	}
	s, ok := w.raft.image.Partition(p.tp)
	if !ok || len(s.ISR) < 2 {
		return
	}
	last := w.node(s.ISR[r.IntN(len(s.ISR))])
	if !last.awake() || !last.intact() || last.isDamaged(p.tp) {
		return
	}
	wait := time.Duration(r.IntN(2)) * f.For // so long that the others go on without it, or not
	last.shutdown(func() {
		w.after(wait, func() { w.strikeOthers(f, s.Replicas, last, r) })
	})
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
	at := time.Duration(0)
	for range 1 + r.IntN(3) {
		w.after(at, func() {
			if l := w.leaderOf(p); l != nil && !w.healed {
				w.down(l, f.For, func() { l.end(false) })
			}
		})
		at += time.Duration(r.Int64N(int64(2 * time.Second)))
	}
}

// isolateLeader cuts the leader of a partition off from all nodes. Clients reach it.
func (w *world) isolateLeader(f Fault, r *rand.Rand) {
	if p := w.drawPart(r); p != nil {
		if l := w.leaderOf(p); l != nil {
			w.isolate(l, f.For)
		}
	}
}

func (w *world) isolate(n *node, d time.Duration) {
	for _, x := range w.nodes {
		if x != n {
			w.cutFor(n, x, d)
			w.cutFor(x, n, d)
		}
	}
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

// recreate deletes a topic and makes it again under its name.
func (w *world) recreate(t TopicPlan) {
	now, ok := w.raft.image.TopicByName(t.Name)
	if !ok {
		return
	}
	n := w.nodes[w.rand.IntN(len(w.nodes))]
	if !n.awake() || n.epoch == 0 {
		return
	}
	w.doomed = append(w.doomed, now.ID)
	n.propose(callTimeout, fsm.DeleteTopic{ID: now.ID}, func(fsm.Result, error) {})
	w.after(w.between(100*time.Millisecond, 3*time.Second), func() { w.create(t) })
}

// create makes a topic, through any node, until it is there.
func (w *world) create(t TopicPlan) {
	now, ok := w.raft.image.TopicByName(t.Name)
	if ok && !slices.Contains(w.doomed, now.ID) {
		return
	}
	w.after(300*time.Millisecond, func() { w.create(t) })
	n := w.nodes[w.rand.IntN(len(w.nodes))]
	if ok || !n.awake() || n.epoch == 0 {
		return
	}
	seed := w.rand.Uint64()
	n.try(time.Second, func(x *term, reply func(any, error)) { x.createTopic(t, seed, reply) }, func(any, error) {})
}

// trim moves the log start of what a node leads, anywhere up to the high watermark,
// and often all the way: a log without a batch still has a history.
func (w *world) trim(n *node, r *rand.Rand) {
	if !n.awake() || n.stalledUntil > w.now {
		return
	}
	for _, x := range n.replicas {
		if x.role != roleLeader || x.hw <= x.log.Start() {
			continue
		}
		start := x.log.Start() + 1 + batch.Offset(r.Int64N(int64(x.hw-x.log.Start())))
		if r.IntN(2) == 0 {
			start = x.hw
		}
		n.guard(func() {
			move := x.advance // as DeleteRecords does
			if r.IntN(2) == 0 {
				move = x.raise // as retention does
			}
			if err := move(start); err != nil {
				n.trouble(err)
			}
			x.lead.Started(x.log.Start())
			x.wakeFeeders(false)
		})
		return
	}
}

// changeDurability turns a topic's durability into the other one.
func (w *world) changeDurability(t TopicPlan) {
	now, ok := w.raft.image.TopicByName(t.Name)
	n := w.nodes[w.rand.IntN(len(w.nodes))]
	if !ok || !n.awake() || n.epoch == 0 {
		return
	}
	other := fsm.DurabilityFsync - now.Config.Durability
	changes, err := now.PlanConfigs([]fsm.ConfigOp{{Name: fsm.DurabilityConfig, Value: other.String()}})
	if err != nil {
		w.fail("durabilities are configs", "%v", err)
	}
	n.propose(callTimeout, fsm.AlterTopicConfigs{ID: now.ID, Changes: changes}, func(fsm.Result, error) {})
}

// configs are those that a topic is created with.
func (p Plan) configs(t TopicPlan) [][2]string {
	var configs [][2]string
	if t.MinISR != 0 {
		configs = append(configs, [2]string{fsm.MinInsyncReplicas, string(rune('0' + t.MinISR))})
	}
	if p.Fsync || t.Fsync {
		configs = append(configs, [2]string{fsm.DurabilityConfig, fsm.DurabilityFsync.String()})
	}
	if t.Unclean {
		configs = append(configs, [2]string{"unclean.leader.election.enable", "true"})
	}
	if t.AppendTime {
		configs = append(configs, [2]string{"message.timestamp.type", "LogAppendTime"})
	}
	return configs
}
