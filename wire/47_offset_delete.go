package wire

import "github.com/weirmq/weir/wire/codec"

// KeyOffsetDelete is the API that deletes single offsets of a group. Its only
// version is not flexible.
const KeyOffsetDelete Key = 47

// OffsetDeleteRequest asks for offsets to be deleted.
type OffsetDeleteRequest struct {
	GroupID string
	Topics  []OffsetDeleteTopic
}

// OffsetDeleteTopic is one topic of an OffsetDeleteRequest.
type OffsetDeleteTopic struct {
	Name       string
	Partitions []OffsetDeletePartition
}

// OffsetDeletePartition names one partition.
type OffsetDeletePartition struct {
	PartitionIndex int32
}

// OffsetDeleteResponse answers an OffsetDeleteRequest.
type OffsetDeleteResponse struct {
	ErrorCode      Code
	ThrottleTimeMs int32
	Topics         []OffsetDeleteTopicResponse
}

// OffsetDeleteTopicResponse is one topic of an OffsetDeleteResponse.
type OffsetDeleteTopicResponse struct {
	Name       string
	Partitions []OffsetDeletePartitionResponse
}

// OffsetDeletePartitionResponse is one partition of an OffsetDeleteTopicResponse.
type OffsetDeletePartitionResponse struct {
	PartitionIndex int32
	ErrorCode      Code
}

// Key is KeyOffsetDelete.
func (*OffsetDeleteRequest) Key() Key { return KeyOffsetDelete }

// Key is KeyOffsetDelete.
func (*OffsetDeleteResponse) Key() Key { return KeyOffsetDelete }

func (r *OffsetDeleteRequest) code(c *codec.Coder) {
	c.String(&r.GroupID)
	codec.ArrayOf(c, &r.Topics, 40, codeOffsetDeleteTopic)
	c.Tags()
}

func codeOffsetDeleteTopic(c *codec.Coder, t *OffsetDeleteTopic) {
	c.String(&t.Name)
	codec.ArrayOf(c, &t.Partitions, 4, codeOffsetDeletePartition)
	c.Tags()
}

func codeOffsetDeletePartition(c *codec.Coder, p *OffsetDeletePartition) {
	c.Int32(&p.PartitionIndex)
	c.Tags()
}

func (r *OffsetDeleteResponse) code(c *codec.Coder) {
	codeCode(c, &r.ErrorCode)
	c.Int32(&r.ThrottleTimeMs)
	codec.ArrayOf(c, &r.Topics, 40, codeOffsetDeleteTopicResponse)
	c.Tags()
}

func codeOffsetDeleteTopicResponse(c *codec.Coder, t *OffsetDeleteTopicResponse) {
	c.String(&t.Name)
	codec.ArrayOf(c, &t.Partitions, 8, codeOffsetDeletePartitionResponse)
	c.Tags()
}

func codeOffsetDeletePartitionResponse(c *codec.Coder, p *OffsetDeletePartitionResponse) {
	c.Int32(&p.PartitionIndex)
	codeCode(c, &p.ErrorCode)
	c.Tags()
}
