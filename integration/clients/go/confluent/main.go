// Command confluent is the client program for confluentinc/confluent-kafka-go,
// that is librdkafka as its module ships it; see the conventions in
// integration/clients. The environment variable GROUP_PROTOCOL chooses between
// classic (the default) and consumer.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// padding makes a record worth compressing.
const padding = "a wall in a river. "

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	out := printer{json.NewEncoder(os.Stdout)}
	if err := run(ctx, out, os.Args[1:]); err != nil {
		out.print(map[string]any{"step": "error", "error": err.Error()})
		os.Exit(1)
	}
}

func run(ctx context.Context, out printer, args []string) error {
	if len(args) < 3 {
		return errors.New("usage: confluent produce|read|group BROKERS TOPIC …")
	}
	brokers, topic := args[1], args[2]
	switch {
	case args[0] == "produce" && len(args) == 6:
		first, err := strconv.Atoi(args[4])
		if err != nil {
			return err
		}
		count, err := strconv.Atoi(args[5])
		if err != nil {
			return err
		}
		return produce(out, brokers, topic, args[3], first, count)
	case args[0] == "read":
		return read(ctx, out, brokers, topic)
	case args[0] == "group" && len(args) == 4:
		return group(ctx, out, brokers, topic, args[3])
	}
	return fmt.Errorf("cannot do %q", args)
}

// printer prints one JSON object a line.
type printer struct{ enc *json.Encoder }

func (p printer) print(v map[string]any) {
	if err := p.enc.Encode(v); err != nil {
		os.Exit(1) // nobody reads any more
	}
}

func (p printer) read(m *kafka.Message) {
	digits, _, _ := strings.Cut(string(m.Value), ":")
	n, err := strconv.Atoi(digits)
	if err != nil {
		p.print(map[string]any{"step": "error", "error": err.Error()})
	}
	p.print(map[string]any{"step": "read", "partition": m.TopicPartition.Partition, "offset": int64(m.TopicPartition.Offset), "n": n})
}

func produce(out printer, brokers, topic, codec string, first, count int) error {
	// Short queues: the program is not to be done before its first lines are read.
	p, err := kafka.NewProducer(&kafka.ConfigMap{"bootstrap.servers": brokers, "enable.idempotence": true, "compression.type": codec, "linger.ms": 5,
		"go.events.channel.size": 100, "go.produce.channel.size": 100, "queue.buffering.max.messages": 500})
	if err != nil {
		return err
	}
	defer p.Close()
	handed := make(chan error, 1)
	go func() { // ends when every record is handed over or one could not be
		for n := first; n < first+count; n++ {
			m := &kafka.Message{TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: kafka.PartitionAny}, Opaque: n,
				Key: []byte(strconv.Itoa(n)), Value: []byte(strconv.Itoa(n) + ":" + strings.Repeat(padding, 10))}
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
			out.print(map[string]any{"step": "acked", "n": m.Opaque})
			got++
		}
	}
	return nil
}

// deliver prints what the consumer gets until ctx ends, and closes it.
func deliver(ctx context.Context, out printer, c *kafka.Consumer) error {
	for ctx.Err() == nil {
		m, err := c.ReadMessage(200 * time.Millisecond)
		var ke kafka.Error
		switch {
		case err == nil:
			out.read(m)
		case errors.As(err, &ke) && ke.IsTimeout():
		case errors.As(err, &ke) && !ke.IsFatal():
			fmt.Fprintln(os.Stderr, err) // librdkafka goes on by itself
		default:
			return errors.Join(err, c.Close())
		}
	}
	return c.Close()
}

func read(ctx context.Context, out printer, brokers, topic string) error {
	c, err := kafka.NewConsumer(&kafka.ConfigMap{"bootstrap.servers": brokers, "group.id": "unused", "enable.auto.commit": false, "auto.offset.reset": "earliest"})
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

func group(ctx context.Context, out printer, brokers, topic, name string) error {
	cfg := kafka.ConfigMap{"bootstrap.servers": brokers, "group.id": name, "auto.commit.interval.ms": 500, "auto.offset.reset": "earliest"}
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
