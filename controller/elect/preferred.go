package elect

import (
	"slices"

	"github.com/weirmq/weir/fsm"
)

// Choice is the outcome of an election that was asked for.
type Choice uint8

// The outcomes.
const (
	Elected   Choice = iota + 1
	NotNeeded        // the partition is led as it should be
	NobodyFit        // the wanted leader, or anybody who could lead, is not there
)

// Preferred gives the lead to the first of the replicas, if it is eligible and in
// sync. Nothing is lost by it: every member of the ISR holds all that was committed.
func Preferred(im *fsm.Image, tp fsm.TopicPartition, p fsm.Partition) (fsm.LeaderChange, Choice) {
	first := p.Replicas[0]
	switch {
	case p.Leader == first:
		return fsm.LeaderChange{}, NotNeeded
	case !slices.Contains(p.ISR, first) || !im.Eligible(first):
		return fsm.LeaderChange{}, NobodyFit
	}
	return change(tp, p, first, members(im, p.Replicas, p.ISR)), Elected
}

// Contenders lists whose logs are to be compared before Unclean: all live replicas
// of a partition that has no leader, when nobody who surely holds all of it could be
// one; else nobody.
func Contenders(im *fsm.Image, tp fsm.TopicPartition, p fsm.Partition) []fsm.BrokerID {
	if p.Leader != fsm.NoBroker {
		return nil
	}
	if _, ok := Leader(im, tp, p); ok {
		return nil
	}
	return members(im, p.Replicas, p.Replicas)
}

// Ends are the answers, by partition, of incarnations that are still there, about
// partitions that nobody has led since the Image at which they were asked: a log that
// was led since may end elsewhere.
func Ends(asked, im *fsm.Image, answers []Answer) map[fsm.TopicPartition][]LogEnd {
	ends := map[fsm.TopicPartition][]LogEnd{}
	for _, a := range answers {
		was, ok := asked.Partition(a.TP)
		is, still := im.Partition(a.TP)
		b, known := im.Broker(a.End.Broker)
		if ok && still && was.LeaderEpoch == is.LeaderEpoch && known && b.Epoch == a.Epoch {
			ends[a.TP] = append(ends[a.TP], a.End)
		}
	}
	return ends
}

// Unclean gives a partition without a leader one that may lack committed records.
// Whoever surely holds them comes first. Else, among the live replicas that said
// where their logs end, the best one leads (see best), an intact log before any damaged
// one, and the partition is marked recovering. It waits for nobody: it is for an operator who gives
// up what others may hold, and nothing else calls it.
func Unclean(im *fsm.Image, tp fsm.TopicPartition, p fsm.Partition, ends []LogEnd) (fsm.LeaderChange, Choice) {
	if p.Leader != fsm.NoBroker {
		return fsm.LeaderChange{}, NotNeeded
	}
	if c, ok := Leader(im, tp, p); ok {
		return c, Elected
	}
	whole, damaged := logsOf(Contenders(im, tp, p), ends)
	if len(whole) == 0 {
		whole = damaged
	}
	leader := best(p, whole).Broker
	if leader == fsm.NoBroker {
		return fsm.LeaderChange{}, NobodyFit
	}
	c := change(tp, p, leader, []fsm.BrokerID{leader})
	c.Recovering = true
	return c, Elected
}
