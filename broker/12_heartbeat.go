package broker

import (
	"context"
	"errors"
	"time"

	"github.com/weirmq/weir/broker/group"
	"github.com/weirmq/weir/wire"
)

func handleHeartbeat(_ context.Context, c *Conn, _ wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.HeartbeatRequest)
	ch, err := c.srv.heartbeat(req)
	return func(ctx context.Context) Reply {
		resp := &wire.HeartbeatResponse{}
		a, err := answerOf(ctx, ch, err)
		if err == nil {
			err = groupError(a.(group.HeartbeatReply).Code)
		}
		if err != nil {
			resp.ErrorCode = c.srv.code(memberless(err))
		}
		return Reply{Body: resp}
	}
}

func (s *server) heartbeat(req *wire.HeartbeatRequest) (<-chan groupAnswer, error) {
	if err := checkGroupID(req.GroupID); err != nil {
		return nil, err
	}
	h := group.HeartbeatRequest{MemberID: req.MemberID, InstanceID: present(req.GroupInstanceID), Generation: req.GenerationID}
	g := s.backend.groups
	return g.ask(req.GroupID, func(c *group.Group, now time.Time, t group.Ticket) group.Out {
		return c.Heartbeat(now, t, h, g.topicsNow())
	})
}

// memberless is what a member of a group that is not there is told: that it is
// unknown, which makes it join.
func memberless(err error) error {
	if errors.Is(err, errUnknownGroup) {
		return wire.UnknownMemberID
	}
	return err
}
