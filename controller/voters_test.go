package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

// testServers reads servers such as "1 2 3 4-": those with a dash do not vote.
func testServers(text string) []raft.Server {
	var out []raft.Server
	for _, word := range strings.Fields(text) {
		var id fsm.BrokerID
		_, _ = fmt.Sscanf(word, "%d", &id)
		s := raft.Server{ID: serverID(id, [16]byte{byte(id)})}
		if strings.HasSuffix(word, "-") {
			s.Suffrage = raft.Nonvoter
		}
		out = append(out, s)
	}
	return out
}

func TestJudgeVotes(t *testing.T) {
	removed, r := fsm.Apply(fsm.NewImage(), 1, fsm.AdmitNode{ID: 5, Folder: [16]byte{5}})
	if r.Err == nil {
		removed, r = fsm.Apply(removed, 2, fsm.RemoveNode{ID: 5, Folder: [16]byte{5}})
	}
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	for _, tc := range []struct {
		name, servers string
		who           voter
		want          wire.Code
		say           string
	}{
		{"a node without a vote", "1 2 3 4-", voter{id: 4}, -1, ""},
		{"by its folder", "1 2 3 4-", voter{id: 4, folder: [16]byte{4}}, -1, ""},
		{"in another folder", "1 2 3 4-", voter{id: 4, folder: [16]byte{9}}, wire.InvalidVoterKey, "another data folder"},
		{"nobody", "1 2 3 4-", voter{id: 6}, wire.InvalidRequest, "not in this cluster: start it with --join"},
		{"a voter", "1 2 3", voter{id: 3}, wire.DuplicateVoter, "votes already"},
		{"a voter, asked again", "1 2 3", voter{id: 3, again: true}, wire.None, ""},
		{"one that leaves", "1 2 3 5-", voter{id: 5}, wire.InvalidRequest, "being removed"},
	} {
		t.Run("add "+tc.name, func(t *testing.T) {
			s, got := judgeAdd(removed, testServers(tc.servers), tc.who)
			judged(t, s, got, tc.who.id, tc.want, tc.say)
		})
	}
	for _, tc := range []struct {
		name, servers, alive string
		who                  voter
		want                 wire.Code
		say                  string
	}{
		{"one of three", "1 2 3", "1 2 3", voter{id: 3}, -1, ""},
		{"a dead one of three", "1 2 3", "1 2", voter{id: 3}, -1, ""},
		{"a live one of three beside a dead one", "1 2 3", "1 2", voter{id: 2}, wire.InvalidRequest, "a majority of 2 would be needed, and only 1 of those that are left answer"},
		{"one of five beside two dead ones", "1 2 3 4 5", "1 2 3", voter{id: 3}, wire.InvalidRequest, "a majority of 3"},
		{"a dead one of five beside another", "1 2 3 4 5", "1 2 3", voter{id: 5}, -1, ""},
		{"one of two", "1 2", "1 2", voter{id: 2}, -1, ""},
		{"the other of two, which is alone", "1 2", "1", voter{id: 1}, wire.InvalidRequest, "a majority of 1"},
		{"the only one", "1 4- 5-", "1 4 5", voter{id: 1}, wire.InvalidRequest, "the only node that votes"},
		{"others do not count", "1 2 3 4- 5-", "1 3 4 5", voter{id: 1}, wire.InvalidRequest, "only 1 of those that are left answer"},
		{"one without a vote", "1 2 3 4-", "1 2 3 4", voter{id: 4}, wire.VoterNotFound, "does not vote"},
		{"one without a vote, asked again", "1 2 3 4-", "1 2 3 4", voter{id: 4, again: true}, wire.None, ""},
		{"another folder", "1 2 3", "1 2 3", voter{id: 3, folder: [16]byte{9}}, wire.VoterNotFound, "with that data folder"},
		{"nobody", "1 2 3", "1 2 3", voter{id: 9}, wire.VoterNotFound, "does not vote"},
	} {
		t.Run("remove "+tc.name, func(t *testing.T) {
			living := testServers(tc.alive)
			alive := func(id raft.ServerID) bool { _, ok := findServer(living, id); return ok }
			s, got := judgeRemove(testServers(tc.servers), alive, tc.who)
			judged(t, s, got, tc.who.id, tc.want, tc.say)
		})
	}
}

// judged compares a judgement; a code of -1 stands for "go on".
func judged(t *testing.T, s raft.Server, got *Outcome, id fsm.BrokerID, want wire.Code, say string) {
	t.Helper()
	if want == -1 {
		if is, _, _ := parseServerID(s.ID); got != nil || is != id {
			t.Errorf("got %v, %+v; want to go on with node %d", s.ID, got, id)
		}
		return
	}
	if got == nil || got.Err != want || !strings.Contains(got.Msg, say) {
		t.Errorf("got %+v, want %v ...%s...", got, want, say)
	}
}

// votingCluster is a cluster of first nodes, and others that have joined it.
func votingCluster(t *testing.T, first, more int) *testCluster {
	c := newCluster(t, first)
	for _, tn := range c.nodes {
		tn.cfg.VoterSteady = 200 * time.Millisecond
	}
	c.openAll()
	addrs := c.addrs()
	for range more {
		tn := c.join(addrs...)
		tn.cfg.VoterSteady = 200 * time.Millisecond
		tn.mustOpen()
	}
	c.registerAll()
	return c
}

