package broker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/integration/seeds"
	"github.com/weirmq/weir/storage/vfs"
)

// crashable puts the logs of every node on a file system in memory, which loses
// what was not synced in a power cut; nothing is synced unless a test says so.
func crashable(t *testing.T, n int) (*cluster, []*vfs.Mem) {
	seed := seeds.For(t)
	c := prepareCluster(t, n, func(_ int, cfg *Config) {
		cfg.FlushInterval = time.Hour
		cfg.DiskTimeout = time.Hour // a disk that a test holds up does not hang
	})
	disks := make([]*vfs.Mem, n)
	for i := range disks {
		disks[i] = vfs.NewMem(seed + int64(i))
		c.disks[i] = disks[i]
	}
	return c, disks
}

// flush makes everything durable that any node has appended.
func (c *cluster) flush() {
	c.Helper()
	for _, n := range c.nodes {
		for _, p := range n.env.replicas.All() {
			if err := p.log.Flush(); err != nil {
				c.Fatalf("flush %s-%d: %v", p.log.Topic(), p.tp.Partition, err)
			}
		}
	}
}

// powerCut ends all nodes at the same moment and leaves them what their disks kept.
func (c *cluster) powerCut(disks []*vfs.Mem) {
	seed := seeds.For(c)
	for i, d := range disks {
		disks[i] = d.CrashClone(seed)
		c.disks[i] = disks[i]
	}
	c.stopAll()
}

func TestPowerCutOfTheWholeCluster(t *testing.T) {
	for name, tail := range map[string]int{"all synced": 0, "an unsynced tail": 20} {
		t.Run(name, func(t *testing.T) { powerCutOfAll(t, tail) })
	}
}

// powerCutOfAll writes records that are synced and a tail that is not, and cuts
// the power twice.
func powerCutOfAll(t *testing.T, tail int) {
	c, disks := crashable(t, 3)
	c.startAll()
	topics := map[string]fsm.TopicID{}
	for i, rf := range []int16{3, 3, 2, 1} {
		name := fmt.Sprint("t", i)
		topics[name] = c.topic(name, 1, rf)
		c.inSync(fsm.TopicPartition{Topic: topics[name]}, int(rf))
	}
	written := map[string][]string{}
	for round := range 2 {
		for name := range topics {
			from := len(written[name])
			synced := numbered(from, from+30)
			c.produce(name, synced...)
			written[name] = append(written[name], synced...)
		}
		c.flush()
		for name := range topics {
			from := len(written[name])
			c.produce(name, numbered(from, from+tail)...)
		}
		c.powerCut(disks)
		c.startSome(0, 1)
		all := fsm.TopicPartition{Topic: topics["t0"]}
		if p := c.partition(all); p.Leader == 1 || p.Leader == 2 { // 3 may be a leader on paper yet
			t.Errorf("round %d: a leader without having heard all last members: %+v", round, p)
		}
		c.start(2)
		for name, id := range topics {
			tp := fsm.TopicPartition{Topic: id}
			c.leader(tp)
			c.inSync(tp, len(c.partition(tp).Replicas))
			c.sameReplicas(tp)
			written[name] = c.survived(name, tp, written[name], tail)
			if p := c.partition(tp); p.Recovering && len(p.Replicas) > 1 {
				t.Errorf("round %d: %s is still recovering with a full ISR: %+v", round, name, p)
			}
		}
		// One that was deposed before its proposal was applied has counted nothing.
		if got := c.recoveries(); got < 1 || got > int64(len(topics)) {
			t.Errorf("round %d: %d recoveries were counted, want %d or some fewer", round, got, len(topics))
		}
		if got := c.counted("weir_recoveries_total"); got != float64(len(topics)) {
			t.Errorf("round %d: the metrics show %v recoveries", round, got)
		}
		c.until("nothing is recovering any more", func() bool { return c.counted("weir_partitions_recovering") == 0 })
	}
}

