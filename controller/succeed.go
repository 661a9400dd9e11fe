package controller

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/codec"
)

// succeedStagger is how much later each further voter stands: an election takes a part of it,
// and two that stand at once may both fail.
const succeedStagger = 150 * time.Millisecond

// succeed stands for election when the leader's process has ended.
//
// Problem: a follower waits half a second to one and a half for a leader that is silent, since a
// busy machine makes leaders silent, too; and while nobody leads, nobody takes the dead node
// out of the ISRs.
//
// The evidence is the one that ends a broker's session. The connection to the leader closed,
// or none could be made, and its port refuses two dials in a row; and it refuses a majority of
// the voters. A leader that is silent refuses nobody, one that a minority is kept from by a
// firewall stays, and a node that is cut off does not raise its term: asking the others is what
// a pre-vote is, which the election of a successor goes without.
//
// Steps: dial; wait for those with lower ids to stand first; ask; stand, unless somebody leads
// by then. Logs and votes are judged by Raft, as after a transfer of the leadership. Who loses
// leaves the rest to Raft's timeouts: nobody stands here again before a leader was known.
func (n *Node) succeed(leader raft.ServerID) {
	if !n.succeeding.CompareAndSwap(false, true) {
		return
	}
	defer n.succeeding.Store(false)
	rank, ok := n.rank(leader)
	if t, _ := n.lead.get(); !ok || t.leader != leader || !n.refused(leader) {
		return
	}
	if !breathe(n.ctx, time.Duration(rank)*succeedStagger) || !n.store.hasRoom() || n.led(leader) {
		return
	}
	if !n.agreed(leader) {
		breathe(n.ctx, n.cfg.ElectionTimeout) // failing dials come back here at once
		return
	}
	if n.led(leader) || n.raft.State() != raft.Follower { // a candidate does not begin again by being told to
		return
	}
	n.log.Warn("the controller's peer port refuses connections: this node stands for election", "controller", leader)
	if err := n.transport.electNow(n.serverID()); err != nil {
		n.log.Debug("the election waits for its timeout", "error", err)
	}
}

// led tells whether another node than the gone one leads, which may be this one.
func (n *Node) led(gone raft.ServerID) bool {
	t, _ := n.lead.get()
	return t.leading || t.leader != gone && t.leader != ""
}

// rank is this node's place among the voters that are left when one is gone, in order of
// their ids; false when it does not vote, or is the one.
func (n *Node) rank(gone raft.ServerID) (int, bool) {
	var ids []fsm.BrokerID
	for _, s := range n.otherVoters(gone) {
		id, _, _ := parseServerID(s)
		ids = append(ids, id)
	}
	slices.Sort(ids)
	i := slices.Index(ids, n.id.NodeID)
	return i, i >= 0
}

// otherVoters lists the voters but for one.
func (n *Node) otherVoters(but raft.ServerID) []raft.ServerID {
	var out []raft.ServerID
	for _, s := range n.servers() {
		if s.Suffrage == raft.Voter && s.ID != but {
			out = append(out, s.ID)
		}
	}
	return out
}

// refused redials the leader. One that is back already answers, and does not lead.
func (n *Node) refused(leader raft.ServerID) bool {
	once := func() bool { return n.refusedOnce(n.ctx, leader) }
	return refusedTwice(n.ctx, once, func() {}, func() bool { return n.led(leader) })
}

// refusedOnce dials a node where it last answered, or is registered.
func (n *Node) refusedOnce(ctx context.Context, id raft.ServerID) bool {
	addrs := n.addrsOf(id)
	return len(addrs) > 0 && refuses(ctx, addrs[0])
}

// agreed tells whether a majority of the voters is refused by the leader, this one included.
func (n *Node) agreed(leader raft.ServerID) bool {
	ctx, cancel := context.WithTimeout(n.ctx, n.cfg.ElectionTimeout)
	defer cancel()
	agree, majority := 1, n.electorate().size()/2+1
	others := slices.DeleteFunc(n.otherVoters(leader), func(s raft.ServerID) bool { return s == n.serverID() })
	return n.askVoters(ctx, others, &goneRequest{leader: string(leader)}, func(r reply) bool {
		if r.(*goneReply).gone {
			agree++
		}
		return agree >= majority
	})
}

// askVoters asks voters at once and hands the answers on as they come, until there are enough,
// which it reports, or no more, or ctx ends.
func (n *Node) askVoters(ctx context.Context, voters []raft.ServerID, req request, enough func(reply) bool) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan reply, len(voters))
	for _, id := range voters {
		n.goFunc(func() {
			rep, err := n.askVoter(ctx, id, req)
			if err != nil {
				n.log.Debug("a voter gave no answer", "node", id, "call", req.op(), "error", err)
			}
			answers <- rep
		})
	}
	for range voters {
		select {
		case rep := <-answers:
			if rep != nil && enough(rep) {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
	return false
}

func (n *Node) askVoter(ctx context.Context, id raft.ServerID, req request) (reply, error) {
	c, err := n.dialServer(ctx, id, KindControl)
	if err != nil {
		return nil, err
	}
	return askOver(ctx, c, req)
}

// answerGone is this voter's view: nobody else leads, and a dial is refused.
func (n *Node) answerGone(ctx context.Context, r *goneRequest) *goneReply {
	leader := raft.ServerID(r.leader)
	return &goneReply{gone: !n.led(leader) && n.refusedOnce(ctx, leader)}
}

// goneRequest asks any node whether the port of a leader refuses it.
type goneRequest struct{ leader string }

func (*goneRequest) op() op                { return opGone }
func (*goneRequest) repeatable() bool      { return true }
func (r *goneRequest) code(c *codec.Coder) { c.String(&r.leader) }

type goneReply struct{ gone bool }

func (r *goneReply) code(c *codec.Coder) { c.Bool(&r.gone) }
