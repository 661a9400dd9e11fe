package broker

import (
	"context"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

func handleUnregisterBroker(_ context.Context, c *Conn, _ wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.UnregisterBrokerRequest)
	return func(ctx context.Context) Reply {
		ctx, cancel := context.WithTimeout(ctx, adminWaitLeast)
		defer cancel()
		res, err := c.srv.backend.ops.cluster.RemoveNode(ctx, fsm.BrokerID(req.BrokerID))
		err = memberError(res, err)
		return Reply{Body: &wire.UnregisterBrokerResponse{ErrorCode: c.srv.code(err), ErrorMessage: messageOf(err)}}
	}
}

// memberError is the controller's answer to a change of who is a member, or votes, as an error.
func memberError(r controller.MemberResult, err error) error {
	if err != nil || r.Err == wire.None {
		return err
	}
	return refused(r.Err, "%s", r.Msg)
}
