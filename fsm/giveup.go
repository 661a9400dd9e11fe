package fsm

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
	e.confirmAll(b.ID)
	b.Fenced = true
	e.setBroker(b)
	e.commit()
	return &next
}
