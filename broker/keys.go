package broker

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirmq/weir/fsm"
)

// A Key is one configuration key under Kafka's name that has an effect here.
type Key struct {
	// Name is Kafka's.
	Name string
	// Doc says in one line what the key decides.
	Doc string

	set func(c *Config, value string) error
}

// Keys returns the rows of all keys that have an effect, in the order of the documentation.
func Keys() []Key {
	return append([]Key{
		{"node.id", "id of this node", intKey(0, math.MaxInt32, func(c *Config, n int64) { c.NodeID = int32(n) })},
		{"broker.id", "older name of node.id", intKey(0, math.MaxInt32, func(c *Config, n int64) { c.NodeID = int32(n) })},
		{"broker.rack", "failure domain of this node; consumers with a rack are sent to a replica in theirs", textKey(func(c *Config, s string) { c.Rack = s })},
		{"log.dirs", "data folder", setDataDir},
		{"log.dir", "older name of log.dirs", setDataDir},
		{"listeners", "address of the Kafka listener", listenerKey(func(c *Config, s string) { c.ClientListen = s })},
		{"advertised.listeners", "address that clients are told to use", listenerKey(func(c *Config, s string) { c.Advertise = s })},
		{"broker.session.timeout.ms", "how long a silent node keeps its leaderships", spanKey(func(c *Config, d time.Duration) { c.Session = d })},
		{"broker.heartbeat.interval.ms", "how often a node shows that it lives", spanKey(func(c *Config, d time.Duration) { c.Heartbeat = d })},
		{"weir.disk.timeout.ms", "how long a call of the disk may take before this node gives up what it leads until the disk answers", spanKey(func(c *Config, d time.Duration) { c.DiskTimeout = d })},
		{"replica.lag.time.max.ms", "how long a follower may trail before it leaves the ISR", spanKey(func(c *Config, d time.Duration) { c.ReplicaLagMax = d })},
		{"num.partitions", "partition count of topics created without one", intKey(1, math.MaxInt32, func(c *Config, n int64) { c.NumPartitions = int32(n) })},
		{"default.replication.factor", "replication factor of topics created without one", intKey(1, math.MaxInt16, func(c *Config, n int64) { c.ReplicationFactor = int16(n) })},
		{"min.insync.replicas", "least ISR that may acknowledge acks=all", intKey(1, math.MaxInt16, func(c *Config, n int64) { c.MinInSync = int16(n) })},
		{"auto.create.topics.enable", "whether a client that asks for a topic which is not there creates it", flagKey(func(c *Config, on bool) { c.AutoCreateTopics = on })},
		{"message.max.bytes", "largest record batch", intKey(0, math.MaxInt32, func(c *Config, n int64) { c.MessageMaxBytes = int(n) })},
		{"log.segment.bytes", "size at which a log starts a new segment", intKey(0, math.MaxInt32, func(c *Config, n int64) { c.SegmentBytes = n })},
		{"log.index.interval.bytes", "distance of index entries in a segment", intKey(1, math.MaxInt32, func(c *Config, n int64) { c.IndexIntervalBytes = int(n) })},
		{"log.flush.interval.ms", "how long a written record may stay unsynced", spanKey(func(c *Config, d time.Duration) { c.FlushInterval = d })},
		{"weir.flush.bytes", "how many written bytes may stay unsynced: a flush begins before its time", intKey(1, math.MaxInt64, func(c *Config, n int64) { c.FlushBytes = n })},
		{"weir.scrub.bytes.per.second", "how many bytes of old records are read each second to find what the disk has changed; 0 for none", intKey(0, math.MaxInt64, func(c *Config, n int64) { c.ScrubBytes = n })},
		{"weir.scrub.interval.ms", "how long after one scrub the next begins; 0 for one after each start", spanKey(func(c *Config, d time.Duration) { c.ScrubInterval = d })},
		{fsm.DurabilityConfig, "when an acks=all record is acknowledged, unless its topic says: replicated (in the page cache of all in-sync replicas) or fsync (on their disks)", durabilityKey},
		{"socket.request.max.bytes", "largest request", intKey(0, math.MaxInt32, func(c *Config, n int64) { c.RequestMaxBytes = int(n) })},
		{"fetch.max.bytes", "largest fetch response", intKey(0, math.MaxInt32, func(c *Config, n int64) { c.FetchMaxBytes = int(n) })},
		{"max.incremental.fetch.session.cache.slots", "fetch sessions of clients that are kept; a very large one counts as several", intKey(0, 1_000_000, func(c *Config, n int64) { c.FetchSessions = int(n) })},
		{"queued.max.request.bytes", "bytes of all requests in hand", intKey(0, math.MaxInt64, func(c *Config, n int64) { c.QueuedMaxBytes = n })},
		{"max.connections", "client connections of this node", intKey(1, math.MaxInt32, func(c *Config, n int64) { c.MaxConnections = int(n) })},
		{"max.connections.per.ip", "client connections of one address", intKey(1, math.MaxInt32, func(c *Config, n int64) { c.MaxConnectionsPerIP = int(n) })},
		{"connections.max.idle.ms", "how long a client may stay silent", spanKey(func(c *Config, d time.Duration) { c.ConnectionsMaxIdle = d })},
	}, slices.Concat(groupKeys(), retentionKeys(), compactionKeys())...)
}

