// Command confluent is the client program for confluentinc/confluent-kafka-go,
// that is librdkafka as its module ships it. The environment variable
// GROUP_PROTOCOL chooses between classic (the default) and consumer.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/weirmq/weir/integration/clients/go/program"
)

func main() { program.Main(program.Client{Produce: produce, Read: read, Group: group}) }

func produce(_ context.Context, out *program.Printer, brokers []string, topic, codec string, first, count int) error {
	// Short queues: the program is not to be done before its first lines are read.
	p, err := kafka.NewProducer(&kafka.ConfigMap{"bootstrap.servers": strings.Join(brokers, ","), "enable.idempotence": true, "compression.type": codec, "linger.ms": 5,
		"go.events.channel.size": 100, "go.produce.channel.size": 100, "queue.buffering.max.messages": 500})
	if err != nil {
		return err
	}
	defer p.Close()
	handed := make(chan error, 1)
	go func() { // ends when every record is handed over or one could not be
		for n := first; n < first+count; n++ {
			m := &kafka.Message{TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: kafka.PartitionAny}, Opaque: n,
				Key: []byte(program.Key(n)), Value: []byte(program.Value(n))}
			for err := p.Produce(m, nil); err != nil; err = p.Produce(m, nil) {
				if ke := (kafka.Error{}); !errors.As(err, &ke) || ke.Code() != kafka.ErrQueueFull {
					handed <- err
					return
				}
				time.Sleep(time.Millisecond)
			}
		}
	}()
	for got := 0; got < count; {
		select {
		case err := <-handed:
			return err
		case e := <-p.Events():
			m, ok := e.(*kafka.Message)
			if !ok {
				fmt.Fprintln(os.Stderr, e)
				continue
			}
			if m.TopicPartition.Error != nil {
				return m.TopicPartition.Error
			}
			out.Acked(m.Opaque.(int))
			got++
		}
	}
	return nil
}

// deliver prints what the consumer gets until ctx ends, and closes it.
func deliver(ctx context.Context, out *program.Printer, c *kafka.Consumer) error {
	for ctx.Err() == nil {
		m, err := c.ReadMessage(200 * time.Millisecond)
		var ke kafka.Error
		switch {
		case err == nil:
			out.Read(m.TopicPartition.Partition, int64(m.TopicPartition.Offset), m.Value)
		case errors.As(err, &ke) && ke.IsTimeout():
		case errors.As(err, &ke) && !ke.IsFatal():
			fmt.Fprintln(os.Stderr, err) // librdkafka goes on by itself
		default:
			return errors.Join(err, c.Close())
		}
	}
	return c.Close()
}

func read(ctx context.Context, out *program.Printer, brokers []string, topic string) error {
	c, err := kafka.NewConsumer(&kafka.ConfigMap{"bootstrap.servers": strings.Join(brokers, ","), "group.id": "unused", "enable.auto.commit": false, "auto.offset.reset": "earliest"})
	if err != nil {
		return err
	}
	md, err := c.GetMetadata(&topic, false, 10000)
	if err != nil {
		return err
	}
	var all []kafka.TopicPartition
	for _, p := range md.Topics[topic].Partitions {
		all = append(all, kafka.TopicPartition{Topic: &topic, Partition: p.ID, Offset: kafka.OffsetBeginning})
	}
	if err := c.Assign(all); err != nil {
		return err
	}
	return deliver(ctx, out, c)
}

func group(ctx context.Context, out *program.Printer, brokers []string, topic, name string) error {
	cfg := kafka.ConfigMap{"bootstrap.servers": strings.Join(brokers, ","), "group.id": name, "auto.commit.interval.ms": 500, "auto.offset.reset": "earliest"}
	if protocol := os.Getenv("GROUP_PROTOCOL"); protocol == "consumer" {
		cfg["group.protocol"] = protocol
	} else {
		cfg["session.timeout.ms"] = 10000
	}
	c, err := kafka.NewConsumer(&cfg)
	if err != nil {
		return err
	}
	if err := c.Subscribe(topic, nil); err != nil {
		return err
	}
	return deliver(ctx, out, c)
}
