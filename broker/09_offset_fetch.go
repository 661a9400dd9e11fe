package broker

import (
	"context"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

const (
	// fetchGroups is the first version of OffsetFetch that asks for many groups.
	fetchGroups = 8
	// fetchTopicIDs is the first version that names topics by id.
	fetchTopicIDs = 10
	// fetchGroupError is the first version that has an error for the whole answer.
	fetchGroupError = 2
)

func handleOffsetFetch(_ context.Context, c *Conn, h wire.RequestHeader, r wire.Request) Pending {
	return func(ctx context.Context) Reply {
		ctx, cancel := context.WithTimeout(ctx, syncWait)
		defer cancel()
		f := offsetFetch{srv: c.srv, version: h.Version}
		return Reply{Body: f.response(ctx, r.(*wire.OffsetFetchRequest))}
	}
}

// offsetFetch is one OffsetFetch request. What was never committed, the group
// included, has offset -1 and is no error. No offset is ever unstable here, since
// there are no transactions.
//
// What is told was the last commit at some time after the question: a coordinator
// that was deposed, and does not know it yet, would else tell less than was
// acknowledged. A session does not exclude that: see controller.Node.Sync.
type offsetFetch struct {
	srv     *server
	version int16
	synced  bool // the Image is no older than the request
}

func (f *offsetFetch) response(ctx context.Context, req *wire.OffsetFetchRequest) *wire.OffsetFetchResponse {
	resp := &wire.OffsetFetchResponse{}
	if f.version >= fetchGroups {
		for i := range req.Groups {
			resp.Groups = append(resp.Groups, f.group(ctx, &req.Groups[i]))
		}
		return resp
	}
	one := wire.DefaultOffsetFetchRequestGroup()
	one.GroupID, one.Topics = req.GroupID, req.Topics
	if f.version < fetchGroupError && one.Topics == nil {
		one.Topics = []wire.OffsetFetchRequestTopic{}
	}
	got := f.group(ctx, &one)
	resp.Topics, resp.ErrorCode = got.Topics, got.ErrorCode
	if f.version < fetchGroupError && got.ErrorCode != wire.None {
		resp.Topics = f.refuse(one.Topics, got.ErrorCode)
	}
	return resp
}

// group answers for one group.
func (f *offsetFetch) group(ctx context.Context, g *wire.OffsetFetchRequestGroup) wire.OffsetFetchResponseGroup {
	out := wire.OffsetFetchResponseGroup{GroupID: g.GroupID}
	im, err := f.readable(ctx, g)
	if err != nil {
		out.ErrorCode = f.srv.code(err)
		return out
	}
	if g.Topics == nil {
		out.Topics = f.all(im, g.GroupID)
		return out
	}
	out.Topics = make([]wire.OffsetFetchResponseTopic, 0, len(g.Topics))
	for i := range g.Topics {
		out.Topics = append(out.Topics, f.topic(im, g.GroupID, &g.Topics[i]))
	}
	return out
}

// readable returns the Image in which the offsets of a group are to be read. The
// controller is asked once for all groups of the request, and only by a node that
// believes to coordinate one of them.
func (f *offsetFetch) readable(ctx context.Context, g *wire.OffsetFetchRequestGroup) (*fsm.Image, error) {
	groups := f.srv.backend.groups
	if !f.synced {
		if err := groups.coordinates(g.GroupID); err != nil {
			return nil, err
		}
		if f.srv.backend.sync(ctx) != nil {
			return nil, errNotCoordinator
		}
		f.synced = true
	}
	return groups.readable(g.GroupID, present(g.MemberID), g.MemberEpoch)
}

func (f *offsetFetch) topic(im *fsm.Image, group string, in *wire.OffsetFetchRequestTopic) wire.OffsetFetchResponseTopic {
	out := wire.OffsetFetchResponseTopic{Name: in.Name, TopicID: in.TopicID, Partitions: make([]wire.OffsetFetchResponsePartition, 0, len(in.PartitionIndexes))}
	topic, err := topicOf(im, f.version, fetchTopicIDs, in.Name, in.TopicID)
	for _, index := range in.PartitionIndexes {
		p := nothingCommitted(index)
		switch {
		case err == nil:
			if c, ok := im.Committed(group, fsm.TopicPartition{Topic: topic.ID, Partition: index}); ok {
				p = committedPartition(index, c)
			}
		case f.version >= fetchTopicIDs:
			p.ErrorCode = f.srv.code(err)
		}
		out.Partitions = append(out.Partitions, p)
	}
	return out
}

// all answers with whatever the group has committed, topic by topic.
func (f *offsetFetch) all(im *fsm.Image, group string) []wire.OffsetFetchResponseTopic {
	out := []wire.OffsetFetchResponseTopic{}
	for tp, c := range im.CommittedOf(group) {
		t, ok := im.Topic(tp.Topic)
		if !ok {
			continue
		}
		if len(out) == 0 || out[len(out)-1].Name != t.Name {
			out = append(out, wire.OffsetFetchResponseTopic{Name: t.Name, TopicID: t.ID})
		}
		last := &out[len(out)-1]
		last.Partitions = append(last.Partitions, committedPartition(tp.Partition, c))
	}
	return out
}

// refuse answers every partition with an error.
func (f *offsetFetch) refuse(topics []wire.OffsetFetchRequestTopic, code wire.Code) []wire.OffsetFetchResponseTopic {
	out := make([]wire.OffsetFetchResponseTopic, 0, len(topics))
	for _, t := range topics {
		o := wire.OffsetFetchResponseTopic{Name: t.Name}
		for _, index := range t.PartitionIndexes {
			p := nothingCommitted(index)
			p.ErrorCode = code
			o.Partitions = append(o.Partitions, p)
		}
		out = append(out, o)
	}
	return out
}

func nothingCommitted(index int32) wire.OffsetFetchResponsePartition {
	p := wire.DefaultOffsetFetchResponsePartition()
	p.PartitionIndex, p.CommittedOffset, p.Metadata = index, -1, new(string)
	return p
}

func committedPartition(index int32, c fsm.Committed) wire.OffsetFetchResponsePartition {
	return wire.OffsetFetchResponsePartition{
		PartitionIndex: index, CommittedOffset: c.Offset, CommittedLeaderEpoch: c.LeaderEpoch, Metadata: &c.Metadata}
}

// coordinates returns nil if this node coordinates a group, as far as it knows.
func (g *groups) coordinates(id string) error {
	t, _, err := g.enter(id)
	if err != nil {
		return err
	}
	t.shard.mu.Unlock()
	return nil
}

// readable returns the Image in which the offsets of a group are to be read, if
// this node coordinates it by that Image. A member of the consumer protocol must show its epoch.
func (g *groups) readable(id, member string, epoch int32) (*fsm.Image, error) {
	t, im, err := g.enter(id)
	if err != nil {
		return nil, err
	}
	defer t.shard.mu.Unlock()
	if member == "" && epoch < 0 {
		return im, nil
	}
	lg := t.find(im, id, g.now())
	if lg == nil {
		return im, nil
	}
	return im, groupError(lg.core.CheckFetch(member, epoch))
}
