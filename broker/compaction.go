package broker

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire"
)

// CompactionConfig is what a node does about compaction, and to logs of topics that do not
// say.
type CompactionConfig struct {
	// Policy is the cleanup.policy of topics without one (log.cleanup.policy).
	Policy CleanupPolicy
	// MinCleanable is the share of bytes never cleaned above which a log is (log.cleaner.min.cleanable.ratio).
	MinCleanable float64
	// MinLag is the age below which a record is not cleaned (log.cleaner.min.compaction.lag.ms).
	MinLag int64
	// MaxLag is the age at which it is in any case (log.cleaner.max.compaction.lag.ms).
	MaxLag int64
	// DeleteRetention is how long a deletion is kept after its first cleaning (log.cleaner.delete.retention.ms).
	DeleteRetention int64
	// Enable has logs compacted at all (log.cleaner.enable).
	Enable bool
	// Backoff lies between two looks for logs to compact (log.cleaner.backoff.ms).
	Backoff time.Duration
	// Buffer is the memory for the keys of one compaction (log.cleaner.dedupe.buffer.size).
	Buffer int64
	// Rate is how many bytes a second are read and written for it (log.cleaner.io.max.bytes.per.second).
	Rate float64
}

// CleanupPolicy says what becomes of old records.
type CleanupPolicy struct {
	Text             string // as it was given
	KeepAll, Compact bool
}

// of tells what becomes of a topic's.
func (p CleanupPolicy) of(t *fsm.Topic) (keepAll, compact bool) {
	if _, own := t.Configs[fsm.CleanupPolicy]; own {
		return t.Config.KeepAll, t.Config.Compact
	}
	return p.KeepAll, p.Compact
}

func defaultCompaction() CompactionConfig {
	return CompactionConfig{
		Policy: CleanupPolicy{Text: "delete"}, MinCleanable: 0.5, MaxLag: math.MaxInt64, DeleteRetention: 24 * time.Hour.Milliseconds(),
		Enable: true, Backoff: 15 * time.Second, Buffer: 128 << 20, Rate: math.MaxFloat64,
	}
}

func checkCompaction(c Config) error {
	m := c.Compaction
	switch {
	case m.MinLag > m.MaxLag:
		return fmt.Errorf("log.cleaner.min.compaction.lag.ms (%d) is above log.cleaner.max.compaction.lag.ms (%d): lower it", m.MinLag, m.MaxLag)
	case m.Backoff < 10*time.Millisecond:
		return fmt.Errorf("log.cleaner.backoff.ms is %d: use 10 or more", m.Backoff.Milliseconds())
	}
	return nil
}

// policy is how the logs of a topic's partitions are compacted, nil when they are not.
// While a replica is missing from the ISR it may not have seen a deletion, which is kept for it.
func (c CompactionConfig) policy(t *fsm.Topic, s fsm.Partition) *storage.Compaction {
	if _, compact := c.Policy.of(t); !compact {
		return nil
	}
	p := storage.Compaction{MinRatio: c.MinCleanable, MinLagMs: c.MinLag, MaxLagMs: c.MaxLag, DeleteRetentionMs: c.DeleteRetention}
	if _, own := t.Configs["min.cleanable.dirty.ratio"]; own {
		p.MinRatio = t.Config.MinCleanable
	}
	if _, own := t.Configs["min.compaction.lag.ms"]; own {
		p.MinLagMs = t.Config.MinLagMs
	}
	if _, own := t.Configs["max.compaction.lag.ms"]; own {
		p.MaxLagMs = t.Config.MaxLagMs
	}
	if _, own := t.Configs["delete.retention.ms"]; own {
		p.DeleteRetentionMs = t.Config.DeleteRetentionMs
	}
	p.HoldDeletes = len(s.ISR) < len(s.Replicas)
	return &p
}

// options are the settings as storage takes them.
func (c CompactionConfig) options(o *storage.Options) {
	o.CleanerBytes, o.CleanerBackoff = c.Buffer, c.Backoff
	if !c.Enable {
		o.CleanerBackoff = -1
	}
	if c.Rate < 1<<50 {
		o.CleanerRate = max(int64(c.Rate), 1)
	}
}

