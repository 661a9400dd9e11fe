package broker

import (
	"context"
	"errors"
	"time"

	"github.com/weirmq/weir/broker/group"
	"github.com/weirmq/weir/wire"
)

// leaveMany is the first version of LeaveGroup that names several members.
const leaveMany = 3

func handleLeaveGroup(_ context.Context, c *Conn, h wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.LeaveGroupRequest)
	members := leavers(h.Version, req)
	ch, err := c.srv.leaveGroup(req.GroupID, members)
	return func(ctx context.Context) Reply {
		a, err := answerOf(ctx, ch, err)
		return Reply{Body: c.srv.leaveResponse(h.Version, members, a, err)}
	}
}

// leavers are the members that a request names.
func leavers(version int16, req *wire.LeaveGroupRequest) []group.LeaveMember {
	if version < leaveMany {
		return []group.LeaveMember{{MemberID: req.MemberID}}
	}
	out := make([]group.LeaveMember, len(req.Members))
	for i, m := range req.Members {
		out[i] = group.LeaveMember{MemberID: m.MemberID, InstanceID: present(m.GroupInstanceID), Reason: shortReason(m.Reason)}
	}
	return out
}

func (s *server) leaveGroup(id string, members []group.LeaveMember) (<-chan groupAnswer, error) {
	if err := checkGroupID(id); err != nil {
		return nil, err
	}
	return s.backend.groups.ask(id, func(g *group.Group, now time.Time, t group.Ticket) group.Out {
		return g.Leave(now, t, group.LeaveRequest{Members: members})
	})
}

// leaveResponse answers each member. Versions with one member have its code as
// that of the request.
func (s *server) leaveResponse(version int16, members []group.LeaveMember, a group.Answer, err error) *wire.LeaveGroupResponse {
	resp := &wire.LeaveGroupResponse{}
	var left []group.LeftMember
	switch reply, ok := a.(group.LeaveReply); {
	case err == nil && ok && reply.Code == group.None:
		left = reply.Members
	case err == nil && ok:
		resp.ErrorCode = s.code(groupError(reply.Code))
		return resp
	case errors.Is(err, errUnknownGroup):
		for _, m := range members {
			left = append(left, group.LeftMember{MemberID: m.MemberID, InstanceID: m.InstanceID, Code: group.UnknownMember})
		}
	default:
		resp.ErrorCode = s.code(err)
		return resp
	}
	for _, m := range left {
		code := groupCodes[m.Code]
		if code != wire.None {
			code = s.code(code)
		}
		resp.Members = append(resp.Members, wire.MemberResponse{MemberID: m.MemberID, GroupInstanceID: optional(m.InstanceID), ErrorCode: code})
		if version < leaveMany {
			resp.ErrorCode = code
		}
	}
	return resp
}
