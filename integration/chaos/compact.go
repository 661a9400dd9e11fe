package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/integration/chaos/work"
)

const (
	compactTopic   = "compacted"
	compactRounds  = 9
	compactRecords = 6000 // before each kill: more than a segment
	compactKeys    = 300
)

// compacted is a partition that is compacted while its leaders die. It is judged here: what
// stands last for each key is what was acknowledged last, or a later record whose outcome
// nobody knows.
type compacted struct {
	run   *Run
	cl    *kgo.Client
	sent  int
	last  map[string]string   // acknowledged; "" for a deletion
	maybe map[string][]string // sent after that, and not acknowledged
}

func compactUnderFire(ctx context.Context, r *Run) error {
	cl, err := r.writer(compactTopic)
	if err != nil {
		return err
	}
	defer cl.Close()
	c := &compacted{run: r, cl: cl, last: map[string]string{}, maybe: map[string][]string{}}
	limit, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	configs := map[string]*string{}
	maps.Copy(configs, r.configs)
	for name, value := range map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "1000"} {
		configs[name] = &value
	}
	if err := r.crew.CreateTopic(limit, &work.Topic{Name: compactTopic, Partitions: 1}, replicas(r.options.Nodes), configs); err != nil {
		return err
	}
	if err := r.chase(ctx, compactTopic, compactRounds, c.produce); err != nil {
		return err
	}
	if _, err := r.leaderOf(ctx, compactTopic, 0); err != nil {
		return err
	}
	return c.readBack(ctx)
}

// produce writes over all keys. A tenth of the records delete theirs.
func (c *compacted) produce(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, c.run.patience)
	defer cancel()
	var records []*kgo.Record
	for range compactRecords {
		r := kgo.KeyStringRecord(fmt.Sprintf("key-%d", c.run.rnd.IntN(compactKeys)), fmt.Sprintf("%d-%s", c.sent, strings.Repeat("x", 200)))
		if c.run.rnd.IntN(10) == 0 {
			r.Value = nil
		}
		records = append(records, r)
		c.sent++
	}
	errs := map[*kgo.Record]error{}
	for _, res := range c.cl.ProduceSync(wait, records...) {
		errs[res.Record] = res.Err
	}
	failed := error(nil)
	for _, r := range records {
		key, value := string(r.Key), string(r.Value)
		if err := errs[r]; err != nil {
			c.maybe[key], failed = append(c.maybe[key], value), err
			continue
		}
		c.last[key], c.maybe[key] = value, nil
	}
	if failed != nil {
		c.run.note("a record of %s has an unknown outcome: %v", compactTopic, failed)
	}
	return ctx.Err()
}

// readBack reads what is left.
func (c *compacted) readBack(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, c.run.patience)
	defer cancel()
	ends, err := c.run.crew.Admin().ListEndOffsets(wait, compactTopic)
	if err != nil {
		return err
	}
	end, ok := ends.Lookup(compactTopic, 0)
	if err := answered(ok, end.Err); err != nil {
		return err
	}
	got, records, next := map[string]string{}, 0, int64(0)
	err = c.run.readAll(ctx, compactTopic, func() bool { return next >= end.Offset }, func(r *kgo.Record) {
		if r.Offset < next {
			c.run.book.Problem("%s shows offset %d after %d", compactTopic, r.Offset, next-1)
		}
		next, got[string(r.Key)] = r.Offset+1, string(r.Value)
		records++
	})
	if err != nil {
		return fmt.Errorf("to offset %d of %d: %w", next, end.Offset, err)
	}
	c.run.note("%s shows %d of %d records", compactTopic, records, c.sent)
	if records > c.sent/2 {
		c.run.book.Problem("%s shows %d records of %d over %d keys: it was not compacted", compactTopic, records, c.sent, compactKeys)
	}
	for key, want := range c.last {
		if got[key] != want && !slices.Contains(c.maybe[key], got[key]) {
			c.run.book.Problem("%s of %s is %.20q, and %.20q was acknowledged last", key, compactTopic, got[key], want)
		}
	}
	return nil
}
