package group

import (
	"cmp"
	"slices"

	"github.com/weirmq/weir/fsm"
)

// The names of the assignors.
const (
	Uniform = "uniform" // equal shares, and as few moves as possible
	Range   = "range"   // neighbouring partitions together, and the same numbers of all topics
)

// assignee is a member as an assignor sees it.
type assignee struct {
	id       string
	instance string
	topics   []Topic               // what it subscribes to; ascending by topic id, none twice
	target   []fsm.TopicPartitions // what it was to have so far
}

// assign gives each partition of each subscribed topic to exactly one member that
// subscribes to the topic. The result is in the order of members.
func assign(name string, members []assignee) [][]fsm.TopicPartitions {
	if name == Range {
		return assignRange(members)
	}
	return assignUniform(members)
}

// shares is an assignment in the making. Topics and members are numbered; within
// a topic owner says who has each partition, -1 for nobody.
type shares struct {
	topics      []Topic // ascending by topic id
	owner       [][]int
	subscribers [][]int // of each topic, ascending
	load        []int   // partitions of each member
}

func newShares(members []assignee) *shares {
	s := &shares{load: make([]int, len(members))}
	index := map[fsm.TopicID]int{}
	for _, m := range members {
		for _, t := range m.topics {
			if _, known := index[t.ID]; !known {
				index[t.ID] = 0
				s.topics = append(s.topics, t)
			}
		}
	}
	slices.SortFunc(s.topics, topicOrder)
	s.owner = make([][]int, len(s.topics))
	s.subscribers = make([][]int, len(s.topics))
	for i, t := range s.topics {
		index[t.ID] = i
		s.owner[i] = slices.Repeat([]int{-1}, int(t.Partitions))
	}
	for m := range members {
		for _, t := range members[m].topics {
			i := index[t.ID]
			s.subscribers[i] = append(s.subscribers[i], m)
		}
	}
	return s
}

func topicOrder(a, b Topic) int { return slices.Compare(a.ID[:], b.ID[:]) }

// give makes a member the owner of a partition.
func (s *shares) give(topic, p, m int) {
	if old := s.owner[topic][p]; old >= 0 {
		s.load[old]--
	}
	s.owner[topic][p] = m
	s.load[m]++
}

// keep lets a member have what it was to have, as far as that still exists, it
// still subscribes to it, and quota allows. It returns what it could not keep.
func (s *shares) keep(members []assignee, m, quota int) (left int) {
	have := members[m].target
	for i, t := range s.topics {
		mine := of(have, t.ID)
		if len(mine) == 0 {
			continue
		}
		if _, subscribes := slices.BinarySearch(s.subscribers[i], m); !subscribes {
			continue
		}
		for _, p := range mine {
			switch {
			case int(p) >= len(s.owner[i]) || s.owner[i][p] >= 0:
			case s.load[m] < quota:
				s.give(i, int(p), m)
			default:
				left++
			}
		}
	}
	return left
}

// result is the assignment as sets.
func (s *shares) result(members int) [][]fsm.TopicPartitions {
	out := make([][]fsm.TopicPartitions, members)
	for i, t := range s.topics {
		for p, m := range s.owner[i] {
			if m < 0 {
				continue
			}
			n := len(out[m])
			if n == 0 || out[m][n-1].Topic != t.ID {
				out[m] = append(out[m], fsm.TopicPartitions{Topic: t.ID})
				n++
			}
			out[m][n-1].Partitions = append(out[m][n-1].Partitions, int32(p))
		}
	}
	return out
}

// assignUniform balances first, and moves as little as possible second.
//
// When all members subscribe to the same topics the loads differ by one at most,
// and no balanced assignment keeps more partitions where they are: a member keeps
// what it has up to its share, and the shares that are one larger go to members
// that have enough to use them. With different subscriptions each partition goes
// to the least loaded subscriber, and then partitions move one by one as long as a
// move makes two loads more equal; chains of moves that would help only together
// are not looked for, as they would cost stickiness and time for little.
func assignUniform(members []assignee) [][]fsm.TopicPartitions {
	if len(members) == 0 {
		return nil
	}
	s := newShares(members)
	same := !slices.ContainsFunc(members, func(m assignee) bool {
		return len(m.topics) != len(s.topics)
	})
	if same {
		s.shareAlike(members)
	} else {
		s.shareUnlike(members)
	}
	return s.result(len(members))
}

