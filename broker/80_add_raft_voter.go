package broker

import (
	"context"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

func handleAddRaftVoter(_ context.Context, c *Conn, _ wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.AddRaftVoterRequest)
	return func(ctx context.Context) Reply {
		ctx, cancel := context.WithTimeout(ctx, adminTimeout(req.TimeoutMs))
		defer cancel()
		err := c.srv.sameCluster(req.ClusterID)
		if err == nil {
			// Where the node is it has said itself, as it joined; listeners are not needed. The
			// answer always waits for the commit.
			err = outcomeError(c.srv.backend.ops.cluster.AddVoter(ctx, fsm.BrokerID(req.VoterID), req.VoterDirectoryID))
		}
		return Reply{Body: &wire.AddRaftVoterResponse{ErrorCode: c.srv.code(err), ErrorMessage: messageOf(err)}}
	}
}

// sameCluster refuses what is meant for another cluster.
func (s *server) sameCluster(id *string) error {
	if own := s.backend.image().ClusterID(); id != nil && *id != own {
		return refused(wire.InconsistentClusterID, "this is cluster %s", own)
	}
	return nil
}
