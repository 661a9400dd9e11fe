package wire

import (
	"github.com/weirmq/weir/wire/batch"
	"github.com/weirmq/weir/wire/codec"
)

// KeyOffsetCommit is the API that stores the offsets of a group.
//
// Version 3 adds the throttle time, 5 drops the retention time, 6 adds the leader
// epoch, 7 static members, 8 is flexible, 9 serves groups of the consumer protocol
// too, 10 has topic ids in place of names.
const KeyOffsetCommit Key = 8

// OffsetCommitRequest asks for offsets to be stored.
type OffsetCommitRequest struct {
	GroupID string
	// GenerationIDOrMemberEpoch is the generation of a classic group or, from 9, the
	// epoch of a member of the consumer protocol; -1 from outside of any group.
	GenerationIDOrMemberEpoch int32
	MemberID                  string
	GroupInstanceID           *string // from 7, nil for a dynamic member
	RetentionTimeMs           int64   // before 5, -1 for the broker's own
	Topics                    []OffsetCommitTopic
}

// OffsetCommitTopic is one topic of an OffsetCommitRequest.
type OffsetCommitTopic struct {
	Name       string   // before 10
	TopicID    [16]byte // from 10
	Partitions []OffsetCommitPartition
}

// OffsetCommitPartition is one partition of an OffsetCommitTopic.
type OffsetCommitPartition struct {
	PartitionIndex       int32
	CommittedLeaderEpoch batch.Epoch // from 6, -1 when the client knows none
	CommittedOffset      batch.Offset
	CommittedMetadata    *string
}

// OffsetCommitResponse answers an OffsetCommitRequest.
type OffsetCommitResponse struct {
	ThrottleTimeMs int32 // from 3
	Topics         []OffsetCommitTopicResponse
}

// OffsetCommitTopicResponse is one topic of an OffsetCommitResponse.
type OffsetCommitTopicResponse struct {
	Name       string   // before 10
	TopicID    [16]byte // from 10
	Partitions []OffsetCommitPartitionResponse
}

// OffsetCommitPartitionResponse is one partition of an OffsetCommitTopicResponse.
type OffsetCommitPartitionResponse struct {
	PartitionIndex int32
	ErrorCode      Code
}

// NewOffsetCommitRequest holds the schema's defaults.
func NewOffsetCommitRequest() *OffsetCommitRequest {
	return &OffsetCommitRequest{GenerationIDOrMemberEpoch: -1, RetentionTimeMs: -1}
}

// DefaultOffsetCommitPartition holds the schema's defaults.
func DefaultOffsetCommitPartition() OffsetCommitPartition {
	return OffsetCommitPartition{CommittedLeaderEpoch: -1}
}

// Key is KeyOffsetCommit.
func (*OffsetCommitRequest) Key() Key { return KeyOffsetCommit }

// Key is KeyOffsetCommit.
func (*OffsetCommitResponse) Key() Key { return KeyOffsetCommit }

func (r *OffsetCommitRequest) code(c *codec.Coder) {
	v := c.Version()
	c.String(&r.GroupID)
	c.Int32(&r.GenerationIDOrMemberEpoch)
	c.String(&r.MemberID)
	if v >= 7 {
		c.NullableString(&r.GroupInstanceID)
	}
	if v <= 4 {
		c.Int64(&r.RetentionTimeMs)
	}
	codec.ArrayOf(c, &r.Topics, 56, codeOffsetCommitTopic)
	c.Tags()
}

func codeOffsetCommitTopic(c *codec.Coder, t *OffsetCommitTopic) {
	codeTopicRef(c, &t.Name, &t.TopicID, 10)
	codec.ArrayOf(c, &t.Partitions, 24, codeOffsetCommitPartition)
	c.Tags()
}

func codeOffsetCommitPartition(c *codec.Coder, p *OffsetCommitPartition) {
	if c.Reading() {
		*p = DefaultOffsetCommitPartition()
	}
	c.Int32(&p.PartitionIndex)
	codeOffset(c, &p.CommittedOffset)
	if c.Version() >= 6 {
		codeEpoch(c, &p.CommittedLeaderEpoch)
	}
	c.NullableString(&p.CommittedMetadata)
	c.Tags()
}

func (r *OffsetCommitResponse) code(c *codec.Coder) {
	if c.Version() >= 3 {
		c.Int32(&r.ThrottleTimeMs)
	}
	codec.ArrayOf(c, &r.Topics, 56, codeOffsetCommitTopicResponse)
	c.Tags()
}

func codeOffsetCommitTopicResponse(c *codec.Coder, t *OffsetCommitTopicResponse) {
	codeTopicRef(c, &t.Name, &t.TopicID, 10)
	codec.ArrayOf(c, &t.Partitions, 8, codeOffsetCommitPartitionResponse)
	c.Tags()
}

func codeOffsetCommitPartitionResponse(c *codec.Coder, p *OffsetCommitPartitionResponse) {
	c.Int32(&p.PartitionIndex)
	codeCode(c, &p.ErrorCode)
	c.Tags()
}
