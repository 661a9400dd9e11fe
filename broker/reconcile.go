package broker

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
)

// images is the local copy of what the cluster has agreed on.
type images interface {
	// Image is the newest Image.
	Image() *fsm.Image
	// Changed returns a channel that is closed when a newer one is published.
	Changed() <-chan struct{}
}

// reconciler makes this node's replicas agree with the Image: folders, roles and
// ISRs. It is the only one that changes a role, and it learns of roles from
// nothing but the Image. One goroutine owns it.
//
// Roles come first: folders are made and removed some at a time (folders.go), and
// between two rounds a newer Image is looked at, so that a large topic does not
// hold up a failover.
//
// A folder is deleted on a tombstone of its topic id, or on a row of that topic id which
// names the replicas and leaves this node out. One whose topic or partition the Image does
// not know is renamed aside and reported: silence is never a reason to delete. Unlike a
// tombstone, a row may name this node again later. So no row of the past is believed: a
// start waits for all that the controller knows, and from then on Images only advance.
type reconciler struct {
	env      *environment
	images   images
	dir      *storage.Dir
	replicas *Partitions
	follows  *follows
	feeders  *feeders
	keeper   *keeper
	log      hclog.Logger

	last *fsm.Image
	// slots is told of slots of groups that have another owner or epoch.
	slots func([]fsm.SlotDelta)
	// session is told of each Image whose roles are in force.
	session func(index uint64)

	work  folderWork
	index atomic.Uint64 // of last, for settled
	done  chan struct{}
}

func newReconciler(env *environment, im images, d *storage.Dir, fo *follows, fe *feeders, k *keeper, log hclog.Logger) *reconciler {
	return &reconciler{
		slots: func([]fsm.SlotDelta) {}, session: func(uint64) {}, env: env, images: im, dir: d, replicas: env.replicas, follows: fo, feeders: fe, keeper: k, log: log,
		work: newFolderWork(), done: make(chan struct{}),
	}
}

// settled is the index of the Image that was acted on last; 0 before start. Any
// goroutine may ask.
func (r *reconciler) settled() uint64 { return r.index.Load() }

// adopt judges the folders found at start by the Image. No replica gets a role:
// this node has not registered yet.
func (r *reconciler) adopt(im *fsm.Image) error {
	r.last = im
	for _, l := range r.dir.Logs() {
		tp := fsm.TopicPartition{Topic: fsm.TopicID(l.ID()), Partition: l.Partition()}
		t, known := im.Topic(tp.Topic)
		if known && t.Name == l.Topic() && hosts(im, tp, r.env.self) {
			r.replicas.put(newPartition(tp, l, r.env))
			continue
		}
		if err := r.discard(im, l); err != nil {
			return err
		}
	}
	for t := range im.Tombstones() {
		if slices.Contains(t.Pending, r.env.self) {
			r.keeper.confirm(t.ID)
		}
	}
	return nil
}

// hosts tells whether a node is one of the replicas of a partition.
func hosts(im *fsm.Image, tp fsm.TopicPartition, id fsm.BrokerID) bool {
	s, ok := im.Partition(tp)
	return ok && slices.Contains(s.Replicas, id)
}

// recall looks for the replicas that this node has by im, in which it has registered, and
// that have no folder, and returns those whose seats it has to give up before it may be
// elected for them.
//
// One that had records is known from then on as a damaged log (storage.Dir.OpenLost),
// which is barred until it is cut. Of the others nothing is known: this node may have
// been killed before it made the folder, and then nobody counted on it, or it was killed
// so soon after that no checkpoint tells. Such a replica begins anew and keeps no seat,
// but where there is no other one that could have more.
func (r *reconciler) recall(im *fsm.Image) []fsm.TopicPartition {
	r.removeReplicas(fsm.Diff(r.last, im)) // of topics deleted since adopt
	r.last = im
	var unsure []fsm.TopicPartition
	for tp, s := range im.Hosted(r.env.self) {
		if r.replicas.Get(tp) != nil {
			continue
		}
		t, ok := im.Topic(tp.Topic)
		if !ok {
			panic(fmt.Sprintf("BUG: partition %v without a topic", tp))
		}
		if promisedNothing(s, r.env.self) {
			continue // it may have been one before, with a folder of which a checkpoint still tells
		}
		if l, lost := r.dir.OpenLost(t.Name, tp.Partition, storage.ID(tp.Topic)); lost {
			r.replicas.put(newPartition(tp, l, r.env))
		} else if s.Seated(r.env.self) && len(s.Replicas) > 1 {
			unsure = append(unsure, tp)
		}
	}
	r.dir.ForgetLost()
	return unsure
}

