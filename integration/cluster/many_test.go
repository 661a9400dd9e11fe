package cluster

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	manyTopic  = "many"  // three replicas, acks=all
	looseTopic = "loose" // three replicas, acks=1
	apartTopic = "apart" // two replicas of which one is enough; its partition i is not on node i+1
	looseLanes = 30
	laneEvery  = 200 * time.Millisecond
	laneQuiet  = 10 // acknowledgements of each lane without a fault, and after one
)

// fault is one way to take a node away, and how long partitions may be without a
// leader for it, as p99 over those that the node led.
type fault struct {
	name       string
	controller bool // the node is the controller, or surely not
	freeze     bool // its ports go on accepting and nobody answers; else they refuse
	limit      time.Duration
}

var faults = [...]fault{
	{name: "kill", limit: time.Second},
	{name: "kill, controller", controller: true, limit: 6 * time.Second},
	{name: "freeze", freeze: true, limit: 4 * time.Second},
	{name: "freeze, controller", controller: true, freeze: true, limit: 6 * time.Second},
}

// TestManyPartitions takes nodes of a cluster with many partitions away, by SIGKILL
// and SIGSTOP, while every partition is produced to. It asserts that all
// leaderships of the node move and that nothing acknowledged is lost, duplicated or
// out of order. With WEIR_TRIALS it has a thousand partitions, prints how long
// partitions were unavailable, and holds that against the limits.
func TestManyPartitions(t *testing.T) {
	m := &many{t: t, partitions: 60}
	trials, judge := 1, false
	if s := os.Getenv("WEIR_TRIALS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("WEIR_TRIALS=%q is not a number", s)
		}
		trials, judge, m.partitions = n, true, 1000
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(trials)*6*time.Minute+4*time.Minute)
	defer cancel()
	m.ctx = ctx
	m.start()
	gaps := map[gapKey][]time.Duration{}
	for range trials {
		for _, f := range faults {
			m.trial(f, gaps)
		}
	}
	m.verify()
	m.report(gaps, judge)
}

// many is a cluster with many partitions and its producers.
type many struct {
	*Cluster
	t          *testing.T
	ctx        context.Context
	partitions int32
	admin      *kgo.Client

	all, loose, apart *laneSet // one producer each, so that none waits behind another's request
}

