package wire

import "github.com/weirmq/weir/wire/codec"

// KeyConsumerGroupDescribe is the API that describes groups of the consumer
// protocol (KIP-848).
//
// All versions are flexible. Version 1 adds the type of each member.
const KeyConsumerGroupDescribe Key = 69

// The types of a member of a consumer group.
const (
	MemberTypeUnknown  int8 = -1
	MemberTypeClassic  int8 = 0
	MemberTypeConsumer int8 = 1
)

// ConsumerGroupDescribeRequest asks about groups.
type ConsumerGroupDescribeRequest struct {
	GroupIDs                    []string
	IncludeAuthorizedOperations bool
	IncludeHistory              bool // in a tag of our own
}

// ConsumerGroupDescribeResponse answers a ConsumerGroupDescribeRequest.
type ConsumerGroupDescribeResponse struct {
	ThrottleTimeMs int32
	Groups         []ConsumerGroupDescribedGroup
}

// ConsumerGroupDescribedGroup is one group of a ConsumerGroupDescribeResponse.
type ConsumerGroupDescribedGroup struct {
	ErrorCode            Code
	GroupEpoch           int32
	AssignmentEpoch      int32
	AuthorizedOperations int32 // the least int32 when not asked for
	ErrorMessage         *string
	GroupID              string
	GroupState           string // "Empty", "Assigning", "Reconciling", "Stable" or "Dead"
	AssignorName         string
	Members              []ConsumerGroupMember
	History              []byte // in a tag of our own: JSON, when asked for
}

// ConsumerGroupMember is one member of a ConsumerGroupDescribedGroup.
type ConsumerGroupMember struct {
	MemberID             string
	InstanceID           *string // nil for a dynamic member
	RackID               *string
	MemberEpoch          int32
	MemberType           int8 // from 1, MemberTypeUnknown before
	ClientID             string
	ClientHost           string
	SubscribedTopicNames []string
	SubscribedTopicRegex *string
	Assignment           ConsumerGroupAssignment
	TargetAssignment     ConsumerGroupAssignment
}

// ConsumerGroupAssignment is what a member has or shall have.
type ConsumerGroupAssignment struct {
	TopicPartitions []ConsumerGroupTopicPartitions
}

// ConsumerGroupTopicPartitions names partitions of one topic.
type ConsumerGroupTopicPartitions struct {
	TopicID    [16]byte
	TopicName  string
	Partitions []int32
}

// DefaultConsumerGroupDescribedGroup holds the schema's defaults.
func DefaultConsumerGroupDescribedGroup() ConsumerGroupDescribedGroup {
	return ConsumerGroupDescribedGroup{AuthorizedOperations: noOperations}
}

// DefaultConsumerGroupMember holds the schema's defaults.
func DefaultConsumerGroupMember() ConsumerGroupMember {
	return ConsumerGroupMember{MemberType: MemberTypeUnknown}
}

// Key is KeyConsumerGroupDescribe.
func (*ConsumerGroupDescribeRequest) Key() Key { return KeyConsumerGroupDescribe }

// Key is KeyConsumerGroupDescribe.
func (*ConsumerGroupDescribeResponse) Key() Key { return KeyConsumerGroupDescribe }

func (r *ConsumerGroupDescribeRequest) code(c *codec.Coder) {
	c.Strings(&r.GroupIDs)
	c.Bool(&r.IncludeAuthorizedOperations)
	codec.Tagged(c, r, codec.TagSet(0).With(tagHistory, r.IncludeHistory), codeConsumerGroupDescribeRequestTag)
}

func codeConsumerGroupDescribeRequestTag(c *codec.Coder, r *ConsumerGroupDescribeRequest, tag uint32) bool {
	if tag != tagHistory {
		return false
	}
	c.Bool(&r.IncludeHistory)
	return true
}

func (r *ConsumerGroupDescribeResponse) code(c *codec.Coder) {
	c.Int32(&r.ThrottleTimeMs)
	codec.ArrayOf(c, &r.Groups, 120, codeConsumerGroupDescribedGroup)
	c.Tags()
}

func codeConsumerGroupDescribedGroup(c *codec.Coder, g *ConsumerGroupDescribedGroup) {
	codeCode(c, &g.ErrorCode)
	c.NullableString(&g.ErrorMessage)
	c.String(&g.GroupID)
	c.String(&g.GroupState)
	c.Int32(&g.GroupEpoch)
	c.Int32(&g.AssignmentEpoch)
	c.String(&g.AssignorName)
	codec.ArrayOf(c, &g.Members, 152, codeConsumerGroupMember)
	c.Int32(&g.AuthorizedOperations)
	codec.Tagged(c, g, codec.TagSet(0).With(tagHistory, g.History != nil), codeConsumerGroupDescribedGroupTag)
}

func codeConsumerGroupDescribedGroupTag(c *codec.Coder, g *ConsumerGroupDescribedGroup, tag uint32) bool {
	if tag != tagHistory {
		return false
	}
	c.Bytes32(&g.History)
	return true
}

func codeConsumerGroupMember(c *codec.Coder, m *ConsumerGroupMember) {
	if c.Reading() {
		*m = DefaultConsumerGroupMember()
	}
	c.String(&m.MemberID)
	c.NullableString(&m.InstanceID)
	c.NullableString(&m.RackID)
	c.Int32(&m.MemberEpoch)
	c.String(&m.ClientID)
	c.String(&m.ClientHost)
	c.Strings(&m.SubscribedTopicNames)
	c.NullableString(&m.SubscribedTopicRegex)
	codeConsumerGroupAssignment(c, &m.Assignment)
	codeConsumerGroupAssignment(c, &m.TargetAssignment)
	if c.Version() >= 1 {
		c.Int8(&m.MemberType)
	}
	c.Tags()
}

func codeConsumerGroupAssignment(c *codec.Coder, a *ConsumerGroupAssignment) {
	codec.ArrayOf(c, &a.TopicPartitions, 56, codeConsumerGroupTopicPartitions)
	c.Tags()
}

func codeConsumerGroupTopicPartitions(c *codec.Coder, t *ConsumerGroupTopicPartitions) {
	c.UUID(&t.TopicID)
	c.String(&t.TopicName)
	c.Int32s(&t.Partitions)
	c.Tags()
}
