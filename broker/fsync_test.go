package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// fsyncTopic creates a topic that acknowledges what is on the disks, and waits until
// its partitions are recorded as such.
func (c *cluster) fsyncTopic(name string, partitions int32, rf int16) fsm.TopicID {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	res, err := kadm.NewClient(c.client()).CreateTopic(ctx, partitions, rf, map[string]*string{fsm.DurabilityConfig: kadm.StringPtr("fsync")}, name)
	if err != nil {
		c.Fatalf("create topic %s: %v", name, err)
	}
	id := fsm.TopicID(res.ID)
	for i := range partitions {
		c.recorded(fsm.TopicPartition{Topic: id, Partition: i}, fsm.DurabilityFsync)
	}
	return id
}

// recorded waits until every node has a partition as one of a durability.
func (c *cluster) recorded(tp fsm.TopicPartition, want fsm.Durability) {
	c.Helper()
	c.until(fmt.Sprintf("a partition is %v", want), func() bool {
		for _, n := range c.nodes {
			if n == nil {
				continue
			}
			if s, ok := n.controller.Image().Partition(tp); !ok || s.Durability != want {
				return false
			}
		}
		return true
	})
}

// TestPowerCutInFsyncDurability cuts the power of all nodes at once, twice. Nothing
// is flushed but what acknowledgements wait for, and nothing that was acknowledged
// is missing; nobody has to be asked who has the best log, so that two of three
// nodes are enough to go on.
func TestPowerCutInFsyncDurability(t *testing.T) {
	c, disks := crashable(t, 3)
	c.startAll()
	topics := map[string]fsm.TopicID{}
	for rf := int16(1); rf <= 3; rf++ {
		name := fmt.Sprint("rf", rf)
		topics[name] = c.fsyncTopic(name, 1, rf)
	}
	written := map[string][]string{}
	for round := range 2 {
		writers := map[string]*writer{}
		for name := range topics {
			writers[name] = c.writeFrom(name, len(written[name]))
		}
		for _, w := range writers {
			c.more(w, 60)
		}
		for name, w := range writers {
			written[name] = append(written[name], w.stop()...)
		}
		c.powerCut(disks)
		c.startSome(0, 1)
		three := fsm.TopicPartition{Topic: topics["rf3"]}
		c.leader(three)
		c.inSync(three, 2)
		c.holds("rf3", written["rf3"])
		c.start(2)
		for name, id := range topics {
			tp := fsm.TopicPartition{Topic: id}
			c.leader(tp)
			c.inSync(tp, len(c.partition(tp).Replicas))
			c.holds(name, written[name])
			c.sameReplicas(tp)
			end := int(c.nodes[c.leader(tp)].env.replicas.Get(tp).log.End())
			written[name] = c.consume(name, end) // the last one may be there unacknowledged
			c.recorded(tp, fsm.DurabilityFsync)
		}
		if got := c.recoveries(); got != 0 {
			t.Errorf("round %d: %d partitions were elected at the risk of loss, want none", round, got)
		}
	}
}

// syncGate holds up the syncs of segment files.
type syncGate struct{ held atomic.Pointer[chan struct{}] }

func (g *syncGate) hook(op vfs.Op, name string) error {
	if held := g.held.Load(); held != nil && op == vfs.OpSync && strings.HasSuffix(name, ".log") {
		<-*held
	}
	return nil
}

func (g *syncGate) hold() {
	held := make(chan struct{})
	g.held.Store(&held)
}

func (g *syncGate) release() {
	if held := g.held.Swap(nil); held != nil {
		close(*held)
	}
}

// TestFsyncWaitsForTheDisks holds up the disks of all nodes, or of one, and cuts the
// power: a record that all nodes have written, and the leader knows that they have,
// is not acknowledged.
func TestFsyncWaitsForTheDisks(t *testing.T) {
	for _, slow := range [][]int{{0, 1, 2}, {0}, {1}, {2}} {
		t.Run(fmt.Sprint(slow), func(t *testing.T) { fsyncWaits(t, slow) })
	}
}

