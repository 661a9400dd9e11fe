package controller

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

func TestCreateTopicAnswers(t *testing.T) {
	c := newCluster(t, 1)
	c.nodes[0].cfg.Topics.PartitionsMax = 100
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
	at.create("taken", 1)
	assigned := func(a ...[]fsm.BrokerID) NewTopic {
		return NewTopic{Partitions: -1, RF: -1, Assignment: a}
	}
	for _, tc := range []struct {
		name  string
		topic NewTopic
		code  wire.Code
		say   string
	}{
		{"defaults", NewTopic{Name: "a", Partitions: -1, RF: -1}, wire.None, ""},
		{"numbers", NewTopic{Name: "a.b_c-D9", Partitions: 7, RF: 2}, wire.None, ""},
		{"a fenced broker may hold a replica", NewTopic{Name: "c", Partitions: 2, RF: 3}, wire.None, ""},
		{"empty name", NewTopic{Partitions: 1, RF: 1}, wire.InvalidTopic, "empty"},
		{"bad character", NewTopic{Name: "a/b", Partitions: 1, RF: 1}, wire.InvalidTopic, "a/b"},
		{"dots", NewTopic{Name: "..", Partitions: 1, RF: 1}, wire.InvalidTopic, "\"..\""},
		{"long name", NewTopic{Name: strings.Repeat("x", 250), Partitions: 1, RF: 1}, wire.InvalidTopic, "249"},
		{"exists", NewTopic{Name: "taken", Partitions: 1, RF: 1}, wire.TopicAlreadyExists, "taken"},
		{"an underscore for a dot", NewTopic{Name: "a_b_c-D9", Partitions: 1, RF: 1}, wire.InvalidTopic, "collides with existing topic: a.b_c-D9"},
		{"another letter for a dot", NewTopic{Name: "a-b_c-D9", Partitions: 1, RF: 1}, wire.None, ""},
		{"many dots", NewTopic{Name: "q.q.q.q.q.q.q.q", Partitions: 1, RF: 1}, wire.None, ""},
		{"one of many dots", NewTopic{Name: "q.q.q.q_q.q.q.q", Partitions: 1, RF: 1}, wire.InvalidTopic, "collides with existing topic: q.q.q.q.q.q.q.q"},
		{"another letter among many dots", NewTopic{Name: "q.q.q.q-q.q.q.q", Partitions: 1, RF: 1}, wire.None, ""},
		{"no partitions", NewTopic{Name: "n", Partitions: 0, RF: 1}, wire.InvalidPartitions, "non-positive"},
		{"too many partitions", NewTopic{Name: "n", Partitions: 101, RF: 1}, wire.InvalidPartitions, "at most 100"},
		{"no replicas", NewTopic{Name: "n", Partitions: 1, RF: 0}, wire.InvalidReplicationFactor, "larger than 0"},
		{"too many replicas", NewTopic{Name: "n", Partitions: 1, RF: 4}, wire.InvalidReplicationFactor, "only 3 broker(s) are registered"},
		{"bad config", NewTopic{Name: "n", Partitions: 1, RF: 1, Configs: [][2]string{{"min.insync.replicas", "none"}}}, wire.InvalidConfig, "min.insync.replicas"},
		{"unknown config", NewTopic{Name: "n", Partitions: 1, RF: 1, Configs: [][2]string{{"min.insync.replica", "1"}}}, wire.InvalidConfig, "did you mean min.insync.replicas"},
		{"assignment", named(assigned([]fsm.BrokerID{2, 1}, []fsm.BrokerID{1, 2}), "manual"), wire.None, ""},
		{"assignment with partitions", NewTopic{Name: "n", Partitions: 1, RF: -1, Assignment: [][]fsm.BrokerID{{1}}}, wire.InvalidRequest, "numPartitions"},
		{"assignment with replication factor", NewTopic{Name: "n", Partitions: -1, RF: 1, Assignment: [][]fsm.BrokerID{{1}}}, wire.InvalidRequest, "replication factor"},
		{"assignment of nothing", named(assigned([]fsm.BrokerID{}), "n"), wire.InvalidReplicaAssignment, "empty replica list"},
		{"assignment twice", named(assigned([]fsm.BrokerID{1, 1}), "n"), wire.InvalidReplicaAssignment, "broker 1 twice"},
		{"assignment to a stranger", named(assigned([]fsm.BrokerID{9}), "n"), wire.InvalidReplicaAssignment, "broker 9"},
		{"uneven assignment", named(assigned([]fsm.BrokerID{1, 2}, []fsm.BrokerID{1}), "n"), wire.InvalidReplicaAssignment, "partition 1"},
		{"assignment to fenced brokers only", named(assigned([]fsm.BrokerID{3}), "n"), wire.InvalidReplicaAssignment, "fenced"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dry := tc.topic
			dry.ValidateOnly = true
			for _, nt := range []NewTopic{dry, tc.topic} {
				res, err := at.node.CreateTopics(context.Background(), []NewTopic{nt})
				if err != nil || res[0].Err != tc.code || !strings.Contains(res[0].Msg, tc.say) {
					t.Fatalf("validate only %v: got %+v, %v; want %v saying %q", nt.ValidateOnly, res, err, tc.code, tc.say)
				}
				_, exists := at.node.Image().TopicByName(nt.Name)
				if want := !nt.ValidateOnly && tc.code == wire.None || nt.Name == "taken"; exists != want {
					t.Fatalf("validate only %v: the topic exists: %v", nt.ValidateOnly, exists)
				}
			}
		})
	}
}