// mustChange asks for a change until it is made, or refused for a reason that does not pass.
func mustChange(t *testing.T, what string, change func(context.Context) (Outcome, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if r, err := change(ctx); err != nil || r.Err != wire.None {
		t.Fatalf("%s: %+v, %v", what, r, err)
	}
}

func (tn *testNode) addVoter(id fsm.BrokerID) {
	tn.t.Helper()
	mustChange(tn.t, fmt.Sprintf("give node %d a vote", id), func(ctx context.Context) (Outcome, error) {
		return tn.node.AddVoter(ctx, id, [16]byte{})
	})
}

func (tn *testNode) removeVoter(id fsm.BrokerID) {
	tn.t.Helper()
	mustChange(tn.t, fmt.Sprintf("take the vote of node %d", id), func(ctx context.Context) (Outcome, error) {
		return tn.node.RemoveVoter(ctx, id, [16]byte{})
	})
}

// TestVotesMove gives votes to nodes that joined and takes those of all first nodes, the
// controller's among them; then the first nodes end, and nobody misses them.
func TestVotesMove(t *testing.T) {
	c := votingCluster(t, 3, 3)
	asked := c.nodes[5]
	for id := fsm.BrokerID(4); id <= 6; id++ {
		asked.addVoter(id)
	}
	before, stood := c.leader(), c.candidacies()
	asked.removeVoter(before.node.Identity().NodeID)
	for _, tn := range c.nodes[:3] {
		if tn != before {
			asked.removeVoter(tn.node.Identity().NodeID)
		}
	}
	if stood.Load() == 0 {
		t.Error("the controller did not hand over before it lost its vote")
	}
	if before.node.IsLeader() {
		t.Error("the controller stays although it has no vote")
	}
	eventually(t, "only the others vote", func() bool {
		voters, _ := asked.suffrages()
		return slices.Equal(voters, []fsm.BrokerID{4, 5, 6})
	})
	topic := c.leader().create("t", 4, 5)
	for _, tn := range c.nodes[:3] {
		eventually(t, "the first nodes hear of it", func() bool { return len(tn.partition(topic).Replicas) == 2 })
		tn.crash()
	}
	if p := c.leader().partition(c.leader().create("u", 5, 6)); len(p.ISR) == 0 {
		t.Errorf("the new partition is %+v", p)
	}
}

// TestDeadVoterIsReplaced: a voter is lost with its folder. Its vote is taken and another node
// gets one; then a further voter may die.
func TestDeadVoterIsReplaced(t *testing.T) {
	c := votingCluster(t, 3, 1)
	dead := c.follower()
	if dead == c.nodes[3] {
		dead = c.nodes[1]
	}
	id := dead.node.Identity().NodeID
	dead.crash()
	asked := c.nodes[3]
	eventually(t, "it is known not to answer", func() bool {
		lead := c.leader()
		return lead.node.term.Load() != nil && !lead.node.term.Load().alive(serverID(id, dead.identity.Folder))
	})
	for _, tn := range c.nodes[:3] {
		if tn == dead {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		r, err := asked.node.RemoveVoter(ctx, tn.identity.NodeID, [16]byte{})
		cancel()
		if err != nil || r.Err != wire.InvalidRequest {
			t.Fatalf("one of the two that are left lost its vote: %+v, %v", r, err)
		}
	}
	asked.removeVoter(id)
	asked.addVoter(4)
	dead.wipe()
	dead.mustOpen() // as a new node
	dead.register()
	if now := dead.node.Identity().NodeID; now != 5 {
		t.Errorf("the wiped node came back as node %d", now)
	}
	c.leader().crash()
	c.leader().create("after", 4)
}

// TestVoteNeedsANodeThatKeepsUp: who does not answer gets no vote, whatever the patience.
func TestVoteNeedsANodeThatKeepsUp(t *testing.T) {
	c := votingCluster(t, 1, 1)
	c.nodes[1].crash()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	lead := c.nodes[0].node
	if r, err := lead.AddVoter(ctx, 2, [16]byte{}); err != nil || r.Err != wire.RequestTimedOut || !strings.Contains(r.Msg, "does not answer") {
		t.Errorf("%+v, %v", r, err)
	}
	if lead.electorate().size() != 1 {
		t.Fatal("it has a vote")
	}
	c.nodes[1].mustOpen()
	c.nodes[0].addVoter(2)
	c.nodes[0].create("t", 1)
}

func TestSteadiness(t *testing.T) {
	f, id := newFollowerEnds(), raft.ServerID("x")
	at := time.Unix(1000, 0)
	step := func(after time.Duration, last, committed uint64, want time.Duration) {
		t.Helper()
		at = at.Add(after)
		f.noted(id, 3, last, committed, at, at)
		if got, _, _ := f.steadiness(id, 3, committed, at); got != want {
			t.Errorf("steady for %v, want %v", got, want)
		}
	}
	step(0, 10, 0, 0) // what is committed is not known
	step(time.Second, 10, steadyLag+11, 0)
	step(time.Second, steadyLag, steadyLag+11, 0)
	step(time.Second, steadyLag, 2*steadyLag, time.Second)
	step(silenceMax, steadyLag, 2*steadyLag, time.Second+silenceMax)
	step(silenceMax+1, steadyLag, 2*steadyLag, 0) // it was silent
	step(time.Second, steadyLag, 2*steadyLag, time.Second)
	if got, _, _ := f.steadiness(id, 3, 2*steadyLag+1, at); got != 0 {
		t.Errorf("steady for %v although it lacks too much by now", got)
	}
	if got, _, heard := f.steadiness(id, 4, 2*steadyLag, at); got != 0 || heard {
		t.Errorf("steady for %v in another term", got)
	}
	if got, _, heard := f.steadiness(id, 3, 2*steadyLag, at.Add(silenceMax+1)); got != 0 || heard {
		t.Errorf("steady for %v although it is silent", got)
	}
	step(time.Second, 2, 2*steadyLag, 2*time.Second) // the end is what it said before
}
