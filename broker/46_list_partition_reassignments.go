package broker

import (
	"context"
	"slices"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

// handleListPartitionReassignments answers with what the controller knows now: who has just
// begun a move through another node is to see it.
func handleListPartitionReassignments(_ context.Context, c *Conn, _ wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.ListPartitionReassignmentsRequest)
	return func(ctx context.Context) Reply {
		ctx, cancel := context.WithTimeout(ctx, adminTimeout(req.TimeoutMs))
		defer cancel()
		l := listReassignments{resp: &wire.ListPartitionReassignmentsResponse{}}
		if err := c.srv.backend.ops.sync(ctx); err != nil {
			l.resp.ErrorCode, l.resp.ErrorMessage = c.srv.code(err), messageOf(err)
			return Reply{Body: l.resp}
		}
		l.im = c.srv.backend.image()
		if req.Topics == nil {
			l.all()
		} else {
			l.some(req.Topics)
		}
		return Reply{Body: l.resp}
	}
}

// listReassignments is one ListPartitionReassignments request.
type listReassignments struct {
	im   *fsm.Image
	resp *wire.ListPartitionReassignmentsResponse
}

// all lists every partition that is on the move.
func (l *listReassignments) all() {
	for tp, p := range l.im.Reassigning() {
		if t, ok := l.im.Topic(tp.Topic); ok {
			l.add(t.Name, tp.Partition, p)
		}
	}
}

// some lists those of the partitions asked for; one that stands still, or that there is not, is left out.
func (l *listReassignments) some(topics []wire.ListPartitionReassignmentsTopic) {
	for _, asked := range topics {
		t, ok := l.im.TopicByName(asked.Name)
		if !ok {
			continue
		}
		slices.Sort(asked.PartitionIndexes)
		for _, index := range slices.Compact(asked.PartitionIndexes) {
			if p, ok := l.im.Partition(fsm.TopicPartition{Topic: t.ID, Partition: index}); ok && p.Reassigning() {
				l.add(t.Name, index, p)
			}
		}
	}
}

// add lists one partition; those of one topic come one after the other.
func (l *listReassignments) add(topic string, index int32, p fsm.Partition) {
	if n := len(l.resp.Topics); n == 0 || l.resp.Topics[n-1].Name != topic {
		l.resp.Topics = append(l.resp.Topics, wire.OngoingTopicReassignment{Name: topic})
	}
	last := &l.resp.Topics[len(l.resp.Topics)-1]
	last.Partitions = append(last.Partitions, wire.OngoingPartitionReassignment{
		PartitionIndex: index, Replicas: brokerIDs(p.Replicas), AddingReplicas: brokerIDs(p.Adding), RemovingReplicas: brokerIDs(p.Removing)})
}
