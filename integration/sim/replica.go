package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire/batch"
)

// role is what a node is to a partition it hosts.
type role uint8

const (
	roleIdle role = iota
	roleFollower
	roleLeader
	roleGone
)

// The errors of appends and reads, as clients can tell them apart.
var (
	errNotLeader         = errors.New("not leader")
	errUnknownPartition  = errors.New("unknown partition")
	errNotEnoughReplicas = errors.New("not enough replicas")
	errStaleSession      = errors.New("session is not fresh")
	errStaleAttempt      = errors.New("the partition has left this leader epoch")
)

// replica is what package broker's Partition is: one partition's log on one node,
// its role, and who waits for it.
type replica struct {
	n    *node
	tp   fsm.TopicPartition
	part *part
	log  *storage.Log
	h    *held
	j    *journal

	role     role
	leader   fsm.BrokerID
	epoch    batch.Epoch
	hw       batch.Offset
	peers    []fsm.BrokerID // the replicas that this leader feeds
	lead     *isr.Leader
	follow   *isr.Follower
	durable  bool // each append is flushed at once
	waiters  []*waiter
	feeders  []*conn
	corrupt  batch.Offset
	shownHW  batch.Offset // the last high watermark, where no cut took it
	shownFor batch.Epoch  // the partition's riskEpoch then
}

// waiter is a produce that waits for the high watermark.
type waiter struct {
	last batch.Offset
	done func(error)
}

func newReplica(n *node, tp fsm.TopicPartition, l *storage.Log) *replica {
	h := n.journal(tp)
	if h == nil {
		h = &held{tp: tp, topic: l.Topic(), cutTo: -1}
		n.journals = append(n.journals, h)
	}
	r := &replica{
		n: n, tp: tp, part: n.w.part(tp), log: l, h: h, j: &h.j,
		leader: fsm.NoBroker, epoch: batch.NoEpoch, hw: l.HW(), corrupt: -1,
	}
	l.OnDamage(func() { n.damagedReplica(r) })
	return r
}

func (r *replica) String() string {
	lead := ""
	if r.lead != nil {
		lead = "\n    " + strings.ReplaceAll(r.lead.String(), "\n", "\n    ")
	}
	return fmt.Sprintf("%s role=%d leader=%d epoch=%d log=[%d,%d) flushed=%d hw=%d model=[%d,%d) same=%d damaged=%v",
		r.part.name(), r.role, r.leader, r.epoch, r.log.Start(), r.log.End(), r.log.Flushed(), r.hw, r.j.start, r.j.end(), r.j.same, r.log.Damaged() != nil) + lead
}

// work runs a change of the log, in which the process may stop: what it finds
// after that is at least the log up to cutTo, or all of it when that is negative.
func (r *replica) work(cutTo batch.Offset, fn func() error) error {
	r.n.working, r.n.cutTo = r, int64(cutTo)
	err := fn()
	r.n.working, r.n.cutTo = nil, -1
	switch {
	case cutTo < 0:
	case err == nil && int64(cutTo) <= r.h.cutTo:
		r.h.cutTo = -1
	case err == nil:
	case r.h.cutTo < 0 || int64(cutTo) < r.h.cutTo: // the next process may find it half done: the recovery point is lowered
		r.h.cutTo = int64(cutTo)
	}
	return err
}

// env is the environment that the cores ask about: the node's newest Image.
func (r *replica) live(id fsm.BrokerID) (fsm.BrokerEpoch, bool) {
	b, ok := r.n.im.Broker(id)
	return b.Epoch, ok && b.Eligible()
}

// produce is stage one of an append and, for acks=all, stage two: done is called
// with the outcome.
func (r *replica) produce(b batch.Batch, acks int, done func(storage.Appended, error)) {
	switch {
	case r.role == roleGone:
		done(storage.Appended{}, errUnknownPartition)
		return
	case r.role != roleLeader:
		done(storage.Appended{}, errNotLeader)
		return
	case acks < 0 && r.lead.BelowMinISR():
		done(storage.Appended{}, errNotEnoughReplicas)
		return
	case acks >= 0 && !r.mayServe():
		done(storage.Appended{}, errStaleSession)
		return
	}
	var got storage.Appended
	err := r.work(-1, func() (err error) {
		got, err = r.log.AppendLeader(b, r.epoch)
		return err
	})
	if err != nil {
		r.n.trouble(err)
		if errors.Is(err, storage.ErrOutOfOrderSequence) {
			r.judge(err, done)
			return
		}
		done(storage.Appended{}, err)
		return
	}
	if !got.Duplicate {
		r.part.appended(r.n, r.epoch)
		r.j.append(b)
		r.appended()
		r.absorb(r.lead.Appended(got.Last+1, r.n.clock()))
		r.wakeFeeders(true)
	}
	if acks >= 0 {
		done(got, nil)
		return
	}
	r.await(got, done)
}

