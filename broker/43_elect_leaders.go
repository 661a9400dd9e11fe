package broker

import (
	"context"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

func handleElectLeaders(_ context.Context, c *Conn, _ wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.ElectLeadersRequest)
	return func(ctx context.Context) Reply {
		ctx, cancel := context.WithTimeout(ctx, adminTimeout(req.TimeoutMs))
		defer cancel()
		e := electLeaders{srv: c.srv, im: c.srv.backend.image(), kind: controller.PreferredElection, resp: &wire.ElectLeadersResponse{}}
		switch req.ElectionType {
		case wire.ElectionPreferred:
		case wire.ElectionUnclean:
			e.kind = controller.UncleanElection
		default:
			e.resp.ErrorCode = c.srv.code(wire.InvalidRequest)
			return Reply{Body: e.resp}
		}
		if req.TopicPartitions == nil {
			e.runAll(ctx)
		} else {
			e.im = c.srv.imageWith(ctx, func(yield func(string) bool) {
				for i := range req.TopicPartitions {
					if !yield(req.TopicPartitions[i].Topic) {
						return
					}
				}
			})
			e.run(ctx, req.TopicPartitions)
		}
		return Reply{Body: e.resp}
	}
}

// electLeaders is one ElectLeaders request.
type electLeaders struct {
	srv  *server
	im   *fsm.Image
	kind controller.ElectionKind
	resp *wire.ElectLeadersResponse
}

// run holds the elections that the request names.
func (e *electLeaders) run(ctx context.Context, topics []wire.ElectLeadersTopic) {
	var tps []fsm.TopicPartition
	var outs []*wire.PartitionElectionResult
	e.resp.ReplicaElectionResults = make([]wire.ReplicaElectionResult, len(topics))
	for i, in := range topics {
		out := &e.resp.ReplicaElectionResults[i]
		out.Topic = in.Topic
		out.PartitionResult = make([]wire.PartitionElectionResult, len(in.Partitions))
		t, err := topicOf(e.im, 0, 1, in.Topic, [16]byte{})
		for j, index := range in.Partitions {
			to := &out.PartitionResult[j]
			to.PartitionID = index
			if err != nil {
				e.fail(to, err)
				continue
			}
			tps, outs = append(tps, fsm.TopicPartition{Topic: t.ID, Partition: index}), append(outs, to)
		}
	}
	if len(tps) == 0 {
		return
	}
	results, err := e.srv.backend.ops.cluster.ElectLeaders(ctx, e.kind, tps)
	for i, to := range outs {
		if err != nil {
			e.fail(to, err)
		} else if err := outcomeError(results[i].Outcome, nil); err != nil {
			e.fail(to, err)
		}
	}
}

func (e *electLeaders) fail(to *wire.PartitionElectionResult, err error) {
	to.ErrorCode, to.ErrorMessage = e.srv.code(err), messageOf(err)
}

// runAll holds an election for every partition that needs one, and tells of no other.
func (e *electLeaders) runAll(ctx context.Context) {
	var tps []fsm.TopicPartition
	for t := range e.im.Topics() {
		for i, p := range e.im.Partitions(t.ID) {
			if e.needed(p) {
				tps = append(tps, fsm.TopicPartition{Topic: t.ID, Partition: i})
			}
		}
	}
	if len(tps) == 0 {
		return
	}
	results, err := e.srv.backend.ops.cluster.ElectLeaders(ctx, e.kind, tps)
	if err != nil {
		e.resp.ErrorCode = e.srv.code(err)
		return
	}
	for _, r := range results {
		t, ok := e.im.Topic(r.TP.Topic)
		if !ok || r.Err == wire.ElectionNotNeeded {
			continue
		}
		list := &e.resp.ReplicaElectionResults
		if n := len(*list); n == 0 || (*list)[n-1].Topic != t.Name {
			*list = append(*list, wire.ReplicaElectionResult{Topic: t.Name})
		}
		to := wire.PartitionElectionResult{PartitionID: r.TP.Partition}
		if err := outcomeError(r.Outcome, nil); err != nil {
			e.fail(&to, err)
		}
		last := &(*list)[len(*list)-1]
		last.PartitionResult = append(last.PartitionResult, to)
	}
}

// needed tells whether a partition is not led as the election would have it.
func (e *electLeaders) needed(p fsm.Partition) bool {
	if e.kind == controller.UncleanElection {
		return p.Leader == fsm.NoBroker
	}
	return p.Leader != p.Replicas[0]
}