// compactionKeys are the rows of the keys of CompactionConfig.
func compactionKeys() []Key {
	long := func(least int64, set func(*CompactionConfig, int64)) func(*Config, string) error {
		return intKey(least, math.MaxInt64, func(c *Config, n int64) { set(&c.Compaction, n) })
	}
	return []Key{
		{"log.cleanup.policy", "what becomes of old records of topics that do not say: delete, compact, both, or nothing to keep all", policyKey},
		{"log.cleaner.enable", "whether logs are compacted", flagKey(func(c *Config, on bool) { c.Compaction.Enable = on })},
		{"log.cleaner.min.cleanable.ratio", "share of a log's bytes never compacted above which it is",
			floatKey(0, 1, func(c *Config, x float64) { c.Compaction.MinCleanable = x })},
		{"log.cleaner.min.compaction.lag.ms", "age below which a record is not compacted", long(0, func(c *CompactionConfig, n int64) { c.MinLag = n })},
		{"log.cleaner.max.compaction.lag.ms", "age at which a record is compacted in any case", long(1, func(c *CompactionConfig, n int64) { c.MaxLag = n })},
		{"log.cleaner.delete.retention.ms", "how long a deletion is kept after the first compaction", long(0, func(c *CompactionConfig, n int64) { c.DeleteRetention = n })},
		{"log.cleaner.backoff.ms", "how often logs to compact are looked for", spanKey(func(c *Config, d time.Duration) { c.Compaction.Backoff = d })},
		{"log.cleaner.dedupe.buffer.size", "memory for the keys of one compaction, 24 bytes for each; a log with more is compacted in parts",
			long(1<<20, func(c *CompactionConfig, n int64) { c.Buffer = n })},
		{"log.cleaner.io.max.bytes.per.second", "how many bytes a second are read and written to compact logs",
			floatKey(1, math.MaxFloat64, func(c *Config, x float64) { c.Compaction.Rate = x })},
	}
}

// compactionSettings has a row for each of compactionKeys.
func compactionSettings() map[string]settingRow {
	float := func(get func(m *CompactionConfig) float64) settingRow {
		return settingRow{wire.ConfigTypeDouble, func(c *Config) *string {
			s := javaDouble(get(&c.Compaction))
			return &s
		}}
	}
	return map[string]settingRow{
		"log.cleanup.policy": {wire.ConfigTypeList, func(c *Config) *string { return &c.Compaction.Policy.Text }},
		"log.cleaner.enable": {wire.ConfigTypeBoolean, func(c *Config) *string {
			on := strconv.FormatBool(c.Compaction.Enable)
			return &on
		}},
		"log.cleaner.min.cleanable.ratio":     float(func(m *CompactionConfig) float64 { return m.MinCleanable }),
		"log.cleaner.min.compaction.lag.ms":   longSetting(func(c *Config) int64 { return c.Compaction.MinLag }),
		"log.cleaner.max.compaction.lag.ms":   longSetting(func(c *Config) int64 { return c.Compaction.MaxLag }),
		"log.cleaner.delete.retention.ms":     longSetting(func(c *Config) int64 { return c.Compaction.DeleteRetention }),
		"log.cleaner.backoff.ms":              spanSetting(func(c *Config) time.Duration { return c.Compaction.Backoff }),
		"log.cleaner.dedupe.buffer.size":      longSetting(func(c *Config) int64 { return c.Compaction.Buffer }),
		"log.cleaner.io.max.bytes.per.second": float(func(m *CompactionConfig) float64 { return m.Rate }),
	}
}

// javaDouble is a number as Java prints it, at least those that are set here.
func javaDouble(x float64) string {
	if x >= 1e7 {
		return strings.Replace(strconv.FormatFloat(x, 'E', -1, 64), "E+", "E", 1)
	}
	return strconv.FormatFloat(x, 'f', -1, 64)
}

func policyKey(c *Config, value string) error {
	keepAll, compact, err := fsm.ParseCleanupPolicy(value)
	if err != nil {
		return errors.New("use delete, compact or both with a comma between them, or nothing")
	}
	c.Compaction.Policy = CleanupPolicy{value, keepAll, compact}
	return nil
}

func floatKey(least, most float64, set func(*Config, float64)) func(*Config, string) error {
	return func(c *Config, value string) error {
		x, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number", value)
		}
		if x < least || x > most || math.IsNaN(x) {
			return fmt.Errorf("use a number from %g to %g", least, most)
		}
		set(c, x)
		return nil
	}
}
