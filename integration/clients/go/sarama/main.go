// Command sarama is the client program for IBM/sarama; see the conventions in
// integration/clients.
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
	"sync"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

// padding makes a record worth compressing.
const padding = "a wall in a river. "

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	out := &printer{enc: json.NewEncoder(os.Stdout)}
	if err := run(ctx, out, os.Args[1:]); err != nil {
		out.print(map[string]any{"step": "error", "error": err.Error()})
		os.Exit(1)
	}
}

func run(ctx context.Context, out *printer, args []string) error {
	if len(args) < 3 {
		return errors.New("usage: sarama produce|read|group BROKERS TOPIC …")
	}
	brokers, topic := strings.Split(args[1], ","), args[2]
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

// printer prints one JSON object a line for goroutines that share it.
type printer struct {
	mu  sync.Mutex
	enc *json.Encoder
}

func (p *printer) print(v map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.enc.Encode(v); err != nil {
		os.Exit(1) // nobody reads any more
	}
}

func (p *printer) read(m *sarama.ConsumerMessage) {
	digits, _, _ := strings.Cut(string(m.Value), ":")
	n, err := strconv.Atoi(digits)
	if err != nil {
		p.print(map[string]any{"step": "error", "error": err.Error()})
	}
	p.print(map[string]any{"step": "read", "partition": m.Partition, "offset": m.Offset, "n": n})
}

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Return.Errors = false
	c.Metadata.Retry.Max = 100
	return c
}

func produce(out *printer, brokers []string, topic, codec string, first, count int) error {
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
			p.Input() <- &sarama.ProducerMessage{Topic: topic, Metadata: n, Key: sarama.StringEncoder(strconv.Itoa(n)),
				Value: sarama.StringEncoder(strconv.Itoa(n) + ":" + strings.Repeat(padding, 10))}
		}
	}()
	for range count {
		select {
		case m := <-p.Successes():
			out.print(map[string]any{"step": "acked", "n": m.Metadata})
		case e := <-p.Errors():
			return e
		}
	}
	return p.Close()
}

func read(ctx context.Context, out *printer, brokers []string, topic string) error {
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
				out.read(m)
			}
		}()
	}
	<-ctx.Done()
	for _, pc := range all {
		err = errors.Join(err, pc.Close())
	}
	return errors.Join(err, consumer.Close())
}

func group(ctx context.Context, out *printer, brokers []string, topic, name string) error {
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
type member struct{ out *printer }

func (m member) Setup(s sarama.ConsumerGroupSession) error {
	m.out.print(map[string]any{"step": "assigned", "claims": s.Claims()})
	return nil
}

func (member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m member) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for {
		select {
		case msg, ok := <-c.Messages():
			if !ok {
				return nil
			}
			m.out.read(msg)
			s.MarkMessage(msg, "")
		case <-s.Context().Done():
			return nil
		}
	}
}
