package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/fsm"
)

func (tn *testNode) boltLog() *boltLog { return tn.node.store.db.(*boltLog) }

// TestFullDiskMovesTheController: a controller without room for an entry is succeeded by a node
// with room, follows, and catches up when it has room again. With no room anywhere nothing is
// decided, and all of it goes on when there is.
func TestFullDiskMovesTheController(t *testing.T) {
	c := newCluster(t, 3)
	c.openAll()
	c.registerAll()
	first := c.leader()
	other := c.survivor(first)
	fillDisk(first.boltLog())
	if err := propose(other); err != nil {
		t.Fatalf("with room on two of three nodes: %v", err)
	}
	if first.node.IsLeader() || c.leader() == first {
		t.Error("a node without room is the controller")
	}
	id := serverID(other.node.Identity().NodeID, other.node.Identity().Folder)
	pre := first.node.transport.RequestPreVote(id, raft.ServerAddress(id), &raft.RequestPreVoteRequest{}, &raft.RequestPreVoteResponse{})
	vote := first.node.transport.RequestVote(id, raft.ServerAddress(id), &raft.RequestVoteRequest{}, &raft.RequestVoteResponse{})
	if !errors.Is(pre, errNoRoom) || !errors.Is(vote, errNoRoom) {
		t.Errorf("a node without room asks for votes: %v, %v", pre, vote)
	}
	clearDisk(first.boltLog())
	eventually(t, "the node that has room again catches up", func() bool { return first.node.Image().Index() >= other.node.Image().Index() })
	for _, tn := range c.nodes {
		fillDisk(tn.boltLog())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if _, err := other.node.Propose(ctx, fsm.InitCluster{ClusterID: "x"}); err == nil {
		t.Error("a proposal succeeded without room anywhere")
	}
	for _, tn := range c.nodes {
		clearDisk(tn.boltLog())
	}
	eventually(t, "proposals succeed again", func() bool { return propose(other) == nil })
	sameEverywhere(t, c)
}

// TestFullDiskOfASoleVoter: it goes on by itself.
func TestFullDiskOfASoleVoter(t *testing.T) {
	c := newCluster(t, 1)
	c.openAll()
	c.registerAll()
	tn := c.nodes[0]
	fillDisk(tn.boltLog())
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if _, err := tn.node.Propose(ctx, fsm.InitCluster{ClusterID: "x"}); err == nil {
		t.Error("a proposal succeeded without room")
	}
	clearDisk(tn.boltLog())
	eventually(t, "proposals succeed again", func() bool { return propose(tn) == nil })
}
