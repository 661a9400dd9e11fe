package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/batch"
)

// produceIDs is the first version of Produce with topic ids in place of names.
const produceIDs = 13

// produce is one Produce request. Stage one appends in the order of the request;
// stage two waits for the replicas. A partition that fails does not hold up the others.
type produce struct {
	srv       *server
	version   int16
	acks      int16
	txn       bool // a transactional id was given
	im        *fsm.Image
	rules     batch.Rules
	inflation inflation
	response  *wire.ProduceResponse
	waits     []produceWait
	refused   []produceRefused
	moved     []produceMoved
	failure   error // the first partition's that failed
	begun     time.Time
	deadline  time.Time
	bytes     int
	records   int
	batches   int
}

// produceWait is a batch that was appended and must be replicated before it is acknowledged.
type produceWait struct {
	ticket Ticket
	tp     fsm.TopicPartition
	out    *wire.ProducePartitionResponse
}

// produceRefused is a batch whose sequence the log refused as leader of an epoch.
type produceRefused struct {
	err   error
	epoch batch.Epoch
	tp    fsm.TopicPartition
	out   *wire.ProducePartitionResponse
}

// produceMoved is a partition that this node does not lead.
type produceMoved struct {
	tp  fsm.TopicPartition
	out *wire.ProducePartitionResponse
}

// movedPause lies before an answer that a partition is led elsewhere. Right after
// a hand-over the other nodes learn of it a few milliseconds later than this
// one; a client that is sent away at once finds the old leader in their metadata,
// and waits a quarter of a second or more before it asks again.
const movedPause = 20 * time.Millisecond

func handleProduce(ctx context.Context, c *Conn, h wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.ProduceRequest)
	now := time.Now()
	p := &produce{
		srv:      c.srv,
		version:  h.Version,
		acks:     req.Acks,
		txn:      req.TransactionalID != nil,
		im:       c.srv.backend.image(),
		response: &wire.ProduceResponse{Responses: make([]wire.ProduceTopicResponse, len(req.TopicData))},
		begun:    now,
		deadline: now.Add(time.Duration(max(req.TimeoutMs, 0)) * time.Millisecond),
	}
	p.inflation = inflation{in: c.srv.inflater, buffers: &c.srv.buffers}
	p.rules = batch.Rules{Now: now.UnixMilli(), ZstdAllowed: h.Version >= 7,
		Inflate: func(codec int8, _, src []byte, limit int) ([]byte, error) {
			return p.inflation.inflate(ctx, codec, src, limit)
		}}
	for i := range req.TopicData {
		p.topic(&req.TopicData[i], &p.response.Responses[i])
	}
	p.count()
	switch {
	case p.acks != 0:
		return p.wait
	case p.failure != nil:
		failure := fmt.Errorf("produce with acks=0: %w", p.failure)
		return func(context.Context) Reply { return Reply{Close: failure} }
	}
	return nil
}

// topic appends what the request has for one topic.
func (p *produce) topic(in *wire.ProduceTopic, out *wire.ProduceTopicResponse) {
	out.Name, out.TopicID = in.Name, in.TopicID
	out.PartitionResponses = make([]wire.ProducePartitionResponse, len(in.PartitionData))
	t, err := topicOf(p.im, p.version, produceIDs, in.Name, in.TopicID)
	if err == nil && isInternal(t.Name) {
		t, err = nil, refused(wire.InvalidTopic, "%s is not written to: Weir keeps offsets in its metadata", t.Name)
	}
	if err == nil {
		p.rules.MaxBatchBytes = p.srv.maxBatchBytes(t)
		p.rules.MaxSegmentBytes = int(t.Config.SegmentBytes)
		p.rules.BeforeMax, p.rules.AfterMax = t.Config.BeforeMax, t.Config.AfterMax
		p.rules.AppendTime = t.Config.AppendTime
		_, p.rules.CompactedTopic = p.srv.config.Cleanup.of(t)
		p.rules.MaxInflated = maxInflated(p.rules.MaxBatchBytes)
	}
	for i := range in.PartitionData {
		part, to := &in.PartitionData[i], &out.PartitionResponses[i]
		*to = wire.DefaultProducePartitionResponse()
		to.Index = part.Index
		var tp fsm.TopicPartition
		partErr := err
		if t != nil {
			tp = fsm.TopicPartition{Topic: t.ID, Partition: part.Index}
			partErr = p.append(tp, part.Records, to)
		}
		if partErr != nil {
			to.BaseOffset = -1
			p.fail(tp, to, partErr)
			p.srv.metrics.topics.refused.Inc()
		}
	}
}

