package sim

import (
	"fmt"
	"slices"

	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire/batch"
)

// checkEvery is how many steps lie between two looks at everything.
const checkEvery = 400

// The invariants. Where each is checked:
//
//	one history                   part.commit: what a leader commits is what was committed there before
//	each batch once and in order  part.sequence: of each producer, in what is committed
//	acknowledged is committed     part.acknowledge
//	the best log leads, acknowledged records survive   part.recovered, where only last members are left
//	one leader an epoch           part.appended
//	high watermark does not go back, and lies within the log   replica.setHW, replica.shown, part.commit
//	what is shown is committed    replica.checkShown (followers), reader.check
//	ISR and ELR hold everything, no fenced broker is in an ISR   world.checkPart: each member, whenever one of them changes
//	a counted position is a common prefix   replica.checkPosition
//	logs hold what was appended   replica.compare: all bytes, at intervals and at each read
//	what rots is found            node.checkRot: at the end, by the scrub if by nobody before
//	what was flushed survives     node.checkRecovered: at each start
//	a Range keeps its bytes, no position twice   conn.finishSend, diskFile.check
//	Images agree                  node.catchUp
//	committed offsets never go back within a generation, acknowledged commits are read   world.checkOffsets, consumer.fetch
//	offsets of a group with members are kept   world.checkKept
//	nobody deposes a process that runs   world.checkRegistered
//	latest is not stale           reader.latest
//	nothing is deleted without a licence   world.checkDeleted
//	nobody leaves who is needed   world.checkLeaver
//	a tombstone outlives the files   world.checkBuried
//	the cluster comes to rest     world.heal
//	nothing panics                Run

// checkTouched checks the partitions that the last event touched.
func (w *world) checkTouched() {
	for len(w.touched) > 0 {
		p := w.touched[len(w.touched)-1]
		w.touched = w.touched[:len(w.touched)-1]
		w.checkPart(p)
	}
}

// imageChanged looks at what a new entry of the metadata log changed.
func (w *world) imageChanged() {
	w.checkOffsets()
	w.checkBuried()
	w.checkRegistered()
	defer func() { w.before = w.raft.image }()
	for t := range w.raft.image.Topics() {
		for i := range t.Partitions {
			tp := fsm.TopicPartition{Topic: t.ID, Partition: i}
			k := slices.IndexFunc(w.parts, func(p *part) bool { return p.tp == tp })
			if k < 0 {
				w.parts = append(w.parts, &part{w: w, tp: tp, topic: t.Name, exists: true})
				continue
			}
			w.touch(w.parts[k])
			if s, ok := w.raft.image.Partition(tp); ok && s.PartitionEpoch != w.parts[k].seen {
				w.parts[k].seen = s.PartitionEpoch
				w.parts[k].replicas = s.Replicas
				if was, ok := w.before.Partition(tp); ok {
					w.checkMoved(w.parts[k], was, s)
				}
				if was, ok := w.before.Partition(tp); ok && s.LeaderEpoch != was.LeaderEpoch && atRisk(s, was) {
					w.parts[k].recovered(w.node(s.Leader), was)
				}
				w.note(0, "%s is now: %v", w.parts[k].name(), stateText(s))
			}
		}
	}
}

// atRisk tells whether a leader was taken from outside ISR and ELR.
func atRisk(s, was fsm.Partition) bool {
	return s.Recovering && s.Leader != fsm.NoBroker && !was.Seated(s.Leader)
}

// checkRegistered checks that no registration replaces that of a process which runs
// and knows no other: whatever comes late or twice.
func (w *world) checkRegistered() {
	for b := range w.raft.image.Brokers() {
		n := w.node(b.ID)
		if was, ok := w.before.Broker(b.ID); ok && was.Epoch != b.Epoch && n.up && n.epoch == was.Epoch {
			w.fail("nobody deposes a process that runs", "node %d is registered at epoch %d, and epoch %d runs", n.id, b.Epoch, was.Epoch)
		}
	}
}

