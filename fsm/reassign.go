package fsm

import (
	"iter"
	"slices"

	"github.com/weirmq/weir/wire/batch"
	"github.com/weirmq/weir/wire/codec"
)

// ReplicaChange gives one partition another set of replicas, with the epochs that this
// was decided at. It starts a reassignment, replaces its target, cancels it or
// completes it: what the lists say is what the row holds from then on.
type ReplicaChange struct {
	TP             TopicPartition
	LeaderEpoch    batch.Epoch
	PartitionEpoch PartitionEpoch
	Replicas       []BrokerID // in order of preference
	Adding         []BrokerID // those of them that are being added; whoever is new is one
	Removing       []BrokerID // those of them that are being removed; none of Adding
	Leader         BrokerID   // the present one, another member of the ISR that stays, or NoBroker
}

// ChangeReplicas carries replica changes decided by the controller. Each item is
// guarded and answered alone.
//
// Problem: a replica that leaves takes its log with it. It may be a member of the ISR,
// so that the acknowledged records are on fewer disks than was promised; it may be the
// one that has on its disk what the others were just sent; and what it reported before
// it left must not count for the empty log of a replica that comes back under its id.
//
// Invariants:
//   - A replica comes as Adding and nothing else, and becomes a full one only while it
//     is in the ISR: nobody counts it towards the minimum before.
//   - A replica leaves only out of Adding or Removing, so at the earliest with the
//     second change; out of Removing only when all that are added are in the ISR.
//   - Where anybody leaves who has a seat, or is a last member, the ISR without it has
//     the minimum of the replicas that stay, and the leader has confirmed that the
//     disks of this ISR have what any of them holds (Partition.Confirmed). So there is
//     nothing that only a leaver has.
//   - The leader epoch is raised with each leave, also where the leader stays: positions
//     count for one leader epoch.
//
// Steps: the guards, then the lists without those that leave, the minimum of the new
// set, and the epochs.
//
// Rejected: to let an added replica join only once it has flushed. It would say nothing
// of the members that stay, one of which may have joined a moment ago. And to take
// those that leave out of the ISR first, so that they become last members like
// anybody else: the minimum would have to fall before they leave, and the leader
// would have to be told not to take them back.
type ChangeReplicas struct {
	Items []ReplicaChange
}

func (c ChangeReplicas) apply(e *edit) Result {
	var r Result
	for i, item := range c.Items {
		p, ok := e.partition(item.TP)
		next, no := e.next.checkReplicas(item, p, ok)
		if no != 0 {
			r.skip(i, no)
			continue
		}
		e.setPartition(item.TP, next)
	}
	return r
}

// CheckReplicas returns the guard of a replica change that does not hold, or nil: what
// Apply would answer now.
func (im *Image) CheckReplicas(c ReplicaChange) error {
	p, ok := im.Partition(c.TP)
	if _, no := im.checkReplicas(c, p, ok); no != 0 {
		return no
	}
	return nil
}

// checkReplicas checks one item against p, which exists when ok, and returns what p
// becomes by it.
func (im *Image) checkReplicas(c ReplicaChange, p Partition, ok bool) (Partition, Refusal) {
	if no := im.checkEpochs(c.TP, p, ok, c.LeaderEpoch, c.PartitionEpoch); no != 0 {
		return p, no
	}
	if !c.wellFormed(p) {
		return p, BadCommand
	}
	for _, id := range c.Adding {
		if _, known := im.Broker(id); !known {
			return p, UnknownBroker
		}
	}
	t, _ := im.Topic(c.TP.Topic)
	next := c.onto(p, t.Config.MinISR)
	if no := c.checkMove(p, next); no != 0 {
		return p, no
	}
	if c.Leader != NoBroker && !slices.Contains(next.ISR, c.Leader) || c.Leader != NoBroker && c.Leader != p.Leader && !im.Eligible(c.Leader) {
		return p, IneligibleReplica
	}
	return next, 0
}

