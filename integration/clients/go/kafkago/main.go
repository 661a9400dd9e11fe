// Command kafkago is the client program for segmentio/kafka-go.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/weirmq/weir/integration/clients/go/program"
)

func main() { program.Main(program.Client{Produce: produce, Read: read, Group: group}) }

// produce writes in calls of 200 records, which the Writer spreads and retries.
// What a call could not write for good is written again: kafka-go has no
// idempotent producer, so records may be there twice.
func produce(ctx context.Context, out *program.Printer, brokers []string, topic, codec string, first, count int) error {
	w := &kafka.Writer{Addr: kafka.TCP(brokers...), Topic: topic, Balancer: &kafka.Hash{}, RequiredAcks: kafka.RequireAll,
		BatchTimeout: 5 * time.Millisecond, MaxAttempts: 50, WriteBackoffMax: 200 * time.Millisecond}
	if codec != "none" {
		if err := w.Compression.UnmarshalText([]byte(codec)); err != nil {
			return err
		}
	}
	for n := first; n < first+count; {
		end := min(n+200, first+count)
		var ms []kafka.Message
		for k := n; k < end; k++ {
			ms = append(ms, kafka.Message{Key: []byte(program.Key(k)), Value: []byte(program.Value(k))})
		}
		if err := w.WriteMessages(ctx, ms...); err != nil {
			return err
		}
		for ; n < end; n++ {
			out.Acked(n)
		}
	}
	return w.Close()
}

func read(ctx context.Context, out *program.Printer, brokers []string, topic string) error {
	partitions, err := kafka.LookupPartitions(ctx, "tcp", brokers[0], topic)
	if err != nil {
		return err
	}
	failed := make(chan error, len(partitions))
	for _, p := range partitions {
		r := kafka.NewReader(kafka.ReaderConfig{Brokers: brokers, Topic: topic, Partition: p.ID, MaxWait: 250 * time.Millisecond})
		go func() { // ends with ctx
			for {
				m, err := r.ReadMessage(ctx)
				if ctx.Err() != nil {
					failed <- r.Close()
					return
				}
				if err != nil {
					failed <- errors.Join(err, r.Close())
					return
				}
				out.Read(int32(m.Partition), m.Offset, m.Value)
			}
		}()
	}
	for range partitions {
		err = errors.Join(err, <-failed)
	}
	return err
}

func group(ctx context.Context, out *program.Printer, brokers []string, topic, name string) error {
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: brokers, Topic: topic, GroupID: name, StartOffset: kafka.FirstOffset,
		CommitInterval: 500 * time.Millisecond, SessionTimeout: 10 * time.Second, HeartbeatInterval: time.Second, MaxWait: 250 * time.Millisecond,
		ErrorLogger: kafka.LoggerFunc(func(f string, a ...any) { fmt.Fprintf(os.Stderr, f+"\n", a...) })})
	for {
		m, err := r.ReadMessage(ctx) // commits what it returns
		if ctx.Err() != nil {
			return r.Close()
		}
		if err != nil {
			return errors.Join(err, r.Close())
		}
		out.Read(int32(m.Partition), m.Offset, m.Value)
	}
}
