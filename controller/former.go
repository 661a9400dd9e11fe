package controller

import (
	"context"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/wire/codec"
)

// judgeFormer finds out since when the controller before this one may be silent.
//
// Problem: a new controller has heard from nobody, and gives everyone a full session. That of a
// controller which froze began anew with the election that its silence had caused.
//
// Whatever heartbeat a controller acknowledged, a majority of the voters answered its Raft
// after that was sent, as the leadership was verified, and none of them did once it knew this
// one. So of any majority that knows this one, somebody answered then: no session was
// renewed later than the latest of them answered any controller before.
func (t *term) judgeFormer() {
	n := t.n
	was, ok := n.lead.before(n.serverID())
	id, _, known := parseServerID(was.leader)
	if !ok || !known || id == n.id.NodeID {
		return
	}
	n.goFunc(func() {
		ctx, cancel := context.WithTimeout(t.ctx, questionTimeout)
		defer cancel()
		voters := n.electorate()
		count, at := 0, was.at
		enough := n.askVoters(ctx, voters.others, &heardRequest{leader: string(n.serverID()), term: n.raft.CurrentTerm()}, func(r reply) bool {
			if heard := time.Now().Add(-r.(*heardReply).ago); heard.After(at) {
				at = heard
			}
			count++
			return voters.majority(count)
		})
		if enough {
			t.post(t.ctx, func() { t.live.Unheard(id, at, time.Now()) })
		}
	})
}

// answerHeard says when this voter last answered a leader before the one that asks.
func (n *Node) answerHeard(r *heardRequest) (reply, error) {
	reached := n.raft.CurrentTerm() == r.term // first: what is known of a leader is then of this term
	was, ok := n.lead.before(raft.ServerID(r.leader))
	if !ok || !reached {
		return nil, errNotController
	}
	return &heardReply{ago: time.Since(was.at)}, nil
}

// heardRequest asks a voter when it last answered a leader before the one that asks.
type heardRequest struct {
	leader string
	// term is Raft's: a voter that has not reached it may still answer those in between.
	term uint64
}

func (*heardRequest) op() op           { return opHeard }
func (*heardRequest) repeatable() bool { return true }
func (r *heardRequest) code(c *codec.Coder) {
	c.String(&r.leader)
	c.Uint64(&r.term)
}

type heardReply struct{ ago time.Duration }

func (r *heardReply) code(c *codec.Coder) { c.Int64((*int64)(&r.ago)) }
