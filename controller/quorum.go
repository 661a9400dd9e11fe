package controller

import (
	"context"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/codec"
)

// Quorum is the state of the metadata log as its leader sees it.
type Quorum struct {
	Leader fsm.BrokerID
	// Term is Raft's, Commit the last index that a majority holds.
	Term   uint64
	Commit uint64
	// Voters and Observers are the servers that vote and the others.
	Voters, Observers []QuorumServer
}

// QuorumServer is one server of the metadata log.
type QuorumServer struct {
	ID     fsm.BrokerID
	Folder [16]byte
	// Last is the index of its last entry, -1 when it has not been heard in this term.
	Last int64
	// Answered is when it last answered, CaughtUp when it was last seen to have all that was
	// committed, in ms; -1 when not in this term.
	Answered, CaughtUp int64
}

// Quorum asks the controller how far the servers of the metadata log are.
func (n *Node) Quorum(ctx context.Context) (Quorum, error) {
	ctx, cancel := n.bounded(ctx)
	defer cancel()
	rep, err := n.call(ctx, &quorumRequest{})
	if err != nil {
		return Quorum{}, err
	}
	return rep.(*quorumReply).q, nil
}

type quorumRequest struct{}

func (*quorumRequest) op() op            { return opQuorum }
func (*quorumRequest) repeatable() bool  { return true }
func (*quorumRequest) code(*codec.Coder) {}

type quorumReply struct{ q Quorum }

func (r *quorumReply) code(c *codec.Coder) {
	codeBroker(c, &r.q.Leader)
	c.Uint64(&r.q.Term)
	c.Uint64(&r.q.Commit)
	for _, list := range []*[]QuorumServer{&r.q.Voters, &r.q.Observers} {
		codec.ArrayOf(c, list, 64, func(c *codec.Coder, s *QuorumServer) {
			codeBroker(c, &s.ID)
			c.UUID(&s.Folder)
			c.Int64(&s.Last)
			c.Int64(&s.Answered)
			c.Int64(&s.CaughtUp)
		})
	}
}

// quorum tells what this node, leading, knows of the servers. The leadership is verified
// first, so that a deposed controller does not answer.
func (t *term) quorum(ctx context.Context) (reply, error) {
	r := t.n.raft
	if err := t.n.verifyLeader(ctx); err != nil {
		return nil, err
	}
	term, _ := strconv.ParseUint(r.Stats()["term"], 10, 64) // Raft writes the number
	last, now := r.LastIndex(), time.Now().UnixMilli()
	q := Quorum{Leader: t.n.id.NodeID, Term: term, Commit: r.CommitIndex()}
	for _, s := range t.n.servers() {
		id, folder, ok := parseServerID(s.ID)
		if !ok {
			continue
		}
		server := QuorumServer{ID: id, Folder: folder, Last: int64(last), Answered: now, CaughtUp: now}
		if id != t.n.id.NodeID {
			server = t.n.transport.heard.server(s.ID, id, folder, term)
		}
		if s.Suffrage == raft.Voter {
			q.Voters = append(q.Voters, server)
		} else {
			q.Observers = append(q.Observers, server)
		}
	}
	return &quorumReply{q: q}, nil
}

// Follower is how far a server of the metadata log is behind, as the controller knows it.
type Follower struct {
	ID fsm.BrokerID
	// Lag is how many committed entries it lacks: all of them, until it has answered in this term.
	Lag uint64
	// Silent is how long ago it last accepted what it was sent, at most since this node became the
	// controller.
	Silent time.Duration
}

// Followers tells of all servers of the metadata log but this one while this node is the controller,
// of none otherwise. A follower that answers heartbeats and takes no entries shows in its Lag.
func (n *Node) Followers() []Follower {
	t := n.term.Load()
	if t == nil {
		return nil
	}
	var out []Follower
	term, committed, now := n.raft.CurrentTerm(), n.raft.CommitIndex(), time.Now()
	for _, s := range n.servers() {
		if id, _, ok := parseServerID(s.ID); ok && id != n.id.NodeID {
			lag, silent := n.transport.heard.behind(s.ID, term, committed, now)
			out = append(out, Follower{ID: id, Lag: lag, Silent: min(silent, now.Sub(t.began))})
		}
	}
	return out
}

