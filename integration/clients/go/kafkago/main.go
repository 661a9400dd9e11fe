// Command kafkago is the client program for segmentio/kafka-go; see the
// conventions in integration/clients.
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

	"github.com/segmentio/kafka-go"
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
		return errors.New("usage: kafkago produce|read|group BROKERS TOPIC …")
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
		return produce(ctx, out, brokers, topic, args[3], first, count)
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

func (p *printer) read(m kafka.Message) {
	digits, _, _ := strings.Cut(string(m.Value), ":")
	n, err := strconv.Atoi(digits)
	if err != nil {
		p.print(map[string]any{"step": "error", "error": err.Error()})
	}
	p.print(map[string]any{"step": "read", "partition": m.Partition, "offset": m.Offset, "n": n})
}

// produce writes in calls of 200 records, which the Writer spreads and retries.
// What a call could not write for good is written again: kafka-go has no
// idempotent producer, so records may be there twice.
func produce(ctx context.Context, out *printer, brokers []string, topic, codec string, first, count int) error {
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
			ms = append(ms, kafka.Message{Key: []byte(strconv.Itoa(k)), Value: []byte(strconv.Itoa(k) + ":" + strings.Repeat(padding, 10))})
		}
		if err := w.WriteMessages(ctx, ms...); err != nil {
			return err
		}
		for ; n < end; n++ {
			out.print(map[string]any{"step": "acked", "n": n})
		}
	}
	return w.Close()
}

func read(ctx context.Context, out *printer, brokers []string, topic string) error {
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
				out.read(m)
			}
		}()
	}
	for range partitions {
		err = errors.Join(err, <-failed)
	}
	return err
}

func group(ctx context.Context, out *printer, brokers []string, topic, name string) error {
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
		out.read(m)
	}
}
