package work

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/integration/chaos/history"
)

// Crew runs clients against a cluster.
type Crew struct {
	book     *Book
	brokers  func() []string
	patience time.Duration // how long producers wait for their last answers; 0: they crash

	admin   *kgo.Client
	watch   *kgo.Client // asks for committed offsets alone, and so does not hear who leads or coordinates by now
	working sync.WaitGroup
}

// watchAge is how long the client that asks for committed offsets goes without new metadata. As long
// as they name a coordinator that has died the library goes on dialling it.
const watchAge = 10 * time.Second

// NewCrew makes a crew without clients. Admin calls and observations go through a client of its own.
func NewCrew(b *Book, brokers func() []string, patience time.Duration) (*Crew, error) {
	cl, err := kgo.NewClient(append(baseOptions(brokers(), "chaos-admin"), kgo.RetryTimeout(5*time.Second))...)
	if err != nil {
		return nil, err
	}
	watch, err := kgo.NewClient(append(baseOptions(brokers(), "chaos-watch"), kgo.RetryTimeout(5*time.Second), kgo.MetadataMaxAge(watchAge))...)
	if err != nil {
		cl.Close()
		return nil, err
	}
	return &Crew{book: b, brokers: brokers, patience: patience, admin: cl, watch: watch}, nil
}

// Admin is a client for questions and admin calls.
func (c *Crew) Admin() *kadm.Client { return kadm.NewClient(c.admin) }

// Client is the same client for raw requests.
func (c *Crew) Client() *kgo.Client { return c.admin }

// Close waits for all clients, whose contexts must have ended.
func (c *Crew) Close() {
	c.working.Wait()
	c.admin.Close()
	c.watch.Close()
}

// Wait waits for all clients.
func (c *Crew) Wait() { c.working.Wait() }

// again runs one client after another until ctx ends.
func (c *Crew) again(ctx context.Context, seed uint64, one func(context.Context, *rand.Rand)) {
	c.working.Go(func() {
		rnd := rand.New(rand.NewPCG(seed, 1))
		for ctx.Err() == nil {
			one(ctx, rnd)
		}
	})
}

// Produce keeps a producer at work.
func (c *Crew) Produce(ctx context.Context, seed uint64, p Producing) {
	c.again(ctx, seed, func(ctx context.Context, rnd *rand.Rand) { c.produce(ctx, p, rnd) })
}

// Read keeps an assigned reader at work.
func (c *Crew) Read(ctx context.Context, seed uint64, r Reading) {
	c.again(ctx, seed, func(ctx context.Context, rnd *rand.Rand) { c.read(ctx, r, rnd) })
}

// Join keeps a member of a group at work.
func (c *Crew) Join(ctx context.Context, seed uint64, m Membership) {
	c.again(ctx, seed, func(ctx context.Context, rnd *rand.Rand) { c.member(ctx, m, rnd) })
}

// CreateTopic makes a topic, trying until ctx ends.
func (c *Crew) CreateTopic(ctx context.Context, t *Topic, replicas int, configs map[string]*string) error {
	return c.Insist(ctx, "create "+t.Name, func(ctx context.Context) error {
		_, err := c.Admin().CreateTopic(ctx, int32(t.Partitions), int16(replicas), configs, t.Name)
		if errors.Is(err, kerr.TopicAlreadyExists) {
			return nil // an earlier try whose answer was lost
		}
		return err
	})
}

// DeleteTopic removes a topic for good, and returns when it is gone.
func (c *Crew) DeleteTopic(ctx context.Context, t *Topic) error {
	keys := make([]history.Key, t.Partitions)
	for p := range keys {
		keys[p] = t.Key(int32(p))
	}
	op := history.Op{Process: c.book.Process(), Func: history.Delete, Outcome: history.OK, Invoke: c.book.Now(), Keys: keys}
	err := c.Insist(ctx, "delete "+t.Name, func(ctx context.Context) error {
		_, err := c.Admin().DeleteTopic(ctx, t.Name)
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			return nil
		}
		return err
	})
	if err != nil {
		op.Outcome = history.Info
	}
	c.book.add(&op)
	return err
}

// Insist repeats a call until it succeeds or ctx ends.
func (c *Crew) Insist(ctx context.Context, what string, call func(context.Context) error) error {
	for {
		try, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := call(try)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// How often an observer asks. What groups have committed it asks often: a coordinator that was
// deposed does not know it for a second or two only.
const (
	endsEvery      = 2 * time.Second
	committedEvery = 200 * time.Millisecond
)

// Observe asks from time to time where partitions end, and what groups have committed, as a process
// of its own each.
func (c *Crew) Observe(ctx context.Context, topics []*Topic, groups []Membership) {
	c.every(ctx, endsEvery, func(me history.Process) { c.ends(ctx, me, topics) })
	for _, g := range groups {
		c.every(ctx, committedEvery, func(me history.Process) {
			_ = c.committed(ctx, me, g) // unanswered questions are no part of the history
		})
	}
}

// every has a process ask until ctx ends.
func (c *Crew) every(ctx context.Context, pause time.Duration, ask func(history.Process)) {
	c.working.Go(func() {
		me := c.book.Process()
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			ask(me)
		}
	})
}

// ends records where the topics' partitions end, as far as leaders answer.
func (c *Crew) ends(ctx context.Context, me history.Process, topics []*Topic) {
	wait, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	keyOf, _ := keysOf(topics)
	var names []string
	for _, t := range topics {
		names = append(names, t.Name)
	}
	op := history.Op{Process: me, Func: history.Ends, Outcome: history.OK, Invoke: c.book.Now()}
	listed, _ := c.Admin().ListEndOffsets(wait, names...) // partitions that answered are listed beside the error
	listed.Each(func(o kadm.ListedOffset) {
		if k, ok := keyOf(o.Topic, o.Partition); ok && o.Err == nil && o.Offset >= 0 {
			op.Positions = append(op.Positions, history.Position{Key: k, Offset: o.Offset})
			c.book.mu.Lock()
			c.book.ends[k] = max(c.book.ends[k], o.Offset)
			c.book.mu.Unlock()
		}
	})
	if len(op.Positions) > 0 {
		c.book.add(&op)
	}
}

// committed records what a group has committed.
func (c *Crew) committed(ctx context.Context, me history.Process, g Membership) error {
	wait, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	op := history.Op{Process: me, Func: history.Committed, Outcome: history.OK, Invoke: c.book.Now(), Group: g.Number}
	answer, err := kadm.NewClient(c.watch).FetchOffsets(wait, g.Group)
	if err != nil {
		return err
	}
	answer.Each(func(o kadm.OffsetResponse) {
		if o.Err == nil && o.Topic == g.Topic.Name {
			op.Positions = append(op.Positions, history.Position{Key: g.Topic.Key(o.Partition), Offset: o.At})
		}
	})
	if len(op.Positions) > 0 {
		c.book.add(&op)
	}
	return nil
}
