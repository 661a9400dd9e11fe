package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/fsm"
)

// survivor opens the metadata of a node that is down.
func (tn *testNode) survivor() *Survivor {
	tn.t.Helper()
	s, err := OpenSurvivor(tn.cfg.RaftDir, *tn.identity, tn.cfg.Logger)
	if err != nil {
		tn.t.Fatal(err)
	}
	return s
}

// recover makes the kept nodes the only voters in a node's folder.
func (tn *testNode) recover(keep ...fsm.BrokerID) Outlook {
	tn.t.Helper()
	s := tn.survivor()
	o, err := s.Outlook(keep)
	if err != nil {
		tn.t.Fatal(err)
	}
	if err := errors.Join(s.Recover(keep), s.Close()); err != nil {
		tn.t.Fatal(err)
	}
	return o
}

// openSome opens nodes at the same time.
func (c *testCluster) openSome(nodes ...*testNode) {
	c.t.Helper()
	some := testCluster{t: c.t, nodes: nodes}
	some.openAll()
}

// TestRecoverOneOfThree loses two of three controllers for good: the third goes on alone with
// the metadata as it was, and says so at each start.
func TestRecoverOneOfThree(t *testing.T) {
	c := newCluster(t, 3)
	logged := logTo(c)
	c.openAll()
	c.registerAll()
	tn := c.nodes[0]
	self := tn.node.Identity().NodeID
	others := slices.DeleteFunc([]fsm.BrokerID{1, 2, 3}, func(id fsm.BrokerID) bool { return id == self })
	whole := c.leader().create("whole", 1, 2, 3)
	sole := c.leader().create("sole", self)
	c.leader().create("elsewhere", others...)
	index := c.leader().node.Image().Index()
	eventually(t, "it has the metadata", func() bool { return tn.node.Image().Index() >= index })
	for _, other := range c.nodes {
		other.crash()
	}
	o := tn.recover()
	if o.Index < index || !slices.Equal(o.Kept, []fsm.BrokerID{self}) || !slices.Equal(o.GivenUp, others) ||
		o.Topics != 3 || o.Partitions != 3 || o.Complete != 2 || o.Lost != 1 || o.Stale != 0 || o.BelowMinISR != 1 {
		t.Errorf("the outlook is %+v, the metadata ended at %d", o, index)
	}
	c.openSome(tn)
	if voters := tn.node.electorate().size(); voters != 1 {
		t.Errorf("%d voters", voters)
	}
	if len(logged.with("[WARN]", "recovered", fmt.Sprintf("voters %d instead of 1, 2, 3", self))) != 1 {
		t.Error("the start does not say that the cluster was recovered")
	}
	tn.register()
	eventually(t, "it leads what it has", func() bool {
		return tn.partition(sole).Leader == self && tn.partition(whole).Leader == self
	})
	again := tn.create("again", self)
	tn.crash()
	c.openSome(tn) // from its log and the snapshot that the recovery made
	if p := tn.partition(again); len(p.Replicas) != 1 {
		t.Errorf("after a restart: %+v", p)
	}

	// A node that lost its folder can not come back as it was, but as a new one.
	c.nodes[1].wipe()
	c.nodes[1].cfg.NodeID = others[0]
	c.nodes[1].failsToOpen("does not get its old identity back")
	c.nodes[1].cfg.NodeID = 0
	c.nodes[1].mustOpen()
	c.nodes[1].register()
	if id := c.nodes[1].node.Identity().NodeID; id != 4 {
		t.Errorf("the wiped node is node %d", id)
	}
}

