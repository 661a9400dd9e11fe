package broker

import (
	"context"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/batch"
)

const (
	// metadataTopic is the name by which Kafka's tools ask for the metadata log. It is
	// no topic here, and has one partition.
	metadataTopic = "__cluster_metadata"
	// peerListener is the name of the listener that nodes reach each other by.
	peerListener = "CONTROLLER"
)

func handleDescribeQuorum(_ context.Context, c *Conn, _ wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.DescribeQuorumRequest)
	return func(ctx context.Context) Reply {
		ctx, cancel := context.WithTimeout(ctx, adminWaitLeast)
		defer cancel()
		return Reply{Body: c.srv.describeQuorum(ctx, req)}
	}
}

func (s *server) describeQuorum(ctx context.Context, req *wire.DescribeQuorumRequest) *wire.DescribeQuorumResponse {
	resp := &wire.DescribeQuorumResponse{}
	q, err := s.backend.ops.cluster.Quorum(ctx)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = s.code(err), messageOf(err)
		return resp
	}
	for _, in := range req.Topics {
		out := wire.DescribeQuorumTopicResponse{TopicName: in.TopicName}
		for _, p := range in.Partitions {
			if in.TopicName != metadataTopic || p.PartitionIndex != 0 {
				err := refused(wire.UnknownTopicOrPartition, "only partition 0 of %s has a quorum", metadataTopic)
				out.Partitions = append(out.Partitions, wire.DescribeQuorumPartitionResponse{
					PartitionIndex: p.PartitionIndex, ErrorCode: s.code(err), ErrorMessage: messageOf(err), LeaderID: -1, LeaderEpoch: -1, HighWatermark: -1})
				continue
			}
			out.Partitions = append(out.Partitions, quorumPartition(q))
		}
		resp.Topics = append(resp.Topics, out)
	}
	resp.Nodes = quorumNodes(s.backend.image(), q)
	return resp
}

// quorumPartition tells of the metadata log in the words of a partition: Raft's term
// is its leader epoch, what is committed lies below its high watermark.
func quorumPartition(q controller.Quorum) wire.DescribeQuorumPartitionResponse {
	return wire.DescribeQuorumPartitionResponse{
		LeaderID:      int32(q.Leader),
		LeaderEpoch:   batch.Epoch(q.Term),
		HighWatermark: batch.Offset(q.Commit) + 1,
		CurrentVoters: replicaStates(q, q.Voters),
		Observers:     replicaStates(q, q.Observers),
	}
}

func replicaStates(q controller.Quorum, servers []controller.QuorumServer) []wire.QuorumReplicaState {
	out := make([]wire.QuorumReplicaState, len(servers))
	for i, from := range servers {
		to := wire.DefaultQuorumReplicaState()
		to.ReplicaID, to.ReplicaDirectoryID = int32(from.ID), from.Folder
		to.LogEndOffset = -1
		if from.Last >= 0 {
			to.LogEndOffset = batch.Offset(from.Last) + 1
		}
		to.LastCaughtUpTimestamp = from.CaughtUp
		if from.ID != q.Leader {
			to.LastFetchTimestamp = from.Answered
		}
		out[i] = to
	}
	return out
}

// quorumNodes is where the servers are: where they have registered, else where they joined.
func quorumNodes(im *fsm.Image, q controller.Quorum) []wire.DescribeQuorumNode {
	var out []wire.DescribeQuorumNode
	for _, servers := range [][]controller.QuorumServer{q.Voters, q.Observers} {
		for _, s := range servers {
			node, known := im.Node(s.ID)
			b, registered := im.Broker(s.ID)
			at := node.Peer
			if registered {
				at = b.Peer
			} else if !known {
				continue
			}
			out = append(out, wire.DescribeQuorumNode{NodeID: int32(s.ID),
				Listeners: []wire.DescribeQuorumListener{{Name: peerListener, Host: at.Host, Port: uint16(at.Port)}}})
		}
	}
	return out
}
