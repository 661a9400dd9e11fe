package fsm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirmq/weir/wire/batch"
)

// MaxReplicas bounds the replicas of one partition, so that a row's list
// lengths fit one byte each.
const MaxReplicas = 127

// Durability says when an acknowledged record is safe.
type Durability uint8

// The durabilities.
const (
	DurabilityReplicated Durability = iota // when it is in the page cache of every in-sync replica
	DurabilityFsync                        // when it is on the disk of every in-sync replica
)

// durabilityNames are the values of the config weir.durability.
var durabilityNames = [...]string{DurabilityReplicated: "replicated", DurabilityFsync: "fsync"}

// String is the durability as the config weir.durability names it.
func (d Durability) String() string {
	if int(d) < len(durabilityNames) {
		return durabilityNames[d]
	}
	return fmt.Sprintf("durability %d", uint8(d))
}

// ParseDurability reads a value of the config weir.durability.
func ParseDurability(value string) (Durability, bool) {
	i := slices.Index(durabilityNames[:], strings.TrimSpace(value))
	return Durability(max(i, 0)), i >= 0
}

// Partition is the agreed state of one partition. A Partition taken from an
// Image shares its lists with it: they must not be modified.
//
// Every list but Replicas is kept in the order of Replicas, so that equal sets
// have equal rows.
type Partition struct {
	Replicas       []BrokerID     // in order of preference; the first is the preferred leader
	Leader         BrokerID       // a member of ISR, or NoBroker
	LeaderEpoch    batch.Epoch    // raised by each change of Leader, and when a replica leaves, and by nothing else
	PartitionEpoch PartitionEpoch // raised by each change of any field
	ISR            []BrokerID     // subset of Replicas, none of them fenced
	ELR            []BrokerID     // left the ISR while it was below MinISR, and lost nothing since; disjoint from ISR
	LastMembers    []BrokerID     // whose logs must be compared once ISR and ELR are empty: see withISR; disjoint from both
	MinISR         int16          // the effective minimum: how many members make an acks=all record safe
	Adding         []BrokerID     // replicas that are being added: a reassignment runs
	Removing       []BrokerID     // replicas that are being removed: a reassignment runs; disjoint from Adding
	// Durability is DurabilityFsync once the leader has found all that was acknowledged
	// on the disks of the whole ISR, and as long as it counts nothing else. Then a
	// loss of power costs nobody the seat in ISR or ELR.
	Durability Durability
	Recovering bool // the leader was chosen from outside ISR and ELR: committed records may be lost; until the ISR is full again
	// Confirmed says that the leader has confirmed the ISR, and that it has not changed
	// since: the disks of all members have what any other replica may hold of what was
	// committed. It is kept while a reassignment runs, for those that leave by it.
	Confirmed bool
}

// departure says how a broker lost a seat, and so what its log is worth.
type departure uint8

const (
	// leftWhole: it holds what it held.
	leftWhole departure = iota
	// leftTorn: it may have lost the end of its log, or found damage in it.
	leftTorn
	// leftEmpty: it has another folder, with nothing in it.
	leftEmpty
)

// from is what the departure comes to in p: where all that was acknowledged is on
// the disks, nobody has lost any of it with the end of a log.
func (d departure) from(p Partition) departure {
	if d == leftTorn && p.Durability == DurabilityFsync {
		return leftWhole
	}
	return d
}