// checkBuried checks that the tombstone of a deleted topic outlives its files: on the
// replicas that it had. Who was away when it left, and is still, sets them aside.
func (w *world) checkBuried() {
	for _, p := range w.parts {
		if !p.exists {
			continue
		}
		if _, ok := w.raft.image.Topic(p.tp.Topic); ok {
			continue
		}
		if _, ok := w.raft.image.Tombstone(p.tp.Topic); ok {
			continue
		}
		p.exists = false
		for _, n := range w.nodes {
			if h := n.journal(p.tp); h != nil && !h.leaving && slices.Contains(p.replicas, n.id) {
				w.fail("a tombstone outlives the files", "that of %s is gone and node %d has a log of it", p.name(), n.id)
			}
		}
	}
}

// stateText is a partition's agreed state.
type stateText fsm.Partition

func (s stateText) String() string {
	text := fmt.Sprintf("leader %d epoch %d, partition epoch %d, ISR %v, ELR %v, last members %v, min %d, %v, of %v",
		s.Leader, s.LeaderEpoch, s.PartitionEpoch, s.ISR, s.ELR, s.LastMembers, s.MinISR, s.Durability, s.Replicas)
	if fsm.Partition(s).Reassigning() {
		text += fmt.Sprintf(", adding %v, removing %v, confirmed %t", s.Adding, s.Removing, s.Confirmed)
	}
	return text
}

// checkPart checks that whoever may be elected holds all that was committed.
func (w *world) checkPart(p *part) {
	s, ok := w.raft.image.Partition(p.tp)
	if !ok {
		return
	}
	for _, id := range s.ISR {
		if b, ok := w.raft.image.Broker(id); !ok || b.Fenced {
			w.fail("no fenced broker is in an ISR", "%s: %v", p.name(), stateText(s))
		}
		w.checkHolds(p, s, id, "ISR")
	}
	for _, id := range s.ELR {
		w.checkHolds(p, s, id, "ELR")
	}
}

func (w *world) checkHolds(p *part, s fsm.Partition, id fsm.BrokerID, list string) {
	n := w.node(id)
	if !n.intact() || n.isDamaged(p.tp) {
		return
	}
	h := n.journal(p.tp)
	if h == nil {
		if p.end > 0 {
			w.fail("ISR and ELR hold everything", "node %d is in the %s of %s without a log, committed to %d", id, list, p.name(), p.end)
		}
		return
	}
	if mine, theirs, ok := h.j.follow(p); !ok {
		w.fail("ISR and ELR hold everything", "node %d is in the %s of %s with %v where %v was committed", id, list, p.name(), mine, theirs)
	}
	if h.j.same < p.end {
		w.fail("ISR and ELR hold everything", "node %d is in the %s of %s with a log that agrees to %d, committed to %d", id, list, p.name(), h.j.same, p.end)
	}
	if r := n.replica(p.tp); s.Durability == fsm.DurabilityFsync && r != nil && r.log.Flushed() < min(p.end, r.log.End()) && r.role != roleIdle {
		w.fail("ISR and ELR hold everything", "node %d is in the %s of %s flushed to %d, committed to %d", id, list, p.name(), r.log.Flushed(), p.end)
	}
}

// isDamaged tells whether a node knows that its log lacks something; it is about
// to say so, or has.
func (n *node) isDamaged(tp fsm.TopicPartition) bool {
	if h := n.journal(tp); h != nil && n.rots(h) {
		return true // or will, as soon as it looks
	}
	r := n.replica(tp)
	return r != nil && r.damaged()
}

// checkShown checks that a follower shows nothing but what was committed.
func (r *replica) checkShown() {
	w, p := r.n.w, r.part
	if r.overruled() {
		return
	}
	if r.hw > p.end {
		w.fail("what is shown is committed", "node %d shows %s to %d, committed to %d", r.n.id, p.name(), r.hw, p.end)
	}
	if mine, theirs, ok := r.j.follow(p); !ok && mine.base < r.hw {
		w.fail("what is shown is committed", "node %d shows %v of %s where %v was committed", r.n.id, mine, p.name(), theirs)
	}
}

