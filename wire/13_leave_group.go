package wire

import "github.com/weirmq/weir/wire/codec"

// KeyLeaveGroup is the API by which members leave a classic group.
//
// Version 1 adds the throttle time, 3 takes many members and static ones, 4 is
// flexible, 5 adds the reason.
const KeyLeaveGroup Key = 13

// LeaveGroupRequest asks for members to be removed.
type LeaveGroupRequest struct {
	GroupID  string
	MemberID string           // before 3
	Members  []MemberIdentity // from 3
}

// MemberIdentity names one member that leaves.
type MemberIdentity struct {
	MemberID        string  // empty when named by the instance id alone
	GroupInstanceID *string // nil for a dynamic member
	Reason          *string // from 5
}

// LeaveGroupResponse answers a LeaveGroupRequest.
type LeaveGroupResponse struct {
	ThrottleTimeMs int32 // from 1
	ErrorCode      Code
	Members        []MemberResponse // from 3
}

// MemberResponse is one member of a LeaveGroupResponse.
type MemberResponse struct {
	MemberID        string
	GroupInstanceID *string
	ErrorCode       Code
}

// Key is KeyLeaveGroup.
func (*LeaveGroupRequest) Key() Key { return KeyLeaveGroup }

// Key is KeyLeaveGroup.
func (*LeaveGroupResponse) Key() Key { return KeyLeaveGroup }

func (r *LeaveGroupRequest) code(c *codec.Coder) {
	c.String(&r.GroupID)
	if c.Version() >= 3 {
		codec.ArrayOf(c, &r.Members, 32, codeMemberIdentity)
	} else {
		c.String(&r.MemberID)
	}
	c.Tags()
}

func codeMemberIdentity(c *codec.Coder, m *MemberIdentity) {
	c.String(&m.MemberID)
	c.NullableString(&m.GroupInstanceID)
	if c.Version() >= 5 {
		c.NullableString(&m.Reason)
	}
	c.Tags()
}

func (r *LeaveGroupResponse) code(c *codec.Coder) {
	v := c.Version()
	if v >= 1 {
		c.Int32(&r.ThrottleTimeMs)
	}
	codeCode(c, &r.ErrorCode)
	if v >= 3 {
		codec.ArrayOf(c, &r.Members, 32, codeMemberResponse)
	}
	c.Tags()
}

func codeMemberResponse(c *codec.Coder, m *MemberResponse) {
	c.String(&m.MemberID)
	c.NullableString(&m.GroupInstanceID)
	codeCode(c, &m.ErrorCode)
	c.Tags()
}
