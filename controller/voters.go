package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/codec"
)

// Votes. Problem: a vote that is given too early, or taken from the wrong node, makes a majority
// of nodes that are not there. A server that is added raises the majority at once, whatever it
// has of the log; and a dead one counts as long as it is in the configuration.
//
// Invariants:
//   - A vote is given only to a node that was admitted before, has all but the newest entries
//     and has kept up for a while.
//   - A vote is taken only if those that are left and answer are a majority of those left.
//   - One change at a time, each decided on the configuration that it changes (changeServers).
//   - The controller hands over before its own vote is taken.
//   - Whose vote was taken is a node as before, without one.

const (
	// steadyLag is how many entries a node may lack and still be said to keep up: a follower
	// that keeps up with some thousand entries a second lacks some tens.
	steadyLag = 512
	// silenceMax is how long a server may not have answered and still count as alive. Heartbeats
	// are answered some times a second, unless an entry is being written.
	silenceMax = 2 * time.Second
	// steadyPause lies between two looks at a node that is to vote.
	steadyPause = 50 * time.Millisecond
)

// AddVoter gives a node of the cluster a vote, once it has kept up for a while; ctx bounds the
// wait. A folder of zeros stands for whichever the node has.
func (n *Node) AddVoter(ctx context.Context, id fsm.BrokerID, folder [16]byte) (Outcome, error) {
	ctx, cancel := n.bounded(ctx)
	defer cancel()
	until, _ := ctx.Deadline()
	patience := max(0, time.Until(until)-time.Until(until)/8) // the rest is for the answer
	return n.changeMember(ctx, &addVoterRequest{voter: voter{id: id, folder: folder}, patience: patience})
}

// RemoveVoter takes a node's vote. It stays a node of the cluster.
func (n *Node) RemoveVoter(ctx context.Context, id fsm.BrokerID, folder [16]byte) (Outcome, error) {
	return n.changeMember(ctx, &removeVoterRequest{voter{id: id, folder: folder}})
}

func (n *Node) changeMember(ctx context.Context, req request) (Outcome, error) {
	rep, err := n.call(ctx, req)
	if err != nil {
		return Outcome{}, err
	}
	return rep.(*memberReply).Outcome, nil
}

func memberError(code wire.Code, format string, args ...any) *Outcome {
	o := refuse(code, format, args...)
	return &o
}

// judgeAdd finds the server that is to be given a vote, or the answer where nothing is to be done.
func judgeAdd(im *fsm.Image, servers []raft.Server, v voter) (raft.Server, *Outcome) {
	s, ok := serverOf(servers, v.id)
	_, folder, _ := parseServerID(s.ID)
	switch {
	case !ok:
		return s, memberError(wire.InvalidRequest, "node %d is not in this cluster: start it with --join first", v.id)
	case im.Removed(v.id, folder):
		return s, memberError(wire.InvalidRequest, "node %d is being removed from this cluster", v.id)
	case !v.is(folder):
		return s, memberError(wire.InvalidVoterKey, "node %d has another data folder (its directory id is %x)", v.id, folder)
	case s.Suffrage == raft.Voter && v.again:
		return s, &Outcome{}
	case s.Suffrage == raft.Voter:
		return s, memberError(wire.DuplicateVoter, "node %d votes already", v.id)
	}
	return s, nil
}

// judgeRemove finds the server whose vote is to be taken, or the answer where that must not be.
func judgeRemove(servers []raft.Server, alive func(raft.ServerID) bool, v voter) (raft.Server, *Outcome) {
	s, ok := serverOf(servers, v.id)
	_, folder, _ := parseServerID(s.ID)
	votes := ok && s.Suffrage == raft.Voter && v.is(folder)
	left, answer := 0, 0
	for _, other := range servers {
		if other.Suffrage == raft.Voter && other.ID != s.ID {
			left++
			if alive(other.ID) {
				answer++
			}
		}
	}
	switch {
	case !votes && v.again && ok:
		return s, &Outcome{}
	case !votes:
		return s, memberError(wire.VoterNotFound, "node %d, with that data folder, does not vote", v.id)
	case left == 0:
		return s, memberError(wire.InvalidRequest, "node %d is the only node that votes: give another one a vote first", v.id)
	case answer <= left/2:
		return s, memberError(wire.InvalidRequest,
			"without node %d a majority of %d would be needed, and only %d of those that are left answer: bring one back, or give another node a vote first", v.id, left/2+1, answer)
	}
	return s, nil
}

