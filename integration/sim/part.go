package sim

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// part is what is known of one partition, for ever: everything that was ever
// below a leader's high watermark, and what clients were told.
type part struct {
	w     *world
	tp    fsm.TopicPartition
	topic string
	recs  []rec
	end   batch.Offset

	sequences []sequenceOf   // of its producers: the next expected
	owners    []owner        // of its leader epochs, those that appended
	held      []batch.Offset // by node: to where it was committed while it was in the ISR
	acked     batch.Offset   // end of what was acknowledged
	ackedAt   []moment       // when it moved
	seen      fsm.PartitionEpoch
	steady    batch.Offset   // what was committed when the ISR last changed
	replicas  []fsm.BrokerID // as they were last
	exists    bool           // it does, or its tombstone
	losses    int            // elections at the risk of loss
	// riskEpoch is the leader epoch of the last of them. A leader of an earlier one that was
	// cut off when an operator did not wait for it goes on until it hears of that, and what it
	// acknowledges is given up, as the operator was told.
	riskEpoch batch.Epoch

	// proposals are the ISR changes that were ever sent at the partition's present
	// epoch: any of them may still come to pass.
	proposals []isr.Change
}

type sequenceOf struct {
	producer int64
	next     int32
}

type owner struct {
	epoch batch.Epoch
	node  fsm.BrokerID
	life  int
}

// moment is where something ended at a time.
type moment struct {
	at  time.Duration
	end batch.Offset
}

// ackedBy is the end of what had been acknowledged at a time.
func (p *part) ackedBy(t time.Duration) batch.Offset {
	i := sort.Search(len(p.ackedAt), func(i int) bool { return p.ackedAt[i].at > t })
	if i == 0 {
		return 0
	}
	return p.ackedAt[i-1].end
}

func (p *part) name() string { return fmt.Sprintf("%s-%d", p.topic, p.tp.Partition) }

func (p *part) at(o batch.Offset) int {
	return sort.Search(len(p.recs), func(i int) bool { return p.recs[i].end > o })
}

// overruled tells whether a replica takes part in what an election at the risk of loss
// gave up.
func (r *replica) overruled() bool { return r.epoch < r.part.riskEpoch }

// commit notes that a leader's high watermark passed what its log holds up to hw.
// No offset ever gets a second content, and a producer's batches come once each,
// in their order.
func (p *part) commit(r *replica, hw batch.Offset) {
	w := p.w
	if hw > r.log.End() || hw > r.j.end() {
		w.fail("high watermark within the log", "node %d puts that of %s to %d, its log ends at %d", r.n.id, p.name(), hw, r.log.End())
	}
	if mine, theirs, ok := r.j.follow(p); !ok && mine.base < hw {
		w.fail("one history", "node %d leads %s in epoch %d with %v where %v was committed", r.n.id, p.name(), r.epoch, mine, theirs)
	}
	if hw <= p.end {
		return
	}
	if r.j.same < p.end {
		w.fail("one history", "node %d leads %s in epoch %d with a log that lacks %d to %d", r.n.id, p.name(), r.epoch, r.j.same, p.end)
	}
	for _, x := range r.j.recs[r.j.at(p.end):] {
		if x.base >= hw {
			break
		}
		if x.end > hw || x.base != p.end {
			w.fail("whole batches", "high watermark %d of %s splits %v, committed to %d", hw, p.name(), x, p.end)
		}
		p.sequence(x)
		p.recs, p.end = append(p.recs, x), x.end
	}
	r.j.same = p.end
	p.hold()
	w.touch(p)
}

// hold notes which members have all that is committed.
func (p *part) hold() {
	if p.held == nil {
		p.held = make([]batch.Offset, len(p.w.nodes))
	}
	s, _ := p.w.raft.image.Partition(p.tp)
	for _, id := range s.ISR {
		p.held[id-1] = p.end
	}
}

// sequence checks that a producer's batch is its next one.
func (p *part) sequence(x rec) {
	if x.producer < 0 {
		return
	}
	for i := range p.sequences {
		s := &p.sequences[i]
		if s.producer != x.producer {
			continue
		}
		if x.sequence != s.next && s.next != anySequence {
			p.w.fail("each batch once and in order", "%s commits %v of producer %d where sequence %d comes next", p.name(), x, x.producer, s.next)
		}
		s.next = x.sequence + int32(x.end-x.base)
		return
	}
	p.w.fail("each batch once and in order", "%s commits %v of a producer that does not write there", p.name(), x)
}

// anySequence stands for the next of a producer of which a loss left nothing: the
// log does not know it any more.
const anySequence = -1

