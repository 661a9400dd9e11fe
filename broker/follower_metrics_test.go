package broker

import (
	"fmt"
	"testing"
)

// followers are a node's gauges of a name, by the node that they are about.
func (c *cluster) followers(at int, name string) map[string]float64 {
	c.Helper()
	families, err := c.nodes[at].metrics.registry.Gather()
	if err != nil {
		c.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			out[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
	}
	return out
}

// TestFollowerMetrics: the controller, and nobody else, tells how far each of the others is
// behind; one that is away lacks what is committed meanwhile, and falls silent.
func TestFollowerMetrics(t *testing.T) {
	const lag, silent = "weir_raft_follower_lag_entries", "weir_raft_follower_silent_seconds"
	c := newCluster(t, 3)
	c.topic("t", 1, 3)
	told := -1
	c.until("one node tells of the other two, who lack nothing", func() bool {
		told = -1
		for i := range c.nodes {
			switch got := c.followers(i, lag); len(got) {
			case 0:
			case 2:
				if told >= 0 {
					return false // an old controller has not heard yet
				}
				told = i
				for node, behind := range got {
					if node == fmt.Sprint(i+1) {
						t.Fatalf("node %d tells of itself", i+1)
					}
					if behind != 0 {
						return false
					}
				}
			default:
				t.Fatalf("node %d tells of %v", i+1, got)
			}
		}
		return told >= 0
	})
	away, stays := (told+1)%3, (told+2)%3
	// seen is what the present controller tells of a node.
	seen := func(of int) (lacks, quiet float64, ok bool) {
		for i, n := range c.nodes {
			if n == nil {
				continue
			}
			if lacks, ok = c.followers(i, lag)[fmt.Sprint(of+1)]; ok {
				return lacks, c.followers(i, silent)[fmt.Sprint(of+1)], true
			}
		}
		return 0, 0, false
	}
	c.kill(away)
	c.topic("u", 1, 2)
	c.until("the node that is away lacks entries and is silent", func() bool {
		lacks, quiet, ok := seen(away)
		return ok && lacks > 0 && quiet > 1
	})
	c.until("the other one lacks nothing and is not silent, unless it is the controller by now", func() bool {
		lacks, quiet, ok := seen(stays)
		return !ok && len(c.followers(stays, lag)) > 0 || ok && lacks == 0 && quiet < 1
	})
	c.start(away)
	c.until("it lacks nothing when it is back", func() bool {
		lacks, quiet, ok := seen(away)
		return ok && lacks == 0 && quiet < 1 || !ok && len(c.followers(away, lag)) > 0
	})
}
