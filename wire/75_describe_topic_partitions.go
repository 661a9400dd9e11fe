package wire

import (
	"github.com/weirmq/weir/wire/batch"
	"github.com/weirmq/weir/wire/codec"
)

// KeyDescribeTopicPartitions is the API that describes topics a page at a time.
// Its only version is flexible.
const KeyDescribeTopicPartitions Key = 75

// DescribeTopicPartitionsRequest asks for one page of partitions.
type DescribeTopicPartitionsRequest struct {
	Topics                 []DescribeTopicPartitionsTopic
	ResponsePartitionLimit int32
	Cursor                 *TopicPartitionCursor // where the page starts, nil for the first
}

// DescribeTopicPartitionsTopic names one topic.
type DescribeTopicPartitionsTopic struct {
	Name string
}

// TopicPartitionCursor is the place at which a page starts.
type TopicPartitionCursor struct {
	TopicName      string
	PartitionIndex int32
}

// DescribeTopicPartitionsResponse answers a DescribeTopicPartitionsRequest.
type DescribeTopicPartitionsResponse struct {
	ThrottleTimeMs int32
	Topics         []DescribedTopic
	NextCursor     *TopicPartitionCursor // where the next page starts, nil after the last
}

// DescribedTopic is one topic of a DescribeTopicPartitionsResponse.
type DescribedTopic struct {
	ErrorCode                 Code
	IsInternal                bool
	TopicAuthorizedOperations int32 // the least int32 when not asked for
	Name                      *string
	TopicID                   [16]byte
	Partitions                []DescribedPartition
}

// DescribedPartition is one partition of a DescribedTopic.
type DescribedPartition struct {
	ErrorCode              Code
	PartitionIndex         int32
	LeaderID               int32 // -1 for none
	LeaderEpoch            batch.Epoch
	ReplicaNodes           []int32
	IsrNodes               []int32
	EligibleLeaderReplicas []int32 // nil for null
	LastKnownElr           []int32 // nil for null
	OfflineReplicas        []int32
}

// NewDescribeTopicPartitionsRequest holds the schema's defaults.
func NewDescribeTopicPartitionsRequest() *DescribeTopicPartitionsRequest {
	return &DescribeTopicPartitionsRequest{ResponsePartitionLimit: 2000}
}

// DefaultDescribedTopic holds the schema's defaults.
func DefaultDescribedTopic() DescribedTopic {
	return DescribedTopic{TopicAuthorizedOperations: noOperations}
}

// Key is KeyDescribeTopicPartitions.
func (*DescribeTopicPartitionsRequest) Key() Key { return KeyDescribeTopicPartitions }

// Key is KeyDescribeTopicPartitions.
func (*DescribeTopicPartitionsResponse) Key() Key { return KeyDescribeTopicPartitions }

func (r *DescribeTopicPartitionsRequest) code(c *codec.Coder) {
	codec.ArrayOf(c, &r.Topics, 16, codeDescribeTopicPartitionsTopic)
	c.Int32(&r.ResponsePartitionLimit)
	codec.NullableStruct(c, &r.Cursor, 24, codeTopicPartitionCursor)
	c.Tags()
}

func codeDescribeTopicPartitionsTopic(c *codec.Coder, t *DescribeTopicPartitionsTopic) {
	c.String(&t.Name)
	c.Tags()
}

func codeTopicPartitionCursor(c *codec.Coder, p *TopicPartitionCursor) {
	c.String(&p.TopicName)
	c.Int32(&p.PartitionIndex)
	c.Tags()
}

func (r *DescribeTopicPartitionsResponse) code(c *codec.Coder) {
	c.Int32(&r.ThrottleTimeMs)
	codec.ArrayOf(c, &r.Topics, 56, codeDescribedTopic)
	codec.NullableStruct(c, &r.NextCursor, 24, codeTopicPartitionCursor)
	c.Tags()
}

func codeDescribedTopic(c *codec.Coder, t *DescribedTopic) {
	codeCode(c, &t.ErrorCode)
	c.NullableString(&t.Name)
	c.UUID(&t.TopicID)
	c.Bool(&t.IsInternal)
	codec.ArrayOf(c, &t.Partitions, 136, codeDescribedPartition)
	c.Int32(&t.TopicAuthorizedOperations)
	c.Tags()
}

func codeDescribedPartition(c *codec.Coder, p *DescribedPartition) {
	codeCode(c, &p.ErrorCode)
	c.Int32(&p.PartitionIndex)
	c.Int32(&p.LeaderID)
	codeEpoch(c, &p.LeaderEpoch)
	c.Int32s(&p.ReplicaNodes)
	c.Int32s(&p.IsrNodes)
	c.NullableInt32s(&p.EligibleLeaderReplicas)
	c.NullableInt32s(&p.LastKnownElr)
	c.Int32s(&p.OfflineReplicas)
	c.Tags()
}
