package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/urfave/cli/v2"
)

// e2eHead is what each value of bench e2e begins with: eight bytes of the run, eight of the
// record's number.
const e2eHead = 16

func (e *Env) benchEndToEndCommand() *cli.Command {
	return &cli.Command{
		Name: "e2e", Usage: "measure the time from produce to consume",
		Description: "Each record is sent when the one before has been consumed, or at --rate, and its latency counts from when it was due until a consumer that follows the topic has it.",
		Action:      e.benchEndToEnd,
		Flags: append(append(connectionFlags(), outputFlag(),
			&cli.StringFlag{Name: "topic", Aliases: []string{"t"}, Value: "weir-bench-e2e", Usage: "use this `TOPIC`"},
			&cli.Int64Flag{Name: "records", Aliases: []string{"n"}, Value: 10_000, Usage: "`N` records in all"},
			&cli.IntFlag{Name: "size", Aliases: []string{"s"}, Value: 100, Usage: "`BYTES` of each value, 16 or more"},
			&cli.IntFlag{Name: "partitions", Aliases: []string{"p"}, Value: -1, Usage: "create the topic with `N` partitions if it is missing"},
			&cli.IntFlag{Name: "replicas", Aliases: []string{"r"}, Value: -1, Usage: "create the topic with `N` replicas if it is missing"},
			&cli.Int64Flag{Name: "rate", Usage: "send `N` records a second; 0 to send one after the other"}),
			producerFlags()...),
	}
}

func (e *Env) benchEndToEnd(c *cli.Context) error {
	if err := checkOutput(c); err != nil {
		return err
	}
	opts, err := producerOptions(c)
	if err != nil {
		return err
	}
	topic, b := c.String("topic"), newEndToEnd(c.Int64("records"), c.Int("size"), c.Int64("rate"))
	if b.total <= 0 || b.size < e2eHead {
		return usagef("--records must be above 0 and --size %d or more", e2eHead)
	}
	producer, err := e.connect(c, append(opts, kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0))...)
	if err != nil {
		return err
	}
	defer producer.Close()
	from, err := topicEnds(c, producer, topic)
	if err != nil {
		return err
	}
	consumer, err := e.connect(c, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	if err != nil {
		return err
	}
	defer consumer.Close()
	begin := time.Now()
	if err := b.run(c, producer, consumer); err != nil {
		return explain("measure topic "+topic, brokersOf(c), err)
	}
	result := newBenchResult(b.total, b.total*int64(b.size), time.Since(begin))
	result.latencies = b.latency.latencies(b.total)
	return e.printBench(c, "end to end", result)
}

// topicEnds makes the topic if it is missing and returns where each partition ends now.
func topicEnds(c *cli.Context, cl *kgo.Client, topic string) (map[int32]kgo.Offset, error) {
	adm := kadm.NewClient(cl)
	_, err := adm.CreateTopic(c.Context, int32(c.Int("partitions")), int16(c.Int("replicas")), nil, topic)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return nil, explain("create topic "+topic, brokersOf(c), err)
	}
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	for {
		ends, err := adm.ListEndOffsets(ctx, topic)
		if err == nil {
			err = ends.Error()
		}
		if err == nil && len(ends[topic]) > 0 {
			from := map[int32]kgo.Offset{}
			ends.Each(func(o kadm.ListedOffset) { from[o.Partition] = kgo.NewOffset().At(o.Offset) })
			return from, nil
		}
		if err != nil && !kerr.IsRetriable(err) {
			return nil, explain("find the end of topic "+topic, brokersOf(c), err)
		}
		if err := pause(ctx, metadataMinAge); err != nil {
			return nil, explain("find the end of topic "+topic, brokersOf(c), err)
		}
	}
}

// endToEnd is one run of bench e2e.
type endToEnd struct {
	total   int64
	size    int
	rate    int64
	run8    [8]byte // tells this run's records from those of others
	due     []time.Time
	filler  []byte
	seen    []bool
	latency *histogram
}

func newEndToEnd(total int64, size int, rate int64) *endToEnd {
	b := &endToEnd{total: total, size: size, rate: rate, latency: &histogram{}}
	binary.BigEndian.PutUint64(b.run8[:], rand.Uint64())
	if total > 0 && size >= e2eHead {
		b.due, b.seen = make([]time.Time, total), make([]bool, total)
		b.filler = newLoad(total, size-e2eHead, 0).payload
	}
	return b
}

// run sends and receives all records.
func (b *endToEnd) run(c *cli.Context, producer, consumer *kgo.Client) error {
	ctx, cancel := context.WithCancelCause(c.Context)
	defer cancel(nil)
	turn := make(chan struct{}, 1) // the next record may go
	begin := time.Now()
	sent := make(chan struct{})
	go func() { // ends with the last record, or with ctx; run waits for it
		defer close(sent)
		for i := range b.total {
			if !b.await(ctx, i, begin, turn) {
				return
			}
			producer.Produce(ctx, b.record(i), func(_ *kgo.Record, err error) {
				if err != nil {
					cancel(err)
				}
			})
		}
	}()
	err := b.receive(ctx, c.Duration("timeout"), consumer, turn)
	cancel(err)
	<-sent
	return err
}

// await waits until record i is due, and notes when that was.
func (b *endToEnd) await(ctx context.Context, i int64, begin time.Time, turn <-chan struct{}) bool {
	if b.rate > 0 {
		at := begin.Add(time.Duration(float64(i) / float64(b.rate) * float64(time.Second)))
		b.due[i] = at
		return pause(ctx, time.Until(at)) == nil
	}
	if i > 0 {
		select {
		case <-turn:
		case <-ctx.Done():
			return false
		}
	}
	b.due[i] = time.Now()
	return true
}

func (b *endToEnd) record(i int64) *kgo.Record {
	value := append(make([]byte, 0, b.size), b.run8[:]...)
	value = binary.BigEndian.AppendUint64(value, uint64(i))
	return &kgo.Record{Value: append(value, b.filler[:b.size-e2eHead]...)}
}

// receive takes each record once. timeout bounds the time without any.
func (b *endToEnd) receive(ctx context.Context, timeout time.Duration, cl *kgo.Client, turn chan<- struct{}) error {
	for got := int64(0); got < b.total; {
		wait, cancel := context.WithTimeout(ctx, timeout)
		fs := cl.PollFetches(wait)
		cancel()
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := fs.Err(); err != nil {
			return err
		}
		now := time.Now()
		for it := fs.RecordIter(); !it.Done(); {
			i, ok := b.number(it.Next())
			if !ok || b.seen[i] {
				continue
			}
			b.seen[i] = true
			b.latency.add(now.Sub(b.due[i]))
			got++
			select {
			case turn <- struct{}{}:
			default: // under a rate nobody takes turns
			}
		}
	}
	return nil
}

// number reads which record of this run it is.
func (b *endToEnd) number(r *kgo.Record) (int64, bool) {
	if len(r.Value) < e2eHead || !bytes.Equal(r.Value[:8], b.run8[:]) {
		return 0, false
	}
	i := binary.BigEndian.Uint64(r.Value[8:])
	return int64(i), i < uint64(b.total)
}
