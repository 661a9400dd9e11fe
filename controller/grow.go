package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/codec"
)

// MorePartitions asks for a topic to have more partitions.
type MorePartitions struct {
	ID fsm.TopicID
	// Count is how many there shall be, old ones included.
	Count int32
	// Assignment names the replicas of each new partition, the preferred leader first; nil
	// lets the controller place them.
	Assignment [][]fsm.BrokerID
	// ValidateOnly asks what would happen.
	ValidateOnly bool
}

// AddPartitions has partitions added by the controller and returns one result each, in
// order, once the local Image shows them.
func (n *Node) AddPartitions(ctx context.Context, topics []MorePartitions) ([]TopicResult, error) {
	return n.changeTopics(ctx, &addPartitionsRequest{topics: topics})
}

type addPartitionsRequest struct{ topics []MorePartitions }

func (*addPartitionsRequest) op() op { return opAddPartitions }

// Asked again, it would say that the topic has that many already.
func (*addPartitionsRequest) repeatable() bool { return false }
func (r *addPartitionsRequest) code(c *codec.Coder) {
	codec.ArrayOf(c, &r.topics, 64, func(c *codec.Coder, m *MorePartitions) {
		c.UUID((*[16]byte)(&m.ID))
		c.Int32(&m.Count)
		codec.NullableArray(c, &m.Assignment, func(c *codec.Coder, ids *[]fsm.BrokerID) {
			codec.ArrayOf(c, ids, 4, codeBroker)
		})
		c.Bool(&m.ValidateOnly)
	})
}

func (t *term) addPartitions(ctx context.Context, r *addPartitionsRequest) (reply, error) {
	rep := topicsReply{index: t.n.Image().Index(), results: make([]TopicResult, len(r.topics))}
	for i, m := range r.topics {
		res, index, err := t.growTopic(ctx, m)
		if err != nil {
			return nil, err
		}
		res.ID = m.ID
		rep.results[i], rep.index = res, max(rep.index, index)
	}
	return &rep, nil
}

// growTopic adds partitions to one topic; the error is for the whole request.
func (t *term) growTopic(ctx context.Context, m MorePartitions) (TopicResult, uint64, error) {
	for range createTries {
		im := t.n.Image()
		topic, ok := im.Topic(m.ID)
		if !ok {
			return failed(wire.UnknownTopicOrPartition, "This server does not host this topic-partition."), 0, nil
		}
		c, res := t.planGrowth(im, topic, m)
		if c == nil || m.ValidateOnly {
			return res, 0, nil
		}
		got, err := t.n.apply(ctx, fsm.EncodeEntry(nil, []fsm.Command{*c}))
		if err != nil {
			return TopicResult{}, 0, err
		}
		switch refusalOf(got.results[0]) {
		case 0:
			t.log.Info("partitions added", "topic", topic.Name, "partitions", m.Count)
			return res, got.index, nil
		case fsm.BadCommand:
			return TopicResult{}, 0, fmt.Errorf("BUG: the planned partitions of topic %s are malformed", topic.Name)
		}
	}
	return failed(wire.NotEnoughReplicas, "The brokers changed while the partitions were being placed; try again."), 0, nil
}

// planGrowth checks a request and makes the command that grows the topic; nil when it can not be.
func (t *term) planGrowth(im *fsm.Image, topic *fsm.Topic, m MorePartitions) (*fsm.AddPartitions, TopicResult) {
	more := m.Count - topic.Partitions
	switch {
	case m.Count < 1 || more < 0:
		return nil, failed(wire.InvalidPartitions, "The topic %s currently has %d partition(s); %d would not be an increase.", topic.Name, topic.Partitions, m.Count)
	case more == 0:
		return nil, failed(wire.InvalidPartitions, "Topic already has %d partition(s).", topic.Partitions)
	case m.Count > t.n.cfg.Topics.PartitionsMax:
		return nil, failed(wire.InvalidPartitions, "A topic may have at most %d partitions.", t.n.cfg.Topics.PartitionsMax)
	case m.Assignment != nil && len(m.Assignment) != int(more):
		return nil, failed(wire.InvalidReplicaAssignment, "Attempted to add %d additional partition(s), but %d assignment(s) were specified.", more, len(m.Assignment))
	}
	first, _ := im.Partition(fsm.TopicPartition{Topic: topic.ID})
	rf := len(first.Target())
	placed, res := placeMore(im, topic, m, int(more), rf)
	if res.Err != wire.None {
		return nil, res
	}
	c := &fsm.AddPartitions{ID: topic.ID, From: topic.Partitions}
	for i, replicas := range placed {
		p, ok := elect.Initial(im, replicas)
		if !ok {
			return nil, failed(wire.InvalidReplicaAssignment,
				"All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.", int(topic.Partitions)+i)
		}
		c.Partitions = append(c.Partitions, p)
	}
	return c, TopicResult{ID: topic.ID, Partitions: m.Count, RF: int16(rf)}
}

// placeMore returns the replicas of the new partitions, as many of each as the topic has.
func placeMore(im *fsm.Image, topic *fsm.Topic, m MorePartitions, more, rf int) ([][]fsm.BrokerID, TopicResult) {
	for i, replicas := range m.Assignment {
		if why := badReplicas(im, replicas, rf); why != "" {
			return nil, failed(wire.InvalidReplicaAssignment, "The manual partition assignment of partition %d %s.", int(topic.Partitions)+i, why)
		}
	}
	if m.Assignment != nil {
		return m.Assignment, TopicResult{}
	}
	placed, err := elect.Place(im, more, rf, placementSeed(topic.ID)+uint64(topic.Partitions))
	var few *elect.TooFewBrokersError
	if errors.As(err, &few) {
		return nil, failed(wire.InvalidReplicationFactor,
			"Unable to replicate the partition %d time(s): The target replication factor of %d cannot be reached because only %d broker(s) are registered.",
			rf, rf, few.Registered)
	}
	if err != nil {
		return nil, failed(wire.InvalidReplicationFactor, "%v", err)
	}
	return placed, TopicResult{}
}
