package controller

import (
	"errors"
	"fmt"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/codec"
)

// op names one call to the controller.
type op uint8

const (
	opRegister     op = 1
	opHeartbeat    op = 2
	opPropose      op = 3
	opCreateTopics op = 4
	opDeleteTopics op = 5
	opStop         op = 6
	opRefused      op = 7
	opSync         op = 8

	opAlterTopics   op = 9
	opAddPartitions op = 10
	opElect         op = 11
	opQuorum        op = 12

	// opLogEnds is the one call that the controller makes to the others.
	opLogEnds op = 13
	// These are asked by one voter of another.
	opGone  op = 14
	opHeard op = 15

	opReassign    op = 16
	opJoin        op = 20
	opAddVoter    op = 21
	opRemoveVoter op = 22
	opRemoveNode  op = 23
)

// status is the outcome of a call, before its body.
type status uint8

const (
	// statusOK: the body follows.
	statusOK status = 0
	// statusNotController: the node does not decide now; nothing was done.
	statusNotController status = 1
	// statusUnknown: the call may or may not have taken effect.
	statusUnknown status = 2
	// statusBad: the request can not be understood.
	statusBad status = 3
)

// request is one call to the controller; code reads or writes its fields.
type request interface {
	op() op
	// repeatable tells whether the call may be sent again when its outcome is unknown.
	repeatable() bool
	code(c *codec.Coder)
}

// reply is the body of a successful answer.
type reply interface{ code(c *codec.Coder) }

// newRequest returns an empty request to read into; nil for an unknown op.
func newRequest(o op) request {
	switch o {
	case opRegister:
		return &registerRequest{}
	case opHeartbeat:
		return &heartbeatRequest{}
	case opPropose:
		return &proposeRequest{}
	case opCreateTopics:
		return &createTopicsRequest{}
	case opDeleteTopics:
		return &deleteTopicsRequest{}
	case opStop:
		return &stopRequest{}
	case opRefused:
		return &refusedRequest{}
	case opSync:
		return &syncRequest{}
	case opAlterTopics:
		return &alterTopicsRequest{}
	case opAddPartitions:
		return &addPartitionsRequest{}
	case opElect:
		return &electRequest{}
	case opQuorum:
		return &quorumRequest{}
	case opLogEnds:
		return &logEndsRequest{}
	case opGone:
		return &goneRequest{}
	case opHeard:
		return &heardRequest{}
	case opReassign:
		return &reassignRequest{}
	case opJoin:
		return &joinRequest{}
	case opAddVoter:
		return &addVoterRequest{}
	case opRemoveVoter:
		return &removeVoterRequest{}
	case opRemoveNode:
		return &removeNodeRequest{}
	}
	return nil
}

// newReply returns an empty reply to read into.
func newReply(o op) reply {
	switch o {
	case opRegister:
		return &registerReply{}
	case opHeartbeat:
		return &heartbeatReply{}
	case opPropose:
		return &proposeReply{}
	case opCreateTopics, opDeleteTopics, opAlterTopics, opAddPartitions:
		return &topicsReply{}
	case opElect:
		return &electReply{}
	case opQuorum:
		return &quorumReply{}
	case opLogEnds:
		return &logEndsReply{}
	case opGone:
		return &goneReply{}
	case opHeard:
		return &heardReply{}
	case opReassign:
		return &reassignReply{}
	case opJoin:
		return &joinReply{}
	case opAddVoter, opRemoveVoter, opRemoveNode:
		return &memberReply{}
	case opStop, opRefused, opSync:
		return &indexReply{}
	}
	panic(fmt.Sprintf("BUG: op %d has no reply", o))
}

// registerRequest asks for a new broker epoch.
type registerRequest struct {
	id        fsm.BrokerID
	folder    [16]byte
	process   [16]byte // nonce of the process
	bootID    string
	client    fsm.Endpoint
	peer      fsm.Endpoint
	rack      string
	prevClean fsm.BrokerEpoch
	replaces  fsm.BrokerEpoch // what the process found under its id, 0 for none
}