// addVoter waits until a node is fit to vote and gives it a vote.
func (t *term) addVoter(ctx context.Context, r *addVoterRequest) (reply, error) {
	s, res := judgeAdd(t.n.Image(), t.n.servers(), r.voter)
	if res == nil {
		res = t.awaitSteady(ctx, s.ID, r.voter.id, r.patience)
	}
	if res != nil {
		return &memberReply{*res}, nil
	}
	done, err := t.n.changing(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	err = t.n.changeServers(ctx, fmt.Sprintf("give node %d a vote", r.voter.id), func(servers []raft.Server) (serverChange, error) {
		if s, res = judgeAdd(t.n.Image(), servers, r.voter); res != nil {
			return nil, nil
		}
		return addVoter(s.ID), nil
	})
	return memberAnswer(res, err)
}

// memberAnswer is the answer to a change that was made, or refused, or failed.
func memberAnswer(res *Outcome, err error) (reply, error) {
	switch {
	case err != nil:
		return nil, err
	case res != nil:
		return &memberReply{*res}, nil
	}
	return &memberReply{}, nil
}

// awaitSteady returns nil once a node has kept up for as long as one that votes must have, and
// answers what was sent after this was asked: who died a moment ago still looks well.
func (t *term) awaitSteady(ctx context.Context, name raft.ServerID, id fsm.BrokerID, patience time.Duration) *Outcome {
	began, raftTerm := time.Now(), t.n.raft.CurrentTerm()
	for {
		steady, lag, heard := t.n.transport.heard.steadiness(name, raftTerm, t.n.transport.pusher.known(), time.Now())
		answers := t.n.transport.heard.since(began, []raft.ServerID{name}) == 1
		if answers && steady >= t.n.cfg.VoterSteady {
			return nil
		}
		if time.Since(began) < patience && breathe(t.ctx, steadyPause) && ctx.Err() == nil {
			continue
		}
		if !heard || !answers {
			return memberError(wire.RequestTimedOut, "node %d does not answer: a node that gets a vote must be up and keep up", id)
		}
		return memberError(wire.RequestTimedOut, "node %d has kept up for %v only and lacks %d entries of the metadata log: a node gets a vote after %v; try again, or allow more time",
			id, steady.Round(time.Millisecond), lag, t.n.cfg.VoterSteady)
	}
}

// removeVoter takes a node's vote.
func (t *term) removeVoter(ctx context.Context, r *removeVoterRequest) (reply, error) {
	done, err := t.n.changing(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var res *Outcome
	var s raft.Server
	err = t.n.changeServers(ctx, fmt.Sprintf("take the vote of node %d", r.voter.id), func(servers []raft.Server) (serverChange, error) {
		if s, res = judgeRemove(servers, t.alive, r.voter); res != nil {
			return nil, nil
		}
		if s.ID == t.n.serverID() {
			return nil, t.handOn(ctx)
		}
		return demoteVoter(s.ID), nil
	})
	return memberAnswer(res, err)
}

// alive tells whether a server has answered of late.
func (t *term) alive(id raft.ServerID) bool {
	return id == t.n.serverID() || t.n.transport.heard.since(time.Now().Add(-silenceMax), []raft.ServerID{id}) == 1
}

// handOn has the voter that is furthest stand for election, and returns errNotController: the call
// that this was for goes to whoever leads then. Raft's own transfer is not used by a node that goes
// on: one that was interrupted, whose node leads again, may refuse all writes later. Should
// the other lose, since it lacks an entry that was on its way, an election follows as ever.
func (t *term) handOn(ctx context.Context) error {
	to, ok := t.n.transport.heard.furthest(t.n.electorate().others, t.n.raft.CurrentTerm(), time.Now().Add(-silenceMax))
	if !ok {
		return fmt.Errorf("%w: no other voter answers", errNotController)
	}
	t.log.Info("the controller is to lose its vote, and hands over first", "to", to)
	if err := t.n.transport.electNow(to); err != nil {
		return fmt.Errorf("%w: hand over to %s: %w", errNotController, to, err)
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	for t.n.lead.holds(t.tenure) {
		if _, changed := t.n.lead.get(); t.n.lead.holds(t.tenure) {
			select {
			case <-changed:
			case <-ctx.Done():
				return fmt.Errorf("%w: %s did not take over", errNotController, to)
			}
		}
	}
	return fmt.Errorf("%w: it has handed over to %s", errNotController, to)
}

// voter names who is to vote, or not any more.
type voter struct {
	id fsm.BrokerID
	// folder is the node's, or zeros for whichever.
	folder [16]byte
	// again is whether it may have been done already.
	again bool
}

func (v voter) is(folder [16]byte) bool { return v.folder == [16]byte{} || v.folder == folder }

func (v *voter) code(c *codec.Coder) {
	codeBroker(c, &v.id)
	c.UUID(&v.folder)
	c.Bool(&v.again)
}

type addVoterRequest struct {
	voter    voter
	patience time.Duration
}

func (*addVoterRequest) op() op           { return opAddVoter }
func (*addVoterRequest) repeatable() bool { return true }
func (r *addVoterRequest) code(c *codec.Coder) {
	r.voter.code(c)
	c.Int64((*int64)(&r.patience))
}

// renewed is the request for another try.
func (r *addVoterRequest) renewed() request {
	next := *r
	next.voter.again = true
	return &next
}

type removeVoterRequest struct{ voter voter }

func (*removeVoterRequest) op() op                { return opRemoveVoter }
func (*removeVoterRequest) repeatable() bool      { return true }
func (r *removeVoterRequest) code(c *codec.Coder) { r.voter.code(c) }

// renewed is the request for another try.
func (r *removeVoterRequest) renewed() request {
	next := *r
	next.voter.again = true
	return &next
}

type memberReply struct{ Outcome }
