package controller

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/fsm"
)

// join prepares a node that is to join, without opening it.
func (c *testCluster) join(list ...string) *testNode {
	c.t.Helper()
	tn := newTestNode(c.t, listen(c.t, anyPort(c.t)), list)
	c.nodes = append(c.nodes, tn)
	return tn
}

func (c *testCluster) addrs() []string {
	var out []string
	for _, tn := range c.nodes {
		out = append(out, tn.addr)
	}
	return out
}

func (tn *testNode) mustOpen() {
	tn.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := tn.open(ctx); err != nil {
		tn.t.Fatalf("open %s: %v", tn.addr, err)
	}
}

// failsToOpen expects that a node ends with a sentence.
func (tn *testNode) failsToOpen(say string) {
	tn.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := tn.open(ctx); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), say) {
		tn.t.Fatalf("open gives %v, want ...%s...", err, say)
	}
}

// wipe empties the folder of a closed node.
func (tn *testNode) wipe() {
	tn.cfg.RaftDir, tn.identity = tn.t.TempDir(), nil
}

// suffrages are the node ids by their votes, as a node knows them.
func (tn *testNode) suffrages() (voters, others []fsm.BrokerID) {
	for _, s := range tn.node.servers() {
		id, _, _ := parseServerID(s.ID)
		if s.Suffrage == raft.Voter {
			voters = append(voters, id)
		} else {
			others = append(others, id)
		}
	}
	slices.Sort(voters)
	slices.Sort(others)
	return voters, others
}

// TestNodesJoin has nodes join a cluster that works: one that nobody lists and one that is in its
// own list beside a node that is down. They serve, they see what is decided, and they are the
// same after a restart without their list.
func TestNodesJoin(t *testing.T) {
	c := newCluster(t, 3)
	c.openAll()
	c.registerAll()
	topic := c.leader().create("t", 1, 2, 3)
	fourth := c.join(c.addrs()...)
	fourth.mustOpen()
	fourth.register()
	down := anyPort(t)
	fifth := c.join()
	fifth.cfg.Join = []string{fifth.addr, down, c.nodes[1].addr}
	fifth.mustOpen()
	fifth.register()
	for i, tn := range []*testNode{fourth, fifth} {
		if id := tn.node.Identity(); id.NodeID != fsm.BrokerID(4+i) || id.ClusterID != c.nodes[0].node.Identity().ClusterID {
			t.Errorf("the node that joined is %+v", id)
		}
		if got := tn.partition(topic); len(got.Replicas) != 3 {
			t.Errorf("node %d does not know what was there before it: %+v", 4+i, got)
		}
	}
	voters, others := c.leader().suffrages()
	if !slices.Equal(voters, []fsm.BrokerID{1, 2, 3}) || !slices.Equal(others, []fsm.BrokerID{4, 5}) {
		t.Errorf("voters %v, others %v", voters, others)
	}
	if q, err := fifth.node.Quorum(context.Background()); err != nil || len(q.Voters) != 3 || len(q.Observers) != 2 {
		t.Errorf("the quorum is %+v, %v", q, err)
	}
	was := fourth.node.Identity()
	fourth.crash()
	fourth.cfg.Join = nil
	fourth.mustOpen()
	fourth.register()
	if id := fourth.node.Identity(); id != was {
		t.Errorf("after a restart it is %+v, was %+v", id, was)
	}
	c.leader().create("u", 4, 5)
	if rf := c.leader().node.term.Load().defaultRF(); rf != 3 {
		t.Errorf("the default replication factor is %d", rf)
	}
}

// TestNodesJoinASoleNode: a cluster of one grows; its only voter still leads at once after a restart.
func TestNodesJoinASoleNode(t *testing.T) {
	c := newCluster(t, 1)
	c.openAll()
	c.registerAll()
	for range 2 {
		tn := c.join(c.nodes[0].addr)
		tn.mustOpen()
		tn.register()
	}
	if rf := c.leader().node.term.Load().defaultRF(); rf != 3 {
		t.Errorf("the default replication factor is %d", rf)
	}
	c.nodes[0].crash()
	c.nodes[0].cfg.ElectionTimeout = testTimeout
	c.nodes[0].mustOpen()
	c.nodes[0].register()
}

