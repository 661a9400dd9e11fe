package wire

import (
	"github.com/weirmq/weir/wire/batch"
	"github.com/weirmq/weir/wire/codec"
)

// KeyOffsetFetch is the API that reads the offsets that groups have stored.
//
// Version 2 asks for all topics with null and adds the group's error code, 3 the
// throttle time, 5 the leader epoch, 6 is flexible, 7 lets a client ask for stable
// offsets only, 8 asks for many groups at once, 9 serves members of the consumer
// protocol, 10 has topic ids in place of names.
const KeyOffsetFetch Key = 9

// OffsetFetchRequest asks for the offsets of one group or, from 8, of many.
type OffsetFetchRequest struct {
	GroupID       string                    // before 8
	Topics        []OffsetFetchRequestTopic // before 8; nil, from 2, for all
	Groups        []OffsetFetchRequestGroup // from 8
	RequireStable bool                      // from 7
}

// OffsetFetchRequestGroup is one group of an OffsetFetchRequest.
type OffsetFetchRequestGroup struct {
	GroupID     string
	MemberID    *string                   // from 9, nil when not asked as a member
	MemberEpoch int32                     // from 9, -1 when not asked as a member
	Topics      []OffsetFetchRequestTopic // nil for all
}

// OffsetFetchRequestTopic is one topic, of the request before 8 or of a group.
type OffsetFetchRequestTopic struct {
	Name             string   // before 10
	TopicID          [16]byte // from 10
	PartitionIndexes []int32
}

// OffsetFetchResponse answers an OffsetFetchRequest.
type OffsetFetchResponse struct {
	ThrottleTimeMs int32                      // from 3
	ErrorCode      Code                       // 2 to 7
	Topics         []OffsetFetchResponseTopic // before 8
	Groups         []OffsetFetchResponseGroup // from 8
}

// OffsetFetchResponseGroup is one group of an OffsetFetchResponse.
type OffsetFetchResponseGroup struct {
	GroupID   string
	Topics    []OffsetFetchResponseTopic
	ErrorCode Code
}

// OffsetFetchResponseTopic is one topic, of the response before 8 or of a group.
type OffsetFetchResponseTopic struct {
	Name       string   // before 10
	TopicID    [16]byte // from 10
	Partitions []OffsetFetchResponsePartition
}

// OffsetFetchResponsePartition is one partition of an OffsetFetchResponseTopic.
type OffsetFetchResponsePartition struct {
	PartitionIndex       int32
	CommittedLeaderEpoch batch.Epoch  // from 5, -1 when unknown
	CommittedOffset      batch.Offset // -1 when none is stored
	Metadata             *string
	ErrorCode            Code
}

// DefaultOffsetFetchRequestGroup holds the schema's defaults.
func DefaultOffsetFetchRequestGroup() OffsetFetchRequestGroup {
	return OffsetFetchRequestGroup{MemberEpoch: -1}
}

// DefaultOffsetFetchResponsePartition holds the schema's defaults.
func DefaultOffsetFetchResponsePartition() OffsetFetchResponsePartition {
	return OffsetFetchResponsePartition{CommittedLeaderEpoch: -1}
}

// Key is KeyOffsetFetch.
func (*OffsetFetchRequest) Key() Key { return KeyOffsetFetch }

// Key is KeyOffsetFetch.
func (*OffsetFetchResponse) Key() Key { return KeyOffsetFetch }

func (r *OffsetFetchRequest) code(c *codec.Coder) {
	v := c.Version()
	switch {
	case v >= 8:
		codec.ArrayOf(c, &r.Groups, 56, codeOffsetFetchRequestGroup)
	case v >= 2:
		c.String(&r.GroupID)
		codec.NullableArrayOf(c, &r.Topics, 56, codeOffsetFetchRequestTopic)
	default:
		c.String(&r.GroupID)
		codec.ArrayOf(c, &r.Topics, 56, codeOffsetFetchRequestTopic)
	}
	if v >= 7 {
		c.Bool(&r.RequireStable)
	}
	c.Tags()
}

func codeOffsetFetchRequestGroup(c *codec.Coder, g *OffsetFetchRequestGroup) {
	if c.Reading() {
		*g = DefaultOffsetFetchRequestGroup()
	}
	c.String(&g.GroupID)
	if c.Version() >= 9 {
		c.NullableString(&g.MemberID)
		c.Int32(&g.MemberEpoch)
	}
	codec.NullableArrayOf(c, &g.Topics, 56, codeOffsetFetchRequestTopic)
	c.Tags()
}

func codeOffsetFetchRequestTopic(c *codec.Coder, t *OffsetFetchRequestTopic) {
	codeTopicRef(c, &t.Name, &t.TopicID, 10)
	c.Int32s(&t.PartitionIndexes)
	c.Tags()
}

func (r *OffsetFetchResponse) code(c *codec.Coder) {
	v := c.Version()
	if v >= 3 {
		c.Int32(&r.ThrottleTimeMs)
	}
	if v >= 8 {
		codec.ArrayOf(c, &r.Groups, 48, codeOffsetFetchResponseGroup)
	} else {
		codec.ArrayOf(c, &r.Topics, 56, codeOffsetFetchResponseTopic)
	}
	if v >= 2 && v <= 7 {
		codeCode(c, &r.ErrorCode)
	}
	c.Tags()
}

func codeOffsetFetchResponseGroup(c *codec.Coder, g *OffsetFetchResponseGroup) {
	c.String(&g.GroupID)
	codec.ArrayOf(c, &g.Topics, 56, codeOffsetFetchResponseTopic)
	codeCode(c, &g.ErrorCode)
	c.Tags()
}

func codeOffsetFetchResponseTopic(c *codec.Coder, t *OffsetFetchResponseTopic) {
	codeTopicRef(c, &t.Name, &t.TopicID, 10)
	codec.ArrayOf(c, &t.Partitions, 32, codeOffsetFetchResponsePartition)
	c.Tags()
}

func codeOffsetFetchResponsePartition(c *codec.Coder, p *OffsetFetchResponsePartition) {
	if c.Reading() {
		*p = DefaultOffsetFetchResponsePartition()
	}
	c.Int32(&p.PartitionIndex)
	codeOffset(c, &p.CommittedOffset)
	if c.Version() >= 5 {
		codeEpoch(c, &p.CommittedLeaderEpoch)
	}
	c.NullableString(&p.Metadata)
	codeCode(c, &p.ErrorCode)
	c.Tags()
}