// checkPosition checks a position that is about to count: up to it the member's
// log and the leader's hold the same.
func (r *replica) checkPosition(c *conn, at isr.Position) {
	w, m := r.n.w, c.from
	if m.life != c.fromLife || m.replica(r.tp) == nil {
		return // its log may be another by now; what it said was of then
	}
	mine, theirs := r.j, &m.journal(r.tp).j
	if theirs.end() < at.Written {
		return // it was cut since
	}
	lo := max(mine.start, theirs.start, mine.same)
	i, k := mine.at(lo), theirs.at(lo)
	for i < len(mine.recs) && k < len(theirs.recs) && mine.recs[i].base < at.Written {
		if mine.recs[i] != theirs.recs[k] && c.stillFollows(r, at.Written) {
			w.fail("a counted position is a common prefix", "node %d counts %d of node %d in %s, which has %v where it has %v itself",
				r.n.id, at.Written, m.id, r.part.name(), theirs.recs[k], mine.recs[i])
		}
		i, k = i+1, k+1
	}
}

// stillFollows tells whether the follower is in the epoch and on the connection
// on which it reported a position, so that nothing but appends can have happened.
func (c *conn) stillFollows(r *replica, written batch.Offset) bool {
	f := c.from.replica(r.tp)
	return c.open && f != nil && f.follows(r.epoch) && f.log.End() >= written
}

// checkDeleted checks that the licence to delete files is there: the topic's tombstone, or
// a row without the node. That one is a replica again by now is no harm while it is being
// added and has no seat.
func (w *world) checkDeleted(n *node, tp fsm.TopicPartition) {
	s, ok := w.raft.image.Partition(tp)
	if !ok {
		_, buried := w.raft.image.Tombstone(tp.Topic) // it waits for all replicas that the topic had
		if !buried && slices.Contains(w.part(tp).replicas, n.id) {
			w.fail("nothing is deleted without a licence", "node %d deletes its log of %x-%d without a tombstone", n.id, tp.Topic[:4], tp.Partition)
		}
		return
	}
	if !slices.Contains(s.Replicas, n.id) {
		return
	}
	if !slices.Contains(s.Adding, n.id) || s.Seated(n.id) || slices.Contains(s.LastMembers, n.id) {
		w.fail("nothing is deleted without a licence", "node %d deletes its log of %x-%d: %v", n.id, tp.Topic[:4], tp.Partition, stateText(s))
	}
}

// checkRecovered compares the logs that a start found with what they must hold:
// everything after the end of a process, what was flushed after a loss of power.
func (n *node) checkRecovered() {
	for _, l := range n.dir.Logs() {
		h := n.journal(fsm.TopicPartition{Topic: fsm.TopicID(l.ID()), Partition: l.Partition()})
		if h == nil {
			continue // made as the process ended
		}
		n.checkLog(l, h)
	}
	for _, h := range n.journals {
		if l := n.dir.Log(h.topic, h.tp.Partition); l == nil || fsm.TopicID(l.ID()) != h.tp.Topic {
			n.lacks(h)
		}
	}
	n.journals = slices.DeleteFunc(n.journals, func(h *held) bool { return h.gone })
}

// lacks deals with a folder that is not there any more.
func (n *node) lacks(h *held) {
	if h.leaving {
		h.gone = true
		return
	}
	n.w.fail("what was flushed survives", "node %d has lost the folder of %s-%d", n.id, h.topic, h.tp.Partition)
}

