package fsm

import (
	"slices"

	"github.com/weirmq/weir/wire/batch"
)

// Member is one incarnation of a broker as a member of an ISR.
type Member struct {
	ID    BrokerID
	Epoch BrokerEpoch
}

// ISRChange is a leader's wish to set the ISR of one partition, with the epochs
// that it was formed at.
type ISRChange struct {
	TP             TopicPartition
	LeaderEpoch    batch.Epoch
	PartitionEpoch PartitionEpoch
	ISR            []Member // with the leader itself
	// Durability becomes the partition's: DurabilityFsync says that all that was ever
	// acknowledged is on the disks of these members, and that the leader counts
	// nothing else from now on.
	Durability Durability
	// Confirms says that these members have been the ISR for so long that the disks of
	// all have what anybody who left it may hold: a full ISR needs no last members then.
	// A change that adds a member can not say so: what that one was just sent
	// is in its memory alone. While a reassignment runs it is noted, for those that
	// leave by it: Partition.Confirmed.
	Confirms bool
}

// ChangeISR carries the ISR changes of one leader. Each item is guarded and
// answered alone. An accepted one raises the partition epoch, never the leader
// epoch, even where the ISR is the same.
type ChangeISR struct {
	Proposer    BrokerID
	BrokerEpoch BrokerEpoch
	Items       []ISRChange
}

// LeaderChange is the choice of a leader for one partition, with the epochs that
// the choice was made at.
type LeaderChange struct {
	TP             TopicPartition
	LeaderEpoch    batch.Epoch
	PartitionEpoch PartitionEpoch
	Leader         BrokerID   // the present one when only ISR changes; NoBroker leaves the partition without one
	ISR            []BrokerID // what is left of the ISR, and Leader
	// Recovering marks a leader from outside ISR and ELR, for a partition that has
	// no leader and nobody in ISR or ELR who could be: committed records may be
	// lost. ISR is Leader alone then.
	Recovering bool
}

// ChangeLeaders carries leader changes decided by the controller. Each item is
// guarded and answered alone. The leader epoch is raised when Leader differs
// from the present one.
type ChangeLeaders struct {
	Items []LeaderChange
}

// ReportDamaged says that a broker found records missing or corrupt, which it
// had acknowledged, in its logs of these partitions. It loses its seats in ISR
// and ELR there, as after the loss of its disk, and may come back as a follower that
// fetched them again. Each item is answered alone.
type ReportDamaged struct {
	Broker      BrokerID
	BrokerEpoch BrokerEpoch
	Items       []TopicPartition
}

// CheckISR returns the guard of an ISR change that does not hold, or nil: what
// Apply would answer for a change proposed by that incarnation now.
func (im *Image) CheckISR(proposer Member, c ISRChange) error {
	p, ok := im.Partition(c.TP)
	if b, known := im.Broker(proposer.ID); !known {
		return UnknownBroker
	} else if b.Epoch != proposer.Epoch {
		return StaleBrokerEpoch
	}
	if no := im.checkISR(proposer.ID, c, p, ok); no != 0 {
		return no
	}
	return nil
}

// checkISR checks one item against p, which exists when ok.
func (im *Image) checkISR(proposer BrokerID, c ISRChange, p Partition, ok bool) Refusal {
	if no := im.checkEpochs(c.TP, p, ok, c.LeaderEpoch, c.PartitionEpoch); no != 0 {
		return no
	}
	if p.Leader != proposer {
		return NotLeader
	}
	if len(c.ISR) > MaxReplicas || !slices.ContainsFunc(c.ISR, func(m Member) bool { return m.ID == proposer }) {
		return BadCommand
	}
	if c.Durability > DurabilityFsync || c.Durability > p.Durability && len(c.ISR) < int(p.MinISR) {
		return BadCommand // nobody asked the members of the ELR
	}
	for i, m := range c.ISR {
		if slices.ContainsFunc(c.ISR[:i], func(o Member) bool { return o.ID == m.ID }) {
			return BadCommand
		}
		b, known := im.Broker(m.ID)
		if !known || !b.Eligible() || b.Epoch != m.Epoch || !slices.Contains(p.Replicas, m.ID) {
			return IneligibleReplica
		}
	}
	return 0
}

