package broker

import (
	"context"

	"github.com/weirmq/weir/broker/group"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

// describeMemberType is the first version of ConsumerGroupDescribe that tells the
// protocol of each member.
const describeMemberType = 1

func handleConsumerGroupDescribe(_ context.Context, c *Conn, h wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.ConsumerGroupDescribeRequest)
	return func(context.Context) Reply {
		resp, im := &wire.ConsumerGroupDescribeResponse{}, c.srv.backend.image()
		for _, id := range req.GroupIDs {
			resp.Groups = append(resp.Groups, c.srv.describeConsumer(im, h.Version, req, id))
		}
		return Reply{Body: resp}
	}
}

// describeConsumer describes one group. The error message of a group without an
// error says why it is not stable.
func (s *server) describeConsumer(im *fsm.Image, version int16, req *wire.ConsumerGroupDescribeRequest, id string) wire.ConsumerGroupDescribedGroup {
	out := wire.DefaultConsumerGroupDescribedGroup()
	out.GroupID = id
	if req.IncludeAuthorizedOperations {
		out.AuthorizedOperations = groupOperations
	}
	err := checkGroupID(id)
	var v groupView
	if err == nil {
		v, err = s.backend.groups.view(id)
	}
	if err == nil && v.Kind != fsm.ConsumerGroup {
		err = refused(wire.GroupIDNotFound, "group %s is not a consumer group", shorten(id))
	}
	if err != nil {
		out.ErrorCode, out.ErrorMessage = s.code(err), messageOf(err)
		return out
	}
	out.GroupState, out.GroupEpoch, out.AssignmentEpoch, out.AssignorName = v.State.String(), v.Epoch, v.AssignmentEpoch, v.Protocol
	if v.State != group.Stable {
		out.ErrorMessage = optional(v.why)
	}
	if req.IncludeHistory {
		out.History = historyBytes(v.history)
	}
	for i := range v.Members {
		out.Members = append(out.Members, describedMember(im, version, &v.Members[i]))
	}
	return out
}

func describedMember(im *fsm.Image, version int16, m *group.MemberDescription) wire.ConsumerGroupMember {
	d := wire.DefaultConsumerGroupMember()
	d.MemberID, d.InstanceID, d.RackID, d.MemberEpoch = m.ID, optional(m.InstanceID), optional(m.Rack), m.Epoch
	d.ClientID, d.ClientHost = m.ClientID, m.ClientHost
	d.SubscribedTopicNames, d.SubscribedTopicRegex = m.Topics, optional(m.Regex)
	d.Assignment, d.TargetAssignment = describedAssignment(im, m.Assigned), describedAssignment(im, m.Target)
	if version >= describeMemberType {
		d.MemberType = wire.MemberTypeConsumer
		if m.Kind == fsm.ClassicGroup {
			d.MemberType = wire.MemberTypeClassic
		}
	}
	return d
}

// describedAssignment names the topics that are still there.
func describedAssignment(im *fsm.Image, list []fsm.TopicPartitions) wire.ConsumerGroupAssignment {
	var out wire.ConsumerGroupAssignment
	for _, t := range list {
		if topic, ok := im.Topic(t.Topic); ok {
			out.TopicPartitions = append(out.TopicPartitions,
				wire.ConsumerGroupTopicPartitions{TopicID: t.Topic, TopicName: topic.Name, Partitions: t.Partitions})
		}
	}
	return out
}
