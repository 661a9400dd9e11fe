package broker

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/integration/loopback"
	"github.com/weirmq/weir/storage/vfs"
)

// patience bounds every wait of these tests on a machine that is busy.
const patience = 2 * time.Minute

// cluster is a cluster of nodes in this process, on loopback sockets and in
// temporary folders.
type cluster struct {
	*testing.T
	configs []Config
	nodes   []*Node   // nil while stopped
	disks   []vfs.FS  // what the logs are on
	members []*member // those that have joined a group, for account
}

// newCluster starts n nodes, with settings that change may alter. Sessions are
// short, so that a failover is, too.
func newCluster(t *testing.T, n int, change ...func(node int, cfg *Config)) *cluster {
	c := prepareCluster(t, n, change...)
	c.startAll()
	return c
}

// prepareCluster makes the settings of n nodes and starts none.
func prepareCluster(t *testing.T, n int, change ...func(node int, cfg *Config)) *cluster {
	c := &cluster{T: t, configs: make([]Config, n), nodes: make([]*Node, n), disks: make([]vfs.FS, n)}
	addrs := freeAddresses(t, 2*n)
	join, clients := addrs[:n:n], addrs[n:]
	slices.SortFunc(join, func(a, b string) int { return cmp.Or(len(a)-len(b), cmp.Compare(a, b)) }) // ids follow this order
	dir := t.TempDir()
	for i := range c.configs {
		cfg := DefaultConfig()
		cfg.DataDir = filepath.Join(dir, fmt.Sprint("node", i+1))
		cfg.ClientListen, cfg.PeerListen, cfg.AdminListen = clients[i], join[i], "none"
		cfg.Session, cfg.Heartbeat = 1500*time.Millisecond, 100*time.Millisecond
		cfg.ReplicaLagMax = 2 * time.Second
		if n > 1 {
			cfg.Join = join
		}
		if os.Getenv("WEIR_TEST_LOG") != "" {
			cfg.Logger = hclog.New(&hclog.LoggerOptions{Name: fmt.Sprint("node", i+1), Level: hclog.Debug})
		}
		for _, f := range change {
			f(i, &cfg)
		}
		c.configs[i], c.disks[i] = cfg, vfs.OS()
	}
	t.Cleanup(c.stopAll)
	return c
}

// startAll opens all nodes at the same time.
func (c *cluster) startAll() {
	c.Helper()
	all := make([]int, len(c.nodes))
	for i := range all {
		all[i] = i
	}
	c.startSome(all...)
}

// startSome opens some nodes at the same time.
func (c *cluster) startSome(some ...int) {
	c.Helper()
	var starting sync.WaitGroup
	for _, i := range some {
		starting.Go(func() { c.start(i) })
	}
	starting.Wait()
	if c.Failed() {
		c.FailNow()
	}
}

// freeAddresses are n loopback addresses that nobody listens on.
func freeAddresses(t *testing.T, n int) []string {
	t.Helper()
	addrs, err := loopback.FreeAddresses(n)
	if err != nil {
		t.Fatal(err)
	}
	return addrs
}

// start opens node i, which must not run.
func (c *cluster) start(i int) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n, err := openOn(ctx, c.configs[i], c.disks[i])
	if err != nil {
		c.Errorf("open node %d: %v", i+1, err)
		return
	}
	if int(n.ID()) != i+1 {
		c.Errorf("node %d has id %d", i+1, n.ID())
	}
	c.nodes[i] = n
}

func (c *cluster) stopAll() {
	for i, n := range c.nodes {
		if n != nil {
			n.Abort()
			c.nodes[i] = nil
		}
	}
}

// kill ends node i as a crash of its process would.
func (c *cluster) kill(i int) {
	c.nodes[i].Abort()
	c.nodes[i] = nil
}

// stop ends node i in order.
func (c *cluster) stop(i int) {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.nodes[i].Close(ctx); err != nil {
		c.Errorf("close node %d: %v", i+1, err)
	}
	c.nodes[i] = nil
}

// client connects to all nodes.
func (c *cluster) client(opts ...kgo.Opt) *kgo.Client {
	c.Helper()
	var seeds []string
	for _, cfg := range c.configs {
		seeds = append(seeds, cfg.ClientListen)
	}
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.MetadataMinAge(100 * time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
	}, opts...)...)
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(cl.Close)
	return cl
}

// topic creates a topic and returns its id.
func (c *cluster) topic(name string, partitions int32, rf int16) fsm.TopicID {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	res, err := kadm.NewClient(c.client()).CreateTopic(ctx, partitions, rf, nil, name)
	if err != nil {
		c.Fatalf("create topic %s: %v", name, err)
	}
	return fsm.TopicID(res.ID)
}

// until waits for a condition.
func (c *cluster) until(what string, ok func() bool) {
	c.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			c.account()
			c.Fatalf("gave up waiting until %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// any is a node that runs.
func (c *cluster) any() *Node {
	for _, n := range c.nodes {
		if n != nil {
			return n
		}
	}
	c.Fatal("no node runs")
	return nil
}

func (c *cluster) partition(tp fsm.TopicPartition) fsm.Partition {
	s, _ := c.any().controller.Image().Partition(tp)
	return s
}

// leader is the index of the node that leads tp.
func (c *cluster) leader(tp fsm.TopicPartition) int {
	c.Helper()
	c.until("there is a leader", func() bool {
		l := c.partition(tp).Leader
		return l != fsm.NoBroker && c.nodes[l-1] != nil
	})
	return int(c.partition(tp).Leader) - 1
}

// inSync waits until every running node has seen the ISR reach a size: a client
// may ask any of them for metadata.
func (c *cluster) inSync(tp fsm.TopicPartition, want int) {
	c.Helper()
	c.until(fmt.Sprintf("the ISR holds %d on every node", want), func() bool {
		for _, n := range c.nodes {
			if n == nil {
				continue
			}
			if s, _ := n.controller.Image().Partition(tp); len(s.ISR) != want {
				return false
			}
		}
		return true
	})
}

// produce sends values one by one with acks=all and fails the test on any error.
func (c *cluster) produce(topic string, values ...string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	cl := c.client(kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for _, v := range values {
		if err := cl.ProduceSync(ctx, kgo.StringRecord(v)).FirstErr(); err != nil {
			c.Fatalf("produce %q to %s: %v", v, topic, err)
		}
	}
}

// consume reads n records of partition 0 from the start.
func (c *cluster) consume(topic string, n int) []string {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	cl := c.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	var got []string
	for len(got) < n {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			c.Fatalf("read %d of %d records of %s: %q", len(got), n, topic, got)
		}
		fetches.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	return got
}

// sameLogs waits until all replicas of tp that run hold the same log up to the
// same end and high watermark.
func (c *cluster) sameLogs(tp fsm.TopicPartition) {
	c.Helper()
	c.until("all replicas are equal", func() bool {
		var first *Partition
		for _, n := range c.nodes {
			if n == nil {
				continue
			}
			p := n.env.replicas.Get(tp)
			if p == nil {
				return false
			}
			if first == nil {
				first = p
			}
			if p.log.End() != first.log.End() || p.log.HW() != first.log.End() || p.log.LastEpoch() != first.log.LastEpoch() {
				return false
			}
		}
		return first != nil
	})
}

func numbered(from, to int) []string {
	var vs []string
	for i := from; i < to; i++ {
		vs = append(vs, fmt.Sprint("v", i))
	}
	return vs
}
