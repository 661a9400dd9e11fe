// Command franz is the client program for twmb/franz-go. The environment variable
// GROUP_PROTOCOL chooses between classic (the default) and consumer.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/integration/clients/go/program"
)

func main() { program.Main(program.Client{Produce: produce, Read: read, Group: group}) }

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func produce(ctx context.Context, out *program.Printer, brokers []string, topic, codec string, first, count int) error {
	c, known := codecs[codec]
	if !known {
		return fmt.Errorf("there is no codec %q", codec)
	}
	// A short queue: the program is not to be done before its first lines are read.
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(c), kgo.MaxBufferedRecords(500))
	if err != nil {
		return err
	}
	defer cl.Close()
	failed := make(chan error, count)
	for n := first; n < first+count; n++ {
		cl.Produce(ctx, &kgo.Record{Key: []byte(program.Key(n)), Value: []byte(program.Value(n))}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed <- err
				return
			}
			out.Acked(n)
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// deliver prints what the client gets until ctx ends.
func deliver(ctx context.Context, out *program.Printer, cl *kgo.Client) {
	for ctx.Err() == nil {
		fetches := cl.PollFetches(ctx)
		fetches.EachError(func(_ string, _ int32, err error) {
			if !errors.Is(err, context.Canceled) {
				fmt.Fprintln(os.Stderr, err) // the client goes on by itself
			}
		})
		fetches.EachRecord(func(r *kgo.Record) { out.Read(r.Partition, r.Offset, r.Value) })
	}
}

func read(ctx context.Context, out *program.Printer, brokers []string, topic string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer cl.Close()
	deliver(ctx, out, cl)
	return nil
}

func group(ctx context.Context, out *program.Printer, brokers []string, topic, name string) error {
	opts := []kgo.Opt{kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AutoCommitInterval(500 * time.Millisecond)}
	if os.Getenv("GROUP_PROTOCOL") == "consumer" {
		opts = append(opts, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	} else {
		opts = append(opts, kgo.SessionTimeout(10*time.Second))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	deliver(ctx, out, cl)
	// What the last poll returned was printed, and is committed too.
	last, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = cl.CommitUncommittedOffsets(last)
	return errors.Join(err, cl.LeaveGroupContext(last))
}
