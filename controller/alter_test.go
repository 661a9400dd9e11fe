package controller

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

func set(name, value string) fsm.ConfigOp { return fsm.ConfigOp{Name: name, Value: value} }

func TestAlterTopics(t *testing.T) {
	c := newCluster(t, 1)
	c.openAll()
	at := c.nodes[0]
	at.register()
	id := at.create("t", 1)
	alter := func(a TopicAlteration) TopicResult {
		t.Helper()
		res, err := at.node.AlterTopics(context.Background(), []TopicAlteration{a})
		if err != nil {
			t.Fatal(err)
		}
		return res[0]
	}
	configs := func() map[string]string {
		topic, _ := at.node.Image().Topic(id)
		return topic.Configs
	}
	for _, tc := range []struct {
		name string
		a    TopicAlteration
		code wire.Code
		say  string
		want map[string]string
	}{
		{"set", TopicAlteration{ID: id, Ops: []fsm.ConfigOp{set("retention.ms", "5"), set("segment.ms", "7")}}, wire.None, "",
			map[string]string{"retention.ms": "5", "segment.ms": "7"}},
		{"only validate", TopicAlteration{ID: id, Ops: []fsm.ConfigOp{set("retention.ms", "6")}, ValidateOnly: true}, wire.None, "",
			map[string]string{"retention.ms": "5", "segment.ms": "7"}},
		{"invalid", TopicAlteration{ID: id, Ops: []fsm.ConfigOp{set("retention.ms", "6"), set("segment.ms", "x")}}, wire.InvalidConfig, "1 or more",
			map[string]string{"retention.ms": "5", "segment.ms": "7"}},
		{"without effect", TopicAlteration{ID: id, Ops: []fsm.ConfigOp{set("flush.ms", "6")}}, wire.InvalidConfig, "no effect",
			map[string]string{"retention.ms": "5", "segment.ms": "7"}},
		{"delete", TopicAlteration{ID: id, Ops: []fsm.ConfigOp{{Name: "retention.ms", Op: fsm.DeleteConfig}}}, wire.None, "",
			map[string]string{"segment.ms": "7"}},
		{"all of them", TopicAlteration{ID: id, Ops: []fsm.ConfigOp{set("retention.bytes", "9")}, Whole: true}, wire.None, "",
			map[string]string{"retention.bytes": "9"}},
		{"subtract", TopicAlteration{ID: id, Ops: []fsm.ConfigOp{{Name: "cleanup.policy", Op: fsm.SubtractConfig, Value: "delete"}}}, wire.None, "",
			map[string]string{"retention.bytes": "9", "cleanup.policy": ""}},
		{"unknown topic", TopicAlteration{ID: fsm.TopicID{9}, Ops: []fsm.ConfigOp{set("retention.ms", "5")}}, wire.UnknownTopicOrPartition, "does not host",
			map[string]string{"retention.bytes": "9", "cleanup.policy": ""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			res := alter(tc.a)
			if res.Err != tc.code || !strings.Contains(res.Msg, tc.say) || res.ID != tc.a.ID {
				t.Errorf("got %v %q, want %v with %q", res.Err, res.Msg, tc.code, tc.say)
			}
			if got := configs(); !maps.Equal(got, tc.want) {
				t.Errorf("configs %v, want %v", got, tc.want)
			}
		})
	}
}

// TestAlterTopicsAtOnce: changes of different configs of one topic do not undo each other,
// from whichever node they come.
func TestAlterTopicsAtOnce(t *testing.T) {
	c := newCluster(t, 3)
	c.openAll()
	c.registerAll()
	id := c.leader().create("t", 1)
	want := map[string]string{"retention.ms": "1", "retention.bytes": "2", "segment.ms": "3", "max.message.bytes": "4"}
	var wg sync.WaitGroup
	for name, value := range want {
		for _, at := range []*testNode{c.leader(), c.follower()} {
			wg.Go(func() {
				res, err := at.node.AlterTopics(context.Background(), []TopicAlteration{{ID: id, Ops: []fsm.ConfigOp{set(name, value)}}})
				if err != nil || res[0].Err != wire.None {
					t.Errorf("set %s: %v %+v", name, err, res)
				}
			})
		}
	}
	wg.Wait()
	if topic, _ := c.leader().node.Image().Topic(id); !maps.Equal(topic.Configs, want) {
		t.Errorf("configs %v, want %v", topic.Configs, want)
	}
}