func named(nt NewTopic, name string) NewTopic {
	nt.Name = name
	return nt
}

func TestCreateTopicsInOneRequest(t *testing.T) {
	c := newCluster(t, 1)
	c.openAll()
	at := c.nodes[0]
	at.register()
	one := func(name string) NewTopic { return NewTopic{Name: name, Partitions: 3, RF: 1} }
	res, err := at.node.CreateTopics(context.Background(), []NewTopic{one("x"), one("twice"), one("y"), one("twice")})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []wire.Code{wire.None, wire.InvalidRequest, wire.None, wire.InvalidRequest} {
		if res[i].Err != want {
			t.Errorf("topic %d: %+v, want %v", i, res[i], want)
		}
	}
	if _, exists := at.node.Image().TopicByName("twice"); exists {
		t.Error("a topic that the request names twice was created")
	}
	// The same request again, as it is repeated after an unknown outcome: it finds what an
	// earlier try made, also a try before the last.
	again := &createTopicsRequest{topics: []NewTopic{one("x")}}
	made := res[0].ID
	again.topics[0].ID = made
	for range 2 {
		was := again.topics[0]
		again = again.renewed().(*createTopicsRequest)
		if now := again.topics[0]; now.ID == was.ID || now.ID == made || !slices.Contains(now.Tried, was.ID) {
			t.Fatalf("%+v is repeated as %+v", was, now)
		}
		res, err = at.node.CreateTopics(context.Background(), again.topics)
		if err != nil || res[0].Err != wire.None || res[0].ID != made || res[0].Partitions != 3 || res[0].RF != 1 {
			t.Errorf("repeated: %+v, %v", res, err)
		}
	}
	for range 2 * triedMax {
		again = again.renewed().(*createTopicsRequest)
	}
	if n := len(again.topics[0].Tried); n != triedMax {
		t.Errorf("%d ids of earlier tries are kept, want %d", n, triedMax)
	}
	if res, err = at.node.CreateTopics(context.Background(), []NewTopic{one("x")}); err != nil || res[0].Err != wire.TopicAlreadyExists {
		t.Errorf("another request for the name: %+v, %v", res, err)
	}
	del, err := at.node.DeleteTopics(context.Background(), []fsm.TopicID{made, {9}})
	if err != nil || del[0].Err != wire.None || del[1].Err != wire.UnknownTopicID || del[1].ID != (fsm.TopicID{9}) {
		t.Errorf("deletion: %+v, %v", del, err)
	}
	if _, ok := at.node.Image().Tombstone(made); !ok {
		t.Error("the deleted topic left no tombstone")
	}
}

// TestDefaultReplicationWaitsForTheFirstNodes asks for a topic before the brokers of all
// voters are registered.
func TestDefaultReplicationWaitsForTheFirstNodes(t *testing.T) {
	c := newCluster(t, 3)
	c.openAll()
	c.nodes[0].register()
	nt := NewTopic{Name: "t", Partitions: -1, RF: -1}
	res, err := c.nodes[1].node.CreateTopics(context.Background(), []NewTopic{nt})
	if err != nil || res[0].Err != wire.NotEnoughReplicas || !res[0].Err.Retriable() {
		t.Fatalf("with one broker of three: %+v, %v; want a retriable error", res, err)
	}
	c.nodes[1].register()
	c.nodes[2].register()
	res, err = c.nodes[1].node.CreateTopics(context.Background(), []NewTopic{nt})
	if err != nil || res[0].Err != wire.None || res[0].RF != 3 {
		t.Fatalf("with all three: %+v, %v; want replication 3", res, err)
	}
}
