package wire

import (
	"github.com/weirmq/weir/wire/batch"
	"github.com/weirmq/weir/wire/codec"
)

// KeyProduce is the API that appends record batches.
//
// Version 7 allows zstd, 8 adds record errors and an error message to the
// response, 9 is flexible, 10 adds leader hints, 11 may answer
// TRANSACTION_ABORTABLE, 12 adds partitions to the transaction implicitly, 13 has
// topic ids in place of names. Versions 0 to 2 carried older record formats.
const KeyProduce Key = 0

// ProduceRequest asks to append one record batch to each partition named.
type ProduceRequest struct {
	TransactionalID *string
	Acks            int16 // 0, 1, or -1 for the whole ISR
	TimeoutMs       int32
	TopicData       []ProduceTopic
}

// ProduceTopic is one topic of a ProduceRequest.
type ProduceTopic struct {
	Name          string   // before 13
	TopicID       [16]byte // from 13
	PartitionData []ProducePartition
}

// ProducePartition is one partition of a ProduceTopic.
type ProducePartition struct {
	Index   int32
	Records []byte // aliases the frame; nil for null
}

// ProduceResponse answers a ProduceRequest, unless its acks were 0.
type ProduceResponse struct {
	Responses      []ProduceTopicResponse
	ThrottleTimeMs int32
	NodeEndpoints  []NodeEndpoint // from 10: the nodes that current leaders name
}

// ProduceTopicResponse is one topic of a ProduceResponse.
type ProduceTopicResponse struct {
	Name               string   // before 13
	TopicID            [16]byte // from 13
	PartitionResponses []ProducePartitionResponse
}

// ProducePartitionResponse is one partition of a ProduceTopicResponse.
type ProducePartitionResponse struct {
	Index           int32
	ErrorCode       Code
	BaseOffset      batch.Offset
	LogAppendTimeMs int64             // -1 unless the topic stamps append times
	LogStartOffset  batch.Offset      // from 5, -1 when unknown
	RecordErrors    []RecordError     // from 8
	ErrorMessage    *string           // from 8
	CurrentLeader   *LeaderIDAndEpoch // from 10, nil when there is nothing to say
}

// RecordError tells which record of a batch was refused, and why.
type RecordError struct {
	BatchIndex             int32
	BatchIndexErrorMessage *string
}

// LeaderIDAndEpoch is a hint at who leads a partition.
type LeaderIDAndEpoch struct {
	LeaderID    int32
	LeaderEpoch batch.Epoch
}

// NodeEndpoint is where a node that a hint names listens.
type NodeEndpoint struct {
	NodeID int32
	Port   int32
	Host   string
	Rack   *string
}

// DefaultProducePartitionResponse holds the schema's defaults.
func DefaultProducePartitionResponse() ProducePartitionResponse {
	return ProducePartitionResponse{LogAppendTimeMs: -1, LogStartOffset: -1}
}

// Key is KeyProduce.
func (*ProduceRequest) Key() Key { return KeyProduce }

// Key is KeyProduce.
func (*ProduceResponse) Key() Key { return KeyProduce }

func (r *ProduceRequest) code(c *codec.Coder) {
	c.NullableString(&r.TransactionalID)
	c.Int16(&r.Acks)
	c.Int32(&r.TimeoutMs)
	codec.ArrayOf(c, &r.TopicData, 56, codeProduceTopic)
	c.Tags()
}

func codeProduceTopic(c *codec.Coder, t *ProduceTopic) {
	codeTopicRef(c, &t.Name, &t.TopicID, 13)
	codec.ArrayOf(c, &t.PartitionData, 32, codeProducePartition)
	c.Tags()
}

func codeProducePartition(c *codec.Coder, p *ProducePartition) {
	c.Int32(&p.Index)
	c.NullableBytes32(&p.Records)
	c.Tags()
}

func (r *ProduceResponse) code(c *codec.Coder) {
	codec.ArrayOf(c, &r.Responses, 56, codeProduceTopicResponse)
	c.Int32(&r.ThrottleTimeMs)
	present := codec.TagSet(0).With(0, len(r.NodeEndpoints) > 0 && c.Version() >= 10)
	codec.Tagged(c, r, present, codeProduceResponseTag)
}

func codeProduceResponseTag(c *codec.Coder, r *ProduceResponse, tag uint32) bool {
	if tag != 0 || c.Version() < 10 {
		return false
	}
	codec.ArrayOf(c, &r.NodeEndpoints, 32, codeNodeEndpoint)
	return true
}

func codeProduceTopicResponse(c *codec.Coder, t *ProduceTopicResponse) {
	codeTopicRef(c, &t.Name, &t.TopicID, 13)
	codec.ArrayOf(c, &t.PartitionResponses, 72, codeProducePartitionResponse)
	c.Tags()
}

func codeProducePartitionResponse(c *codec.Coder, p *ProducePartitionResponse) {
	v := c.Version()
	if c.Reading() {
		*p = DefaultProducePartitionResponse()
	}
	c.Int32(&p.Index)
	codeCode(c, &p.ErrorCode)
	codeOffset(c, &p.BaseOffset)
	c.Int64(&p.LogAppendTimeMs)
	if v >= 5 {
		codeOffset(c, &p.LogStartOffset)
	}
	if v >= 8 {
		codec.ArrayOf(c, &p.RecordErrors, 16, codeRecordError)
		c.NullableString(&p.ErrorMessage)
	}
	present := codec.TagSet(0).With(0, p.CurrentLeader != nil && v >= 10)
	codec.Tagged(c, p, present, codeProducePartitionResponseTag)
}

func codeProducePartitionResponseTag(c *codec.Coder, p *ProducePartitionResponse, tag uint32) bool {
	if tag != 0 || c.Version() < 10 {
		return false
	}
	codec.Struct(c, &p.CurrentLeader, 8, codeLeaderIDAndEpoch)
	return true
}

func codeRecordError(c *codec.Coder, e *RecordError) {
	c.Int32(&e.BatchIndex)
	c.NullableString(&e.BatchIndexErrorMessage)
	c.Tags()
}

func codeLeaderIDAndEpoch(c *codec.Coder, l *LeaderIDAndEpoch) {
	c.Int32(&l.LeaderID)
	codeEpoch(c, &l.LeaderEpoch)
	c.Tags()
}

func codeNodeEndpoint(c *codec.Coder, n *NodeEndpoint) {
	c.Int32(&n.NodeID)
	c.String(&n.Host)
	c.Int32(&n.Port)
	c.NullableString(&n.Rack)
	c.Tags()
}