// Set changes the setting that Kafka calls key. A key that Kafka knows and that
// has no effect here is noted in Inert; one that nobody knows is an error which
// names the nearest.
func (c *Config) Set(key, value string) error {
	for _, k := range Keys() {
		if k.Name != key {
			continue
		}
		if err := k.set(c, strings.TrimSpace(value)); err != nil {
			return fmt.Errorf("%s=%s: %w", key, value, err)
		}
		return nil
	}
	if isInertKey(key) {
		c.Inert = append(c.Inert, key)
		return nil
	}
	if near := nearestKey(key); near != "" {
		return fmt.Errorf("%s is not a configuration key: did you mean %s?", key, near)
	}
	return fmt.Errorf("%s is not a configuration key: see the configuration page for the list", key)
}

func intKey(least, most int64, set func(*Config, int64)) func(*Config, string) error {
	return func(c *Config, value string) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", value)
		}
		if n < least || n > most {
			return fmt.Errorf("use a number from %d to %d", least, most)
		}
		set(c, n)
		return nil
	}
}

func spanKey(set func(*Config, time.Duration)) func(*Config, string) error {
	const most = int64(math.MaxInt64 / time.Millisecond)
	return intKey(0, most, func(c *Config, ms int64) { set(c, time.Duration(ms)*time.Millisecond) })
}

// flagKey accepts true and false in any case, as Kafka does.
func flagKey(set func(*Config, bool)) func(*Config, string) error {
	return func(c *Config, value string) error {
		switch strings.ToLower(value) {
		case "true":
			set(c, true)
		case "false":
			set(c, false)
		default:
			return fmt.Errorf("%q is neither true nor false", value)
		}
		return nil
	}
}

func textKey(set func(*Config, string)) func(*Config, string) error {
	return func(c *Config, value string) error {
		set(c, value)
		return nil
	}
}

// listenerKey accepts Kafka's NAME://host:port, of which this node has one, in plain text.
func listenerKey(set func(*Config, string)) func(*Config, string) error {
	return func(c *Config, value string) error {
		if strings.Contains(value, ",") {
			return fmt.Errorf("give one listener: this node has one for clients")
		}
		name, addr, found := strings.Cut(value, "://")
		if !found {
			addr = value
		} else if name != "PLAINTEXT" {
			return fmt.Errorf("the listener %s is not supported: use PLAINTEXT://host:port", name)
		}
		set(c, addr)
		return nil
	}
}

func durabilityKey(c *Config, value string) error {
	d, ok := fsm.ParseDurability(value)
	if !ok {
		return fmt.Errorf("%q is no durability: use %s or %s", value, fsm.DurabilityReplicated, fsm.DurabilityFsync)
	}
	c.Durability = d
	return nil
}

func setDataDir(c *Config, value string) error {
	if strings.Contains(value, ",") {
		return fmt.Errorf("give one folder: this node keeps all data in one")
	}
	c.DataDir = value
	return nil
}

// nearestKey returns the known key with the least edit distance to key, or ""
// when none is near enough to be a slip of the pen.
func nearestKey(key string) string {
	best, least := "", len(key)/3+2
	try := func(name string) {
		if d := fsm.EditDistance(key, name); d < least {
			best, least = name, d
		}
	}
	for _, k := range Keys() {
		try(k.Name)
	}
	for _, k := range inertKeys() {
		try(k.name)
	}
	return best
}
