package broker

import (
	"context"
	"time"

	"github.com/weirmq/weir/broker/group"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

// heartbeatOwnID is the first version of ConsumerGroupHeartbeat in which clients
// make their member ids.
const heartbeatOwnID = 1

func handleConsumerGroupHeartbeat(_ context.Context, c *Conn, h wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.ConsumerGroupHeartbeatRequest)
	ch, err := c.srv.consumerHeartbeat(c, h, req)
	return func(ctx context.Context) Reply {
		resp := &wire.ConsumerGroupHeartbeatResponse{}
		a, err := answerOf(ctx, ch, err)
		if err != nil {
			err = memberless(err)
			resp.ErrorCode, resp.ErrorMessage = c.srv.code(err), messageOf(err)
			return Reply{Body: resp}
		}
		c.srv.fillConsumer(resp, a.(group.ConsumerReply))
		return Reply{Body: resp}
	}
}

func (s *server) consumerHeartbeat(c *Conn, h wire.RequestHeader, req *wire.ConsumerGroupHeartbeatRequest) (<-chan groupAnswer, error) {
	if err := checkConsumerHeartbeat(h.Version, req); err != nil {
		return nil, err
	}
	client, host := memberClient(c, h)
	b := group.ConsumerRequest{
		MemberID: req.MemberID, InstanceID: present(req.InstanceID), NewID: newMemberID(client), ClientID: client, ClientHost: host,
		Epoch: req.MemberEpoch, RebalanceTimeout: time.Duration(req.RebalanceTimeoutMs) * time.Millisecond, Rack: req.RackID,
		Topics: req.SubscribedTopicNames, Regex: req.SubscribedTopicRegex, Assignor: req.ServerAssignor,
	}
	if req.TopicPartitions != nil {
		b.Owned = make([]fsm.TopicPartitions, len(req.TopicPartitions))
		for i, t := range req.TopicPartitions {
			b.Owned[i] = fsm.TopicPartitions{Topic: t.TopicID, Partitions: t.Partitions}
		}
	}
	g := s.backend.groups
	call := func(core *group.Group, now time.Time, t group.Ticket) group.Out {
		return core.ConsumerHeartbeat(now, t, b, g.topicsNow())
	}
	if req.MemberEpoch == wire.MemberEpochJoin {
		return g.askAny(req.GroupID, call)
	}
	return g.ask(req.GroupID, call)
}

// checkConsumerHeartbeat refuses what no group could make sense of.
func checkConsumerHeartbeat(version int16, req *wire.ConsumerGroupHeartbeatRequest) error {
	empty := func(s *string) bool { return s != nil && *s == "" }
	joining := req.MemberEpoch == wire.MemberEpochJoin
	switch {
	case req.GroupID == "":
		return refused(wire.InvalidRequest, "GroupId can't be empty")
	case req.MemberID == "" && (version >= heartbeatOwnID || !joining):
		return refused(wire.InvalidRequest, "MemberId can't be empty")
	case empty(req.InstanceID):
		return refused(wire.InvalidRequest, "InstanceId can't be empty")
	case empty(req.RackID):
		return refused(wire.InvalidRequest, "RackId can't be empty")
	case req.MemberEpoch < wire.MemberEpochLeaveStatic:
		return refused(wire.InvalidRequest, "MemberEpoch is invalid")
	case req.MemberEpoch == wire.MemberEpochLeaveStatic && req.InstanceID == nil:
		return refused(wire.InvalidRequest, "InstanceId can't be null when a static member leaves")
	case joining && req.RebalanceTimeoutMs == -1:
		return refused(wire.InvalidRequest, "RebalanceTimeoutMs must be provided in first request")
	case joining && len(req.TopicPartitions) > 0, joining && req.TopicPartitions == nil:
		return refused(wire.InvalidRequest, "TopicPartitions must be empty when (re-)joining")
	case joining && req.SubscribedTopicNames == nil && req.SubscribedTopicRegex == nil:
		return refused(wire.InvalidRequest, "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining")
	}
	return nil
}

func (s *server) fillConsumer(resp *wire.ConsumerGroupHeartbeatResponse, a group.ConsumerReply) {
	resp.MemberID, resp.MemberEpoch = optional(a.MemberID), a.Epoch
	resp.HeartbeatIntervalMs = int32(a.HeartbeatInterval.Milliseconds())
	if err := groupError(a.Code); err != nil {
		resp.ErrorCode, resp.ErrorMessage = s.code(err), optional(a.Message)
		return
	}
	if !a.HasAssignment {
		return
	}
	resp.Assignment = &wire.ConsumerGroupHeartbeatAssignment{}
	for _, t := range a.Assignment {
		resp.Assignment.TopicPartitions = append(resp.Assignment.TopicPartitions,
			wire.ConsumerGroupHeartbeatTopicPartitions{TopicID: t.Topic, Partitions: t.Partitions})
	}
}
