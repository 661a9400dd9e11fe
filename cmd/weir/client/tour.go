package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	tourTopic      = "demo"
	tourPartitions = 3
	tourReplicas   = 3
	tourPoll       = 100 * time.Millisecond
	tourReadBack   = time.Minute
)

// Tour shows a fresh cluster of three at work: it produces through the death of
// a leader and proves by reading back that every acknowledged record is there
// once, and in order.
type Tour struct {
	Brokers  []string
	Out      io.Writer
	Records  int
	Patience time.Duration              // how long to wait for the cluster to form
	Kill     func(brokerID int32) error // SIGKILL to that node
	Revive   func(brokerID int32) error // start it again
}

// Run makes the tour; an error means that the cluster failed it.
func (t *Tour) Run(ctx context.Context) error {
	began := time.Now()
	cl, err := kgo.NewClient(kgo.SeedBrokers(t.Brokers...), kgo.ClientID("weir-demo"), kgo.MetadataMinAge(metadataMinAge),
		kgo.DefaultProduceTopic(tourTopic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.DialTimeout(time.Second))
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	if err := t.awaitNodes(ctx, cl); err != nil {
		return err
	}
	t.say("cluster formed in %s: %d nodes, no ZooKeeper", since(began), len(t.Brokers))
	if _, err := adm.CreateTopic(ctx, tourPartitions, tourReplicas, nil, tourTopic); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return explain("create topic "+tourTopic, t.Brokers, err)
	}
	t.say("topic %s created: %d partitions, %d replicas each", tourTopic, tourPartitions, tourReplicas)
	victim, err := t.produce(ctx, cl, adm)
	if err != nil {
		return err
	}
	if err := t.readBack(ctx); err != nil {
		return err
	}
	if err := t.Revive(victim); err != nil {
		return err
	}
	if err := t.awaitNodes(ctx, cl); err != nil {
		return err
	}
	if _, err := t.awaitISR(ctx, adm, "coming back into sync"); err != nil {
		return err
	}
	t.say("node %d is back and in sync", victim)
	return nil
}

func (t *Tour) say(format string, args ...any) { fmt.Fprintf(t.Out, format+"\n", args...) }

func since(t time.Time) time.Duration { return time.Since(t).Round(10 * time.Millisecond) }

// await polls check until it holds, an error that is final, or patience ends.
func (t *Tour) await(ctx context.Context, what string, check func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, t.Patience)
	defer cancel()
	var last error
	for {
		ok, err := check(ctx)
		if ok {
			return nil
		}
		last = err
		select {
		case <-ctx.Done():
			return &Error{ExitTimeout, fmt.Sprintf("%s took longer than %s (last answer: %v)", what, t.Patience, last)}
		case <-time.After(tourPoll):
		}
	}
}

func (t *Tour) awaitNodes(ctx context.Context, cl *kgo.Client) error {
	return t.await(ctx, "forming the cluster", func(ctx context.Context) (bool, error) {
		// Asked directly: kadm would answer from the list it cached first.
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{}
		m, err := req.RequestWith(ctx, cl)
		if err == nil && len(m.Brokers) != len(t.Brokers) {
			err = fmt.Errorf("%d nodes", len(m.Brokers))
		}
		return err == nil, err
	})
}

// awaitISR waits until all partitions have a leader and all their replicas in sync, also in
// the eyes of a node that has only just heard of the topic, and returns the first one's leader.
func (t *Tour) awaitISR(ctx context.Context, adm *kadm.Client, what string) (leader int32, err error) {
	err = t.await(ctx, what, func(ctx context.Context) (bool, error) {
		topics, err := adm.ListTopics(ctx, tourTopic)
		if err != nil {
			return false, err
		}
		partitions := topics[tourTopic].Partitions
		for _, p := range partitions {
			if p.Leader < 0 || len(p.ISR) < tourReplicas {
				return false, nil
			}
		}
		leader = partitions[0].Leader
		return len(partitions) == tourPartitions, topics[tourTopic].Err
	})
	return leader, err
}

// produce sends all records, kills a leader halfway, and returns whom it killed.
func (t *Tour) produce(ctx context.Context, cl *kgo.Client, adm *kadm.Client) (int32, error) {
	victim, err := t.awaitISR(ctx, adm, "electing leaders")
	if err != nil {
		return 0, err
	}
	began := time.Now()
	var acked atomic.Int64
	var last, gap atomic.Int64
	failed := make(chan error, 1)
	answer := func(_ *kgo.Record, err error) {
		if err != nil {
			select {
			case failed <- err:
			default:
			}
			return
		}
		acked.Add(1)
		now := int64(time.Since(began))
		if quiet := now - last.Swap(now); quiet > gap.Load() {
			gap.Store(quiet)
		}
	}
	for i := range t.Records {
		if i == t.Records/2 {
			if err := t.Kill(victim); err != nil {
				return 0, err
			}
			t.say("node %d, a leader, was killed with SIGKILL after %d records were sent", victim, i)
		}
		cl.Produce(ctx, &kgo.Record{Value: fmt.Appendf(nil, "record %09d", i)}, answer)
	}
	if err := cl.Flush(ctx); err != nil {
		return 0, err
	}
	select {
	case err := <-failed:
		return 0, explain("produce", t.Brokers, err)
	default:
	}
	t.say("%d records acknowledged by all in-sync replicas in %s; longest silence during the failover %s",
		acked.Load(), since(began), time.Duration(gap.Load()).Round(10*time.Millisecond))
	return victim, nil
}

// readBack consumes everything with a fresh client and checks that each record
// is there exactly once and each partition is in order.
func (t *Tour) readBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tourReadBack)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(t.Brokers...), kgo.ConsumeTopics(tourTopic), kgo.MetadataMinAge(metadataMinAge), kgo.DialTimeout(time.Second))
	if err != nil {
		return err
	}
	defer cl.Close()
	began := time.Now()
	seen := make([]bool, t.Records)
	last := map[int32]int{}
	for got := 0; got < t.Records; {
		fs := cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return &Error{ExitFailed, fmt.Sprintf("only %d of %d acknowledged records came back within %s", got, t.Records, tourReadBack)}
		}
		for it := fs.RecordIter(); !it.Done(); got++ {
			r := it.Next()
			n := -1
			if _, err := fmt.Sscanf(string(r.Value), "record %d", &n); err != nil || n < 0 || n >= t.Records {
				return &Error{ExitFailed, fmt.Sprintf("partition %d offset %d holds %q, which was never sent", r.Partition, r.Offset, r.Value)}
			}
			if seen[n] {
				return &Error{ExitFailed, fmt.Sprintf("record %d came back twice", n)}
			}
			if before, ok := last[r.Partition]; ok && n < before {
				return &Error{ExitFailed, fmt.Sprintf("record %d of partition %d came back after record %d", n, r.Partition, before)}
			}
			seen[n], last[r.Partition] = true, n
		}
	}
	t.say("%d records consumed back in %s: none lost, none twice, all in order", t.Records, since(began))
	return nil
}