// checkEpochs checks that an item was decided at the present state of p.
func (im *Image) checkEpochs(tp TopicPartition, p Partition, ok bool, le batch.Epoch, pe PartitionEpoch) Refusal {
	switch {
	case !ok:
		if _, exists := im.Topic(tp.Topic); exists {
			return UnknownPartition
		}
		return UnknownTopic
	case p.LeaderEpoch != le:
		return StaleLeaderEpoch
	case p.PartitionEpoch != pe:
		return StalePartitionEpoch
	}
	return 0
}

func (c ChangeISR) apply(e *edit) Result {
	if _, no := e.incarnation(c.Proposer, c.BrokerEpoch); no != 0 {
		return refused(no)
	}
	var r Result
	var room [MaxReplicas]BrokerID
	for i, item := range c.Items {
		p, ok := e.partition(item.TP)
		if no := e.next.checkISR(c.Proposer, item, p, ok); no != 0 {
			r.skip(i, no)
			continue
		}
		isr := room[:0]
		for _, m := range item.ISR {
			isr = append(isr, m.ID)
		}
		next := p.withISR(isr, NoBroker)
		if len(next.ISR) >= int(next.MinISR) {
			next.Recovering = false // it commits records from now on: the log that it shares is the truth
			if item.Confirms {
				next.LastMembers = nil
			}
		}
		next.Confirmed = item.Confirms && next.Reassigning() && slices.Equal(next.ISR, p.ISR)
		next.Durability = item.Durability
		e.setPartition(item.TP, next)
	}
	return r
}

func (c ReportDamaged) apply(e *edit) Result {
	if _, no := e.incarnation(c.Broker, c.BrokerEpoch); no != 0 {
		return refused(no)
	}
	var r Result
	for i, tp := range c.Items {
		p, ok := e.partition(tp)
		switch {
		case !ok:
			r.skip(i, UnknownPartition)
		case !slices.Contains(p.Replicas, c.Broker):
			r.skip(i, IneligibleReplica)
		default:
			next, changed := p.without(c.Broker, leftTorn)
			if next.Leader != NoBroker {
				next.Leader, changed = NoBroker, true
				next.LeaderEpoch++
				next.PartitionEpoch = p.PartitionEpoch + 1
			}
			if changed {
				e.setPartition(tp, next)
			}
		}
	}
	return r
}

func (c ChangeLeaders) apply(e *edit) Result {
	var r Result
	for i, item := range c.Items {
		p, ok := e.partition(item.TP)
		if no := e.next.checkLeader(item, p, ok); no != 0 {
			r.skip(i, no)
			continue
		}
		e.setPartition(item.TP, item.onto(p))
	}
	return r
}

// onto is p after an accepted change.
func (c LeaderChange) onto(p Partition) Partition {
	next := p.withISR(c.ISR, NoBroker)
	if c.Leader != p.Leader {
		next.Leader = c.Leader
		next.LeaderEpoch++
	}
	if c.Recovering {
		next.Recovering = true
		next.Durability = DurabilityReplicated // what counts now is what this log holds, flushed or not
		next.ELR, next.LastMembers = nil, nil  // the leader's log is the truth from now on
	}
	return next
}

// checkLeader checks one item against p, which exists when ok.
func (im *Image) checkLeader(c LeaderChange, p Partition, ok bool) Refusal {
	if no := im.checkEpochs(c.TP, p, ok, c.LeaderEpoch, c.PartitionEpoch); no != 0 {
		return no
	}
	if !distinct(c.ISR) || (c.Leader != NoBroker && !slices.Contains(c.ISR, c.Leader)) {
		return BadCommand
	}
	for _, id := range c.ISR {
		if !slices.Contains(p.Replicas, id) || !im.Eligible(id) {
			return IneligibleReplica
		}
		if id != c.Leader && !slices.Contains(p.ISR, id) {
			return IneligibleReplica
		}
	}
	if c.Recovering {
		return im.checkRecovering(c, p)
	}
	if c.Leader != NoBroker && !p.Seated(c.Leader) {
		return IneligibleReplica
	}
	return 0
}

// checkRecovering refuses to give up records while somebody who surely holds
// them could lead.
func (im *Image) checkRecovering(c LeaderChange, p Partition) Refusal {
	if c.Leader == NoBroker || len(c.ISR) != 1 || p.Leader != NoBroker {
		return BadCommand
	}
	if slices.ContainsFunc(p.ISR, im.Eligible) || slices.ContainsFunc(p.ELR, im.Eligible) {
		return IneligibleReplica
	}
	return 0
}
