package broker

import (
	"maps"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

// setting is one key of a node's configuration as DescribeConfigs shows it.
type setting struct {
	name string
	kind int8 // wire.ConfigType…
	doc  string
	// value and fallback are what the node has and what it would have if it was told
	// nothing; nil when nothing is set.
	value, fallback *string
}

// settings lists all keys that have effect with their values.
func (c Config) settings() []setting {
	usual := DefaultConfig()
	rows := settingRows()
	out := make([]setting, 0, len(rows))
	for _, k := range Keys() {
		row, ok := rows[k.Name]
		if !ok {
			continue // TestSettingsCoverKeys sees to it that there is none
		}
		out = append(out, setting{name: k.Name, kind: row.kind, doc: k.Doc, value: row.get(&c), fallback: row.get(&usual)})
	}
	return out
}

// settingRow tells how a key's value reads.
type settingRow struct {
	kind int8
	get  func(c *Config) *string
}

// settingRows has a row for each of Keys.
func settingRows() map[string]settingRow {
	rows := map[string]settingRow{
		"node.id":                      intSetting(func(c *Config) int64 { return int64(c.NodeID) }),
		"broker.id":                    intSetting(func(c *Config) int64 { return int64(c.NodeID) }),
		"broker.rack":                  textSetting(func(c *Config) string { return c.Rack }),
		"log.dirs":                     textSetting(func(c *Config) string { return c.DataDir }),
		"log.dir":                      textSetting(func(c *Config) string { return c.DataDir }),
		"listeners":                    textSetting(func(c *Config) string { return listenerURL(c.clientListen()) }),
		"advertised.listeners":         textSetting(func(c *Config) string { return listenerURL(c.Advertise) }),
		"broker.session.timeout.ms":    spanSetting(func(c *Config) time.Duration { return c.Session }),
		"broker.heartbeat.interval.ms": spanSetting(func(c *Config) time.Duration { return c.Heartbeat }),
		"weir.disk.timeout.ms":         spanSetting(func(c *Config) time.Duration { return c.DiskTimeout }),
		"replica.lag.time.max.ms":      spanSetting(func(c *Config) time.Duration { return c.ReplicaLagMax }),
		"auto.create.topics.enable": {wire.ConfigTypeBoolean, func(c *Config) *string {
			on := strconv.FormatBool(c.AutoCreateTopics)
			return &on
		}},
		"num.partitions":                            intSetting(func(c *Config) int64 { return int64(c.NumPartitions) }),
		"default.replication.factor":                unsetIfZero(func(c *Config) int64 { return int64(c.ReplicationFactor) }),
		"min.insync.replicas":                       unsetIfZero(func(c *Config) int64 { return int64(c.MinInSync) }),
		"message.max.bytes":                         intSetting(func(c *Config) int64 { return int64(c.MessageMaxBytes) }),
		"log.segment.bytes":                         intSetting(func(c *Config) int64 { return c.SegmentBytes }),
		"log.index.interval.bytes":                  intSetting(func(c *Config) int64 { return int64(c.IndexIntervalBytes) }),
		"log.flush.interval.ms":                     spanSetting(func(c *Config) time.Duration { return c.FlushInterval }),
		"weir.flush.bytes":                          longSetting(func(c *Config) int64 { return c.FlushBytes }),
		"weir.scrub.bytes.per.second":               longSetting(func(c *Config) int64 { return c.ScrubBytes }),
		"weir.scrub.interval.ms":                    spanSetting(func(c *Config) time.Duration { return c.ScrubInterval }),
		fsm.DurabilityConfig:                        textSetting(func(c *Config) string { return c.Durability.String() }),
		"socket.request.max.bytes":                  intSetting(func(c *Config) int64 { return int64(c.RequestMaxBytes) }),
		"fetch.max.bytes":                           intSetting(func(c *Config) int64 { return int64(c.FetchMaxBytes) }),
		"max.incremental.fetch.session.cache.slots": intSetting(func(c *Config) int64 { return int64(c.FetchSessions) }),
		"queued.max.request.bytes":                  longSetting(func(c *Config) int64 { return c.QueuedMaxBytes }),
		"max.connections":                           intSetting(func(c *Config) int64 { return int64(c.MaxConnections) }),
		"max.connections.per.ip":                    intSetting(func(c *Config) int64 { return int64(c.MaxConnectionsPerIP) }),
		"connections.max.idle.ms":                   spanSetting(func(c *Config) time.Duration { return c.ConnectionsMaxIdle }),

		"log.retention.hours":             intSetting(func(c *Config) int64 { return c.Retention.Hours }),
		"log.retention.minutes":           maybeSetting(wire.ConfigTypeInt, func(c *Config) *int64 { return c.Retention.Minutes }),
		"log.retention.ms":                maybeSetting(wire.ConfigTypeLong, func(c *Config) *int64 { return c.Retention.Ms }),
		"log.retention.bytes":             longSetting(func(c *Config) int64 { return c.Retention.Bytes }),
		"log.retention.check.interval.ms": spanSetting(func(c *Config) time.Duration { return c.Retention.Check }),
		"log.roll.hours":                  intSetting(func(c *Config) int64 { return c.Retention.RollHours }),
		"log.roll.ms":                     maybeSetting(wire.ConfigTypeLong, func(c *Config) *int64 { return c.Retention.RollMs }),
	}
	maps.Copy(rows, groupSettings())
	maps.Copy(rows, compactionSettings())
	return rows
}

// groupSettings has a row for each of groupKeys.
func groupSettings() map[string]settingRow {
	span := func(get func(g *GroupConfig) time.Duration) settingRow {
		return spanSetting(func(c *Config) time.Duration { return get(&c.Groups) })
	}
	size := func(get func(g *GroupConfig) int) settingRow {
		return intSetting(func(c *Config) int64 { return int64(get(&c.Groups)) })
	}
	return map[string]settingRow{
		"group.initial.rebalance.delay.ms":      span(func(g *GroupConfig) time.Duration { return g.InitialDelay }),
		"group.min.session.timeout.ms":          span(func(g *GroupConfig) time.Duration { return g.MinSession }),
		"group.max.session.timeout.ms":          span(func(g *GroupConfig) time.Duration { return g.MaxSession }),
		"group.max.size":                        size(func(g *GroupConfig) int { return g.MaxSize }),
		"group.consumer.session.timeout.ms":     span(func(g *GroupConfig) time.Duration { return g.ConsumerSession }),
		"group.consumer.heartbeat.interval.ms":  span(func(g *GroupConfig) time.Duration { return g.ConsumerHeartbeat }),
		"group.consumer.max.size":               size(func(g *GroupConfig) int { return g.ConsumerMaxSize }),
		"group.consumer.assignment.interval.ms": span(func(g *GroupConfig) time.Duration { return g.AssignmentInterval }),
		"group.consumer.assignors": {wire.ConfigTypeList, func(c *Config) *string {
			list := strings.Join(c.Groups.Assignors, ",")
			return &list
		}},
		"group.consumer.migration.policy": {wire.ConfigTypeString, func(c *Config) *string {
			policy := c.Groups.Migration.String()
			return &policy
		}},
		"offsets.retention.minutes":           intSetting(func(c *Config) int64 { return int64(c.Groups.OffsetsRetention / time.Minute) }),
		"offsets.retention.check.interval.ms": span(func(g *GroupConfig) time.Duration { return g.OffsetsRetentionCheck }),
		"offset.metadata.max.bytes":           size(func(g *GroupConfig) int { return g.OffsetMetadataMax }),
	}
}

func intSetting(get func(c *Config) int64) settingRow {
	return settingRow{wire.ConfigTypeInt, func(c *Config) *string { return number(get(c)) }}
}

func longSetting(get func(c *Config) int64) settingRow {
	return settingRow{wire.ConfigTypeLong, func(c *Config) *string { return number(get(c)) }}
}

func spanSetting(get func(c *Config) time.Duration) settingRow {
	return settingRow{wire.ConfigTypeLong, func(c *Config) *string { return number(get(c).Milliseconds()) }}
}

// unsetIfZero is a number of which 0 means that the cluster decides.
func unsetIfZero(get func(c *Config) int64) settingRow {
	return settingRow{wire.ConfigTypeInt, func(c *Config) *string {
		if n := get(c); n != 0 {
			return number(n)
		}
		return nil
	}}
}

func maybeSetting(kind int8, get func(c *Config) *int64) settingRow {
	return settingRow{kind, func(c *Config) *string {
		if n := get(c); n != nil {
			return number(*n)
		}
		return nil
	}}
}

func textSetting(get func(c *Config) string) settingRow {
	return settingRow{wire.ConfigTypeString, func(c *Config) *string { return optional(get(c)) }}
}

func number(n int64) *string {
	s := strconv.FormatInt(n, 10)
	return &s
}

// listenerURL is an address in Kafka's form; "" when there is none.
func listenerURL(addr string) string {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return addr
	}
	return "PLAINTEXT://" + addr
}

// topicDefault is what a node's configuration puts in place of a topic config's default.
func (c Config) topicDefault(name string) (string, bool) {
	var n int64
	switch name {
	case "index.interval.bytes":
		n = int64(c.IndexIntervalBytes)
	case "max.message.bytes":
		n = int64(c.MessageMaxBytes)
	case "retention.bytes":
		n = c.Retention.Bytes
	case "retention.ms":
		n = c.Retention.AgeMs()
	case "segment.bytes":
		n = c.SegmentBytes
	case "segment.ms":
		n = c.Retention.rollMs()
	case fsm.DurabilityConfig:
		return c.Durability.String(), true
	case fsm.CleanupPolicy:
		return c.Compaction.Policy.Text, true
	case "min.cleanable.dirty.ratio":
		return javaDouble(c.Compaction.MinCleanable), true
	case "min.compaction.lag.ms":
		n = c.Compaction.MinLag
	case "max.compaction.lag.ms":
		n = c.Compaction.MaxLag
	case "delete.retention.ms":
		n = c.Compaction.DeleteRetention
	default:
		return "", false
	}
	return strconv.FormatInt(n, 10), true
}
