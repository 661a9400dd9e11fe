package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/integration/seeds"
)

// network is what lies between the nodes of a cluster: a proxy before each peer port. It
// can be cut between two nodes, one direction at a time. A cut loses nothing and refuses
// nothing: what is sent arrives after it has been healed, as TCP does it.
type network struct {
	t       *testing.T
	targets []string // of the nodes with ids 1, 2, …
	proxies []net.Listener
	running sync.WaitGroup

	mu      sync.Mutex
	cuts    map[[2]fsm.BrokerID]bool // from, to
	changed chan struct{}
	conns   map[net.Conn]bool
	closed  bool
}

// newPartitionable prepares n nodes that reach each other through a network only.
func newPartitionable(t *testing.T, n int) (*testCluster, *network) {
	t.Helper()
	w := &network{t: t, cuts: map[[2]fsm.BrokerID]bool{}, changed: make(chan struct{}), conns: map[net.Conn]bool{}}
	c := &testCluster{t: t}
	var join []string
	var listeners []net.Listener
	for range n {
		l, proxy := listen(t, anyPort(t)), listen(t, "127.0.0.1:0")
		listeners = append(listeners, l)
		w.targets = append(w.targets, l.Addr().String())
		w.proxies = append(w.proxies, proxy)
		join = append(join, proxy.Addr().String())
	}
	t.Cleanup(w.close)
	for i := range n {
		w.running.Go(func() { w.accept(fsm.BrokerID(i + 1)) })
		tn := newTestNode(t, listeners[i], join)
		tn.cfg.NodeID = fsm.BrokerID(i + 1)
		tn.cfg.Session, tn.cfg.Heartbeat = 1200*time.Millisecond, 100*time.Millisecond
		c.nodes = append(c.nodes, tn)
	}
	return c, w
}

func (w *network) close() {
	w.mu.Lock()
	w.closed = true
	for c := range w.conns {
		_ = c.Close()
	}
	close(w.changed)
	w.mu.Unlock()
	for _, p := range w.proxies {
		_ = p.Close()
	}
	w.running.Wait()
}

// set cuts (or heals) the way from one node to another.
func (w *network) set(from, to fsm.BrokerID, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cuts[[2]fsm.BrokerID{from, to}] = cut
	close(w.changed)
	w.changed = make(chan struct{})
}

// isolate cuts a node off from all others, both ways.
func (w *network) isolate(id fsm.BrokerID) {
	for i := range w.targets {
		if other := fsm.BrokerID(i + 1); other != id {
			w.set(id, other, true)
			w.set(other, id, true)
		}
	}
}

func (w *network) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.cuts)
	close(w.changed)
	w.changed = make(chan struct{})
}

// pass returns once something may go from one node to another; false when the network
// closes.
func (w *network) pass(from, to fsm.BrokerID) bool {
	for {
		w.mu.Lock()
		open, closed, changed := !w.cuts[[2]fsm.BrokerID{from, to}], w.closed, w.changed
		w.mu.Unlock()
		if open || closed {
			return !closed
		}
		<-changed
	}
}

func (w *network) track(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		_ = c.Close()
		return false
	}
	w.conns[c] = true
	return true
}

func (w *network) forget(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c)
}

func (w *network) accept(to fsm.BrokerID) {
	for {
		c, err := w.proxies[to-1].Accept()
		if err != nil {
			return
		}
		if w.track(c) {
			w.running.Go(func() { w.carry(c, to) })
		}
	}
}

// carry carries one connection. Who dials says its preface.
func (w *network) carry(c net.Conn, to fsm.BrokerID) {
	defer w.forget(c)
	defer c.Close() //nolint:errcheck // a test's connection
	var head bytes.Buffer
	p, err := readPreface(io.TeeReader(c, &head))
	if err != nil || !w.pass(p.NodeID, to) {
		return
	}
	d, err := net.Dial("tcp", w.targets[to-1])
	if err != nil || !w.track(d) {
		return
	}
	defer w.forget(d)
	defer d.Close() //nolint:errcheck // as above
	if _, err := d.Write(head.Bytes()); err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { w.pump(c, d, to, p.NodeID) })
	w.pump(d, c, p.NodeID, to)
	back.Wait()
}

// pump carries one direction of a connection, its end included.
func (w *network) pump(dst, src net.Conn, from, to fsm.BrokerID) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if !w.pass(from, to) {
			break
		}
		if _, writeErr := dst.Write(buf[:n]); writeErr != nil || err != nil {
			break
		}
	}
	_ = dst.Close()
	_ = src.Close()
}

func (tn *testNode) id() fsm.BrokerID { return tn.node.Identity().NodeID }

func (tn *testNode) valid() bool { return tn.node.Session().Valid(BootTime()) }

// fencedAt tells whether a node's Image shows a broker as fenced.
func (tn *testNode) fencedAt(id fsm.BrokerID) bool {
	b, ok := tn.node.Image().Broker(id)
	return ok && b.Fenced
}

// calm waits until every broker is unfenced everywhere and has a session, under one controller.
func (c *testCluster) calm() {
	c.t.Helper()
	eventually(c.t, "all brokers are back", func() bool {
		leaders := 0
		for _, tn := range c.nodes {
			if tn.node.IsLeader() {
				leaders++
			}
			if !tn.valid() {
				return false
			}
			for _, other := range c.nodes {
				if tn.fencedAt(other.id()) {
					return false
				}
			}
		}
		return leaders == 1
	})
}

