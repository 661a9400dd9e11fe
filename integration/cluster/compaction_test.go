package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	compactTopic = "compacted"
	compactKeys  = 400
	// compactedSize is what a replica may have left of some 12 MB: two segments of a
	// megabyte each that are not cleaned yet, and the newest of each key.
	compactedSize = 3 << 20
)

// compactJob writes to a compacted topic, and remembers the newest value of each key.
type compactJob struct {
	*job
	newest map[string]string // "" for a key that was deleted last
	n      int
	rng    *rand.Rand
}

// write writes so many records over all keys; some of them delete their key.
func (j *compactJob) write(n int) {
	j.t.Helper()
	var records []*kgo.Record
	for range n {
		key := fmt.Sprintf("key-%d", j.rng.IntN(compactKeys))
		value := fmt.Sprintf("%d-%s", j.n, strings.Repeat("x", 250))
		j.n++
		r := &kgo.Record{Key: []byte(key), Value: []byte(value)}
		if j.rng.IntN(10) == 0 {
			value, r.Value = "", nil
		}
		j.newest[key] = value
		records = append(records, r)
	}
	for _, res := range j.cl.ProduceSync(j.ctx, records...) {
		if res.Err != nil {
			j.t.Fatal(res.Err)
		}
	}
}

// read reads the topic from its start and compares what stands last for each key.
func (j *compactJob) read() {
	j.t.Helper()
	cl, err := j.Client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{compactTopic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		j.t.Fatal(err)
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(j.ctx, compactTopic)
	if err != nil {
		j.t.Fatal(err)
	}
	end, _ := ends.Lookup(compactTopic, 0)
	got, last, records := map[string]string{}, int64(-1), 0
	for last+1 < end.Offset {
		fetches := cl.PollFetches(j.ctx)
		if err := j.ctx.Err(); err != nil {
			j.t.Fatalf("read to %d of %d: %v", last, end.Offset, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset <= last {
				j.t.Errorf("offset %d comes after %d", r.Offset, last)
			}
			last, got[string(r.Key)] = r.Offset, string(r.Value)
			records++
		})
	}
	j.t.Logf("%d records read of %d written", records, j.n)
	for key, want := range j.newest {
		if got[key] != want {
			j.t.Errorf("%s is %.20q, want %.20q", key, got[key], want)
		}
	}
}

// small waits until the replicas of some nodes have been compacted.
func (j *compactJob) small(nodes ...*Node) {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(j.ctx, time.Minute)
	defer cancel()
	err := poll(ctx, "await compaction", func() error {
		for _, n := range nodes {
			if size := folderSize(filepath.Join(n.Data, compactTopic+"-0")); size > compactedSize {
				return fmt.Errorf("node %d has %d bytes", n.ID, size)
			}
		}
		return nil
	})
	if err != nil {
		j.t.Fatal(err)
	}
}

// TestCompaction writes to a compacted topic of three nodes while a follower is away, and
// then while a leader is killed. Each replica becomes small, the one that was away too, and
// each, as leader, shows the newest value of every key.
func TestCompaction(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), jobTimeout)
	defer cancel()
	c := startThree(ctx, t, "-c", "log.segment.bytes=1048576", "-c", "log.cleaner.backoff.ms=100", "-c", "log.flush.interval.ms=100")
	j := &compactJob{job: &job{Cluster: c, t: t, ctx: ctx}, newest: map[string]string{}, rng: rand.New(rand.NewPCG(1, 2))}
	var err error
	if j.cl, err = c.Client(kgo.DefaultProduceTopic(compactTopic), kgo.ProducerBatchCompression(kgo.NoCompression())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.cl.Close)
	if _, err := kadm.NewClient(j.cl).CreateTopic(ctx, 1, 3, nil, compactTopic); err != nil {
		t.Fatal(err)
	}
	j.write(8000)
	policy := "compact"
	alter := []kadm.AlterConfig{{Name: "cleanup.policy", Value: &policy}, {Name: "min.cleanable.dirty.ratio", Value: kadm.StringPtr("0.1")}, {Name: "delete.retention.ms", Value: kadm.StringPtr("100")}}
	if res, err := kadm.NewClient(j.cl).AlterTopicConfigs(ctx, alter, compactTopic); err != nil || res[0].Err != nil {
		t.Fatal(err, res)
	}
	parts, err := j.Partitions(ctx, j.cl, compactTopic)
	if err != nil {
		t.Fatal(err)
	}
	away := j.Node(parts[0].Leader%3 + 1)
	if err := away.Kill(); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		j.write(8000)
	}
	var others []*Node
	for _, n := range c.Nodes {
		if n != away {
			others = append(others, n)
		}
	}
	j.small(others...)
	j.read()
	if err := c.StartNode(away); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitISR(ctx, j.cl, compactTopic, 3); err != nil {
		t.Fatal(err)
	}
	for range c.Nodes {
		leader, err := j.killLeader(compactTopic)
		if err != nil {
			t.Fatal(err)
		}
		j.write(4000)
		j.read()
		if err := c.StartNode(leader); err != nil {
			t.Fatal(err)
		}
		if err := c.AwaitISR(ctx, j.cl, compactTopic, 3); err != nil {
			t.Fatal(err)
		}
	}
	j.small(c.Nodes...)
	j.read()
}
