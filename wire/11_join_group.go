package wire

import "github.com/weirmq/weir/wire/codec"

// KeyJoinGroup is the API by which a member joins a classic group.
//
// Version 1 adds the rebalance timeout, 2 the throttle time, 4 makes a new member
// ask again with the id that it was given, 5 adds static members, 6 is flexible, 7
// returns the type of the protocol, 8 adds the reason, 9 lets the leader skip the
// assignment.
const KeyJoinGroup Key = 11

// JoinGroupRequest asks to be a member.
type JoinGroupRequest struct {
	GroupID            string
	SessionTimeoutMs   int32
	RebalanceTimeoutMs int32   // from 1; -1 before, where the session timeout stands for it
	MemberID           string  // empty for a new member
	GroupInstanceID    *string // from 5, nil for a dynamic member
	ProtocolType       string
	Protocols          []JoinGroupProtocol // the best first
	Reason             *string             // from 8
}

// JoinGroupProtocol is one protocol that a member speaks.
type JoinGroupProtocol struct {
	Name     string
	Metadata []byte
}

// JoinGroupResponse answers a JoinGroupRequest.
type JoinGroupResponse struct {
	ThrottleTimeMs int32 // from 2
	GenerationID   int32 // -1 with an error
	ErrorCode      Code
	SkipAssignment bool    // from 9: the leader need not assign
	ProtocolType   *string // from 7
	// ProtocolName is nil when no protocol was chosen. Before 7 nil is written as an
	// empty string, and decodes as one.
	ProtocolName *string
	Leader       string // the leader's member id
	MemberID     string
	Members      []JoinGroupMember // for the leader only
}

// JoinGroupMember is one member, as the leader must know it to assign.
type JoinGroupMember struct {
	MemberID        string
	GroupInstanceID *string // from 5, nil for a dynamic member
	Metadata        []byte
}

// NewJoinGroupRequest holds the schema's defaults.
func NewJoinGroupRequest() *JoinGroupRequest { return &JoinGroupRequest{RebalanceTimeoutMs: -1} }

// NewJoinGroupResponse holds the schema's defaults.
func NewJoinGroupResponse() *JoinGroupResponse { return &JoinGroupResponse{GenerationID: -1} }

// Key is KeyJoinGroup.
func (*JoinGroupRequest) Key() Key { return KeyJoinGroup }

// Key is KeyJoinGroup.
func (*JoinGroupResponse) Key() Key { return KeyJoinGroup }

func (r *JoinGroupRequest) code(c *codec.Coder) {
	v := c.Version()
	c.String(&r.GroupID)
	c.Int32(&r.SessionTimeoutMs)
	if v >= 1 {
		c.Int32(&r.RebalanceTimeoutMs)
	}
	c.String(&r.MemberID)
	if v >= 5 {
		c.NullableString(&r.GroupInstanceID)
	}
	c.String(&r.ProtocolType)
	codec.ArrayOf(c, &r.Protocols, 40, codeJoinGroupProtocol)
	if v >= 8 {
		c.NullableString(&r.Reason)
	}
	c.Tags()
}

func codeJoinGroupProtocol(c *codec.Coder, p *JoinGroupProtocol) {
	c.String(&p.Name)
	c.Bytes32(&p.Metadata)
	c.Tags()
}

func (r *JoinGroupResponse) code(c *codec.Coder) {
	v := c.Version()
	if v >= 2 {
		c.Int32(&r.ThrottleTimeMs)
	}
	codeCode(c, &r.ErrorCode)
	c.Int32(&r.GenerationID)
	if v >= 7 {
		c.NullableString(&r.ProtocolType)
	}
	r.codeProtocolName(c)
	c.String(&r.Leader)
	if v >= 9 {
		c.Bool(&r.SkipAssignment)
	}
	c.String(&r.MemberID)
	codec.ArrayOf(c, &r.Members, 48, codeJoinGroupMember)
	c.Tags()
}

func (r *JoinGroupResponse) codeProtocolName(c *codec.Coder) {
	var none string
	switch {
	case c.Version() >= 7:
		c.NullableString(&r.ProtocolName)
	case !c.Reading() && r.ProtocolName == nil:
		c.String(&none)
	default:
		c.PresentString(&r.ProtocolName)
	}
}

func codeJoinGroupMember(c *codec.Coder, m *JoinGroupMember) {
	c.String(&m.MemberID)
	if c.Version() >= 5 {
		c.NullableString(&m.GroupInstanceID)
	}
	c.Bytes32(&m.Metadata)
	c.Tags()
}