// promisedNothing tells whether a replica is being added and has not been in the ISR yet.
func promisedNothing(s fsm.Partition, id fsm.BrokerID) bool {
	return slices.Contains(s.Adding, id) && !s.Seated(id) && !slices.Contains(s.LastMembers, id)
}

// start gives every replica its role by im, an Image that is not older than that of recall.
func (r *reconciler) start(im *fsm.Image) {
	r.removeReplicas(fsm.Diff(r.last, im))
	r.last = im
	for tp, s := range im.Hosted(r.env.self) {
		t, ok := im.Topic(tp.Topic)
		if !ok {
			panic(fmt.Sprintf("BUG: partition %v without a topic", tp))
		}
		r.place(im, tp, t, s)
	}
	r.measure(im)
	r.settle(im)
	r.keeper.reconciled(im.Index())
}

// settle publishes that the roles of im are in force.
func (r *reconciler) settle(im *fsm.Image) {
	r.index.Store(im.Index())
	r.session(im.Index())
}

// run follows the Image until ctx ends.
func (r *reconciler) run(ctx context.Context) {
	defer close(r.done)
	var again <-chan time.Time // nil while no other try is due: not each Image puts it off
	for ctx.Err() == nil {
		changed := r.images.Changed()
		if im := r.images.Image(); im.Index() > r.last.Index() {
			r.step(im)
		}
		if r.folders() {
			continue
		}
		if again == nil && r.work.anyFailed() {
			again = time.After(folderRetry)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-again:
			again = nil
			r.retry()
		}
	}
}

// step brings the roles from the last Image to im.
func (r *reconciler) step(im *fsm.Image) {
	d := fsm.Diff(r.last, im)
	r.last = im
	touched := r.removeReplicas(d)
	for _, pd := range d.Partitions {
		if pd.New == nil || !slices.Contains(pd.New.Replicas, r.env.self) {
			continue
		}
		t, ok := im.Topic(pd.TP.Topic)
		if !ok {
			panic(fmt.Sprintf("BUG: partition %v without a topic", pd.TP))
		}
		touched = touched || pd.Old == nil
		r.place(im, pd.TP, t, *pd.New)
		r.countISR(pd)
	}
	r.configureTopics(im, d.Topics)
	if len(d.Partitions) > 0 {
		r.measure(im)
	}
	if len(d.Brokers) > 0 {
		r.brokersChanged(im, d.Brokers)
	}
	r.slots(d.Slots)
	r.settle(im)
	if touched {
		r.keeper.reconciled(im.Index())
	}
}

// removeReplicas ends the roles of replicas that this node hosts no more.
func (r *reconciler) removeReplicas(d fsm.Delta) bool {
	touched := false
	for _, pd := range d.Partitions {
		if pd.New != nil && slices.Contains(pd.New.Replicas, r.env.self) {
			continue
		}
		r.work.forget(pd.TP)
		if p := r.replicas.Get(pd.TP); p != nil {
			touched = true
			r.follows.drop(p)
			why := errUnknownPartition
			if pd.New != nil {
				why = errNotLeader
			}
			p.leave(why)
			r.replicas.remove(pd.TP)
			r.work.remove(p.log, pd.New != nil)
		}
	}
	for _, t := range d.Buried {
		if slices.Contains(t.Pending, r.env.self) {
			r.work.bury(t.ID)
		}
	}
	return touched
}

// place gives a replica the role that im gives it, or has its folder made first.
func (r *reconciler) place(im *fsm.Image, tp fsm.TopicPartition, t *fsm.Topic, s fsm.Partition) {
	p := r.replicas.Get(tp)
	if p == nil {
		r.work.make(tp, t)
		return
	}
	r.configure(p.log, t, s)
	r.assign(im, p, s, r.stateOf(t, s))
}

// configure makes a log follow its topic's configs.
func (r *reconciler) configure(l *storage.Log, t *fsm.Topic, s fsm.Partition) {
	size := int64(0) // the node's
	if t.Configs["segment.bytes"] != "" {
		size = t.Config.SegmentBytes
	}
	l.SetSegmentBytes(size)
	l.SetSegmentAge(r.env.retention.segmentAge(t))
	l.SetCompaction(r.env.compaction.policy(t, s))
}

// configureTopics takes changed configs to the logs of their topics.
func (r *reconciler) configureTopics(im *fsm.Image, ids []fsm.TopicID) {
	for _, id := range ids {
		t, ok := im.Topic(id)
		if !ok {
			continue
		}
		for i := range t.Partitions {
			tp := fsm.TopicPartition{Topic: id, Partition: i}
			s, known := im.Partition(tp)
			if p := r.replicas.Get(tp); p != nil && known {
				r.configure(p.log, t, s)
				r.changed(im, p)
			}
		}
	}
}

