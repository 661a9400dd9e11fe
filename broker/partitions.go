package broker

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
)

// environment is what all partitions of a node share. Its fields are set before
// the first partition is made and do not change, but for hung.
type environment struct {
	self   fsm.BrokerID
	epoch  func() fsm.BrokerEpoch // this node's own; 0 before it has registered, and a new one when it had to register again
	image  func() *fsm.Image
	now    func() time.Time
	lagMax time.Duration
	// retention is what holds for topics that do not say.
	retention  RetentionConfig
	compaction CompactionConfig
	durability fsm.Durability
	log        hclog.Logger

	// fresh tells whether this node's session is surely alive.
	fresh func() bool
	// heardSince is how recently the whole ISR must have answered on the feed for a leader
	// without a session to go on.
	heardSince func() time.Time
	// heard is when the last question was sent that the member has answered on the feed.
	heard func(isr.Member) time.Time

	// bootTime is a clock that goes on while the machine sleeps; heard and heardSince are in it.
	bootTime func() time.Time
	// hung tells that calls of the disk do not return: whoever takes a partition's lock may
	// wait as long as they do.
	hung atomic.Bool
	// fail ends the node: its data folder can be used no more.
	fail func(error)
	// damaged reports that a replica's log lacks what it had acknowledged.
	damaged func(*Partition)

	metrics  *replicaMetrics
	live     isr.Live
	replicas *Partitions
	ticks    *ticks
	changes  *changes
	waiters  waiterPool
}

// reachable is a replica as far as clients are concerned: while the disk hangs there is
// none here, since whoever asks one for anything may wait for the disk.
func (e *environment) reachable(tp fsm.TopicPartition) *Partition {
	if e.hung.Load() {
		return nil
	}
	return e.replicas.Get(tp)
}

func (e *environment) member() isr.Member { return isr.Member{ID: e.self, Epoch: e.epoch()} }

// liveIn is isr.Live over the present Image.
func liveIn(image func() *fsm.Image) isr.Live {
	return func(id fsm.BrokerID) (fsm.BrokerEpoch, bool) {
		b, ok := image().Broker(id)
		return b.Epoch, ok && b.Eligible()
	}
}

// Partitions is the set of replicas that this node hosts.
type Partitions struct {
	mu   sync.RWMutex // leaf; guards byTP
	byTP map[fsm.TopicPartition]*Partition
}

func newPartitions() *Partitions {
	return &Partitions{byTP: make(map[fsm.TopicPartition]*Partition)}
}

// Get returns the replica, or nil when this node hosts none.
func (ps *Partitions) Get(tp fsm.TopicPartition) *Partition {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	return ps.byTP[tp]
}

// Len is the number of replicas.
func (ps *Partitions) Len() int {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	return len(ps.byTP)
}

// All returns the replicas in no particular order.
func (ps *Partitions) All() []*Partition {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	all := make([]*Partition, 0, len(ps.byTP))
	for _, p := range ps.byTP {
		all = append(all, p)
	}
	return all
}

func (ps *Partitions) put(p *Partition) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.byTP[p.tp] = p
}

func (ps *Partitions) remove(tp fsm.TopicPartition) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	delete(ps.byTP, tp)
}
