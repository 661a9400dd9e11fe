package fsm

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// MinInsyncReplicas is the one config that Apply itself reads.
const MinInsyncReplicas = "min.insync.replicas"

// CleanupPolicy is the config that says what becomes of old records.
const CleanupPolicy = "cleanup.policy"

// DurabilityConfig is the config that says which durability a topic's partitions
// are to have, and the setting of a node that stands in for it.
const DurabilityConfig = "weir.durability"

// Why a topic config is refused; the error returned wraps one of them.
var (
	ErrNoEffect      = errors.New("has no effect in this version")
	ErrUnknownConfig = errors.New("unknown topic config")
	ErrInvalidConfig = errors.New("invalid value")
)

// TopicConfig is a topic's configuration, parsed once.
type TopicConfig struct {
	MaxMessageBytes int   // of one batch, compressed, its 12-byte prefix included
	SegmentBytes    int64 // size at which a new segment is begun
	MinISR          int16 // as configured; 0 stands for a majority of the replicas
	AppendTime      bool  // records carry the time of the append instead of the producer's
	BeforeMax       int64 // ms that a producer's timestamp may lie in the past
	AfterMax        int64 // ms that it may lie in the future
	KeepAll         bool  // no old segment is removed, whatever the retention says
	Compact         bool  // of all records of a key only the newest is kept
	RetentionMs     int64 // age at which a segment may be removed; -1: never for its age
	RetentionBytes  int64 // size of a partition above which old segments may be removed; -1: never for the size
	Durability      Durability
	SegmentMs       int64 // age of a segment's first record at which a new one is begun
	Unclean         bool  // a replica that may lack acknowledged records leads rather than nobody

	MinCleanable      float64 // share of bytes never cleaned above which a log is
	MinLagMs          int64   // age at which a record may be cleaned
	MaxLagMs          int64   // age at which it must be
	DeleteRetentionMs int64   // time that a deletion is kept after its first cleaning
}

// DefaultTopicConfig is the configuration of a topic without configs.
func DefaultTopicConfig() TopicConfig {
	return TopicConfig{
		MaxMessageBytes: 1<<20 + 12,
		SegmentBytes:    1 << 30,
		BeforeMax:       math.MaxInt64,
		AfterMax:        3_600_000,
		RetentionMs:     7 * 24 * 3_600_000,
		RetentionBytes:  -1,
		SegmentMs:       7 * 24 * 3_600_000,

		MinCleanable:      0.5,
		MaxLagMs:          math.MaxInt64,
		DeleteRetentionMs: 24 * 3_600_000,
	}
}

// ConfigType is what kind of value a config has.
type ConfigType uint8

// The types of configs.
const (
	BooleanConfig ConfigType = iota + 1
	StringConfig
	IntConfig
	LongConfig
	ListConfig // items with commas between them
	DoubleConfig
)

// ConfigRow describes one topic config for documentation and listings.
type ConfigRow struct {
	Name    string
	Type    ConfigType
	Default string
	Node    string // the setting of a node that stands in for the default, "" for none
	Values  string // what may be given, in words
	Doc     string
	set     func(c *TopicConfig, value string) error
}

