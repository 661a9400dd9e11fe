package wire

import "github.com/weirmq/weir/wire/codec"

// KeyCreatePartitions is the API that adds partitions to topics.
//
// Version 1 is as 0, 2 is flexible, 3 may answer THROTTLING_QUOTA_EXCEEDED.
const KeyCreatePartitions Key = 37

// CreatePartitionsRequest asks for partitions to be added.
type CreatePartitionsRequest struct {
	Topics       []CreatePartitionsTopic
	TimeoutMs    int32
	ValidateOnly bool
}

// CreatePartitionsTopic is one topic of a CreatePartitionsRequest.
type CreatePartitionsTopic struct {
	Name        string
	Count       int32                        // how many there shall be, old ones included
	Assignments []CreatePartitionsAssignment // of the new ones, nil for the broker's choice
}

// CreatePartitionsAssignment places one new partition.
type CreatePartitionsAssignment struct {
	BrokerIDs []int32
}

// CreatePartitionsResponse answers a CreatePartitionsRequest.
type CreatePartitionsResponse struct {
	ThrottleTimeMs int32
	Results        []CreatePartitionsTopicResult
}

// CreatePartitionsTopicResult is one topic of a CreatePartitionsResponse.
type CreatePartitionsTopicResult struct {
	Name         string
	ErrorMessage *string
	ErrorCode    Code
}

// Key is KeyCreatePartitions.
func (*CreatePartitionsRequest) Key() Key { return KeyCreatePartitions }

// Key is KeyCreatePartitions.
func (*CreatePartitionsResponse) Key() Key { return KeyCreatePartitions }

func (r *CreatePartitionsRequest) code(c *codec.Coder) {
	codec.ArrayOf(c, &r.Topics, 48, codeCreatePartitionsTopic)
	c.Int32(&r.TimeoutMs)
	c.Bool(&r.ValidateOnly)
	c.Tags()
}

func codeCreatePartitionsTopic(c *codec.Coder, t *CreatePartitionsTopic) {
	c.String(&t.Name)
	c.Int32(&t.Count)
	codec.NullableArrayOf(c, &t.Assignments, 24, codeCreatePartitionsAssignment)
	c.Tags()
}

func codeCreatePartitionsAssignment(c *codec.Coder, a *CreatePartitionsAssignment) {
	c.Int32s(&a.BrokerIDs)
	c.Tags()
}

func (r *CreatePartitionsResponse) code(c *codec.Coder) {
	c.Int32(&r.ThrottleTimeMs)
	codec.ArrayOf(c, &r.Results, 32, codeCreatePartitionsTopicResult)
	c.Tags()
}

func codeCreatePartitionsTopicResult(c *codec.Coder, t *CreatePartitionsTopicResult) {
	c.String(&t.Name)
	codeCode(c, &t.ErrorCode)
	c.NullableString(&t.ErrorMessage)
	c.Tags()
}