// judge is stage two of a refused sequence: that holds if no other leader may have taken what is
// missing here.
func (r *replica) judge(err error, done func(storage.Appended, error)) {
	n, epoch := r.n, r.epoch
	n.sync(syncWait, func(failed error) {
		if s, ok := n.im.Partition(r.tp); failed != nil || !ok || s.Leader != n.id || s.LeaderEpoch != epoch {
			err = errNotLeader
		}
		done(storage.Appended{}, err)
	})
}

// await is stage two: nil once the high watermark has passed the batch within the
// leader epoch of its append.
func (r *replica) await(got storage.Appended, done func(storage.Appended, error)) {
	if r.hw > got.Last {
		done(got, nil)
		return
	}
	r.waiters = append(r.waiters, &waiter{got.Last, func(err error) { done(got, err) }})
}

// mayServe is the self-fencing rule.
func (r *replica) mayServe() bool {
	return r.n.fresh() || r.lead.Heard(r.n.heardSince(), r.n.heard)
}

// absorb takes in the effects of the leader's core.
func (r *replica) absorb(e isr.Effects) {
	if e.HWMoved {
		r.setHW(e.HW)
		r.wakeFeeders(false)
	}
	if e.Propose != nil {
		r.n.addChange(r, *e.Propose)
	}
	if !e.WakeAt.IsZero() {
		r.tickSoon(e.WakeAt)
	}
}

func (r *replica) setHW(hw batch.Offset) {
	if hw < r.hw {
		r.n.w.fail("high watermark does not go back", "that of %s on node %d from %d to %d", r.part.name(), r.n.id, r.hw, hw)
	}
	if hw == r.hw {
		return
	}
	if !r.overruled() {
		r.part.commit(r, hw)
	}
	r.hw = hw
	r.shown()
	r.log.SetHW(hw)
	for len(r.waiters) > 0 {
		i := slices.IndexFunc(r.waiters, func(w *waiter) bool { return w.last < hw })
		if i < 0 {
			return
		}
		w := r.waiters[i]
		r.waiters = slices.Delete(r.waiters, i, i+1)
		w.done(nil)
	}
}

// shown checks that what a replica may show never shrinks as long as its process runs, from
// one leader epoch to the next either, but for an election at the risk of loss and a cut.
func (r *replica) shown() {
	if r.shownFor == r.part.riskEpoch && r.hw < r.shownHW {
		r.n.w.fail("high watermark does not go back", "that of %s on node %d in epoch %d from %d to %d", r.part.name(), r.n.id, r.epoch, r.shownHW, r.hw)
	}
	r.shownFor, r.shownHW = r.part.riskEpoch, r.hw
}

func (r *replica) wakeFeeders(records bool) {
	for _, c := range r.feeders {
		c.wake(r, records)
	}
}

func (r *replica) tickSoon(at time.Time) {
	d := time.Duration(float64(at.Sub(r.n.clock())) / r.n.drift)
	r.n.do(max(d+time.Microsecond, 0), laneData, func() {
		if r.role == roleLeader {
			r.absorb(r.lead.Tick(r.n.clock(), r.live))
		}
	})
}

// keep has the log flushed as a state calls for.
func (r *replica) keep(s isr.State) {
	durable := s.Flushes()
	if durable == r.durable {
		return
	}
	if r.durable = durable; !durable {
		r.log.SetDurable(nil)
		return
	}
	r.log.SetDurable(r.flushed)
	r.n.commitSoon()
}

// flushed tells the core how far the log is on the disk.
func (r *replica) flushed() {
	switch r.role {
	case roleLeader:
		r.absorb(r.lead.Flushed(min(r.log.Flushed(), r.log.End()), r.n.clock(), r.live))
	case roleFollower:
		for _, s := range r.n.sources {
			if s.follows(r) && s.conn != nil {
				s.conn.core.Flushed(r.tp, r.log.Flushed())
				s.conn.writeSoon()
			}
		}
	}
}

// appended has what was appended to a durable log flushed soon.
func (r *replica) appended() {
	if r.durable {
		r.n.commitSoon()
	}
}

// Roles. Only the reconciler changes them.

