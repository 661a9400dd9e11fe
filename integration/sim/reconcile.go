package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
)

// folderWork is what remains to be done to the folders.
type folderWork struct {
	leaving []leaving
	buried  []fsm.TopicID
	missing []missing
	uncut   []fsm.TopicPartition // damaged logs that could not be cut yet
	due     bool
}

// leaving is the log of a replica that this node is to have no more; out tells that a row left
// the node out.
type leaving struct {
	log *storage.Log
	out bool
}

type missing struct {
	tp   fsm.TopicPartition
	name string
}

// keeper confirms deletions and reports damage.
type keeper struct {
	deleted []fsm.TopicID
	damaged []fsm.TopicPartition
	due     bool
}

// changes carries the ISR proposals of all partitions to the controller, one
// command at a time.
type changes struct {
	pending []pendingChange
	busy    bool
}

type pendingChange struct {
	r      *replica
	change isr.Change
}

const (
	changeTimeout = 5 * time.Second
	changePause   = 100 * time.Millisecond
	folderRetry   = time.Second
	keeperPause   = 500 * time.Millisecond
)

// replica returns the node's replica of a partition, or nil.
func (n *node) replica(tp fsm.TopicPartition) *replica {
	for _, r := range n.replicas {
		if r.tp == tp {
			return r
		}
	}
	return nil
}

// adopt judges the folders found at start by the Image.
func (n *node) adopt() {
	n.adopted = n.im
	for _, l := range n.dir.Logs() {
		tp := fsm.TopicPartition{Topic: fsm.TopicID(l.ID()), Partition: l.Partition()}
		t, known := n.im.Topic(tp.Topic)
		if known && t.Name == l.Topic() && hosts(n.im, tp, n.id) {
			n.replicas = append(n.replicas, newReplica(n, tp, l))
			continue
		}
		if err := n.discard(n.im, l); err != nil {
			n.exit()
		}
	}
	for t := range n.im.Tombstones() {
		if slices.Contains(t.Pending, n.id) {
			n.confirm(t.ID)
		}
	}
}

func hosts(im *fsm.Image, tp fsm.TopicPartition, id fsm.BrokerID) bool {
	s, ok := im.Partition(tp)
	return ok && slices.Contains(s.Replicas, id)
}

// startRoles gives every replica its role by the Image in which this node has registered.
func (n *node) startRoles() {
	n.reconciled = n.im
	n.removeReplicas(fsm.Diff(n.adopted, n.im))
	for tp, s := range n.im.Hosted(n.id) {
		t, _ := n.im.Topic(tp.Topic)
		n.place(n.im, tp, t.Name, s)
	}
	n.slotChanged()
	n.promote()
	n.foldersSoon()
	n.changesSoon()
	n.keepSoon()
}

// reconcile brings the roles from the last Image to the newest.
func (n *node) reconcile() {
	n.roleDue = false
	old, im := n.reconciled, n.im
	if old == im {
		return
	}
	n.reconciled = im
	d := fsm.Diff(old, im)
	n.removeReplicas(d)
	for _, pd := range d.Partitions {
		if pd.New != nil && slices.Contains(pd.New.Replicas, n.id) {
			n.place(im, pd.TP, pd.Name, *pd.New)
		}
	}
	for _, r := range n.replicas {
		if slices.Contains(d.Topics, r.tp.Topic) {
			n.changed(im, r)
		}
	}
	if len(d.Brokers) > 0 {
		n.brokersChanged(im, d.Brokers)
	}
	n.slotChanged()
	n.promote()
	n.foldersSoon()
}

func (n *node) removeReplicas(d fsm.Delta) {
	for _, pd := range d.Partitions {
		if pd.New != nil && slices.Contains(pd.New.Replicas, n.id) {
			continue
		}
		n.work.missing = slices.DeleteFunc(n.work.missing, func(m missing) bool { return m.tp == pd.TP })
		if r := n.replica(pd.TP); r != nil {
			n.dropSource(r)
			r.leave()
			n.replicas = slices.DeleteFunc(n.replicas, func(x *replica) bool { return x == r })
			n.work.leaving = append(n.work.leaving, leaving{r.log, pd.New != nil})
		}
	}
	for _, t := range d.Buried {
		if slices.Contains(t.Pending, n.id) {
			n.work.buried = append(n.work.buried, t.ID)
		}
	}
}

