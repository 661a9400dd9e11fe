package broker

import (
	"context"

	"github.com/weirmq/weir/wire"
)

func handleIncrementalAlterConfigs(_ context.Context, c *Conn, _ wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.IncrementalAlterConfigsRequest)
	return func(ctx context.Context) Reply {
		resources := make([]alteredResource, len(req.Resources))
		for i, in := range req.Resources {
			resources[i] = alteredResource{kind: in.ResourceType, name: in.ResourceName}
			for _, entry := range in.Configs {
				resources[i].add(entry.Name, entry.ConfigOperation, entry.Value)
			}
		}
		return Reply{Body: &wire.IncrementalAlterConfigsResponse{Responses: c.srv.alterConfigs(ctx, resources, req.ValidateOnly)}}
	}
}
