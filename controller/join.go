package controller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/codec"
)

// Joining. Problem: an empty node is to become a member of a cluster that works, under an id
// that no other folder has or had, whatever crashes on the way.
//
// Steps: the node asks any listed node to be admitted (KindJoin, which carries the id of the
// cluster that it means), and that one asks the controller. The controller commits AdmitNode,
// which decides the id, then adds the node to Raft's configuration without a vote, and answers
// with the id. The node keeps the formation with its own place in it, then its identity, and
// starts Raft with an empty log: the leader sends it a snapshot or the log, and from there on it
// is a node that starts again.
//
// Invariants:
//   - The folder is the key: whoever asks again from the same folder, after a crash of either
//     side, gets the same answer, and nothing is done twice.
//   - Nothing is bootstrapped: a node that joins has no configuration before the leader sends one.
//   - It has no vote before an operator says so and it has proven to keep up (voters.go).
//
// Rejected: ids from the joining node (two could choose the same), and letting a node into the
// place of a voter that it has the address of (it lacks what that one acknowledged).

const (
	// joinPatience bounds one try to be admitted: two commits and the search for a controller.
	joinPatience = 10 * time.Second
	// joinPause lies between two tries.
	joinPause = 500 * time.Millisecond
)

// joinCluster asks for admission to a cluster that exists until it is given, or refused for good.
func (n *Node) joinCluster(ctx context.Context, f formation, answers []formAnswer) error {
	me := n.forming.Load()
	n.warnOfOldPlace(f, answers)
	for {
		var last error
		for _, a := range answers {
			if a.err != nil || a.reply.formed == nil {
				continue
			}
			rep, err := n.askToJoin(ctx, a.addr, f.clusterID)
			if err == nil && rep.why != "" {
				return fmt.Errorf("join cluster %s: %s", f.clusterID, rep.why)
			}
			if err == nil {
				return n.joined(f, member{id: rep.id, folder: me.folder, addr: endpointAddr(n.Advertised())})
			}
			last = err
		}
		n.log.Info("waiting to be admitted to the cluster", "cluster", f.clusterID, "reason", last)
		if !breathe(ctx, joinPause) {
			return fmt.Errorf("join cluster %s: %w", f.clusterID, errors.Join(last, ctx.Err()))
		}
		answers = n.ask(ctx)
	}
}

// warnOfOldPlace says that this node has the address of a first node, whose folder was lost.
func (n *Node) warnOfOldPlace(f formation, answers []formAnswer) {
	self := selfAddr(*n.forming.Load(), answers)
	for _, m := range f.members {
		if self != "" && m.addr == self {
			n.log.Warn("the data folder is empty, and the cluster knew another node at this address: this one joins as a new node and gets none of the data, votes or place of that one; if its folder still exists, stop this node and bring the folder back",
				"cluster", f.clusterID, "other node", m.id, "address", self)
		}
	}
}

