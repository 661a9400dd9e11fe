package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/urfave/cli/v2"
)

const (
	maxBufferedRecords = 100_000  // records waiting for an answer before produce stops reading
	maxBufferedBytes   = 64 << 20 // the same in bytes
	lineBuffer         = 256 << 10
	deliveryTimeout    = 2 * time.Minute // Kafka's delivery.timeout.ms
)

func (e *Env) produceCommand() *cli.Command {
	return &cli.Command{
		Name: "produce", Usage: "send each line of stdin as a record", ArgsUsage: "TOPIC", Action: e.produce,
		Description: "Reads lines from stdin and sends each as one record, in order, with acks=all and an idempotent\nproducer unless told otherwise. With -f the input is read by a format instead: '%k %v\\n' takes a\nkey up to the space and a value up to the end of the line.",
		Flags: append(connectionFlags(), append(producerFlags(),
			&cli.IntFlag{Name: "partition", Aliases: []string{"p"}, Value: -1, Usage: "send all to partition `N`"},
			&cli.StringFlag{Name: "key", Aliases: []string{"k"}, Usage: "the same `KEY` for all records"},
			&cli.StringSliceFlag{Name: "header", Aliases: []string{"H"}, Usage: "a header as `KEY:VALUE` for all records; may be repeated"},
			&cli.StringFlag{Name: "format", Aliases: []string{"f"}, Usage: "read records by this % `FORMAT`"})...),
	}
}

// producerFlags are shared by produce and bench produce.
func producerFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "acks", Value: "all", Usage: "`all`, 1 or 0"},
		&cli.StringFlag{Name: "compression", Aliases: []string{"z"}, Value: "none", Usage: "`CODEC`: none, gzip, snappy, lz4 or zstd"},
	}
}

func producerOptions(c *cli.Context) ([]kgo.Opt, error) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	codec, ok := codecs[c.String("compression")]
	if !ok {
		return nil, usagef("unknown compression %q; use none, gzip, snappy, lz4 or zstd", c.String("compression"))
	}
	opts := []kgo.Opt{
		kgo.ProducerBatchCompression(codec),
		kgo.MaxBufferedRecords(maxBufferedRecords), kgo.MaxBufferedBytes(maxBufferedBytes),
		kgo.RecordDeliveryTimeout(deliveryTimeout),
	}
	switch c.String("acks") {
	case "all", "-1":
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, usagef("unknown acks %q; use all, 1 or 0", c.String("acks"))
	}
	return opts, nil
}

func (e *Env) produce(c *cli.Context) error {
	topic, err := oneTopic(c, "produce")
	if err != nil {
		return err
	}
	opts, err := producerOptions(c)
	if err != nil {
		return err
	}
	opts = append(opts, kgo.DefaultProduceTopic(topic))
	if c.Int("partition") >= 0 {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	next, err := e.recordSource(c)
	if err != nil {
		return err
	}
	cl, err := e.connect(c, opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	var acked atomic.Int64
	bar := e.inputBar()
	sendErr := send(c.Context, cl, next, &acked, bar)
	bar.done()
	if sendErr != nil {
		fmt.Fprintf(e.Stderr, "%d records were acknowledged before that\n", acked.Load())
		return explain("produce to "+topic, brokersOf(c), sendErr)
	}
	return nil
}

func oneTopic(c *cli.Context, verb string) (string, error) {
	if c.NArg() != 1 {
		return "", usagef("%s needs one topic: weir %s TOPIC", verb, verb)
	}
	return c.Args().First(), nil
}

// send produces what next returns until io.EOF and waits for all answers. The
// first failure stops it: a later record must not overtake a lost one.
func send(ctx context.Context, cl *kgo.Client, next func() (*kgo.Record, error), acked *atomic.Int64, bar *bar) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var once sync.Once
	done := func(r *kgo.Record, err error) {
		if err != nil {
			once.Do(func() { cancel(err) })
			return
		}
		acked.Add(1)
		answered(r.Context)
	}
	for ctx.Err() == nil {
		r, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read input: %w", err)
		}
		bar.add(len(r.Value) + 1)
		cl.Produce(ctx, r, done)
	}
	if err := cl.Flush(ctx); err != nil && context.Cause(ctx) == nil {
		return err
	}
	return context.Cause(ctx)
}

// recordSource returns a function that reads the next record from stdin.
func (e *Env) recordSource(c *cli.Context) (func() (*kgo.Record, error), error) {
	var headers []kgo.RecordHeader
	for _, h := range c.StringSlice("header") {
		k, v, ok := strings.Cut(h, ":")
		if !ok {
			return nil, usagef("-H %q is not KEY:VALUE", h)
		}
		headers = append(headers, kgo.RecordHeader{Key: k, Value: []byte(v)})
	}
	read, err := e.recordReader(c.String("format"))
	if err != nil {
		return nil, err
	}
	hasKey, key, partition := c.IsSet("key"), []byte(c.String("key")), int32(c.Int("partition"))
	return func() (*kgo.Record, error) {
		r, err := read()
		if err != nil {
			return nil, err
		}
		if hasKey {
			r.Key = key
		}
		if partition >= 0 {
			r.Partition = partition
		}
		r.Headers = append(r.Headers, headers...)
		return r, nil
	}, nil
}

func (e *Env) recordReader(format string) (func() (*kgo.Record, error), error) {
	if format == "" {
		in := bufio.NewReaderSize(e.Stdin, lineBuffer)
		return func() (*kgo.Record, error) { return readLine(in) }, nil
	}
	rd, err := kgo.NewRecordReader(bufio.NewReaderSize(e.Stdin, lineBuffer), format)
	if err != nil {
		return nil, usagef("-f %q is not a record format: %v", format, err)
	}
	return rd.ReadRecord, nil
}

// readLine returns the next line without its newline; a last line without one
// counts too. Carriage returns belong to the record.
func readLine(in *bufio.Reader) (*kgo.Record, error) {
	line, err := in.ReadBytes('\n')
	if err != nil && (len(line) == 0 || !errors.Is(err, io.EOF)) {
		return nil, err
	}
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	return &kgo.Record{Value: line}, nil
}

// bar is a progress bar on stderr; the zero value draws nothing.
type bar struct{ p *progressbar.ProgressBar }

// inputBar shows the bytes read of a regular file on stdin, on a terminal only.
func (e *Env) inputBar() *bar {
	in, ok := e.Stdin.(*os.File)
	if !ok || !terminal(e.Stderr) {
		return &bar{}
	}
	st, err := in.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return &bar{}
	}
	return e.newBar(st.Size(), "produced", true)
}

// newBar draws a bar of size steps, or bytes, where stderr is a terminal.
func (e *Env) newBar(size int64, what string, bytes bool) *bar {
	if !terminal(e.Stderr) {
		return &bar{}
	}
	return &bar{progressbar.NewOptions64(size, progressbar.OptionSetWriter(e.Stderr), progressbar.OptionSetDescription(what),
		progressbar.OptionShowBytes(bytes), progressbar.OptionShowCount(), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())}
}

func (b *bar) add(n int) {
	if b.p != nil {
		_ = b.p.Add(n) // a bar that cannot be drawn is no reason to stop
	}
}

func (b *bar) done() {
	if b.p != nil {
		_ = b.p.Finish()
	}
}