// recovered takes an election at the risk of loss. Whatever survives with one of the
// last members, or with anybody who was a member when it was committed, is kept. Only
// a loss of power of the whole cluster explains that something is lost, and in fsync
// partitions only that of too many disks.
func (p *part) recovered(leader *node, was fsm.Partition) {
	w := p.w
	if !leader.intact() { // it has lost its disk since it answered, and will not lead
		p.riskEpoch = was.LeaderEpoch + 1
		return
	}
	kept := w.agreesTo(leader, p)
	asked := w.forced[p.tp]
	for i, n := range w.nodes {
		if asked.epoch == was.LeaderEpoch && !slices.Contains(asked.brokers, n.id) {
			continue // an operator did not wait for it
		}
		if n.isDamaged(p.tp) {
			continue // it is barred
		}
		other := w.agreesTo(n, p)
		if !slices.Contains(was.LastMembers, n.id) && !w.raft.image.Eligible(n.id) && p.held != nil { // nobody asked it
			other = min(other, p.held[i])
		}
		if other > kept {
			w.fail("the best log leads", "node %d leads %s with a log that agrees to %d, that of node %d agrees to %d", leader.id, p.name(), kept, n.id, other)
		}
		if p.held != nil {
			p.held[i] = min(p.held[i], kept)
		}
	}
	if kept < p.end && w.disasters == 0 && (w.blackouts == 0 || was.Durability == fsm.DurabilityFsync) {
		w.fail("acknowledged records survive", "node %d leads %s with a log that agrees to %d, committed to %d, after %d blackouts", leader.id, p.name(), kept, p.end, w.blackouts)
	}
	w.note(leader.id, "keeps %s to %d of %d", p.name(), kept, p.end)
	p.losses, p.riskEpoch = p.losses+1, was.LeaderEpoch+1
	w.report.Lost += int(p.end - kept)
	p.recs = p.recs[:p.at(kept)]
	p.end, p.acked = kept, min(p.acked, kept)
	for len(p.ackedAt) > 0 && p.ackedAt[len(p.ackedAt)-1].end > kept {
		p.ackedAt = p.ackedAt[:len(p.ackedAt)-1]
	}
	for i := range p.sequences {
		p.sequences[i].next = p.nextOf(p.sequences[i].producer, leader)
	}
	for _, n := range w.nodes {
		if h := n.journal(p.tp); h != nil {
			h.j.same = min(h.j.same, kept)
		}
	}
}

// agreesTo is the end of what a node's log has of what was committed.
func (w *world) agreesTo(n *node, p *part) batch.Offset {
	h := n.journal(p.tp)
	if h == nil {
		return 0
	}
	h.j.follow(p)
	return min(h.j.same, p.end)
}

// nextOf is the sequence that follows what is left of a producer's in a leader's log: of
// what lies below its start the log may know nothing.
func (p *part) nextOf(producer int64, leader *node) int32 {
	h := leader.journal(p.tp)
	for i := len(p.recs) - 1; i >= 0 && h != nil && p.recs[i].base >= h.j.start; i-- {
		if x := p.recs[i]; x.producer == producer {
			return x.sequence + int32(x.end-x.base)
		}
	}
	return anySequence
}

// appended notes that a leader took a record in an epoch.
func (p *part) appended(n *node, e batch.Epoch) {
	for i := len(p.owners) - 1; i >= 0; i-- {
		o := p.owners[i]
		if o.epoch != e {
			continue
		}
		if o.node != n.id || o.life != n.life {
			p.w.fail("one leader an epoch", "nodes %d (life %d) and %d (life %d) both append to %s in epoch %d", o.node, o.life, n.id, n.life, p.name(), e)
		}
		return
	}
	p.owners = append(p.owners, owner{e, n.id, n.life})
}

// acknowledge notes that a client was told that its batch is safe.
func (p *part) acknowledge(o *outgoing, base batch.Offset) {
	i := p.at(base)
	if i == len(p.recs) || p.recs[i].base != base || p.recs[i].producer != o.producer || p.recs[i].sequence != o.sequence {
		at := rec{}
		if i < len(p.recs) {
			at = p.recs[i]
		}
		p.w.fail("acknowledged is committed", "%s acknowledged p%d/%d at %d, where %v was committed (to %d)", p.name(), o.producer, o.sequence, base, at, p.end)
	}
	if end := base + batch.Offset(o.count); end > p.acked {
		p.acked = end
		p.ackedAt = append(p.ackedAt, moment{p.w.now, end})
	}
	p.w.report.Acked += int(o.count)
}

// proposed remembers an ISR change that was sent.
func (p *part) proposed(c isr.Change) {
	kept := p.proposals[:0]
	for _, old := range p.proposals {
		if old.PartitionEpoch >= c.PartitionEpoch {
			kept = append(kept, old)
		}
	}
	p.proposals = append(kept, c)
}