// TopicConfigs returns the configs that have effect, by name.
func TopicConfigs() []ConfigRow {
	return []ConfigRow{
		{CleanupPolicy, ListConfig, "delete", "log.cleanup.policy", "delete, compact, both, or nothing to keep all",
			"what becomes of old records: removed by retention, or when their key has a newer one, or kept",
			func(c *TopicConfig, value string) (err error) {
				c.KeepAll, c.Compact, err = ParseCleanupPolicy(value)
				return err
			}},
		{"compression.type", StringConfig, "producer", "", "producer", "batches are stored as the producer sent them", only("producer")},
		{"delete.retention.ms", LongConfig, "86400000", "log.cleaner.delete.retention.ms", "0 or more", "how long a deletion is kept in a compacted log after its first cleaning",
			integer(0, math.MaxInt64, func(c *TopicConfig, n int64) { c.DeleteRetentionMs = n })},
		{"max.compaction.lag.ms", LongConfig, "9223372036854775807", "log.cleaner.max.compaction.lag.ms", "1 or more", "age at which a record is compacted whatever the share of such records",
			integer(1, math.MaxInt64, func(c *TopicConfig, n int64) { c.MaxLagMs = n })},
		{"max.message.bytes", IntConfig, "1048588", "message.max.bytes", "0 to 2147483647", "largest batch, compressed, with its 12-byte prefix",
			integer(0, math.MaxInt32, func(c *TopicConfig, n int64) { c.MaxMessageBytes = int(n) })},
		{"message.timestamp.after.max.ms", LongConfig, "3600000", "", "0 or more", "how far in the future a producer's timestamp may lie",
			integer(0, math.MaxInt64, func(c *TopicConfig, n int64) { c.AfterMax = n })},
		{"message.timestamp.before.max.ms", LongConfig, "9223372036854775807", "", "0 or more", "how far in the past a producer's timestamp may lie",
			integer(0, math.MaxInt64, func(c *TopicConfig, n int64) { c.BeforeMax = n })},
		{"message.timestamp.type", StringConfig, "CreateTime", "", "CreateTime or LogAppendTime", "whose clock stamps the records", timestampType},
		{"min.cleanable.dirty.ratio", DoubleConfig, "0.5", "log.cleaner.min.cleanable.ratio", "0 to 1", "share of a log's bytes never compacted above which it is", ratio},
		{"min.compaction.lag.ms", LongConfig, "0", "log.cleaner.min.compaction.lag.ms", "0 or more", "age below which a record is not compacted",
			integer(0, math.MaxInt64, func(c *TopicConfig, n int64) { c.MinLagMs = n })},
		{MinInsyncReplicas, IntConfig, "a majority of the replicas", "", "1 to 2147483647",
			"in-sync replicas that an acks=all record needs; never more than there are replicas; without it a majority of them",
			integer(1, math.MaxInt32, func(c *TopicConfig, n int64) { c.MinISR = int16(min(n, MaxReplicas)) })},
		{"retention.bytes", LongConfig, "-1", "log.retention.bytes", "-1 for no limit, or more", "size of a partition above which its oldest segments are removed",
			integer(-1, math.MaxInt64, func(c *TopicConfig, n int64) { c.RetentionBytes = n })},
		{"retention.ms", LongConfig, "604800000", "log.retention.ms", "-1 for ever, or more", "age of its newest record at which a segment is removed",
			integer(-1, math.MaxInt64, func(c *TopicConfig, n int64) { c.RetentionMs = n })},
		{"segment.bytes", IntConfig, "1073741824", "log.segment.bytes", "1048576 to 2147483647", "size at which a new segment file is begun",
			integer(1<<20, math.MaxInt32, func(c *TopicConfig, n int64) { c.SegmentBytes = n })},
		{"segment.ms", LongConfig, "604800000", "log.roll.ms", "1 or more", "age of its first record at which a new segment file is begun, so that retention can remove the old one",
			integer(1, math.MaxInt64, func(c *TopicConfig, n int64) { c.SegmentMs = n })},
		{"unclean.leader.election.enable", BooleanConfig, "false", "", "true or false",
			"whether the best of the live replicas leads, though it may lack acknowledged records, when nobody lives who surely has them", unclean},
		{DurabilityConfig, StringConfig, DurabilityReplicated.String(), DurabilityConfig, "replicated or fsync",
			"when an acks=all record is acknowledged: in the page cache of all in-sync replicas, or on their disks", durability},
	}
}

// InertTopicConfigs returns Kafka's other topic configs with Kafka's defaults, by
// name. None can be set; they are listed for tools that expect to see them.
func InertTopicConfigs() []ConfigRow {
	return []ConfigRow{
		{Name: "compression.gzip.level", Type: IntConfig, Default: "-1"},
		{Name: "compression.lz4.level", Type: IntConfig, Default: "9"},
		{Name: "compression.zstd.level", Type: IntConfig, Default: "3"},
		{Name: "errors.deadletterqueue.group.enable", Type: BooleanConfig, Default: "false"},
		{Name: "file.delete.delay.ms", Type: LongConfig, Default: "60000"},
		{Name: "flush.messages", Type: LongConfig, Default: "9223372036854775807"},
		{Name: "flush.ms", Type: LongConfig, Default: "9223372036854775807"},
		{Name: "follower.replication.throttled.replicas", Type: ListConfig, Default: ""},
		{Name: "index.interval.bytes", Type: IntConfig, Default: "4096", Node: "log.index.interval.bytes"},
		{Name: "leader.replication.throttled.replicas", Type: ListConfig, Default: ""},
		{Name: "local.retention.bytes", Type: LongConfig, Default: "-2"},
		{Name: "local.retention.ms", Type: LongConfig, Default: "-2"},
		{Name: "max.decompressed.message.bytes", Type: IntConfig, Default: "2147483639"},
		{Name: "preallocate", Type: BooleanConfig, Default: "false"},
		{Name: "remote.copy.lag.bytes", Type: LongConfig, Default: "-1"},
		{Name: "remote.copy.lag.ms", Type: LongConfig, Default: "0"},
		{Name: "remote.log.copy.disable", Type: BooleanConfig, Default: "false"},
		{Name: "remote.log.delete.on.disable", Type: BooleanConfig, Default: "false"},
		{Name: "remote.storage.enable", Type: BooleanConfig, Default: "false"},
		{Name: "segment.index.bytes", Type: IntConfig, Default: "10485760"},
		{Name: "segment.jitter.ms", Type: LongConfig, Default: "0"},
	}
}

// bygone lists configs that Kafka had in older versions, and does not show any more.
func bygone() []string {
	return []string{"message.downconversion.enable", "message.format.version", "message.timestamp.difference.max.ms"}
}

