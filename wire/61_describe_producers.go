package wire

import (
	"github.com/weirmq/weir/wire/batch"
	"github.com/weirmq/weir/wire/codec"
)

// KeyDescribeProducers is the API that lists the producers that a partition's
// leader remembers. Its only version is flexible.
const KeyDescribeProducers Key = 61

// DescribeProducersRequest asks about partitions.
type DescribeProducersRequest struct {
	Topics []DescribeProducersTopic
}

// DescribeProducersTopic names partitions of one topic.
type DescribeProducersTopic struct {
	Name             string
	PartitionIndexes []int32
}

// DescribeProducersResponse answers a DescribeProducersRequest.
type DescribeProducersResponse struct {
	ThrottleTimeMs int32
	Topics         []DescribeProducersTopicResponse
}

// DescribeProducersTopicResponse is one topic of a DescribeProducersResponse.
type DescribeProducersTopicResponse struct {
	Name       string
	Partitions []DescribeProducersPartitionResponse
}

// DescribeProducersPartitionResponse is one partition of a DescribeProducersTopicResponse.
type DescribeProducersPartitionResponse struct {
	PartitionIndex  int32
	ErrorCode       Code
	ErrorMessage    *string
	ActiveProducers []ProducerState
}

// ProducerState is what is known of one producer.
type ProducerState struct {
	ProducerID            int64
	ProducerEpoch         int32
	LastSequence          int32 // -1 when unknown
	LastTimestamp         int64 // -1 when unknown
	CoordinatorEpoch      int32
	CurrentTxnStartOffset batch.Offset // -1 outside of a transaction
}

// DefaultProducerState holds the schema's defaults.
func DefaultProducerState() ProducerState {
	return ProducerState{LastSequence: -1, LastTimestamp: -1, CurrentTxnStartOffset: -1}
}

// Key is KeyDescribeProducers.
func (*DescribeProducersRequest) Key() Key { return KeyDescribeProducers }

// Key is KeyDescribeProducers.
func (*DescribeProducersResponse) Key() Key { return KeyDescribeProducers }

func (r *DescribeProducersRequest) code(c *codec.Coder) {
	codec.ArrayOf(c, &r.Topics, 40, codeDescribeProducersTopic)
	c.Tags()
}

func codeDescribeProducersTopic(c *codec.Coder, t *DescribeProducersTopic) {
	c.String(&t.Name)
	c.Int32s(&t.PartitionIndexes)
	c.Tags()
}

func (r *DescribeProducersResponse) code(c *codec.Coder) {
	c.Int32(&r.ThrottleTimeMs)
	codec.ArrayOf(c, &r.Topics, 40, codeDescribeProducersTopicResponse)
	c.Tags()
}

func codeDescribeProducersTopicResponse(c *codec.Coder, t *DescribeProducersTopicResponse) {
	c.String(&t.Name)
	codec.ArrayOf(c, &t.Partitions, 40, codeDescribeProducersPartitionResponse)
	c.Tags()
}

func codeDescribeProducersPartitionResponse(c *codec.Coder, p *DescribeProducersPartitionResponse) {
	c.Int32(&p.PartitionIndex)
	codeCode(c, &p.ErrorCode)
	c.NullableString(&p.ErrorMessage)
	codec.ArrayOf(c, &p.ActiveProducers, 40, codeProducerState)
	c.Tags()
}

func codeProducerState(c *codec.Coder, s *ProducerState) {
	c.Int64(&s.ProducerID)
	c.Int32(&s.ProducerEpoch)
	c.Int32(&s.LastSequence)
	c.Int64(&s.LastTimestamp)
	c.Int32(&s.CoordinatorEpoch)
	codeOffset(c, &s.CurrentTxnStartOffset)
	c.Tags()
}
