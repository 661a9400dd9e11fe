package broker

import (
	"context"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

func handleRemoveRaftVoter(_ context.Context, c *Conn, _ wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.RemoveRaftVoterRequest)
	return func(ctx context.Context) Reply {
		ctx, cancel := context.WithTimeout(ctx, adminWaitLeast)
		defer cancel()
		err := c.srv.sameCluster(req.ClusterID)
		if err == nil {
			err = outcomeError(c.srv.backend.ops.cluster.RemoveVoter(ctx, fsm.BrokerID(req.VoterID), req.VoterDirectoryID))
		}
		return Reply{Body: &wire.RemoveRaftVoterResponse{ErrorCode: c.srv.code(err), ErrorMessage: messageOf(err)}}
	}
}
