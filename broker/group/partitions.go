package group

import (
	"bytes"
	"slices"

	"github.com/weirmq/weir/fsm"
)

// Sets of partitions are lists of fsm.TopicPartitions: topics ascending by id, no
// topic twice, none empty; partitions ascending, none twice. They are never
// changed in place.

// normal makes a set of what a client sent.
func normal(list []fsm.TopicPartitions) []fsm.TopicPartitions {
	var b builder
	for _, t := range list {
		for _, p := range t.Partitions {
			b.add(t.Topic, p)
		}
	}
	return b.set()
}

// builder collects partitions in any order.
type builder struct {
	topics map[fsm.TopicID][]int32
}

func (b *builder) add(topic fsm.TopicID, p int32) {
	if b.topics == nil {
		b.topics = map[fsm.TopicID][]int32{}
	}
	b.topics[topic] = append(b.topics[topic], p)
}

// set is what was collected.
func (b *builder) set() []fsm.TopicPartitions {
	if len(b.topics) == 0 {
		return nil
	}
	set := make([]fsm.TopicPartitions, 0, len(b.topics))
	for topic, partitions := range b.topics {
		slices.Sort(partitions)
		set = append(set, fsm.TopicPartitions{Topic: topic, Partitions: slices.Compact(partitions)})
	}
	slices.SortFunc(set, byTopic)
	return set
}

func byTopic(a, b fsm.TopicPartitions) int { return bytes.Compare(a.Topic[:], b.Topic[:]) }

// of returns the partitions of one topic in a set.
func of(set []fsm.TopicPartitions, topic fsm.TopicID) []int32 {
	i, found := slices.BinarySearchFunc(set, topic, func(t fsm.TopicPartitions, id fsm.TopicID) int {
		return bytes.Compare(t.Topic[:], id[:])
	})
	if !found {
		return nil
	}
	return set[i].Partitions
}

// contains says that a partition is in a set.
func contains(set []fsm.TopicPartitions, topic fsm.TopicID, p int32) bool {
	_, found := slices.BinarySearch(of(set, topic), p)
	return found
}

// filter returns the partitions of a set that are wanted.
func filter(set []fsm.TopicPartitions, want func(fsm.TopicID, int32) bool) []fsm.TopicPartitions {
	var out []fsm.TopicPartitions
	for _, t := range set {
		var kept []int32
		for _, p := range t.Partitions {
			if want(t.Topic, p) {
				kept = append(kept, p)
			}
		}
		if len(kept) > 0 {
			out = append(out, fsm.TopicPartitions{Topic: t.Topic, Partitions: kept})
		}
	}
	return out
}

// intersect returns a ∩ b.
func intersect(a, b []fsm.TopicPartitions) []fsm.TopicPartitions {
	return filter(a, func(t fsm.TopicID, p int32) bool { return contains(b, t, p) })
}

// subtract returns a − b.
func subtract(a, b []fsm.TopicPartitions) []fsm.TopicPartitions {
	return filter(a, func(t fsm.TopicID, p int32) bool { return !contains(b, t, p) })
}

// union returns a ∪ b.
func union(a, b []fsm.TopicPartitions) []fsm.TopicPartitions {
	if len(b) == 0 {
		return a
	}
	return normal(append(slices.Clone(a), b...))
}

// overlaps says that a ∩ b is not empty.
func overlaps(a, b []fsm.TopicPartitions) bool {
	for _, t := range a {
		other := of(b, t.Topic)
		if slices.ContainsFunc(t.Partitions, func(p int32) bool {
			_, found := slices.BinarySearch(other, p)
			return found
		}) {
			return true
		}
	}
	return false
}

// equal says that two sets are the same.
func equal(a, b []fsm.TopicPartitions) bool {
	return slices.EqualFunc(a, b, func(x, y fsm.TopicPartitions) bool {
		return x.Topic == y.Topic && slices.Equal(x.Partitions, y.Partitions)
	})
}

// count returns the size of a set.
func count(set []fsm.TopicPartitions) int {
	n := 0
	for _, t := range set {
		n += len(t.Partitions)
	}
	return n
}
