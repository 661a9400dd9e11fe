package broker

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/fsm"
)

// The addresses of a node that was told nothing: all on loopback.
const (
	DefaultDataDir      = "./weir-data"
	DefaultClientListen = "127.0.0.1:9092"
	DefaultPeerListen   = "127.0.0.1:9093"
	DefaultAdminListen  = "127.0.0.1:9644"
)

// The addresses of a node that was given a join list: its peers live on other machines.
const (
	joinedClientListen = "0.0.0.0:9092"
	joinedPeerListen   = "0.0.0.0:9093"
)

// Config is all that a node can be told. The zero value of a field that has a
// default is not that default: start from DefaultConfig.
type Config struct {
	// DataDir holds everything the node keeps: identity, Raft, partition folders.
	DataDir string
	// ClientListen is the Kafka listener, host:port. Empty means DefaultClientListen,
	// or port 9092 on all interfaces when Join is given.
	ClientListen string
	// PeerListen is the listener for other nodes. Empty means DefaultPeerListen,
	// or port 9093 on all interfaces when Join is given.
	PeerListen string
	// AdminListen is the HTTP listener of metrics and health; "" or "none" turns it off.
	AdminListen string
	// Advertise is the address clients are told to use, host or host:port. Empty
	// means the node's own entry in Join, or the listener's address.
	Advertise string
	// AdvertisePeer is the address other nodes are told to use, host or host:port.
	// Empty means the node's own entry in Join, or the listener's address.
	AdvertisePeer string
	// Join lists the peer addresses of a new cluster's first nodes, this one included, the
	// same on every node; or of nodes of a cluster that this one is to join, if its folder is
	// empty. Empty means a cluster of one.
	Join []string
	// NodeID is this node's id; 0 means its position in Join, from 1, or
	// the next that was never used where it joins a cluster that exists.
	NodeID int32
	// Rack names the failure domain of this node.
	Rack string

	// Session is how long a silent node keeps its leaderships (broker.session.timeout.ms).
	Session time.Duration
	// Heartbeat is how often a node shows that it lives (broker.heartbeat.interval.ms).
	Heartbeat time.Duration
	// DiskTimeout is how long a call of the disk may take before this node gives up what it leads (weir.disk.timeout.ms).
	DiskTimeout time.Duration
	// ReplicaLagMax is how long a follower may trail before it leaves the ISR (replica.lag.time.max.ms).
	ReplicaLagMax time.Duration

	// NumPartitions is the partition count of topics created without one (num.partitions).
	NumPartitions int32
	// ReplicationFactor is that of topics created without one; 0 means min(3, nodes) (default.replication.factor).
	ReplicationFactor int16
	// MinInSync is the least ISR that may acknowledge acks=all; 0 means a majority of the replicas (min.insync.replicas).
	MinInSync int16

	// AutoCreateTopics lets clients create a topic by asking for it (auto.create.topics.enable).
	AutoCreateTopics bool

	// MessageMaxBytes bounds one record batch of topics without max.message.bytes (message.max.bytes).
	MessageMaxBytes int
	// SegmentBytes is the size at which a log starts a new segment (log.segment.bytes).
	SegmentBytes int64
	// IndexIntervalBytes is the distance of index entries in a segment (log.index.interval.bytes).
	IndexIntervalBytes int
	// FlushInterval bounds how long a written record may stay unsynced (log.flush.interval.ms).
	FlushInterval time.Duration
	// FlushBytes bounds how many written bytes may stay unsynced (weir.flush.bytes).
	FlushBytes int64
	// ScrubBytes is how many bytes a second are read to find what the disk has changed; 0 for none (weir.scrub.bytes.per.second).
	ScrubBytes int64
	// ScrubInterval is how long what was read is believed; 0 for ever (weir.scrub.interval.ms).
	ScrubInterval time.Duration
	// Durability is that of topics without weir.durability (weir.durability).
	Durability fsm.Durability

	// RequestMaxBytes bounds one request (socket.request.max.bytes).
	RequestMaxBytes int
	// FetchMaxBytes bounds one fetch response (fetch.max.bytes).
	FetchMaxBytes int
	// FetchSessions is how many slots the cache of fetch sessions has (max.incremental.fetch.session.cache.slots).
	FetchSessions int
	// QueuedMaxBytes bounds the bytes of all requests that are being read or handled (queued.max.request.bytes).
	QueuedMaxBytes int64
	// MaxConnections bounds the client connections of this node (max.connections).
	MaxConnections int
	// MaxConnectionsPerIP bounds those of one address (max.connections.per.ip).
	MaxConnectionsPerIP int
	// ConnectionsMaxIdle is how long a client may stay silent (connections.max.idle.ms).
	ConnectionsMaxIdle time.Duration

	// Groups is about consumer groups and committed offsets (group.*, offsets.*).
	Groups GroupConfig
	// Retention is about removing old records (log.retention.*, log.roll.*).
	Retention RetentionConfig
	// Compaction is about keeping only the newest record of each key (log.cleaner.*, log.cleanup.policy).
	Compaction CompactionConfig

	// Inert lists the keys given to Set that Kafka knows and that have no effect
	// here; the node warns about them once.
	Inert []string

	// Logger receives the node's log; nil discards it.
	Logger hclog.Logger
}