func (c *testCluster) node(id fsm.BrokerID) *testNode { return c.nodes[id-1] }

// TestIsolatedNode cuts off the controller, then a node that is not: the others go on, it
// fences itself before they fence it, and all agree once the network is whole.
func TestIsolatedNode(t *testing.T) {
	for name, pick := range map[string]func(*testCluster) *testNode{
		"the controller": (*testCluster).leader, "another node": (*testCluster).follower,
	} {
		t.Run(name, func(t *testing.T) {
			c, w := newPartitionable(t, 3)
			c.openAll()
			c.registerAll()
			victim := pick(c)
			topic := c.leader().create("t", c.ids(victim)...)
			at := c.survivor(victim)
			eventually(t, "the topic everywhere", func() bool {
				return victim.partition(topic).Leader == victim.id() && at.partition(topic).Leader == victim.id()
			})
			w.isolate(victim.id())
			began := time.Now()
			eventually(t, "the broker that was cut off is fenced", func() bool {
				if !at.fencedAt(victim.id()) {
					return false
				}
				if victim.valid() {
					t.Errorf("broker %d is fenced and believes in its session", victim.id())
				}
				return true
			})
			awaitMove(t, at, topic, victim.id())
			t.Logf("another leader %v after the cut", time.Since(began))
			if err := propose(at); err != nil {
				t.Errorf("the majority can not commit: %v", err)
			}
			c.minorityStops(victim)
			if p := victim.partition(topic); p.Leader != victim.id() {
				t.Errorf("the node that was cut off knows of another leader: %+v", p)
			}
			w.heal()
			c.calm()
			if victim.node.IsLeader() {
				t.Error("the node that was cut off is the controller")
			}
			eventually(t, "the new leader is known everywhere", func() bool {
				p := victim.partition(topic)
				return p.Leader == at.partition(topic).Leader && p.Leader != victim.id()
			})
			if err := propose(victim); err != nil {
				t.Errorf("after the cut was healed: %v", err)
			}
			sameEverywhere(t, c)
		})
	}
}

// minorityStops checks that a node without a majority decides nothing.
func (c *testCluster) minorityStops(tn *testNode) {
	c.t.Helper()
	eventually(c.t, "the minority has no controller", func() bool { return !tn.node.IsLeader() })
	before := tn.node.Image().Index()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := tn.node.Propose(ctx, fsm.InitCluster{ClusterID: "x"}); !errors.Is(err, ErrNoController) && !errors.Is(err, ErrUnknown) {
		c.t.Errorf("a proposal of the minority: %v", err)
	}
	if now := tn.node.Image().Index(); now != before {
		c.t.Errorf("the minority's Image went from %d to %d", before, now)
	}
}

// TestOneWayCut lets a follower hear the controller and not the other way round, then the
// reverse. The follower's broker is fenced, fences itself first, and comes back.
func TestOneWayCut(t *testing.T) {
	c, w := newPartitionable(t, 3)
	c.openAll()
	c.registerAll()
	for _, hears := range []bool{true, false} {
		t.Run(fmt.Sprintf("hears %v", hears), func(t *testing.T) {
			leader, deaf := c.leader(), c.follower()
			if hears {
				w.set(deaf.id(), leader.id(), true)
			} else {
				w.set(leader.id(), deaf.id(), true)
			}
			at := c.node(6 - leader.id() - deaf.id())
			eventually(t, "the broker is fenced", func() bool {
				if !at.fencedAt(deaf.id()) {
					return false
				}
				if deaf.valid() {
					t.Errorf("broker %d is fenced and believes in its session", deaf.id())
				}
				return true
			})
			if err := propose(at); err != nil {
				t.Errorf("the others can not commit: %v", err)
			}
			w.heal()
			c.calm()
			sameEverywhere(t, c)
		})
	}
}

// partitionRounds is how many cuts TestRandomPartitions makes, one after the other.
const partitionRounds = 6

// TestRandomPartitions cuts the network at random while every node allocates producer ids.
// No id may be granted twice, none of what was granted may be lost, and at the end all nodes
// must have the same Raft log and the same Image.
func TestRandomPartitions(t *testing.T) {
	seed := uint64(seeds.For(t))
	rng := rand.New(rand.NewPCG(seed, 0))
	c, net := newPartitionable(t, 3)
	c.openAll()
	c.registerAll()
	w := newAllocators(c)
	for range partitionRounds {
		w.progress(t, 20)
		a := fsm.BrokerID(rng.IntN(3) + 1)
		b := a%3 + 1
		switch rng.IntN(3) {
		case 0:
			t.Logf("node %d is cut off", a)
			net.isolate(a)
		case 1:
			t.Logf("nodes %d and %d are cut off from each other", a, b)
			net.set(a, b, true)
			net.set(b, a, true)
		default:
			t.Logf("node %d does not reach node %d", a, b)
			net.set(a, b, true)
		}
		w.progress(t, int64(20+rng.IntN(200)))
		net.heal()
	}
	c.calm()
	w.stop()
	sameEverywhere(t, c)
	w.check(t, c.nodes[0].node.Image().NextProducerID())
}