// TestRecoverKeepsNodesWithoutAVote: those stay when the voters are given up, and one of them is
// kept where no voter is left.
func TestRecoverKeepsNodesWithoutAVote(t *testing.T) {
	c := newCluster(t, 3)
	c.openAll()
	first := c.addrs()
	fourth, fifth := c.join(first...), c.join(first...)
	fourth.mustOpen()
	fifth.mustOpen()
	c.registerAll()
	topic := c.leader().create("t", 1, 4, 5)
	for _, tn := range []*testNode{fourth, fifth} {
		eventually(t, "it has the topic", func() bool { return len(tn.partition(topic).Replicas) == 3 })
	}
	for _, tn := range c.nodes {
		tn.crash()
	}
	o := fourth.recover()
	if !slices.Equal(o.Kept, []fsm.BrokerID{4}) || !slices.Equal(o.Others, []fsm.BrokerID{5}) || len(o.Voters) != 3 || len(o.GivenUp) != 3 || o.Complete != 1 {
		t.Errorf("the outlook is %+v", o)
	}
	c.openSome(fourth, fifth)
	fourth.register()
	fifth.register()
	if voters, rest := fourth.suffrages(); !slices.Equal(voters, []fsm.BrokerID{4}) || !slices.Equal(rest, []fsm.BrokerID{5}) {
		t.Errorf("voters %v, others %v", voters, rest)
	}
	eventually(t, "the partition has a leader", func() bool { return fourth.partition(topic).Leader != fsm.NoBroker })
}

// TestRecoverTwoOfFive keeps two voters of which one lags: they agree on the longer metadata.
func TestRecoverTwoOfFive(t *testing.T) {
	c := newCluster(t, 5)
	c.openAll()
	c.registerAll()
	ahead := c.leader()
	behind := c.follower()
	first := ahead.create("first", 1)
	eventually(t, "both have it", func() bool { return len(behind.partition(first).Replicas) == 1 })
	behind.crash()
	second := ahead.create("second", 1)
	keep := []fsm.BrokerID{ahead.node.Identity().NodeID, behind.identity.NodeID}
	for _, tn := range c.nodes {
		if tn.node != nil {
			tn.crash()
		}
	}
	a, b := ahead.recover(keep...), behind.recover(keep...)
	if a.Index <= b.Index {
		t.Fatalf("%+v is not ahead of %+v", a, b)
	}
	ahead.recover(keep...) // once more does no harm
	c.openSome(ahead, behind)
	for _, tn := range []*testNode{ahead, behind} {
		if p := tn.partition(second); len(p.Replicas) != 1 {
			t.Errorf("%s: %+v", tn.addr, p)
		}
	}
	if ahead.node.Image().ClusterID() != behind.node.Image().ClusterID() {
		t.Error("two clusters")
	}
}

