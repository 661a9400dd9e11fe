package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/fsm"
)

// keeperPause lies between two tries after a failure, and between two writes of
// weir.meta: deletions and creations come in bursts, and each write is an fsync.
const keeperPause = 500 * time.Millisecond

// keeper does what the reconciler and the replicas must not wait for, on one
// goroutine: it confirms deletions and reports damage to the controller, and
// records the reconciled Image index.
type keeper struct {
	env     *environment
	propose proposer
	record  func(index uint64) error
	log     hclog.Logger
	wake    chan struct{} // capacity 1: there is something to do
	done    chan struct{}

	mu      sync.Mutex // leaf; guards what is below
	deleted []fsm.TopicID
	damaged []fsm.TopicPartition
	index   uint64 // to be recorded; 0 when nothing is
}

func newKeeper(env *environment, propose proposer, record func(uint64) error, log hclog.Logger) *keeper {
	return &keeper{env: env, propose: propose, record: record, log: log, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// confirm reports that this node holds nothing of a deleted topic any more.
func (k *keeper) confirm(id fsm.TopicID) {
	k.mu.Lock()
	if !slices.Contains(k.deleted, id) {
		k.deleted = append(k.deleted, id)
	}
	k.mu.Unlock()
	k.signal()
}

// damage reports that this node's log of a partition lacks records that it had
// acknowledged.
func (k *keeper) damage(p *Partition) {
	k.mu.Lock()
	if !slices.Contains(k.damaged, p.tp) {
		k.damaged = append(k.damaged, p.tp)
	}
	k.mu.Unlock()
	k.signal()
}

// reconciled asks for a record that the folders agree with the Image of that index.
func (k *keeper) reconciled(index uint64) {
	k.mu.Lock()
	k.index = max(k.index, index)
	k.mu.Unlock()
	k.signal()
}

func (k *keeper) signal() { wakeUp(k.wake) }

// run works until ctx ends.
func (k *keeper) run(ctx context.Context) {
	defer close(k.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		}
		k.work(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(keeperPause):
		}
	}
}

func (k *keeper) work(ctx context.Context) {
	k.mu.Lock()
	index, deleted, damaged := k.index, slices.Clone(k.deleted), slices.Clone(k.damaged)
	k.index = 0
	k.mu.Unlock()
	if index != 0 {
		if err := k.record(index); err != nil {
			k.log.Error("cannot record the reconciled metadata index", "index", index, "error", err)
			k.reconciled(index)
		}
	}
	if len(damaged) > 0 && k.tell(ctx, fsm.ReportDamaged{Broker: k.env.self, BrokerEpoch: k.env.epoch(), Items: damaged}) {
		k.mu.Lock()
		k.damaged = slices.DeleteFunc(k.damaged, func(tp fsm.TopicPartition) bool { return slices.Contains(damaged, tp) })
		k.mu.Unlock()
	}
	if len(deleted) > 0 && k.tell(ctx, fsm.ConfirmDeleted{Broker: k.env.self, BrokerEpoch: k.env.epoch(), Topics: deleted}) {
		k.mu.Lock()
		k.deleted = slices.DeleteFunc(k.deleted, func(id fsm.TopicID) bool { return slices.Contains(deleted, id) })
		k.mu.Unlock()
	}
}

// tell proposes a command; false means that it is to be tried again.
func (k *keeper) tell(ctx context.Context, c fsm.Command) bool {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	err := proposeTo(ctx, k.propose, c)
	if err == nil || errors.Is(err, fsm.UnknownTopic) { // confirmed before
		return true
	}
	if !errors.Is(err, context.Canceled) {
		k.log.Warn("the controller has not been told yet", "command", fmt.Sprintf("%T", c), "error", err)
	}
	k.signal()
	return false
}

// proposeTo proposes a command and returns its refusal as an error.
func proposeTo(ctx context.Context, p proposer, c fsm.Command) error {
	res, err := p.Propose(ctx, c)
	if err != nil {
		return err
	}
	return res.Err
}
