package controller

import (
	"context"
	"fmt"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/codec"
)

// TopicAlteration is a change of one topic's configs.
type TopicAlteration struct {
	ID  fsm.TopicID
	Ops []fsm.ConfigOp
	// Whole says that Ops, which set values only, are all the configs that the topic is to have.
	Whole bool
	// ValidateOnly asks what would happen.
	ValidateOnly bool
}

// alterTries is how often a change is planned anew when the same configs changed meanwhile.
const alterTries = 3

// AlterTopics has configs changed by the controller and returns one result each, in order,
// once the local Image shows them. Each topic's change happens as a whole or not at all.
func (n *Node) AlterTopics(ctx context.Context, changes []TopicAlteration) ([]TopicResult, error) {
	return n.changeTopics(ctx, &alterTopicsRequest{changes: changes})
}

type alterTopicsRequest struct{ changes []TopicAlteration }

func (*alterTopicsRequest) op() op { return opAlterTopics }

// Steps that were taken already change nothing.
func (*alterTopicsRequest) repeatable() bool { return true }
func (r *alterTopicsRequest) code(c *codec.Coder) {
	codec.ArrayOf(c, &r.changes, 64, func(c *codec.Coder, a *TopicAlteration) {
		c.UUID((*[16]byte)(&a.ID))
		codec.ArrayOf(c, &a.Ops, 64, func(c *codec.Coder, o *fsm.ConfigOp) {
			c.String(&o.Name)
			c.Uint8((*uint8)(&o.Op))
			c.String(&o.Value)
		})
		c.Bool(&a.Whole)
		c.Bool(&a.ValidateOnly)
	})
}

// alterTopics plans and commits each change. Like createTopics it runs on the caller's
// goroutine: Apply's guards catch what changes meanwhile.
func (t *term) alterTopics(ctx context.Context, r *alterTopicsRequest) (reply, error) {
	rep := topicsReply{index: t.n.Image().Index(), results: make([]TopicResult, len(r.changes))}
	for i, a := range r.changes {
		res, index, err := t.alterTopic(ctx, a)
		if err != nil {
			return nil, err
		}
		res.ID = a.ID
		rep.results[i], rep.index = res, max(rep.index, index)
	}
	return &rep, nil
}

// alterTopic changes the configs of one topic; the error is for the whole request.
func (t *term) alterTopic(ctx context.Context, a TopicAlteration) (TopicResult, uint64, error) {
	for range alterTries {
		topic, ok := t.n.Image().Topic(a.ID)
		if !ok {
			return failed(wire.UnknownTopicOrPartition, "This server does not host this topic-partition."), 0, nil
		}
		changes, err := planAlteration(topic, a)
		switch {
		case err != nil:
			return failed(wire.InvalidConfig, "%v", err), 0, nil
		case len(changes) == 0 || a.ValidateOnly:
			return TopicResult{}, 0, nil
		}
		c := fsm.AlterTopicConfigs{ID: a.ID, Changes: changes}
		got, err := t.n.apply(ctx, fsm.EncodeEntry(nil, []fsm.Command{c}))
		if err != nil {
			return TopicResult{}, 0, err
		}
		switch refusalOf(got.results[0]) {
		case 0:
			t.log.Info("topic configs changed", "topic", topic.Name, "configs", len(changes))
			return TopicResult{}, got.index, nil
		case fsm.BadCommand:
			return TopicResult{}, 0, fmt.Errorf("BUG: the planned change of topic %s is malformed: %v", topic.Name, changes)
		}
	}
	return failed(wire.RequestTimedOut, "The configs of the topic are being changed by others; try again."), 0, nil
}

func planAlteration(t *fsm.Topic, a TopicAlteration) ([]fsm.ConfigChange, error) {
	if !a.Whole {
		return t.PlanConfigs(a.Ops)
	}
	configs := make([][2]string, len(a.Ops))
	for i, o := range a.Ops {
		configs[i] = [2]string{o.Name, o.Value}
	}
	return t.PlanReplacement(configs)
}
