package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire/batch"
)

// role is what this node is to a partition it hosts.
type role uint8

const (
	// roleIdle: the partition has no leader, or its role is not known yet.
	roleIdle role = iota
	// roleFollower: another node leads; its feed appends here.
	roleFollower
	// roleLeader: this node leads.
	roleLeader
	// roleGone: the replica is being removed from this node; no role follows.
	roleGone
)

// Partition is this node's replica of one partition: its log, its role, and who
// waits for it. It owns no goroutine, no timer and no open file.
//
// Only the reconciler changes the role. Appends, reads and positions check the
// role and the leader epoch under mu, so none of them crosses a change of role.
type Partition struct {
	tp  fsm.TopicPartition
	log *storage.Log
	env *environment
	// durable tells that each append is flushed at once; it is the reconciler's.
	durable bool

	// mu comes before the log's own lock and is held across the page-cache write
	// of an append, never across fsync, network, Raft or a wait.
	mu       sync.Mutex
	role     role
	leader   fsm.BrokerID
	epoch    batch.Epoch    // leader epoch of the role
	hw       batch.Offset   // never below what this node has shown to a client in this epoch
	replicas []fsm.BrokerID // whom this leader feeds; the Image's slice, immutable
	lead     *isr.Leader    // set exactly while role is roleLeader
	follow   *isr.Follower
	waiters  waitList
	watchers watchSet
	feeders  []*feeder    // an immutable slice: replaced, never changed
	trims    int          // calls of Trim that wait for the replicas' log starts
	source   *follower    // that feeds this replica; nil while none does
	corrupt  batch.Offset // a batch that a follower showed to be broken on this disk; -1 when none
	uncut    bool         // it was told that the log is damaged and cannot be cut yet
	left     error        // what clients are told once role is roleGone
}

func newPartition(tp fsm.TopicPartition, l *storage.Log, env *environment) *Partition {
	p := &Partition{tp: tp, log: l, env: env, leader: fsm.NoBroker, epoch: batch.NoEpoch, hw: l.HW(), corrupt: -1}
	l.OnDamage(func() { env.damaged(p) })
	return p
}

// Ticket is the outcome of stage one of an append; Wait is stage two.
type Ticket struct {
	storage.Appended
	// LogStart is the log start offset at the time of the append.
	LogStart batch.Offset
	// LeaderEpoch is the epoch in which the batch was appended.
	LeaderEpoch batch.Epoch

	w awaiter
}

// Wait returns nil once the high watermark has passed the batch within the
// leader epoch of its append, errNotLeader when that epoch ended first,
// errNotEnoughAfterAppend when ctx ended while the ISR was too small, and
// otherwise ctx's error.
func (t Ticket) Wait(ctx context.Context) error { return t.w.await(ctx, t) }

// after holds what a change under the partition's lock leaves to be done without it.
type after struct {
	feeders []*feeder
	news    feedNews
	change  *isr.Change
	wakeAt  time.Time
}

// Append writes one validated batch as leader. Acks is the client's: 0 and 1 need
// this node's session to be fresh, -1 needs a sufficient ISR. The batch's header
// is changed in place; the batch is not kept. What the log refuses it refuses in the
// epoch of the ticket: whether that is the last one is the caller's to find out.
func (p *Partition) Append(b batch.Batch, acks int16) (Ticket, error) {
	if p.env.hung.Load() {
		return Ticket{}, errStaleSession
	}
	now := p.env.now()
	p.mu.Lock()
	if err := p.mayAppendLocked(acks); err != nil {
		p.mu.Unlock()
		return Ticket{}, err
	}
	got, err := p.log.AppendLeader(b, p.epoch)
	if err != nil {
		t := Ticket{LeaderEpoch: p.epoch}
		p.mu.Unlock()
		p.trouble(err)
		return t, appendError(err)
	}
	t := Ticket{Appended: got, LogStart: p.log.Start(), LeaderEpoch: p.epoch, w: p}
	if got.Duplicate {
		p.mu.Unlock()
		return t, nil
	}
	todo := p.absorbLocked(p.lead.Appended(got.Last+1, now))
	todo.feeders, todo.news = p.feeders, todo.news|newsRecords
	p.mu.Unlock()
	p.carryOut(todo)
	if acks != -1 && p.env.hung.Load() {
		return Ticket{}, errStaleSession // the write took so long that another may lead by now
	}
	return t, nil
}

func (p *Partition) mayAppendLocked(acks int16) error {
	switch {
	case p.role == roleGone:
		return p.left
	case p.role != roleLeader:
		return errNotLeader
	case acks == -1 && p.lead.BelowMinISR():
		return errNotEnoughReplicas
	case acks != -1 && !p.mayServeLocked():
		return errStaleSession
	}
	return nil
}

// heardBeats is how many heartbeats old the answers of the ISR may be for
// mayServeLocked: an answer proves that nobody else had acted when the question
// was sent, and nothing about the time since.
const heardBeats = 2