// DefaultConfig returns the configuration of a node that was told nothing.
func DefaultConfig() Config {
	return Config{
		DataDir:             DefaultDataDir,
		AdminListen:         DefaultAdminListen,
		Session:             3 * time.Second,
		Heartbeat:           500 * time.Millisecond,
		DiskTimeout:         6 * time.Second,
		ReplicaLagMax:       10 * time.Second,
		NumPartitions:       1,
		AutoCreateTopics:    true,
		MessageMaxBytes:     1048588,
		SegmentBytes:        1 << 30,
		IndexIntervalBytes:  4096,
		FlushInterval:       time.Second,
		FlushBytes:          64 << 20,
		ScrubBytes:          8 << 20,
		ScrubInterval:       7 * 24 * time.Hour,
		RequestMaxBytes:     100 << 20,
		FetchMaxBytes:       55 << 20,
		FetchSessions:       1000,
		QueuedMaxBytes:      256 << 20,
		MaxConnections:      10_000,
		MaxConnectionsPerIP: 10_000,
		ConnectionsMaxIdle:  10 * time.Minute,
		Groups:              DefaultGroupConfig(),
		Retention:           defaultRetention(),
		Compaction:          defaultCompaction(),
	}
}

// Validate reports the first thing that is wrong, in one sentence that says what to do.
func (c Config) Validate() error {
	for _, check := range []func(Config) error{checkAddresses, checkJoin, checkTimes, checkTopicDefaults, checkLimits, checkGroups, checkRetention, checkCompaction} {
		if err := check(c); err != nil {
			return err
		}
	}
	return nil
}

func checkAddresses(c Config) error {
	if strings.TrimSpace(c.DataDir) == "" {
		return errors.New("the data directory is empty: name a folder, such as " + DefaultDataDir)
	}
	listeners := []struct{ name, addr string }{
		{"client", c.clientListen()}, {"peer", c.peerListen()}, {"admin", c.adminListen()},
	}
	for i, l := range listeners {
		if l.addr == "" {
			continue
		}
		if _, _, err := splitAddress(l.addr); err != nil {
			return fmt.Errorf("the %s listener %q is not host:port: %w", l.name, l.addr, err)
		}
		for _, other := range listeners[:i] {
			if other.addr == l.addr && !strings.HasSuffix(l.addr, ":0") {
				return fmt.Errorf("the %s and %s listeners are both %s: give each its own port", other.name, l.name, l.addr)
			}
		}
	}
	for name, addr := range map[string]string{"advertised": c.Advertise, "advertised peer": c.AdvertisePeer} {
		if strings.Contains(addr, ":") {
			if _, port, err := splitAddress(addr); err != nil || port == 0 {
				return fmt.Errorf("the %s address %q is not a host or host:port: write it as host:port", name, addr)
			}
		}
	}
	return nil
}

func checkJoin(c Config) error {
	if c.NodeID < 0 {
		return fmt.Errorf("node.id %d is negative: use 1 or more", c.NodeID)
	}
	for i, addr := range c.Join {
		if _, port, err := splitAddress(addr); err != nil || port == 0 {
			return fmt.Errorf("%q in the join list is not host:port: list each node's peer address, such as a:9093", addr)
		}
		if slices.Contains(c.Join[:i], addr) {
			return fmt.Errorf("%q is twice in the join list: list each node once", addr)
		}
	}
	return nil
}

