package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/fsm"
)

// operator is an admin client of a cluster under test.
type operator struct {
	*cluster
	cl  *kgo.Client
	adm *kadm.Client
	ctx context.Context
}

func (c *cluster) operator() *operator {
	cl := c.client()
	ctx, cancel := context.WithTimeout(c.Context(), 4*patience)
	c.Cleanup(cancel)
	return &operator{c, cl, kadm.NewClient(cl), ctx}
}

// set changes configs of a topic and returns the error of the first.
func (o *operator) set(topic string, ops ...kadm.AlterConfig) error {
	o.Helper()
	got, err := o.adm.AlterTopicConfigs(o.ctx, ops, topic)
	if err != nil {
		o.Fatal(err)
	}
	return got[0].Err
}

// configured waits until whichever node is asked shows a topic's config with a value
// from a source. A node may be a moment behind the one that was told of a change.
func (o *operator) configured(topic, name, value, source string) {
	o.Helper()
	o.until(fmt.Sprintf("%s is %s from %s", name, value, source), func() bool {
		got, err := o.adm.DescribeTopicConfigs(o.ctx, topic)
		if err != nil {
			o.Fatal(err)
		}
		return slices.ContainsFunc(got[0].Configs, func(c kadm.Config) bool {
			return c.Key == name && c.MaybeValue() == value && c.Source.String() == source
		})
	})
}

// starts are the log starts of a partition on all nodes that run.
func (o *operator) starts(tp fsm.TopicPartition) []int64 {
	var out []int64
	for _, n := range o.nodes {
		if n == nil {
			continue
		}
		if p := n.env.replicas.Get(tp); p != nil {
			out = append(out, int64(p.log.Start()))
		}
	}
	return out
}

func TestOperateTopicConfigs(t *testing.T) {
	c := newCluster(t, 3)
	o := c.operator()
	c.topic("t", 1, 3)
	if err := o.set("t", kadm.AlterConfig{Name: "max.message.bytes", Value: kadm.StringPtr("500")}, kadm.AlterConfig{Name: "min.insync.replicas", Value: kadm.StringPtr("3")}); err != nil {
		t.Fatal(err)
	}
	o.configured("t", "max.message.bytes", "500", "DYNAMIC_TOPIC_CONFIG")
	big := kgo.SliceRecord(randomBytes(1000)) // which no codec makes smaller
	big.Topic = "t"
	c.until("a batch of 1000 bytes is refused", func() bool {
		return errors.Is(o.cl.ProduceSync(o.ctx, big).FirstErr(), kerr.MessageTooLarge)
	})
	if err := o.set("t", kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "max.message.bytes"}); err != nil {
		t.Fatal(err)
	}
	o.configured("t", "max.message.bytes", "1048588", "DEFAULT_CONFIG")
	c.until("the batch is taken", func() bool { return o.cl.ProduceSync(o.ctx, big).FirstErr() == nil })

	for name, value := range map[string]string{"flush.ms": "1", "cleanup.policy": "erase", "retention.ms": "soon", "retention.mss": "1"} {
		if err := o.set("t", kadm.AlterConfig{Name: name, Value: &value}); !errors.Is(err, kerr.InvalidConfig) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
	valid, err := o.adm.ValidateAlterTopicConfigs(o.ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: kadm.StringPtr("1")}}, "t")
	if err != nil || valid[0].Err != nil {
		t.Error(err, valid)
	}
	o.configured("t", "retention.ms", "604800000", "DEFAULT_CONFIG")
	whole, err := o.adm.AlterTopicConfigsState(o.ctx, []kadm.AlterConfig{{Name: "segment.ms", Value: kadm.StringPtr("9")}}, "t")
	if err != nil || whole[0].Err != nil {
		t.Fatal(err, whole)
	}
	if topic, _ := c.any().controller.Image().TopicByName("t"); len(topic.Configs) != 1 || topic.Configs["segment.ms"] != "9" {
		t.Errorf("configs %v after a replacement", topic.Configs)
	}

	nodes, err := o.adm.DescribeBrokerConfigs(o.ctx, 1, 2, 3)
	if err != nil || len(nodes) != 3 {
		t.Fatal(err, nodes)
	}
	for _, n := range nodes {
		i := slices.IndexFunc(n.Configs, func(c kadm.Config) bool { return c.Key == "node.id" })
		if n.Err != nil || n.Configs[i].MaybeValue() != n.Name {
			t.Errorf("node %s: %v, node.id %s", n.Name, n.Err, n.Configs[i].MaybeValue())
		}
	}
	altered, err := o.adm.AlterBrokerConfigs(o.ctx, []kadm.AlterConfig{{Name: "num.partitions", Value: kadm.StringPtr("9")}}, 1)
	if err != nil || !errors.Is(altered[0].Err, kerr.InvalidRequest) || !strings.Contains(altered[0].ErrMessage, "restart the node") {
		t.Errorf("altering a node: %v, %+v", err, altered)
	}
	req := kmsg.NewPtrListConfigResourcesRequest()
	if res, err := req.RequestWith(o.ctx, o.cl); err != nil || len(res.ConfigResources) != 4 {
		t.Errorf("config resources: %v, %+v", err, res)
	}
}

