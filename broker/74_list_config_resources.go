package broker

import (
	"context"
	"slices"
	"strconv"

	"github.com/weirmq/weir/wire"
)

func handleListConfigResources(_ context.Context, c *Conn, h wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.ListConfigResourcesRequest)
	return func(context.Context) Reply {
		return Reply{Body: c.srv.listConfigResources(h.Version, req)}
	}
}

// listConfigResources names what has configs here: topics and nodes.
func (s *server) listConfigResources(version int16, req *wire.ListConfigResourcesRequest) *wire.ListConfigResourcesResponse {
	resp := &wire.ListConfigResourcesResponse{}
	if version < 1 {
		return resp // it asks for client metrics, which nobody has
	}
	known := []int8{wire.ResourceTopic, wire.ResourceBroker, wire.ResourceBrokerLogger, wire.ResourceClientMetrics, wire.ResourceGroup}
	for _, t := range req.ResourceTypes {
		if !slices.Contains(known, t) {
			resp.ErrorCode = s.code(wire.UnsupportedVersion)
			return resp
		}
	}
	asked := func(t int8) bool { return len(req.ResourceTypes) == 0 || slices.Contains(req.ResourceTypes, t) }
	im := s.backend.image()
	if asked(wire.ResourceTopic) {
		for t := range im.Topics() {
			resp.ConfigResources = append(resp.ConfigResources, wire.ConfigResource{ResourceName: t.Name, ResourceType: wire.ResourceTopic})
		}
	}
	if asked(wire.ResourceBroker) {
		for b := range im.Brokers() {
			resp.ConfigResources = append(resp.ConfigResources, wire.ConfigResource{ResourceName: strconv.Itoa(int(b.ID)), ResourceType: wire.ResourceBroker})
		}
	}
	return resp
}