func (r *replica) becomeLeader(s isr.State) {
	if r.role == roleLeader && r.epoch == s.LeaderEpoch {
		r.peers = s.Replicas
		r.absorb(r.lead.Installed(s, r.n.clock(), r.live))
		return
	}
	ended := r.endEpoch()
	r.role, r.leader, r.epoch, r.peers = roleLeader, r.n.id, s.LeaderEpoch, s.Replicas
	c := isr.Config{Self: isr.Member{ID: r.n.id, Epoch: r.n.epoch}, LagMax: r.n.w.plan.LagMax}
	r.lead = isr.NewLeader(c, s, r.span(), r.n.clock())
	r.n.w.note(r.n.id, "leads %s in epoch %d from %d", r.part.name(), r.epoch, r.log.End())
	if r.epoch == r.part.riskEpoch && r.hw > r.part.end {
		// What it knows to be committed is of a history that an earlier election at the risk of loss
		// gave up. Its log is the truth from now on, and what it shows of it is served at once.
		r.part.commit(r, r.hw)
	}
	r.checkShown()
	r.absorb(r.lead.Tick(r.n.clock(), r.live))
	ended()
}

// giveUp cuts a damaged log for a leader that leads with what is left, and tells whether
// it is whole.
func (r *replica) giveUp(epoch batch.Epoch) bool {
	return r.role == roleLeader && r.epoch == epoch || r.heal()
}

func (r *replica) becomeFollower(leader fsm.BrokerID, epoch batch.Epoch, seated bool) (anew, whole bool) {
	wanted := roleFollower
	if leader == fsm.NoBroker {
		wanted = roleIdle
	}
	if r.role == wanted && r.leader == leader && r.epoch == epoch {
		return false, true
	}
	ended := r.endEpoch()
	if wanted == roleFollower && !seated {
		r.heal()
	}
	if whole = wanted == roleIdle || !r.damaged(); !whole {
		wanted, leader = roleIdle, fsm.NoBroker
	}
	r.role, r.leader, r.epoch = wanted, leader, epoch
	r.follow = isr.NewFollower(epoch, r.span())
	if wanted == roleFollower && r.follow.Told() {
		r.checkShown() // a reader may come at once
	}
	ended()
	return true, whole
}

// leave ends the replica's last role.
func (r *replica) leave() {
	ended := r.endEpoch()
	r.role, r.leader = roleGone, fsm.NoBroker
	ended()
}

func (r *replica) brokerChanged(s isr.State) {
	if r.role == roleLeader && r.epoch == s.LeaderEpoch {
		r.absorb(r.lead.Installed(s, r.n.clock(), r.live))
	}
}

// endEpoch ends the present role and returns what closes its attempts. As in
// package broker that comes later, without the partition's lock.
func (r *replica) endEpoch() func() {
	epoch, feeders := r.epoch, r.feeders
	waiters := r.waiters
	r.feeders, r.peers, r.lead, r.follow, r.waiters = nil, nil, nil, nil, nil
	for _, w := range waiters {
		w.done(errNotLeader)
	}
	return func() {
		for _, c := range feeders {
			r.n.do(r.n.w.between(0, 200*time.Microsecond), laneData, func() { c.closeEpoch(r, epoch) })
		}
	}
}

func (r *replica) damaged() bool { return r.log.Damaged() != nil || r.corrupt >= 0 }

// heal cuts a damaged log at the damage, so that it can be appended to again, and tells
// whether it is whole now.
func (r *replica) heal() bool {
	if !r.damaged() {
		return true
	}
	damage := r.log.Damaged()
	err := r.cutDamage()
	for err != nil && r.foundBefore(damage) {
		damage = r.log.Damaged()
		err = r.cutDamage()
	}
	r.n.trouble(err)
	return !r.damaged()
}

// cutDamage cuts the log at the first damage that is known.
func (r *replica) cutDamage() error {
	to := r.log.End()
	var found *storage.CorruptError
	if errors.As(r.log.Damaged(), &found) {
		to = min(to, found.Offset)
	}
	if r.corrupt >= 0 {
		to = min(to, r.corrupt)
	}
	err := r.cut(max(to, r.log.Start()))
	if err == nil {
		r.corrupt = -1
	}
	return err
}

// foundBefore tells whether the log is damaged before what was known.
func (r *replica) foundBefore(known error) bool {
	var was, is *storage.CorruptError
	return errors.As(r.log.Damaged(), &is) && (!errors.As(known, &was) || is.Offset < was.Offset)
}

func (r *replica) span() isr.Span {
	start, end := r.log.Start(), r.log.End()
	r.hw = min(max(r.hw, start), end)
	return isr.Span{Start: start, End: end, Flushed: min(r.log.Flushed(), end), HW: r.hw}
}

func (r *replica) answered(ch isr.Change, o isr.Outcome) {
	if r.role == roleLeader && r.epoch == ch.LeaderEpoch {
		r.absorb(r.lead.Answered(ch.PartitionEpoch, o, r.n.clock(), r.live))
	}
}