func TestOperatePartitions(t *testing.T) {
	c := newCluster(t, 3)
	o := c.operator()
	id := c.topic("t", 1, 3)
	grow := func(count int32, assignment ...int32) error {
		t.Helper()
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.TimeoutMillis = 10_000
		topic := kmsg.CreatePartitionsRequestTopic{Topic: "t", Count: count}
		if len(assignment) > 0 {
			topic.Assignment = []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: assignment}}
		}
		req.Topics = append(req.Topics, topic)
		res, err := req.RequestWith(o.ctx, o.cl)
		if err != nil {
			t.Fatal(err)
		}
		return kerr.ErrorForCode(res.Topics[0].ErrorCode)
	}
	if err := grow(2); err != nil {
		t.Fatal(err)
	}
	if err := grow(3, 2, 3, 1); err != nil {
		t.Fatal(err)
	}
	if err := grow(3); !errors.Is(err, kerr.InvalidPartitions) {
		t.Errorf("as many as there are: %v", err)
	}
	for i := range int32(3) {
		c.inSync(fsm.TopicPartition{Topic: id, Partition: i}, 3)
	}
	producer := c.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic("t"))
	for i := range int32(3) {
		r := &kgo.Record{Partition: i, Value: []byte("x")}
		if err := producer.ProduceSync(o.ctx, r).FirstErr(); err != nil {
			t.Errorf("produce to partition %d: %v", i, err)
		}
	}
	producers, err := o.adm.DescribeProducers(o.ctx, kadm.TopicsSet{"t": {0: {}, 1: {}, 2: {}}})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	producers.EachProducer(func(p kadm.DescribedProducer) {
		found++
		if p.LastSequence != 0 || p.CurrentTxnStartOffset != -1 {
			t.Errorf("producer %+v", p)
		}
	})
	if found != 3 {
		t.Errorf("%d producers, want one for each partition: %+v", found, producers)
	}
	dirs, err := o.adm.DescribeAllLogDirs(o.ctx, nil)
	if err != nil || len(dirs) != 3 {
		t.Fatal(err, dirs)
	}
	dirs.Each(func(d kadm.DescribedLogDir) {
		sizes := 0
		d.Topics.Each(func(p kadm.DescribedLogDirPartition) {
			if p.Size > 0 && !p.IsFuture {
				sizes++
			}
		})
		if d.Err != nil || sizes != 3 {
			t.Errorf("node %d: %v with %d logs: %+v", d.Broker, d.Err, sizes, d)
		}
	})
}

func TestOperateElection(t *testing.T) {
	c := newCluster(t, 3)
	o := c.operator()
	id := c.topic("t", 1, 3)
	tp := fsm.TopicPartition{Topic: id}
	c.produce("t", numbered(0, 5)...)
	preferred := c.partition(tp).Replicas[0]
	c.kill(int(preferred) - 1)
	c.until("another node leads", func() bool {
		for _, n := range c.nodes {
			if n != nil {
				s, _ := n.controller.Image().Partition(tp)
				return s.Leader != fsm.NoBroker && s.Leader != preferred
			}
		}
		return false
	})
	elect := func() error {
		got, err := o.adm.ElectLeaders(o.ctx, kadm.ElectPreferredReplica, kadm.TopicsSet{"t": {0: {}}})
		if err != nil {
			t.Fatal(err)
		}
		return got["t"][0].Err
	}
	if err := elect(); !errors.Is(err, kerr.PreferredLeaderNotAvailable) {
		t.Errorf("while it is away: %v", err)
	}
	c.start(int(preferred) - 1)
	c.inSync(tp, 3)
	if err := elect(); err != nil {
		t.Fatal(err)
	}
	c.until("the preferred replica leads, and nobody left the ISR", func() bool {
		got := c.partition(tp)
		return got.Leader == preferred && len(got.ISR) == 3
	})
	if err := elect(); !errors.Is(err, kerr.ElectionNotNeeded) {
		t.Errorf("once more: %v", err)
	}
	c.produce("t", numbered(5, 8)...)
	if got := c.consume("t", 8); !slices.Equal(got, numbered(0, 8)) {
		t.Errorf("read %q", got)
	}
	ends, err := o.adm.OffsetForLeaderEpoch(o.ctx, epochs("t", 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	if got := ends["t"][0]; got.Err != nil || got.LeaderEpoch != 0 || got.EndOffset != 5 {
		t.Errorf("epoch 0 ends with %+v, want 5", got)
	}
	req := kmsg.NewPtrDescribeQuorumRequest()
	req.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: metadataTopic, Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{}}}}
	c.until("all voters are heard", func() bool {
		res, err := req.RequestWith(o.ctx, o.cl)
		if err != nil || res.ErrorCode != 0 {
			t.Fatal(err, res)
		}
		p := res.Topics[0].Partitions[0]
		heard := 0
		for _, v := range p.CurrentVoters {
			if v.LogEndOffset > 0 {
				heard++
			}
		}
		return p.LeaderID > 0 && heard == 3
	})
}