// shareAlike is for members with the same subscriptions.
func (s *shares) shareAlike(members []assignee) {
	total := 0
	for _, t := range s.topics {
		total += int(t.Partitions)
	}
	quota, larger := total/len(members), total%len(members)
	for m := range members {
		if s.keep(members, m, quota) > 0 && larger > 0 {
			larger--
			s.keep(members, m, quota+1)
		}
	}
	m := 0
	for i := range s.topics {
		for p, owner := range s.owner[i] {
			if owner >= 0 {
				continue
			}
			for ; m < len(members) && s.load[m] >= quota; m++ {
			}
			if m == len(members) {
				s.giveRest(i, p, quota)
				continue
			}
			s.give(i, p, m)
		}
	}
}

// giveRest gives a partition to the first member that has just its quota.
func (s *shares) giveRest(topic, p, quota int) {
	m := slices.Index(s.load, quota)
	if m < 0 {
		panic("BUG: more partitions than shares")
	}
	s.give(topic, p, m)
}

// shareUnlike is for members with different subscriptions.
func (s *shares) shareUnlike(members []assignee) {
	for m := range members {
		s.keep(members, m, int(^uint(0)>>1))
	}
	order := make([]int, len(s.topics))
	for i := range order {
		order[i] = i
	}
	// Topics with few subscribers first: the others can still even things out.
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(s.subscribers[a]), len(s.subscribers[b])) })
	for _, i := range order {
		for p, owner := range s.owner[i] {
			if owner < 0 {
				s.give(i, p, s.least(i))
			}
		}
	}
	for moved := true; moved; {
		moved = false
		for _, i := range order {
			moved = s.even(i) || moved
		}
	}
}

// even moves partitions of one topic to subscribers that have at least two less.
func (s *shares) even(topic int) (moved bool) {
	low := s.least(topic)
	for p, owner := range s.owner[topic] {
		if s.load[owner] > s.load[low]+1 {
			s.give(topic, p, low)
			low = s.least(topic)
			moved = true
		}
	}
	return moved
}

// least is the subscriber of a topic with the fewest partitions, the first of equals.
func (s *shares) least(topic int) int {
	return slices.MinFunc(s.subscribers[topic], func(a, b int) int { return cmp.Compare(s.load[a], s.load[b]) })
}

// assignRange gives each subscriber of a topic neighbouring partitions. Members
// are taken by instance id, then by member id, in every topic alike: those with
// the same subscriptions get the same numbers of topics of the same size, and a
// static member that was restarted gets what it had.
func assignRange(members []assignee) [][]fsm.TopicPartitions {
	if len(members) == 0 {
		return nil
	}
	s := newShares(members)
	rank := make([]int, len(members))
	for i := range rank {
		rank[i] = i
	}
	slices.SortFunc(rank, func(a, b int) int { return rangeOrder(members[a], members[b]) })
	place := make([]int, len(members))
	for i, m := range rank {
		place[m] = i
	}
	for i, t := range s.topics {
		line := slices.Clone(s.subscribers[i])
		slices.SortFunc(line, func(a, b int) int { return cmp.Compare(place[a], place[b]) })
		quota, larger := int(t.Partitions)/len(line), int(t.Partitions)%len(line)
		p := 0
		for j, m := range line {
			n := quota
			if j < larger {
				n++
			}
			for range n {
				s.give(i, p, m)
				p++
			}
		}
	}
	return s.result(len(members))
}

// rangeOrder puts static members first, by instance id; the others by member id.
func rangeOrder(a, b assignee) int {
	switch {
	case a.instance != "" && b.instance != "":
		return cmp.Compare(a.instance, b.instance)
	case a.instance != "":
		return -1
	case b.instance != "":
		return 1
	}
	return cmp.Compare(a.id, b.id)
}