// wellFormed tells whether the lists are a next step from those of p.
func (c ReplicaChange) wellFormed(p Partition) bool {
	if !distinct(c.Replicas) || !distinct(c.Adding) || !distinct(c.Removing) ||
		len(c.Adding) >= len(c.Replicas) || len(c.Removing) >= len(c.Replicas) {
		return false
	}
	for _, id := range c.Adding {
		old := slices.Contains(p.Replicas, id) && !slices.Contains(p.Adding, id)
		if old || !slices.Contains(c.Replicas, id) || slices.Contains(c.Removing, id) {
			return false
		}
	}
	for _, id := range c.Removing {
		if !slices.Contains(c.Replicas, id) || slices.Contains(p.Adding, id) {
			return false
		}
	}
	for _, id := range c.Replicas {
		if !slices.Contains(p.Replicas, id) && !slices.Contains(c.Adding, id) {
			return false
		}
	}
	return !slices.ContainsFunc(p.Replicas, func(id BrokerID) bool {
		return !slices.Contains(c.Replicas, id) && !slices.Contains(p.Adding, id) && !slices.Contains(p.Removing, id)
	})
}

// checkMove refuses what ChangeReplicas says must not be; next is what p becomes.
func (c ReplicaChange) checkMove(p, next Partition) Refusal {
	enough := len(next.ISR) >= int(next.MinISR)
	for _, id := range p.Adding {
		settles := slices.Contains(c.Replicas, id) && !slices.Contains(c.Adding, id)
		if settles && !(enough && slices.Contains(p.ISR, id)) {
			return NotInSync
		}
	}
	for _, id := range p.Replicas {
		if slices.Contains(c.Replicas, id) {
			continue
		}
		if slices.Contains(p.Removing, id) && !(enough && subset(p.Adding, p.ISR)) {
			return NotInSync
		}
		if p.holds(id) && !(enough && p.Confirmed) {
			return ReplicaNeeded
		}
	}
	return 0
}

// holds tells whether a replica is one of those whose logs may have what was committed.
func (p Partition) holds(id BrokerID) bool {
	return p.Seated(id) || slices.Contains(p.LastMembers, id)
}

// onto is p after the change, if it is accepted.
func (c ReplicaChange) onto(p Partition, configured int16) Partition {
	next := p
	next.Replicas = c.Replicas
	for i, list := range next.lists() {
		was := *list
		switch i {
		case listReplicas:
			continue
		case listAdding:
			was = c.Adding
		case listRemoving:
			was = c.Removing
		}
		*list = next.among(func(id BrokerID) bool { return slices.Contains(was, id) })
	}
	next.Leader, next.Confirmed = c.Leader, false
	next.PartitionEpoch++
	if c.Leader != p.Leader || !subset(p.Replicas, c.Replicas) {
		next.LeaderEpoch++
	}
	next.setMinISR(EffectiveMinISR(configured, next.Replicas, next.Adding))
	return next
}

// Reassigning tells whether a reassignment of the partition runs.
func (p Partition) Reassigning() bool { return len(p.Adding)+len(p.Removing) > 0 }

// Target is the replicas that the partition has once its reassignment is complete.
func (p Partition) Target() []BrokerID {
	return p.among(func(id BrokerID) bool { return !slices.Contains(p.Removing, id) })
}

// Current is the replicas that the partition has if its reassignment is cancelled.
func (p Partition) Current() []BrokerID {
	return p.among(func(id BrokerID) bool { return !slices.Contains(p.Adding, id) })
}

// Reassigning yields the partitions whose reassignment runs, in order of topic id and
// number, in time proportional to their number.
func (im *Image) Reassigning() iter.Seq2[TopicPartition, Partition] {
	return func(yield func(TopicPartition, Partition) bool) {
		for b := range values(im.reassigning) {
			for i := range b.rows {
				if b.reassigning&(1<<i) != 0 && !yield(b.key.at(i), b.partition(i)) {
					return
				}
			}
		}
	}
}

// subset reports whether each of ids is in list.
func subset(ids, list []BrokerID) bool {
	return !slices.ContainsFunc(ids, func(id BrokerID) bool { return !slices.Contains(list, id) })
}

func (c *ChangeReplicas) code(x *codec.Coder) {
	codec.ArrayOf(x, &c.Items, sizeReplicaChange, func(x *codec.Coder, i *ReplicaChange) {
		codeTP(x, &i.TP)
		x.Varint((*int32)(&i.LeaderEpoch))
		x.Varint((*int32)(&i.PartitionEpoch))
		codeBrokers(x, &i.Replicas)
		codeBrokers(x, &i.Adding)
		codeBrokers(x, &i.Removing)
		codeBroker(x, &i.Leader)
	})
}

func (ChangeReplicas) kind() kind              { return kindChangeReplicas }
func (c ChangeReplicas) encode(w *codec.Coder) { c.code(w) }