// withoutEffect lists the names of Kafka's configs that have no effect here.
func withoutEffect() []string {
	names := bygone()
	for _, r := range InertTopicConfigs() {
		names = append(names, r.Name)
	}
	return names
}

// ParseTopicConfigs turns names and values into a TopicConfig with the defaults
// filled in. The first name or value that cannot be honoured is an error that
// says why; a config without effect is refused, not stored.
func ParseTopicConfigs(kvs [][2]string) (TopicConfig, error) {
	c, rows := DefaultTopicConfig(), TopicConfigs()
	for i, kv := range kvs {
		name, value := kv[0], kv[1]
		if slices.ContainsFunc(kvs[:i], func(other [2]string) bool { return other[0] == name }) {
			return c, fmt.Errorf("topic config %s: %w: it is given twice", name, ErrInvalidConfig)
		}
		j := slices.IndexFunc(rows, func(r ConfigRow) bool { return r.Name == name })
		if j < 0 {
			return c, notARow(name, rows)
		}
		if err := rows[j].set(&c, value); err != nil {
			return c, fmt.Errorf("topic config %s=%q: %w: allowed is %s", name, value, err, rows[j].Values)
		}
	}
	if c.MinLagMs > c.MaxLagMs {
		return c, fmt.Errorf("topic config min.compaction.lag.ms=%d: %w: it is above max.compaction.lag.ms=%d", c.MinLagMs, ErrInvalidConfig, c.MaxLagMs)
	}
	return c, nil
}

// effectiveConfig reads what it can of configs that were accepted once, perhaps
// by another version.
func effectiveConfig(configs map[string]string) TopicConfig {
	c := DefaultTopicConfig()
	if len(configs) == 0 {
		return c
	}
	for _, r := range TopicConfigs() {
		value, given := configs[r.Name]
		if !given {
			continue
		}
		if next := c; r.set(&next, value) == nil {
			c = next
		}
	}
	return c
}

// notARow explains a name that is not in the table.
func notARow(name string, rows []ConfigRow) error {
	others := withoutEffect()
	if slices.Contains(others, name) {
		return fmt.Errorf("topic config %s: %w: leave it out", name, ErrNoEffect)
	}
	for _, r := range rows {
		others = append(others, r.Name)
	}
	nearest := slices.MinFunc(others, func(a, b string) int { return cmp.Compare(EditDistance(name, a), EditDistance(name, b)) })
	if EditDistance(name, nearest) > len(name)/2 {
		return fmt.Errorf("%w %q", ErrUnknownConfig, name)
	}
	return fmt.Errorf("%w %q: did you mean %s?", ErrUnknownConfig, name, nearest)
}

// only accepts the single value that is honoured so far. Other values that
// Kafka knows have no effect here; Apply never sees them.
func only(honoured string) func(*TopicConfig, string) error {
	return func(_ *TopicConfig, value string) error {
		if strings.TrimSpace(value) != honoured {
			return ErrNoEffect
		}
		return nil
	}
}

func integer(least, most int64, set func(*TopicConfig, int64)) func(*TopicConfig, string) error {
	return func(c *TopicConfig, value string) error {
		n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		if err != nil || n < least || n > most {
			return ErrInvalidConfig
		}
		set(c, n)
		return nil
	}
}

// ParseCleanupPolicy reads a list of delete and compact, in any order; an empty one keeps
// all.
func ParseCleanupPolicy(value string) (keepAll, compact bool, err error) {
	items := configList(value)
	keepAll = true
	for i, item := range items {
		switch {
		case slices.Contains(items[:i], item):
			return false, false, ErrInvalidConfig
		case item == "delete":
			keepAll = false
		case item == "compact":
			compact = true
		default:
			return false, false, ErrInvalidConfig
		}
	}
	return keepAll, compact, nil
}

// ratio is a share.
func ratio(c *TopicConfig, value string) error {
	x, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil || !(x >= 0 && x <= 1) {
		return ErrInvalidConfig
	}
	c.MinCleanable = x
	return nil
}

func timestampType(c *TopicConfig, value string) error {
	switch strings.TrimSpace(value) {
	case "CreateTime":
		c.AppendTime = false
	case "LogAppendTime":
		c.AppendTime = true
	default:
		return ErrInvalidConfig
	}
	return nil
}

func unclean(c *TopicConfig, value string) error {
	switch strings.ToLower(strings.TrimSpace(value)) {
	case "true":
		c.Unclean = true
	case "false":
		c.Unclean = false
	default:
		return ErrInvalidConfig
	}
	return nil
}

func durability(c *TopicConfig, value string) error {
	d, ok := ParseDurability(value)
	if !ok {
		return ErrInvalidConfig
	}
	c.Durability = d
	return nil
}

// EditDistance is the number of single-letter edits that turn a into b: what
// messages about a mistyped name go by.
func EditDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
