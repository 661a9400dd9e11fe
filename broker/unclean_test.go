package broker

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/weirmq/weir/fsm"
)

// TestUncleanElectionWhereAllowed leaves a partition with a live replica that lacks what was
// acknowledged last: nobody leads until its topic allows that. The former leader
// then gives up what only it has.
func TestUncleanElectionWhereAllowed(t *testing.T) {
	c := newCluster(t, 3)
	o := c.operator()
	res, err := o.adm.CreateTopic(o.ctx, 1, 2, map[string]*string{"min.insync.replicas": kadm.StringPtr("1")}, "t")
	if err != nil {
		t.Fatal(err)
	}
	tp := fsm.TopicPartition{Topic: fsm.TopicID(res.ID)}
	kept := numbered(0, 10)
	c.produce("t", kept...)
	c.inSync(tp, 2)
	leader := c.leader(tp)
	follower := leader
	for _, id := range c.partition(tp).Replicas {
		if i := int(id) - 1; i != leader {
			follower = i
		}
	}
	c.kill(follower)
	c.inSync(tp, 1)
	c.produce("t", "only the leader has it")
	c.kill(leader)
	c.start(follower)
	c.until("the follower lives, and nobody leads", func() bool {
		return c.any().controller.Image().Eligible(fsm.BrokerID(follower+1)) && c.partition(tp).Leader == fsm.NoBroker
	})
	if n := c.recoveries(); n != 0 {
		t.Fatalf("%d elections at the risk of loss, and none was allowed", n)
	}
	if err := o.set("t", kadm.AlterConfig{Op: kadm.SetConfig, Name: "unclean.leader.election.enable", Value: kadm.StringPtr("true")}); err != nil {
		t.Fatal(err)
	}
	if got := c.leader(tp); got != follower {
		t.Fatalf("node %d leads: %+v", got+1, c.partition(tp))
	}
	c.until("the election is counted", func() bool { return c.recoveries() == 1 })
	c.produce("t", "new")
	c.start(leader)
	c.inSync(tp, 2)
	c.until("the ISR is full: the partition is as others are", func() bool { return !c.partition(tp).Recovering })
	if got := c.consume("t", 11); !slices.Equal(got, append(kept, "new")) {
		t.Errorf("read %q", got)
	}
	for _, i := range []int{leader, follower} {
		if end := c.nodes[i].env.replicas.Get(tp).log.End(); end != 11 {
			t.Errorf("the log of node %d ends at %d", i+1, end)
		}
	}
}
