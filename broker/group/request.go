package group

import (
	"time"

	"github.com/weirmq/weir/fsm"
)

// Ticket names one request to the caller, who answers it when a Reply carries it.
// Each ticket is answered exactly once.
type Ticket uint64

// Reply answers one request.
type Reply struct {
	Ticket Ticket
	Answer Answer // a JoinReply, SyncReply, …: the one that belongs to the request
}

// Answer is one of JoinReply, SyncReply, HeartbeatReply, LeaveReply, ConsumerReply
// and DeleteReply.
type Answer interface{ code() Code }

// JoinRequest asks to be a member of a classic group. The group keeps the slices:
// they must not alias a buffer that is used again.
type JoinRequest struct {
	MemberID   string // empty for a new member
	InstanceID string // empty for a dynamic member
	NewID      string // the id that a new member gets: unique for ever, made by the caller
	ClientID   string
	ClientHost string

	SessionTimeout   time.Duration
	RebalanceTimeout time.Duration // the session timeout where the request's version has none

	ProtocolType string
	Protocols    []fsm.GroupProtocol // the best first
	Reason       string              // the client's own, for the record only

	// KnownIDRequired: a new dynamic member must ask again with the id it is given (from version 4).
	KnownIDRequired bool
	// MaySkipAssignment: the client understands the flag SkipAssignment (from version 9).
	MaySkipAssignment bool
}

// JoinReply answers a JoinRequest. Generation is -1 when Code is not None.
type JoinReply struct {
	Code           Code
	Generation     int32
	ProtocolType   string
	Protocol       string
	Leader         string
	MemberID       string
	SkipAssignment bool         // the leader need not assign: the assignments stand
	Members        []JoinMember // for the leader alone, ascending by id
}

// JoinMember is a member as the leader must know it to assign.
type JoinMember struct {
	ID         string
	InstanceID string
	Metadata   []byte
}

// SyncRequest asks for a member's assignment in a classic group; the leader's
// hands out all of them.
type SyncRequest struct {
	MemberID     string
	InstanceID   string
	Generation   int32
	ProtocolType string // empty when the request does not say
	Protocol     string // empty when the request does not say
	Assignments  []MemberAssignment
}

// MemberAssignment is what the leader assigns to one member.
type MemberAssignment struct {
	MemberID   string
	Assignment []byte
}

// SyncReply answers a SyncRequest.
type SyncReply struct {
	Code         Code
	ProtocolType string
	Protocol     string
	Assignment   []byte
}

// HeartbeatRequest shows that a member of a classic group lives.
type HeartbeatRequest struct {
	MemberID   string
	InstanceID string
	Generation int32
}

// HeartbeatReply answers a HeartbeatRequest.
type HeartbeatReply struct{ Code Code }

// LeaveRequest removes members.
type LeaveRequest struct{ Members []LeaveMember }

// LeaveMember names one member that leaves: by its id, or by its instance id alone.
type LeaveMember struct {
	MemberID   string
	InstanceID string
	Reason     string
}

// LeaveReply answers a LeaveRequest.
type LeaveReply struct {
	Code    Code // of the request as a whole
	Members []LeftMember
}

// LeftMember is the outcome for one member of a LeaveRequest, in its order.
type LeftMember struct {
	MemberID   string
	InstanceID string
	Code       Code
}

// The member epochs of a ConsumerRequest that are none.
const (
	EpochJoin        int32 = 0
	EpochLeave       int32 = -1
	EpochLeaveStatic int32 = -2 // a static member that will be back
)

// ConsumerRequest is the one request of members of the consumer protocol. A nil
// pointer or slice means "as before"; an empty slice means none.
type ConsumerRequest struct {
	MemberID   string
	InstanceID string
	NewID      string // the id for a member that joins without one: unique for ever, made by the caller
	ClientID   string
	ClientHost string

	Epoch            int32
	RebalanceTimeout time.Duration // negative: as before
	Rack             *string
	Topics           []string
	Regex            *string
	Assignor         *string
	Owned            []fsm.TopicPartitions // what the client has now
}

// ConsumerReply answers a ConsumerRequest.
type ConsumerReply struct {
	Code              Code
	Message           string // what was wrong, with a Code
	MemberID          string
	Epoch             int32
	HeartbeatInterval time.Duration
	HasAssignment     bool // false: the assignment is as the client knows it
	Assignment        []fsm.TopicPartitions
}

// DeleteReply answers Delete.
type DeleteReply struct{ Code Code }

func (r JoinReply) code() Code      { return r.Code }
func (r SyncReply) code() Code      { return r.Code }
func (r HeartbeatReply) code() Code { return r.Code }
func (r LeaveReply) code() Code     { return r.Code }
func (r ConsumerReply) code() Code  { return r.Code }
func (r DeleteReply) code() Code    { return r.Code }

// Topics is what a consumer group must know about the cluster's topics.
type Topics interface {
	// Version changes when a topic is made, deleted, or gets partitions. Versions
	// are compared for equality alone, within the life of one Group.
	Version() uint64
	// Topic finds a topic by name.
	Topic(name string) (Topic, bool)
	// TopicByID finds a topic by its id.
	TopicByID(id fsm.TopicID) (Topic, bool)
	// All yields the topics that the group may subscribe to by a regular expression.
	All(yield func(Topic) bool)
}

// Topic is one topic as an assignor sees it.
type Topic struct {
	ID         fsm.TopicID
	Name       string
	Partitions int32
}
