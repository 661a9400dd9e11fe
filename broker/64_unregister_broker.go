package broker

import (
	"context"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

func handleUnregisterBroker(_ context.Context, c *Conn, _ wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.UnregisterBrokerRequest)
	return func(ctx context.Context) Reply {
		ctx, cancel := context.WithTimeout(ctx, adminWaitLeast)
		defer cancel()
		err := outcomeError(c.srv.backend.ops.cluster.RemoveNode(ctx, fsm.BrokerID(req.BrokerID)))
		return Reply{Body: &wire.UnregisterBrokerResponse{ErrorCode: c.srv.code(err), ErrorMessage: messageOf(err)}}
	}
}
