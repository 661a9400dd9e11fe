package wire

import (
	"github.com/weirmq/weir/wire/batch"
	"github.com/weirmq/weir/wire/codec"
)

// KeyDescribeQuorum is the API that tells the state of the controllers' quorum, in
// the shape of one partition of the topic __cluster_metadata.
//
// All versions are flexible. Version 1 adds the times of the replicas' last
// fetches, 2 error messages, the replicas' folders and the controllers' listeners.
const KeyDescribeQuorum Key = 55

// DescribeQuorumRequest asks about the quorum.
type DescribeQuorumRequest struct {
	Topics []DescribeQuorumTopic
}

// DescribeQuorumTopic is one topic of a DescribeQuorumRequest.
type DescribeQuorumTopic struct {
	TopicName  string
	Partitions []DescribeQuorumPartition
}

// DescribeQuorumPartition names one partition.
type DescribeQuorumPartition struct {
	PartitionIndex int32
}

// DescribeQuorumResponse answers a DescribeQuorumRequest.
type DescribeQuorumResponse struct {
	ErrorCode    Code
	ErrorMessage *string // from 2
	Topics       []DescribeQuorumTopicResponse
	Nodes        []DescribeQuorumNode // from 2
}

// DescribeQuorumTopicResponse is one topic of a DescribeQuorumResponse.
type DescribeQuorumTopicResponse struct {
	TopicName  string
	Partitions []DescribeQuorumPartitionResponse
}

// DescribeQuorumPartitionResponse is one partition of a DescribeQuorumTopicResponse.
type DescribeQuorumPartitionResponse struct {
	PartitionIndex int32
	ErrorCode      Code
	ErrorMessage   *string // from 2
	LeaderID       int32   // -1 when unknown
	LeaderEpoch    batch.Epoch
	HighWatermark  batch.Offset
	CurrentVoters  []QuorumReplicaState
	Observers      []QuorumReplicaState
}

// QuorumReplicaState is the state of one voter or observer.
type QuorumReplicaState struct {
	ReplicaID             int32
	ReplicaDirectoryID    [16]byte     // from 2
	LogEndOffset          batch.Offset // -1 when unknown
	LastFetchTimestamp    int64        // from 1, -1 when unknown and for the leader
	LastCaughtUpTimestamp int64        // from 1, -1 when unknown
}

// DescribeQuorumNode is one controller.
type DescribeQuorumNode struct {
	NodeID    int32
	Listeners []DescribeQuorumListener
}

// DescribeQuorumListener is one address of a controller.
type DescribeQuorumListener struct {
	Name string
	Host string
	Port uint16
}

// DefaultQuorumReplicaState holds the schema's defaults.
func DefaultQuorumReplicaState() QuorumReplicaState {
	return QuorumReplicaState{LastFetchTimestamp: -1, LastCaughtUpTimestamp: -1}
}

// Key is KeyDescribeQuorum.
func (*DescribeQuorumRequest) Key() Key { return KeyDescribeQuorum }

// Key is KeyDescribeQuorum.
func (*DescribeQuorumResponse) Key() Key { return KeyDescribeQuorum }

func (r *DescribeQuorumRequest) code(c *codec.Coder) {
	codec.ArrayOf(c, &r.Topics, 40, codeDescribeQuorumTopic)
	c.Tags()
}

func codeDescribeQuorumTopic(c *codec.Coder, t *DescribeQuorumTopic) {
	c.String(&t.TopicName)
	codec.ArrayOf(c, &t.Partitions, 4, codeDescribeQuorumPartition)
	c.Tags()
}

func codeDescribeQuorumPartition(c *codec.Coder, p *DescribeQuorumPartition) {
	c.Int32(&p.PartitionIndex)
	c.Tags()
}

func (r *DescribeQuorumResponse) code(c *codec.Coder) {
	v := c.Version()
	codeCode(c, &r.ErrorCode)
	if v >= 2 {
		c.NullableString(&r.ErrorMessage)
	}
	codec.ArrayOf(c, &r.Topics, 40, codeDescribeQuorumTopicResponse)
	if v >= 2 {
		codec.ArrayOf(c, &r.Nodes, 32, codeDescribeQuorumNode)
	}
	c.Tags()
}

func codeDescribeQuorumTopicResponse(c *codec.Coder, t *DescribeQuorumTopicResponse) {
	c.String(&t.TopicName)
	codec.ArrayOf(c, &t.Partitions, 80, codeDescribeQuorumPartitionResponse)
	c.Tags()
}

func codeDescribeQuorumPartitionResponse(c *codec.Coder, p *DescribeQuorumPartitionResponse) {
	c.Int32(&p.PartitionIndex)
	codeCode(c, &p.ErrorCode)
	if c.Version() >= 2 {
		c.NullableString(&p.ErrorMessage)
	}
	c.Int32(&p.LeaderID)
	codeEpoch(c, &p.LeaderEpoch)
	codeOffset(c, &p.HighWatermark)
	codec.ArrayOf(c, &p.CurrentVoters, 48, codeQuorumReplicaState)
	codec.ArrayOf(c, &p.Observers, 48, codeQuorumReplicaState)
	c.Tags()
}

func codeQuorumReplicaState(c *codec.Coder, s *QuorumReplicaState) {
	v := c.Version()
	if c.Reading() {
		*s = DefaultQuorumReplicaState()
	}
	c.Int32(&s.ReplicaID)
	if v >= 2 {
		c.UUID(&s.ReplicaDirectoryID)
	}
	codeOffset(c, &s.LogEndOffset)
	if v >= 1 {
		c.Int64(&s.LastFetchTimestamp)
		c.Int64(&s.LastCaughtUpTimestamp)
	}
	c.Tags()
}

func codeDescribeQuorumNode(c *codec.Coder, n *DescribeQuorumNode) {
	c.Int32(&n.NodeID)
	codec.ArrayOf(c, &n.Listeners, 40, codeDescribeQuorumListener)
	c.Tags()
}

func codeDescribeQuorumListener(c *codec.Coder, l *DescribeQuorumListener) {
	c.String(&l.Name)
	c.String(&l.Host)
	c.Uint16(&l.Port)
	c.Tags()
}