func checkTimes(c Config) error {
	switch {
	case c.Heartbeat < 10*time.Millisecond:
		return fmt.Errorf("broker.heartbeat.interval.ms is %d: use 10 or more", c.Heartbeat.Milliseconds())
	case c.Session < 3*c.Heartbeat:
		return fmt.Errorf("broker.session.timeout.ms (%d) is below three heartbeats (%d each): raise it or lower broker.heartbeat.interval.ms",
			c.Session.Milliseconds(), c.Heartbeat.Milliseconds())
	case c.DiskTimeout < 100*time.Millisecond:
		return fmt.Errorf("weir.disk.timeout.ms is %d: use 100 or more", c.DiskTimeout.Milliseconds())
	case c.ReplicaLagMax < 100*time.Millisecond:
		return fmt.Errorf("replica.lag.time.max.ms is %d: use 100 or more", c.ReplicaLagMax.Milliseconds())
	case c.FlushInterval < 10*time.Millisecond:
		return fmt.Errorf("log.flush.interval.ms is %d: use 10 or more", c.FlushInterval.Milliseconds())
	case c.FlushBytes < 1:
		return fmt.Errorf("weir.flush.bytes is %d: use 1 or more", c.FlushBytes)
	case c.ScrubBytes < 0:
		return fmt.Errorf("weir.scrub.bytes.per.second is %d: use 1 or more, or 0 for no scrub", c.ScrubBytes)
	case c.ScrubInterval != 0 && c.ScrubInterval < time.Minute:
		return fmt.Errorf("weir.scrub.interval.ms is %d: use 60000 or more, or 0 for one scrub after each start", c.ScrubInterval.Milliseconds())
	case c.ConnectionsMaxIdle < time.Second:
		return fmt.Errorf("connections.max.idle.ms is %d: use 1000 or more", c.ConnectionsMaxIdle.Milliseconds())
	}
	return nil
}

func checkTopicDefaults(c Config) error {
	switch {
	case c.NumPartitions < 1:
		return fmt.Errorf("num.partitions is %d: use 1 or more", c.NumPartitions)
	case c.ReplicationFactor < 0:
		return fmt.Errorf("default.replication.factor is %d: use 1 or more, or leave it out", c.ReplicationFactor)
	case c.MinInSync < 0:
		return fmt.Errorf("min.insync.replicas is %d: use 1 or more, or leave it out", c.MinInSync)
	case c.ReplicationFactor > 0 && c.MinInSync > c.ReplicationFactor:
		return fmt.Errorf("min.insync.replicas (%d) is above default.replication.factor (%d): no write could succeed, lower it",
			c.MinInSync, c.ReplicationFactor)
	case c.MessageMaxBytes < 1024:
		return fmt.Errorf("message.max.bytes is %d: use 1024 or more", c.MessageMaxBytes)
	case c.SegmentBytes < 1<<20 || c.SegmentBytes > 1<<31-1:
		return fmt.Errorf("log.segment.bytes is %d: use 1048576 to 2147483647", c.SegmentBytes)
	case c.IndexIntervalBytes < 1:
		return fmt.Errorf("log.index.interval.bytes is %d: use 1 or more", c.IndexIntervalBytes)
	}
	return nil
}

func checkLimits(c Config) error {
	switch {
	case c.RequestMaxBytes < c.MessageMaxBytes:
		return fmt.Errorf("socket.request.max.bytes (%d) is below message.max.bytes (%d): raise it", c.RequestMaxBytes, c.MessageMaxBytes)
	case c.QueuedMaxBytes < int64(c.RequestMaxBytes):
		return fmt.Errorf("queued.max.request.bytes (%d) is below socket.request.max.bytes (%d): raise it", c.QueuedMaxBytes, c.RequestMaxBytes)
	case c.FetchMaxBytes < 1024:
		return fmt.Errorf("fetch.max.bytes is %d: use 1024 or more", c.FetchMaxBytes)
	case c.FetchSessions < 0:
		return fmt.Errorf("max.incremental.fetch.session.cache.slots is %d: use 0 or more", c.FetchSessions)
	case c.MaxConnections < 1:
		return fmt.Errorf("max.connections is %d: use 1 or more", c.MaxConnections)
	case c.MaxConnectionsPerIP < 1:
		return fmt.Errorf("max.connections.per.ip is %d: use 1 or more", c.MaxConnectionsPerIP)
	}
	return nil
}

// clientListen is the address of the Kafka listener with its default filled in.
func (c Config) clientListen() string {
	switch {
	case c.ClientListen != "":
		return c.ClientListen
	case len(c.Join) > 0:
		return joinedClientListen
	}
	return DefaultClientListen
}

// peerListen is the address of the peer listener with its default filled in.
func (c Config) peerListen() string {
	switch {
	case c.PeerListen != "":
		return c.PeerListen
	case len(c.Join) > 0:
		return joinedPeerListen
	}
	return DefaultPeerListen
}

// adminListen is the address of the admin listener, or "" when it is off.
func (c Config) adminListen() string {
	if strings.EqualFold(c.AdminListen, "none") {
		return ""
	}
	return c.AdminListen
}

// scrubs is the rate and the interval as storage takes them.
func (c Config) scrubs() (int64, time.Duration) {
	rate, interval := c.ScrubBytes, c.ScrubInterval
	if rate == 0 {
		rate = -1
	}
	if interval == 0 {
		interval = -1
	}
	return rate, interval
}

// raftDir is the folder of the metadata log inside the data folder.
func (c Config) raftDir() string { return filepath.Join(c.DataDir, "raft") }