func TestAddPartitions(t *testing.T) {
	c := newCluster(t, 1)
	c.nodes[0].cfg.Topics.PartitionsMax = 10
	c.openAll()
	at := c.nodes[0]
	at.register()
	for id := fsm.BrokerID(2); id <= 3; id++ {
		f := newFakeBroker(t, at, id)
		f.register()
		if id == 2 {
			f.beat() // 3 stays fenced
		}
	}
	id := at.create("t", 1, 2)
	for _, tc := range []struct {
		name string
		m    MorePartitions
		code wire.Code
		say  string
		want int32
	}{
		{"only validate", MorePartitions{ID: id, Count: 3, ValidateOnly: true}, wire.None, "", 1},
		{"two more", MorePartitions{ID: id, Count: 3}, wire.None, "", 3},
		{"as many", MorePartitions{ID: id, Count: 3}, wire.InvalidPartitions, "already has 3", 3},
		{"fewer", MorePartitions{ID: id, Count: 2}, wire.InvalidPartitions, "not be an increase", 3},
		{"too many", MorePartitions{ID: id, Count: 11}, wire.InvalidPartitions, "at most 10", 3},
		{"placed by hand", MorePartitions{ID: id, Count: 4, Assignment: [][]fsm.BrokerID{{2, 1}}}, wire.None, "", 4},
		{"too few placements", MorePartitions{ID: id, Count: 6, Assignment: [][]fsm.BrokerID{{2, 1}}}, wire.InvalidReplicaAssignment, "1 assignment(s)", 4},
		{"uneven", MorePartitions{ID: id, Count: 5, Assignment: [][]fsm.BrokerID{{2}}}, wire.InvalidReplicaAssignment, "partition 4", 4},
		{"a stranger", MorePartitions{ID: id, Count: 5, Assignment: [][]fsm.BrokerID{{2, 9}}}, wire.InvalidReplicaAssignment, "broker 9", 4},
		{"unknown topic", MorePartitions{ID: fsm.TopicID{9}, Count: 5}, wire.UnknownTopicOrPartition, "does not host", 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			res, err := at.node.AddPartitions(context.Background(), []MorePartitions{tc.m})
			if err != nil {
				t.Fatal(err)
			}
			if res[0].Err != tc.code || !strings.Contains(res[0].Msg, tc.say) {
				t.Errorf("got %v %q, want %v with %q", res[0].Err, res[0].Msg, tc.code, tc.say)
			}
			topic, _ := at.node.Image().Topic(id)
			if topic.Partitions != tc.want {
				t.Errorf("%d partitions, want %d", topic.Partitions, tc.want)
			}
		})
	}
	p, _ := at.node.Image().Partition(fsm.TopicPartition{Topic: id, Partition: 3})
	if p.Leader != 2 || len(p.Replicas) != 2 || p.Replicas[0] != 2 {
		t.Errorf("the partition placed by hand is %+v", p)
	}
}

func TestElectLeaders(t *testing.T) {
	c := newCluster(t, 1)
	c.openAll()
	at := c.nodes[0]
	at.register()
	two := newFakeBroker(t, at, 2)
	two.register()
	two.beat()
	id := at.create("t", 2, 1)
	alone := at.create("alone", 2)
	tp := fsm.TopicPartition{Topic: id}
	elect := func(kind ElectionKind, tp fsm.TopicPartition) ElectionResult {
		t.Helper()
		res, err := at.node.ElectLeaders(context.Background(), kind, []fsm.TopicPartition{tp})
		if err != nil {
			t.Fatal(err)
		}
		return res[0]
	}
	expect := func(what string, got ElectionResult, want wire.Code) {
		t.Helper()
		if got.Err != want || (want == wire.None) != (got.Msg == "") {
			t.Errorf("%s: got %v %q, want %v", what, got.Err, got.Msg, want)
		}
	}
	expect("the preferred leader leads", elect(PreferredElection, tp), wire.ElectionNotNeeded)
	expect("no such partition", elect(PreferredElection, fsm.TopicPartition{Topic: id, Partition: 7}), wire.UnknownTopicOrPartition)
	expect("unclean with a leader", elect(UncleanElection, tp), wire.ElectionNotNeeded)

	p := at.partition(id)
	if _, err := at.node.Propose(context.Background(), fsm.ChangeLeaders{Items: []fsm.LeaderChange{
		{TP: tp, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Leader: 1, ISR: []fsm.BrokerID{1, 2}}}}); err != nil {
		t.Fatal(err)
	}
	expect("back to the preferred one", elect(PreferredElection, tp), wire.None)
	if now := at.partition(id); now.Leader != 2 || now.LeaderEpoch != p.LeaderEpoch+2 || len(now.ISR) != 2 {
		t.Errorf("the partition is %+v", now)
	}

	if _, err := at.node.Propose(context.Background(), fsm.FenceBroker{ID: 2, Epoch: two.epoch}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "broker 1 leads", func() bool { return at.partition(id).Leader == 1 })
	expect("the preferred one is away", elect(PreferredElection, tp), wire.PreferredLeaderNotAvailable)
	expect("nobody is there", elect(UncleanElection, fsm.TopicPartition{Topic: alone}), wire.EligibleLeadersNotAvailable)
}

func TestQuorum(t *testing.T) {
	c := newCluster(t, 3)
	c.openAll()
	c.registerAll()
	c.leader().create("t", 1)
	for _, at := range []*testNode{c.leader(), c.follower()} {
		var q Quorum
		eventually(t, "all voters have what is committed", func() bool {
			var err error
			if q, err = at.node.Quorum(context.Background()); err != nil {
				t.Fatal(err)
			}
			for _, s := range q.Voters {
				if s.Last < int64(q.Commit) || s.Answered < 0 || s.CaughtUp < 0 {
					return false
				}
			}
			return true
		})
		if q.Leader != c.leader().node.Identity().NodeID || q.Term == 0 || q.Commit == 0 || len(q.Voters) != 3 || len(q.Observers) != 0 {
			t.Errorf("the quorum is %+v", q)
		}
		for _, tn := range c.nodes {
			found := false
			for _, s := range q.Voters {
				found = found || s.ID == tn.node.Identity().NodeID && s.Folder == tn.node.Identity().Folder
			}
			if !found {
				t.Errorf("node %d is missing in %+v", tn.node.Identity().NodeID, q.Voters)
			}
		}
	}
}