// changed lets p know of what is not its own in the Image: configs and brokers.
func (r *reconciler) changed(im *fsm.Image, p *Partition) {
	s, ok := im.Partition(p.tp)
	t, known := im.Topic(p.tp.Topic)
	if !ok || !known {
		return
	}
	state := r.stateOf(t, s)
	p.keep(state)
	if s.Leader == r.env.self {
		p.brokerChanged(state)
	}
}

// assign gives p its role.
func (r *reconciler) assign(im *fsm.Image, p *Partition, s fsm.Partition, state isr.State) {
	p.keep(state)
	if s.Leader != r.env.self {
		switch anew, whole := p.becomeFollower(s.Leader, s.LeaderEpoch, s.Seated(r.env.self)); {
		case !whole:
			if s.Seated(r.env.self) { // it waits for its seat to be taken
				r.env.damaged(p)
			}
			r.follows.drop(p)
			r.work.uncut[p.tp] = true
		case anew:
			r.follows.set(p, s.Leader, s.LeaderEpoch)
		}
		return
	}
	if !r.incarnation(im) {
		r.follows.drop(p)
		p.becomeFollower(fsm.NoBroker, s.LeaderEpoch, true)
		return
	}
	r.follows.drop(p)
	if s.Recovering && !p.giveUp(s.LeaderEpoch) {
		p.becomeFollower(fsm.NoBroker, s.LeaderEpoch, true)
		r.work.uncut[p.tp] = true
		return
	}
	p.becomeLeader(state)
}

// incarnation tells whether the registration in im is this process's own: only
// then may it act on being named a leader.
func (r *reconciler) incarnation(im *fsm.Image) bool {
	b, ok := im.Broker(r.env.self)
	return ok && b.Epoch == r.env.epoch()
}

// brokersChanged cuts off feeds of earlier incarnations, and lets every leader
// whose replicas live on one of the brokers judge its ISR again.
func (r *reconciler) brokersChanged(im *fsm.Image, ids []fsm.BrokerID) {
	r.feeders.expire(im, ids)
	for _, p := range r.replicas.All() {
		s, ok := im.Partition(p.tp)
		if ok && s.Leader == r.env.self && slices.ContainsFunc(s.Replicas, func(id fsm.BrokerID) bool { return slices.Contains(ids, id) }) {
			r.changed(im, p)
		}
	}
}

// stateOf is the part of an Image's partition that the replication core needs,
// with the durability that is wanted of it.
func (r *reconciler) stateOf(t *fsm.Topic, s fsm.Partition) isr.State {
	state := stateOf(s)
	state.Wanted = r.env.durability
	if _, own := t.Configs[fsm.DurabilityConfig]; own {
		state.Wanted = t.Config.Durability
	}
	return state
}

func stateOf(s fsm.Partition) isr.State {
	return isr.State{
		LeaderEpoch: s.LeaderEpoch, PartitionEpoch: s.PartitionEpoch,
		Replicas: s.Replicas, ISR: s.ISR, MinISR: s.MinISR, Durability: s.Durability, Unsettled: !s.Settled(), Awaited: s.Awaited(),
	}
}

// countISR counts the changes of ISRs that this node leads.
func (r *reconciler) countISR(pd fsm.PartitionDelta) {
	if pd.Old == nil || pd.Old.Leader != r.env.self || pd.New.Leader != r.env.self {
		return
	}
	for _, id := range pd.Old.ISR {
		if !slices.Contains(pd.New.ISR, id) {
			r.env.metrics.isrShrinks.Inc()
			break
		}
	}
	for _, id := range pd.New.ISR {
		if !slices.Contains(pd.Old.ISR, id) {
			r.env.metrics.isrExpands.Inc()
			break
		}
	}
}

// measure sets the gauges of this node's replicas.
func (r *reconciler) measure(im *fsm.Image) {
	var hosted, leading, lacking, below, recovering, moving int
	for _, s := range im.Hosted(r.env.self) {
		hosted++
		if s.Leader != r.env.self {
			continue
		}
		leading++
		if lacks(s) {
			lacking++
		}
		if s.Reassigning() {
			moving++
		}
		if len(s.ISR) < int(s.MinISR) {
			below++
		}
		if s.Recovering {
			recovering++
		}
	}
	m := r.env.metrics
	m.partitions.Set(float64(hosted))
	m.leaders.Set(float64(leading))
	m.underReplicated.Set(float64(lacking))
	m.underMinISR.Set(float64(below))
	m.recovering.Set(float64(recovering))
	m.reassigning.Set(float64(moving))
}

// lacks tells whether the ISR lacks a replica. One that is being added was promised to nobody.
func lacks(s fsm.Partition) bool {
	return slices.ContainsFunc(s.Replicas, func(id fsm.BrokerID) bool {
		return !slices.Contains(s.ISR, id) && !slices.Contains(s.Adding, id)
	})
}
