package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/urfave/cli/v2"
)

func (e *Env) benchCommand() *cli.Command {
	common := append(connectionFlags(), outputFlag(),
		&cli.StringFlag{Name: "topic", Aliases: []string{"t"}, Value: "weir-bench", Usage: "use this `TOPIC`"},
		&cli.Int64Flag{Name: "records", Aliases: []string{"n"}, Value: 1_000_000, Usage: "`N` records in all"})
	return &cli.Command{
		Name: "bench", Usage: "measure throughput and latency",
		Before: func(*cli.Context) error {
			if _, set := os.LookupEnv("GOGC"); !set {
				debug.SetGCPercent(400) // what is measured is not to be this process's garbage collection
			}
			return nil
		},
		Subcommands: []*cli.Command{
			{
				Name: "produce", Usage: "write records as fast as the cluster takes them", Action: e.benchProduce,
				Flags: append(append(common, producerFlags()...),
					&cli.IntFlag{Name: "size", Aliases: []string{"s"}, Value: 1024, Usage: "`BYTES` of each value"},
					&cli.IntFlag{Name: "partitions", Aliases: []string{"p"}, Value: -1, Usage: "create the topic with `N` partitions if it is missing"},
					&cli.IntFlag{Name: "replicas", Aliases: []string{"r"}, Value: -1, Usage: "create the topic with `N` replicas if it is missing"},
					&cli.IntFlag{Name: "batch-bytes", Value: 1_000_000, Usage: "largest batch in `BYTES`"},
					&cli.IntFlag{Name: "request-bytes", Value: 1_100_000, Usage: "largest request in `BYTES`; Java's producer has 1048576"},
					&cli.DurationFlag{Name: "linger", Value: 5 * time.Millisecond, Usage: "wait this `TIME` to fill a batch"},
					&cli.Int64Flag{Name: "rate", Usage: "at most `N` records a second; 0 for no limit"}),
			},
			{Name: "consume", Usage: "read records as fast as the cluster gives them", Action: e.benchConsume, Flags: common},
			e.benchEndToEndCommand(),
			e.benchCommitCommand(),
		},
	}
}

// benchResult is what a bench prints.
type benchResult struct {
	Records    int64   `json:"records"`
	Bytes      int64   `json:"bytes"`
	Seconds    float64 `json:"seconds"`
	RecordsSec float64 `json:"records_per_second"`
	MBSec      float64 `json:"mb_per_second"`
	latencies
}

func newBenchResult(records, bytes int64, took time.Duration) benchResult {
	s := took.Seconds()
	return benchResult{Records: records, Bytes: bytes, Seconds: s, RecordsSec: float64(records) / s, MBSec: float64(bytes) / s / 1e6}
}

func (e *Env) printBench(c *cli.Context, verb string, r benchResult) error {
	if c.String("output") == "json" {
		return json.NewEncoder(e.Stdout).Encode(r)
	}
	fmt.Fprintf(e.Stdout, "%d records %s, %.1f records/sec (%.2f MB/sec)", r.Records, verb, r.RecordsSec, r.MBSec)
	if r.MaxMs > 0 {
		fmt.Fprintf(e.Stdout, ", %s", r.latencies)
	}
	fmt.Fprintln(e.Stdout)
	return nil
}

func (e *Env) benchProduce(c *cli.Context) error {
	if err := checkOutput(c); err != nil {
		return err
	}
	opts, err := producerOptions(c)
	if err != nil {
		return err
	}
	topic := c.String("topic")
	if c.Int("size") < 0 || c.Int64("records") <= 0 {
		return usagef("--records must be above 0 and --size not negative")
	}
	if c.Int("request-bytes") <= c.Int("batch-bytes") {
		return usagef("--request-bytes %d must be above --batch-bytes %d, and by some hundred bytes for what goes around a batch", c.Int("request-bytes"), c.Int("batch-bytes"))
	}
	cl, err := e.connect(c, append(opts, kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(c.Duration("linger")),
		kgo.ProducerBatchMaxBytes(int32(c.Int("batch-bytes"))), kgo.BrokerMaxWriteBytes(int32(c.Int("request-bytes"))))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	_, err = kadm.NewClient(cl).CreateTopic(c.Context, int32(c.Int("partitions")), int16(c.Int("replicas")), nil, topic)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return explain("create topic "+topic, brokersOf(c), err)
	}
	load := newLoad(c.Int64("records"), c.Int("size"), c.Int64("rate"))
	var acked atomic.Int64
	bar := e.newBar(load.total*int64(load.size+1), "produced", true)
	begin := time.Now()
	sendErr := send(c.Context, cl, load.next, &acked, bar)
	took := time.Since(begin)
	bar.done()
	if sendErr != nil {
		return explain("produce to "+topic, brokersOf(c), sendErr)
	}
	result := newBenchResult(acked.Load(), acked.Load()*int64(load.size), took)
	result.latencies = load.latency.latencies(acked.Load())
	return e.printBench(c, "sent", result)
}

// load makes records of random letters, at a bounded rate.
type load struct {
	total   int64
	size    int
	rate    int64
	made    int64
	begin   time.Time
	payload []byte // values are windows of it
	latency *histogram
}

// payloadSlack is how many different windows of the payload values are cut from.
const payloadSlack = 4096

func newLoad(total int64, size int, rate int64) *load {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	l := &load{total: total, size: size, rate: rate, payload: make([]byte, size+payloadSlack), latency: &histogram{}}
	for i := range l.payload {
		l.payload[i] = letters[rand.IntN(len(letters))]
	}
	return l
}

func (l *load) next() (*kgo.Record, error) {
	if l.made == l.total {
		return nil, io.EOF
	}
	if l.begin.IsZero() {
		l.begin = time.Now()
	}
	if l.rate > 0 {
		due := l.begin.Add(time.Duration(float64(l.made) / float64(l.rate) * float64(time.Second)))
		time.Sleep(time.Until(due))
	}
	at := int(l.made) % payloadSlack
	l.made++
	sent := time.Now()
	return &kgo.Record{Value: l.payload[at : at+l.size], Context: withArrival(sent, l.latency)}, nil
}

func (e *Env) benchConsume(c *cli.Context) error {
	if err := checkOutput(c); err != nil {
		return err
	}
	topic, want := c.String("topic"), c.Int64("records")
	cl, err := e.connect(c, kgo.ConsumeTopics(topic), kgo.FetchMaxBytes(50<<20), kgo.FetchMaxPartitionBytes(10<<20))
	if err != nil {
		return err
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(c.Context, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return explain("consume "+topic, brokersOf(c), err)
	}
	var there int64
	ends.Each(func(o kadm.ListedOffset) { there += o.Offset })
	want = min(want, there)
	bar := e.newBar(want, "consumed", false)
	var records, bytes int64
	begin := time.Now()
	for records < want {
		ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
		fs := cl.PollFetches(ctx)
		cancel()
		if err := fs.Err(); err != nil {
			bar.done()
			return explain("consume "+topic, brokersOf(c), err)
		}
		before := records
		fs.EachRecord(func(r *kgo.Record) {
			records++
			bytes += int64(len(r.Key) + len(r.Value))
		})
		bar.add(int(records - before))
	}
	took := time.Since(begin)
	bar.done()
	return e.printBench(c, "read", newBenchResult(records, bytes, took))
}
