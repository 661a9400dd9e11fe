package controller

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/fsm"
)

// patientCluster is a cluster whose voters wait long for a silent leader, and longer than
// they should need to.
func patientCluster(t *testing.T, n int) *testCluster {
	c := newCluster(t, n)
	longSession(c)
	for _, tn := range c.nodes {
		tn.cfg.ElectionTimeout = 3 * time.Second
	}
	c.openAll()
	c.registerAll()
	return c
}

// candidacies counts the requests for votes of nodes that stand without a pre-vote.
func (c *testCluster) candidacies() *atomic.Int64 {
	n := new(atomic.Int64)
	for _, tn := range c.nodes {
		if tn.node == nil {
			continue
		}
		tn.node.raft.RegisterObserver(raft.NewObserver(nil, false, func(o *raft.Observation) bool {
			if r, ok := o.Data.(raft.RequestVoteRequest); ok && r.LeadershipTransfer {
				n.Add(1)
			}
			return false
		}))
	}
	return n
}

// TestDeadControllerIsSucceeded crashes controllers: the others stand for election since its
// port refuses them. Where two follow each other nobody has a connection to the second yet.
func TestDeadControllerIsSucceeded(t *testing.T) {
	for _, size := range []int{3, 5} {
		c := patientCluster(t, size)
		for range size / 2 {
			victim := c.leader()
			at := c.survivor(victim)
			ids := c.ids(victim)
			topic := victim.create(string(rune('a'+ids[0])), ids...)
			eventually(t, "the topic everywhere", func() bool { return at.partition(topic).Leader == ids[0] })
			asked := c.candidacies()
			victim.crash()
			awaitMove(t, at, topic, ids[0])
			if asked.Load() == 0 {
				t.Errorf("%d nodes: the successor of %d was elected since it was silent", size, ids[0])
			}
		}
	}
}

// believes has a node find another one at an address where nothing listens.
func (tn *testNode) believes(id raft.ServerID, addr string) {
	tn.node.mu.Lock()
	defer tn.node.mu.Unlock()
	tn.node.routes[id] = addr
}

// lookInto runs succeed once it is not running for something else.
func (tn *testNode) lookInto(id raft.ServerID) {
	eventually(tn.t, "an end to an earlier look", func() bool { return !tn.node.succeeding.Load() })
	tn.node.succeed(id)
}

// TestLivingControllerIsLeftAlone has followers look into the end of a controller that goes
// on: while it can be dialled, and while a minority alone is refused, there is no election.
func TestLivingControllerIsLeftAlone(t *testing.T) {
	c := patientCluster(t, 3)
	leader, follower := c.leader(), c.follower()
	id := serverID(leader.identity.NodeID, leader.identity.Folder)
	term := leader.node.raft.CurrentTerm()
	same := func(what string) {
		t.Helper()
		if now := follower.node.raft.CurrentTerm(); now != term || !leader.node.IsLeader() {
			t.Errorf("%s: the term was %d and is %d", what, term, now)
		}
	}
	follower.node.control.drop(id)
	follower.lookInto(id)
	same("its connection closed")
	nowhere := anyPort(t)
	follower.believes(id, nowhere)
	follower.lookInto(id)
	same("one of three is refused")
	other := c.other(leader, follower)
	if got := other.node.answerGone(other.node.ctx, &goneRequest{leader: string(id)}); got.gone {
		t.Error("a voter takes a controller for gone that it can dial")
	}
	stranger := serverID(9, [16]byte{9})
	follower.believes(stranger, nowhere)
	follower.lookInto(stranger)
	same("another node is gone")
	other.believes(stranger, nowhere)
	if got := other.node.answerGone(other.node.ctx, &goneRequest{leader: string(stranger)}); got.gone {
		t.Error("a voter says that nobody leads although it has a controller")
	}
	leader.lookInto(id)
	same("a controller looks into its own end")
	other.crash()
	follower.lookInto(id)
	same("there is nobody to ask")
}

// TestUnreachableControllerIsSucceeded: one that refuses a majority of the voters serves
// nobody, although its own heartbeats arrive.
func TestUnreachableControllerIsSucceeded(t *testing.T) {
	c := patientCluster(t, 3)
	leader, follower := c.leader(), c.follower()
	other := c.other(leader, follower)
	id := serverID(leader.identity.NodeID, leader.identity.Folder)
	term := leader.node.raft.CurrentTerm()
	nowhere := anyPort(t)
	follower.believes(id, nowhere)
	other.believes(id, nowhere)
	follower.lookInto(id)
	eventually(t, "another controller", func() bool { return follower.node.IsLeader() && !leader.node.IsLeader() })
	if now := follower.node.raft.CurrentTerm(); now != term+1 {
		t.Errorf("the term was %d and is %d, want one more", term, now)
	}
}

// other is a node besides two others.
func (c *testCluster) other(a, b *testNode) *testNode {
	for _, tn := range c.nodes {
		if tn != a && tn != b {
			return tn
		}
	}
	return nil
}

// TestRankOfVoters: the voters that are left stand in the order of their ids.
func TestRankOfVoters(t *testing.T) {
	c := patientCluster(t, 3)
	leader := c.leader()
	id := serverID(leader.identity.NodeID, leader.identity.Folder)
	if _, ok := leader.node.rank(id); ok {
		t.Error("a node succeeds itself")
	}
	last := fsm.BrokerID(0)
	for want := range 2 {
		for _, tn := range c.nodes {
			if got, ok := tn.node.rank(id); ok && got == want {
				if tn.identity.NodeID <= last {
					t.Errorf("node %d has rank %d after node %d", tn.identity.NodeID, got, last)
				}
				last = tn.identity.NodeID
			}
		}
	}
}
