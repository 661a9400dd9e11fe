package group_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/broker/group"
	"github.com/weirmq/weir/fsm"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestCodesHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range group.Codes() {
		name := c.String()
		if name == "" || strings.HasPrefix(name, "Code(") || seen[name] {
			t.Errorf("code %d is called %q", c, name)
		}
		seen[name] = true
	}
	if len(seen) != 19 {
		t.Errorf("there are %d codes", len(seen))
	}
}

// TestIdle: a group may be dropped when nobody would miss it.
func TestIdle(t *testing.T) {
	c := group.DefaultConfig()
	g := group.New("g", c)
	if !g.Idle() {
		t.Error("a new group is not idle")
	}
	join := group.JoinRequest{NewID: "m1", ClientID: "c", SessionTimeout: 10 * time.Second, RebalanceTimeout: time.Minute, ProtocolType: "consumer",
		Protocols: []fsm.GroupProtocol{{Name: "range"}}, KnownIDRequired: true}
	g.Join(noon, 1, join, nil)
	if g.Idle() {
		t.Error("a group is idle that has given out an id")
	}
	join.MemberID = "m1"
	g.Join(noon, 2, join, nil)
	if g.Idle() {
		t.Error("a group with a member is idle")
	}
	g.Leave(noon, 3, group.LeaveRequest{Members: []group.LeaveMember{{MemberID: "m1"}}})
	out := g.Expire(noon.Add(3 * time.Second))
	if out.Put == nil || g.Idle() {
		t.Errorf("a group is idle while %v is being stored", out.Put)
	}
	out = g.Committed(noon.Add(3*time.Second), out.Seq)
	if !g.Idle() || len(out.Replies) != 0 {
		t.Error("an empty group is not idle")
	}
}

// TestIDsGivenOutAreBounded: of ids that nobody comes back with the last are
// remembered, whatever sessions were asked for; an older one is told to begin anew.
func TestIDsGivenOutAreBounded(t *testing.T) {
	const given, kept = 1500, 1000
	g := group.New("g", group.DefaultConfig())
	join := func(i int, member string, session time.Duration) group.Code {
		out := g.Join(noon.Add(time.Duration(i)*time.Millisecond), group.Ticket(i+1), group.JoinRequest{
			MemberID: member, NewID: fmt.Sprintf("m%d", i), SessionTimeout: session, RebalanceTimeout: time.Minute, ProtocolType: "consumer",
			Protocols: []fsm.GroupProtocol{{Name: "range"}}, KnownIDRequired: true}, nil)
		if len(out.Replies) == 0 {
			return group.None // it waits for the others
		}
		return out.Replies[0].Answer.(group.JoinReply).Code
	}
	for i := range given {
		session := 10 * time.Second
		if i >= given-kept/2 {
			session = 30 * time.Minute // the last half of those that are kept
		}
		if code := join(i, "", session); code != group.MemberIDRequired {
			t.Fatalf("join %d: %v", i, code)
		}
	}
	if !g.Unborn() {
		t.Error("a group without members is born")
	}
	for member, want := range map[string]group.Code{"m0": group.UnknownMember, "m499": group.UnknownMember, "m500": group.None, "m1499": group.None} {
		if code := join(given, member, 10*time.Second); code != want {
			t.Errorf("%s comes back: %v, want %v", member, code, want)
		}
	}
	if g.Unborn() {
		t.Error("a group with members is unborn")
	}
}

// TestHistoryIsBounded: the flight recorder keeps the last transitions.
func TestHistoryIsBounded(t *testing.T) {
	c := group.DefaultConfig()
	c.AssignmentInterval = 0
	g := group.New("g", c)
	for i := range 50 {
		g.ConsumerHeartbeat(noon.Add(time.Duration(i)*time.Second), group.Ticket(i), group.ConsumerRequest{MemberID: fmt.Sprintf("m%02d", i), ClientID: "c", ClientHost: "h",
			RebalanceTimeout: time.Minute, Topics: []string{"t"}, Owned: []fsm.TopicPartitions{}}, topicSet{})
	}
	all := g.History()
	if len(all) != 32 {
		t.Fatalf("%d transitions are kept", len(all))
	}
	for i := 1; i < len(all); i++ {
		if all[i].At.Before(all[i-1].At) || all[i].From != all[i-1].To {
			t.Errorf("transition %d (%v→%v at %v) does not follow %d (%v→%v at %v)", i, all[i].From, all[i].To, all[i].At, i-1, all[i-1].From, all[i-1].To, all[i-1].At)
		}
	}
	if last := all[len(all)-1]; last.Epoch != 50 {
		t.Errorf("the last is %+v", last)
	}
}

// TestRowIsNotShared: a row that was handed out does not change any more.
func TestRowIsNotShared(t *testing.T) {
	c := group.DefaultConfig()
	c.AssignmentInterval = 0
	g := group.New("g", c)
	topics := topicSet{"t": {ID: topicID("t"), Name: "t", Partitions: 4}}
	join := group.ConsumerRequest{MemberID: "a", RebalanceTimeout: time.Minute, Topics: []string{"t"}, Owned: []fsm.TopicPartitions{}}
	out := g.ConsumerHeartbeat(noon, 1, join, topics)
	before := printRow(out.Put, topics)
	join.MemberID = "b"
	g.ConsumerHeartbeat(noon, 2, join, topics)
	g.ConsumerHeartbeat(noon, 3, group.ConsumerRequest{MemberID: "a", Epoch: 1, RebalanceTimeout: -1}, topics)
	if after := printRow(out.Put, topics); after != before {
		t.Errorf("the row was\n%sand is\n%s", before, after)
	}
}

// TestLongNames: what cannot be stored is refused before anything is done.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("x", 1<<15)
	g := group.New("g", group.DefaultConfig())
	join := group.JoinRequest{NewID: "m1", ClientID: long, SessionTimeout: 10 * time.Second, ProtocolType: "consumer", Protocols: []fsm.GroupProtocol{{Name: "range"}}}
	for i, change := range []func(*group.JoinRequest){
		func(*group.JoinRequest) {},
		func(r *group.JoinRequest) { r.InstanceID = long },
		func(r *group.JoinRequest) { r.ProtocolType = long },
		func(r *group.JoinRequest) { r.Protocols = []fsm.GroupProtocol{{Name: long}} },
	} {
		r := join
		if i > 0 {
			r.ClientID = "c"
		}
		change(&r)
		out := g.Join(noon, group.Ticket(i), r, nil)
		if a := out.Replies[0].Answer.(group.JoinReply); a.Code != group.InvalidRequest {
			t.Errorf("case %d is answered %s", i, a.Code)
		}
	}
	for i, r := range []group.ConsumerRequest{
		{MemberID: long}, {MemberID: "a", Topics: []string{long}}, {MemberID: "a", Regex: &long}, {MemberID: "a", Rack: &long},
	} {
		r.RebalanceTimeout, r.Owned = time.Minute, []fsm.TopicPartitions{}
		if r.Topics == nil {
			r.Topics = []string{"t"}
		}
		out := g.ConsumerHeartbeat(noon, group.Ticket(10+i), r, topicSet{})
		if a := out.Replies[0].Answer.(group.ConsumerReply); a.Code != group.InvalidRequest {
			t.Errorf("consumer case %d is answered %s", i, a.Code)
		}
	}
	if !g.Idle() {
		t.Error("a refused join left something behind")
	}
}