// TestJoinsAtOnce has many nodes join at the same time through different nodes.
func TestJoinsAtOnce(t *testing.T) {
	c := newCluster(t, 3)
	c.openAll()
	first := c.addrs()
	var joiners []*testNode
	for i := range 5 {
		joiners = append(joiners, c.join(first[i%3]))
	}
	var wg sync.WaitGroup
	errs := make([]error, len(joiners))
	for i, tn := range joiners {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
			defer cancel()
			errs[i] = tn.open(ctx)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	var ids []fsm.BrokerID
	for _, tn := range joiners {
		ids = append(ids, tn.node.Identity().NodeID)
	}
	slices.Sort(ids)
	if !slices.Equal(ids, []fsm.BrokerID{4, 5, 6, 7, 8}) {
		t.Fatalf("five nodes at once became %v", ids)
	}
	for _, tn := range joiners {
		tn.register()
	}
}

// TestJoinGoesOnAfterACrash stops a node that joins, or the controller, between any two steps.
func TestJoinGoesOnAfterACrash(t *testing.T) {
	c := newCluster(t, 3)
	c.openAll()
	crash := errors.New("the process ends here")
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()

	admitted := c.join(c.addrs()...) // it was admitted, and never heard of it
	folder := admitted.folder()
	request := &joinRequest{clusterID: c.nodes[0].node.Identity().ClusterID, folder: folder, peer: fsm.Endpoint{Host: "127.0.0.1", Port: 1}}
	for range 2 {
		if rep, err := c.follower().node.call(ctx, request); err != nil || rep.(*joinReply).id != 4 {
			t.Fatalf("admitted as %+v, %v", rep, err)
		}
	}
	admitted.mustOpen()

	numbered := c.join(c.nodes[0].addr) // the controller crashed between the id and Raft's configuration
	if r, err := c.leader().node.Propose(ctx, fsm.AdmitNode{ID: 5, Folder: numbered.folder()}); err != nil || r.Err != nil {
		t.Fatal(r, err)
	}
	numbered.mustOpen()

	nameless := c.join(c.nodes[0].addr) // it crashed before its identity was kept
	save := nameless.cfg.SaveIdentity
	nameless.cfg.SaveIdentity = func(Identity) error { return crash }
	if err := nameless.open(ctx); !errors.Is(err, crash) {
		t.Fatal(err)
	}
	nameless.cfg.SaveIdentity = save
	nameless.cfg.Join = []string{anyPort(t)} // it needs nobody to know who it is
	nameless.mustOpen()

	blank := c.join(c.nodes[0].addr) // it crashed before its Raft started
	blank.cfg.SaveIdentity = func(id Identity) error {
		return errors.Join(save(id), func() error { blank.identity = &id; return crash }())
	}
	if err := blank.open(ctx); !errors.Is(err, crash) {
		t.Fatal(err)
	}
	blank.mustOpen()

	for i, tn := range []*testNode{admitted, numbered, nameless, blank} {
		tn.register()
		if id := tn.node.Identity().NodeID; id != fsm.BrokerID(4+i) {
			t.Errorf("node %d became node %d", 4+i, id)
		}
	}
	if _, others := c.leader().suffrages(); !slices.Equal(others, []fsm.BrokerID{4, 5, 6, 7}) {
		t.Errorf("without a vote are %v", others)
	}
}

// folder is the folder of a node that has not been opened.
func (tn *testNode) folder() [16]byte {
	tn.t.Helper()
	s, err := openStore(tn.cfg.LogFS, tn.cfg.RaftDir, func(error) {})
	if err != nil {
		tn.t.Fatal(err)
	}
	defer func() { _ = s.close() }()
	folder, err := (&Node{store: s}).ownFolder()
	if err != nil {
		tn.t.Fatal(err)
	}
	return folder
}

// TestJoinsThroughLeaderCrashes: the controller ends again and again while nodes join.
func TestJoinsThroughLeaderCrashes(t *testing.T) {
	c := newCluster(t, 3)
	c.openAll()
	first := c.addrs()
	joined := make(chan error)
	var joiners []*testNode
	for range 3 {
		joiners = append(joiners, c.join(first...))
	}
	go func() {
		var errs []error
		for _, tn := range joiners {
			ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
			errs = append(errs, tn.open(ctx))
			cancel()
		}
		joined <- errors.Join(errs...)
	}()
	first3 := &testCluster{t: t, nodes: c.nodes[:3]}
	for going := true; going; {
		victim := first3.leader()
		victim.crash()
		victim.mustOpen()
		select {
		case err := <-joined:
			if err != nil {
				t.Fatal(err)
			}
			going = false
		case <-time.After(20 * time.Millisecond):
		}
	}
	seen := map[fsm.BrokerID]bool{}
	for _, tn := range joiners {
		tn.register()
		id := tn.node.Identity().NodeID
		if id < 4 || seen[id] {
			t.Errorf("a node that joined is node %d", id)
		}
		seen[id] = true
	}
}

func TestJoinRefusals(t *testing.T) {
	c := newCluster(t, 3)
	c.openAll()
	taken := c.join(c.addrs()...)
	taken.cfg.NodeID = 2
	taken.failsToOpen("already has node 2, with another data folder")
	wanted := c.join(c.nodes[0].addr)
	wanted.cfg.NodeID = 9
	wanted.mustOpen()
	next := c.join(c.nodes[0].addr)
	next.cfg.NodeID = 9
	next.failsToOpen("node id 9 is, or was, that of another data folder, and ids do not come back: start this node without --node-id, or with one that was never used (the next is 10)")
	next.cfg.NodeID = 0
	next.mustOpen()
	if id := next.node.Identity().NodeID; id != 10 {
		t.Errorf("after node 9 comes node %d", id)
	}
	between := c.join(c.nodes[0].addr)
	between.cfg.NodeID = 5
	between.mustOpen()

	// A folder keeps its id, whatever it wants later; a node of another cluster gets none.
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	rep, err := c.leader().node.call(ctx, &joinRequest{clusterID: c.nodes[0].node.Identity().ClusterID, folder: next.node.Identity().Folder, wanted: 11})
	if err != nil || !strings.Contains(rep.(*joinReply).why, "that of node 10, not of node 11") {
		t.Errorf("another id for the folder: %+v, %v", rep, err)
	}
	_, err = dialPeer(ctx, c.nodes[0].addr, Preface{Kind: KindJoin, ClusterID: "other", Folder: [16]byte{1}}, func(answer) error { return nil })
	if r := (*RefusedError)(nil); !errors.As(err, &r) || r.Code != RefusedCluster {
		t.Errorf("a node that means another cluster: %v", err)
	}
	_, err = dialPeer(ctx, c.nodes[0].addr, Preface{Kind: KindFeed, ClusterID: next.node.id.ClusterID, NodeID: 10, Folder: [16]byte{1}}, func(answer) error { return nil })
	if r := (*RefusedError)(nil); !errors.As(err, &r) || r.Code != RefusedNode {
		t.Errorf("another folder under the id of a node: %v", err)
	}
}

// TestJoinerOnAllInterfaces: a node that nobody lists and that listens everywhere is known by
// the address that it goes out from.
func TestJoinerOnAllInterfaces(t *testing.T) {
	c := newCluster(t, 1)
	c.openAll()
	tn := newTestNode(t, listen(t, "0.0.0.0:0"), []string{c.nodes[0].addr})
	tn.mustOpen()
	_, port, err := net.SplitHostPort(tn.addr)
	if err != nil {
		t.Fatal(err)
	}
	if at := endpointAddr(tn.node.Advertised()); at != net.JoinHostPort("127.0.0.1", port) {
		t.Errorf("it is at %s", at)
	}
	c.nodes = append(c.nodes, tn)
}

// TestChangesAreGuarded: a change of Raft's configuration that was decided on an older one is
// refused, which needs the index that the library does not tell.
func TestChangesAreGuarded(t *testing.T) {
	c := newCluster(t, 1)
	c.openAll()
	n := c.leader().node
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	before, err := n.configurationIndex(ctx, n.raft)
	if err != nil || before == 0 {
		t.Fatalf("the index is %d, %v", before, err)
	}
	first, second := serverID(2, [16]byte{2}), serverID(3, [16]byte{3})
	if err := n.changeServers(ctx, "add", func([]raft.Server) (serverChange, error) { return addNonvoter(first), nil }); err != nil {
		t.Fatal(err)
	}
	if after, err := n.configurationIndex(ctx, n.raft); err != nil || after <= before {
		t.Errorf("the index is %d, was %d, %v", after, before, err)
	}
	between := func([]raft.Server) (serverChange, error) {
		if err := addNonvoter(serverID(4, [16]byte{4}))(n.raft, 0).Error(); err != nil {
			t.Error(err)
		}
		return addNonvoter(second), nil
	}
	if err := n.changeServers(ctx, "add", between); err == nil {
		t.Error("a change that was decided on an older configuration was made")
	}
	if _, ok := findServer(n.servers(), second); ok || len(n.servers()) != 3 {
		t.Errorf("servers %v", n.servers())
	}
}
