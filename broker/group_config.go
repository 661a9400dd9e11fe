package broker

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/broker/group"
)

// GroupConfig is what a node can be told about groups and committed offsets.
// DefaultGroupConfig holds Kafka's defaults.
type GroupConfig struct {
	group.Config

	// OffsetsRetention is how long the offsets of a group without members are kept (offsets.retention.minutes).
	OffsetsRetention time.Duration
	// OffsetsRetentionCheck is how often that is looked at (offsets.retention.check.interval.ms).
	OffsetsRetentionCheck time.Duration
	// OffsetMetadataMax bounds the text that goes with a committed offset (offset.metadata.max.bytes).
	OffsetMetadataMax int
}

// DefaultGroupConfig returns Kafka's defaults.
func DefaultGroupConfig() GroupConfig {
	return GroupConfig{
		Config:                group.DefaultConfig(),
		OffsetsRetention:      7 * 24 * time.Hour,
		OffsetsRetentionCheck: 10 * time.Minute,
		OffsetMetadataMax:     4096,
	}
}

// groupKeys are the rows of the keys of GroupConfig.
func groupKeys() []Key {
	span := func(field func(*GroupConfig) *time.Duration) func(*Config, string) error {
		return spanKey(func(c *Config, d time.Duration) { *field(&c.Groups) = d })
	}
	size := func(field func(*GroupConfig) *int) func(*Config, string) error {
		return intKey(1, math.MaxInt32, func(c *Config, n int64) { *field(&c.Groups) = int(n) })
	}
	return []Key{
		{"group.initial.rebalance.delay.ms", "how long an empty group waits for more members", span(func(g *GroupConfig) *time.Duration { return &g.InitialDelay })},
		{"group.min.session.timeout.ms", "least session timeout of a classic group member", span(func(g *GroupConfig) *time.Duration { return &g.MinSession })},
		{"group.max.session.timeout.ms", "greatest session timeout of a classic group member", span(func(g *GroupConfig) *time.Duration { return &g.MaxSession })},
		{"group.max.size", "members of a classic group", size(func(g *GroupConfig) *int { return &g.MaxSize })},
		{"group.consumer.session.timeout.ms", "session timeout of members of the consumer protocol", span(func(g *GroupConfig) *time.Duration { return &g.ConsumerSession })},
		{"group.consumer.heartbeat.interval.ms", "heartbeat interval of members of the consumer protocol", span(func(g *GroupConfig) *time.Duration { return &g.ConsumerHeartbeat })},
		{"group.consumer.max.size", "members of a group of the consumer protocol", size(func(g *GroupConfig) *int { return &g.ConsumerMaxSize })},
		{"group.consumer.assignment.interval.ms", "least time between two assignments of the consumer protocol", span(func(g *GroupConfig) *time.Duration { return &g.AssignmentInterval })},
		{"group.consumer.migration.policy", "which groups with members may change their protocol", setMigration},
		{"group.consumer.assignors", "assignors of the consumer protocol, the default one first", setAssignors},
		{"offsets.retention.minutes", "how long the offsets of a group without members are kept",
			intKey(1, math.MaxInt32, func(c *Config, n int64) { c.Groups.OffsetsRetention = time.Duration(n) * time.Minute })},
		{"offsets.retention.check.interval.ms", "how often expired offsets are looked for", span(func(g *GroupConfig) *time.Duration { return &g.OffsetsRetentionCheck })},
		{"offset.metadata.max.bytes", "largest text kept with a committed offset",
			intKey(0, math.MaxInt16, func(c *Config, n int64) { c.Groups.OffsetMetadataMax = int(n) })},
	}
}

func setAssignors(c *Config, value string) error {
	var names []string
	known := group.DefaultConfig().Assignors
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		if !slices.Contains(known, name) {
			return fmt.Errorf("%q is not an assignor: use %s", name, strings.Join(known, ","))
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	c.Groups.Assignors = names
	return nil
}

func setMigration(c *Config, value string) error {
	var names []string
	for _, m := range group.Migrations() {
		if strings.EqualFold(m.String(), strings.TrimSpace(value)) {
			c.Groups.Migration = m
			return nil
		}
		names = append(names, m.String())
	}
	return fmt.Errorf("%q is not a policy: use one of %s", value, strings.Join(names, ", "))
}

func checkGroups(c Config) error {
	g := c.Groups
	switch {
	case g.InitialDelay < 0:
		return fmt.Errorf("group.initial.rebalance.delay.ms is %d: use 0 or more", g.InitialDelay.Milliseconds())
	case g.MinSession < time.Millisecond:
		return fmt.Errorf("group.min.session.timeout.ms is %d: use 1 or more", g.MinSession.Milliseconds())
	case g.MaxSession < g.MinSession:
		return fmt.Errorf("group.max.session.timeout.ms (%d) is below group.min.session.timeout.ms (%d): raise it",
			g.MaxSession.Milliseconds(), g.MinSession.Milliseconds())
	case g.MaxSize < 1, g.ConsumerMaxSize < 1:
		return fmt.Errorf("group.max.size (%d) and group.consumer.max.size (%d) must be 1 or more", g.MaxSize, g.ConsumerMaxSize)
	case g.ConsumerHeartbeat < time.Millisecond:
		return fmt.Errorf("group.consumer.heartbeat.interval.ms is %d: use 1 or more", g.ConsumerHeartbeat.Milliseconds())
	case g.ConsumerSession <= g.ConsumerHeartbeat:
		return fmt.Errorf("group.consumer.session.timeout.ms (%d) is not above group.consumer.heartbeat.interval.ms (%d): raise it",
			g.ConsumerSession.Milliseconds(), g.ConsumerHeartbeat.Milliseconds())
	case g.AssignmentInterval < 0:
		return fmt.Errorf("group.consumer.assignment.interval.ms is %d: use 0 or more", g.AssignmentInterval.Milliseconds())
	case len(g.Assignors) == 0:
		return fmt.Errorf("group.consumer.assignors is empty: use %s", strings.Join(group.DefaultConfig().Assignors, ","))
	case g.OffsetsRetention < time.Minute:
		return fmt.Errorf("offsets.retention.minutes is %d: use 1 or more", int64(g.OffsetsRetention/time.Minute))
	case g.OffsetsRetentionCheck < time.Millisecond:
		return fmt.Errorf("offsets.retention.check.interval.ms is %d: use 1 or more", g.OffsetsRetentionCheck.Milliseconds())
	case g.OffsetMetadataMax < 0:
		return fmt.Errorf("offset.metadata.max.bytes is %d: use 0 or more", g.OffsetMetadataMax)
	}
	return nil
}
