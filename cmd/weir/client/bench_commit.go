package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/urfave/cli/v2"
)

// commitBase is the offset of the first commit: that of a partition with some history, whose
// offsets are not the shortest to store.
const commitBase = 1_000_000_000

func (e *Env) benchCommitCommand() *cli.Command {
	return &cli.Command{
		Name: "commit", Usage: "commit offsets as fast as the coordinators take them",
		Description: "Groups named PREFIX-0, PREFIX-1 … commit offsets for all partitions of the topic, each as soon as its last commit is acknowledged, or at --rate. " +
			"At the end what they committed is read back. The topic and the groups are left behind.",
		Action: e.benchCommit,
		Flags: append(connectionFlags(), outputFlag(),
			&cli.StringFlag{Name: "topic", Aliases: []string{"t"}, Value: "weir-bench-commit", Usage: "use this `TOPIC`"},
			&cli.StringFlag{Name: "group", Aliases: []string{"g"}, Value: "weir-bench", Usage: "`PREFIX` of the groups' names"},
			&cli.IntFlag{Name: "groups", Value: 32, Usage: "`N` groups that commit at the same time"},
			&cli.IntFlag{Name: "partitions", Aliases: []string{"p"}, Value: 100, Usage: "`N` partitions in each commit; the topic is created with as many if it is missing"},
			&cli.IntFlag{Name: "replicas", Aliases: []string{"r"}, Value: -1, Usage: "create the topic with `N` replicas if it is missing"},
			&cli.DurationFlag{Name: "duration", Aliases: []string{"d"}, Value: 10 * time.Second, Usage: "commit for this `TIME`"},
			&cli.Int64Flag{Name: "rate", Usage: "at most `N` partitions a second in all; 0 for no limit"}),
	}
}

// commitResult is what bench commit prints. Latency is that of a whole commit.
type commitResult struct {
	Groups        int     `json:"groups"`
	Partitions    int     `json:"partitions_per_commit"`
	Commits       int64   `json:"commits"`
	Retries       int64   `json:"retries"`
	Seconds       float64 `json:"seconds"`
	CommitsSec    float64 `json:"commits_per_second"`
	PartitionsSec float64 `json:"partitions_per_second"`
	latencies
}

func (e *Env) benchCommit(c *cli.Context) error {
	if err := checkOutput(c); err != nil {
		return err
	}
	b := &commitBench{
		brokers: brokersOf(c), topic: c.String("topic"), groups: c.Int("groups"), partitions: c.Int("partitions"),
		timeout: c.Duration("timeout"), latency: &histogram{},
	}
	if b.groups < 1 || b.partitions < 1 || c.Duration("duration") <= 0 {
		return usagef("--groups, --partitions and --duration must be above 0")
	}
	cl, err := e.connect(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := b.makeTopic(c, cl); err != nil {
		return err
	}
	if rate := c.Int64("rate"); rate > 0 {
		b.every = time.Duration(float64(b.groups*b.partitions) / float64(rate) * float64(time.Second))
	}
	committers, err := b.open(c.String("group"))
	defer func() {
		for _, m := range committers {
			m.cl.Close()
		}
	}()
	if err != nil {
		return err
	}
	took, err := b.run(c.Context, committers, c.Duration("duration"))
	if err != nil {
		return explain("commit offsets", b.brokers, err)
	}
	if err := b.verify(c.Context, cl, committers); err != nil {
		return err
	}
	return e.printCommits(c, b.result(took))
}

// commitBench is one run of bench commit.
type commitBench struct {
	brokers    []string
	topic      string
	id         kadm.TopicID // of the topic, which newer requests name it by
	groups     int
	partitions int
	timeout    time.Duration
	every      time.Duration // between two commits of one group; 0 for no pause
	latency    *histogram
	commits    atomic.Int64
	retries    atomic.Int64
}

// committer is one group.
type committer struct {
	group string
	cl    *kgo.Client // of its own, as each group has its own connections
	last  int64       // the offset acknowledged last
}

func (b *commitBench) makeTopic(c *cli.Context, cl *kgo.Client) error {
	adm := kadm.NewClient(cl)
	_, err := adm.CreateTopic(c.Context, int32(b.partitions), int16(c.Int("replicas")), nil, b.topic)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return explain("create topic "+b.topic, b.brokers, err)
	}
	ctx, cancel := context.WithTimeout(c.Context, b.timeout)
	defer cancel()
	for { // until the node that is asked has it too
		topics, err := adm.ListTopics(ctx, b.topic)
		if err == nil {
			err = topics[b.topic].Err
		}
		n := len(topics[b.topic].Partitions)
		switch {
		case err == nil && n < b.partitions:
			return usagef("topic %s has %d partitions, not %d; name another one with -t, or add some with 'weir topic add-partitions'", b.topic, n, b.partitions)
		case err == nil:
			b.id = topics[b.topic].ID
			return nil
		case !errors.Is(err, kerr.UnknownTopicOrPartition):
			return explain("describe topic "+b.topic, b.brokers, err)
		}
		if err := pause(ctx, metadataMinAge); err != nil {
			return explain("describe topic "+b.topic, b.brokers, err)
		}
	}
}

