package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

const (
	// memberEpochs is the first version of OffsetCommit that knows member epochs.
	memberEpochs = 9
	// commitTopicIDs is the first version that names topics by id.
	commitTopicIDs = 10
	// commitWait bounds how long a commit waits to be stored; then the client is
	// told to ask again, which is harmless.
	commitWait = 5 * time.Second
	// commitPartitions is about how many partitions one change carries, so that no
	// client makes a huge entry of the metadata log.
	commitPartitions = 8192
)

func handleOffsetCommit(_ context.Context, c *Conn, h wire.RequestHeader, r wire.Request) Pending {
	oc := &offsetCommit{srv: c.srv, conn: c.number, version: h.Version, req: r.(*wire.OffsetCommitRequest)}
	if err := oc.submit(); err != nil {
		return func(context.Context) Reply { return Reply{Close: err} }
	}
	return func(ctx context.Context) Reply {
		oc.wait(ctx)
		return Reply{Body: oc.resp}
	}
}

// offsetCommit is one OffsetCommit request. Its first stage queues what can be
// stored, so that commits of one connection keep their order.
type offsetCommit struct {
	srv     *server
	conn    uint64 // the number of its connection
	version int16
	req     *wire.OffsetCommitRequest
	resp    *wire.OffsetCommitResponse
	ids     []fsm.TopicID // of the request's topics, where they are known
	parts   []*commitPart
}

// commitPart is one change that is on its way, and whose partitions it holds.
type commitPart struct {
	what fsm.CommitOffsets
	size int
	at   []commitAt
	done chan error // capacity 1
}

// commitAt is where the answer of one partition goes: its places in the response.
type commitAt struct{ topic, partition int32 }

// submit queues what can be stored. An error ends the connection.
func (o *offsetCommit) submit() error {
	g := o.srv.backend.groups
	im := o.srv.backend.image()
	o.collect(im)
	if len(o.parts) == 0 {
		return nil
	}
	err := g.commit(o)
	if errors.Is(err, errLateCommit) {
		return err
	}
	if err != nil {
		o.failAll(err)
	}
	return nil
}

// collect makes the answer, with what is wrong with single partitions, and the
// changes of the others.
func (o *offsetCommit) collect(im *fsm.Image) {
	o.resp = &wire.OffsetCommitResponse{Topics: make([]wire.OffsetCommitTopicResponse, len(o.req.Topics))}
	o.ids = make([]fsm.TopicID, len(o.req.Topics))
	for i := range o.req.Topics {
		in, out := &o.req.Topics[i], &o.resp.Topics[i]
		out.Name, out.TopicID = in.Name, in.TopicID
		out.Partitions = make([]wire.OffsetCommitPartitionResponse, len(in.Partitions))
		topic, err := topicOf(im, o.version, commitTopicIDs, in.Name, in.TopicID)
		if err == nil {
			o.ids[i] = topic.ID
		}
		for j := range in.Partitions {
			p := &in.Partitions[j]
			out.Partitions[j].PartitionIndex = p.PartitionIndex
			wrong := err
			if wrong == nil {
				wrong = o.check(topic, p)
			}
			if wrong != nil {
				out.Partitions[j].ErrorCode = o.srv.code(wrong)
				continue
			}
			o.add(commitAt{int32(i), int32(j)}, p)
		}
	}
	for _, part := range o.parts {
		part.sort()
	}
}

// check says what is wrong with one partition.
func (o *offsetCommit) check(t *fsm.Topic, p *wire.OffsetCommitPartition) error {
	switch {
	case p.PartitionIndex < 0 || p.PartitionIndex >= t.Partitions:
		return errUnknownPartition
	case len(present(p.CommittedMetadata)) > o.srv.backend.groups.config.OffsetMetadataMax:
		return wire.OffsetMetadataTooLarge
	}
	return nil
}

// add puts one partition into the last change, or begins another.
func (o *offsetCommit) add(at commitAt, p *wire.OffsetCommitPartition) {
	if len(o.parts) == 0 || len(o.parts[len(o.parts)-1].at) >= commitPartitions {
		o.parts = append(o.parts, &commitPart{done: make(chan error, 1), size: len(o.req.GroupID) + len(o.req.MemberID)})
	}
	part := o.parts[len(o.parts)-1]
	topics, id := part.what.Topics, o.ids[at.topic]
	if len(topics) == 0 || topics[len(topics)-1].Topic != id {
		left := min(len(o.req.Topics[at.topic].Partitions)-int(at.partition), commitPartitions)
		topics = append(topics, fsm.CommitTopic{Topic: id, Partitions: make([]fsm.CommitPartition, 0, left)})
		part.what.Topics, part.at = topics, slices.Grow(part.at, left)
		part.size += 18
	}
	last, metadata := &topics[len(topics)-1], present(p.CommittedMetadata)
	last.Partitions = append(last.Partitions, fsm.CommitPartition{
		Partition: p.PartitionIndex, LeaderEpoch: p.CommittedLeaderEpoch, Offset: p.CommittedOffset, Metadata: metadata})
	part.size += 12 + len(metadata)
	part.at = append(part.at, at)
}

