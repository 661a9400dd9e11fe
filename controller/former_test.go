package controller

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/fsm"
)

// TestSilentControllerIsFencedBeforeOthers cuts a controller and another broker off at the same
// moment. The new controller learns how long its predecessor has been silent, while of the
// other it knows nothing: that one has all of its session left.
func TestSilentControllerIsFencedBeforeOthers(t *testing.T) {
	c, w := newPartitionable(t, 5)
	for _, tn := range c.nodes {
		tn.cfg.ElectionTimeout, tn.cfg.Session = 1500*time.Millisecond, 3*time.Second
	}
	c.openAll()
	c.registerAll()
	c.calm()
	leader, other := c.leader(), c.follower()
	was, silent := leader.id(), other.id()
	var rest []*testNode
	contact := map[fsm.BrokerID]time.Time{}
	for _, tn := range c.nodes {
		if tn != leader && tn != other {
			rest = append(rest, tn)
			contact[tn.id()] = tn.node.raft.LastContact()
		}
	}
	w.isolate(was)
	w.isolate(silent)
	at := rest[0]
	eventually(t, "the old controller is fenced", func() bool { return at.fencedAt(was) })
	if at.fencedAt(silent) {
		t.Errorf("broker %d, which nobody knows to be silent, is fenced as soon as %d, the controller before", silent, was)
	}
	now, _ := at.node.lead.get()
	for _, tn := range rest {
		f, ok := tn.node.lead.before(now.leader)
		since := time.Since(f.at)
		if !ok || f.leader != leader.node.serverID() || f.at.Before(contact[tn.id()]) || since < at.cfg.ElectionTimeout {
			t.Errorf("node %d answered %q %v ago (known %v), and last %v before it was cut off", tn.id(), f.leader, since, ok, time.Since(contact[tn.id()]))
		}
	}
	eventually(t, "the other broker is fenced", func() bool { return at.fencedAt(silent) })
}

// TestFormerLeaders: what counts is the last answer to any leader before the present one, and
// a leader answers itself up to its end.
func TestFormerLeaders(t *testing.T) {
	began := time.Now()
	l := newLeadership()
	start := l.former.at
	expect := func(what string, leader, was string, exact time.Time) {
		t.Helper()
		f, ok := l.before(raft.ServerID(leader))
		if !ok || f.leader != raft.ServerID(was) || !exact.IsZero() && !f.at.Equal(exact) {
			t.Errorf("%s: %q at %v, %v; want %q at %v", what, f.leader, f.at, ok, was, exact)
		}
	}
	l.follow("a", "me", time.Time{})
	expect("a process that has heard nobody", "a", unknownLeader, start)
	heard := began.Add(time.Minute)
	l.follow("", "me", heard)
	l.follow("b", "me", heard.Add(time.Hour))
	expect("a was silent, then a vote was given", "b", "a", heard)
	if _, ok := l.before("a"); ok {
		t.Error("a asks, and b leads")
	}
	l.follow("", "me", heard.Add(-time.Second))
	l.follow("me", "me", heard)
	expect("an earlier contact than with a", "me", "b", heard)
	l.former.at = start
	l.follow("", "me", start)
	l.follow("b", "me", start)
	expect("this node led", "b", "me", time.Time{})
	if f, _ := l.before("b"); !f.at.After(start) {
		t.Error("the end of this node's own leadership does not count")
	}
}

// TestVerificationCountsLaterRequestsOnly: that a follower accepts what was sent before a question,
// however late, does not show that this node still led after it.
func TestVerificationCountsLaterRequestsOnly(t *testing.T) {
	f, asked := newFollowerEnds(), time.Now()
	f.noted("a", 1, 0, 0, asked.Add(-time.Millisecond), asked.Add(time.Second))
	f.noted("b", 1, 0, 0, asked.Add(time.Millisecond), asked.Add(time.Second))
	f.noted("b", 1, 0, 0, asked.Add(-time.Millisecond), asked.Add(2*time.Second))
	f.noted("c", 1, 0, 0, asked.Add(time.Millisecond), asked.Add(time.Second))
	if got := f.since(asked, []raft.ServerID{"a", "b"}); got != 1 {
		t.Errorf("%d of a and b accepted a request of after the question, want b alone", got)
	}
}

// TestStandingVoterSaysNothing: a voter whose Raft stands still since an earlier tenure of
// the one that asks may yet accept what a controller in between has sent it.
func TestStandingVoterSaysNothing(t *testing.T) {
	c := newCluster(t, 3)
	longSession(c)
	for _, tn := range c.nodes {
		tn.cfg.ElectionTimeout = 1500 * time.Millisecond
	}
	c.openAll()
	c.registerAll()
	asker, between := c.leader(), c.follower()
	standing := c.other(asker, between)
	ask := func() error {
		_, err := asker.node.askVoter(t.Context(), standing.node.serverID(),
			&heardRequest{leader: string(asker.node.serverID()), term: asker.node.raft.CurrentTerm()})
		return err
	}
	eventually(t, "an answer of a voter that has reached the term", func() bool { return ask() == nil })
	release, stands := make(chan struct{}), make(chan struct{}, 10)
	standing.node.raft.RegisterObserver(raft.NewObserver(nil, false, func(o *raft.Observation) bool {
		if _, ok := o.Data.(raft.RequestVoteRequest); ok {
			stands <- struct{}{}
			<-release
		}
		return false
	}))
	defer close(release)
	hand := func(from, to *testNode) {
		t.Helper()
		id := to.node.serverID()
		if err := from.node.raft.LeadershipTransferToServer(id, raft.ServerAddress(id)).Error(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the leadership handed over", to.node.IsLeader)
	}
	hand(asker, between)
	<-stands
	hand(between, asker)
	if err := ask(); err == nil {
		t.Error("a voter that stands still since an earlier term told when it last heard another controller")
	}
}
