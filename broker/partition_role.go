package broker

import (
	"errors"
	"fmt"

	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire/batch"
)

// keep has the log flushed as a state calls for, on the leader and on followers. It is
// called before the role is given, so that no flush is missed.
func (p *Partition) keep(s isr.State) {
	durable := s.Flushes()
	if durable == p.durable {
		return
	}
	p.durable = durable
	if durable {
		p.log.SetDurable(p.flushed)
	} else {
		p.log.SetDurable(nil)
	}
}

// fedBy names the feed that is told of flushes, before it is asked for one.
func (p *Partition) fedBy(f *follower) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.source = f
}

// becomeLeader leads in the epoch of s, or installs a newer state of the epoch
// that is led already.
func (p *Partition) becomeLeader(s isr.State) {
	now := p.env.now()
	p.mu.Lock()
	if p.role == roleLeader && p.epoch == s.LeaderEpoch {
		p.replicas = s.Replicas
		todo := p.absorbLocked(p.lead.Installed(s, now, p.env.live))
		p.mu.Unlock()
		p.carryOut(todo)
		return
	}
	ended := p.endEpochLocked()
	p.role, p.leader, p.epoch, p.replicas = roleLeader, p.env.self, s.LeaderEpoch, s.Replicas
	p.lead = isr.NewLeader(isr.Config{Self: p.env.member(), LagMax: p.env.lagMax}, s, p.spanLocked(), now)
	todo := p.absorbLocked(p.lead.Tick(now, p.env.live))
	p.mu.Unlock()
	ended.close(p)
	p.carryOut(todo)
}

// giveUp cuts a damaged log at the damage, since this node is to lead in the given
// epoch with what is left: nobody surely holds more, or an operator said so. One that
// was elected for its seat is not to cut: the report of the damage is on its way,
// and others hold what it lacks. It tells whether the log is whole; until it is, as on a
// full disk, nobody can lead with it.
func (p *Partition) giveUp(epoch batch.Epoch) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.role == roleLeader && p.epoch == epoch || p.healLocked()
}

// becomeFollower follows leader in the given epoch, or waits for a leader when
// there is none. It tells whether it has to be fed anew: the epoch or the leader is
// a new one. A damaged log is cut at the beginning of an epoch in which this node has
// no seat in ISR or ELR: with a seat it could be elected without the records that it has
// acknowledged, and within an epoch its leader counts where the log ended before and
// may be about to give it a seat for that. The report of the damage ends the epoch.
//
// A replica whose log is damaged still, as on a full disk, waits as if there was no
// leader, so that none counts where that log ends, and whole is false: it is to be
// assigned again.
func (p *Partition) becomeFollower(leader fsm.BrokerID, epoch batch.Epoch, seated bool) (anew, whole bool) {
	wanted := roleFollower
	if leader == fsm.NoBroker {
		wanted = roleIdle
	}
	p.mu.Lock()
	if p.role == wanted && p.leader == leader && p.epoch == epoch {
		p.mu.Unlock()
		return false, true
	}
	ended := p.endEpochLocked()
	if wanted == roleFollower && !seated {
		p.healLocked()
	}
	if whole = wanted == roleIdle || !p.damagedLocked(); !whole {
		wanted, leader = roleIdle, fsm.NoBroker
	}
	p.role, p.leader, p.epoch = wanted, leader, epoch
	p.follow = isr.NewFollower(epoch, p.spanLocked())
	p.mu.Unlock()
	ended.close(p)
	return true, whole
}

// leave ends the replica's last role, before its folder is renamed. Clients that still have
// hold of it are told why: the partition is gone, or it lives on other nodes.
func (p *Partition) leave(why error) {
	p.mu.Lock()
	ended := p.endEpochLocked()
	p.role, p.leader, p.left = roleGone, fsm.NoBroker, why
	p.mu.Unlock()
	ended.close(p)
}

