package main

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/broker"
	"github.com/weirmq/weir/integration/loopback"
)

// startNodes starts a cluster of three; the verbs speak to the first of them.
func startNodes(t *testing.T) (first *node, all []*broker.Node) {
	free, err := loopback.FreeAddresses(6)
	if err != nil {
		t.Fatal(err)
	}
	all = make([]*broker.Node, 3)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var starting sync.WaitGroup
	for i := range all {
		cfg := broker.DefaultConfig()
		cfg.DataDir, cfg.AdminListen, cfg.NodeID = t.TempDir(), "none", int32(i+1)
		cfg.ClientListen, cfg.PeerListen, cfg.Join = free[i], free[3+i], free[3:]
		starting.Go(func() {
			n, err := broker.Open(ctx, cfg)
			if err != nil {
				t.Errorf("open node %d: %v", i+1, err)
				return
			}
			t.Cleanup(n.Abort)
			all[i] = n
		})
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return &node{t, all[0].Addr()}, all
}

// placed is where the partitions of a topic are.
func (n *node) placed(topic string) [][]int32 {
	n.Helper()
	var out [][]int32
	for _, d := range decode[[]struct{ Partitions []struct{ Replicas []int32 } }](n.T, n.must("", "topic describe -o json "+topic)) {
		for _, p := range d.Partitions {
			out = append(out, p.Replicas)
		}
	}
	return out
}

func TestPartitionVerbs(t *testing.T) {
	s, nodes := startNodes(t)
	s.says("topic create t -p 2 -r 2", 0, "t created")
	s.must("a\nb\nc\nd\ne\n", "produce t -p 0")
	s.says("partition status", 0, "nothing is on the move")
	s.says("partition cancel", 0, "nothing to do")

	s.says("partition move t -p 0:1,2 -p 1:2,1 --wait", 0)
	if got := s.placed("t"); !slices.Equal(got[0], []int32{1, 2}) || !slices.Equal(got[1], []int32{2, 1}) {
		t.Errorf("the partitions are on %v", got)
	}
	s.says("partition move t -p 0:1,2", 0, "nothing to do")
	s.says("partition move t --from 2 --dry-run", 0, "t 0 1,2 1,3 would move", "t 1 2,1 3,1 would move")
	s.says("partition move t:1 --from 2 --wait", 0, "t 1 2,1 3,1 moved")
	s.says("partition move t --from 1 --wait", 0, "t 0 1,2", "t 1 3,1 3,2 moved")
	s.says("partition move t -r 1 --to 3 --wait", 0, "t 0", "3 moved")
	s.says("partition move t -p 0:1,9 -p 1:2", 4, "INVALID_REPLICA_ASSIGNMENT", "1 of 2 partitions failed", "t 1 3 2 moving")
	s.says("partition move t -p 0:9", 1, "no broker 9", "weir cluster info")
	s.says("partition move t --to 1,2 -r 3", 1, "only 2 can be chosen")
	s.says("partition move none --to 1", 3, "weir topic list")
	s.says("partition move t:7 --to 1", 3, "no partition 7")
	s.says("partition move t --to 8", 3, "no node 8")

	// A move to a node that is down waits for it, or for somebody who cancels it.
	s.says("partition move t -p 0:1 -p 1:1 --wait", 0)
	nodes[2].Abort()
	s.says("partition move t -p 0:1,3", 0, "t 0 1 1,3 moving")
	rows := decode[[]struct {
		Topic            string
		Adding, Removing []int32
		ISR              []int32 `json:"isr"`
	}](t, s.must("", "partition status -o json"))
	if len(rows) != 1 || rows[0].Topic != "t" || !slices.Equal(rows[0].Adding, []int32{3}) || len(rows[0].Removing) > 0 || !slices.Equal(rows[0].ISR, []int32{1}) {
		t.Errorf("on the move: %+v", rows)
	}
	s.says("partition status t", 0, "t 0 1,3 3 - 1 0% of")
	s.says("partition status t:1", 0, "nothing is on the move")
	s.says("partition cancel t --wait", 0, "t 0 1,3 - cancelled")
	s.says("partition status", 0, "nothing is on the move")
	if got := s.must("", "consume t -e -o start -f %v,"); len(got) != len("a,b,c,d,e,") {
		t.Errorf("read %q", got)
	}
}
