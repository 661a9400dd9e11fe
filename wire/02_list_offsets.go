package wire

import (
	"github.com/weirmq/weir/wire/batch"
	"github.com/weirmq/weir/wire/codec"
)

// KeyListOffsets is the API that finds offsets by timestamp.
//
// Version 2 adds the isolation level, 4 the leader epoch, 6 is flexible, 10 adds
// a timeout. Later versions allow further special timestamps: 7 -3, 8 -4, 9 -5,
// 11 -6.
const KeyListOffsets Key = 2

// The special timestamps of a ListOffsetsPartition.
const (
	TimestampLatest            int64 = -1
	TimestampEarliest          int64 = -2
	TimestampMax               int64 = -3 // from 7: the record with the greatest timestamp
	TimestampEarliestLocal     int64 = -4 // from 8
	TimestampLatestTiered      int64 = -5 // from 9
	TimestampEarliestNotTiered int64 = -6 // from 11
)

// ListOffsetsRequest asks for the first offset at or after a timestamp.
type ListOffsetsRequest struct {
	ReplicaID      int32 // -1 for a consumer
	IsolationLevel int8  // from 2: 0 read uncommitted, 1 read committed
	Topics         []ListOffsetsTopic
	TimeoutMs      int32 // from 10
}

// ListOffsetsTopic is one topic of a ListOffsetsRequest.
type ListOffsetsTopic struct {
	Name       string
	Partitions []ListOffsetsPartition
}

// ListOffsetsPartition is one partition of a ListOffsetsTopic.
type ListOffsetsPartition struct {
	PartitionIndex     int32
	CurrentLeaderEpoch batch.Epoch // from 4, -1 when the client knows none
	Timestamp          int64       // milliseconds, or one of the special timestamps
}

// ListOffsetsResponse answers a ListOffsetsRequest.
type ListOffsetsResponse struct {
	ThrottleTimeMs int32 // from 2
	Topics         []ListOffsetsTopicResponse
}

// ListOffsetsTopicResponse is one topic of a ListOffsetsResponse.
type ListOffsetsTopicResponse struct {
	Name       string
	Partitions []ListOffsetsPartitionResponse
}

// ListOffsetsPartitionResponse is one partition of a ListOffsetsTopicResponse.
type ListOffsetsPartitionResponse struct {
	PartitionIndex int32
	ErrorCode      Code
	Timestamp      int64        // -1 for none
	Offset         batch.Offset // -1 for none
	LeaderEpoch    batch.Epoch  // from 4
}

// NewListOffsetsRequest makes a consumer's request.
func NewListOffsetsRequest() *ListOffsetsRequest { return &ListOffsetsRequest{ReplicaID: -1} }

// DefaultListOffsetsPartition holds the schema's defaults.
func DefaultListOffsetsPartition() ListOffsetsPartition {
	return ListOffsetsPartition{CurrentLeaderEpoch: -1}
}

// DefaultListOffsetsPartitionResponse holds the schema's defaults.
func DefaultListOffsetsPartitionResponse() ListOffsetsPartitionResponse {
	return ListOffsetsPartitionResponse{Timestamp: -1, Offset: -1, LeaderEpoch: -1}
}

// Key is KeyListOffsets.
func (*ListOffsetsRequest) Key() Key { return KeyListOffsets }

// Key is KeyListOffsets.
func (*ListOffsetsResponse) Key() Key { return KeyListOffsets }

func (r *ListOffsetsRequest) code(c *codec.Coder) {
	v := c.Version()
	c.Int32(&r.ReplicaID)
	if v >= 2 {
		c.Int8(&r.IsolationLevel)
	}
	codec.ArrayOf(c, &r.Topics, 40, codeListOffsetsTopic)
	if v >= 10 {
		c.Int32(&r.TimeoutMs)
	}
	c.Tags()
}

func codeListOffsetsTopic(c *codec.Coder, t *ListOffsetsTopic) {
	c.String(&t.Name)
	codec.ArrayOf(c, &t.Partitions, 16, codeListOffsetsPartition)
	c.Tags()
}

func codeListOffsetsPartition(c *codec.Coder, p *ListOffsetsPartition) {
	if c.Reading() {
		*p = DefaultListOffsetsPartition()
	}
	c.Int32(&p.PartitionIndex)
	if c.Version() >= 4 {
		codeEpoch(c, &p.CurrentLeaderEpoch)
	}
	c.Int64(&p.Timestamp)
	c.Tags()
}

func (r *ListOffsetsResponse) code(c *codec.Coder) {
	if c.Version() >= 2 {
		c.Int32(&r.ThrottleTimeMs)
	}
	codec.ArrayOf(c, &r.Topics, 40, codeListOffsetsTopicResponse)
	c.Tags()
}

func codeListOffsetsTopicResponse(c *codec.Coder, t *ListOffsetsTopicResponse) {
	c.String(&t.Name)
	codec.ArrayOf(c, &t.Partitions, 32, codeListOffsetsPartitionResponse)
	c.Tags()
}

func codeListOffsetsPartitionResponse(c *codec.Coder, p *ListOffsetsPartitionResponse) {
	if c.Reading() {
		*p = DefaultListOffsetsPartitionResponse()
	}
	c.Int32(&p.PartitionIndex)
	codeCode(c, &p.ErrorCode)
	c.Int64(&p.Timestamp)
	codeOffset(c, &p.Offset)
	if c.Version() >= 4 {
		codeEpoch(c, &p.LeaderEpoch)
	}
	c.Tags()
}