// place gives a replica its role, or has its folder made first.
func (n *node) place(im *fsm.Image, tp fsm.TopicPartition, name string, s fsm.Partition) {
	if r := n.replica(tp); r != nil {
		n.assign(im, r, s)
		return
	}
	if !slices.ContainsFunc(n.work.missing, func(m missing) bool { return m.tp == tp }) {
		n.work.missing = append(n.work.missing, missing{tp, name})
	}
}

// changed lets a replica know of what is not its own in the Image.
func (n *node) changed(im *fsm.Image, r *replica) {
	s, ok := im.Partition(r.tp)
	if !ok {
		return
	}
	state := stateOf(im, r.tp, s)
	r.keep(state)
	if s.Leader == n.id {
		r.brokerChanged(state)
	}
}

func (n *node) assign(im *fsm.Image, r *replica, s fsm.Partition) {
	state := stateOf(im, r.tp, s)
	r.keep(state)
	if s.Leader != n.id {
		switch anew, whole := r.becomeFollower(s.Leader, s.LeaderEpoch, s.Seated(n.id)); {
		case !whole:
			if s.Seated(n.id) {
				n.damagedReplica(r)
			}
			n.assignAgain(r)
		case anew:
			n.setSource(r, s.Leader)
		}
		return
	}
	if b, ok := im.Broker(n.id); !ok || b.Epoch != n.epoch {
		n.dropSource(r)
		r.becomeFollower(fsm.NoBroker, s.LeaderEpoch, true)
		return
	}
	n.dropSource(r)
	if s.Recovering && !r.giveUp(s.LeaderEpoch) {
		r.becomeFollower(fsm.NoBroker, s.LeaderEpoch, true)
		n.assignAgain(r)
		return
	}
	r.becomeLeader(state)
}

// assignAgain has a replica whose log is damaged still wait without a role for another try.
func (n *node) assignAgain(r *replica) {
	n.dropSource(r)
	if slices.Contains(n.work.uncut, r.tp) {
		return
	}
	n.work.uncut = append(n.work.uncut, r.tp)
	n.do(folderRetry, laneData, func() {
		n.work.uncut = slices.DeleteFunc(n.work.uncut, func(tp fsm.TopicPartition) bool { return tp == r.tp })
		if s, ok := n.reconciled.Partition(r.tp); ok && n.replica(r.tp) == r {
			n.assign(n.reconciled, r, s)
		}
	})
}

// stateOf is the part of an Image's partition that the core needs, with the
// durability that the topic's config wants.
func stateOf(im *fsm.Image, tp fsm.TopicPartition, s fsm.Partition) isr.State {
	state := isr.State{
		LeaderEpoch: s.LeaderEpoch, PartitionEpoch: s.PartitionEpoch,
		Replicas: s.Replicas, ISR: s.ISR, MinISR: s.MinISR, Durability: s.Durability, Unsettled: !s.Settled(), Awaited: s.Awaited(),
	}
	if t, ok := im.Topic(tp.Topic); ok {
		state.Wanted = t.Config.Durability
	}
	return state
}

// brokersChanged cuts off feeds of earlier incarnations, and lets leaders judge
// their ISR again.
func (n *node) brokersChanged(im *fsm.Image, ids []fsm.BrokerID) {
	for _, id := range ids {
		c := n.feeders[id-1]
		if b, ok := im.Broker(id); ok && c != nil && b.Epoch > c.peer.Epoch {
			c.shut()
		}
	}
	for _, r := range n.replicas {
		s, ok := im.Partition(r.tp)
		if ok && s.Leader == n.id && slices.ContainsFunc(s.Replicas, func(id fsm.BrokerID) bool { return slices.Contains(ids, id) }) {
			n.changed(im, r)
		}
	}
}

