package wire

import "github.com/weirmq/weir/wire/codec"

// KeyAlterPartitionReassignments is the API that moves partitions to other replicas.
//
// Version 1 adds whether the number of replicas may change.
const KeyAlterPartitionReassignments Key = 45

// AlterPartitionReassignmentsRequest asks for partitions to be moved, or for moves to be cancelled.
type AlterPartitionReassignmentsRequest struct {
	TimeoutMs                    int32
	AllowReplicationFactorChange bool // from 1, true before
	Topics                       []ReassignableTopic
}

// ReassignableTopic is one topic of an AlterPartitionReassignmentsRequest.
type ReassignableTopic struct {
	Name       string
	Partitions []ReassignablePartition
}

// ReassignablePartition says where one partition is to be.
type ReassignablePartition struct {
	PartitionIndex int32
	Replicas       []int32 // the preferred leader first; nil cancels
}

// AlterPartitionReassignmentsResponse answers an AlterPartitionReassignmentsRequest.
type AlterPartitionReassignmentsResponse struct {
	ThrottleTimeMs               int32
	AllowReplicationFactorChange bool // from 1
	ErrorCode                    Code
	ErrorMessage                 *string
	Responses                    []ReassignableTopicResponse
}

// ReassignableTopicResponse is one topic of an AlterPartitionReassignmentsResponse.
type ReassignableTopicResponse struct {
	Name       string
	Partitions []ReassignablePartitionResponse
}

// ReassignablePartitionResponse is one partition of a ReassignableTopicResponse.
type ReassignablePartitionResponse struct {
	PartitionIndex int32
	ErrorCode      Code
	ErrorMessage   *string
}

// NewAlterPartitionReassignmentsRequest holds the schema's defaults.
func NewAlterPartitionReassignmentsRequest() *AlterPartitionReassignmentsRequest {
	return &AlterPartitionReassignmentsRequest{TimeoutMs: 60000, AllowReplicationFactorChange: true}
}

// NewAlterPartitionReassignmentsResponse holds the schema's defaults.
func NewAlterPartitionReassignmentsResponse() *AlterPartitionReassignmentsResponse {
	return &AlterPartitionReassignmentsResponse{AllowReplicationFactorChange: true}
}

// Key is KeyAlterPartitionReassignments.
func (*AlterPartitionReassignmentsRequest) Key() Key { return KeyAlterPartitionReassignments }

// Key is KeyAlterPartitionReassignments.
func (*AlterPartitionReassignmentsResponse) Key() Key { return KeyAlterPartitionReassignments }

func (r *AlterPartitionReassignmentsRequest) code(c *codec.Coder) {
	c.Int32(&r.TimeoutMs)
	if c.Version() >= 1 {
		c.Bool(&r.AllowReplicationFactorChange)
	}
	codec.ArrayOf(c, &r.Topics, 40, codeReassignableTopic)
	c.Tags()
}

func codeReassignableTopic(c *codec.Coder, t *ReassignableTopic) {
	c.String(&t.Name)
	codec.ArrayOf(c, &t.Partitions, 32, codeReassignablePartition)
	c.Tags()
}

func codeReassignablePartition(c *codec.Coder, p *ReassignablePartition) {
	c.Int32(&p.PartitionIndex)
	c.NullableInt32s(&p.Replicas)
	c.Tags()
}

func (r *AlterPartitionReassignmentsResponse) code(c *codec.Coder) {
	c.Int32(&r.ThrottleTimeMs)
	if c.Version() >= 1 {
		c.Bool(&r.AllowReplicationFactorChange)
	}
	codeCode(c, &r.ErrorCode)
	c.NullableString(&r.ErrorMessage)
	codec.ArrayOf(c, &r.Responses, 40, codeReassignableTopicResponse)
	c.Tags()
}

func codeReassignableTopicResponse(c *codec.Coder, t *ReassignableTopicResponse) {
	c.String(&t.Name)
	codec.ArrayOf(c, &t.Partitions, 16, codeReassignablePartitionResponse)
	c.Tags()
}

func codeReassignablePartitionResponse(c *codec.Coder, p *ReassignablePartitionResponse) {
	c.Int32(&p.PartitionIndex)
	codeCode(c, &p.ErrorCode)
	c.NullableString(&p.ErrorMessage)
	c.Tags()
}
