package work

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/integration/chaos/history"
)

// final marks the beginning of the reads that must see everything.
func (c *Crew) final() {
	c.book.add(&history.Op{Process: c.book.Process(), Func: history.Final, Outcome: history.OK, Invoke: c.book.Now()})
}

// ReadBack reads all topics from their start with fresh clients, until every end that
// was ever known is passed, and asks for all committed offsets. A reader that gets
// nowhere is replaced. It returns the ends that were reached.
func (c *Crew) ReadBack(ctx context.Context, topics []*Topic, groups []Membership) (map[history.Key]int64, error) {
	c.final()
	observer := c.book.Process()
	for _, g := range groups {
		if err := c.Insist(ctx, "fetch the offsets of "+g.Group, func(ctx context.Context) error { return c.committed(ctx, observer, g) }); err != nil {
			return nil, err
		}
	}
	c.ends(ctx, observer, topics)
	keyOf, keys := keysOf(topics)
	reached := map[history.Key]int64{}
	for ctx.Err() == nil {
		if c.readOnce(ctx, topics, keyOf, keys, reached) {
			return reached, nil
		}
	}
	for _, k := range keys {
		if reached[k] < c.book.end(k) {
			return reached, fmt.Errorf("final reads of %s (key %d) have come to %d of %d", c.nameOf(k), k, reached[k], c.book.end(k))
		}
	}
	return reached, nil
}

func (c *Crew) nameOf(k history.Key) string {
	c.book.mu.Lock()
	defer c.book.mu.Unlock()
	t := c.book.keys[k]
	return fmt.Sprintf("%s-%d", t.Name, k-t.first)
}

// readOnce reads with one fresh client; it gives up when nothing has come for a while.
func (c *Crew) readOnce(ctx context.Context, topics []*Topic, keyOf func(string, int32) (history.Key, bool), keys []history.Key, reached map[history.Key]int64) bool {
	me := c.book.Process()
	start := map[string]map[int32]kgo.Offset{}
	for _, t := range topics {
		start[t.Name] = map[int32]kgo.Offset{}
		for p := range t.Partitions {
			start[t.Name][int32(p)] = kgo.NewOffset().AtStart()
		}
	}
	cl, err := kgo.NewClient(append(baseOptions(c.brokers(), "final-reader"), kgo.ConsumePartitions(start), kgo.FetchMaxWait(500*time.Millisecond))...)
	if err != nil {
		c.book.Problem("make a final reader: %v", err)
		return false
	}
	defer c.crash(cl, me)
	c.book.add(&history.Op{Process: me, Func: history.Assign, Outcome: history.OK, Invoke: c.book.Now(), Keys: keys})
	at := map[history.Key]int64{}
	patience := time.Now().Add(10 * time.Second)
	for ctx.Err() == nil && time.Now().Before(patience) {
		op := history.Op{Process: me}
		c.poll(ctx, cl, &op, "final reader", keyOf)
		c.book.add(&op)
		for _, r := range op.Polls {
			at[r.Key] = r.Offset + 1
			reached[r.Key] = max(reached[r.Key], r.Offset+1)
		}
		if len(op.Polls) > 0 {
			patience = time.Now().Add(10 * time.Second)
		}
		if !slices.ContainsFunc(keys, func(k history.Key) bool { return at[k] < c.book.end(k) }) {
			return true
		}
	}
	return false
}
