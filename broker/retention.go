package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
)

const (
	// retentionFirst is how long after its start a node looks for the first time, at most.
	retentionFirst = 30 * time.Second
	// clockLeap is how far ahead of the time that has really passed the clock may run
	// between two looks. By a clock that leapt, records of today would seem years old.
	clockLeap = 10 * time.Minute
)

// retention removes old records from the partitions that this node leads, on one
// goroutine.
type retention struct {
	env  *environment
	log  hclog.Logger
	done chan struct{}
}

func newRetention(env *environment, log hclog.Logger) *retention {
	return &retention{env: env, log: log, done: make(chan struct{})}
}

// run looks at all partitions from time to time, until ctx ends.
func (r *retention) run(ctx context.Context) {
	defer close(r.done)
	last := r.env.now()
	t := time.NewTimer(min(retentionFirst, r.env.retention.Check))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		now := r.env.now()
		r.look(ctx, leap(last, now))
		last = now
		t.Reset(r.env.retention.Check)
	}
}

// look goes once over all partitions; leapt is how far the clock ran ahead since the
// last time.
func (r *retention) look(ctx context.Context, leapt time.Duration) {
	if leapt > clockLeap {
		r.log.Warn("the clock leapt forward; no records are removed for their age this time", "by", leapt)
	}
	im, removed := r.env.image(), 0
	for _, p := range r.env.replicas.All() {
		if ctx.Err() != nil {
			return
		}
		t, ok := im.Topic(p.tp.Topic)
		if !ok {
			continue
		}
		policy := r.env.retained(t)
		if leapt > clockLeap {
			policy.AgeMs = -1
		}
		any, err := p.expire(policy)
		if err != nil {
			r.log.Warn("old records are not removed", "topic", t.Name, "partition", p.tp.Partition, "error", err)
		}
		if any {
			removed++
		}
	}
	if removed > 0 {
		r.log.Info("old segments are being removed", "partitions", removed)
	}
}

// leap is how much more time has passed on the clock than on the machine.
func leap(from, to time.Time) time.Duration {
	return to.Round(0).Sub(from.Round(0)) - to.Sub(from)
}

// RetentionConfig is what a node does to logs of topics that do not say.
type RetentionConfig struct {
	// Hours, Minutes and Ms are the age at which a record may go (log.retention.hours,
	// .minutes, .ms); -1 is never. The finer one that is given counts.
	Hours       int64
	Minutes, Ms *int64
	// Bytes is the size of a partition above which records may go (log.retention.bytes); -1 is any.
	Bytes int64
	// Check is how often old records are looked for (log.retention.check.interval.ms).
	Check time.Duration
	// RollHours and RollMs are the age at which a segment is closed (log.roll.hours, .ms).
	RollHours int64
	RollMs    *int64
}

func defaultRetention() RetentionConfig {
	return RetentionConfig{Hours: 168, Bytes: -1, Check: 5 * time.Minute, RollHours: 168}
}

func checkRetention(c Config) error {
	r := c.Retention
	switch {
	case r.Check < 10*time.Millisecond:
		return fmt.Errorf("log.retention.check.interval.ms is %d: use 10 or more", r.Check.Milliseconds())
	case r.Bytes < -1 || r.AgeMs() < -1:
		return errors.New("a log.retention key is below -1: use -1 for no limit, or more")
	case r.rollMs() < 1:
		return errors.New("log.roll.ms is not positive: use 1 or more")
	}
	return nil
}

// AgeMs is the age at which a record may go, in ms; -1 for never.
func (c RetentionConfig) AgeMs() int64 {
	age, unit := c.Hours, time.Hour
	if c.Minutes != nil {
		age, unit = *c.Minutes, time.Minute
	}
	if c.Ms != nil {
		age, unit = *c.Ms, time.Millisecond
	}
	if age < 0 {
		return -1
	}
	return age * unit.Milliseconds()
}

// rollMs is the age at which a segment is closed, in ms.
func (c RetentionConfig) rollMs() int64 {
	if c.RollMs != nil {
		return *c.RollMs
	}
	return c.RollHours * time.Hour.Milliseconds()
}

// policy is what a topic's partitions may let go of.
func (c RetentionConfig) policy(t *fsm.Topic) storage.Retention {
	r := storage.Retention{AgeMs: c.AgeMs(), Bytes: c.Bytes}
	if _, own := t.Configs["retention.ms"]; own {
		r.AgeMs = t.Config.RetentionMs
	}
	if _, own := t.Configs["retention.bytes"]; own {
		r.Bytes = t.Config.RetentionBytes
	}
	return r
}

// retained is what a topic's partitions may let go of for their age or size.
func (e *environment) retained(t *fsm.Topic) storage.Retention {
	if keepAll, _ := e.compaction.Policy.of(t); keepAll {
		return storage.RetainAll()
	}
	return e.retention.policy(t)
}

// segmentAge is when a segment of a topic's partitions is closed.
func (c RetentionConfig) segmentAge(t *fsm.Topic) time.Duration {
	ms := c.rollMs()
	if _, own := t.Configs["segment.ms"]; own {
		ms = t.Config.SegmentMs
	}
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(ms, most)) * time.Millisecond
}

// retentionKeys are the rows of the keys of RetentionConfig.
func retentionKeys() []Key {
	const hours = 1<<31 - 1
	own := func(field func(*RetentionConfig) **int64) func(*Config, int64) {
		return func(c *Config, n int64) { *field(&c.Retention) = &n }
	}
	return []Key{
		{"log.retention.hours", "age at which records may be removed, -1 for never", intKey(-1, hours, func(c *Config, n int64) { c.Retention.Hours = n })},
		{"log.retention.minutes", "log.retention.hours in minutes, instead of it", intKey(-1, hours, own(func(r *RetentionConfig) **int64 { return &r.Minutes }))},
		{"log.retention.ms", "log.retention.hours in milliseconds, instead of both", intKey(-1, 1<<63-1, own(func(r *RetentionConfig) **int64 { return &r.Ms }))},
		{"log.retention.bytes", "size of a partition above which records may be removed, -1 for never", intKey(-1, 1<<63-1, func(c *Config, n int64) { c.Retention.Bytes = n })},
		{"log.retention.check.interval.ms", "how often old records are looked for", spanKey(func(c *Config, d time.Duration) { c.Retention.Check = d })},
		{"log.roll.hours", "age at which a segment is closed, so that it can be removed later", intKey(1, hours, func(c *Config, n int64) { c.Retention.RollHours = n })},
		{"log.roll.ms", "log.roll.hours in milliseconds, instead of it", intKey(1, 1<<63-1, own(func(r *RetentionConfig) **int64 { return &r.RollMs }))},
	}
}
