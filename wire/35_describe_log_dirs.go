package wire

import "github.com/weirmq/weir/wire/codec"

// KeyDescribeLogDirs is the API that tells the sizes of logs and of their folders.
//
// Version 2 is flexible, 3 adds the top-level error code, 4 the sizes of the volume,
// 5 whether the folder takes no new logs.
const KeyDescribeLogDirs Key = 35

// DescribeLogDirsRequest asks about the broker's folders.
type DescribeLogDirsRequest struct {
	Topics []DescribableLogDirTopic // nil for all
}

// DescribableLogDirTopic names partitions of one topic.
type DescribableLogDirTopic struct {
	Topic      string
	Partitions []int32
}

// DescribeLogDirsResponse answers a DescribeLogDirsRequest.
type DescribeLogDirsResponse struct {
	ThrottleTimeMs int32
	ErrorCode      Code // from 3
	Results        []DescribeLogDirsResult
}

// DescribeLogDirsResult is one folder of a DescribeLogDirsResponse.
type DescribeLogDirsResult struct {
	ErrorCode   Code
	IsCordoned  bool   // from 5
	LogDir      string // the absolute path
	Topics      []DescribeLogDirsTopic
	TotalBytes  int64 // of the volume, from 4, -1 when unknown
	UsableBytes int64 // of the volume, from 4, -1 when unknown
}

// DescribeLogDirsTopic is one topic of a DescribeLogDirsResult.
type DescribeLogDirsTopic struct {
	Name       string
	Partitions []DescribeLogDirsPartition
}

// DescribeLogDirsPartition is one log of a DescribeLogDirsTopic.
type DescribeLogDirsPartition struct {
	PartitionIndex int32
	IsFutureKey    bool // the log is being moved here from another folder
	PartitionSize  int64
	OffsetLag      int64 // how far the log's end is from the high watermark
}

// DefaultDescribeLogDirsResult holds the schema's defaults.
func DefaultDescribeLogDirsResult() DescribeLogDirsResult {
	return DescribeLogDirsResult{TotalBytes: -1, UsableBytes: -1}
}

// Key is KeyDescribeLogDirs.
func (*DescribeLogDirsRequest) Key() Key { return KeyDescribeLogDirs }

// Key is KeyDescribeLogDirs.
func (*DescribeLogDirsResponse) Key() Key { return KeyDescribeLogDirs }

func (r *DescribeLogDirsRequest) code(c *codec.Coder) {
	codec.NullableArrayOf(c, &r.Topics, 40, codeDescribableLogDirTopic)
	c.Tags()
}

func codeDescribableLogDirTopic(c *codec.Coder, t *DescribableLogDirTopic) {
	c.String(&t.Topic)
	c.Int32s(&t.Partitions)
	c.Tags()
}

func (r *DescribeLogDirsResponse) code(c *codec.Coder) {
	c.Int32(&r.ThrottleTimeMs)
	if c.Version() >= 3 {
		codeCode(c, &r.ErrorCode)
	}
	codec.ArrayOf(c, &r.Results, 64, codeDescribeLogDirsResult)
	c.Tags()
}

func codeDescribeLogDirsResult(c *codec.Coder, d *DescribeLogDirsResult) {
	v := c.Version()
	if c.Reading() {
		*d = DefaultDescribeLogDirsResult()
	}
	codeCode(c, &d.ErrorCode)
	c.String(&d.LogDir)
	codec.ArrayOf(c, &d.Topics, 40, codeDescribeLogDirsTopic)
	if v >= 4 {
		c.Int64(&d.TotalBytes)
		c.Int64(&d.UsableBytes)
	}
	if v >= 5 {
		c.Bool(&d.IsCordoned)
	}
	c.Tags()
}

func codeDescribeLogDirsTopic(c *codec.Coder, t *DescribeLogDirsTopic) {
	c.String(&t.Name)
	codec.ArrayOf(c, &t.Partitions, 24, codeDescribeLogDirsPartition)
	c.Tags()
}

func codeDescribeLogDirsPartition(c *codec.Coder, p *DescribeLogDirsPartition) {
	c.Int32(&p.PartitionIndex)
	c.Int64(&p.PartitionSize)
	c.Int64(&p.OffsetLag)
	c.Bool(&p.IsFutureKey)
	c.Tags()
}