func (m *many) start() {
	m.t.Helper()
	m.Cluster = startThree(m.ctx, m.t)
	var err error
	m.admin, err = m.Client(kgo.MetadataMinAge(10*time.Millisecond), kgo.RequestTimeoutOverhead(2*time.Second))
	m.must(err)
	m.t.Cleanup(m.admin.Close)
	m.create()
	m.all = m.produce(lanesOf(manyTopic, m.partitions))
	m.loose = m.produce(lanesOf(looseTopic, looseLanes), kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	m.apart = m.produce(lanesOf(apartTopic, 3))
}

func (m *many) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func lanesOf(topic string, partitions int32) []lane {
	var out []lane
	for i := range partitions {
		out = append(out, lane{topic, i})
	}
	return out
}

func (m *many) produce(lanes []lane, opts ...kgo.Opt) *laneSet {
	m.t.Helper()
	ls, err := m.produceTo(laneEvery, lanes, opts...)
	m.must(err)
	return ls
}

func (m *many) create() {
	m.t.Helper()
	adm := kadm.NewClient(m.admin)
	adm.SetTimeoutMillis(60_000)
	for topic, n := range map[string]int32{manyTopic: m.partitions, looseTopic: looseLanes} {
		_, err := adm.CreateTopic(m.ctx, n, 3, nil, topic)
		m.must(err)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 60_000
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = apartTopic, -1, -1
	for i := range int32(3) {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = i, []int32{(i+1)%3 + 1, (i+2)%3 + 1}
		rt.ReplicaAssignment = append(rt.ReplicaAssignment, a)
	}
	least := kmsg.NewCreateTopicsRequestTopicConfig()
	least.Name, least.Value = "min.insync.replicas", kmsg.StringPtr("1")
	rt.Configs = append(rt.Configs, least)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(m.ctx, m.admin)
	m.must(err)
	if code := resp.Topics[0].ErrorCode; code != 0 {
		m.t.Fatalf("create %s: error %d", apartTopic, code)
	}
}

// gapKey names one row of the report.
type gapKey struct{ fault, lanes string }

// The rows of a fault.
const (
	ledByIt     = "led by it"
	ledByOthers = "led by others, it is in the ISR"
	loosely     = "led by others, acks=1"
	notOnIt     = "not on it"
	allMoved    = "all, until metadata shows a leader"
	ledByItNew  = "led by it, to a new producer"
	quietAll    = "no fault: acks=all"
	quietApart  = "no fault: not on it"
)

// trial has a quiet time and one fault.
func (m *many) trial(f fault, gaps map[gapKey][]time.Duration) {
	m.t.Helper()
	start := time.Now()
	victim := m.balance(f)
	m.t.Logf("%s of node %d, balanced after %v", f.name, victim.ID, time.Since(start).Round(time.Millisecond))
	leaders := m.leaders(manyTopic, looseTopic)
	everything := func(lane) bool { return true }
	apart := func(l lane) bool { return l.partition+1 == victim.ID }
	add := func(lanes string, g []time.Duration) {
		k := gapKey{f.name, lanes}
		gaps[k] = append(gaps[k], g...)
	}

	m.mark()
	m.await()
	add(quietAll, m.all.gaps(everything))
	add(quietApart, m.apart.gaps(apart))

	m.inSync() // a busy machine loses followers at the elections of balance
	m.mark()
	if f.freeze {
		m.must(victim.Signal(syscall.SIGSTOP))
	} else {
		m.must(victim.Kill())
	}
	began := time.Now()
	m.moved(victim.ID)
	add(allMoved, []time.Duration{time.Since(began)})
	add(ledByItNew, m.probe(victim, leaders, began))
	m.await()
	led := func(by bool) func(lane) bool { return func(l lane) bool { return (leaders[l] == victim.ID) == by } }
	add(ledByIt, m.all.gaps(led(true)))
	add(ledByOthers, m.all.gaps(led(false)))
	add(loosely, m.loose.gaps(led(false)))
	add(notOnIt, m.apart.gaps(apart))

	if f.freeze {
		m.must(victim.Signal(syscall.SIGCONT))
	} else {
		m.must(m.StartNode(victim))
	}
}

func (m *many) mark() {
	for _, ls := range []*laneSet{m.all, m.loose, m.apart} {
		ls.mark()
	}
}

// await waits until every lane has been served for a while.
func (m *many) await() {
	m.t.Helper()
	for _, ls := range []*laneSet{m.all, m.loose, m.apart} {
		m.must(ls.await(m.ctx, laneQuiet))
	}
}

// balance waits until all replicas are in sync, gives every leadership to its
// preferred node, and returns the node for a fault.
func (m *many) balance(f fault) *Node {
	m.t.Helper()
	adm := kadm.NewClient(m.admin)
	m.inSync()
	var victim *Node
	m.must(poll(m.ctx, "await leaders on every node", func() error {
		if _, err := adm.ElectLeaders(m.ctx, kadm.ElectPreferredReplica, nil); err != nil {
			return err
		}
		md, err := Metadata(m.ctx, m.admin)
		if err != nil {
			return err
		}
		id := md.ControllerID
		if !f.controller {
			id = id%3 + 1
		}
		if id < 1 {
			return fmt.Errorf("the controller is %d", md.ControllerID)
		}
		victim = m.Node(id)
		led := 0
		for _, leader := range m.leaders(manyTopic) {
			if leader == id {
				led++
			}
		}
		if led < int(m.partitions)/4 {
			return fmt.Errorf("node %d leads %d of %d partitions", id, led, m.partitions)
		}
		return nil
	}))
	return victim
}

// inSync waits until all replicas are in sync.
func (m *many) inSync() {
	m.t.Helper()
	m.must(m.AwaitISR(m.ctx, m.admin, manyTopic, 3))
	m.must(m.AwaitISR(m.ctx, m.admin, looseTopic, 3))
	m.must(m.AwaitISR(m.ctx, m.admin, apartTopic, 2))
}

// leaders asks who leads each partition.
func (m *many) leaders(topics ...string) map[lane]int32 {
	m.t.Helper()
	out := map[lane]int32{}
	for _, topic := range topics {
		parts, err := m.Partitions(m.ctx, m.admin, topic)
		m.must(err)
		for _, p := range parts {
			out[lane{topic, p.Partition}] = p.Leader
		}
	}
	return out
}

// moved waits until another node says that others lead everything that this one led.
func (m *many) moved(id int32) {
	m.t.Helper()
	other := m.admin.Broker(int(id%3 + 1)) // the client itself might ask the frozen one
	m.must(poll(m.ctx, fmt.Sprintf("await that node %d leads nothing", id), func() error {
		req := kmsg.NewPtrMetadataRequest()
		for _, topic := range []string{manyTopic, looseTopic, apartTopic} {
			rt := kmsg.NewMetadataRequestTopic()
			rt.Topic = kmsg.StringPtr(topic)
			req.Topics = append(req.Topics, rt)
		}
		resp, err := req.RequestWith(m.ctx, other)
		if err != nil {
			return err
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if p.Leader == id || p.Leader < 0 {
					return fmt.Errorf("the leader of %s-%d is %d", *t.Topic, p.Partition, p.Leader)
				}
			}
		}
		return nil
	}))
}

// probe sends one record to each partition that a node led, by a producer that knows
// of no other nodes than those that are left: the one that was there before loses
// time on connections to a node that accepts them and never answers. It returns how
// long after the fault each was acknowledged.
func (m *many) probe(victim *Node, leaders map[lane]int32, fault time.Time) []time.Duration {
	m.t.Helper()
	var left []string
	for _, n := range m.Nodes {
		if n != victim {
			left = append(left, n.Client)
		}
	}
	cl, err := m.Client(kgo.SeedBrokers(left...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }))
	m.must(err)
	defer cl.Close()
	var records []*kgo.Record
	for l, leader := range leaders {
		if l.topic == manyTopic && leader == victim.ID {
			records = append(records, &kgo.Record{Topic: l.topic, Partition: l.partition})
		}
	}
	took := make([]time.Duration, len(records))
	var answered sync.WaitGroup
	failed := make([]error, len(records))
	for i, r := range records {
		answered.Add(1)
		cl.Produce(m.ctx, r, func(_ *kgo.Record, err error) {
			took[i], failed[i] = time.Since(fault), err
			answered.Done()
		})
	}
	answered.Wait()
	m.must(errors.Join(failed...))
	return took
}