// brokerChanged lets the leader judge its ISR again after the registration of a
// replica's broker changed.
func (p *Partition) brokerChanged(s isr.State) {
	p.mu.Lock()
	if p.role != roleLeader || p.epoch != s.LeaderEpoch {
		p.mu.Unlock()
		return
	}
	todo := p.absorbLocked(p.lead.Installed(s, p.env.now(), p.env.live))
	p.mu.Unlock()
	p.carryOut(todo)
}

// endedEpoch is a leader epoch whose attempts have to be closed.
type endedEpoch struct {
	epoch   batch.Epoch
	feeders []*feeder
}

// close closes the attempts. It runs without the partition's lock: a position
// that arrives in between is refused by its epoch.
func (e endedEpoch) close(p *Partition) {
	for _, f := range e.feeders {
		f.closeEpoch(p, e.epoch)
	}
}

// endEpochLocked ends the present role: who waits for a produce is told that the
// epoch is over, fetches look again.
func (p *Partition) endEpochLocked() endedEpoch {
	if p.role == roleGone {
		panic(fmt.Sprintf("BUG: role change of %s-%d after it was removed", p.log.Topic(), p.tp.Partition))
	}
	ended := endedEpoch{p.epoch, p.feeders}
	p.feeders, p.replicas, p.lead, p.follow = nil, nil, nil, nil
	p.waiters.fail(errNotLeader)
	p.signalLocked()
	return ended
}

// damagedLocked tells whether anything is known to be wrong with the log's bytes.
func (p *Partition) damagedLocked() bool { return p.log.Damaged() != nil || p.corrupt >= 0 }

// healLocked cuts a damaged log at the damage, so that it can be appended to
// again, and tells whether the log is whole now. A follower then fetches what is lost;
// this node has no seat in the ISR, or it leads because an operator said so.
func (p *Partition) healLocked() bool {
	if !p.damagedLocked() {
		return true
	}
	damage := p.log.Damaged()
	err := p.cutDamageLocked()
	for err != nil && p.foundBefore(damage) { // the cut came upon more, further ahead
		damage = p.log.Damaged()
		err = p.cutDamageLocked()
	}
	if errors.Is(err, storage.ErrOffline) {
		p.env.fail(err)
	}
	whole, told := !p.damagedLocked(), p.uncut
	p.uncut = !whole
	if told && !whole {
		return false
	}
	what := "damaged log was cut"
	if !whole {
		what = "damaged log cannot be cut yet, and takes no part until it is"
	}
	p.env.log.Error(what, "topic", p.log.Topic(), "partition", p.tp.Partition, "damage", damage,
		"end", int64(p.log.End()), "error", err)
	return whole
}

// cutDamageLocked cuts the log at the first damage that is known.
func (p *Partition) cutDamageLocked() error {
	to := p.log.End()
	var found *storage.CorruptError // by recovery, or later by a read in the middle
	if errors.As(p.log.Damaged(), &found) {
		to = min(to, found.Offset)
	}
	if p.corrupt >= 0 {
		to = min(to, p.corrupt)
	}
	err := p.log.TruncateTo(max(to, p.log.Start()))
	if err == nil {
		p.corrupt = -1
	}
	return err
}

// foundBefore tells whether the log is damaged before what was known.
func (p *Partition) foundBefore(known error) bool {
	var was, is *storage.CorruptError
	return errors.As(p.log.Damaged(), &is) && (!errors.As(known, &was) || is.Offset < was.Offset)
}

// spanLocked is the extent of the log with the high watermark that this replica
// knows, which is kept across a change of role.
func (p *Partition) spanLocked() isr.Span {
	start, end := p.log.Start(), p.log.End()
	p.hw = min(max(p.hw, start), end)
	return isr.Span{Start: start, End: end, Flushed: min(p.log.Flushed(), end), HW: p.hw}
}

// answered tells the core what became of its ISR proposal.
func (p *Partition) answered(ch isr.Change, o isr.Outcome) {
	p.mu.Lock()
	if p.role != roleLeader || p.epoch != ch.LeaderEpoch {
		p.mu.Unlock()
		return
	}
	todo := p.absorbLocked(p.lead.Answered(ch.PartitionEpoch, o, p.env.now(), p.env.live))
	p.mu.Unlock()
	p.carryOut(todo)
}
