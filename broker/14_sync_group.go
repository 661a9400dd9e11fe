package broker

import (
	"bytes"
	"context"
	"time"

	"github.com/weirmq/weir/broker/group"
	"github.com/weirmq/weir/wire"
)

// syncProtocol is the first version of SyncGroup that must name the protocol.
const syncProtocol = 5

func handleSyncGroup(_ context.Context, c *Conn, h wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.SyncGroupRequest)
	ch, err := c.srv.syncGroup(h.Version, req)
	return func(ctx context.Context) Reply {
		resp := &wire.SyncGroupResponse{}
		a, err := answerOf(ctx, ch, err)
		if err == nil {
			reply := a.(group.SyncReply)
			resp.ProtocolType, resp.ProtocolName, resp.Assignment = optional(reply.ProtocolType), optional(reply.Protocol), reply.Assignment
			err = groupError(reply.Code)
		}
		if err != nil {
			resp.ErrorCode = c.srv.code(memberless(err))
		}
		return Reply{Body: resp}
	}
}

func (s *server) syncGroup(version int16, req *wire.SyncGroupRequest) (<-chan groupAnswer, error) {
	if err := checkGroupID(req.GroupID); err != nil {
		return nil, err
	}
	if version >= syncProtocol && (req.ProtocolType == nil || req.ProtocolName == nil) {
		return nil, wire.InconsistentGroupProtocol
	}
	r := group.SyncRequest{
		MemberID: req.MemberID, InstanceID: present(req.GroupInstanceID), Generation: req.GenerationID,
		ProtocolType: present(req.ProtocolType), Protocol: present(req.ProtocolName),
		Assignments: make([]group.MemberAssignment, len(req.Assignments)),
	}
	for i, a := range req.Assignments {
		r.Assignments[i] = group.MemberAssignment{MemberID: a.MemberID, Assignment: bytes.Clone(a.Assignment)}
	}
	g := s.backend.groups
	return g.ask(req.GroupID, func(c *group.Group, now time.Time, t group.Ticket) group.Out { return c.Sync(now, t, r, g.topicsNow()) })
}