// append validates and appends one batch.
func (p *produce) append(tp fsm.TopicPartition, records []byte, out *wire.ProducePartitionResponse) error {
	if p.txn {
		return errTransactional
	}
	if p.acks < -1 || p.acks > 1 {
		return errInvalidAcks
	}
	r, err := p.srv.backend.locate(p.im, tp)
	if err != nil {
		return err
	}
	if leader, _ := r.Leader(); leader != p.srv.backend.self {
		return errNotLeader // before the work of validating
	}
	b, err := batch.Validate(records, p.rules)
	p.inflation.release()
	if err != nil {
		return err
	}
	if b.Transactional() {
		return errTransactional
	}
	size, count := b.Size(), int(b.Count())
	t, err := r.Append(b, p.acks)
	if refusesSequence(err) && p.acks != 0 {
		out.BaseOffset = -1
		p.refused = append(p.refused, produceRefused{err, t.LeaderEpoch, tp, out})
		return nil
	}
	if err != nil {
		return err
	}
	out.BaseOffset, out.LogAppendTimeMs, out.LogStartOffset = t.First, t.AppendTime, t.LogStart
	if p.acks == -1 {
		p.waits = append(p.waits, produceWait{t, tp, out})
	}
	if !t.Duplicate {
		p.bytes += size
		p.records += count
		p.batches++
	}
	return nil
}

// wait is stage two: the answer is ready when all batches are replicated, or the
// request's time is over.
func (p *produce) wait(ctx context.Context) Reply {
	if len(p.waits) > 0 {
		ctx, cancel := context.WithDeadline(ctx, p.deadline)
		defer cancel()
		for i := range p.waits {
			w := &p.waits[i]
			if err := w.ticket.Wait(ctx); err != nil {
				p.fail(w.tp, w.out, err)
			}
		}
	}
	if len(p.refused) > 0 {
		p.judge(ctx)
	}
	if len(p.moved) > 0 {
		p.pointOn(ctx)
	}
	return Reply{Body: p.response}
}

// judge tells of refused sequences if this log surely holds all that the producer was
// answered: no other leader has taken batches that are missing here. Otherwise the
// client would take the refusal for a loss; it is told that this node does not lead.
func (p *produce) judge(ctx context.Context) {
	leads := p.srv.backend.stillLeads(ctx)
	for _, r := range p.refused {
		if !leads(r.tp, r.epoch) {
			r.err = errNotLeader
		}
		p.fail(r.tp, r.out, r.err)
		p.srv.metrics.topics.refused.Inc()
	}
}

// hintsVersion is the first version that names the present leader (KIP-951).
const hintsVersion = 10

// pointOn names the present leaders of partitions that this node does not lead,
// once the others may be expected to know them too.
func (p *produce) pointOn(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(p.begun.Add(movedPause))): // of all requests in flight together
	}
	if p.version < hintsVersion {
		return
	}
	h := hints{im: p.srv.backend.image()}
	for _, m := range p.moved {
		m.out.CurrentLeader = h.leader(m.tp)
	}
	p.response.NodeEndpoints = h.nodes
}

// fail writes err into a partition's answer.
func (p *produce) fail(tp fsm.TopicPartition, out *wire.ProducePartitionResponse, err error) {
	if p.failure == nil {
		p.failure = fmt.Errorf("partition %d of topic %x: %w", out.Index, tp.Topic, err)
	}
	out.ErrorCode = p.srv.code(err)
	var invalid *batch.InvalidError
	switch {
	case errors.As(err, &invalid):
		out.ErrorMessage = &invalid.Msg
		if invalid.Record >= 0 {
			out.RecordErrors = []wire.RecordError{{BatchIndex: int32(invalid.Record), BatchIndexErrorMessage: &invalid.Msg}}
		}
	case errors.Is(err, errTransactional):
		out.ErrorMessage = messageOf(err)
	case out.ErrorCode == wire.NotLeaderOrFollower:
		p.moved = append(p.moved, produceMoved{tp, out})
	}
}

// count adds what was appended to the metrics.
func (p *produce) count() {
	m := &p.srv.metrics.topics
	m.bytesIn.Add(float64(p.bytes))
	m.recordsIn.Add(float64(p.records))
	m.batchesIn.Add(float64(p.batches))
}

// maxBatchBytes is the largest batch that a topic takes.
func (s *server) maxBatchBytes(t *fsm.Topic) int {
	if _, own := t.Configs["max.message.bytes"]; own {
		return t.Config.MaxMessageBytes
	}
	return s.config.MessageMaxBytes
}
