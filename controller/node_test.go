package controller

import (
	"context"
	"testing"
	"time"

	"github.com/weirmq/weir/fsm"
)

func TestSoleVoterOpensAndReopens(t *testing.T) {
	c := newCluster(t, 1)
	tn := c.nodes[0]
	began := time.Now()
	c.openAll()
	t.Logf("first open: %v", time.Since(began))
	if id := tn.node.Identity(); id.NodeID != 1 || id.ClusterID == "" {
		t.Fatalf("identity %+v, want node 1 of a cluster", id)
	}
	epoch := tn.register()
	topic := tn.create("t", 1)
	tn.close()
	began = time.Now()
	c.openAll()
	t.Logf("second open: %v", time.Since(began))
	if b, ok := tn.node.Image().Broker(1); !ok || b.Epoch != epoch {
		t.Fatalf("after reopening broker 1 is %+v, want epoch %d", b, epoch)
	}
	if p := tn.partition(topic); p.Leader != 1 {
		t.Fatalf("after reopening the partition is %+v, want leader 1", p)
	}
}

func TestThreeNodesFormAndPropose(t *testing.T) {
	c := newCluster(t, 3)
	began := time.Now()
	c.openAll()
	t.Logf("formed in %v", time.Since(began))
	seen := map[fsm.BrokerID]bool{}
	for _, tn := range c.nodes {
		id := tn.node.Identity()
		if seen[id.NodeID] || id.ClusterID != c.nodes[0].node.Identity().ClusterID {
			t.Fatalf("identity %+v beside %v of cluster %s", id, seen, c.nodes[0].node.Identity().ClusterID)
		}
		seen[id.NodeID] = true
	}
	c.registerAll()
	for _, tn := range []*testNode{c.leader(), c.follower()} {
		id := tn.node.Identity().NodeID
		eventually(t, "every node at the same index", func() bool { return tn.node.Image().Index() == c.leader().node.Image().Index() })
		im := tn.node.Image()
		b, _ := im.Broker(id)
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		began := time.Now()
		r, err := tn.node.Propose(ctx, fsm.AllocateProducerIDs{Broker: id, BrokerEpoch: b.Epoch, First: im.NextProducerID(), Count: 10})
		cancel()
		if err != nil || r.Err != nil {
			t.Fatalf("propose: %+v, %v", r, err)
		}
		t.Logf("proposed in %v (controller: %v)", time.Since(began), tn.node.IsLeader())
		if got := tn.node.Image().NextProducerID(); got != r.Epoch+10 {
			t.Fatalf("the local Image says next producer id %d after %d were granted from %d", got, 10, r.Epoch)
		}
	}
}

// TestLeaseLastsAsLongAsFollowersWait: a leader does not give up before a follower would.
func TestLeaseLastsAsLongAsFollowersWait(t *testing.T) {
	n := &Node{cfg: DefaultConfig(), log: testLogger(t, "")}
	c := n.raftConfig("1", nil)
	if c.LeaderLeaseTimeout != c.HeartbeatTimeout || c.HeartbeatTimeout != n.cfg.ElectionTimeout {
		t.Errorf("the lease is %v, followers wait %v of %v", c.LeaderLeaseTimeout, c.HeartbeatTimeout, n.cfg.ElectionTimeout)
	}
}
