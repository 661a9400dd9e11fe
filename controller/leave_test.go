package controller

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

func (tn *testNode) removeNode(id fsm.BrokerID) Outcome {
	tn.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	r, err := tn.node.RemoveNode(ctx, id)
	if err != nil {
		tn.t.Fatalf("remove node %d: %v", id, err)
	}
	return r
}

// refusedRemoval expects that a node can not leave.
func (tn *testNode) refusedRemoval(id fsm.BrokerID, code wire.Code, say string) {
	tn.t.Helper()
	if r := tn.removeNode(id); r.Err != code || !strings.Contains(r.Msg, say) {
		tn.t.Errorf("remove node %d: %+v, want %v ...%s...", id, r, code, say)
	}
}

// endsRemoved expects the process of a node to end since it was removed.
func (tn *testNode) endsRemoved() {
	tn.t.Helper()
	if err := <-tn.exited; !strings.Contains(err.Error(), "was removed from cluster") || !strings.Contains(err.Error(), "start a node with an empty data folder") {
		tn.t.Errorf("the removed node ends with %v", err)
	}
}

// TestNodesLeave: a node leaves once it hosts nothing and does not vote. Its process ends, and so
// do those that are started in its folder; the next node gets another id.
func TestNodesLeave(t *testing.T) {
	c := votingCluster(t, 3, 2)
	asked, fourth, fifth := c.follower(), c.nodes[3], c.nodes[4]
	topic := asked.create("t", 4)
	asked.refusedRemoval(4, wire.InvalidRequest, "hosts 1 replicas: move them to other nodes first")
	asked.refusedRemoval(2, wire.InvalidRequest, "node 2 votes: take its vote first")
	asked.refusedRemoval(9, wire.BrokerIDNotRegistered, "node 9 is not in this cluster")
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if res, err := asked.node.DeleteTopics(ctx, []fsm.TopicID{topic}); err != nil || res[0].Err != wire.None {
		t.Fatal(res, err)
	}
	asked.removeVoterless(4)
	fourth.endsRemoved()
	im := c.leader().node.Image()
	if _, registered := im.Broker(4); registered || !im.Removed(4, fourth.identity.Folder) {
		t.Error("the metadata still has node 4")
	}
	if _, others := c.leader().suffrages(); !slices.Equal(others, []fsm.BrokerID{5}) {
		t.Errorf("without a vote are %v", others)
	}
	for tombstone := range c.leader().node.Image().Tombstones() {
		t.Errorf("somebody waits for the node that left: %+v", tombstone)
	}
	asked.refusedRemoval(4, wire.BrokerIDNotRegistered, "has been removed from this cluster already")
	fourth.crash()
	fourth.failsToOpen("node 4 was removed from cluster")

	fifth.crash() // it leaves while it is down
	asked.removeVoterless(5)
	fifth.failsToOpen("node 5 was removed from cluster")

	rep, err := asked.node.call(ctx, &joinRequest{clusterID: asked.node.id.ClusterID, folder: fourth.identity.Folder})
	if err != nil || !strings.Contains(rep.(*joinReply).why, "node 4 was removed") {
		t.Errorf("the folder of node 4 is admitted again: %+v, %v", rep, err)
	}
	next := c.join(asked.addr)
	next.mustOpen()
	if id := next.node.Identity().NodeID; id != 6 {
		t.Errorf("after nodes 4 and 5 left comes node %d", id)
	}
}

func (tn *testNode) removeVoterless(id fsm.BrokerID) {
	tn.t.Helper()
	if r := tn.removeNode(id); r.Err != wire.None {
		tn.t.Fatalf("remove node %d: %+v", id, r)
	}
}

// TestRemovalIsFinished: the controller ends between the two halves of a removal; the next one
// does the other.
func TestRemovalIsFinished(t *testing.T) {
	c := votingCluster(t, 3, 1)
	fourth := c.nodes[3]
	id := fourth.node.Identity()
	b, _ := c.leader().node.Image().Broker(4)
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if r, err := c.leader().node.Propose(ctx, fsm.RemoveNode{ID: 4, Folder: id.Folder, Epoch: b.Epoch}); err != nil || r.Err != nil {
		t.Fatal(r, err)
	}
	fourth.endsRemoved()
	if _, others := c.leader().suffrages(); len(others) != 1 {
		t.Fatalf("without a vote are %v", others)
	}
	c.leader().crash()
	eventually(t, "the next controller removes the server", func() bool {
		_, others := c.leader().suffrages()
		return len(others) == 0
	})
}

// TestForgottenFollowerHoldsNothingUp: what is to be sent to a follower that is away waits; to one
// that was removed it does not.
func TestForgottenFollowerHoldsNothingUp(t *testing.T) {
	lead := newLeadership()
	lead.update(func(t *tenure) { t.leading = true })
	r := newReach(lead, make(chan struct{}))
	r.heard("x", context.Canceled)
	waited := make(chan struct{})
	go func() {
		r.await("x")
		close(waited)
	}()
	r.forget("x")
	<-waited
	r.heard("x", context.Canceled)
	r.await("x")
}