// pause waits for a time, or for the end of ctx, whose error it returns.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *commitBench) open(prefix string) ([]*committer, error) {
	var out []*committer
	for i := range b.groups {
		cl, err := kgo.NewClient(clientOpts(b.brokers)...)
		if err != nil {
			return out, usagef("cannot set up the client: %v", err)
		}
		out = append(out, &committer{group: fmt.Sprintf("%s-%d", prefix, i), cl: cl})
	}
	return out, nil
}

// run lets all groups commit until the time is over, and returns how long that took. The
// first commit of each, which makes the group and finds its coordinator, is not counted.
func (b *commitBench) run(ctx context.Context, all []*committer, d time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	each := func(do func(int, *committer) error) {
		var wg sync.WaitGroup
		for i, m := range all {
			wg.Go(func() {
				if err := do(i, m); err != nil {
					cancel(err)
				}
			})
		}
		wg.Wait()
	}
	each(func(_ int, m *committer) error { return b.commit(ctx, m, b.request(m, commitBase)) })
	b.retries.Store(0)
	begin := time.Now()
	if ctx.Err() == nil {
		each(func(i int, m *committer) error { return b.repeat(ctx, i, m, begin, begin.Add(d)) })
	}
	return time.Since(begin), context.Cause(ctx)
}

// repeat commits higher offsets again and again. Under a rate the groups take turns, and the
// latency counts from when a commit was due, not from when the one before let it begin.
func (b *commitBench) repeat(ctx context.Context, i int, m *committer, begin, end time.Time) error {
	due := begin.Add(b.every * time.Duration(i) / time.Duration(b.groups))
	for n := int64(1); ; n++ {
		if b.every == 0 {
			due = time.Now()
		} else if err := pause(ctx, time.Until(due)); err != nil {
			return err
		}
		if !due.Before(end) {
			return nil
		}
		if err := b.commit(ctx, m, b.request(m, commitBase+n)); err != nil {
			return err
		}
		b.latency.add(time.Since(due))
		b.commits.Add(1)
		due = due.Add(b.every)
	}
}

// request is a commit of one offset for all partitions, from outside the group's members.
func (b *commitBench) request(m *committer, offset int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = m.group, -1
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = b.topic, b.id
	t.Partitions = make([]kmsg.OffsetCommitRequestTopicPartition, b.partitions)
	for i := range t.Partitions {
		p := &t.Partitions[i]
		p.Default()
		p.Partition, p.Offset = int32(i), offset
	}
	req.Topics = append(req.Topics, t)
	return req
}

// commit gets one request acknowledged. It asks again for as long as the answer is that this
// may help, up to the time limit.
func (b *commitBench) commit(ctx context.Context, m *committer, req *kmsg.OffsetCommitRequest) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	for {
		resp, err := req.RequestWith(ctx, m.cl)
		if err == nil {
			err = commitFailure(resp, b.partitions)
		}
		switch {
		case err == nil:
			m.last = req.Topics[0].Partitions[0].Offset
			return nil
		case !kerr.IsRetriable(err):
			return err
		}
		b.retries.Add(1)
		if pause(ctx, 10*time.Millisecond) != nil {
			return err
		}
	}
}

// commitFailure is the first error in an answer.
func commitFailure(resp *kmsg.OffsetCommitResponse, partitions int) error {
	answers := 0
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			if err := kerr.ErrorForCode(resp.Topics[i].Partitions[j].ErrorCode); err != nil {
				return err
			}
			answers++
		}
	}
	if answers != partitions {
		return fmt.Errorf("the broker answered for %d of %d partitions", answers, partitions)
	}
	return nil
}

// verify reads back what each group has committed.
func (b *commitBench) verify(ctx context.Context, cl *kgo.Client, all []*committer) error {
	adm := kadm.NewClient(cl)
	for _, m := range all {
		offsets, err := adm.FetchOffsets(ctx, m.group)
		if err != nil {
			return explain("read back the offsets of group "+m.group, b.brokers, err)
		}
		for p := range b.partitions {
			if got, ok := offsets.Lookup(b.topic, int32(p)); !ok || got.At != m.last {
				return &Error{ExitFailed, fmt.Sprintf("group %s committed offset %d for %s:%d, and reads back %d", m.group, m.last, b.topic, p, got.At)}
			}
		}
	}
	return nil
}

func (b *commitBench) result(took time.Duration) commitResult {
	n, s := b.commits.Load(), took.Seconds()
	return commitResult{
		Groups: b.groups, Partitions: b.partitions, Commits: n, Retries: b.retries.Load(), Seconds: s,
		CommitsSec: float64(n) / s, PartitionsSec: float64(n) * float64(b.partitions) / s, latencies: b.latency.latencies(n),
	}
}

func (e *Env) printCommits(c *cli.Context, r commitResult) error {
	if c.String("output") == "json" {
		return json.NewEncoder(e.Stdout).Encode(r)
	}
	fmt.Fprintf(e.Stdout, "%d commits of %d partitions by %d groups, %.1f partitions/sec (%.1f commits/sec), %s\n",
		r.Commits, r.Partitions, r.Groups, r.PartitionsSec, r.CommitsSec, r.latencies)
	if r.Retries > 0 {
		fmt.Fprintf(e.Stdout, "%d commits were asked for again\n", r.Retries)
	}
	return nil
}
