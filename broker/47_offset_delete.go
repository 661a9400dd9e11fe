package broker

import (
	"context"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

func handleOffsetDelete(_ context.Context, c *Conn, _ wire.RequestHeader, r wire.Request) Pending {
	d := &offsetDelete{srv: c.srv, req: r.(*wire.OffsetDeleteRequest), resp: &wire.OffsetDeleteResponse{}, done: make(chan error, 1)}
	err := c.srv.backend.groups.deleteOffsets(d)
	return func(ctx context.Context) Reply {
		ctx, cancel := context.WithTimeout(ctx, commitWait)
		defer cancel()
		if err == nil && len(d.gone) > 0 {
			select {
			case err = <-d.done:
			case <-ctx.Done():
				err = errNoCoordinator
			}
		}
		if err != nil {
			return Reply{Body: &wire.OffsetDeleteResponse{ErrorCode: c.srv.code(commitError(memberEpochs, err))}}
		}
		return Reply{Body: d.resp}
	}
}

// offsetDelete is one OffsetDelete request.
type offsetDelete struct {
	srv  *server
	req  *wire.OffsetDeleteRequest
	resp *wire.OffsetDeleteResponse
	gone []fsm.TopicPartition
	done chan error // capacity 1
}

// deleteOffsets proposes that a group forgets offsets of topics that none of its
// members subscribes to.
func (g *groups) deleteOffsets(d *offsetDelete) error {
	if err := checkGroupID(d.req.GroupID); err != nil {
		return err
	}
	t, im, err := g.enter(d.req.GroupID)
	if err != nil {
		return err
	}
	defer t.shard.mu.Unlock()
	lg := t.find(im, d.req.GroupID, g.now())
	if lg == nil {
		return errUnknownGroup
	}
	v := lg.core.Describe()
	if len(v.Members) > 0 && v.Kind == fsm.ClassicGroup && v.ProtocolType != "consumer" {
		return wire.NonEmptyGroup
	}
	known := lg.core.KnowsSubscriptions()
	d.collect(im, func(topic string) bool { return !known || lg.core.Subscribed(topic) })
	if len(d.gone) > 0 {
		t.propose(&slotChange{
			what: fsm.DeleteOffsets{Group: d.req.GroupID, Partitions: d.gone}, size: len(d.req.GroupID) + 20*len(d.gone),
			settle: func(err error) { d.done <- err },
		})
	}
	return nil
}

// collect makes the answer and what is to be forgotten.
func (d *offsetDelete) collect(im *fsm.Image, subscribed func(topic string) bool) {
	for _, in := range d.req.Topics {
		out := wire.OffsetDeleteTopicResponse{Name: in.Name}
		topic, ok := im.TopicByName(in.Name)
		for _, p := range in.Partitions {
			answer := wire.OffsetDeletePartitionResponse{PartitionIndex: p.PartitionIndex}
			switch {
			case !ok:
				answer.ErrorCode = d.srv.code(errUnknownPartition)
			case subscribed(in.Name):
				answer.ErrorCode = d.srv.code(wire.GroupSubscribedToTopic)
			case p.PartitionIndex >= 0:
				d.gone = append(d.gone, fsm.TopicPartition{Topic: topic.ID, Partition: p.PartitionIndex})
			}
			out.Partitions = append(out.Partitions, answer)
		}
		d.resp.Topics = append(d.resp.Topics, out)
	}
}