// withISR is p after its ISR became the given set, with ELR and LastMembers
// brought up to date and the partition epoch raised. torn names a member that
// may have lost the end of its log, or NoBroker.
//
// While the ISR is below its minimum the high watermark stands still, so whoever
// was a member when it fell below, or later, holds every committed record until
// it stops uncleanly: that is the ELR.
//
// LastMembers are the last resort when nobody is left who surely holds all: who
// would be in the ELR but for an unclean stop, and who left a full ISR. The latter
// matter when one event takes the others, too: brokers register, or are fenced, one
// by one, the others are members on paper meanwhile, and the best log, or the only
// one, may be that of the first. They are kept until the leader has shown that the
// members of a full ISR have on their disks what these may hold (see ChangeISR).
//
// Rejected: to compare the logs of all replicas each time. One that is away for good
// would keep the partition from its records after any power cut.
func (p Partition) withISR(isr []BrokerID, torn BrokerID) Partition {
	next := p
	next.PartitionEpoch++
	next.Confirmed = false
	next.ISR = p.among(func(id BrokerID) bool { return slices.Contains(isr, id) })
	full := len(next.ISR) >= int(p.MinISR)
	left := func(id BrokerID) bool {
		return !slices.Contains(next.ISR, id) && p.Seated(id)
	}
	next.ELR = p.among(func(id BrokerID) bool { return !full && id != torn && left(id) })
	next.LastMembers = p.among(func(id BrokerID) bool {
		return id == torn || full && left(id) || slices.Contains(p.LastMembers, id) && !slices.Contains(next.ISR, id)
	})
	return next
}

// Seated tells whether a broker may be elected for what it is taken to hold: it is in
// the ISR or the ELR.
func (p Partition) Seated(id BrokerID) bool {
	return slices.Contains(p.ISR, id) || slices.Contains(p.ELR, id)
}

// without is p after broker id lost its seat in the ISR and, unless it left whole,
// the one in the ELR. What it led has no leader. It reports whether that changes
// anything.
func (p Partition) without(id BrokerID, how departure) (Partition, bool) {
	seated := slices.Contains(p.ISR, id) || how != leftWhole && slices.Contains(p.ELR, id) ||
		how == leftEmpty && slices.Contains(p.LastMembers, id)
	if !seated {
		return p, false
	}
	torn := NoBroker
	if how != leftWhole {
		torn = id
	}
	next := p.withISR(p.among(func(m BrokerID) bool { return m != id && slices.Contains(p.ISR, m) }), torn)
	if how == leftEmpty {
		next.drop(id)
	}
	if p.Leader == id {
		next.Leader = NoBroker
		next.LeaderEpoch++
	}
	return next, true
}

// drop takes a member without a log out of the last members. When nobody else is
// left, the logs of all replicas are: the best of them may be old, and is more than
// none.
func (p *Partition) drop(id BrokerID) {
	if len(p.ISR)+len(p.ELR) == 0 && len(p.LastMembers) == 1 {
		p.LastMembers = slices.Clone(p.Replicas)
		return
	}
	last := p.LastMembers
	p.LastMembers = p.among(func(m BrokerID) bool { return m != id && slices.Contains(last, m) })
}

// among returns the replicas that satisfy keep, in their order; nil when none does.
func (p Partition) among(keep func(BrokerID) bool) []BrokerID {
	var out []BrokerID
	for i, id := range p.Replicas {
		if !keep(id) {
			continue
		}
		if out == nil {
			out = make([]BrokerID, 0, len(p.Replicas)-i)
		}
		out = append(out, id)
	}
	return out
}

// Settled reports whether nothing of the past matters but what the ISR holds: there
// are no last members, and no loss to recover from. A leader with a full ISR
// settles its partition by a ChangeISR that confirms it, once the disks of all members
// have what the last members may hold.
func (p Partition) Settled() bool { return len(p.LastMembers) == 0 && !p.Recovering }

// Awaited reports whether a reassignment waits for the leader to confirm the ISR, full or
// not: a replica that leaves by it, or would if it were cancelled, may hold what the
// disks of the others lack.
func (p Partition) Awaited() bool {
	return !p.Confirmed && (slices.ContainsFunc(p.Adding, p.holds) || slices.ContainsFunc(p.Removing, p.holds))
}

// setMinISR changes the effective minimum. Where there is a leader the ELR is emptied:
// from now on the high watermark moves by another minimum, without those in it. So it
// is where the ISR has the new minimum, since its members hold all that was committed.
//
// A proposal that a leader made under the old minimum names an older partition
// epoch and is refused.
func (p *Partition) setMinISR(least int16) {
	if least == p.MinISR {
		return
	}
	p.MinISR = least
	if p.Leader != NoBroker || len(p.ISR) >= int(least) {
		elr, last := p.ELR, p.LastMembers
		p.LastMembers = p.among(func(id BrokerID) bool { return slices.Contains(elr, id) || slices.Contains(last, id) })
		p.ELR = nil
	}
}

