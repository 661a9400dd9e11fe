package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

// reassigning is one node that decides, with brokers 2 to 4 that are names and no more; 4 is fenced.
func reassigning(t *testing.T) *testNode {
	c := newCluster(t, 1)
	c.openAll()
	at := c.nodes[0]
	at.register()
	for id := fsm.BrokerID(2); id <= 4; id++ {
		f := newFakeBroker(t, at, id)
		f.register()
		if id < 4 {
			f.beat()
		}
	}
	return at
}

// propose has the leader, broker 1, propose an ISR, or confirm it.
func (tn *testNode) propose(tp fsm.TopicPartition, confirms bool, isr ...fsm.BrokerID) {
	tn.t.Helper()
	im := tn.node.Image()
	p, _ := im.Partition(tp)
	one, _ := im.Broker(1)
	c := fsm.ISRChange{TP: tp, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Confirms: confirms}
	for _, id := range isr {
		b, _ := im.Broker(id)
		c.ISR = append(c.ISR, fsm.Member{ID: id, Epoch: b.Epoch})
	}
	res, err := tn.node.Propose(context.Background(), fsm.ChangeISR{Proposer: 1, BrokerEpoch: one.Epoch, Items: []fsm.ISRChange{c}})
	if err != nil || res.Err != nil || len(res.Skipped) > 0 {
		tn.t.Fatalf("ISR %v of %v: %v %+v", isr, tp, err, res)
	}
}

func TestReassign(t *testing.T) {
	at := reassigning(t)
	id := at.create("t", 1, 2)
	tp := fsm.TopicPartition{Topic: id}
	ids := func(ids ...fsm.BrokerID) []fsm.BrokerID { return ids }
	for _, tc := range []struct {
		name   string
		m      Move
		keep   bool // the number of replicas
		code   wire.Code
		say    string
		adding string // what there is afterwards
	}{
		{"cancel what does not run", Move{TP: tp, Cancel: true}, false, wire.NoReassignmentInProgress, "in progress", "[1 2] +[] -[]"},
		{"no such partition", Move{TP: fsm.TopicPartition{Topic: id, Partition: 5}, To: ids(1)}, false, wire.UnknownTopicOrPartition, "does not host", "[1 2] +[] -[]"},
		{"no such topic", Move{TP: fsm.TopicPartition{Topic: fsm.TopicID{9}}, To: ids(1)}, true, wire.UnknownTopicOrPartition, "does not host", "[1 2] +[] -[]"},
		{"nowhere", Move{TP: tp, To: ids()}, false, wire.InvalidReplicaAssignment, "at least one", "[1 2] +[] -[]"},
		{"twice there", Move{TP: tp, To: ids(3, 3)}, false, wire.InvalidReplicaAssignment, "twice", "[1 2] +[] -[]"},
		{"a stranger", Move{TP: tp, To: ids(1, 9)}, false, wire.InvalidReplicaAssignment, "no broker 9", "[1 2] +[] -[]"},
		{"as many as now", Move{TP: tp, To: ids(1, 2, 3)}, true, wire.InvalidReplicationFactor, "changed from 2 to 3", "[1 2] +[] -[]"},
		{"where it is", Move{TP: tp, To: ids(1, 2)}, true, wire.None, "", "[1 2] +[] -[]"},
		{"to another", Move{TP: tp, To: ids(1, 3)}, true, wire.None, "", "[1 3 2] +[3] -[2]"},
		{"to a fenced one instead", Move{TP: tp, To: ids(1, 4)}, true, wire.None, "", "[1 4 2] +[4] -[2]"},
		{"back", Move{TP: tp, Cancel: true}, true, wire.None, "", "[1 2] +[] -[]"},
		{"to more", Move{TP: tp, To: ids(1, 2, 3)}, false, wire.None, "", "[1 2 3] +[3] -[]"},
		{"as many as there will be", Move{TP: tp, To: ids(1, 3)}, true, wire.InvalidReplicationFactor, "changed from 3 to 2", "[1 2 3] +[3] -[]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			res, err := at.node.Reassign(context.Background(), []Move{tc.m}, !tc.keep)
			if err != nil {
				t.Fatal(err)
			}
			if res[0].Err != tc.code || !strings.Contains(res[0].Msg, tc.say) || (tc.code == wire.None) != (res[0].Msg == "") {
				t.Errorf("got %v %q, want %v with %q", res[0].Err, res[0].Msg, tc.code, tc.say)
			}
			p := at.partition(id)
			if got := fmt.Sprintf("%v +%v -%v", p.Replicas, p.Adding, p.Removing); got != tc.adding {
				t.Errorf("the replicas are %s, want %s", got, tc.adding)
			}
		})
	}
	at.propose(tp, false, 1, 2, 3)
	eventually(t, "the third replica is a full one", func() bool { return !at.partition(id).Reassigning() })
	if _, err := at.node.Reassign(context.Background(), []Move{{TP: tp, To: ids(3)}, {TP: tp, To: ids(2)}}, true); err != nil {
		t.Fatal(err)
	}
	at.propose(tp, true, 1, 2, 3)
	eventually(t, "the leader has left, and another one leads", func() bool {
		p := at.partition(id)
		return slices.Equal(p.Replicas, ids(2)) && p.Leader == 2 && slices.Equal(p.ISR, ids(2)) && !p.Reassigning()
	})
}

