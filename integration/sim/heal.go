package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
)

// form waits for the cluster to form and creates topics and clients.
func (w *world) form() {
	for _, t := range w.plan.Topics {
		w.create(t)
		for p := range t.Partitions {
			for range t.Producers {
				w.newProducer(t.Name, int32(p))
			}
		}
		w.newProducer(t.Name, 0).plain = true
	}
	if w.plan.Group {
		w.newConsumer()
	}
	w.runReader()
}

// restLimit is how long the healed part may take to come to rest: some sessions,
// lag limits and pauses.
const restLimit = 60 * time.Second

// heal ends all faults but the absence of some nodes, and waits for rest.
func (w *world) heal() {
	w.note(0, "heals")
	w.healed, w.healedAt = true, w.now
	core := w.drawCore()
	w.cut, w.slow = fresh[int](len(w.nodes)), fresh[time.Duration](len(w.nodes))
	w.walls = make([]int, len(w.nodes))
	for _, n := range w.nodes {
		n.pausedUntil, n.stalledUntil, n.metaHeld = 0, 0, 0
		n.clientCut, n.answersLost, n.changesLate, n.changesAfter = 0, 0, 0, 0
		n.disk.stopAfter, n.disk.failAfter, n.ahead = -1, -1, 0
		n.disk.SetCapacity(-1)
		n.away = !slices.Contains(core, n)
		if n.away {
			n.end(false)
			continue
		}
		w.after(w.between(0, time.Second), n.start)
	}
	for _, p := range w.clients {
		p.quiet = true
	}
	w.after(10*time.Second, w.write) // new records must be possible, too
	w.until(w.now+11*time.Second, func() bool { return false })
	w.rest(core)
	for i := 0; i < fillRounds && w.report.Acked < enoughAcked; i++ {
		w.write()
		w.until(w.now+time.Second, func() bool { return false })
		w.rest(core)
	}
}

// fillRounds bounds what is written at the end of a run in which too little was. Each round
// has at least one producer acknowledged as many batches as it may have in flight, the first
// round one: the core keeps the minimum ISR of a partition, and rests only when no client
// of one waits.
const fillRounds = enoughAcked/inFlightMax + 1

// write has each idempotent producer send what it may.
func (w *world) write() {
	for _, p := range w.clients {
		if p.plain || !p.find() {
			continue
		}
		for len(p.unacked) < p.inFlight() {
			p.make()
		}
		p.again(0)
	}
}

// rest waits for the part that is up to come to rest.
func (w *world) rest(core []*node) {
	limit := w.now + restLimit
	for i := 0; w.now < limit; i++ {
		if w.restless() == "" {
			return
		}
		if i%8 == 0 {
			w.settleMoves(i / 8)
		}
		w.until(min(w.now+250*time.Millisecond, limit), func() bool { return false })
	}
	w.fail("the cluster comes to rest", "%v after all faults ended, nodes %v are up: %s", restLimit, ids(core), w.restless())
}

func fresh[T any](n int) [][]T {
	m := make([][]T, n)
	for i := range m {
		m[i] = make([]T, n)
	}
	return m
}

func ids(nodes []*node) []fsm.BrokerID {
	var out []fsm.BrokerID
	for _, n := range nodes {
		out = append(out, n.id)
	}
	return out
}

// drawCore picks a random majority, and adds nodes until every partition surely
// keeps somebody in it who may lead, and one of them as many as can commit.
func (w *world) drawCore() []*node {
	order := w.rand.Perm(len(w.nodes))
	var core []*node
	for _, i := range order {
		if len(core) > len(w.nodes)/2 && w.sufficient(core) {
			break
		}
		core = append(core, w.nodes[i])
	}
	return core
}

func (w *world) sufficient(core []*node) bool {
	for _, t := range w.plan.Topics {
		if now, ok := w.raft.image.TopicByName(t.Name); !ok || slices.Contains(w.doomed, now.ID) {
			return false // it may yet be made with anybody as its only member
		}
	}
	for _, p := range w.parts {
		s, ok := w.raft.image.Partition(p.tp)
		if !ok {
			continue
		}
		if !w.keepsLeader(core, p, s) || !w.keepsMoved(core, p, s) {
			return false
		}
	}
	return slices.ContainsFunc(w.parts, func(p *part) bool { return w.keepsMinimum(core, p) })
}

// keepsMinimum tells whether a core holds the minimum ISR of a partition, whatever becomes
// of its reassignment.
func (w *world) keepsMinimum(core []*node, p *part) bool {
	s, ok := w.raft.image.Partition(p.tp)
	sets := [][]fsm.BrokerID{s.Replicas}
	if ok {
		sets = append(sets, w.targets(p, s)...)
	}
	return ok && !slices.ContainsFunc(sets, func(set []fsm.BrokerID) bool {
		count := 0
		for _, n := range core {
			if slices.Contains(set, n.id) {
				count++
			}
		}
		return count < int(s.MinISR)
	})
}

