package controller

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/weirmq/weir/fsm"
)

func shown(nonce byte, id fsm.BrokerID, list joinList) formReply {
	return formReply{nonce: [16]byte{nonce}, folder: [16]byte{0xf0, nonce}, nodeID: id, list: list}
}

func TestDecideForming(t *testing.T) {
	list := joinList{"a:1", "b:1", "c:1"}
	other := joinList{"a:1", "b:1", "d:1"}
	a, b, c := shown(1, 0, list), shown(2, 0, list), shown(3, 0, list)
	formed := formation{clusterID: "X", members: []member{{1, a.folder, "a:1"}, {2, b.folder, "b:1"}, {3, c.folder, "c:1"}}}
	inCluster := a
	inCluster.formed = &formed
	inOther := b
	inOther.formed = &formation{clusterID: "other"}
	pair := joinList{"a:1", "b:1"}
	a2, b2 := shown(1, 0, pair), shown(2, 0, pair)
	wiped := shown(2, 0, list)
	wiped.folder = [16]byte{0xee}
	wipedByID := shown(9, 2, joinList{"x:1"})
	stranger := shown(9, 7, joinList{"a:1", "z:1"})
	withID := func(r formReply, id fsm.BrokerID) formReply { r.nodeID = id; return r }
	refused := errors.New("connection refused")

	for _, tc := range []struct {
		name    string
		me      formReply
		answers []formAnswer
		want    formStep
		say     string
	}{
		{"first of equal lists founds", a, []formAnswer{{"a:1", a, nil}, {"b:1", b, nil}, {"c:1", c, nil}}, formFound, ""},
		{"others wait for the first", b, []formAnswer{{"a:1", a, nil}, {"b:1", b, nil}, {"c:1", c, nil}}, formWait, "waiting for a:1, the first"},
		{"one is missing", a, []formAnswer{{"a:1", a, nil}, {"b:1", b, nil}, {"c:1", formReply{}, refused}}, formWait, "c:1 (connection refused)"},
		{"unequal list", a, []formAnswer{{"a:1", a, nil}, {"b:1", shown(2, 0, other), nil}, {"c:1", c, nil}}, formBlocked, "b:1 was started with another join list: it has a:1,b:1,d:1"},
		{"two addresses of one node", a, []formAnswer{{"a:1", a, nil}, {"b:1", a, nil}, {"c:1", c, nil}}, formBlocked, "a:1 and b:1 in the join list are the same node"},
		{"list without this node", shown(8, 0, list), []formAnswer{{"a:1", a, nil}, {"b:1", b, nil}, {"c:1", c, nil}}, formBlocked, "none of the addresses"},
		{"duplicate node ids", a, []formAnswer{{"a:1", a, nil}, {"b:1", withID(b, 3), nil}, {"c:1", c, nil}}, formBlocked, "b:1 and c:1 would both be node 3"},
		{"wanted ids", withID(a, 30), []formAnswer{{"a:1", withID(a, 30), nil}, {"b:1", withID(b, 10), nil}, {"c:1", withID(c, 20), nil}}, formFound, ""},
		{"counted by its folder: adopts", b, []formAnswer{{"a:1", inCluster, nil}, {"b:1", b, nil}, {"c:1", formReply{}, refused}}, formAdopt, ""},
		{"lost its folder", wiped, []formAnswer{{"a:1", inCluster, nil}, {"b:1", wiped, nil}, {"c:1", c, nil}}, formJoin, ""},
		{"lost its folder, by node id", wipedByID, []formAnswer{{"a:1", inCluster, nil}}, formRefused, "already has node 2"},
		{"new server", stranger, []formAnswer{{"a:1", inCluster, nil}, {"z:1", stranger, nil}}, formJoin, ""},
		{"new server that nobody lists", stranger, []formAnswer{{"a:1", inCluster, nil}, {"b:1", formReply{}, refused}}, formJoin, ""},
		{"new server beside empty ones", stranger, []formAnswer{{"a:1", a, nil}, {"b:1", inCluster, nil}, {"z:1", stranger, nil}}, formJoin, ""},
		{"two clusters", stranger, []formAnswer{{"a:1", inCluster, nil}, {"b:1", inOther, nil}}, formBlocked, "a:1 belongs to cluster X and b:1 to cluster other: list the nodes of one cluster"},
		{"two of two empty ones", a2, []formAnswer{{"a:1", a2, nil}, {"b:1", b2, nil}}, formRefused, "names 2 nodes, and none of them has a cluster: a new one begins with 1, 3 or 5"},
		{"one of two is missing", a2, []formAnswer{{"a:1", a2, nil}, {"b:1", formReply{}, refused}}, formWait, "waiting for b:1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			step, f, why := decideForming(tc.me, tc.answers)
			if step != tc.want || !strings.Contains(why, tc.say) {
				t.Fatalf("got step %d, %q; want step %d, ...%q...", step, why, tc.want, tc.say)
			}
			if step == formFound {
				for i, m := range f.members {
					want := tc.answers[i].reply.nodeID
					if want == 0 {
						want = fsm.BrokerID(i + 1)
					}
					if m.id != want || m.folder != tc.answers[i].reply.folder || m.addr != tc.answers[i].addr {
						t.Fatalf("member %d is %+v, want id %d of %+v", i, m, want, tc.answers[i])
					}
				}
			}
		})
	}
}

