package broker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
)

const (
	// changeTimeout bounds one try to get ISR changes into the metadata log.
	changeTimeout = 5 * time.Second
	// changePause keeps a node without a controller from asking in a tight loop.
	changePause = 100 * time.Millisecond
	// changesMax bounds the changes of one command, far below the size limit of an entry.
	changesMax = 1000
)

// changes carries the ISR proposals of all partitions to the controller. One
// goroutine sends what has gathered as one command and hands each outcome back
// to its partition, so that a failover of a thousand partitions is a few entries.
type changes struct {
	env     *environment
	propose proposer
	log     hclog.Logger
	wake    chan struct{} // capacity 1: pending is not empty
	done    chan struct{}

	mu      sync.Mutex // leaf; guards pending
	pending []pendingChange
}

type pendingChange struct {
	p      *Partition
	change isr.Change
}

func newChanges(env *environment, propose proposer, log hclog.Logger) *changes {
	return &changes{env: env, propose: propose, log: log, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// add queues one proposal; the core never has two of one partition in flight.
func (c *changes) add(p *Partition, change isr.Change) {
	c.mu.Lock()
	c.pending = append(c.pending, pendingChange{p, change})
	c.mu.Unlock()
	wakeUp(c.wake)
}

func (c *changes) takeSome() []pendingChange {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(c.pending), changesMax)
	some := c.pending[:n:n]
	c.pending = c.pending[n:]
	if len(c.pending) == 0 {
		c.pending = nil
	}
	return some
}

// run proposes until ctx ends.
func (c *changes) run(ctx context.Context) {
	defer close(c.done)
	for {
		some := c.takeSome()
		if len(some) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-c.wake:
			}
			continue
		}
		if err := c.send(ctx, some); err != nil && ctx.Err() == nil {
			c.log.Warn("ISR change not committed", "partitions", len(some), "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(changePause):
			}
		}
	}
}

// send proposes one command and answers every partition in it.
func (c *changes) send(ctx context.Context, some []pendingChange) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	cmd := fsm.ChangeISR{Proposer: c.env.self, BrokerEpoch: c.env.epoch(), Items: make([]fsm.ISRChange, len(some))}
	for i, s := range some {
		cmd.Items[i] = isrChange(s.p.tp, s.change)
	}
	res, err := c.propose.Propose(ctx, cmd)
	if err == nil {
		err = res.Err
	}
	outcomes := make([]isr.Outcome, len(some))
	for i := range outcomes {
		outcomes[i] = changeOutcome(err)
	}
	if err == nil {
		for n, i := range res.Skipped {
			outcomes[i] = changeOutcome(res.Why[n])
		}
	}
	for i, s := range some {
		s.p.answered(s.change, outcomes[i])
	}
	return err
}

// changeOutcome tells apart what certainly was not and will not be done from what
// may have been: only the former lets a leader forget its proposal. A refusal for
// a stale epoch is of the second kind, since what made it stale may have been an
// earlier copy of the same proposal.
func changeOutcome(err error) isr.Outcome {
	switch {
	case err == nil:
		return isr.Committed
	case errors.Is(err, fsm.IneligibleReplica), errors.Is(err, controller.ErrNoController):
		return isr.Refused
	}
	return isr.Unknown
}

func isrChange(tp fsm.TopicPartition, ch isr.Change) fsm.ISRChange {
	return fsm.ISRChange{TP: tp, LeaderEpoch: ch.LeaderEpoch, PartitionEpoch: ch.PartitionEpoch, ISR: slices.Clone(ch.ISR), Durability: ch.Durability, Confirms: ch.Confirms}
}
