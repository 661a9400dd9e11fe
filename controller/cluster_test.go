package controller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/integration/loopback"
	"github.com/weirmq/weir/storage/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout bounds every wait of a test; it is far above what any should take.
const testTimeout = 2 * time.Minute

// testNode is one node of a cluster in this process.
type testNode struct {
	t      *testing.T
	cfg    Config
	addr   string
	node   *Node
	exited chan error

	mu       sync.Mutex
	identity *Identity
}

// testCluster is several nodes that share a join list.
type testCluster struct {
	t     *testing.T
	nodes []*testNode
}

// newCluster prepares n nodes on loopback ports without opening them.
func newCluster(t *testing.T, n int) *testCluster {
	t.Helper()
	c := &testCluster{t: t}
	var join []string
	var listeners []net.Listener
	for range n {
		l := listen(t, anyPort(t))
		listeners = append(listeners, l)
		join = append(join, l.Addr().String())
	}
	if n == 1 {
		join = nil
	}
	for i := range n {
		c.nodes = append(c.nodes, newTestNode(t, listeners[i], join))
	}
	return c
}

func newTestNode(t *testing.T, l net.Listener, join []string) *testNode {
	tn := &testNode{t: t, addr: l.Addr().String(), exited: make(chan error, 1)}
	cfg := DefaultConfig()
	cfg.Listener, cfg.Join, cfg.RaftDir = l, join, t.TempDir()
	cfg.LogFS = &fullFS{FS: vfs.OS()}
	cfg.CallTimeout = testTimeout
	// The race detector and a busy machine make Raft's own defaults too tight for tests that
	// assert that nothing fails over by itself.
	cfg.ElectionTimeout = 600 * time.Millisecond
	cfg.Logger = testLogger(t, tn.addr)
	cfg.Exit = func(err error) {
		select {
		case tn.exited <- err:
		default:
		}
	}
	cfg.SaveIdentity = func(id Identity) error {
		tn.mu.Lock()
		defer tn.mu.Unlock()
		tn.identity = &id
		return nil
	}
	tn.cfg = cfg
	t.Cleanup(tn.close)
	return tn
}

// testLogger shows logs when WEIR_TEST_LOG is set: they would drown a failure otherwise.
func testLogger(t *testing.T, name string) hclog.Logger {
	if os.Getenv("WEIR_TEST_LOG") == "" {
		return hclog.NewNullLogger()
	}
	return hclog.New(&hclog.LoggerOptions{Name: name, Level: hclog.Debug, Output: os.Stderr})
}

// anyPort is an address that a node can have again after it was down.
func anyPort(t *testing.T) string {
	t.Helper()
	addrs, err := loopback.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	return addrs[0]
}

func listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("listen on %s: %v", addr, err)
	}
	return l
}

func (tn *testNode) open(ctx context.Context) error {
	tn.mu.Lock()
	tn.cfg.Identity = tn.identity
	tn.mu.Unlock()
	if tn.cfg.Listener == nil {
		tn.cfg.Listener = listen(tn.t, tn.addr)
	}
	n, err := Open(ctx, tn.cfg)
	tn.cfg.Listener = nil
	if err == nil {
		tn.node = n
	}
	return err
}

func (tn *testNode) close() {
	if tn.node != nil {
		if err := tn.node.Close(); err != nil {
			tn.t.Errorf("close node %s: %v", tn.addr, err)
		}
		tn.node = nil
	}
	if tn.cfg.Listener != nil {
		_ = tn.cfg.Listener.Close()
		tn.cfg.Listener = nil
	}
}

// crash ends a node without handing anything over.
func (tn *testNode) crash() {
	tn.t.Helper()
	tn.node.closing.Do(func() { tn.node.closeErr = tn.node.stop() })
	tn.close()
}

// openAll opens the nodes at the same time.
func (c *testCluster) openAll() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	errs := make([]error, len(c.nodes))
	var wg sync.WaitGroup
	for i, tn := range c.nodes {
		wg.Go(func() { errs[i] = tn.open(ctx) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		c.t.Fatalf("open the cluster: %v", err)
	}
}

// leader waits for a node that is the controller, among those that are open.
func (c *testCluster) leader() *testNode {
	c.t.Helper()
	var found *testNode
	eventually(c.t, "a controller", func() bool {
		for _, tn := range c.nodes {
			if tn.node != nil && tn.node.IsLeader() {
				found = tn
				return true
			}
		}
		return false
	})
	return found
}

// follower returns an open node that is not the controller.
func (c *testCluster) follower() *testNode {
	c.t.Helper()
	leader := c.leader()
	for _, tn := range c.nodes {
		if tn.node != nil && tn != leader {
			return tn
		}
	}
	c.t.Fatal("no follower is open")
	return nil
}

// register registers a node's broker, starts its session and waits until it is unfenced.
func (tn *testNode) register() fsm.BrokerEpoch {
	tn.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	epoch, err := tn.node.Register(ctx, Registration{Client: fsm.Endpoint{Host: "127.0.0.1", Port: 9092}, BootID: "boot"})
	if err != nil {
		tn.t.Fatalf("register %s: %v", tn.addr, err)
	}
	tn.node.StartSession().WantUnfenced(true)
	id := tn.node.Identity().NodeID
	eventually(tn.t, fmt.Sprintf("broker %d unfenced", id), func() bool {
		b, ok := tn.node.Image().Broker(id)
		return ok && b.Epoch >= epoch && !b.Fenced
	})
	return epoch
}

func (c *testCluster) registerAll() {
	c.t.Helper()
	for _, tn := range c.nodes {
		tn.register()
	}
}

// create creates a topic of one partition on the given replicas, and returns its id.
func (tn *testNode) create(name string, replicas ...fsm.BrokerID) fsm.TopicID {
	tn.t.Helper()
	nt := NewTopic{Name: name, Partitions: -1, RF: -1, Assignment: [][]fsm.BrokerID{replicas}}
	res, err := tn.node.CreateTopics(context.Background(), []NewTopic{nt})
	if err != nil || res[0].Err != 0 {
		tn.t.Fatalf("create topic %s: %v %+v", name, err, res)
	}
	return res[0].ID
}

func (tn *testNode) partition(id fsm.TopicID) fsm.Partition {
	p, _ := tn.node.Image().Partition(fsm.TopicPartition{Topic: id})
	return p
}

// eventually polls a condition that no channel announces.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(testTimeout)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not in %v", what, testTimeout)
		}
	}
}
