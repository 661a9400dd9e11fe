package broker

import (
	"context"

	"github.com/weirmq/weir/wire"
)

func handleDescribeCluster(_ context.Context, c *Conn, h wire.RequestHeader, r wire.Request) Pending {
	return func(context.Context) Reply {
		return Reply{Body: c.srv.describeCluster(h.Version, r.(*wire.DescribeClusterRequest))}
	}
}

func (s *server) describeCluster(version int16, req *wire.DescribeClusterRequest) *wire.DescribeClusterResponse {
	resp := wire.NewDescribeClusterResponse()
	switch req.EndpointType {
	case wire.EndpointBrokers:
	case wire.EndpointControllers:
		resp.ErrorCode = s.code(wire.MismatchedEndpointType)
		resp.ErrorMessage = optional("this listener knows broker endpoints only")
		return resp
	default:
		resp.ErrorCode = s.code(wire.UnsupportedEndpointType)
		resp.ErrorMessage = optional("unknown endpoint type")
		return resp
	}
	im := s.backend.image()
	resp.ClusterID = im.ClusterID()
	resp.ControllerID = s.controllerID(im)
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	for b := range im.Brokers() {
		if b.Fenced && (version < 2 || !req.IncludeFencedBrokers) {
			continue
		}
		resp.Brokers = append(resp.Brokers, wire.DescribeClusterBroker{
			BrokerID: int32(b.ID), Host: b.Client.Host, Port: b.Client.Port, Rack: optional(b.Rack), IsFenced: b.Fenced})
	}
	return resp
}