func (n *node) checkLog(l *storage.Log, h *held) {
	w, j := n.w, &h.j
	least := j.end()
	if h.power {
		least = min(h.flushed, least)
	}
	if h.cutTo >= 0 {
		least = min(least, batch.Offset(h.cutTo))
	}
	if l.End() < least && l.Damaged() == nil {
		w.fail("what was flushed survives", "%s-%d on node %d ends at %d, it was at %d for sure (to %d in all)", h.topic, h.tp.Partition, n.id, l.End(), least, j.end())
	}
	if n.rots(h) {
		n.keepRotten(l, h)
		return
	}
	if l.Damaged() != nil {
		w.fail("what was flushed survives", "%s-%d on node %d is damaged: %v", h.topic, h.tp.Partition, n.id, l.Damaged())
	}
	if whole := !h.power && h.cutTo < 0; whole && l.LastEpoch() < h.last {
		w.fail("what was flushed survives", "%s-%d on node %d has epoch %d, it had %d", h.topic, h.tp.Partition, n.id, l.LastEpoch(), h.last)
	}
	found := slices.Clone(n.scan(l, l.Start()))
	old := j.recs
	same := j.same
	*j = journal{start: l.Start(), recs: found}
	for i, x := range found {
		k := slices.IndexFunc(old, func(o rec) bool { return o.base == x.base })
		if k >= 0 && old[k] != x && x.base < least {
			w.fail("logs hold what was appended", "%s-%d on node %d has %v where %v belongs", h.topic, h.tp.Partition, n.id, found[i], old[k])
		}
	}
	j.same = min(same, j.end(), least)
	h.power, h.cutTo, h.leaving, h.last = false, -1, false, batch.NoEpoch
}

// keepRotten believes of a log that rots what it was known to hold: to read it would
// find what nobody has looked at yet.
func (n *node) keepRotten(l *storage.Log, h *held) {
	j := &h.j
	if l.Start() < j.start { // it was raised, and not written down yet when the process ended
		p, kept := n.w.part(h.tp), j.start
		if len(j.recs) > 0 {
			kept = j.recs[0].base
		}
		j.recs = append(slices.Clone(p.recs[p.at(l.Start()):p.at(kept)]), j.recs...) // only what is committed is trimmed
		j.start = l.Start()
	}
	j.advance(l.Start())
	if l.End() < j.end() {
		j.cut(l.End())
	}
	if l.Damaged() == nil {
		j.recs = append(j.recs, n.scan(l, j.end())...) // what a write that the process ended in left
		h.mended(l.End())
	}
	h.power, h.cutTo, h.leaving, h.last = false, -1, false, batch.NoEpoch
}

// scan reads a log from an offset to its end. What it returns lasts until the next scan.
func (n *node) scan(l *storage.Log, at batch.Offset) []rec {
	recs := n.w.scanned[:0]
	for at < l.End() {
		rg, err := l.Read(at, l.End(), 1<<20)
		if err != nil || rg.Len() == 0 {
			n.w.fail("logs can be read", "%s-%d on node %d at %d of %d: %v", l.Topic(), l.Partition(), n.id, at, l.End(), err)
		}
		p := slices.Grow(n.w.scanBytes[:0], rg.Len())[:rg.Len()]
		n.w.scanBytes = p
		if _, err := rg.ReadAt(p, 0); err != nil {
			n.w.fail("logs can be read", "%s-%d on node %d at %d: %v", l.Topic(), l.Partition(), n.id, at, err)
		}
		for b, err := range batch.Run(p).Batches() {
			if err != nil || b.CheckCRC() != nil {
				n.w.fail("logs can be read", "%s-%d on node %d at %d: a broken batch", l.Topic(), l.Partition(), n.id, at)
			}
			recs = append(recs, recOf(b))
		}
		at = rg.End()
		rg.Release()
	}
	n.w.scanned = recs
	return recs
}

// checkAll compares every byte of every log with the model.
func (w *world) checkAll() {
	for _, p := range w.parts {
		w.checkPart(p)
	}
	for _, n := range w.nodes {
		if !n.up || n.dir == nil || n.dir.Offline() != nil {
			continue
		}
		for _, r := range n.replicas {
			if r.log.Damaged() != nil || n.rots(r.h) {
				continue
			}
			if found := n.scan(r.log, r.log.Start()); !slices.Equal(found, r.j.recs) {
				w.fail("logs hold what was appended", "%s on node %d: %d batches %v, the model has %d %v",
					r.part.name(), n.id, len(found), found, len(r.j.recs), r.j.recs)
			}
		}
	}
}
