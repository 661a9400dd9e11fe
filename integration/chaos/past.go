package chaos

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/integration/chaos/work"
)

// overGeneration is one that no member is in: generations and epochs begin with 1.
const overGeneration = 0

// commitOfThePast commits offset 0 as each member of each group, and as one that is
// gone, in a generation that is over; whoever coordinates the group must refuse it.
func (r *Run) commitOfThePast(ctx context.Context) error {
	for _, g := range r.groups {
		members, err := r.members(ctx, g)
		id, e := r.topicID(ctx, g.Topic.Name)
		if err != nil || e != nil {
			continue // the coordinator is between two nodes
		}
		for _, m := range append(members, "a-member-of-the-past") {
			r.tryPast(ctx, g, id, m)
		}
	}
	return ctx.Err()
}

// topicID is the id of one of the run's topics.
func (r *Run) topicID(ctx context.Context, name string) (id [16]byte, err error) {
	m, err := r.metadata(ctx)
	if err != nil {
		return id, err
	}
	for _, t := range m.Topics {
		if *t.Topic == name && t.ErrorCode == 0 {
			return t.TopicID, nil
		}
	}
	return id, errors.New("the topic was not described")
}

// tryPast commits offset 0 as a member in a generation that is over. Where nobody
// answers nothing was taken that we know of; an answer that is about the topic says
// nothing of the generation, and must not be.
func (r *Run) tryPast(ctx context.Context, g work.Membership, id [16]byte, member string) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation, req.MemberID = g.Group, overGeneration, member
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID = g.Topic.Name, id
	topic.Partitions = append(topic.Partitions, kmsg.NewOffsetCommitRequestTopicPartition())
	req.Topics = append(req.Topics, topic)
	wait, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	answer, err := req.RequestWith(wait, r.crew.Client())
	if err != nil {
		return
	}
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			switch err := kerr.ErrorForCode(p.ErrorCode); {
			case err == nil:
				r.book.Problem("group %s took a commit of a generation that is over", g.Group)
			case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.UnknownTopicOrPartition):
				r.book.Problem("group %s: a commit of a generation that is over was refused for its topic: %v", g.Group, err)
			}
		}
	}
}

// members lists the ids of a group's members.
func (r *Run) members(ctx context.Context, g work.Membership) ([]string, error) {
	wait, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	if g.Protocol == work.Consumer {
		described, err := r.crew.Admin().DescribeConsumerGroups(wait, g.Group)
		if err != nil {
			return nil, err
		}
		var ids []string
		for _, m := range described[g.Group].Members {
			ids = append(ids, m.MemberID)
		}
		return ids, described[g.Group].Err
	}
	described, err := r.crew.Admin().DescribeGroups(wait, g.Group)
	if err != nil {
		return nil, err
	}
	group, ok := described[g.Group]
	if !ok {
		return nil, errors.New("the group was not described")
	}
	var ids []string
	for _, m := range group.Members {
		ids = append(ids, m.MemberID)
	}
	return ids, group.Err
}