// sort orders the partitions of each topic, which makes the entry short. A stable
// sort keeps the last of two commits of one partition the last.
func (p *commitPart) sort() {
	for i := range p.what.Topics {
		if ps := p.what.Topics[i].Partitions; !ascending(ps) {
			slices.SortStableFunc(ps, func(a, b fsm.CommitPartition) int { return int(a.Partition) - int(b.Partition) })
		}
	}
}

// ascending tells whether there is nothing to sort, as nearly always.
func ascending(ps []fsm.CommitPartition) bool {
	for i := 1; i < len(ps); i++ {
		if ps[i].Partition < ps[i-1].Partition {
			return false
		}
	}
	return true
}

func (o *offsetCommit) failAll(err error) {
	for _, part := range o.parts {
		o.fail(part, err)
	}
	o.parts = nil
}

func (o *offsetCommit) fail(part *commitPart, err error) {
	code := o.srv.code(err)
	for _, at := range part.at {
		o.out(at).ErrorCode = code
	}
}

// out is the answer of one partition.
func (o *offsetCommit) out(at commitAt) *wire.OffsetCommitPartitionResponse {
	return &o.resp.Topics[at.topic].Partitions[at.partition]
}

// wait takes the outcomes of all changes.
func (o *offsetCommit) wait(ctx context.Context) {
	if len(o.parts) == 0 {
		return
	}
	limit := time.NewTimer(commitWait)
	defer limit.Stop()
	for _, part := range o.parts {
		select {
		case err := <-part.done:
			o.settle(part, err)
		case <-ctx.Done():
			o.fail(part, errNoCoordinator)
		case <-limit.C:
			o.fail(part, errNoCoordinator)
			limit.Reset(0) // the others are late too
		}
	}
}

func (o *offsetCommit) settle(part *commitPart, err error) {
	switch {
	case err == nil:
	case errors.Is(err, fsm.UnknownTopic), errors.Is(err, fsm.UnknownPartition):
		o.failMissing(part)
	default:
		o.fail(part, commitError(o.version, err))
	}
}

// failMissing answers for partitions whose topic was deleted on the way; all
// others have been stored.
func (o *offsetCommit) failMissing(part *commitPart) {
	im, missing := o.srv.backend.image(), errUnknownPartition
	if o.version >= commitTopicIDs {
		missing = errUnknownTopicID
	}
	for _, at := range part.at {
		out := o.out(at)
		if _, ok := im.Partition(fsm.TopicPartition{Topic: o.ids[at.topic], Partition: out.PartitionIndex}); !ok {
			out.ErrorCode = o.srv.code(missing)
		}
	}
}

// errLateCommit: a commit may have been on its way for long. A network that was cut delivers it when
// it is whole again, though its client gave the connection up meanwhile, sent it again on another, and
// committed more since. So no commit is taken from a connection that is older than this node's
// tenure of the slot, nor from a member that has committed on a newer one. Such a
// connection is closed: a client that lives opens another, and one that does not hears nothing.
//
// Kafka takes it, and the committed offset goes back.
var errLateCommit = errors.New("a commit on an old connection may be late: the client is to connect again")

// commit checks who commits and queues the changes. An error means that none was.
func (g *groups) commit(o *offsetCommit) error {
	req := o.req
	t, im, err := g.enter(req.GroupID)
	if err != nil {
		return err
	}
	defer t.shard.mu.Unlock()
	if o.conn <= t.conns {
		return errLateCommit
	}
	now := g.now()
	if err := t.checkCommit(im, o, now); err != nil {
		return err
	}
	expire := int64(-1)
	if req.RetentionTimeMs >= 0 {
		expire = now.UnixMilli() + req.RetentionTimeMs
	}
	for _, part := range o.parts {
		what := &part.what
		what.Group, what.Member, what.Instance = req.GroupID, req.MemberID, present(req.GroupInstanceID)
		what.Epoch, what.CommitMs, what.ExpireMs = req.GenerationIDOrMemberEpoch, now.UnixMilli(), expire
		t.propose(&slotChange{what: *what, size: part.size, settle: func(err error) { part.done <- err }})
	}
	return nil
}
