package elect

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weirmq/weir/fsm"
)

// ErrNoReassignment: there is nothing to cancel.
var ErrNoReassignment = errors.New("no reassignment of the partition runs")

// InvalidTargetError says why a partition can not have these replicas.
type InvalidTargetError struct {
	Target []fsm.BrokerID
	Reason string
}

func (e *InvalidTargetError) Error() string {
	return fmt.Sprintf("replicas %v: %s", e.Target, e.Reason)
}

// FactorError says that a target would change the number of replicas where that was
// not asked for.
type FactorError struct {
	Wanted, Is int
}

func (e *FactorError) Error() string {
	return fmt.Sprintf("%d replicas wanted, but the partition has %d, and the replication factor is to stay", e.Wanted, e.Is)
}

// CheckFactor returns a *FactorError when a partition would have another number of
// replicas by a target than it has, or will have by the reassignment that runs.
func CheckFactor(p fsm.Partition, target []fsm.BrokerID) error {
	if is := len(p.Target()); len(target) != is {
		return &FactorError{Wanted: len(target), Is: is}
	}
	return nil
}

// Reassign starts the reassignment of a partition to a target, in order of preference,
// or gives the one that runs another target; a nil target cancels it. Replicas that were
// being added and are not in the target leave at once, those that leave otherwise stay
// until FinishReassignment.
//
// An error is an fsm.Refusal (UnknownTopic, UnknownPartition; ReplicaNeeded where an added
// replica that would leave is one of the few that hold the records: it passes once the
// others caught up, or the leader confirmed that they have), ErrNoReassignment, or an
// *InvalidTargetError. A partition that has the target already gets a change that
// changes nothing but the partition epoch.
func Reassign(im *fsm.Image, tp fsm.TopicPartition, target []fsm.BrokerID) (fsm.ReplicaChange, error) {
	p, ok := im.Partition(tp)
	switch {
	case !ok:
		return fsm.ReplicaChange{}, missing(im, tp)
	case target == nil && !p.Reassigning():
		return fsm.ReplicaChange{}, ErrNoReassignment
	case target == nil:
		target = p.Current()
	}
	if err := checkTarget(im, target); err != nil {
		return fsm.ReplicaChange{}, err
	}
	c := replicaChange(tp, p)
	c.Replicas = slices.Clone(target)
	for _, id := range target {
		if !slices.Contains(p.Replicas, id) || slices.Contains(p.Adding, id) {
			c.Adding = append(c.Adding, id)
		}
	}
	for _, id := range p.Current() {
		if !slices.Contains(target, id) {
			c.Replicas, c.Removing = append(c.Replicas, id), append(c.Removing, id)
		}
	}
	if len(c.Replicas) > fsm.MaxReplicas {
		return fsm.ReplicaChange{}, &InvalidTargetError{target, fmt.Sprintf("at most %d replicas can be there at a time, with those that leave", fsm.MaxReplicas)}
	}
	c.Leader = successor(im, p, c.Replicas)
	if err := im.CheckReplicas(c); err != nil {
		return fsm.ReplicaChange{}, err
	}
	return c, nil
}

// missing tells what of a partition does not exist.
func missing(im *fsm.Image, tp fsm.TopicPartition) error {
	if _, ok := im.Topic(tp.Topic); ok {
		return fsm.UnknownPartition
	}
	return fsm.UnknownTopic
}

// checkTarget returns an *InvalidTargetError for what no partition can have.
func checkTarget(im *fsm.Image, target []fsm.BrokerID) error {
	if len(target) == 0 {
		return &InvalidTargetError{target, "there must be at least one"}
	}
	for i, id := range target {
		if slices.Contains(target[:i], id) {
			return &InvalidTargetError{target, fmt.Sprintf("broker %d is named twice", id)}
		}
		if _, ok := im.Broker(id); !ok {
			return &InvalidTargetError{target, fmt.Sprintf("no broker %d is registered", id)}
		}
	}
	return nil
}

// FinishReassignment completes the reassignment of a partition that runs, if the time
// has come: what is added is in the ISR, enough members stay, and nobody that leaves
// may hold what the disks of those that stay lack. The leader stays if it can, else the first
// of the target that is in sync and live leads.
func FinishReassignment(im *fsm.Image, tp fsm.TopicPartition) (fsm.ReplicaChange, bool) {
	p, ok := im.Partition(tp)
	if !ok || !p.Reassigning() || p.Leader == fsm.NoBroker {
		return fsm.ReplicaChange{}, false
	}
	c := replicaChange(tp, p)
	c.Replicas = p.Target()
	c.Leader = successor(im, p, c.Replicas)
	return c, c.Leader != fsm.NoBroker && im.CheckReplicas(c) == nil
}

// successor leads a partition with these replicas: the present leader if it is one of
// them, else the first of them that is in sync and live.
func successor(im *fsm.Image, p fsm.Partition, replicas []fsm.BrokerID) fsm.BrokerID {
	if p.Leader == fsm.NoBroker || slices.Contains(replicas, p.Leader) {
		return p.Leader
	}
	if fit := members(im, replicas, p.ISR); len(fit) > 0 {
		return fit[0]
	}
	return fsm.NoBroker
}

// replicaChange is a replica change decided at the present state of p.
func replicaChange(tp fsm.TopicPartition, p fsm.Partition) fsm.ReplicaChange {
	return fsm.ReplicaChange{TP: tp, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
}
