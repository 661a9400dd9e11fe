package fsm

import "math"

// MaxProducerIDBlock bounds how many producer ids one command may take.
const MaxProducerIDBlock = 1 << 20

// AllocateProducerIDs takes Count producer ids from First. Result.Epoch is First.
type AllocateProducerIDs struct {
	Broker      BrokerID
	BrokerEpoch BrokerEpoch
	First       int64 // the next free id as the proposer saw it: a repeated command is refused
	Count       int32
}

func (c AllocateProducerIDs) apply(e *edit) Result {
	if c.Count < 1 || c.Count > MaxProducerIDBlock {
		return refused(BadCommand)
	}
	if _, no := e.incarnation(c.Broker, c.BrokerEpoch); no != 0 {
		return refused(no)
	}
	next := e.next.nextProducerID
	if c.First != next || next > math.MaxInt64-int64(c.Count) {
		return refused(StaleBlock)
	}
	e.next.hash += hashProducerID(next+int64(c.Count)) - hashProducerID(next)
	e.next.nextProducerID = next + int64(c.Count)
	return Result{Epoch: next}
}
