package wire

import (
	"github.com/weirmq/weir/wire/batch"
	"github.com/weirmq/weir/wire/codec"
)

// KeyOffsetForLeaderEpoch is the API by which a client finds where a leader epoch
// ends, and so whether what it has read was cut off since.
//
// Version 3 adds the replica id, 4 is flexible.
const KeyOffsetForLeaderEpoch Key = 23

// OffsetForLeaderEpochRequest asks where epochs end.
type OffsetForLeaderEpochRequest struct {
	ReplicaID int32 // from 3: -1 for a consumer, -2 for one that may see past the high watermark
	Topics    []OffsetForLeaderTopic
}

// OffsetForLeaderTopic is one topic of an OffsetForLeaderEpochRequest.
type OffsetForLeaderTopic struct {
	Topic      string
	Partitions []OffsetForLeaderPartition
}

// OffsetForLeaderPartition is one partition of an OffsetForLeaderTopic.
type OffsetForLeaderPartition struct {
	Partition          int32
	CurrentLeaderEpoch batch.Epoch // -1 when the client knows none
	LeaderEpoch        batch.Epoch // the epoch asked about
}

// OffsetForLeaderEpochResponse answers an OffsetForLeaderEpochRequest.
type OffsetForLeaderEpochResponse struct {
	ThrottleTimeMs int32
	Topics         []OffsetForLeaderTopicResult
}

// OffsetForLeaderTopicResult is one topic of an OffsetForLeaderEpochResponse.
type OffsetForLeaderTopicResult struct {
	Topic      string
	Partitions []OffsetForLeaderPartitionResult
}

// OffsetForLeaderPartitionResult is one partition of an OffsetForLeaderTopicResult:
// the schema's EpochEndOffset, a name that Fetch has for something smaller.
type OffsetForLeaderPartitionResult struct {
	ErrorCode   Code
	Partition   int32
	LeaderEpoch batch.Epoch  // the largest epoch not above the one asked about, -1 for none
	EndOffset   batch.Offset // -1 for none
}

// NewOffsetForLeaderEpochRequest holds the schema's defaults.
func NewOffsetForLeaderEpochRequest() *OffsetForLeaderEpochRequest {
	return &OffsetForLeaderEpochRequest{ReplicaID: -2}
}

// DefaultOffsetForLeaderPartition holds the schema's defaults.
func DefaultOffsetForLeaderPartition() OffsetForLeaderPartition {
	return OffsetForLeaderPartition{CurrentLeaderEpoch: -1}
}

// DefaultOffsetForLeaderPartitionResult holds the schema's defaults.
func DefaultOffsetForLeaderPartitionResult() OffsetForLeaderPartitionResult {
	return OffsetForLeaderPartitionResult{LeaderEpoch: -1, EndOffset: -1}
}

// Key is KeyOffsetForLeaderEpoch.
func (*OffsetForLeaderEpochRequest) Key() Key { return KeyOffsetForLeaderEpoch }

// Key is KeyOffsetForLeaderEpoch.
func (*OffsetForLeaderEpochResponse) Key() Key { return KeyOffsetForLeaderEpoch }

func (r *OffsetForLeaderEpochRequest) code(c *codec.Coder) {
	if c.Version() >= 3 {
		c.Int32(&r.ReplicaID)
	}
	codec.ArrayOf(c, &r.Topics, 40, codeOffsetForLeaderTopic)
	c.Tags()
}

func codeOffsetForLeaderTopic(c *codec.Coder, t *OffsetForLeaderTopic) {
	c.String(&t.Topic)
	codec.ArrayOf(c, &t.Partitions, 12, codeOffsetForLeaderPartition)
	c.Tags()
}

func codeOffsetForLeaderPartition(c *codec.Coder, p *OffsetForLeaderPartition) {
	c.Int32(&p.Partition)
	codeEpoch(c, &p.CurrentLeaderEpoch)
	codeEpoch(c, &p.LeaderEpoch)
	c.Tags()
}

func (r *OffsetForLeaderEpochResponse) code(c *codec.Coder) {
	c.Int32(&r.ThrottleTimeMs)
	codec.ArrayOf(c, &r.Topics, 40, codeOffsetForLeaderTopicResult)
	c.Tags()
}

func codeOffsetForLeaderTopicResult(c *codec.Coder, t *OffsetForLeaderTopicResult) {
	c.String(&t.Topic)
	codec.ArrayOf(c, &t.Partitions, 24, codeOffsetForLeaderPartitionResult)
	c.Tags()
}

func codeOffsetForLeaderPartitionResult(c *codec.Coder, p *OffsetForLeaderPartitionResult) {
	codeCode(c, &p.ErrorCode)
	c.Int32(&p.Partition)
	codeEpoch(c, &p.LeaderEpoch)
	codeOffset(c, &p.EndOffset)
	c.Tags()
}
