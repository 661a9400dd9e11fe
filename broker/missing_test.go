package broker

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage/vfs"
)

// removeFolder takes the folder of t-0 away from node i, behind its back.
func (c *cluster) removeFolder(i int) {
	c.Helper()
	folder := filepath.Join(c.configs[i].DataDir, "t-0")
	if _, err := c.disks[i].Stat(folder); err != nil {
		c.Fatal(err)
	}
	c.until("the folder is removed, in which the node makes files meanwhile", func() bool { return c.disks[i].RemoveAll(folder) == nil })
}

// TestNobodyIsElectedWithoutAFolder removes a folder between two runs of a node that was
// one of the last two in the ISR, and starts it with the third, which had left the ISR. It
// must not lead until the other one is back: whether a checkpoint tells that there were
// records, or the node was killed before it wrote one.
func TestNobodyIsElectedWithoutAFolder(t *testing.T) {
	for name, told := range map[string]bool{"a checkpoint tells": true, "no checkpoint tells": false} {
		t.Run(name, func(t *testing.T) {
			c, disks := crashable(t, 3)
			c.startAll()
			tp := fsm.TopicPartition{Topic: c.topic("t", 1, 3)}
			c.inSync(tp, 3)
			c.produce("t", numbered(0, 10)...)
			c.kill(2)
			c.inSync(tp, 2)
			c.produce("t", numbered(10, 20)...)
			before := disks[0].ProcessClone()
			c.kill(0)
			c.kill(1)
			if !told {
				c.disks[0] = before
			}
			c.removeFolder(0)
			c.startSome(0, 2)
			c.until("nobody but the node that is away is fit to lead", func() bool {
				p := c.partition(tp)
				return len(p.ISR) == 0 && slices.Equal(p.ELR, []fsm.BrokerID{2})
			})
			if p := c.partition(tp); p.Leader != fsm.NoBroker || !slices.Contains(p.LastMembers, 1) {
				t.Fatalf("without the only node that has all: %+v", p)
			}
			c.start(1)
			if l := c.leader(tp); l != 1 {
				t.Fatalf("node %d leads, and node 2 alone had all", l+1)
			}
			c.inSync(tp, 3)
			if got := c.consume("t", 20); !slices.Equal(got, numbered(0, 20)) {
				t.Errorf("read %q", got)
			}
			c.sameReplicas(tp)
		})
	}
}

// TestFolderGoneWhileServing removes the folder of a leader, and then of a follower, while
// records are written: the node goes on, gives up its seat, and fetches everything again.
func TestFolderGoneWhileServing(t *testing.T) {
	c := newCluster(t, 3, func(_ int, cfg *Config) { cfg.FlushInterval = 10 * time.Millisecond })
	tp := fsm.TopicPartition{Topic: c.topic("t", 1, 3)}
	c.inSync(tp, 3)
	w := c.write("t")
	c.more(w, 50)
	for _, leading := range []bool{true, false} {
		i := c.leader(tp)
		if !leading {
			i = (i + 1) % 3
		}
		n, epoch := c.nodes[i], c.nodes[i].env.epoch()
		p := n.env.replicas.Get(tp)
		c.removeFolder(i)
		c.until("the loss is found", func() bool { return n.dir.DamageFound() > 0 })
		c.until("the folder is there again", func() bool {
			_, err := os.Stat(filepath.Join(p.log.Dir(), "partition.metadata"))
			return err == nil && p.log.Damaged() == nil
		})
		c.inSync(tp, 3)
		if c.nodes[i].env.epoch() != epoch {
			t.Errorf("node %d registered again", i+1)
		}
		if leading && c.leader(tp) == i {
			t.Errorf("node %d still leads", i+1)
		}
		c.more(w, 50)
	}
	acked := w.stop()
	c.sameLogs(tp)
	c.holds("t", acked)
	c.stopAll()
	c.startAll()
	c.inSync(tp, 3)
	c.holds("t", acked)
}

// TestLostSoleCopyWaits removes what the only replica had: all of it, or the file that says
// whose it is. Nobody begins anew without being told to.
func TestLostSoleCopyWaits(t *testing.T) {
	for name, remove := range map[string]func(disk vfs.FS, folder string) error{
		"the folder": func(disk vfs.FS, folder string) error { return disk.RemoveAll(folder) },
		"its identity": func(disk vfs.FS, folder string) error {
			return disk.Remove(filepath.Join(folder, "partition.metadata"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1)
			tp := fsm.TopicPartition{Topic: c.topic("t", 1, 1)}
			other := fsm.TopicPartition{Topic: c.topic("u", 1, 1)}
			c.produce("t", numbered(0, 10)...)
			c.kill(0)
			if err := remove(c.disks[0], filepath.Join(c.configs[0].DataDir, "t-0")); err != nil {
				t.Fatal(err)
			}
			for range 2 { // a restart makes it no better
				c.start(0)
				c.leader(other)
				ctl := c.nodes[0].controller
				c.until("the reconciler has acted", func() bool {
					ends, ok := c.nodes[0].reconciler.logEnds(ctl.Image().Index(), []fsm.TopicPartition{tp})
					return ok && ends[0].Damaged
				})
				if p := c.partition(tp); p.Leader != fsm.NoBroker || !slices.Equal(p.LastMembers, []fsm.BrokerID{1}) {
					t.Fatalf("the partition of a lost sole copy: %+v", p)
				}
				c.kill(0)
			}
			c.start(0)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			res, err := c.nodes[0].controller.ElectLeaders(ctx, controller.UncleanElection, []fsm.TopicPartition{tp})
			if err != nil || res[0].Err != 0 {
				t.Fatalf("elect on request: %v %+v", err, res)
			}
			c.produce("t", "new")
			c.kill(0)
			c.start(0)
			if got := c.consume("t", 1); got[0] != "new" {
				t.Errorf("read %q", got)
			}
		})
	}
}