// verifyLeader returns nil when a majority accepted this node as leader after the call. Raft's own
// verification counts answers that were on their way when it began, too: to a leader that
// was stopped they may have been given long before, by those who follow another one now.
func (n *Node) verifyLeader(ctx context.Context) error {
	began := time.Now()
	for {
		if err := n.awaitRaft(ctx, n.raft.VerifyLeader, "verify the leadership"); err != nil {
			return err
		}
		voters := n.electorate() // of now: they may have changed meanwhile
		if voters.majority(n.transport.heard.since(began, voters.others)) {
			return nil
		}
	}
}

// followerEnds notes how far followers are, by their answers to this node as leader.
type followerEnds struct {
	mu   sync.Mutex // a leaf
	ends map[raft.ServerID]followerEnd
}

// followerEnd is one follower in one term.
type followerEnd struct {
	term, last         uint64
	answered, caughtUp time.Time
	// sent is when the newest request that it accepted was sent.
	sent time.Time
	// steady is since when it has kept up without falling silent; zero when it does not.
	steady time.Time
}

func newFollowerEnds() *followerEnds {
	return &followerEnds{ends: make(map[raft.ServerID]followerEnd)}
}

// noted takes an answer that accepted what the leader of term sent; last is where the
// follower's log ends by it, committed the highest index known to be committed, sent when it was asked.
func (f *followerEnds) noted(id raft.ServerID, term, last, committed uint64, sent, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.ends[id]
	if e.term != term {
		e = followerEnd{term: term}
	}
	silent := now.Sub(e.answered) > silenceMax
	e.last, e.answered = max(e.last, last), now
	switch {
	case committed == 0 || e.last+steadyLag < committed:
		e.steady = time.Time{}
	case silent || e.steady.IsZero():
		e.steady = now
	}
	if sent.After(e.sent) {
		e.sent = sent
	}
	if committed > 0 && e.last >= committed {
		e.caughtUp = now
	}
	f.ends[id] = e
}

// since counts those of some followers that accepted what was sent after a moment.
func (f *followerEnds) since(moment time.Time, ids []raft.ServerID) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	count := 0
	for _, id := range ids {
		if f.ends[id].sent.After(moment) {
			count++
		}
	}
	return count
}

// steadiness tells for how long a follower has kept up, how many entries it lacks, and whether
// it answers.
func (f *followerEnds) steadiness(id raft.ServerID, term, committed uint64, now time.Time) (steady time.Duration, lag uint64, heard bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.ends[id]
	if e.term != term || now.Sub(e.answered) > silenceMax {
		return 0, 0, false
	}
	lag = committed - min(committed, e.last)
	if !e.steady.IsZero() && lag <= steadyLag {
		steady = now.Sub(e.steady)
	}
	return steady, lag, true
}

// behind tells how many committed entries a follower lacks, and how long ago it last answered.
func (f *followerEnds) behind(id raft.ServerID, term, committed uint64, now time.Time) (lag uint64, silent time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.ends[id]
	if e.term != term {
		return committed, math.MaxInt64
	}
	return committed - min(committed, e.last), now.Sub(e.answered)
}

// furthest is who of some followers has most of the log, among those that answered after a moment.
func (f *followerEnds) furthest(ids []raft.ServerID, term uint64, moment time.Time) (best raft.ServerID, found bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		e := f.ends[id]
		if e.term == term && e.sent.After(moment) && (!found || e.last > f.ends[best].last) {
			best, found = id, true
		}
	}
	return best, found
}

// server is what is known of a follower in a term.
func (f *followerEnds) server(name raft.ServerID, id fsm.BrokerID, folder [16]byte, term uint64) QuorumServer {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := QuorumServer{ID: id, Folder: folder, Last: -1, Answered: -1, CaughtUp: -1}
	e := f.ends[name]
	if e.term != term {
		return s
	}
	s.Last, s.Answered = int64(e.last), e.answered.UnixMilli()
	if !e.caughtUp.IsZero() {
		s.CaughtUp = e.caughtUp.UnixMilli()
	}
	return s
}
