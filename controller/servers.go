package controller

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/fsm"
)

// serverChange is one change of Raft's configuration, guarded by the index of the one that it
// was decided on.
type serverChange func(r *raft.Raft, prev uint64) raft.IndexFuture

func addNonvoter(id raft.ServerID) serverChange {
	return func(r *raft.Raft, prev uint64) raft.IndexFuture {
		return r.AddNonvoter(id, raft.ServerAddress(id), prev, enqueueTimeout)
	}
}

func addVoter(id raft.ServerID) serverChange {
	return func(r *raft.Raft, prev uint64) raft.IndexFuture {
		return r.AddVoter(id, raft.ServerAddress(id), prev, enqueueTimeout)
	}
}

func demoteVoter(id raft.ServerID) serverChange {
	return func(r *raft.Raft, prev uint64) raft.IndexFuture { return r.DemoteVoter(id, prev, enqueueTimeout) }
}

func removeServer(id raft.ServerID) serverChange {
	return func(r *raft.Raft, prev uint64) raft.IndexFuture { return r.RemoveServer(id, prev, enqueueTimeout) }
}

// changing waits for the right to change who is a member, which one call has at a time, until done.
func (n *Node) changing(ctx context.Context) (done func(), err error) {
	select {
	case n.change <- struct{}{}:
		return func() { <-n.change }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: another change of the cluster's nodes is under way: %w", errNotController, ctx.Err())
	case <-n.ctx.Done():
		return nil, ErrClosed
	}
}

// changeServers makes the change of Raft's configuration that decide finds to be due, if any.
// This node leads, and the caller has the right to change.
//
// The change holds only for the configuration that it was decided on: this node may have lost
// the leadership and found it again between the two, with another's change in between. Raft's
// AddVoter and the others take the index of that configuration for this, and the library
// never tells it: GetConfiguration().Index() is 0, which means no guard. It names the index
// when it refuses a change for a wrong one, so that is asked for first.
func (n *Node) changeServers(ctx context.Context, what string, decide func([]raft.Server) (serverChange, error)) error {
	prev, err := n.configurationIndex(ctx, n.raft)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	change, err := decide(n.servers())
	if err != nil || change == nil {
		return err
	}
	n.log.Info("changing the servers of the metadata log", "change", what, "configuration", prev)
	return n.awaitRaft(ctx, func() raft.Future { return change(n.raft, prev) }, what)
}

// Raft's refusal of a change that was decided on another configuration than the latest.
const (
	refusedChange = "configuration changed since"
	latestChange  = "(latest is "
)

// configurationIndex is the index of Raft's latest configuration, which is committed, while
// this node leads.
func (n *Node) configurationIndex(ctx context.Context, r *raft.Raft) (uint64, error) {
	answered := make(chan error, 1)
	if !n.goRaft(func() { answered <- r.DemoteVoter("", math.MaxUint64, enqueueTimeout).Error() }) {
		return 0, fmt.Errorf("%w: %w", errNotController, ErrClosed)
	}
	var err error
	select {
	case err = <-answered:
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: %w", errNotController, ctx.Err())
	}
	if err == nil {
		panic("BUG: Raft changed a configuration of an index that there is not")
	}
	return latestIndex(err)
}

// latestIndex reads the index that Raft's refusal names.
func latestIndex(err error) (index uint64, _ error) {
	text := err.Error()
	if at := strings.Index(text, latestChange); strings.HasPrefix(text, refusedChange) && at >= 0 {
		if _, scanErr := fmt.Sscanf(text[at:], latestChange+"%d)", &index); scanErr == nil {
			return index, nil
		}
	}
	return 0, fmt.Errorf("%w: find the present configuration: %w", errNotController, err)
}

// servers are those of Raft's latest configuration.
func (n *Node) servers() []raft.Server {
	return n.raft.GetConfiguration().Configuration().Servers
}

func findServer(servers []raft.Server, id raft.ServerID) (raft.Server, bool) {
	i := slices.IndexFunc(servers, func(s raft.Server) bool { return s.ID == id })
	if i < 0 {
		return raft.Server{}, false
	}
	return servers[i], true
}

// serverOf is the server of a node id.
func serverOf(servers []raft.Server, id fsm.BrokerID) (raft.Server, bool) {
	i := slices.IndexFunc(servers, func(s raft.Server) bool {
		is, _, ok := parseServerID(s.ID)
		return ok && is == id
	})
	if i < 0 {
		return raft.Server{}, false
	}
	return servers[i], true
}

// electorate is who votes.
type electorate struct {
	// others vote beside this node, self tells whether it does.
	others []raft.ServerID
	self   bool
}

func electorateOf(servers []raft.Server, self raft.ServerID) electorate {
	var e electorate
	for _, s := range servers {
		switch {
		case s.Suffrage != raft.Voter:
		case s.ID == self:
			e.self = true
		default:
			e.others = append(e.others, s.ID)
		}
	}
	return e
}

// electorate is who votes by Raft's latest configuration, which is the one that counts.
func (n *Node) electorate() electorate { return electorateOf(n.servers(), n.serverID()) }

// size is how many vote.
func (e electorate) size() int {
	if e.self {
		return len(e.others) + 1
	}
	return len(e.others)
}

// majority tells whether this node, if it votes, and so many others are one.
func (e electorate) majority(others int) bool {
	if e.self {
		others++
	}
	return others > e.size()/2
}

// votes tells whether a node votes.
func (n *Node) votes(id fsm.BrokerID) bool {
	s, ok := serverOf(n.servers(), id)
	return ok && s.Suffrage == raft.Voter
}
