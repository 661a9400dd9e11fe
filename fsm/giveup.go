package fsm

import "slices"

// GiveUp is im after the folders of some brokers were lost for good: they are fenced,
// have no seat and own no slot, and nobody waits for them to delete anything. It is
// no Command, since no controller decides it: it is for a cluster that has lost its
// majority, whose metadata is rewritten while all its nodes are down.
func GiveUp(im *Image, ids ...BrokerID) *Image {
	for _, id := range ids {
		if b, ok := im.Broker(id); ok {
			im = giveUp(im, b)
		}
	}
	return im
}

func giveUp(im *Image, b Broker) *Image {
	next := *im
	e := edit{next: &next}
	e.evict(b.ID, leftEmpty)
	e.freeSlots(b.ID)
	for t := range values(im.tombstones) {
		if i, waits := slices.BinarySearch(t.Pending, b.ID); waits {
			left := slices.Delete(slices.Clone(t.Pending), i, i+1)
			e.setTombstone(&Tombstone{ID: t.ID, Name: t.Name, Pending: left}, t)
		}
	}
	b.Fenced = true
	e.setBroker(b)
	e.commit()
	return &next
}
