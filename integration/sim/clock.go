package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire/batch"
)

// Wall clocks of nodes that are set, by seconds to days, forward and back. What goes by
// them goes wrong by as much: timestamps that a leader gives or judges, the age of records
// and of committed offsets. What goes by the time that has passed must not notice:
// sessions, lags, checkpoints, what a log remembers of producers.

// drawClocks has clocks of nodes set in a third of the runs, half of which have a topic
// whose leaders stamp the records.
func (p *Plan) drawClocks() {
	r := rand.New(rand.NewPCG(p.Seed, 0xc10c))
	if r.IntN(3) > 0 {
		return
	}
	if r.IntN(2) == 0 {
		p.Topics[r.IntN(len(p.Topics))].AppendTime = true
	}
	for range 1 + r.IntN(5) {
		at := 4*time.Second + time.Duration(r.Int64N(int64(p.Span-4*time.Second)))
		p.Faults = append(p.Faults, drawFault(r, *p, at, FaultStep))
	}
	slices.SortStableFunc(p.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
}

// stepsClocks tells whether clocks of nodes are set in a run: only then things grow old.
func (p *Plan) stepsClocks() bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == FaultStep })
}

// stepClocks sets the wall clock of a node, or of the clients.
func (w *world) stepClocks(f Fault, n *node, r *rand.Rand) {
	if f.Kind == FaultClock {
		w.skew = time.Duration(r.Int64N(int64(100*time.Minute))) - 50*time.Minute // within what a leader takes
		return
	}
	most := []time.Duration{10 * time.Second, 10 * time.Minute, 3 * time.Hour, 30 * time.Hour, 12 * 24 * time.Hour}[r.IntN(5)]
	d := time.Second + time.Duration(r.Int64N(int64(most)))
	if r.IntN(2) == 0 {
		d = -d
	}
	n.ahead += d
	w.note(n.id, "has its clock set by %v, to %v ahead", d, n.ahead)
}

// wall is the node's wall clock.
func (n *node) wall() time.Time { return n.clock().Add(n.ahead) }

// wall is the wall clock of clients.
func (w *world) wall() time.Time { return clockZero.Add(w.now + w.skew) }

// validated is what a produce request's records go through before the log sees them.
func (n *node) validated(tp fsm.TopicPartition, p []byte) (batch.Batch, error) {
	t, ok := n.im.Topic(tp.Topic)
	if !ok {
		return nil, errUnknownPartition
	}
	const most = 1 << 20
	return batch.Validate(p, batch.Rules{
		MaxBatchBytes: most, MaxSegmentBytes: most, MaxInflated: most, Now: n.wall().UnixMilli(),
		BeforeMax: t.Config.BeforeMax, AfterMax: t.Config.AfterMax, AppendTime: t.Config.AppendTime,
	})
}

// The age at which records and offsets may go, and by how much a clock may run ahead
// between two looks before a node believes nothing to be old.
const (
	agedMs    = int64(7 * 24 * time.Hour / time.Millisecond)
	clockLeap = 10 * time.Minute
)

// agedWork is the work that a node does for the age of what it has.
type agedWork struct {
	wall, steady time.Time // of the last look
}

// lookForOld lets go of old records and offsets, as package broker's retention and its
// groups do.
func (n *node) lookForOld() {
	if !n.w.plan.stepsClocks() {
		return
	}
	last, now := n.aged, agedWork{n.wall(), n.clock()}
	n.aged = now
	if last.wall.IsZero() || now.wall.Sub(last.wall)-now.steady.Sub(last.steady) > clockLeap {
		return
	}
	for _, r := range n.replicas {
		r.expire(storage.Retention{AgeMs: agedMs, Bytes: -1})
	}
	if n.tenure != nil && n.fresh() {
		n.tenure.sweep()
	}
}

// expire lets go of old records, if this node leads.
func (r *replica) expire(policy storage.Retention) {
	if r.role != roleLeader || !r.mayServe() {
		return
	}
	to, any := r.log.Expired(policy, r.hw)
	if !any {
		return
	}
	r.n.w.note(r.n.id, "lets go of %s below %d for its age", r.part.name(), to)
	r.begin(r.raise, to)
}

// sweep gives up the committed offsets of a group that has been without members for long.
func (t *tenure) sweep() {
	g, ok := t.n.im.Group(groupID)
	if !ok || len(g.Members) > 0 || t.n.wall().UnixMilli()-max(g.EmptySince, 0) < agedMs {
		return
	}
	old := fsm.ExpireOffsets{Group: groupID, Epoch: g.Epoch}
	for tp, c := range t.n.im.CommittedOf(groupID) {
		old.Partitions = append(old.Partitions, fsm.ExpiredOffset{TP: tp, CommitMs: c.CommitMs})
	}
	t.n.w.note(t.n.id, "gives up %d offsets for their age", len(old.Partitions))
	t.put(old, func(error) {})
}

// checkKept checks that no committed offset of a group with members is given up.
func (w *world) checkKept(g *fsm.Group) {
	if len(g.Members) == 0 {
		return
	}
	for tp, c := range w.before.CommittedOf(groupID) {
		if _, exists := w.raft.image.Topic(tp.Topic); !exists {
			continue
		}
		if _, ok := w.raft.image.Committed(groupID, tp); !ok {
			w.fail("offsets of a group with members are kept", "%d was committed for %x-%d in generation %d, and is gone", c.Offset, tp.Topic[:4], tp.Partition, g.Epoch)
		}
	}
}

// leave ends the generation, now and then, for a while: the group has no members then.
func (c *consumer) leave() bool {
	w := c.w
	if c.leaves == nil {
		c.leaves = rand.New(rand.NewPCG(w.plan.Seed, 0x1ea7))
	}
	if w.now < c.awayUntil {
		return true
	}
	if c.generation == 0 || c.joining || c.leaves.IntN(40) > 0 {
		return false
	}
	c.awayUntil = w.now + time.Duration(c.leaves.Int64N(int64(8*time.Second)))
	c.put(func(t *tenure, next int32) *fsm.Group {
		return &fsm.Group{ID: groupID, Kind: fsm.ClassicGroup, Epoch: next, ProtocolType: "consumer", EmptySince: t.n.wall().UnixMilli()}
	}, func(int32, error) { c.generation = 0 })
	return true
}
