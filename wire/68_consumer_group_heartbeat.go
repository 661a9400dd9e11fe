package wire

import "github.com/weirmq/weir/wire/codec"

// KeyConsumerGroupHeartbeat is the one API of members of the consumer protocol
// (KIP-848): by it they join, learn their assignment, and leave.
//
// All versions are flexible. Version 1 adds the regular expression, and has
// clients make their member ids themselves.
const KeyConsumerGroupHeartbeat Key = 68

// The member epochs of a ConsumerGroupHeartbeatRequest that are none.
const (
	MemberEpochJoin        int32 = 0
	MemberEpochLeave       int32 = -1
	MemberEpochLeaveStatic int32 = -2 // a static member that will be back
)

// ConsumerGroupHeartbeatRequest comes from a member. Fields that did not change
// since its last heartbeat may be nil, or -1.
type ConsumerGroupHeartbeatRequest struct {
	GroupID              string
	MemberID             string
	MemberEpoch          int32
	RebalanceTimeoutMs   int32
	InstanceID           *string
	RackID               *string
	SubscribedTopicNames []string
	SubscribedTopicRegex *string // from 1
	ServerAssignor       *string
	TopicPartitions      []ConsumerGroupHeartbeatTopicPartitions // what the member owns
}

// ConsumerGroupHeartbeatTopicPartitions names partitions of one topic.
type ConsumerGroupHeartbeatTopicPartitions struct {
	TopicID    [16]byte
	Partitions []int32
}

// ConsumerGroupHeartbeatResponse answers a ConsumerGroupHeartbeatRequest.
type ConsumerGroupHeartbeatResponse struct {
	ThrottleTimeMs      int32
	ErrorCode           Code
	ErrorMessage        *string
	MemberID            *string
	MemberEpoch         int32
	HeartbeatIntervalMs int32
	Assignment          *ConsumerGroupHeartbeatAssignment // nil when it did not change
}

// ConsumerGroupHeartbeatAssignment is what a member may use now.
type ConsumerGroupHeartbeatAssignment struct {
	TopicPartitions []ConsumerGroupHeartbeatTopicPartitions
}

// NewConsumerGroupHeartbeatRequest holds the schema's defaults.
func NewConsumerGroupHeartbeatRequest() *ConsumerGroupHeartbeatRequest {
	return &ConsumerGroupHeartbeatRequest{RebalanceTimeoutMs: -1}
}

// Key is KeyConsumerGroupHeartbeat.
func (*ConsumerGroupHeartbeatRequest) Key() Key { return KeyConsumerGroupHeartbeat }

// Key is KeyConsumerGroupHeartbeat.
func (*ConsumerGroupHeartbeatResponse) Key() Key { return KeyConsumerGroupHeartbeat }

func (r *ConsumerGroupHeartbeatRequest) code(c *codec.Coder) {
	c.String(&r.GroupID)
	c.String(&r.MemberID)
	c.Int32(&r.MemberEpoch)
	c.NullableString(&r.InstanceID)
	c.NullableString(&r.RackID)
	c.Int32(&r.RebalanceTimeoutMs)
	codeNullableStrings(c, &r.SubscribedTopicNames)
	if c.Version() >= 1 {
		c.NullableString(&r.SubscribedTopicRegex)
	}
	c.NullableString(&r.ServerAssignor)
	codec.NullableArrayOf(c, &r.TopicPartitions, 40, codeConsumerGroupHeartbeatTopicPartitions)
	c.Tags()
}

func codeConsumerGroupHeartbeatTopicPartitions(c *codec.Coder, t *ConsumerGroupHeartbeatTopicPartitions) {
	c.UUID(&t.TopicID)
	c.Int32s(&t.Partitions)
	c.Tags()
}

func (r *ConsumerGroupHeartbeatResponse) code(c *codec.Coder) {
	c.Int32(&r.ThrottleTimeMs)
	codeCode(c, &r.ErrorCode)
	c.NullableString(&r.ErrorMessage)
	c.NullableString(&r.MemberID)
	c.Int32(&r.MemberEpoch)
	c.Int32(&r.HeartbeatIntervalMs)
	codec.NullableStruct(c, &r.Assignment, 24, codeConsumerGroupHeartbeatAssignment)
	c.Tags()
}

func codeConsumerGroupHeartbeatAssignment(c *codec.Coder, a *ConsumerGroupHeartbeatAssignment) {
	codec.ArrayOf(c, &a.TopicPartitions, 40, codeConsumerGroupHeartbeatTopicPartitions)
	c.Tags()
}