func TestParseJoin(t *testing.T) {
	got, err := parseJoin([]string{" B:9093", "a:19093", "a:9093"})
	if err != nil || got.String() != "a:9093,a:19093,b:9093" {
		t.Fatalf("got %v, %v", got, err)
	}
	if got, err := parseJoin([]string{"[::1]", "host", "10.0.0.1:1"}); err != nil || got.String() != "10.0.0.1:1,[::1]:9093,host:9093" {
		t.Fatalf("got %v, %v", got, err)
	}
	for _, bad := range [][]string{{"a:1", "A:1", "b:1"}, {"a:x"}, {""}, {"a:0"}, {"http://a:1"}} {
		if got, err := parseJoin(bad); err == nil {
			t.Errorf("%q is accepted as %v", bad, got)
		}
	}
}

// TestFormingWaitsAndSaysWhy opens nodes that can not form and checks that none does.
func TestFormingWaitsAndSaysWhy(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(c *testCluster)
		say   string
	}{
		{"a node is missing", func(c *testCluster) { c.nodes[2].close(); c.nodes = c.nodes[:2] }, "waiting for"},
		{"a list is unequal", func(c *testCluster) { c.nodes[1].cfg.Join = c.nodes[1].cfg.Join[:1] }, "another join list"},
		{"node ids collide", func(c *testCluster) { c.nodes[0].cfg.NodeID, c.nodes[1].cfg.NodeID = 5, 5 }, "would both be node 5"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t, 3)
			tc.spoil(c)
			ctx, cancel := context.WithCancel(context.Background())
			errs := make(chan error, len(c.nodes))
			for _, tn := range c.nodes {
				go func() { errs <- tn.open(ctx) }()
			}
			stopAfterRounds(t, c.nodes[0], cancel)
			said := false
			for range c.nodes {
				err := <-errs
				if !errors.Is(err, context.Canceled) {
					t.Errorf("a node ended with %v, want it to wait until it was cancelled", err)
				}
				said = said || strings.Contains(err.Error(), tc.say)
			}
			if !said {
				t.Errorf("no node said %q", tc.say)
			}
		})
	}
}

// stopAfterRounds cancels once a node has been asked a few times, so that it had its chances.
func stopAfterRounds(t *testing.T, tn *testNode, cancel context.CancelFunc) {
	t.Helper()
	asks := 0
	eventually(t, "a node that answers form calls", func() bool {
		c, err := dialPeer(context.Background(), tn.addr, Preface{Kind: KindForm}, func(answer) error { return nil })
		if err != nil {
			return false
		}
		_, _, _, err = readFrame(c)
		_ = c.Close()
		if err == nil {
			asks++
		}
		return asks > 200
	})
	cancel()
}

// TestWipedVoterIsRefused: a voter that lost its log is not that voter any more. Without a wish
// for an id it is a new node.
func TestWipedVoterIsRefused(t *testing.T) {
	c := newCluster(t, 3)
	c.openAll()
	victim := c.follower()
	was := victim.node.Identity()
	victim.close()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()

	kept := victim.identity
	victim.wipe()
	victim.cfg.NodeID = was.NodeID
	if err := victim.open(ctx); err == nil || !strings.Contains(err.Error(), "does not get its old identity back") {
		t.Fatalf("a node that lost everything: %v", err)
	}
	victim.cfg.NodeID = 0
	if err := victim.open(ctx); err != nil {
		t.Fatal(err)
	}
	if id := victim.node.Identity(); id.NodeID != 4 || id.Folder == was.Folder || victim.node.votes(id.NodeID) {
		t.Fatalf("a node that lost everything is %+v, was %+v", id, was)
	}
	victim.close()
	victim.cfg.RaftDir, victim.identity = t.TempDir(), kept
	if err := victim.open(ctx); err == nil || !strings.Contains(err.Error(), "does not get its old identity back") {
		t.Fatalf("a node that lost its Raft log: %v", err)
	}
}

// TestFormingSurvivesAnInterruptedStart stops the founder at the worst place: the formation
// is stored and Raft's term is written, but its entry and the identity are not.
func TestFormingSurvivesAnInterruptedStart(t *testing.T) {
	c := newCluster(t, 1)
	tn := c.nodes[0]
	folder := newUUID()
	f := formation{clusterID: "half-formed", founder: folder, members: []member{{id: 1, folder: folder}}}
	s, err := openStore(tn.cfg.LogFS, tn.cfg.RaftDir, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{s.Set([]byte(keyFolder), folder[:]), s.Set([]byte(keyFormation), encodeFormation(f)), s.SetUint64([]byte(keyTerm), 1), s.close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	c.openAll()
	if got := tn.node.Identity(); got.ClusterID != "half-formed" || got.Folder != folder {
		t.Fatalf("identity after the interruption: %+v", got)
	}
}