// TestRecoverRefusals reads what an operator is told.
func TestRecoverRefusals(t *testing.T) {
	c := newCluster(t, 1)
	c.openAll()
	tn := c.nodes[0]
	expect := func(what string, err error, says string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q in it", what, err, says)
		}
	}
	open := func(id Identity) error {
		s, err := OpenSurvivor(tn.cfg.RaftDir, id, nil)
		if err == nil {
			err = s.Close()
		}
		return err
	}
	expect("a node that runs", open(*tn.identity), "another process holds it")
	tn.register()
	tn.create("t", 1)
	if err := tn.node.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	tn.crash()
	stranger := *tn.identity
	stranger.Folder[0]++
	expect("another folder", open(stranger), "by another node")
	_, err := OpenSurvivor(t.TempDir(), *tn.identity, nil)
	expect("an empty folder", err, "there is no metadata")
	s := tn.survivor()
	expect("another node", s.Recover([]fsm.BrokerID{7}), "is not among the nodes to keep")
	expect("a node that is none", s.Recover([]fsm.BrokerID{1, 7}), "not all of [1 7] are nodes of the cluster: its voters are 1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	// Without its snapshot the log alone does as long as it is whole, then it does not.
	folder := filepath.Join(tn.cfg.RaftDir, snapshotsFolder)
	list, err := os.ReadDir(folder)
	if err != nil || len(list) != 1 {
		t.Fatalf("snapshots: %v, %v", list, err)
	}
	state := filepath.Join(folder, list[0].Name(), "state.bin")
	if err := os.WriteFile(state, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(*tn.identity); err != nil {
		t.Errorf("a damaged snapshot beside a whole log: %v", err)
	}
	forget(t, tn)
	expect("a damaged snapshot alone", open(*tn.identity), "recover another surviving node")
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	var gap *GapError
	if err := tn.open(ctx); !errors.As(err, &gap) || len(gap.Damaged) != 1 {
		t.Errorf("a start with a gap: %v", err)
	}
	expect("a start with a gap", gap, "weir recover --data")
}

// TestStartFromTheLogAlone damages every snapshot of a node, in one of two ways, while its log
// has everything: it starts as if there were none, and takes new ones.
func TestStartFromTheLogAlone(t *testing.T) {
	c := newCluster(t, 1)
	c.openAll()
	tn := c.nodes[0]
	tn.register()
	var made []fsm.TopicID
	for i, file := range []string{"state.bin", "meta.json"} {
		made = append(made, tn.create(fmt.Sprint("t", i), 1))
		if err := tn.node.raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		tn.crash()
		list, err := os.ReadDir(filepath.Join(tn.cfg.RaftDir, snapshotsFolder))
		if err != nil || len(list) != 1 {
			t.Fatalf("snapshots: %v, %v", list, err)
		}
		if err := os.WriteFile(filepath.Join(tn.cfg.RaftDir, snapshotsFolder, list[0].Name(), file), []byte("nonsense"), 0o600); err != nil {
			t.Fatal(err)
		}
		c.openSome(tn)
		for _, id := range made {
			if p := tn.partition(id); len(p.Replicas) != 1 {
				t.Errorf("%s was damaged: %+v", file, p)
			}
		}
		aside, err := os.ReadDir(filepath.Join(tn.cfg.RaftDir, damagedFolder))
		if err != nil || len(aside) != i+1 || aside[i].Name() != list[0].Name() {
			t.Errorf("put aside: %v, %v, want %s", aside, err, list[0].Name())
		}
	}
}

// forget deletes the first entries of a node's log.
func forget(t *testing.T, tn *testNode) {
	t.Helper()
	s, err := openStore(tn.cfg.LogFS, tn.cfg.RaftDir, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.DeleteRange(1, 2), s.close()); err != nil {
		t.Fatal(err)
	}
}

// TestSnapshotsAndLog checks which states of a folder are whole.
func TestSnapshotsAndLog(t *testing.T) {
	const good, spoilt, undescribed = "good", "spoilt", "undescribed"
	type snap struct {
		index uint64
		state string
	}
	for _, c := range []struct {
		name        string
		snaps       []snap
		first, last uint64
		whole       bool
	}{
		{"nothing", nil, 0, 0, true},
		{"a log from the start", nil, 1, 9, true},
		{"a log without its start", nil, 2, 9, false},
		{"a snapshot alone", []snap{{5, good}}, 0, 0, true},
		{"a snapshot with the log before it", []snap{{5, good}}, 2, 5, true},
		{"a snapshot with the log behind it", []snap{{5, good}}, 6, 9, true},
		{"a snapshot and a log that begins later", []snap{{5, good}}, 7, 9, false},
		{"damaged, and the log has the rest", []snap{{5, good}, {8, spoilt}}, 3, 9, true},
		{"damaged, and the log has some of the rest", []snap{{5, good}, {8, spoilt}}, 3, 7, false},
		{"damaged, and the log begins behind it", []snap{{5, good}, {8, spoilt}}, 9, 12, false},
		{"damaged, and no log", []snap{{5, good}, {8, spoilt}}, 0, 0, false},
		{"not described, and no log", []snap{{5, good}, {8, undescribed}}, 0, 0, false},
		{"an older one is damaged", []snap{{5, spoilt}, {8, good}}, 9, 12, true},
		{"all damaged, and the log has everything", []snap{{5, spoilt}}, 1, 9, true},
		{"all damaged", []snap{{5, spoilt}, {8, spoilt}}, 6, 9, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := openSnapshots(t.TempDir(), testLogger(t, "snapshots"))
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range c.snaps {
				id, err := takeSnapshot(t, s, x.index, func(string) {})
				if err != nil {
					t.Fatal(err)
				}
				file := map[string]string{spoilt: "state.bin", undescribed: "meta.json"}[x.state]
				if file == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(s.dir, id, file), []byte("X"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			log := raft.NewInmemStore()
			for i := c.first; i <= c.last && i > 0; i++ {
				if err := log.StoreLog(&raft.Log{Index: i, Term: 1}); err != nil {
					t.Fatal(err)
				}
			}
			err = s.checkWhole(log)
			var gap *GapError
			if c.whole != (err == nil) || err != nil && !errors.As(err, &gap) {
				t.Errorf("snapshots %v, log %d to %d: %v, want whole %v", c.snaps, c.first, c.last, err, c.whole)
			}
		})
	}
}
