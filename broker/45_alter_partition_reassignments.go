package broker

import (
	"context"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

func handleAlterPartitionReassignments(_ context.Context, c *Conn, _ wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.AlterPartitionReassignmentsRequest)
	return func(ctx context.Context) Reply {
		ctx, cancel := context.WithTimeout(ctx, adminTimeout(req.TimeoutMs))
		defer cancel()
		m := reassign{srv: c.srv, req: req, resp: wire.NewAlterPartitionReassignmentsResponse()}
		m.resp.AllowReplicationFactorChange = req.AllowReplicationFactorChange
		m.run(ctx)
		return Reply{Body: m.resp}
	}
}

// reassign is one AlterPartitionReassignments request.
type reassign struct {
	srv   *server
	req   *wire.AlterPartitionReassignmentsRequest
	resp  *wire.AlterPartitionReassignmentsResponse
	moves []controller.Move
	outs  []*wire.ReassignablePartitionResponse // for each of moves
}

func (m *reassign) run(ctx context.Context) {
	im := m.srv.imageWith(ctx, func(yield func(string) bool) {
		for i := range m.req.Topics {
			if !yield(m.req.Topics[i].Name) {
				return
			}
		}
	})
	m.resp.Responses = make([]wire.ReassignableTopicResponse, len(m.req.Topics))
	asked := make(map[fsm.TopicPartition]bool)
	for i := range m.req.Topics {
		m.topic(im, &m.req.Topics[i], &m.resp.Responses[i], asked)
	}
	if len(m.moves) == 0 {
		return
	}
	results, err := m.srv.backend.ops.cluster.Reassign(ctx, m.moves, m.req.AllowReplicationFactorChange)
	for i, to := range m.outs {
		if err != nil {
			m.fail(to, err)
		} else if err := outcomeError(results[i], nil); err != nil {
			m.fail(to, err)
		}
	}
}

// topic collects the moves of one topic. What a request has twice is refused: which of
// the two was meant is not known.
func (m *reassign) topic(im *fsm.Image, in *wire.ReassignableTopic, out *wire.ReassignableTopicResponse, asked map[fsm.TopicPartition]bool) {
	out.Name = in.Name
	out.Partitions = make([]wire.ReassignablePartitionResponse, len(in.Partitions))
	t, err := topicOf(im, 0, 1, in.Name, [16]byte{})
	for j := range in.Partitions {
		p, to := &in.Partitions[j], &out.Partitions[j]
		to.PartitionIndex = p.PartitionIndex
		if err != nil {
			m.fail(to, err)
			continue
		}
		tp := fsm.TopicPartition{Topic: t.ID, Partition: p.PartitionIndex}
		if asked[tp] {
			m.fail(to, refused(wire.InvalidRequest, "the request has this partition more than once"))
			continue
		}
		asked[tp] = true
		m.moves, m.outs = append(m.moves, moveOf(tp, p.Replicas)), append(m.outs, to)
	}
}

func (m *reassign) fail(to *wire.ReassignablePartitionResponse, err error) {
	to.ErrorCode, to.ErrorMessage = m.srv.code(err), messageOf(err)
}

// moveOf is what a client wants of one partition, as the controller takes it.
func moveOf(tp fsm.TopicPartition, replicas []int32) controller.Move {
	move := controller.Move{TP: tp, Cancel: replicas == nil}
	for _, id := range replicas {
		move.To = append(move.To, fsm.BrokerID(id))
	}
	return move
}