func (*registerRequest) op() op           { return opRegister }
func (*registerRequest) repeatable() bool { return true }
func (r *registerRequest) code(c *codec.Coder) {
	codeBroker(c, &r.id)
	c.UUID(&r.folder)
	c.UUID(&r.process)
	c.String(&r.bootID)
	codeEndpoint(c, &r.client)
	codeEndpoint(c, &r.peer)
	c.String(&r.rack)
	codeBrokerEpoch(c, &r.prevClean)
	codeBrokerEpoch(c, &r.replaces)
}

// registerReply grants an epoch, or says why not.
type registerReply struct {
	epoch   fsm.BrokerEpoch
	index   uint64
	refusal fsm.Refusal
}

func (r *registerReply) code(c *codec.Coder) {
	codeBrokerEpoch(c, &r.epoch)
	c.Uint64(&r.index)
	codeRefusal(c, &r.refusal)
}

// heartbeatRequest is a sign of life.
type heartbeatRequest struct {
	id    fsm.BrokerID
	epoch fsm.BrokerEpoch
	// applied is the index that the broker's Image has reached, hash what it hashes to.
	applied uint64
	hash    uint64
	// settled is the index of the Image whose roles are in force at the broker.
	settled uint64
	// ready asks to be unfenced.
	ready bool
}

func (*heartbeatRequest) op() op           { return opHeartbeat }
func (*heartbeatRequest) repeatable() bool { return true }
func (r *heartbeatRequest) code(c *codec.Coder) {
	codeBroker(c, &r.id)
	codeBrokerEpoch(c, &r.epoch)
	c.Uint64(&r.applied)
	c.Uint64(&r.hash)
	c.Uint64(&r.settled)
	c.Bool(&r.ready)
}

// heartbeatReply acknowledges a heartbeat of a leader that was verified after its arrival.
type heartbeatReply struct {
	// stale means that the broker must register again.
	stale bool
	// fenced is what the controller's Image says.
	fenced bool
	// diverged means that the broker's Image differs from that of a majority: its node must stop.
	diverged bool
	// index is how far the controller's Image had come.
	index uint64
}

func (r *heartbeatReply) code(c *codec.Coder) {
	c.Bool(&r.stale)
	c.Bool(&r.fenced)
	c.Bool(&r.diverged)
	c.Uint64(&r.index)
}

// proposeRequest carries one encoded entry of commands.
type proposeRequest struct {
	entry []byte
	own   bool // made by this node; not sent
}

func (*proposeRequest) op() op                { return opPropose }
func (*proposeRequest) repeatable() bool      { return false }
func (r *proposeRequest) code(c *codec.Coder) { c.Bytes32(&r.entry) }

// proposeReply says where the entry went and what became of each command.
type proposeReply struct {
	index   uint64
	results []fsm.Result
}

func (r *proposeReply) code(c *codec.Coder) {
	c.Uint64(&r.index)
	codec.ArrayOf(c, &r.results, 104, codeResult)
}

type createTopicsRequest struct{ topics []NewTopic }

func (*createTopicsRequest) op() op { return opCreateTopics }

// Each try has its own ids and knows those before it.
func (*createTopicsRequest) repeatable() bool { return true }
func (r *createTopicsRequest) code(c *codec.Coder) {
	codec.ArrayOf(c, &r.topics, 128, codeNewTopic)
}

type deleteTopicsRequest struct{ ids []fsm.TopicID }

func (*deleteTopicsRequest) op() op { return opDeleteTopics }

// A retried deletion may answer "unknown topic" for what the first try deleted.
func (*deleteTopicsRequest) repeatable() bool { return false }
func (r *deleteTopicsRequest) code(c *codec.Coder) {
	codec.ArrayOf(c, &r.ids, 16, func(c *codec.Coder, id *fsm.TopicID) { c.UUID((*[16]byte)(id)) })
}

// topicsReply answers the creation or deletion of topics, in the order of the request.
type topicsReply struct {
	index   uint64
	results []TopicResult
}

func (r *topicsReply) visibleFrom() uint64 { return r.index }

func (r *topicsReply) code(c *codec.Coder) {
	c.Uint64(&r.index)
	codec.ArrayOf(c, &r.results, 64, codeTopicResult)
}

