package fsm

// GiveUpBroker says that the folder of one incarnation was lost for good: it is fenced, has no
// seat and owns no slot, and nobody waits for it to delete anything. It is decided by whoever
// recovers a cluster that has lost its majority.
type GiveUpBroker struct {
	ID    BrokerID
	Epoch BrokerEpoch
}

func (c GiveUpBroker) apply(e *edit) Result {
	b, no := e.incarnation(c.ID, c.Epoch)
	if no != 0 {
		return refused(no)
	}
	e.evict(b.ID, leftEmpty)
	e.freeSlots(b.ID)
	e.confirmAll(b.ID)
	b.Fenced = true
	e.setBroker(b)
	return Result{}
}

// GiveUp is what GiveUpBroker of some brokers would make of im.
func GiveUp(im *Image, ids ...BrokerID) *Image {
	for _, id := range ids {
		if b, ok := im.Broker(id); ok {
			im, _ = Apply(im, im.index, GiveUpBroker{ID: id, Epoch: b.Epoch})
		}
	}
	return im
}
