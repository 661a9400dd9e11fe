package broker

import (
	"context"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

func handleOffsetForLeaderEpoch(_ context.Context, c *Conn, _ wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.OffsetForLeaderEpochRequest)
	return func(context.Context) Reply {
		return Reply{Body: c.srv.offsetForLeaderEpoch(req)}
	}
}

func (s *server) offsetForLeaderEpoch(req *wire.OffsetForLeaderEpochRequest) *wire.OffsetForLeaderEpochResponse {
	im := s.backend.image()
	resp := &wire.OffsetForLeaderEpochResponse{Topics: make([]wire.OffsetForLeaderTopicResult, len(req.Topics))}
	for i := range req.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		out.Topic = in.Topic
		out.Partitions = make([]wire.OffsetForLeaderPartitionResult, len(in.Partitions))
		t, err := topicOf(im, 0, 1, in.Topic, [16]byte{})
		if req.ReplicaID >= 0 {
			t, err = nil, wire.InvalidRequest // followers use the peer listener
		}
		for j := range in.Partitions {
			to := &out.Partitions[j]
			*to = wire.DefaultOffsetForLeaderPartitionResult()
			to.Partition = in.Partitions[j].Partition
			partErr := err
			if t != nil {
				partErr = s.epochEnd(im, t.ID, &in.Partitions[j], to)
			}
			to.ErrorCode = s.code(partErr)
		}
	}
	return resp
}

func (s *server) epochEnd(im *fsm.Image, topic fsm.TopicID, in *wire.OffsetForLeaderPartition, out *wire.OffsetForLeaderPartitionResult) error {
	p, err := s.backend.ops.find(im, fsm.TopicPartition{Topic: topic, Partition: in.Partition})
	if err != nil {
		return err
	}
	end, err := p.EpochEnd(in.CurrentLeaderEpoch, in.LeaderEpoch)
	if err != nil {
		return err
	}
	out.LeaderEpoch, out.EndOffset = end.Epoch, end.End
	return nil
}