// verify reads everything back that was sent with acks=all.
func (m *many) verify() {
	m.t.Helper()
	_, err := m.loose.close(m.ctx) // may lose what it was acknowledged
	m.must(err)
	acked := map[lane]uint64{}
	for _, ls := range []*laneSet{m.all, m.apart} {
		some, err := ls.close(m.ctx)
		m.must(err)
		for l, n := range some {
			acked[l] = n
		}
	}
	cl, err := m.Client(kgo.ConsumeTopics(manyTopic, apartTopic))
	m.must(err)
	defer cl.Close()
	next, missing := map[lane]uint64{}, len(acked)
	for missing > 0 {
		fs := cl.PollFetches(m.ctx)
		m.must(m.ctx.Err())
		for it := fs.RecordIter(); !it.Done(); {
			r := it.Next()
			l := lane{r.Topic, r.Partition}
			if len(r.Value) == 0 {
				continue // of a probe
			}
			if got := binary.BigEndian.Uint64(r.Value); got != next[l] {
				m.t.Fatalf("%s-%d has record %d where %d belongs", l.topic, l.partition, got, next[l])
			}
			if next[l]++; next[l] == acked[l] {
				missing--
			}
		}
	}
	records := uint64(0)
	for _, n := range acked {
		records += n
	}
	m.t.Logf("%d records of %d partitions were acknowledged and read back", records, len(acked))
}

// report prints the table: how long a partition acknowledged nothing at the longest,
// by fault and by what the node was to the partition. The limits are for a new
// producer: what the others add to it on a frozen node is the client's own.
func (m *many) report(gaps map[gapKey][]time.Duration, judge bool) {
	m.t.Logf("%-20s %-36s %6s %8s %8s %8s", "fault", "partitions", "count", "p50 ms", "p99 ms", "max ms")
	for _, f := range faults {
		for _, lanes := range []string{quietAll, quietApart, allMoved, ledByItNew, ledByIt, ledByOthers, loosely, notOnIt} {
			all := gaps[gapKey{f.name, lanes}]
			slices.Sort(all)
			if len(all) == 0 {
				m.t.Errorf("%s: no partition was %s", f.name, lanes)
				continue
			}
			p99 := all[len(all)*99/100]
			note := ""
			if lanes == notOnIt {
				quiet := slices.Max(gaps[gapKey{f.name, quietApart}])
				note = fmt.Sprintf("  %.1f times the longest without a fault", float64(all[len(all)-1])/float64(cmp.Or(quiet, 1)))
			}
			if lanes == ledByItNew {
				note = fmt.Sprintf("  limit of p99 %d", f.limit.Milliseconds())
				if judge && p99 > f.limit {
					m.t.Errorf("%s: p99 of partitions %s is %v, over the limit of %v", f.name, lanes, p99, f.limit)
				}
			}
			m.t.Logf("%-20s %-36s %6d %8d %8d %8d%s", f.name, lanes, len(all),
				all[len(all)/2].Milliseconds(), p99.Milliseconds(), all[len(all)-1].Milliseconds(), note)
		}
	}
}
