package broker

import (
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
)

// feeders holds the feeds to all follower nodes, at most one to each.
type feeders struct {
	env     *environment
	ping    time.Duration
	silence time.Duration
	log     hclog.Logger

	// turn is held from a connection's entry until the one that it replaces is
	// closed: a third one could otherwise count frames beside the first. It comes
	// before feeder.mu.
	turn sync.Mutex

	mu    sync.RWMutex // leaf; guards nodes
	nodes map[fsm.BrokerID]*feeder
}

func newFeeders(env *environment, ping, silence time.Duration, log hclog.Logger) *feeders {
	return &feeders{env: env, ping: ping, silence: silence, log: log, nodes: make(map[fsm.BrokerID]*feeder)}
}

// serve runs one feed connection from its preface to its end. A new connection
// of a node closes its older one before any frame of the new one counts.
func (fs *feeders) serve(hello controller.Preface, c net.Conn) {
	defer c.Close() //nolint:errcheck // the connection is over
	m := isr.Member{ID: hello.NodeID, Epoch: hello.BrokerEpoch}
	log := fs.log.With("follower", int(m.ID))
	if b, ok := fs.env.image().Broker(m.ID); !ok || b.Epoch > m.Epoch {
		log.Debug("feed of an unknown or earlier incarnation closed", "epoch", int64(m.Epoch))
		return
	}
	f := newFeeder(m, c, fs.env, fs.ping, fs.silence, log)
	if !fs.replace(f) {
		return
	}
	err := f.serve()
	fs.leave(f)
	log.Debug("feed ended", "error", err)
}

// replace registers f and closes the feeder that it replaces. It fails when a newer
// incarnation of the node is connected.
func (fs *feeders) replace(f *feeder) bool {
	fs.turn.Lock()
	defer fs.turn.Unlock()
	old, ok := fs.enter(f)
	if old != nil {
		old.shut()
	}
	return ok
}

// enter registers f and returns the feeder it replaces.
func (fs *feeders) enter(f *feeder) (old *feeder, ok bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	old = fs.nodes[f.peer.ID]
	if old != nil && old.peer.Epoch > f.peer.Epoch {
		return nil, false
	}
	fs.nodes[f.peer.ID] = f
	return old, true
}

func (fs *feeders) leave(f *feeder) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.nodes[f.peer.ID] == f {
		delete(fs.nodes, f.peer.ID)
	}
}

// expire cuts off the feeds of incarnations that are over: the node has
// registered again and dials anew under its present epoch.
func (fs *feeders) expire(im *fsm.Image, ids []fsm.BrokerID) {
	for _, id := range ids {
		fs.mu.RLock()
		f := fs.nodes[id]
		fs.mu.RUnlock()
		if b, ok := im.Broker(id); ok && f != nil && b.Epoch > f.peer.Epoch {
			f.shut()
		}
	}
}

// heard is when the last question was sent that the member has answered, on the
// clock of environment.bootTime; zero when none was.
func (fs *feeders) heard(m isr.Member) time.Time {
	fs.mu.RLock()
	defer fs.mu.RUnlock()
	f := fs.nodes[m.ID]
	if f == nil || f.peer != m {
		return time.Time{}
	}
	if ns := f.heard.Load(); ns != 0 {
		return time.Unix(0, ns)
	}
	return time.Time{}
}
