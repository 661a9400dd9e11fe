package broker

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// follows holds the feeds from all leader nodes. It is confined to the
// reconciler, and to the node's shutdown once that has ended.
type follows struct {
	env     *environment
	dialer  peerDialer
	buffers *buffers
	silence time.Duration
	log     hclog.Logger
	nodes   map[fsm.BrokerID]*follower
	leaders map[*Partition]fsm.BrokerID // which feed a partition is in
}

func newFollows(env *environment, dialer peerDialer, pool *buffers, silence time.Duration, log hclog.Logger) *follows {
	return &follows{
		env: env, dialer: dialer, buffers: pool, silence: silence, log: log,
		nodes: make(map[fsm.BrokerID]*follower), leaders: make(map[*Partition]fsm.BrokerID),
	}
}

// set makes p be fed by leader in the given epoch; with NoBroker by none.
func (fs *follows) set(p *Partition, leader fsm.BrokerID, epoch batch.Epoch) {
	if old, ok := fs.leaders[p]; ok && old != leader {
		fs.drop(p)
	}
	if leader == fsm.NoBroker {
		return
	}
	f := fs.nodes[leader]
	if f == nil {
		f = fs.open(leader)
	}
	fs.leaders[p] = leader
	p.fedBy(f)
	f.set(p, epoch)
}

// drop stops feeding p. A feed that has nothing left is closed.
func (fs *follows) drop(p *Partition) {
	leader, ok := fs.leaders[p]
	if !ok {
		return
	}
	delete(fs.leaders, p)
	p.fedBy(nil)
	f := fs.nodes[leader]
	if f.drop(p) {
		delete(fs.nodes, leader)
		f.cancel()
		<-f.done
	}
}

func (fs *follows) open(leader fsm.BrokerID) *follower {
	ctx, cancel := context.WithCancel(context.Background())
	f := &follower{
		leader: leader, env: fs.env, dialer: fs.dialer, buffers: fs.buffers, silence: fs.silence,
		log:  fs.log.With("leader", int(leader)),
		wake: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}),
		wanted: make(map[*Partition]batch.Epoch), troubles: make(map[*Partition]trouble),
	}
	fs.nodes[leader] = f
	go f.run(ctx)
	return f
}

// close ends all feeds and waits for their goroutines.
func (fs *follows) close() {
	for id, f := range fs.nodes {
		f.cancel()
		<-f.done
		delete(fs.nodes, id)
	}
	clear(fs.leaders)
}