// stopRequest begins a controlled shutdown: leaderships are handed over.
type stopRequest struct {
	id    fsm.BrokerID
	epoch fsm.BrokerEpoch
}

func (*stopRequest) op() op           { return opStop }
func (*stopRequest) repeatable() bool { return true }
func (r *stopRequest) code(c *codec.Coder) {
	codeBroker(c, &r.id)
	codeBrokerEpoch(c, &r.epoch)
}

// refusedRequest reports that a redial of a broker was refused.
type refusedRequest struct{ id fsm.BrokerID }

func (*refusedRequest) op() op                { return opRefused }
func (*refusedRequest) repeatable() bool      { return true }
func (r *refusedRequest) code(c *codec.Coder) { codeBroker(c, &r.id) }

// syncRequest asks for the index at which an Image holds all that has been decided.
type syncRequest struct{}

func (*syncRequest) op() op           { return opSync }
func (*syncRequest) repeatable() bool { return true }
func (*syncRequest) code(*codec.Coder) {
}

// indexReply names the index at which the effect of the call is visible.
type indexReply struct{ index uint64 }

func (r *indexReply) code(c *codec.Coder) { c.Uint64(&r.index) }

func codeBroker(c *codec.Coder, id *fsm.BrokerID)        { c.Int32((*int32)(id)) }
func codeBrokerEpoch(c *codec.Coder, e *fsm.BrokerEpoch) { c.Int64((*int64)(e)) }
func codeRefusal(c *codec.Coder, r *fsm.Refusal)         { c.Uint8((*uint8)(r)) }

func codeEndpoint(c *codec.Coder, e *fsm.Endpoint) {
	c.String(&e.Host)
	c.Int32(&e.Port)
}

func codeResult(c *codec.Coder, r *fsm.Result) {
	refusal := refusalOf(*r)
	codeRefusal(c, &refusal)
	c.Int64(&r.Epoch)
	codec.ArrayOf(c, &r.Skipped, 8, func(c *codec.Coder, i *int) {
		v := uint32(*i)
		c.Uvarint(&v)
		*i = int(v)
	})
	codec.ArrayOf(c, &r.Why, 1, codeRefusal)
	codec.ArrayOf(c, &r.Items, 16, codeItem)
	c.Bool(&r.Repeated)
	if c.Reading() && refusal != 0 {
		r.Err = refusal
	}
}

// codeItem codes the answer to one change of a slot command.
func codeItem(c *codec.Coder, err *error) {
	refusal := refusalOf(fsm.Result{Err: *err})
	codeRefusal(c, &refusal)
	if c.Reading() && refusal != 0 {
		*err = refusal
	}
}

// refusalOf is why a command was refused, 0 for none.
func refusalOf(r fsm.Result) fsm.Refusal {
	var refusal fsm.Refusal
	if r.Err != nil && !errors.As(r.Err, &refusal) {
		panic(fmt.Sprintf("BUG: a command was answered with %v, which is no refusal", r.Err))
	}
	return refusal
}

// refused tells whether a command was refused.
func refused(r fsm.Result) bool { return r.Err != nil }

func codeNewTopic(c *codec.Coder, t *NewTopic) {
	c.UUID((*[16]byte)(&t.ID))
	codec.ArrayOf(c, &t.Tried, 16, func(c *codec.Coder, id *fsm.TopicID) { c.UUID((*[16]byte)(id)) })
	c.String(&t.Name)
	c.Int32(&t.Partitions)
	c.Int16(&t.RF)
	codec.NullableArray(c, &t.Assignment, func(c *codec.Coder, ids *[]fsm.BrokerID) {
		codec.ArrayOf(c, ids, 4, codeBroker)
	})
	codec.Array(c, &t.Configs, func(c *codec.Coder, kv *[2]string) {
		c.String(&kv[0])
		c.String(&kv[1])
	})
	c.Bool(&t.ValidateOnly)
}

func codeTopicResult(c *codec.Coder, r *TopicResult) {
	c.UUID((*[16]byte)(&r.ID))
	r.Outcome.code(c)
	c.Int32(&r.Partitions)
	c.Int16(&r.RF)
}
