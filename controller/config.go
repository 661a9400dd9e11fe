package controller

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage/vfs"
)

// Identity is who a node is for good: it is written once, when its cluster forms.
type Identity struct {
	// ClusterID names the cluster.
	ClusterID string
	// NodeID is the node's id, 1 and up.
	NodeID fsm.BrokerID
	// Folder is the UUID of the data folder; a node in another folder is another Raft server.
	Folder [16]byte
}

// Config is what Open needs. It is not changed after Open.
type Config struct {
	// Listen is host:port of the peer listener. Listener, when set, is used instead.
	Listen   string
	Listener net.Listener
	// Advertise is where other nodes reach the peer listener. When its host is empty it is
	// the address in Join that leads here, else the listener's own.
	Advertise fsm.Endpoint
	// Join lists the peer addresses of the first nodes, the same on each, or of nodes of a
	// cluster to join; empty for a node alone.
	Join []string
	// NodeID is the wanted node id; 0 takes the position in the list, or what the cluster gives.
	NodeID fsm.BrokerID
	// RaftDir holds Raft's log and snapshots.
	RaftDir string
	// LogFS is the file system of the log in RaftDir.
	LogFS vfs.FS
	// Identity is what the data folder says; nil when the folder is empty.
	Identity *Identity
	// SaveIdentity keeps a new identity in the data folder before it is used.
	SaveIdentity func(Identity) error

	// Session is how long a broker lives without a heartbeat, Heartbeat how often it sends one.
	Session   time.Duration
	Heartbeat time.Duration
	// ElectionTimeout is how long Raft's followers wait for their leader.
	ElectionTimeout time.Duration
	// VoterSteady is how long a node must have kept up with the metadata log before it is given
	// a vote.
	VoterSteady time.Duration
	// CallTimeout bounds a call to the controller whose caller set no deadline.
	CallTimeout time.Duration

	// Topics are the values for what a topic's creator leaves open.
	Topics TopicDefaults

	// Logger gets what operators read; nil discards it.
	Logger hclog.Logger
	// Exit is called when the process must end because it can no longer be trusted with
	// metadata: the Raft store failed or hung, or the replicated state is not readable.
	Exit func(reason error)
}

// TopicDefaults are the values for what a topic's creator leaves open, and the bounds.
type TopicDefaults struct {
	// Partitions is num.partitions.
	Partitions int32
	// ReplicationFactor is default.replication.factor; 0 means min(3, nodes).
	ReplicationFactor int16
	// PartitionsMax bounds the partitions of one topic.
	PartitionsMax int32
}

// DefaultConfig returns the configuration of a node alone on loopback. RaftDir, SaveIdentity
// and Exit must still be set.
func DefaultConfig() Config {
	return Config{
		Listen:          "127.0.0.1:" + defaultPeerPort,
		LogFS:           vfs.OS(),
		Session:         3 * time.Second,
		Heartbeat:       500 * time.Millisecond,
		ElectionTimeout: 500 * time.Millisecond,
		CallTimeout:     30 * time.Second,
		VoterSteady:     10 * time.Second,
		Topics:          TopicDefaults{Partitions: 1, PartitionsMax: 10_000},
	}
}

// electionTimeoutMin keeps the leader lease, which is as long, well above the heartbeat
// interval, a tenth of it, on a machine that is busy.
const electionTimeoutMin = 100 * time.Millisecond

// Validate says what is wrong with the configuration, in terms of its fields.
func (c Config) Validate() error {
	if _, err := parseJoin(c.Join); err != nil {
		return err
	}
	switch {
	case c.RaftDir == "":
		return errors.New("the Raft folder is not set")
	case c.LogFS == nil:
		return errors.New("the file system of the Raft log is not set")
	case c.SaveIdentity == nil && c.Identity == nil:
		return errors.New("there is no SaveIdentity function although the folder has no identity yet")
	case c.Exit == nil:
		return errors.New("there is no Exit function")
	case c.NodeID < 0:
		return fmt.Errorf("node id %d is negative", c.NodeID)
	case c.Heartbeat <= 0 || c.Session < 3*c.Heartbeat:
		return fmt.Errorf("a session of %v is shorter than three heartbeats of %v", c.Session, c.Heartbeat)
	case c.ElectionTimeout < electionTimeoutMin:
		return fmt.Errorf("an election timeout of %v is shorter than %v", c.ElectionTimeout, electionTimeoutMin)
	case c.CallTimeout <= 0:
		return fmt.Errorf("call timeout %v is not positive", c.CallTimeout)
	case c.Topics.Partitions < 1 || c.Topics.PartitionsMax < c.Topics.Partitions:
		return fmt.Errorf("default of %d partitions is not within 1 and %d", c.Topics.Partitions, c.Topics.PartitionsMax)
	case c.Topics.ReplicationFactor < 0:
		return fmt.Errorf("default replication factor %d is negative", c.Topics.ReplicationFactor)
	}
	if id := c.Identity; id != nil && c.NodeID != 0 && id.NodeID != c.NodeID {
		return fmt.Errorf("this data folder belongs to node %d, not to node %d", id.NodeID, c.NodeID)
	}
	return nil
}