// TestReassignMany moves more partitions at once than the loop decides in one turn.
func TestReassignMany(t *testing.T) {
	at := reassigning(t)
	const count = 2*movesPerTurn + 3
	nt := NewTopic{Name: "t", Partitions: -1, RF: -1, Assignment: slices.Repeat([][]fsm.BrokerID{{1, 2}}, count)}
	made, err := at.node.CreateTopics(context.Background(), []NewTopic{nt})
	if err != nil || made[0].Err != 0 {
		t.Fatal(err, made)
	}
	var moves []Move
	for i := range int32(count) {
		moves = append(moves, Move{TP: fsm.TopicPartition{Topic: made[0].ID, Partition: i}, To: []fsm.BrokerID{3, 1}})
	}
	res, err := at.node.Reassign(context.Background(), moves, false)
	if err != nil || slices.ContainsFunc(res, func(r Outcome) bool { return r.Err != wire.None }) {
		t.Fatal(err, res)
	}
	moving := 0
	for _, p := range at.node.Image().Reassigning() {
		if !slices.Equal(p.Replicas, []fsm.BrokerID{3, 1, 2}) {
			t.Fatalf("%+v", p)
		}
		moving++
	}
	if moving != count {
		t.Errorf("%d partitions are on the move, want %d", moving, count)
	}
	at.propose(moves[7].TP, false, 1, 2, 3)
	at.propose(moves[7].TP, true, 1, 2, 3)
	eventually(t, "one move is complete", func() bool {
		p, _ := at.node.Image().Partition(moves[7].TP)
		return slices.Equal(p.Replicas, []fsm.BrokerID{3, 1}) && !p.Reassigning()
	})
}

func TestPackReplicaChanges(t *testing.T) {
	var items []fsm.ReplicaChange
	for i := range int32(3000) {
		c := fsm.ReplicaChange{TP: fsm.TopicPartition{Topic: fsm.TopicID{1}, Partition: i}, LeaderEpoch: 1 << 30, PartitionEpoch: 1 << 30}
		for id := range fsm.BrokerID(fsm.MaxReplicas) {
			c.Replicas = append(c.Replicas, 1<<30+id)
		}
		items = append(items, c)
	}
	packed := packReplicaChanges(items)
	next := int32(0)
	for _, c := range packed {
		if n := len(fsm.EncodeEntry(nil, []fsm.Command{c})); n > entrySizeMax+64 {
			t.Errorf("an entry of %d bytes", n)
		}
		for _, i := range c.Items {
			if i.TP.Partition != next {
				t.Fatalf("item %d comes as number %d", i.TP.Partition, next)
			}
			next++
		}
	}
	if int(next) != len(items) || len(packed) < 3 || packReplicaChanges(nil) != nil {
		t.Errorf("%d items in %d commands", next, len(packed))
	}
}

// TestMovesToJudge: a new term looks at all moves, and later at those that something happened to.
func TestMovesToJudge(t *testing.T) {
	at := reassigning(t)
	var moves []Move
	for _, name := range []string{"a", "b", "c"} {
		moves = append(moves, Move{TP: fsm.TopicPartition{Topic: at.create(name, 1, 2)}, To: []fsm.BrokerID{1, 3}})
	}
	still := at.node.Image()
	if _, err := at.node.Reassign(context.Background(), moves[:2], true); err != nil {
		t.Fatal(err)
	}
	judged := func(before, im *fsm.Image) int {
		n := 0
		for range movesToJudge(before, im) {
			n++
		}
		return n
	}
	begun := at.node.Image()
	if got := judged(nil, begun); got != 2 {
		t.Errorf("a new term looks at %d moves, want 2", got)
	}
	if got := judged(nil, still) + judged(begun, still) + judged(begun, begun); got != 0 {
		t.Errorf("%d moves are looked at without a reason", got)
	}
	at.propose(moves[2].TP, true, 1, 2)
	if got := judged(begun, at.node.Image()); got != 0 {
		t.Errorf("%d moves are looked at for what happened to another partition", got)
	}
	before := at.node.Image()
	p, _ := before.Partition(moves[0].TP)
	if _, err := at.node.Propose(context.Background(), fsm.ChangeLeaders{Items: []fsm.LeaderChange{
		{TP: moves[0].TP, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Leader: 2, ISR: []fsm.BrokerID{1, 2}}}}); err != nil {
		t.Fatal(err)
	}
	if got := judged(before, at.node.Image()); got != 1 {
		t.Errorf("%d moves are looked at after one partition has changed, want 1", got)
	}
	before = at.node.Image()
	f := newFakeBroker(t, at, 4)
	f.register()
	if got := judged(before, at.node.Image()); got != 2 {
		t.Errorf("%d moves are looked at after a broker has changed, want 2", got)
	}
}
