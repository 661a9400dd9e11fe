package controller

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage/vfs"
)

// fullFS is the machine's file system, on whose disk nothing is left while it is full.
type fullFS struct {
	vfs.FS
	full atomic.Bool
}

// Space is none on a full disk.
func (f *fullFS) Space(dir string) (total, free uint64, err error) {
	if f.full.Load() {
		return 0, 0, nil
	}
	return f.FS.Space(dir)
}

// fillDisk takes all room from a node, also what its log had ahead.
func (tn *testNode) fillDisk() {
	tn.t.Helper()
	tn.cfg.LogFS.(*fullFS).full.Store(true)
	useUp(tn.t, tn.node.store.db, 32<<10)
}

// useUp takes the room that a log has ahead, with a value of this size, when its disk has none.
func useUp(t *testing.T, db backing, size int) {
	t.Helper()
	for db.HasRoom(1) {
		if err := db.Set([]byte("filler"), make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Set([]byte("filler"), nil); err != nil {
		t.Fatal(err)
	}
}

func (tn *testNode) clearDisk() { tn.cfg.LogFS.(*fullFS).full.Store(false) }

// TestFullDiskMovesTheController: a controller without room for an entry is succeeded by a node
// with room, follows, and catches up when it has room again. With no room anywhere nothing is
// decided, and all of it goes on when there is.
func TestFullDiskMovesTheController(t *testing.T) {
	c := newCluster(t, 3)
	c.openAll()
	c.registerAll()
	first := c.leader()
	other := c.survivor(first)
	first.fillDisk()
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
	first.clearDisk()
	eventually(t, "the node that has room again catches up", func() bool { return first.node.Image().Index() >= other.node.Image().Index() })
	for _, tn := range c.nodes {
		tn.fillDisk()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if _, err := other.node.Propose(ctx, fsm.InitCluster{ClusterID: "x"}); err == nil {
		t.Error("a proposal succeeded without room anywhere")
	}
	for _, tn := range c.nodes {
		tn.clearDisk()
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
	tn.fillDisk()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if _, err := tn.node.Propose(ctx, fsm.InitCluster{ClusterID: "x"}); err == nil {
		t.Error("a proposal succeeded without room")
	}
	tn.clearDisk()
	eventually(t, "proposals succeed again", func() bool { return propose(tn) == nil })
}