// EffectiveMinISR is the smallest ISR that makes an acks=all record safe: the
// configured one, else a majority, and never more than there are replicas.
// Replicas that are being added do not count.
func EffectiveMinISR(configured int16, replicas, adding []BrokerID) int16 {
	settled := 0
	for _, id := range replicas {
		if !slices.Contains(adding, id) {
			settled++
		}
	}
	least := int(configured)
	if least <= 0 {
		least = settled/2 + 1
	}
	return int16(max(1, min(least, settled)))
}

// fault describes the first invariant that p breaks, or returns "".
func (p Partition) fault() string {
	n := len(p.Replicas)
	switch {
	case n == 0 || !distinct(p.Replicas):
		return fmt.Sprintf("replicas %v are not 1 to %d distinct positive ids", p.Replicas, MaxReplicas)
	case p.Leader != NoBroker && !slices.Contains(p.ISR, p.Leader):
		return fmt.Sprintf("leader %d is not in ISR %v", p.Leader, p.ISR)
	case p.MinISR < 1 || int(p.MinISR) > n:
		return fmt.Sprintf("min ISR %d of %d replicas", p.MinISR, n)
	case len(p.ISR)+len(p.ELR)+len(p.LastMembers) == 0:
		return "nobody is left who could lead"
	case p.Durability > DurabilityFsync:
		return p.Durability.String()
	case p.LeaderEpoch < 0 || p.PartitionEpoch < 0:
		return fmt.Sprintf("leader epoch %d, partition epoch %d", p.LeaderEpoch, p.PartitionEpoch)
	}
	for _, list := range [][]BrokerID{p.ISR, p.ELR, p.LastMembers, p.Adding, p.Removing} {
		if !inOrder(p.Replicas, list) {
			return fmt.Sprintf("%v is not a subset of replicas %v in their order", list, p.Replicas)
		}
	}
	if subset(p.Replicas, p.Adding) || subset(p.Replicas, p.Removing) || p.Confirmed && !p.Reassigning() {
		return fmt.Sprintf("adding %v, removing %v, confirmed %t of replicas %v", p.Adding, p.Removing, p.Confirmed, p.Replicas)
	}
	for _, id := range p.Replicas {
		if count(id, p.Adding, p.Removing) > 1 {
			return fmt.Sprintf("broker %d is in adding %v and in removing %v", id, p.Adding, p.Removing)
		}
		if count(id, p.ISR, p.ELR, p.LastMembers) > 1 {
			return fmt.Sprintf("broker %d is in more than one of ISR %v, ELR %v, last members %v", id, p.ISR, p.ELR, p.LastMembers)
		}
	}
	if len(p.ISR) >= int(p.MinISR) && len(p.ELR) > 0 {
		return fmt.Sprintf("ELR %v beside a full ISR %v", p.ELR, p.ISR)
	}
	return ""
}

// distinct reports whether ids are positive, none appears twice, and they could
// be the replicas of one partition.
func distinct(ids []BrokerID) bool {
	if len(ids) > MaxReplicas {
		return false
	}
	for i, id := range ids {
		if id < 1 || slices.Contains(ids[:i], id) {
			return false
		}
	}
	return true
}

// inOrder reports whether list is a subsequence of replicas.
func inOrder(replicas, list []BrokerID) bool {
	for _, id := range list {
		i := slices.Index(replicas, id)
		if i < 0 {
			return false
		}
		replicas = replicas[i+1:]
	}
	return true
}

// count returns how many of the lists hold id.
func count(id BrokerID, lists ...[]BrokerID) int {
	n := 0
	for _, list := range lists {
		if slices.Contains(list, id) {
			n++
		}
	}
	return n
}