func epochs(topic string, partition, epoch int32) kadm.OffsetForLeaderEpochRequest {
	var r kadm.OffsetForLeaderEpochRequest
	r.Add(topic, partition, epoch)
	return r
}

func TestOperateTrim(t *testing.T) {
	c := newCluster(t, 3)
	o := c.operator()
	id := c.topic("t", 1, 3)
	tp := fsm.TopicPartition{Topic: id}
	c.inSync(tp, 3)
	c.produce("t", numbered(0, 10)...)
	trim := func(to int64) error {
		var os kadm.Offsets
		os.AddOffset("t", 0, to, -1)
		got, err := o.adm.DeleteRecords(o.ctx, os)
		if err != nil {
			t.Fatal(err)
		}
		if r := got["t"][0]; r.Err == nil && r.LowWatermark < to {
			t.Errorf("to %d: low watermark %d", to, r.LowWatermark)
		}
		return got["t"][0].Err
	}
	if err := trim(4); err != nil {
		t.Fatal(err)
	}
	if got := o.starts(tp); !slices.Equal(got, []int64{4, 4, 4}) {
		t.Errorf("at once all replicas start at %v, want 4", got)
	}
	if err := trim(11); !errors.Is(err, kerr.OffsetOutOfRange) {
		t.Errorf("past the end: %v", err)
	}
	if got := c.consume("t", 6); !slices.Equal(got, numbered(4, 10)) {
		t.Errorf("read %q", got)
	}
	leader := c.leader(tp)
	c.kill(leader)
	c.until("another node leads", func() bool {
		s := c.partition(tp)
		return s.Leader != fsm.NoBroker && int(s.Leader)-1 != leader
	})
	if got := c.consume("t", 6); !slices.Equal(got, numbered(4, 10)) {
		t.Errorf("after a failover read %q: what was trimmed is back, or more is gone", got)
	}
	c.until("a trim goes without the dead replica", func() bool { return trim(-1) == nil })
	if got := o.starts(tp); !slices.Equal(got, []int64{10, 10}) {
		t.Errorf("all records trimmed: starts %v", got)
	}
	c.start(leader)
	c.inSync(tp, 3)
	c.until("the one that came back has followed", func() bool { return slices.Equal(o.starts(tp), []int64{10, 10, 10}) })
	c.produce("t", "last")
	if got := c.consume("t", 1); !slices.Equal(got, []string{"last"}) {
		t.Errorf("read %q", got)
	}
}

// TestOperateRetention: old segments go on all replicas, by a config that is set while
// the cluster runs, and consumers go on from what is left.
func TestOperateRetention(t *testing.T) {
	c := newCluster(t, 3)
	c.stopAll()
	for i := range c.configs {
		c.configs[i].Retention.Check = 50 * time.Millisecond
	}
	var done []chan struct{}
	for i := range c.nodes {
		d := make(chan struct{})
		done = append(done, d)
		go func() { defer close(d); c.start(i) }()
	}
	for _, d := range done {
		<-d
	}
	o := c.operator()
	id := c.topic("t", 1, 3)
	tp := fsm.TopicPartition{Topic: id}
	c.inSync(tp, 3)
	if err := o.set("t", kadm.AlterConfig{Name: "segment.bytes", Value: kadm.StringPtr("1048576")}); err != nil {
		t.Fatal(err)
	}
	c.until("the leader has small segments", func() bool {
		topic, ok := c.nodes[c.leader(tp)].controller.Image().TopicByName("t")
		return ok && topic.Config.SegmentBytes == 1<<20
	})
	producer := c.client(kgo.DefaultProduceTopic("t"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	const records = 40
	for i := range records {
		r := kgo.KeySliceRecord([]byte(fmt.Sprint(i)), make([]byte, 100_000))
		if err := producer.ProduceSync(o.ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.set("t", kadm.AlterConfig{Name: "retention.bytes", Value: kadm.StringPtr("1500000")}); err != nil {
		t.Fatal(err)
	}
	c.until("old segments are gone everywhere", func() bool {
		for _, n := range c.nodes {
			p := n.env.replicas.Get(tp)
			if p.log.Start() == 0 || p.log.Size() > 2_700_000 {
				return false
			}
		}
		return true
	})
	starts, err := o.adm.ListStartOffsets(o.ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	start, _ := starts.Lookup("t", 0)
	if got := c.consume("t", int(records-start.Offset)); len(got) != int(records-start.Offset) {
		t.Errorf("%d records from %d on", len(got), start.Offset)
	}
	if err := o.set("t", kadm.AlterConfig{Name: "retention.ms", Value: kadm.StringPtr("100")}); err != nil {
		t.Fatal(err)
	}
	c.until("all records are gone, with their files", func() bool {
		for _, n := range c.nodes {
			if p := n.env.replicas.Get(tp); p.log.Start() != records || p.log.Size() != 0 {
				return false
			}
		}
		return true
	})
	c.sameLogs(tp)
}

func randomBytes(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.Read(p) // never fails
	return p
}
