// Package program is what the client programs in Go share: their arguments, their records
// and the lines they print. The conventions are those of integration/clients.
package program

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
)

// Client is what a library of its own makes of each call. Read and Group return when their
// context ends.
type Client struct {
	Produce func(ctx context.Context, out *Printer, brokers []string, topic, codec string, first, count int) error
	Read    func(ctx context.Context, out *Printer, brokers []string, topic string) error
	Group   func(ctx context.Context, out *Printer, brokers []string, topic, group string) error
}

// Main runs the program until it is done or SIGTERM comes.
func Main(c Client) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	out := &Printer{enc: json.NewEncoder(os.Stdout)}
	if err := c.run(ctx, out, os.Args[1:]); err != nil {
		out.print(map[string]any{"step": "error", "error": err.Error()})
		os.Exit(1)
	}
}

func (c Client) run(ctx context.Context, out *Printer, args []string) error {
	if len(args) < 3 {
		return errors.New("the arguments are produce|read|group BROKERS TOPIC …")
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
		return c.Produce(ctx, out, brokers, topic, args[3], first, count)
	case args[0] == "read" && len(args) == 3:
		return c.Read(ctx, out, brokers, topic)
	case args[0] == "group" && len(args) == 4:
		return c.Group(ctx, out, brokers, topic, args[3])
	}
	return fmt.Errorf("cannot do %q", args)
}

// padding makes a record worth compressing.
const padding = "a wall in a river. "

// Key is the key of record n.
func Key(n int) string { return strconv.Itoa(n) }

// Value is the value of record n.
func Value(n int) string { return strconv.Itoa(n) + ":" + strings.Repeat(padding, 10) }

// Printer prints one JSON object a line, for goroutines that share it.
type Printer struct {
	mu  sync.Mutex
	enc *json.Encoder
}

func (p *Printer) print(line map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.enc.Encode(line); err != nil {
		os.Exit(1) // nobody reads any more
	}
}

// Acked says that record n was acknowledged.
func (p *Printer) Acked(n int) { p.print(map[string]any{"step": "acked", "n": n}) }

// Read says which record was found where.
func (p *Printer) Read(partition int32, offset int64, value []byte) {
	digits, _, _ := strings.Cut(string(value), ":")
	n, err := strconv.Atoi(digits)
	if err != nil {
		p.print(map[string]any{"step": "error", "error": err.Error()})
		return
	}
	p.print(map[string]any{"step": "read", "partition": partition, "offset": offset, "n": n})
}
