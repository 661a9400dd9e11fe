package broker

import (
	"context"
	"time"

	"github.com/weirmq/weir/broker/group"
	"github.com/weirmq/weir/wire"
)

// deleteWait bounds the wait for deletions to be stored.
const deleteWait = 15 * time.Second

func handleDeleteGroups(_ context.Context, c *Conn, _ wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.DeleteGroupsRequest)
	waits := make([]func(context.Context) (group.Answer, error), len(req.GroupsNames))
	for i, id := range req.GroupsNames {
		ch, err := c.srv.deleteGroup(id)
		waits[i] = func(ctx context.Context) (group.Answer, error) { return answerOf(ctx, ch, err) }
	}
	return func(ctx context.Context) Reply {
		ctx, cancel := context.WithTimeout(ctx, deleteWait)
		defer cancel()
		resp := &wire.DeleteGroupsResponse{}
		for i, id := range req.GroupsNames {
			out := wire.DeletableGroupResult{GroupID: id}
			a, err := waits[i](ctx)
			if err == nil {
				err = groupError(a.(group.DeleteReply).Code)
			}
			if err != nil {
				out.ErrorCode, out.ErrorMessage = c.srv.code(err), messageOf(err)
			}
			resp.Results = append(resp.Results, out)
		}
		return Reply{Body: resp}
	}
}

func (s *server) deleteGroup(id string) (<-chan groupAnswer, error) {
	if err := checkGroupID(id); err != nil {
		return nil, err
	}
	return s.backend.groups.ask(id, func(g *group.Group, now time.Time, t group.Ticket) group.Out { return g.Delete(now, t) })
}
