package broker

import (
	"context"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

// coordinatorKeys is the first version of FindCoordinator that asks for many keys.
const coordinatorKeys = 4

// shareCoordinators is the first version that may ask for share coordinators.
const shareCoordinators = 6

func handleFindCoordinator(_ context.Context, c *Conn, h wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.FindCoordinatorRequest)
	return func(context.Context) Reply {
		im, resp := c.srv.backend.image(), &wire.FindCoordinatorResponse{}
		if h.Version >= coordinatorKeys {
			for _, key := range req.CoordinatorKeys {
				resp.Coordinators = append(resp.Coordinators, c.srv.coordinator(im, h.Version, req.KeyType, key))
			}
			return Reply{Body: resp}
		}
		found := c.srv.coordinator(im, h.Version, req.KeyType, req.CoordinatorKey)
		resp.ErrorCode, resp.ErrorMessage = found.ErrorCode, found.ErrorMessage
		resp.NodeID, resp.Host, resp.Port = found.NodeID, found.Host, found.Port
		return Reply{Body: resp}
	}
}

// coordinator answers for one key.
func (s *server) coordinator(im *fsm.Image, version int16, keyType int8, key string) wire.Coordinator {
	b, err := findCoordinator(im, version, keyType, key)
	if err != nil {
		return wire.Coordinator{Key: key, NodeID: int32(fsm.NoBroker), Port: -1, ErrorCode: s.code(err), ErrorMessage: messageOf(err)}
	}
	s.haveOffsetsTopic(im)
	return wire.Coordinator{Key: key, NodeID: int32(b.ID), Host: b.Client.Host, Port: b.Client.Port}
}

// findCoordinator refuses transactional ids, since there are no transactions, with
// the one error on which every client gives up: others make librdkafka ask for ever.
// Share groups are refused as by a Kafka that does not offer them.
func findCoordinator(im *fsm.Image, version int16, keyType int8, key string) (fsm.Broker, error) {
	switch {
	case keyType == wire.CoordinatorTransaction:
		return fsm.Broker{}, refused(wire.TransactionalIDAuthorizationFailed, "%v", errTransactional)
	case keyType == wire.CoordinatorShare && version >= shareCoordinators:
		return fsm.Broker{}, refused(wire.InvalidRequest, "share groups are not supported by this version of Weir")
	case keyType != wire.CoordinatorGroup:
		return fsm.Broker{}, refused(wire.InvalidRequest, "there is no coordinator of type %d", keyType)
	}
	b, ok := coordinatorOf(im, key)
	if !ok {
		return fsm.Broker{}, errNoCoordinator
	}
	return b, nil
}
