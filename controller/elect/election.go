package elect

import (
	"slices"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// Leader chooses a leader for a partition that has none: the first replica, in
// order of preference, that is in the ISR and eligible, else the first such in
// the ELR. The others of the ISR keep their seats as far as they are eligible. It
// reports whether there is a leader. When nobody is left in either, Recovery finds
// one.
func Leader(im *fsm.Image, tp fsm.TopicPartition, p fsm.Partition) (fsm.LeaderChange, bool) {
	isr := members(im, p.Replicas, p.ISR)
	leader := fsm.NoBroker
	if len(isr) > 0 {
		leader = isr[0]
	} else if elr := members(im, p.Replicas, p.ELR); len(elr) > 0 {
		leader, isr = elr[0], elr[:1]
	}
	if leader == fsm.NoBroker {
		return fsm.LeaderChange{}, false
	}
	return change(tp, p, leader, isr), true
}

// Leaders chooses leaders for all partitions that have none and could have one,
// in order of topic id and number. Its cost is proportional to the number of
// partitions without a leader.
func Leaders(im *fsm.Image) []fsm.LeaderChange {
	var out []fsm.LeaderChange
	for tp, p := range im.Leaderless() {
		if c, ok := Leader(im, tp, p); ok {
			out = append(out, c)
		}
	}
	return out
}

// HandOff takes a stopping broker out of every ISR that has another eligible
// member, and gives what it leads to the first such in order of preference.
// Where it is the only one it keeps its seat: it stays leader until it is fenced,
// and remains the one that can lead after its return.
func HandOff(im *fsm.Image, stopping fsm.BrokerID) []fsm.LeaderChange {
	var out []fsm.LeaderChange
	for tp, p := range im.Hosted(stopping) {
		if !slices.Contains(p.ISR, stopping) {
			continue
		}
		rest := slices.DeleteFunc(members(im, p.Replicas, p.ISR), func(id fsm.BrokerID) bool { return id == stopping })
		if len(rest) == 0 {
			continue
		}
		leader := p.Leader
		if !slices.Contains(rest, leader) {
			leader = rest[0]
		}
		out = append(out, change(tp, p, leader, rest))
	}
	return out
}

// LogEnd is where one replica's log ends, as its broker reports it.
type LogEnd struct {
	Broker fsm.BrokerID
	Epoch  batch.Epoch // of the last batch
	End    batch.Offset
	// Damaged: records below End, or between End and what was once written, are
	// missing or corrupt.
	Damaged bool
	Earlier EarlierEpochs
}

// EarlierEpochs are the epochs of a log before that of its last batch, the newest
// first, each with the offset after its last batch; the zero value for none. Older ones
// than have room are not told.
type EarlierEpochs [8]EpochEnd

// EpochEnd is the offset after the last batch of an epoch.
type EpochEnd struct {
	Epoch batch.Epoch
	End   batch.Offset
}

// Log is what EndOf looks at.
type Log interface {
	LastEpoch() batch.Epoch
	End() batch.Offset
	EarlierEpochs(yield func(batch.Epoch, batch.Offset) bool)
}

// EndOf is where a replica's log ends, which must not change meanwhile.
func EndOf(id fsm.BrokerID, l Log, damaged bool) LogEnd {
	end, n := LogEnd{Broker: id, Epoch: l.LastEpoch(), End: l.End(), Damaged: damaged}, 0
	for epoch, at := range l.EarlierEpochs {
		if n == len(end.Earlier) {
			break
		}
		end.Earlier[n] = EpochEnd{epoch, at}
		n++
	}
	return end
}

// better tells whether e's log goes on where o's ends, or replaced its end.
func (e LogEnd) better(o LogEnd) bool {
	return e.Epoch > o.Epoch || e.Epoch == o.Epoch && e.End > o.End
}

// extends tells whether e's log is surely that of o, and more: it has the last epoch of o to
// where o ends. Two logs with a batch of one epoch at one offset are equal up to there.
func (e LogEnd) extends(o LogEnd) bool {
	if o.Epoch == batch.NoEpoch || e.Epoch == o.Epoch {
		return e.better(o)
	}
	return slices.ContainsFunc(e.Earlier[:], func(x EpochEnd) bool { return x.Epoch == o.Epoch && x.End >= o.End && e.Epoch > o.Epoch })
}

// logsOf are the logs of brokers, in their order, as far as they are in ends.
func logsOf(ids []fsm.BrokerID, ends []LogEnd) (whole, damaged []LogEnd) {
	for _, id := range ids {
		i := slices.IndexFunc(ends, func(e LogEnd) bool { return e.Broker == id })
		switch {
		case i < 0:
		case ends[i].Damaged:
			damaged = append(damaged, ends[i])
		default:
			whole = append(whole, ends[i])
		}
	}
	return whole, damaged
}

// best chooses a log, the more preferred replica's among equals, NoBroker of none. Among
// those of the last members, once nobody is in ISR and ELR, it is the one with the greatest (last
// epoch, end), and another one only where it has all of that and more: a member holds all that
// was committed, as far as its disk has kept it, and where another log goes on otherwise than
// a member's, with whatever epoch, it is with what was given up. So it is after a leader
// that counted records of an epoch before its own and had none of its own yet.
func best(p fsm.Partition, ends []LogEnd) LogEnd {
	top := LogEnd{Broker: fsm.NoBroker}
	for _, e := range ends {
		if len(p.ISR)+len(p.ELR) == 0 && slices.Contains(p.LastMembers, e.Broker) && (top.Broker == fsm.NoBroker || e.better(top)) {
			top = e
		}
	}
	member := top
	for _, e := range ends {
		if top.Broker == fsm.NoBroker || e.better(top) && (member.Broker == fsm.NoBroker || e.extends(member)) {
			top = e
		}
	}
	return top
}

// Asked returns whose logs must be compared before the partition can lead again at
// the risk of loss, in the order of its replicas, and whether the time has come:
// nobody is left in ISR and ELR, and all of the last members are back. Whoever else
// lives is asked, too. Last members are enough only while their disks are: of two, one may
// have lost its disk, and the other have joined too late to have anything on its own.
//
// Where the topic allows an unclean election the time has come as soon as nobody lives
// who surely holds all, and somebody else does.
func Asked(im *fsm.Image, tp fsm.TopicPartition, p fsm.Partition) ([]fsm.BrokerID, bool) {
	live := Contenders(im, tp, p)
	if len(live) == 0 {
		return nil, false
	}
	allBack := len(p.ISR)+len(p.ELR) == 0 && len(p.LastMembers) > 0 &&
		len(members(im, p.Replicas, p.LastMembers)) == len(p.LastMembers)
	return live, allBack || MayLose(im, tp)
}

// MayDiffer tells whether other leaders could be found in b than in a. Its cost follows from
// what has changed between the two.
func MayDiffer(a, b *fsm.Image) bool {
	if a.LeaderlessCount()+b.LeaderlessCount() == 0 {
		return false
	}
	d := fsm.Diff(a, b)
	return len(d.Brokers) > 0 || slices.ContainsFunc(d.Partitions, func(p fsm.PartitionDelta) bool {
		return p.New != nil && p.New.Leader == fsm.NoBroker
	}) || slices.ContainsFunc(d.Topics, func(id fsm.TopicID) bool { return MayLose(b, fsm.TopicPartition{Topic: id}) })
}

// MayLose tells whether the topic allows an election of a replica that may lack
// acknowledged records, while others who may have them are away.
func MayLose(im *fsm.Image, tp fsm.TopicPartition) bool {
	t, ok := im.Topic(tp.Topic)
	return ok && t.Config.Unclean
}

// Undecided lists the partitions, in order of topic id and number, of which it must be
// asked where logs end, for Recover to decide with the answers: those whose last
// members are all back, or whose topic allows an unclean election. A sole one that could
// lead is asked, too: its log may be damaged.
func Undecided(im *fsm.Image) []fsm.TopicPartition {
	var out []fsm.TopicPartition
	for tp, p := range im.Leaderless() {
		if _, ready := Asked(im, tp, p); ready {
			out = append(out, tp)
		}
	}
	return out
}

// Recover chooses the best log (see best) of those that were asked and are not damaged. It returns
// false while one of them is missing from ends or has yet to come back (see Asked), and
// when the logs of all last members are damaged: who is none may have much less, and leads
// only where the topic allows that. The partition is marked recovering: records that
// were acknowledged may be lost.
func Recover(im *fsm.Image, tp fsm.TopicPartition, p fsm.Partition, ends []LogEnd) (fsm.LeaderChange, bool) {
	asked, ready := Asked(im, tp, p)
	if !ready {
		return fsm.LeaderChange{}, false
	}
	whole, damaged := logsOf(asked, ends)
	if len(whole)+len(damaged) < len(asked) {
		return fsm.LeaderChange{}, false
	}
	intact := slices.ContainsFunc(whole, func(e LogEnd) bool { return slices.Contains(p.LastMembers, e.Broker) })
	leader := best(p, whole).Broker
	if leader == fsm.NoBroker || !intact && !MayLose(im, tp) {
		return fsm.LeaderChange{}, false
	}
	c := change(tp, p, leader, []fsm.BrokerID{leader})
	c.Recovering = true
	return c, true
}

// change is a leader change decided at the present state of p.
func change(tp fsm.TopicPartition, p fsm.Partition, leader fsm.BrokerID, isr []fsm.BrokerID) fsm.LeaderChange {
	return fsm.LeaderChange{
		TP: tp, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch,
		Leader: leader, ISR: isr,
	}
}

// members returns the eligible brokers of list in the order of replicas.
func members(im *fsm.Image, replicas, list []fsm.BrokerID) []fsm.BrokerID {
	var out []fsm.BrokerID
	for _, id := range replicas {
		if slices.Contains(list, id) && im.Eligible(id) {
			out = append(out, id)
		}
	}
	return out
}
