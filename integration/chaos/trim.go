package chaos

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/integration/chaos/host"
	"github.com/weirmq/weir/integration/chaos/work"
)

const (
	trimTopic   = "trimmed"
	trimRounds  = 12
	trimRecords = 200 // before each trim
)

// trimmed is a partition whose start moves up while its leaders die. It is judged here, since
// the history's topics keep everything: where DeleteRecords has said that the log starts, no
// later leader's log starts lower, and all that was acknowledged above is there.
type trimmed struct {
	run   *Run
	cl    *kgo.Client
	acked []int64 // offsets; record n holds n
	floor int64   // the start that was answered last
}

// shortenUnderFire has what takes records away do so while leaders die: first trims, then
// compaction.
func shortenUnderFire(ctx context.Context, r *Run) error {
	if err := trimUnderFire(ctx, r); err != nil {
		return err
	}
	return compactUnderFire(ctx, r)
}

// writer makes a client that produces to a topic.
func (r *Run) writer(topic string) (*kgo.Client, error) {
	return kgo.NewClient(kgo.SeedBrokers(r.cluster.Brokers()...), kgo.DefaultProduceTopic(topic), kgo.MetadataMinAge(250*time.Millisecond),
		kgo.DialTimeout(2*time.Second), kgo.RequestTimeoutOverhead(4*time.Second))
}

func trimUnderFire(ctx context.Context, r *Run) error {
	cl, err := r.writer(trimTopic)
	if err != nil {
		return err
	}
	defer cl.Close()
	t := &trimmed{run: r, cl: cl}
	limit, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	if err := r.crew.CreateTopic(limit, &work.Topic{Name: trimTopic, Partitions: 1}, replicas(r.options.Nodes), r.configs); err != nil {
		return err
	}
	if err := r.chase(ctx, trimTopic, trimRounds, t.more); err != nil {
		return err
	}
	if _, err := r.leaderOf(ctx, trimTopic, 0); err != nil {
		return err
	}
	if err := t.produce(ctx); err != nil { // the last trim may have taken everything
		return err
	}
	return t.readBack(ctx)
}

// chase kills one leader of a topic's partition after the other, each after some more work,
// and lets the one before come back only then, so that each replica has its turn.
func (r *Run) chase(ctx context.Context, topic string, rounds int, more func(context.Context) error) error {
	f := r.strike("kill", fmt.Sprintf("%d leaders of %s", rounds, topic))
	defer r.over(f)
	r.take(f, r.alive())
	var before []*host.Host
	for range rounds {
		if err := more(ctx); err != nil {
			return err
		}
		leader, err := r.leaderOf(ctx, topic, len(before))
		if err != nil {
			return err
		}
		r.faults++
		r.note("kill the leader of %s (node %d)", topic, leader.ID)
		if err := errors.Join(leader.Kill(), restart(before)); err != nil {
			return err
		}
		before = []*host.Host{leader}
	}
	return restart(r.cluster.Hosts)
}

// produce appends some records, all of which must be acknowledged.
func (t *trimmed) produce(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, t.run.patience)
	defer cancel()
	var records []*kgo.Record
	for n := range trimRecords {
		records = append(records, kgo.StringRecord(strconv.Itoa(len(t.acked)+n)))
	}
	for _, res := range t.cl.ProduceSync(wait, records...) {
		if res.Err != nil {
			return fmt.Errorf("produce to %s: %w", trimTopic, res.Err)
		}
	}
	for _, r := range records { // ProduceSync answers in the order of completion
		t.acked = append(t.acked, r.Offset)
	}
	return nil
}