// askToJoin makes one try through one listed node.
func (n *Node) askToJoin(ctx context.Context, addr, clusterID string) (*joinReply, error) {
	ctx, cancel := context.WithTimeout(ctx, joinPatience)
	defer cancel()
	me := n.forming.Load()
	p := Preface{Kind: KindJoin, ClusterID: clusterID, NodeID: n.cfg.NodeID, Folder: me.folder}
	c, err := dialPeer(ctx, addr, p, func(a answer) error {
		if a.clusterID != clusterID {
			return fmt.Errorf("%s belongs to cluster %q by now", addr, a.clusterID)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	rep, err := askOver(ctx, c, &joinRequest{clusterID: clusterID, folder: me.folder, wanted: n.cfg.NodeID, peer: n.Advertised()})
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", addr, err)
	}
	return rep.(*joinReply), nil
}

// serveJoin passes the request of a node that wants to join on to the controller.
func (n *Node) serveJoin(p Preface, c net.Conn) {
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(n.ctx, joinPatience)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	id, o, body, err := readFrame(c)
	if err != nil {
		return // the one that asks comes again
	}
	var rep reply
	req := new(joinRequest)
	if err = decodeBody(body, req); op(o) != opJoin || err != nil || req.folder != p.Folder || req.clusterID != p.ClusterID {
		err = fmt.Errorf("this is no request to join: %w", errors.Join(err, errBadJoin))
	} else {
		rep, err = n.call(ctx, req)
	}
	_, _ = c.Write(answerFrame(id, rep, err))
}

var errBadJoin = errors.New("another call, or for another folder or cluster")

// admitNode admits a node: it decides its id and makes it a server without a vote.
func (t *term) admitNode(ctx context.Context, r *joinRequest) (reply, error) {
	if r.clusterID != t.n.id.ClusterID {
		return &joinReply{why: fmt.Sprintf("this is cluster %s", t.n.id.ClusterID)}, nil
	}
	done, err := t.n.changing(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	rep := new(joinReply)
	if err := t.do(ctx, func() error { return t.giveID(r, rep) }); err != nil || rep.why != "" {
		return rep, err
	}
	name := serverID(rep.id, r.folder)
	err = t.n.changeServers(ctx, fmt.Sprintf("admit node %d", rep.id), func(servers []raft.Server) (serverChange, error) {
		if _, ok := findServer(servers, name); ok {
			return nil, nil
		}
		return addNonvoter(name), nil
	})
	return rep, err
}

// giveID commits the id of a folder, unless it has one. It runs on the loop, so that no two
// folders are given ids at once; another controller is kept out by Apply.
func (t *term) giveID(r *joinRequest, rep *joinReply) error {
	im, servers := t.n.Image(), t.n.servers()
	rep.id, rep.why = chooseID(im, servers, r.folder, r.wanted)
	if rep.why != "" {
		return nil
	}
	admit := fsm.AdmitNode{ID: rep.id, Folder: r.folder, Peer: r.peer}
	if node, ok := im.Node(rep.id); ok && node.Peer == r.peer {
		return nil // asked again
	}
	a, err := t.commit(append(unrecorded(im, servers, t.n.formation), admit)...)
	if err != nil {
		return err
	}
	if last := a.results[len(a.results)-1]; refused(last) {
		return fmt.Errorf("%w: admit node %d: %w", errNotController, rep.id, last.Err)
	}
	t.log.Info("a node is admitted", "node", rep.id, "address", endpointAddr(r.peer))
	return nil
}

// chooseID is the id for a folder: the one that it has, else the one that it wants, else the
// one after all that were ever given. A reason means that it gets none.
func chooseID(im *fsm.Image, servers []raft.Server, folder [16]byte, wanted fsm.BrokerID) (fsm.BrokerID, string) {
	known := everKnown(im, servers)
	next := fsm.BrokerID(1)
	for id, f := range known {
		next = max(next, id+1)
		if f != folder {
			continue
		}
		switch {
		case im.Removed(id, folder):
			return 0, removedText(id, im.ClusterID())
		case wanted != 0 && wanted != id:
			return 0, fmt.Sprintf("this data folder is that of node %d, not of node %d: start it without --node-id", id, wanted)
		}
		return id, ""
	}
	if wanted == 0 {
		return next, ""
	}
	if _, taken := known[wanted]; taken {
		return 0, fmt.Sprintf("node id %d is, or was, that of another data folder, and ids do not come back: start this node without --node-id, or with one that was never used (the next is %d)", wanted, next)
	}
	return wanted, ""
}

// everKnown are the folders of all ids that the cluster ever gave.
func everKnown(im *fsm.Image, servers []raft.Server) map[fsm.BrokerID][16]byte {
	known := make(map[fsm.BrokerID][16]byte)
	for _, s := range servers {
		if id, folder, ok := parseServerID(s.ID); ok {
			known[id] = folder
		}
	}
	for b := range im.Brokers() {
		known[b.ID] = b.Folder
	}
	for node := range im.Nodes() {
		known[node.ID] = node.Folder
	}
	return known
}

// unrecorded are the commands that give rows to servers without one: the first nodes, when
// others join or leave for the first time.
func unrecorded(im *fsm.Image, servers []raft.Server, f formation) []fsm.Command {
	var out []fsm.Command
	for _, s := range servers {
		id, folder, ok := parseServerID(s.ID)
		if _, recorded := im.Node(id); !ok || recorded {
			continue
		}
		c := fsm.AdmitNode{ID: id, Folder: folder}
		if m, ok := f.byFolder(folder); ok && m.addr != "" {
			host, port := splitAddr(m.addr)
			c.Peer = fsm.Endpoint{Host: host, Port: int32(port)}
		}
		if b, ok := im.Broker(id); ok && b.Folder == folder {
			c.Peer = b.Peer
		}
		out = append(out, c)
	}
	return out
}

// joinRequest asks for a folder to be admitted to a cluster.
type joinRequest struct {
	clusterID string
	folder    [16]byte
	wanted    fsm.BrokerID // 0 for any
	// peer is where the node can be reached until it has registered.
	peer fsm.Endpoint
}

func (*joinRequest) op() op           { return opJoin }
func (*joinRequest) repeatable() bool { return true }
func (r *joinRequest) code(c *codec.Coder) {
	c.String(&r.clusterID)
	c.UUID(&r.folder)
	codeBroker(c, &r.wanted)
	codeEndpoint(c, &r.peer)
}

// joinReply gives an id, or says why there is none for good.
type joinReply struct {
	id  fsm.BrokerID
	why string
}

func (r *joinReply) code(c *codec.Coder) {
	codeBroker(c, &r.id)
	c.String(&r.why)
}
