package wire

import "github.com/weirmq/weir/wire/codec"

// KeySyncGroup is the API by which the leader of a classic group hands out the
// assignments, and each member gets its own.
//
// Version 1 adds the throttle time, 3 static members, 4 is flexible, 5 names the
// protocol in both directions.
const KeySyncGroup Key = 14

// SyncGroupRequest asks for the member's assignment.
type SyncGroupRequest struct {
	GroupID         string
	GenerationID    int32
	MemberID        string
	GroupInstanceID *string               // from 3, nil for a dynamic member
	ProtocolType    *string               // from 5
	ProtocolName    *string               // from 5
	Assignments     []SyncGroupAssignment // from the leader only
}

// SyncGroupAssignment is what the leader assigns to one member.
type SyncGroupAssignment struct {
	MemberID   string
	Assignment []byte
}

// SyncGroupResponse answers a SyncGroupRequest.
type SyncGroupResponse struct {
	ThrottleTimeMs int32 // from 1
	ErrorCode      Code
	ProtocolType   *string // from 5
	ProtocolName   *string // from 5
	Assignment     []byte
}

// Key is KeySyncGroup.
func (*SyncGroupRequest) Key() Key { return KeySyncGroup }

// Key is KeySyncGroup.
func (*SyncGroupResponse) Key() Key { return KeySyncGroup }

func (r *SyncGroupRequest) code(c *codec.Coder) {
	v := c.Version()
	c.String(&r.GroupID)
	c.Int32(&r.GenerationID)
	c.String(&r.MemberID)
	if v >= 3 {
		c.NullableString(&r.GroupInstanceID)
	}
	if v >= 5 {
		c.NullableString(&r.ProtocolType)
		c.NullableString(&r.ProtocolName)
	}
	codec.ArrayOf(c, &r.Assignments, 40, codeSyncGroupAssignment)
	c.Tags()
}

func codeSyncGroupAssignment(c *codec.Coder, a *SyncGroupAssignment) {
	c.String(&a.MemberID)
	c.Bytes32(&a.Assignment)
	c.Tags()
}

func (r *SyncGroupResponse) code(c *codec.Coder) {
	v := c.Version()
	if v >= 1 {
		c.Int32(&r.ThrottleTimeMs)
	}
	codeCode(c, &r.ErrorCode)
	if v >= 5 {
		c.NullableString(&r.ProtocolType)
		c.NullableString(&r.ProtocolName)
	}
	c.Bytes32(&r.Assignment)
	c.Tags()
}