// foldersSoon has one folder made or removed at a time: removals first, then
// confirmations, then new ones.
func (n *node) foldersSoon() {
	w := &n.work
	if w.due || len(w.leaving)+len(w.buried)+len(w.missing) == 0 {
		return
	}
	w.due = true
	n.do(n.w.between(100*time.Microsecond, 5*time.Millisecond), laneData, n.folders)
}

func (n *node) folders() {
	w := &n.work
	w.due = false
	var err error
	switch {
	case len(w.leaving) > 0:
		if w.leaving[0].out {
			err = n.delete(w.leaving[0].log)
		} else {
			err = n.discard(n.reconciled, w.leaving[0].log)
		}
		if err == nil {
			w.leaving = w.leaving[1:]
		}
	case len(w.buried) > 0:
		for _, id := range w.buried {
			n.confirm(id)
		}
		w.buried = nil
	case len(w.missing) > 0:
		m := w.missing[0]
		var r *replica
		if r, err = n.create(m); err == nil {
			w.missing = w.missing[1:]
			n.replicas = append(n.replicas, r)
			if s, ok := n.reconciled.Partition(m.tp); ok {
				n.place(n.reconciled, m.tp, m.name, s)
			}
		}
	}
	if err != nil {
		n.trouble(err)
		w.due = true
		n.do(folderRetry, laneData, n.folders)
		return
	}
	n.foldersSoon()
}

// create makes the folder. A log that has the name and another id makes room first.
func (n *node) create(m missing) (*replica, error) {
	if old := n.dir.Log(m.name, m.tp.Partition); old != nil {
		if fsm.TopicID(old.ID()) == m.tp.Topic {
			return newReplica(n, m.tp, old), nil
		}
		if err := n.discard(n.reconciled, old); err != nil {
			return nil, err
		}
	}
	l, err := n.dir.Create(m.name, m.tp.Partition, storage.ID(m.tp.Topic))
	if err != nil {
		return nil, err
	}
	return newReplica(n, m.tp, l), nil
}

// discard removes a folder on a tombstone, or on a row that leaves this node out, and
// otherwise sets it aside.
func (n *node) discard(im *fsm.Image, l *storage.Log) error {
	tp := logOf(l)
	_, buried := im.Tombstone(tp.Topic)
	if s, ok := im.Partition(tp); buried || ok && !slices.Contains(s.Replicas, n.id) {
		return n.delete(l)
	}
	n.discards(tp)
	n.w.note(n.id, "sets %s-%d aside", l.Topic(), l.Partition())
	if err := n.dir.Stray(l); err != nil {
		return err
	}
	n.forget(l)
	return nil
}

func (n *node) delete(l *storage.Log) error {
	n.discards(logOf(l))
	n.w.checkDeleted(n, logOf(l))
	if err := n.dir.Delete(l); err != nil {
		return err
	}
	n.forget(l)
	return nil
}

// discards notes that a folder may be gone from now on.
func (n *node) discards(tp fsm.TopicPartition) {
	if h := n.journal(tp); h != nil {
		h.leaving = true
	}
}

func logOf(l *storage.Log) fsm.TopicPartition {
	return fsm.TopicPartition{Topic: fsm.TopicID(l.ID()), Partition: l.Partition()}
}

// forget drops the model of a log whose name is free again.
func (n *node) forget(l *storage.Log) {
	n.journals = slices.DeleteFunc(n.journals, func(h *held) bool { return h.tp == logOf(l) })
}

// addChange queues one ISR proposal.
func (n *node) addChange(r *replica, c isr.Change) {
	r.part.proposed(c)
	n.changes.pending = append(n.changes.pending, pendingChange{r, c})
	n.changesSoon()
}

func (n *node) changesSoon() {
	c := &n.changes
	if c.busy || len(c.pending) == 0 || n.reconciled == nil {
		return
	}
	c.busy = true
	n.do(n.w.between(10*time.Microsecond, time.Millisecond), laneControl, n.sendChanges)
}

