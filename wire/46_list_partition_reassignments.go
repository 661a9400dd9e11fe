package wire

import "github.com/weirmq/weir/wire/codec"

// KeyListPartitionReassignments is the API that lists the partitions that are on the move.
const KeyListPartitionReassignments Key = 46

// ListPartitionReassignmentsRequest asks which partitions are on the move.
type ListPartitionReassignmentsRequest struct {
	TimeoutMs int32
	Topics    []ListPartitionReassignmentsTopic // nil for all
}

// ListPartitionReassignmentsTopic names partitions of one topic.
type ListPartitionReassignmentsTopic struct {
	Name             string
	PartitionIndexes []int32
}

// ListPartitionReassignmentsResponse answers a ListPartitionReassignmentsRequest.
type ListPartitionReassignmentsResponse struct {
	ThrottleTimeMs int32
	ErrorCode      Code
	ErrorMessage   *string
	Topics         []OngoingTopicReassignment
}

// OngoingTopicReassignment is one topic of a ListPartitionReassignmentsResponse.
type OngoingTopicReassignment struct {
	Name       string
	Partitions []OngoingPartitionReassignment
}

// OngoingPartitionReassignment is one partition that is on the move.
type OngoingPartitionReassignment struct {
	PartitionIndex   int32
	Replicas         []int32 // all there are, with those that come and those that go
	AddingReplicas   []int32
	RemovingReplicas []int32
}

// NewListPartitionReassignmentsRequest holds the schema's defaults.
func NewListPartitionReassignmentsRequest() *ListPartitionReassignmentsRequest {
	return &ListPartitionReassignmentsRequest{TimeoutMs: 60000}
}

// Key is KeyListPartitionReassignments.
func (*ListPartitionReassignmentsRequest) Key() Key { return KeyListPartitionReassignments }

// Key is KeyListPartitionReassignments.
func (*ListPartitionReassignmentsResponse) Key() Key { return KeyListPartitionReassignments }

func (r *ListPartitionReassignmentsRequest) code(c *codec.Coder) {
	c.Int32(&r.TimeoutMs)
	codec.NullableArrayOf(c, &r.Topics, 40, codeListPartitionReassignmentsTopic)
	c.Tags()
}

func codeListPartitionReassignmentsTopic(c *codec.Coder, t *ListPartitionReassignmentsTopic) {
	c.String(&t.Name)
	c.Int32s(&t.PartitionIndexes)
	c.Tags()
}

func (r *ListPartitionReassignmentsResponse) code(c *codec.Coder) {
	c.Int32(&r.ThrottleTimeMs)
	codeCode(c, &r.ErrorCode)
	c.NullableString(&r.ErrorMessage)
	codec.ArrayOf(c, &r.Topics, 40, codeOngoingTopicReassignment)
	c.Tags()
}

func codeOngoingTopicReassignment(c *codec.Coder, t *OngoingTopicReassignment) {
	c.String(&t.Name)
	codec.ArrayOf(c, &t.Partitions, 80, codeOngoingPartitionReassignment)
	c.Tags()
}

func codeOngoingPartitionReassignment(c *codec.Coder, p *OngoingPartitionReassignment) {
	c.Int32(&p.PartitionIndex)
	c.Int32s(&p.Replicas)
	c.Int32s(&p.AddingReplicas)
	c.Int32s(&p.RemovingReplicas)
	c.Tags()
}
