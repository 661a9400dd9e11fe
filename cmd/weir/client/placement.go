package client

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
)

// placer chooses nodes for replicas: as few as possible move, no two replicas of a partition
// share a rack while there are enough racks, and each node gets as many replicas, and as many
// preferred leaders, as the others, as far as what stays where it is allows.
type placer struct {
	rack  map[int32]string // of the nodes that may be chosen
	holds map[int32]int    // replicas by node
	leads map[int32]int    // preferred leaders by node
}

// newPlacer counts what the nodes of a cluster hold. Only nodes that may says so of are chosen.
func newPlacer(m kadm.Metadata, may func(int32) bool) *placer {
	p := &placer{rack: map[int32]string{}, holds: map[int32]int{}, leads: map[int32]int{}}
	for _, b := range m.Brokers {
		if !may(b.NodeID) {
			continue
		}
		p.rack[b.NodeID] = ""
		if b.Rack != nil {
			p.rack[b.NodeID] = *b.Rack
		}
	}
	for _, t := range m.Topics {
		for _, part := range t.Partitions {
			p.count(part.Replicas, 1)
		}
	}
	return p
}

// count notes that a partition is placed, or with -1 that it is not any more.
func (p *placer) count(replicas []int32, n int) {
	for i, id := range replicas {
		p.holds[id] += n
		if i == 0 {
			p.leads[id] += n
		}
	}
}

// place chooses n replicas for a partition that is on now. Those that may stay do, before those
// that are new, and the preferred leader stays it.
func (p *placer) place(now []int32, n int) ([]int32, error) {
	if n > len(p.rack) {
		return nil, fmt.Errorf("%d replicas need as many nodes, and only %d can be chosen", n, len(p.rack))
	}
	p.count(now, -1)
	var chosen []int32
	for _, id := range now {
		if _, may := p.rack[id]; may && len(chosen) < n {
			chosen = append(chosen, id)
		}
	}
	stays := len(chosen) > 0 && chosen[0] == now[0]
	for len(chosen) < n {
		chosen = append(chosen, p.next(chosen))
	}
	if !stays {
		first := slices.MinFunc(chosen, func(a, b int32) int { return cmp.Or(p.leads[a]-p.leads[b], p.holds[a]-p.holds[b], int(a-b)) })
		chosen = append([]int32{first}, slices.DeleteFunc(chosen, func(id int32) bool { return id == first })...)
	}
	p.count(chosen, 1)
	return chosen, nil
}

// next is the best node for another replica beside those chosen.
func (p *placer) next(chosen []int32) int32 {
	best := int32(-1)
	for id := range p.rack {
		if slices.Contains(chosen, id) {
			continue
		}
		if best < 0 || cmp.Or(p.shared(id, chosen)-p.shared(best, chosen), p.holds[id]-p.holds[best], int(id-best)) < 0 {
			best = id
		}
	}
	return best
}

// shared is how many of the chosen are in the rack of a node.
func (p *placer) shared(id int32, chosen []int32) int {
	if p.rack[id] == "" {
		return 0
	}
	n := 0
	for _, c := range chosen {
		if p.rack[c] == p.rack[id] {
			n++
		}
	}
	return n
}
