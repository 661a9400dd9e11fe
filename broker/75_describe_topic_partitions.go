package broker

import (
	"context"
	"slices"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

// describePageMax bounds the partitions of one page (max.request.partition.size.limit).
const describePageMax = 2000

func handleDescribeTopicPartitions(_ context.Context, c *Conn, _ wire.RequestHeader, r wire.Request) Pending {
	return func(context.Context) Reply {
		req := r.(*wire.DescribeTopicPartitionsRequest)
		d := describe{
			srv:  c.srv,
			im:   c.srv.backend.image(),
			left: max(min(req.ResponsePartitionLimit, describePageMax), 1),
			resp: new(wire.DescribeTopicPartitionsResponse),
		}
		d.answer(req)
		return Reply{Body: d.resp}
	}
}

// describe fills one page: topics by rising name, each with the partitions that
// still fit. The cursor names the first partition that did not.
type describe struct {
	srv  *server
	im   *fsm.Image
	left int32
	resp *wire.DescribeTopicPartitionsResponse
}

func (d *describe) answer(req *wire.DescribeTopicPartitionsRequest) {
	start := wire.TopicPartitionCursor{}
	if req.Cursor != nil {
		start = *req.Cursor
	}
	all := len(req.Topics) == 0
	names := make([]string, 0, len(req.Topics))
	for _, t := range req.Topics {
		names = append(names, t.Name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if req.Cursor != nil && (start.PartitionIndex < 0 || !all && !slices.Contains(names, start.TopicName)) {
		d.refuse(names)
		return
	}
	if all {
		for t := range d.im.Topics() {
			if t.Name >= start.TopicName && !d.topic(t.Name, t, start) {
				return
			}
		}
		return
	}
	for _, name := range names {
		t, _ := d.im.TopicByName(name)
		if name >= start.TopicName && !d.topic(name, t, start) {
			return
		}
	}
}

// refuse answers every topic with INVALID_REQUEST.
func (d *describe) refuse(names []string) {
	for _, name := range names {
		d.missing(name, wire.InvalidRequest)
	}
}

func (d *describe) missing(name string, err error) {
	out := wire.DefaultDescribedTopic()
	out.ErrorCode, out.Name = d.srv.code(err), &name
	d.resp.Topics = append(d.resp.Topics, out)
}

// topic adds one topic; t is nil when there is none of that name. It returns
// false when the page ended before it.
func (d *describe) topic(name string, t *fsm.Topic, start wire.TopicPartitionCursor) bool {
	if d.resp.NextCursor != nil {
		return false
	}
	if d.left == 0 {
		d.resp.NextCursor = &wire.TopicPartitionCursor{TopicName: name}
		return false
	}
	if t == nil {
		d.missing(name, missingTopic(name))
		return true
	}
	first := int32(0)
	if name == start.TopicName {
		first = start.PartitionIndex
	}
	out := wire.DefaultDescribedTopic()
	out.Name, out.TopicID, out.IsInternal, out.TopicAuthorizedOperations = &t.Name, t.ID, isInternal(t.Name), topicOperations
	for i, p := range d.im.Partitions(t.ID) {
		if i < first {
			continue
		}
		if d.left == 0 {
			d.resp.NextCursor = &wire.TopicPartitionCursor{TopicName: name, PartitionIndex: i}
			break
		}
		d.left--
		out.Partitions = append(out.Partitions, d.partition(i, p))
	}
	d.resp.Topics = append(d.resp.Topics, out)
	return true
}

func (d *describe) partition(index int32, p fsm.Partition) wire.DescribedPartition {
	leader, code := liveLeader(d.im, p)
	return wire.DescribedPartition{
		ErrorCode:              code,
		PartitionIndex:         index,
		LeaderID:               leader,
		LeaderEpoch:            p.LeaderEpoch,
		ReplicaNodes:           brokerIDs(p.Replicas),
		IsrNodes:               brokerIDs(p.ISR),
		EligibleLeaderReplicas: brokerIDs(p.ELR),
		LastKnownElr:           brokerIDs(p.LastMembers),
		OfflineReplicas:        offline(d.im, p.Replicas),
	}
}