// counted reads a metric from all nodes and adds it up.
func (c *cluster) counted(name string) float64 {
	c.Helper()
	var sum float64
	for _, n := range c.nodes {
		families, err := n.metrics.registry.Gather()
		if err != nil {
			c.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == name {
				for _, m := range f.GetMetric() {
					sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
	}
	return sum
}

// survived reads a topic to its end: all that was synced must be there, followed
// by a prefix of the tail. It returns what is there.
func (c *cluster) survived(topic string, tp fsm.TopicPartition, synced []string, tail int) []string {
	c.Helper()
	end := int(c.nodes[c.leader(tp)].env.replicas.Get(tp).log.End())
	want := numbered(0, len(synced)+tail)
	if end < len(synced) || end > len(want) {
		c.Fatalf("%s ends at %d after the power cut, %d records were synced and %d more acknowledged", topic, end, len(synced), tail)
	}
	if got := c.consume(topic, end); !slices.Equal(got, want[:end]) {
		c.Errorf("%s holds %q, want %q", topic, got, want[:end])
	}
	c.Logf("%s: %d synced records, %d of %d others survived", topic, len(synced), end-len(synced), tail)
	return want[:end]
}

// sameReplicas waits until the replicas of tp end alike and the leader can serve all.
func (c *cluster) sameReplicas(tp fsm.TopicPartition) {
	c.Helper()
	c.until("the replicas are equal", func() bool {
		s := c.partition(tp)
		if s.Leader == fsm.NoBroker {
			return false
		}
		end := c.nodes[s.Leader-1].env.replicas.Get(tp).log.End()
		for _, id := range s.Replicas {
			p := c.nodes[id-1].env.replicas.Get(tp)
			if p == nil || p.log.End() != end || p.log.HW() != end {
				return false
			}
		}
		return true
	})
}

func (c *cluster) recoveries() int64 {
	var sum int64
	for _, n := range c.nodes {
		if n != nil {
			sum += n.controller.Recoveries()
		}
	}
	return sum
}

// TestPowerCutOfAMinority: where others surely hold everything nobody is marked
// and nothing is lost, synced or not.
func TestPowerCutOfAMinority(t *testing.T) {
	c, disks := crashable(t, 3)
	c.startAll()
	tp := fsm.TopicPartition{Topic: c.topic("t", 1, 3)}
	c.inSync(tp, 3)
	w := c.write("t")
	c.more(w, 30)
	dead := c.leader(tp)
	c.disks[dead] = disks[dead].CrashClone(0)
	c.kill(dead)
	c.more(w, 30)
	c.start(dead)
	c.inSync(tp, 3)
	c.more(w, 10)
	acked := w.stop()
	c.sameLogs(tp)
	c.holds("t", acked)
	if got := c.recoveries(); got != 0 {
		t.Errorf("%d partitions were elected at the risk of loss, want none", got)
	}
}

// TestDamagedSoleCopyWaits cuts bytes off a log that were flushed: its partition
// has no leader until an operator elects one.
func TestDamagedSoleCopyWaits(t *testing.T) {
	c := newCluster(t, 1)
	tp := fsm.TopicPartition{Topic: c.topic("t", 1, 1)}
	other := fsm.TopicPartition{Topic: c.topic("u", 1, 1)}
	c.produce("t", numbered(0, 10)...)
	c.produce("u", "a")
	folder := c.nodes[0].env.replicas.Get(tp).log.Dir()
	c.flush()
	c.kill(0)
	path := filepath.Join(folder, "00000000000000000000.log")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()-1); err != nil {
		t.Fatal(err)
	}
	c.start(0)
	c.leader(other)
	ctl := c.nodes[0].controller
	ends := c.nodes[0].reconciler.logEnds
	var got []elect.LogEnd
	c.until("the reconciler has acted", func() bool {
		var ok bool
		got, ok = ends(ctl.Image().Index(), []fsm.TopicPartition{tp, other, {Partition: 5}})
		return ok
	})
	if !got[0].Damaged || got[0].End != 9 || got[1].Damaged || got[1].End != 1 || got[2].End != 0 || got[2].Epoch != -1 {
		t.Errorf("the logs end at %+v", got)
	}
	if _, ok := ends(ctl.Image().Index()+1, nil); ok {
		t.Error("it answers for an Image that it has not seen")
	}
	if p := c.partition(tp); p.Leader != fsm.NoBroker || !slices.Equal(p.LastMembers, []fsm.BrokerID{1}) {
		t.Fatalf("the partition of a damaged sole copy: %+v", p)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	res, err := ctl.ElectLeaders(ctx, controller.UncleanElection, []fsm.TopicPartition{tp})
	if err != nil || res[0].Err != 0 {
		t.Fatalf("elect on request: %v %+v", err, res)
	}
	if got := c.consume("t", 9); !slices.Equal(got, numbered(0, 9)) {
		t.Errorf("read %q", got)
	}
	c.produce("t", "new")
	if got := c.consume("t", 10); got[9] != "new" {
		t.Errorf("read %q", got)
	}
}