func (n *node) sendChanges() {
	some := n.changes.pending
	n.changes.pending = nil
	cmd := fsm.ChangeISR{Proposer: n.id, BrokerEpoch: n.epoch}
	for _, s := range some {
		cmd.Items = append(cmd.Items, fsm.ISRChange{TP: s.r.tp, LeaderEpoch: s.change.LeaderEpoch, PartitionEpoch: s.change.PartitionEpoch, ISR: s.change.ISR, Durability: s.change.Durability, Confirms: s.change.Confirms})
	}
	submit := n.propose
	if n.changesLate > n.w.now {
		submit = n.proposeLate
	}
	submit(changeTimeout, cmd, func(res fsm.Result, err error) {
		if err == nil {
			err = res.Err
		}
		outcomes := make([]isr.Outcome, len(some))
		for i := range outcomes {
			outcomes[i] = changeOutcome(err)
		}
		if err == nil {
			for k, i := range res.Skipped {
				outcomes[i] = changeOutcome(res.Why[k])
			}
		}
		pause := time.Duration(0)
		if err != nil {
			pause = changePause
		}
		n.do(0, laneData, func() {
			for i, s := range some {
				s.r.answered(s.change, outcomes[i])
			}
			n.do(pause, laneControl, func() {
				n.changes.busy = false
				n.changesSoon()
			})
		})
	})
}

// changeOutcome is package broker's: only what certainly was not and will not be
// done lets a leader forget its proposal.
func changeOutcome(err error) isr.Outcome {
	switch {
	case err == nil:
		return isr.Committed
	case errors.Is(err, fsm.IneligibleReplica), errors.Is(err, errNoController):
		return isr.Refused
	}
	return isr.Unknown
}

// confirm reports that this node holds nothing of a deleted topic any more.
func (n *node) confirm(id fsm.TopicID) {
	if !slices.Contains(n.keeper.deleted, id) {
		n.keeper.deleted = append(n.keeper.deleted, id)
	}
	n.keepSoon()
}

// damagedReplica reports that a log lacks what it had acknowledged.
func (n *node) damagedReplica(r *replica) {
	if !slices.Contains(n.keeper.damaged, r.tp) {
		n.keeper.damaged = append(n.keeper.damaged, r.tp)
		n.told = append(n.told, r.tp)
	}
	n.keepSoon()
}

func (n *node) keepSoon() {
	k := &n.keeper
	if k.due || len(k.deleted)+len(k.damaged) == 0 || n.reconciled == nil {
		return
	}
	k.due = true
	n.do(n.w.between(0, keeperPause), laneControl, n.keep)
}

func (n *node) keep() {
	k := &n.keeper
	again := func() {
		k.due = false
		n.keepSoon()
	}
	if len(k.damaged) > 0 {
		items := slices.Clone(k.damaged)
		n.propose(changeTimeout, fsm.ReportDamaged{Broker: n.id, BrokerEpoch: n.epoch, Items: items}, func(res fsm.Result, err error) {
			if err == nil && res.Err == nil {
				k.damaged = slices.DeleteFunc(k.damaged, func(tp fsm.TopicPartition) bool { return slices.Contains(items, tp) })
			}
			again()
		})
		return
	}
	ids := slices.Clone(k.deleted)
	n.propose(changeTimeout, fsm.ConfirmDeleted{Broker: n.id, BrokerEpoch: n.epoch, Topics: ids}, func(res fsm.Result, err error) {
		if err == nil && (res.Err == nil || errors.Is(res.Err, fsm.UnknownTopic)) {
			k.deleted = slices.DeleteFunc(k.deleted, func(id fsm.TopicID) bool { return slices.Contains(ids, id) })
		}
		again()
	})
}

// awaitHandOff calls then once no more leaderships can move away from this node.
func (n *node) awaitHandOff(then func()) {
	if len(elect.HandOff(n.im, n.id)) == 0 {
		then()
		return
	}
	n.do(handOffPause/2, laneControl, func() { n.awaitHandOff(then) })
}
