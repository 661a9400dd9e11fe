// Command sarama is the client program for IBM/sarama.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"

	"github.com/weirmq/weir/integration/clients/go/program"
)

func main() { program.Main(program.Client{Produce: produce, Read: read, Group: group}) }

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Return.Errors = false
	c.Metadata.Retry.Max = 100
	return c
}

func produce(_ context.Context, out *program.Printer, brokers []string, topic, codec string, first, count int) error {
	c := config()
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Idempotent, c.Net.MaxOpenRequests = true, 1
	c.Producer.Retry.Max, c.Producer.Retry.Backoff = 200, 100*time.Millisecond
	if err := c.Producer.Compression.UnmarshalText([]byte(codec)); err != nil {
		return err
	}
	p, err := sarama.NewAsyncProducer(brokers, c)
	if err != nil {
		return err
	}
	go func() { // ends when every record is handed over
		for n := first; n < first+count; n++ {
			p.Input() <- &sarama.ProducerMessage{Topic: topic, Metadata: n, Key: sarama.StringEncoder(program.Key(n)), Value: sarama.StringEncoder(program.Value(n))}
		}
	}()
	for range count {
		select {
		case m := <-p.Successes():
			out.Acked(m.Metadata.(int))
		case e := <-p.Errors():
			return e
		}
	}
	return p.Close()
}

func read(ctx context.Context, out *program.Printer, brokers []string, topic string) error {
	consumer, err := sarama.NewConsumer(brokers, config())
	if err != nil {
		return err
	}
	partitions, err := consumer.Partitions(topic)
	if err != nil {
		return err
	}
	var all []sarama.PartitionConsumer
	for _, p := range partitions {
		pc, err := consumer.ConsumePartition(topic, p, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		all = append(all, pc)
		go func() { // ends with Close
			for m := range pc.Messages() {
				out.Read(m.Partition, m.Offset, m.Value)
			}
		}()
	}
	<-ctx.Done()
	for _, pc := range all {
		err = errors.Join(err, pc.Close())
	}
	return errors.Join(err, consumer.Close())
}

func group(ctx context.Context, out *program.Printer, brokers []string, topic, name string) error {
	c := config()
	c.Consumer.Group.Session.Timeout, c.Consumer.Group.Heartbeat.Interval = 10*time.Second, time.Second
	c.Consumer.Offsets.AutoCommit.Interval = 500 * time.Millisecond
	g, err := sarama.NewConsumerGroup(brokers, name, c)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		// A session ends with each rebalance, and with an error when the coordinator is lost.
		if err := g.Consume(ctx, []string{topic}, member{out}); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "session:", err)
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	return g.Close()
}

// member reads what one session assigns to it.
type member struct{ out *program.Printer }

func (member) Setup(sarama.ConsumerGroupSession) error { return nil }

func (member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m member) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for {
		select {
		case msg, ok := <-c.Messages():
			if !ok {
				return nil
			}
			m.out.Read(msg.Partition, msg.Offset, msg.Value)
			s.MarkMessage(msg, "")
		case <-s.Context().Done():
			return nil
		}
	}
}
