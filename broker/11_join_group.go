package broker

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/weirmq/weir/broker/group"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

const (
	// joinKnownID is the first version of JoinGroup in which a new member must ask
	// again with the id that it is given.
	joinKnownID = 4
	// joinSkip is the first version in which a leader may be told not to assign.
	joinSkip = 9
)

func handleJoinGroup(_ context.Context, c *Conn, h wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.JoinGroupRequest)
	ch, err := c.srv.joinGroup(c, h, req)
	member := req.MemberID
	return func(ctx context.Context) Reply {
		resp := wire.NewJoinGroupResponse()
		resp.MemberID = member
		a, err := answerOf(ctx, ch, err)
		if err != nil {
			resp.ErrorCode = c.srv.code(err)
			return Reply{Body: resp}
		}
		fillJoin(resp, a.(group.JoinReply))
		if resp.ErrorCode != wire.None {
			resp.ErrorCode = c.srv.code(resp.ErrorCode)
		}
		return Reply{Body: resp}
	}
}

// joinGroup runs the first stage: the member stands in line when it returns.
func (s *server) joinGroup(c *Conn, h wire.RequestHeader, req *wire.JoinGroupRequest) (<-chan groupAnswer, error) {
	if err := checkGroupID(req.GroupID); err != nil {
		return nil, err
	}
	client, host := memberClient(c, h)
	instance := present(req.GroupInstanceID)
	j := group.JoinRequest{
		MemberID: req.MemberID, InstanceID: instance, ClientID: client, ClientHost: host, NewID: newMemberID(client),
		SessionTimeout:   time.Duration(req.SessionTimeoutMs) * time.Millisecond,
		RebalanceTimeout: time.Duration(req.RebalanceTimeoutMs) * time.Millisecond,
		ProtocolType:     req.ProtocolType, Protocols: make([]fsm.GroupProtocol, len(req.Protocols)), Reason: shortReason(req.Reason),
		KnownIDRequired: h.Version >= joinKnownID, MaySkipAssignment: h.Version >= joinSkip,
	}
	if instance != "" {
		j.NewID = newMemberID(instance)
	}
	if h.Version == 0 {
		j.RebalanceTimeout = j.SessionTimeout
	}
	for i, p := range req.Protocols {
		j.Protocols[i] = fsm.GroupProtocol{Name: p.Name, Metadata: bytes.Clone(p.Metadata)}
	}
	g := s.backend.groups
	return g.askAny(req.GroupID, func(c *group.Group, now time.Time, t group.Ticket) group.Out { return c.Join(now, t, j, g.topicsNow()) })
}

// shortReason is what a client says about why, for the flight recorder.
func shortReason(reason *string) string {
	const most = 200
	s := present(reason)
	if len(s) > most {
		s = strings.Clone(s[:most])
	}
	return s
}

func fillJoin(resp *wire.JoinGroupResponse, a group.JoinReply) {
	resp.ErrorCode, resp.GenerationID = groupCodes[a.Code], a.Generation
	resp.Leader, resp.MemberID, resp.SkipAssignment = a.Leader, a.MemberID, a.SkipAssignment
	resp.ProtocolType, resp.ProtocolName = optional(a.ProtocolType), optional(a.Protocol)
	for _, m := range a.Members {
		resp.Members = append(resp.Members, wire.JoinGroupMember{MemberID: m.ID, GroupInstanceID: optional(m.InstanceID), Metadata: m.Metadata})
	}
}