// more produces, trims somewhere, and looks where the log starts before and after.
func (t *trimmed) more(ctx context.Context) error {
	if err := errors.Join(t.look(ctx), t.produce(ctx)); err != nil {
		return err
	}
	to := t.floor + t.run.rnd.Int64N(t.acked[len(t.acked)-1]-t.floor+2)
	err := t.run.insist(ctx, "trim "+trimTopic, func(ctx context.Context) error {
		offsets := kadm.Offsets{}
		offsets.AddOffset(trimTopic, 0, to, -1)
		trims, err := t.run.crew.Admin().DeleteRecords(ctx, offsets)
		if err != nil {
			return err
		}
		got, ok := trims.Lookup(trimTopic, 0)
		if err := answered(ok, got.Err); err != nil {
			return err
		}
		if got.LowWatermark < to {
			t.run.book.Problem("%s was trimmed to %d, and starts at %d", trimTopic, to, got.LowWatermark)
		}
		t.floor = max(t.floor, got.LowWatermark)
		return nil
	})
	return errors.Join(err, t.look(ctx))
}

// look asks the present leader where its log starts.
func (t *trimmed) look(ctx context.Context) error {
	return t.run.insist(ctx, "ask where "+trimTopic+" starts", func(ctx context.Context) error {
		starts, err := t.run.crew.Admin().ListStartOffsets(ctx, trimTopic)
		if err != nil {
			return err
		}
		start, ok := starts.Lookup(trimTopic, 0)
		if err := answered(ok, start.Err); err != nil {
			return err
		}
		if start.Offset < t.floor {
			t.run.book.Problem("%s starts at %d again, and had been trimmed to %d", trimTopic, start.Offset, t.floor)
		}
		return nil
	})
}

// answered tells what is wrong with what a call says of a partition, if it says anything.
func answered(ok bool, err error) error {
	if !ok {
		return errors.New("the answer leaves the partition out")
	}
	return err
}

// leaderOf waits until all replicas of a topic's partition but some are in sync, and finds out
// who leads them.
func (r *Run) leaderOf(ctx context.Context, topic string, away int) (h *host.Host, err error) {
	err = r.insist(ctx, "await the replicas of "+topic, func(ctx context.Context) error {
		topics, err := r.crew.Admin().ListTopics(ctx, topic)
		if err != nil {
			return err
		}
		p := topics[topic].Partitions[0]
		if h = r.cluster.Host(p.Leader); h == nil || h.PID() == 0 || len(p.Replicas) == 0 || len(p.ISR) < len(p.Replicas)-away {
			return fmt.Errorf("leader %d, %v of %v in sync", p.Leader, p.ISR, p.Replicas)
		}
		return nil
	})
	return h, err
}

// readAll reads a topic's partition from its start, with a client that knows nothing, until
// that is enough.
func (r *Run) readAll(ctx context.Context, topic string, enough func() bool, see func(*kgo.Record)) error {
	wait, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.cluster.Brokers()...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		return err
	}
	defer cl.Close()
	for !enough() {
		fetches := cl.PollFetches(wait)
		if err := wait.Err(); err != nil {
			return fmt.Errorf("read %s back: %w", topic, err)
		}
		fetches.EachRecord(see)
	}
	return nil
}

// readBack reads everything that is left.
func (t *trimmed) readBack(ctx context.Context) error {
	last, seen := t.acked[len(t.acked)-1], map[int64]bool{}
	err := t.run.readAll(ctx, trimTopic, func() bool { return seen[last] }, func(r *kgo.Record) {
		seen[r.Offset] = true
		if n, err := strconv.Atoi(string(r.Value)); err != nil || n >= len(t.acked) || t.acked[n] != r.Offset {
			t.run.book.Problem("%s holds %q at offset %d, which is not what was acknowledged", trimTopic, r.Value, r.Offset)
		}
		if r.Offset < t.floor {
			t.run.book.Problem("%s shows offset %d, and was trimmed to %d", trimTopic, r.Offset, t.floor)
		}
	})
	if err != nil {
		return err
	}
	for n, o := range t.acked {
		if o >= t.floor && !seen[o] {
			t.run.book.Problem("record %d of %s, acknowledged at offset %d, is lost", n, trimTopic, o)
		}
	}
	return nil
}
