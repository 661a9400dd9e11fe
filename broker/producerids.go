package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirmq/weir/fsm"
)

// producerBlock is how many producer ids a node takes at once: one metadata entry
// serves that many InitProducerId calls, and a restart wastes at most as many of 2^63.
const producerBlock = 1000

// blockTries bounds how often a node asks again when another took the same block first.
const blockTries = 8

// proposer gets a command into the metadata log.
type proposer interface {
	Propose(ctx context.Context, c fsm.Command) (fsm.Result, error)
}

// producerIDs hands out producer ids from a block that belongs to this node alone.
type producerIDs struct {
	propose proposer
	image   func() *fsm.Image
	self    func() (fsm.BrokerID, fsm.BrokerEpoch)
	// block holds the rest of the present block; whoever took it out owns it and puts it back.
	block chan idBlock
}

type idBlock struct{ next, end int64 }

func newProducerIDs(propose proposer, image func() *fsm.Image, self func() (fsm.BrokerID, fsm.BrokerEpoch)) *producerIDs {
	a := &producerIDs{propose: propose, image: image, self: self, block: make(chan idBlock, 1)}
	a.block <- idBlock{}
	return a
}

// next returns an id that no other call on any node gets.
func (a *producerIDs) next(ctx context.Context) (int64, error) {
	var b idBlock
	select {
	case b = <-a.block:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { a.block <- b }()
	if b.next == b.end {
		fresh, err := a.take(ctx)
		if err != nil {
			return 0, err
		}
		b = fresh
	}
	id := b.next
	b.next++
	return id, nil
}

func (a *producerIDs) take(ctx context.Context) (idBlock, error) {
	for range blockTries {
		id, epoch := a.self()
		first := a.image().NextProducerID()
		res, err := a.propose.Propose(ctx, fsm.AllocateProducerIDs{Broker: id, BrokerEpoch: epoch, First: first, Count: producerBlock})
		if err == nil {
			err = res.Err
		}
		if err == nil {
			return idBlock{first, first + producerBlock}, nil
		}
		if !errors.Is(err, fsm.StaleBlock) {
			return idBlock{}, fmt.Errorf("take a block of producer ids: %w", err)
		}
	}
	return idBlock{}, fmt.Errorf("take a block of producer ids: other nodes took it first %d times", blockTries)
}
