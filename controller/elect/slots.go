package elect

import (
	"slices"

	"github.com/weirmq/weir/fsm"
)

// Slots spreads the slots over the eligible brokers: those without an owner go to
// whoever has the fewest, then as few others as possible move until no broker has
// two more than another. A move costs little (the facts are in the Image, clients
// look up the coordinator anew), an idle broker beside a busy one costs more.
// Among equals the lowest id and the lowest slot come first.
func Slots(im *fsm.Image) []fsm.SlotChange {
	s := spread{im: im}
	for b := range im.Brokers() {
		if b.Eligible() {
			s.owners = append(s.owners, owner{id: b.ID})
		}
	}
	if len(s.owners) == 0 {
		return nil
	}
	var free []int32
	for i := range int32(fsm.Slots) {
		id := im.Slot(i).Owner
		j := slices.IndexFunc(s.owners, func(o owner) bool { return o.id == id })
		if j < 0 {
			free = append(free, i)
			continue
		}
		s.owners[j].slots = append(s.owners[j].slots, i)
	}
	for _, slot := range free {
		to := s.least()
		to.slots = append(to.slots, slot)
	}
	for {
		from, to := s.most(), s.least()
		if len(from.slots) < len(to.slots)+2 {
			break
		}
		slot := from.slots[0]
		from.slots = from.slots[1:]
		to.slots = append(to.slots, slot)
	}
	return s.changes()
}

// spread is a distribution of the slots under construction.
type spread struct {
	im     *fsm.Image
	owners []owner // ascending id
}

// owner is one broker with the slots it is to have.
type owner struct {
	id    fsm.BrokerID
	slots []int32
}

func (s *spread) least() *owner {
	best := &s.owners[0]
	for i := range s.owners {
		if len(s.owners[i].slots) < len(best.slots) {
			best = &s.owners[i]
		}
	}
	return best
}

func (s *spread) most() *owner {
	best := &s.owners[0]
	for i := range s.owners {
		if len(s.owners[i].slots) > len(best.slots) {
			best = &s.owners[i]
		}
	}
	return best
}

// changes lists what differs from the Image, by slot.
func (s *spread) changes() []fsm.SlotChange {
	var out []fsm.SlotChange
	for _, o := range s.owners {
		for _, slot := range o.slots {
			if cur := s.im.Slot(slot); cur.Owner != o.id {
				out = append(out, fsm.SlotChange{Slot: slot, Epoch: cur.Epoch, Owner: o.id})
			}
		}
	}
	slices.SortFunc(out, func(a, b fsm.SlotChange) int { return int(a.Slot - b.Slot) })
	return out
}
