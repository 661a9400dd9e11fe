package elect

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weirmq/weir/fsm"
)

// TooFewBrokersError says that a topic cannot be placed yet. It is retriable:
// brokers may register.
type TooFewBrokersError struct {
	Wanted     int // replicas of each partition
	Registered int // brokers that are not stopping
	Live       int // those of them that are not fenced
}

func (e *TooFewBrokersError) Error() string {
	return fmt.Sprintf("%d replicas wanted, but %d brokers are registered and %d of them are up", e.Wanted, e.Registered, e.Live)
}

// candidate is a broker that replicas may be placed on, with what the topic has
// given it so far.
type candidate struct {
	id             fsm.BrokerID
	rack           string
	replicas, lead int
}

// Place chooses the replicas of a new topic's partitions, the first of each to
// lead. Within the topic no broker gets two replicas more than another, and
// leadership is spread as evenly; ties are broken by the seed, so that topics of
// few partitions do not all land on the same brokers, and by racks not yet used
// for the partition. Fenced brokers are used only for replicas that the live ones
// cannot take, and never first.
func Place(im *fsm.Image, partitions, replicas int, seed uint64) ([][]fsm.BrokerID, error) {
	if partitions < 1 || replicas < 1 || replicas > fsm.MaxReplicas {
		return nil, fmt.Errorf("place %d partitions of %d replicas: both must be positive, replicas at most %d", partitions, replicas, fsm.MaxReplicas)
	}
	var live, fenced []*candidate
	for b := range im.Brokers() {
		switch c := (&candidate{id: b.ID, rack: b.Rack}); {
		case b.Stopping:
		case b.Fenced:
			fenced = append(fenced, c)
		default:
			live = append(live, c)
		}
	}
	if len(live) == 0 || len(live)+len(fenced) < replicas {
		return nil, &TooFewBrokersError{Wanted: replicas, Registered: len(live) + len(fenced), Live: len(live)}
	}
	out := make([][]fsm.BrokerID, partitions)
	for i := range out {
		ties := mix(seed + uint64(i))
		chosen := pick(live, min(replicas, len(live)), ties)
		promote(chosen, ties)
		chosen = append(chosen, pick(fenced, replicas-len(chosen), ties)...)
		for _, c := range chosen {
			c.replicas++
			out[i] = append(out[i], c.id)
		}
		chosen[0].lead++
	}
	level(out, live)
	return out, nil
}

// pick takes n of the candidates that have the fewest replicas. Among equals it
// prefers racks that were not picked yet, then the order that ties gives.
func pick(from []*candidate, n int, ties uint64) []*candidate {
	if n <= 0 {
		return nil
	}
	order := slices.Clone(from)
	slices.SortFunc(order, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(a.replicas, b.replicas), cmp.Compare(mix(ties^uint64(a.id)), mix(ties^uint64(b.id))))
	})
	var out []*candidate
	for len(out) < n {
		out = append(out, takeNext(&order, out))
	}
	return out
}

// takeNext removes the first candidate of a rack that out lacks from those with
// the fewest replicas, or the first of all.
func takeNext(order *[]*candidate, out []*candidate) *candidate {
	best := 0
	for i, c := range *order {
		if c.replicas > (*order)[0].replicas {
			break
		}
		if c.rack == "" || !slices.ContainsFunc(out, func(o *candidate) bool { return o.rack == c.rack }) {
			best = i
			break
		}
	}
	c := (*order)[best]
	*order = slices.Delete(*order, best, best+1)
	return c
}

// promote moves the candidate that leads least to the front.
func promote(chosen []*candidate, ties uint64) {
	slices.SortFunc(chosen, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(a.lead, b.lead), cmp.Compare(mix(ties^uint64(a.id)), mix(ties^uint64(b.id))))
	})
}

// level evens out who leads, until no live broker leads two partitions more than
// another. Choosing leaders one partition at a time can end two apart, when those
// who lead least share no partition with those who lead most; then leadership
// moves along a chain of partitions, each step to the next one's leader. As long
// as two brokers are two apart such a chain exists, because their replicas are at
// most one apart.
func level(lists [][]fsm.BrokerID, live []*candidate) {
	byID := map[fsm.BrokerID]*candidate{}
	for _, c := range live {
		byID[c.id] = c
	}
	for {
		most := slices.MaxFunc(live, func(a, b *candidate) int { return cmp.Compare(a.lead, b.lead) }).lead
		chain := findChain(lists, byID, live, most)
		if chain == nil {
			return
		}
		for _, s := range chain {
			list := lists[s.partition]
			list[0], list[s.member] = list[s.member], list[0]
		}
		byID[lists[chain[0].partition][0]].lead++
		last := chain[len(chain)-1]
		byID[lists[last.partition][last.member]].lead--
	}
}

// step hands the lead of a partition to one of its members.
type step struct{ partition, member int }

// findChain searches breadth first for steps that take the lead from a broker
// that leads most and give it to one that leads at least two fewer. The steps
// come last first.
func findChain(lists [][]fsm.BrokerID, byID map[fsm.BrokerID]*candidate, live []*candidate, most int) []step {
	led := map[fsm.BrokerID][]int{}
	for i, list := range lists {
		led[list[0]] = append(led[list[0]], i)
	}
	via := map[fsm.BrokerID]step{}
	var queue []fsm.BrokerID
	seen := map[fsm.BrokerID]bool{}
	for _, c := range live {
		if c.lead == most {
			queue, seen[c.id] = append(queue, c.id), true
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		for _, i := range led[queue[0]] {
			for j, id := range lists[i] {
				if byID[id] == nil || seen[id] {
					continue
				}
				seen[id], via[id] = true, step{i, j}
				if byID[id].lead <= most-2 {
					return unwind(lists, via, id)
				}
				queue = append(queue, id)
			}
		}
	}
	return nil
}

// unwind lists the steps that lead to id, last first.
func unwind(lists [][]fsm.BrokerID, via map[fsm.BrokerID]step, id fsm.BrokerID) []step {
	var chain []step
	for s, ok := via[id]; ok; s, ok = via[id] {
		chain = append(chain, s)
		id = lists[s.partition][0]
	}
	return chain
}

// Initial makes the first state of a partition placed on replicas: those that
// are eligible are in sync, the first of them leads. It reports whether there is
// one.
func Initial(im *fsm.Image, replicas []fsm.BrokerID) (fsm.NewPartition, bool) {
	isr := members(im, replicas, replicas)
	if len(isr) == 0 {
		return fsm.NewPartition{}, false
	}
	return fsm.NewPartition{Replicas: replicas, ISR: isr, Leader: isr[0]}, true
}

// mix scrambles x: the finalizer of a 64-bit hash.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
