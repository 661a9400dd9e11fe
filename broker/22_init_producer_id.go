package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/weirmq/weir/wire"
)

// producerIDWait bounds the wait for a new block of producer ids: the client has
// set no limit, and asks again when it is told to.
const producerIDWait = 5 * time.Second

func handleInitProducerID(_ context.Context, c *Conn, _ wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.InitProducerIDRequest)
	return func(ctx context.Context) Reply {
		resp := wire.NewInitProducerIDResponse()
		id, err := c.srv.newProducerID(ctx, req)
		if err != nil {
			resp.ErrorCode = c.srv.code(err)
			return Reply{Body: resp}
		}
		resp.ProducerID = id
		return Reply{Body: resp}
	}
}

// newProducerID is the id of an idempotent producer. One that keeps its old id
// after an error gets a new one all the same, as it would from Kafka.
func (s *server) newProducerID(ctx context.Context, req *wire.InitProducerIDRequest) (int64, error) {
	if id := req.TransactionalID; id != nil {
		if *id == "" {
			return 0, wire.InvalidRequest
		}
		return 0, errTransactional
	}
	ctx, cancel := context.WithTimeout(ctx, producerIDWait)
	defer cancel()
	id, err := s.backend.producerID(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errNoProducerID, err)
	}
	return id, nil
}
