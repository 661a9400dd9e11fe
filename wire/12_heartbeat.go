package wire

import "github.com/weirmq/weir/wire/codec"

// KeyHeartbeat is the API by which a member of a classic group shows that it lives.
//
// Version 1 adds the throttle time, 3 static members, 4 is flexible.
const KeyHeartbeat Key = 12

// HeartbeatRequest comes from a member.
type HeartbeatRequest struct {
	GroupID         string
	GenerationID    int32
	MemberID        string
	GroupInstanceID *string // from 3, nil for a dynamic member
}

// HeartbeatResponse answers a HeartbeatRequest.
type HeartbeatResponse struct {
	ThrottleTimeMs int32 // from 1
	ErrorCode      Code
}

// Key is KeyHeartbeat.
func (*HeartbeatRequest) Key() Key { return KeyHeartbeat }

// Key is KeyHeartbeat.
func (*HeartbeatResponse) Key() Key { return KeyHeartbeat }

func (r *HeartbeatRequest) code(c *codec.Coder) {
	c.String(&r.GroupID)
	c.Int32(&r.GenerationID)
	c.String(&r.MemberID)
	if c.Version() >= 3 {
		c.NullableString(&r.GroupInstanceID)
	}
	c.Tags()
}

func (r *HeartbeatResponse) code(c *codec.Coder) {
	if c.Version() >= 1 {
		c.Int32(&r.ThrottleTimeMs)
	}
	codeCode(c, &r.ErrorCode)
	c.Tags()
}