// keepsLeader tells whether a core surely holds a member that may lead: one that
// keeps its seat since its session lives. Others can lose their seats by the very
// restart that brings them back; then all members may be needed to find the best log. So
// can one of which a report of damage is under way that comes late, or twice.
func (w *world) keepsLeader(core []*node, p *part, s fsm.Partition) bool {
	return slices.ContainsFunc(core, func(n *node) bool {
		b, _ := w.raft.image.Broker(n.id)
		return n.up && b.Eligible() && b.Epoch == n.epoch && n.clock().Sub(n.sent) < session/4 &&
			slices.Contains(s.ISR, n.id) && w.sure(p, s, n.id, nil) && !slices.Contains(n.told, p.tp)
	})
}

// restless tells what is not at rest yet; "" when all is.
func (w *world) restless() string {
	for _, t := range w.plan.Topics {
		if _, ok := w.raft.image.TopicByName(t.Name); !ok {
			return "topic " + t.Name + " is not there"
		}
	}
	for _, n := range w.nodes {
		if !n.away && (!n.up || n.reconciled == nil || n.im.Hash() != w.raft.image.Hash() || n.reconciled != n.im) {
			return "node " + n.String() + " is behind"
		}
	}
	for _, p := range w.parts {
		if why := w.restlessPart(p); why != "" {
			return p.name() + ": " + why
		}
	}
	for t := range w.raft.image.Tombstones() {
		if slices.ContainsFunc(t.Pending, func(id fsm.BrokerID) bool { return !w.node(id).away }) {
			return "a deletion is not confirmed"
		}
	}
	return w.restlessFolder()
}

func (w *world) restlessPart(p *part) string {
	s, ok := w.raft.image.Partition(p.tp)
	if !ok {
		return ""
	}
	l := w.node(s.Leader)
	if l == nil || l.away {
		return "no leader that is up"
	}
	lead := l.replica(p.tp)
	if lead == nil || lead.role != roleLeader {
		return "the leader does not lead"
	}
	if s.Reassigning() {
		return "a reassignment runs"
	}
	up := 0
	for _, id := range s.Replicas {
		n := w.node(id)
		if n.away {
			continue
		}
		up++
		r := n.replica(p.tp)
		switch {
		case !slices.Contains(s.ISR, id):
			return "not all that are up are in the ISR"
		case r == nil || r.log.End() != lead.log.End():
			return "logs have not the same end"
		case r.log.Start() < lead.log.Start():
			return "a log starts before the leader's"
		}
	}
	if up < int(s.MinISR) {
		return "" // nothing more can be committed
	}
	for _, id := range s.Replicas {
		if n := w.node(id); !n.away && n.replica(p.tp).hw != lead.log.End() {
			return "the high watermark is not at the end"
		}
	}
	if t, ok := w.raft.image.Topic(p.tp.Topic); ok && s.Durability != t.Config.Durability {
		return "the durability is not the topic's"
	}
	for _, c := range w.clients {
		if c.part == p && len(c.unacked) > 0 {
			return "a client waits for an answer"
		}
	}
	return ""
}

// finish looks at everything once more, stops every node in order, and verifies
// its files.
func (w *world) finish() {
	w.checkAll()
	w.compareLogs()
	for _, p := range w.parts {
		if s, ok := w.raft.image.Partition(p.tp); ok {
			w.report.Epochs += int(s.LeaderEpoch)
		}
	}
	w.report.Entries = len(w.raft.entries)
	for _, n := range w.nodes {
		if !n.up || n.dir == nil {
			continue
		}
		n.checkRot()
		if err := n.dir.Close(&storage.CleanStop{BrokerEpoch: int64(n.epoch)}); err != nil {
			w.fail("folders close", "node %d: %v", n.id, err)
		}
		n.up = false
		if slices.ContainsFunc(n.journals, n.rots) {
			continue
		}
		if err := storage.Check(n.disk.Mem, dataPath); err != nil {
			w.fail("folders pass the verifier", "node %d: %v", n.id, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
}

// compareLogs compares the logs of all replicas that are up, byte for byte.
func (w *world) compareLogs() {
	for _, p := range w.parts {
		var first *replica
		for _, n := range w.nodes {
			r := n.replica(p.tp)
			if r == nil || !n.up {
				continue
			}
			if first == nil {
				first = r
				continue
			}
			a, b := first.j, r.j
			start := max(a.start, b.start)
			if !slices.Equal(a.recs[a.at(start):], b.recs[b.at(start):]) {
				w.fail("logs are equal", "%s: node %d has %v, node %d has %v", p.name(), first.n.id, a.recs, n.id, b.recs)
			}
		}
	}
}
