package wire

import (
	"github.com/weirmq/weir/wire/batch"
	"github.com/weirmq/weir/wire/codec"
)

// KeyDeleteRecords is the API that moves the start of logs.
//
// Version 1 is as 0, 2 is flexible.
const KeyDeleteRecords Key = 21

// DeleteRecordsRequest asks for the records before given offsets to be deleted.
type DeleteRecordsRequest struct {
	Topics    []DeleteRecordsTopic
	TimeoutMs int32
}

// DeleteRecordsTopic is one topic of a DeleteRecordsRequest.
type DeleteRecordsTopic struct {
	Name       string
	Partitions []DeleteRecordsPartition
}

// DeleteRecordsPartition is one partition of a DeleteRecordsTopic.
type DeleteRecordsPartition struct {
	PartitionIndex int32
	Offset         batch.Offset // the new start, -1 for the high watermark
}

// DeleteRecordsResponse answers a DeleteRecordsRequest.
type DeleteRecordsResponse struct {
	ThrottleTimeMs int32
	Topics         []DeleteRecordsTopicResult
}

// DeleteRecordsTopicResult is one topic of a DeleteRecordsResponse.
type DeleteRecordsTopicResult struct {
	Name       string
	Partitions []DeleteRecordsPartitionResult
}

// DeleteRecordsPartitionResult is one partition of a DeleteRecordsTopicResult.
type DeleteRecordsPartitionResult struct {
	PartitionIndex int32
	ErrorCode      Code
	LowWatermark   batch.Offset // the least start of all live replicas, -1 with an error
}

// Key is KeyDeleteRecords.
func (*DeleteRecordsRequest) Key() Key { return KeyDeleteRecords }

// Key is KeyDeleteRecords.
func (*DeleteRecordsResponse) Key() Key { return KeyDeleteRecords }

func (r *DeleteRecordsRequest) code(c *codec.Coder) {
	codec.ArrayOf(c, &r.Topics, 40, codeDeleteRecordsTopic)
	c.Int32(&r.TimeoutMs)
	c.Tags()
}

func codeDeleteRecordsTopic(c *codec.Coder, t *DeleteRecordsTopic) {
	c.String(&t.Name)
	codec.ArrayOf(c, &t.Partitions, 16, codeDeleteRecordsPartition)
	c.Tags()
}

func codeDeleteRecordsPartition(c *codec.Coder, p *DeleteRecordsPartition) {
	c.Int32(&p.PartitionIndex)
	codeOffset(c, &p.Offset)
	c.Tags()
}

func (r *DeleteRecordsResponse) code(c *codec.Coder) {
	c.Int32(&r.ThrottleTimeMs)
	codec.ArrayOf(c, &r.Topics, 40, codeDeleteRecordsTopicResult)
	c.Tags()
}

func codeDeleteRecordsTopicResult(c *codec.Coder, t *DeleteRecordsTopicResult) {
	c.String(&t.Name)
	codec.ArrayOf(c, &t.Partitions, 16, codeDeleteRecordsPartitionResult)
	c.Tags()
}

func codeDeleteRecordsPartitionResult(c *codec.Coder, p *DeleteRecordsPartitionResult) {
	c.Int32(&p.PartitionIndex)
	codeOffset(c, &p.LowWatermark)
	codeCode(c, &p.ErrorCode)
	c.Tags()
}
