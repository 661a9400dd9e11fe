package broker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/fsm"
)

// groupRowMax bounds what the members of one group make of its row. A group is
// stored whole, in one entry of the metadata log, which delays all others.
const groupRowMax = 8 << 20

// groups is this node's share of coordinating groups: the slots that it owns.
//
// A slot that the Image gives to this node is a tenure (group_shard.go): the pure
// cores of its groups, made from the rows of the Image, and the changes they want
// made, which one worker at a time gets into the metadata log (group_proposals.go).
// Nothing else is needed to take over: the Image that names the new owner already
// holds all that the old one was acknowledged, and what the old one still tries is
// refused for its slot epoch. What the old one reads is as old as its Image, and it
// may not know: so committed offsets are told only after the controller was asked
// how far the Image must be (09_offset_fetch.go).
//
// One goroutine, run, serves the timers of all groups (group_timers.go), expires
// offsets (group_retention.go), and starts the workers, which it waits for.
//
// Locks: shard.mu, under which cores are called and Images loaded; below it the
// leaves timers.mu, readyMu and topics.mu.
type groups struct {
	self    fsm.BrokerID
	epoch   func() fsm.BrokerEpoch
	image   func() *fsm.Image
	fresh   func() bool // this node's session is surely alive
	propose proposer
	now     func() time.Time
	config  GroupConfig
	rowMax  int // bytes of one group in an entry
	log     hclog.Logger
	metrics *groupMetrics

	// conns counts the connections of clients, and is the number of the newest.
	conns atomic.Uint64

	// refused is when a request was last refused for want of a session, in nanoseconds
	// since began, by the monotonic clock: members could not show then that they live.
	refused atomic.Int64
	began   time.Time

	shards [fsm.Slots]shard
	timers groupTimers
	topics topicView

	wake    chan struct{} // capacity 1: a worker is to start, or the earliest timer has changed
	done    chan struct{} // closed when run has ended
	workers sync.WaitGroup
	// handoff takes a tenure to a worker that has nothing to do, if one waits: a new one would begin
	// with a small stack, which encoding a command does not fit in.
	handoff chan *tenure
	idle    atomic.Int32 // workers that wait

	readyMu sync.Mutex // leaf; guards what is below
	ready   []*tenure  // those whose workers are to start
	stopped bool       // no worker will start any more
}

// groupsEnv is what groups needs of the node.
type groupsEnv struct {
	self    fsm.BrokerID
	epoch   func() fsm.BrokerEpoch
	image   func() *fsm.Image
	fresh   func() bool
	now     func() time.Time
	propose proposer
	metrics *groupMetrics
	log     hclog.Logger
}

func newGroups(e groupsEnv, c GroupConfig) *groups {
	g := &groups{
		self: e.self, epoch: e.epoch, image: e.image, fresh: e.fresh, now: e.now,
		propose: e.propose, log: e.log, metrics: e.metrics, config: c,
		rowMax: groupRowMax, wake: make(chan struct{}, 1), done: make(chan struct{}), handoff: make(chan *tenure),
	}
	g.began = g.now()
	g.refused.Store(-c.MinSession.Nanoseconds()) // long ago
	for i := range g.shards {
		g.shards[i].groups, g.shards[i].slot = g, int32(i)
	}
	return g
}

// run serves timers and starts workers until ctx ends, then ends all tenures and
// waits for the workers.
func (g *groups) run(ctx context.Context) {
	defer close(g.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	swept := g.now()
	sweep := swept.Add(g.config.OffsetsRetentionCheck)
	for ctx.Err() == nil {
		g.startWorkers(ctx)
		now := g.now()
		held := g.held(now)
		if held == 0 {
			g.fire(now)
		}
		if !now.Before(sweep) {
			g.expireOffsets(now, leap(swept, now))
			swept, sweep = now, now.Add(g.config.OffsetsRetentionCheck)
		}
		timer.Reset(max(0, min(max(held, g.timers.untilNext(now)), sweep.Sub(now))))
		select {
		case <-ctx.Done():
		case <-g.wake:
		case <-timer.C:
		}
	}
	g.stop()
	g.workers.Wait()
}

// held is how long no group is looked at yet. While this node has no session it
// refuses heartbeats; after it, members get the time to show that they live.
func (g *groups) held(now time.Time) time.Duration {
	grace := g.config.MinSession / 2
	if !g.fresh() {
		return grace
	}
	return max(0, time.Duration(g.refused.Load())+grace-now.Sub(g.began))
}

// startWorker gives the tenure to a worker, or asks run for one. The caller holds the shard's lock.
func (g *groups) startWorker(t *tenure) {
	g.readyMu.Lock()
	if g.stopped {
		g.readyMu.Unlock()
		t.end(errNotCoordinator)
		return
	}
	select {
	case g.handoff <- t:
		g.readyMu.Unlock()
		return
	default:
	}
	g.ready = append(g.ready, t)
	g.readyMu.Unlock()
	g.signal()
}

func (g *groups) startWorkers(ctx context.Context) {
	g.readyMu.Lock()
	ready := g.ready
	g.ready = nil
	g.readyMu.Unlock()
	for _, t := range ready {
		g.workers.Go(func() { g.work(ctx, t) }) // ends when there are enough that wait, or with ctx; run waits
	}
}

// workersKept is how many workers wait for the next tenure that has something to store.
const workersKept = 8

// work is one worker: it does the work of one tenure after the other.
func (g *groups) work(ctx context.Context, t *tenure) {
	for {
		t.work(ctx)
		if g.idle.Add(1) > workersKept {
			g.idle.Add(-1)
			return
		}
		select {
		case t = <-g.handoff:
			g.idle.Add(-1)
		case <-ctx.Done():
			return
		}
	}
}

// stop ends all tenures: whoever waits asks another node.
func (g *groups) stop() {
	g.readyMu.Lock()
	g.stopped, g.ready = true, nil
	g.readyMu.Unlock()
	for i := range g.shards {
		s := &g.shards[i]
		s.mu.Lock()
		s.closed = true
		s.endLocked()
		s.mu.Unlock()
	}
}

func (g *groups) signal() { wakeUp(g.wake) }

// slotsChanged follows the owners of slots: what waits at a slot that went is
// answered, and the members of one that came get their timers.
func (g *groups) slotsChanged(slots []fsm.SlotDelta) {
	for _, d := range slots {
		s := &g.shards[d.Slot]
		s.mu.Lock()
		s.follow(g.image())
		s.mu.Unlock()
	}
}

// owns tells whether the tenure's slot is still this node's in the same epoch.
func (g *groups) owns(t *tenure) bool {
	im := g.image()
	s := im.Slot(t.shard.slot)
	return s.Owner == g.self && s.Epoch == t.epoch && g.registered(im)
}

// registered tells whether the registration in im is this process's own.
func (g *groups) registered(im *fsm.Image) bool {
	b, ok := im.Broker(g.self)
	return ok && b.Epoch == g.epoch()
}

// coordinator is the broker that coordinates a group or transactional id; false
// when there is none that clients can reach.
func coordinatorOf(im *fsm.Image, id string) (fsm.Broker, bool) {
	b, ok := im.Broker(im.Slot(fsm.SlotOf(id)).Owner)
	return b, ok && !b.Fenced
}
