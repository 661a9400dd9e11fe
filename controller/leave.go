package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/codec"
)

// RemoveNode takes a node out of the cluster for good. It must host no replica, and not vote.
func (n *Node) RemoveNode(ctx context.Context, id fsm.BrokerID) (Outcome, error) {
	return n.changeMember(ctx, &removeNodeRequest{id: id})
}

// removeNode takes a node out of the metadata, then out of Raft's configuration. The first is what
// counts: it keeps the id and the folder from coming back, and the rest follows, be it from
// the next controller (expelRemoved).
func (t *term) removeNode(ctx context.Context, r *removeNodeRequest) (reply, error) {
	done, err := t.n.changing(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var name raft.ServerID
	var res *Outcome
	err = t.do(ctx, func() (err error) {
		name, res, err = t.commitRemoval(r)
		return err
	})
	if err == nil && res == nil {
		err = t.expel(ctx, name)
	}
	return memberAnswer(res, err)
}

// commitRemoval commits that a node has left, on the loop: nothing is placed on it meanwhile.
func (t *term) commitRemoval(r *removeNodeRequest) (raft.ServerID, *Outcome, error) {
	im, servers := t.n.Image(), t.n.servers()
	folder, res := judgeRemoval(im, servers, r)
	name := serverID(r.id, folder)
	if res != nil || im.Removed(r.id, folder) {
		return name, res, nil
	}
	b, _ := im.Broker(r.id)
	entry := append(unrecorded(im, servers, t.n.formation), fsm.RemoveNode{ID: r.id, Folder: folder, Epoch: b.Epoch})
	last := len(entry) - 1
	for _, c := range entry {
		im, _ = fsm.Apply(im, im.Index()+1, c)
	}
	a, err := t.commit(append(entry, slotChanges(im)...)...)
	if err != nil {
		return name, nil, err
	}
	if got := a.results[last]; refused(got) {
		return name, nil, fmt.Errorf("%w: remove node %d: %w", errNotController, r.id, got.Err)
	}
	t.log.Info("a node is removed", "node", r.id)
	return name, nil, nil
}

// judgeRemoval finds the folder of a node that is to leave, or the answer where it can not.
func judgeRemoval(im *fsm.Image, servers []raft.Server, r *removeNodeRequest) (folder [16]byte, _ *Outcome) {
	folder, known := everKnown(im, servers)[r.id]
	s, isServer := serverOf(servers, r.id)
	replicas := 0
	for range im.Hosted(r.id) {
		replicas++
	}
	switch {
	case !known:
		return folder, memberError(wire.BrokerIDNotRegistered, "node %d is not in this cluster", r.id)
	case im.Removed(r.id, folder) && !isServer && !r.again:
		return folder, memberError(wire.BrokerIDNotRegistered, "node %d has been removed from this cluster already", r.id)
	case isServer && s.Suffrage == raft.Voter:
		return folder, memberError(wire.InvalidRequest,
			"node %d votes: take its vote first with \"weir cluster quorum remove %d\", or give it to another node with \"weir cluster quorum replace %d --with NODE\"", r.id, r.id, r.id)
	case replicas > 0:
		return folder, memberError(wire.InvalidRequest, "node %d hosts %d replicas: move them to other nodes first with \"weir partition move\", or delete their topics", r.id, replicas)
	}
	return folder, nil
}

// expel takes a server that was removed out of Raft's configuration.
func (t *term) expel(ctx context.Context, name raft.ServerID) error {
	err := t.n.changeServers(ctx, fmt.Sprintf("remove %s", name), func(servers []raft.Server) (serverChange, error) {
		if _, ok := findServer(servers, name); !ok {
			return nil, nil
		}
		return removeServer(name), nil
	})
	if err == nil {
		t.n.transport.reach.forget(name)
	}
	return err
}

// expelRemoved finishes what a controller before this one began.
func (t *term) expelRemoved() {
	for _, s := range t.n.servers() {
		id, folder, ok := parseServerID(s.ID)
		if !ok || !t.n.Image().Removed(id, folder) {
			continue
		}
		t.n.goFunc(func() {
			done, err := t.n.changing(t.ctx)
			if err != nil {
				return
			}
			defer done()
			if err := t.expel(t.ctx, s.ID); err != nil {
				t.log.Warn("a node that was removed is still a server of the metadata log; asking again to remove it helps", "node", id, "error", err)
			}
		})
	}
}

type removeNodeRequest struct {
	id    fsm.BrokerID
	again bool // it may have been done already
}

func (*removeNodeRequest) op() op           { return opRemoveNode }
func (*removeNodeRequest) repeatable() bool { return true }
func (r *removeNodeRequest) code(c *codec.Coder) {
	codeBroker(c, &r.id)
	c.Bool(&r.again)
}

// renewed is the request for another try.
func (r *removeNodeRequest) renewed() request { return &removeNodeRequest{id: r.id, again: true} }

// removedText tells who was removed what that means.
func removedText(id fsm.BrokerID, cluster string) string {
	return fmt.Sprintf("node %d was removed from cluster %s, and neither its id nor its data folder comes back: to use this machine again, start a node with an empty data folder", id, cluster)
}

// removed is why this node ends once it was removed.
func (n *Node) removed() error { return errors.New(removedText(n.id.NodeID, n.id.ClusterID)) }

// leave ends this process, whose node has been removed from the cluster.
func (n *Node) leave() {
	if !n.left.Swap(true) {
		n.exit(n.removed())
	}
}

// askWhetherRemoved asks those that this node knows, and nobody answers to lead, whether it was
// removed: the others have no reason to dial it any more.
func (n *Node) askWhetherRemoved(ctx context.Context) bool {
	if n.Image().Removed(n.id.NodeID, n.id.Folder) {
		n.leave()
	}
	addrs := slices.Clone(n.join)
	for b := range n.Image().Brokers() {
		addrs = append(addrs, endpointAddr(b.Peer))
	}
	for _, m := range n.formation.members {
		addrs = append(addrs, m.addr)
	}
	slices.Sort(addrs)
	for _, addr := range slices.Compact(addrs) {
		if addr == "" || addr == n.listedAs || n.left.Load() || ctx.Err() != nil {
			continue
		}
		if c, err := n.dialAs(ctx, addr, KindControl, n.session.Epoch(), ""); err == nil {
			_ = c.Close()
		}
	}
	return n.left.Load()
}