// mayServeLocked is the self-fencing rule: serve while this node's session is
// fresh, or while the whole ISR has answered on the feed a moment ago: then
// nobody else had been elected and acted by then. A controller that is lost, as
// opposed to one that has given up on this node, thus stops nobody.
func (p *Partition) mayServeLocked() bool {
	return p.env.fresh() || p.lead.Heard(p.env.heardSince(), p.env.heard)
}

// trouble reports an error of the log that concerns more than one call: a folder
// that is offline ends the node, a damaged log costs this replica its seats.
func (p *Partition) trouble(err error) {
	if errors.Is(err, storage.ErrOffline) {
		p.env.fail(err)
	}
	if p.log.Damaged() != nil {
		p.env.damaged(p)
	}
}

// refusesSequence tells a refusal by the producer's window.
func refusesSequence(err error) bool {
	return errors.Is(err, storage.ErrOutOfOrderSequence) || errors.Is(err, storage.ErrInvalidProducerEpoch)
}

// appendError turns the log's refusal into one that the handlers know.
func appendError(err error) error {
	switch {
	case refusesSequence(err), errors.Is(err, errNotLeader):
		return err
	case errors.Is(err, storage.ErrFull):
		return fmt.Errorf("%w: %w", errStorageFull, err)
	}
	return fmt.Errorf("%w: %w", errStorage, err)
}

// await is Ticket.Wait.
func (p *Partition) await(ctx context.Context, t Ticket) error {
	p.mu.Lock()
	if p.role != roleLeader || p.epoch != t.LeaderEpoch {
		p.mu.Unlock()
		return errNotLeader
	}
	if p.hw > t.Last {
		p.mu.Unlock()
		return nil
	}
	w := p.env.waiters.take(t.Last)
	p.waiters.insert(w)
	p.mu.Unlock()

	select {
	case err := <-w.done:
		p.env.waiters.put(w)
		return err
	case <-ctx.Done():
	}
	p.mu.Lock()
	waiting := p.waiters.remove(w)
	short := waiting && p.lead.BelowMinISR()
	p.mu.Unlock()
	if !waiting { // answered in the meantime
		err := <-w.done
		p.env.waiters.put(w)
		return err
	}
	p.env.waiters.put(w)
	if short {
		return errNotEnoughAfterAppend
	}
	return ctx.Err()
}

// absorbLocked takes in the effects of the replication core.
func (p *Partition) absorbLocked(e isr.Effects) after {
	var todo after
	if e.HWMoved {
		p.setHWLocked(e.HW)
		todo.feeders, todo.news = p.feeders, newsMarks
	}
	todo.change, todo.wakeAt = e.Propose, e.WakeAt
	p.trimmedLocked()
	return todo
}

// setHWLocked raises the high watermark and answers all who waited for it.
func (p *Partition) setHWLocked(hw batch.Offset) {
	if hw < p.hw {
		panic(fmt.Sprintf("BUG: high watermark of %s-%d goes back from %d to %d", p.log.Topic(), p.tp.Partition, p.hw, hw))
	}
	if hw == p.hw {
		return
	}
	p.hw = hw
	p.log.SetHW(hw)
	p.waiters.completeBelow(hw)
	p.signalLocked()
}

func (p *Partition) signalLocked() { p.watchers.signal() }

// carryOut does what must not happen under the lock.
func (p *Partition) carryOut(todo after) {
	for _, f := range todo.feeders {
		f.wake(p, todo.news)
	}
	if todo.change != nil {
		p.env.changes.add(p, *todo.change)
	}
	if !todo.wakeAt.IsZero() {
		p.env.ticks.schedule(p, todo.wakeAt)
	}
}

// tick is called by the shared ticker at a time the core asked for.
func (p *Partition) tick(now time.Time) {
	p.mu.Lock()
	if p.role != roleLeader {
		p.mu.Unlock()
		return
	}
	todo := p.absorbLocked(p.lead.Tick(now, p.env.live))
	p.mu.Unlock()
	p.carryOut(todo)
}

// flushed is called after each flush of a durable log.
func (p *Partition) flushed() {
	p.mu.Lock()
	if p.role != roleLeader {
		source := p.source
		p.mu.Unlock()
		if source != nil {
			source.flushed(p)
		}
		return
	}
	end := min(p.log.Flushed(), p.log.End())
	todo := p.absorbLocked(p.lead.Flushed(end, p.env.now(), p.env.live))
	p.mu.Unlock()
	p.carryOut(todo)
}

// Leader returns the leader and leader epoch of the role this replica is in.
func (p *Partition) Leader() (fsm.BrokerID, batch.Epoch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leader, p.epoch
}

// Watch signals w once, when the high watermark moves, the leader epoch ends or the
// log start moves, unless Unwatch comes first. Who wants to wait on calls Watch
// again, and then looks.
func (p *Partition) Watch(w *Watcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchers.add(w)
}

// Unwatch undoes Watch.
func (p *Partition) Unwatch(w *Watcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchers.remove(w)
}