func fsyncWaits(t *testing.T, slow []int) {
	c, disks := crashable(t, 3)
	gates := make([]syncGate, 3)
	for i := range gates {
		c.disks[i] = vfs.NewFaulty(disks[i], gates[i].hook)
		t.Cleanup(gates[i].release)
	}
	c.startAll()
	tp := fsm.TopicPartition{Topic: c.fsyncTopic("t", 1, 3)}
	c.inSync(tp, 3)
	c.produce("t", numbered(0, 10)...)
	for _, i := range slow {
		gates[i].hold()
	}
	ctx, cancel := context.WithCancel(t.Context())
	var acked atomic.Bool
	cl := c.client(kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	cl.Produce(ctx, kgo.StringRecord("v10"), func(_ *kgo.Record, err error) { acked.Store(err == nil) })
	var hw batch.Offset
	c.until("the leader knows that all have written the record", func() bool {
		l := c.leader(tp)
		p := c.nodes[l].env.replicas.Get(tp)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.role != roleLeader {
			return false
		}
		hw = p.hw
		for _, id := range p.replicas {
			if end, ok := p.lead.Covers(id, 11); int(id) != l+1 && (!ok || end < 11) {
				return false
			}
		}
		return true
	})
	if hw > 10 || acked.Load() {
		t.Errorf("the high watermark is %d, acknowledged %v, while a disk is held up", hw, acked.Load())
	}
	cancel()
	for i := range disks {
		disks[i] = disks[i].CrashClone(0)
		c.disks[i] = disks[i]
		gates[i].release()
	}
	c.stopAll()
	c.startAll()
	c.leader(tp)
	c.inSync(tp, 3)
	c.holds("t", numbered(0, 10))
}

// TestDurabilityChanges turns it on and off while records are written. Replicated
// ones stay unsynced until something flushes them; those acknowledged under fsync,
// and all before them, are on every disk.
func TestDurabilityChanges(t *testing.T) {
	c, disks := crashable(t, 3)
	c.startAll()
	tp := fsm.TopicPartition{Topic: c.topic("t", 1, 3)}
	c.inSync(tp, 3)
	set := func(value *string, want fsm.Durability) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		op := kadm.AlterConfig{Op: kadm.SetConfig, Name: fsm.DurabilityConfig, Value: value}
		if value == nil {
			op.Op = kadm.DeleteConfig
		}
		res, err := kadm.NewClient(c.client()).AlterTopicConfigs(ctx, []kadm.AlterConfig{op}, "t")
		if err != nil || res[0].Err != nil {
			t.Fatalf("set the durability to %v: %v, %+v", value, err, res)
		}
		c.recorded(tp, want)
	}
	flushed := func() (ends []int) {
		for _, n := range c.nodes {
			ends = append(ends, int(n.env.replicas.Get(tp).log.Flushed()))
		}
		return ends
	}
	c.produce("t", numbered(0, 30)...)
	if got := flushed(); slices.Max(got) > 0 {
		t.Errorf("flushed to %v without being told to", got)
	}
	set(kadm.StringPtr("fsync"), fsm.DurabilityFsync)
	if got := flushed(); slices.Min(got) < 30 {
		t.Errorf("flushed to %v when the partition was recorded, with 30 records acknowledged before", got)
	}
	c.produce("t", numbered(30, 40)...)
	if got := flushed(); slices.Min(got) < 40 {
		t.Errorf("flushed to %v with 40 records acknowledged", got)
	}
	if got := c.counted("weir_unsynced_bytes") + c.counted("weir_unsynced_seconds"); got != 0 {
		t.Errorf("the metrics show an unsynced tail: %v", got)
	}
	set(nil, fsm.DurabilityReplicated)
	c.produce("t", numbered(40, 50)...)
	if got := flushed(); slices.Max(got) > 40 {
		t.Errorf("flushed to %v, want no more than 40", got)
	}
	if c.counted("weir_unsynced_bytes") <= 0 || c.counted("weir_unsynced_seconds") <= 0 {
		t.Error("the metrics show no unsynced tail")
	}
	c.powerCut(disks)
	c.startAll()
	c.leader(tp)
	c.survived("t", tp, numbered(0, 40), 10)
}
