package controller

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/wire/codec"
)

const (
	// formPause lies between two rounds of asking the listed nodes.
	formPause = 100 * time.Millisecond
	// launchWindow is how long a founder looks out for the others before it leaves the first
	// election to Raft's timeouts.
	launchWindow = 3 * time.Second
	// formationVersion is the first byte of a stored formation, joinedVersion that of one with
	// the place of a node that joined later.
	formationVersion = 1
	joinedVersion    = 2
)

// The keys of ours in Raft's stable store.
const (
	keyFolder    = "WeirFolder"
	keyFormation = "WeirFormation"
	// keyTerm is Raft's own.
	keyTerm = "CurrentTerm"
)

// settle finds out who this node is: from its folder, or by forming a cluster.
func (n *Node) settle(ctx context.Context) error {
	f, err := n.storedFormation()
	if err != nil {
		return err
	}
	if id := n.cfg.Identity; id != nil {
		return n.rejoin(ctx, *id, f)
	}
	folder, err := n.ownFolder()
	if err != nil {
		return err
	}
	n.present(formReply{nonce: newUUID(), folder: folder, nodeID: n.cfg.NodeID, list: n.join})
	switch {
	case f != nil && f.joined != nil: // an earlier start was interrupted before it kept its identity
		return n.joined(*f, *f.joined)
	case f != nil:
		return n.become(*f)
	case len(n.join) == 0:
		return n.found(formation{members: []member{{id: max(1, n.cfg.NodeID), folder: folder}}})
	}
	return n.form(ctx)
}

// rejoin takes up an identity that the data folder holds. The Raft store must be the one that
// was made with it: a voter whose log is gone could vote twice.
func (n *Node) rejoin(ctx context.Context, id Identity, f *formation) error {
	if f == nil {
		return fmt.Errorf("the data folder belongs to node %d of cluster %s, but its Raft log in %s is missing: a node that lost its log does not get its old identity back",
			id.NodeID, id.ClusterID, n.cfg.RaftDir)
	}
	m, ok := f.own(id.Folder)
	if !ok || f.clusterID != id.ClusterID || m.id != id.NodeID {
		return fmt.Errorf("the data folder belongs to node %d of cluster %s, but the Raft log in %s was made for cluster %s by another node",
			id.NodeID, id.ClusterID, n.cfg.RaftDir, f.clusterID)
	}
	n.settled(id, *f)
	if m.addr == "" || !slices.Contains(n.join, m.addr) {
		n.listedAs = selfAddr(*n.forming.Load(), n.ask(ctx)) // the node has moved, or never was listed
	}
	if n.listedAs == "" && f.joined != nil && !n.reachable() {
		n.listedAs = m.addr // nobody could tell by which address this node goes out
	}
	return nil
}

// settled publishes who this node is.
func (n *Node) settled(id Identity, f formation) {
	n.id, n.formation = id, f
	if m, ok := f.byFolder(id.Folder); ok {
		n.listedAs = m.addr
	}
	f.joined = nil
	n.present(formReply{nonce: newUUID(), folder: id.Folder, nodeID: id.NodeID, list: n.join, formed: &f})
	n.log.Info("this node belongs to a cluster", "cluster", id.ClusterID, "node", id.NodeID)
}

// present is what this node shows from now on.
func (n *Node) present(r formReply) { n.forming.Store(&r) }

// ownFolder returns the UUID of the data folder. It is kept before it is shown to anyone, so
// that a node that restarts while its cluster forms is still the one that was counted.
func (n *Node) ownFolder() (folder [16]byte, err error) {
	b, err := n.store.Get([]byte(keyFolder))
	if err == nil && len(b) == len(folder) {
		copy(folder[:], b)
		return folder, nil
	}
	if err != nil && !errors.Is(err, errKeyNotFound) {
		return folder, err
	}
	folder = newUUID()
	return folder, n.store.Set([]byte(keyFolder), folder[:])
}

func (n *Node) storedFormation() (*formation, error) {
	b, err := n.store.Get([]byte(keyFormation))
	if errors.Is(err, errKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f := new(formation)
	switch {
	case len(b) > 0 && b[0] == formationVersion:
		err = decodeBody(b[1:], f)
	case len(b) > 0 && b[0] == joinedVersion:
		err = decodeBody(b[1:], (*joinedFormation)(f))
	default:
		return nil, fmt.Errorf("the formation in %s was written by a newer version", n.cfg.RaftDir)
	}
	if err != nil {
		return nil, fmt.Errorf("read the formation in %s: %w", n.cfg.RaftDir, err)
	}
	return f, nil
}

// form asks the listed nodes until a cluster exists that this node belongs to.
func (n *Node) form(ctx context.Context) error {
	said, saidAt := "", time.Time{}
	for {
		me := *n.forming.Load()
		answers := n.ask(ctx)
		step, f, why := decideForming(me, answers)
		switch step {
		case formJoin:
			return n.joinCluster(ctx, f, answers)
		case formFound:
			return n.found(f)
		case formAdopt:
			return n.become(f)
		case formRefused:
			return errors.New(why)
		}
		if why != said || time.Since(saidAt) >= waitReport {
			said, saidAt = why, time.Now()
			if step == formBlocked {
				n.log.Error("the cluster can not form", "reason", why)
			} else {
				n.log.Info("the cluster is forming", "reason", why)
			}
		}
		select {
		case <-time.After(formPause):
		case <-ctx.Done():
			return fmt.Errorf("form a cluster of %s: %s: %w", n.join, why, ctx.Err())
		}
	}
}

// ask asks every listed address at once; answers are in the order of the list.
func (n *Node) ask(ctx context.Context) []formAnswer {
	answers := make([]formAnswer, len(n.join))
	var wg sync.WaitGroup
	for i, addr := range n.join {
		wg.Go(func() {
			r, err := n.askOne(ctx, addr)
			answers[i] = formAnswer{addr: addr, reply: r, err: err}
		})
	}
	wg.Wait()
	return answers
}

func (n *Node) askOne(ctx context.Context, addr string) (formReply, error) {
	me := n.forming.Load()
	c, err := dialPeer(ctx, addr, Preface{Kind: KindForm, NodeID: me.nodeID, Folder: me.folder}, func(answer) error { return nil })
	if err != nil {
		return formReply{}, err
	}
	defer func() { _ = c.Close() }()
	n.wentOut(c)
	_ = c.SetDeadline(time.Now().Add(dialTimeout))
	_, _, body, err := readFrame(bufio.NewReader(c))
	if err != nil {
		return formReply{}, fmt.Errorf("ask %s: %w", addr, err)
	}
	var r formReply
	if err := decodeBody(body, &r); err != nil {
		return formReply{}, fmt.Errorf("ask %s: %w", addr, err)
	}
	return r, nil
}

// serveForm answers one node that asks.
func (n *Node) serveForm(_ Preface, c net.Conn) {
	defer func() { _ = c.Close() }()
	if me := n.forming.Load(); me != nil {
		_ = c.SetDeadline(time.Now().Add(prefaceTimeout))
		_, _ = c.Write(encodeFrame(0, 0, me)) // the one that asks comes again
	}
}

// found creates the cluster: this node is the first of the list, or alone.
func (n *Node) found(f formation) error {
	id := newUUID()
	f.clusterID = base64.RawURLEncoding.EncodeToString(id[:])
	f.founder = n.forming.Load().folder
	n.log.Info("creating the cluster", "cluster", f.clusterID, "nodes", f.String())
	return n.become(f)
}

// become makes this node a member of a formed cluster, in an order that survives a crash at
// any point: the formation is stored first, then the founder bootstraps Raft, then the
// identity is kept, and only then do others learn of the cluster from here.
func (n *Node) become(f formation) error {
	folder := n.forming.Load().folder
	m, ok := f.byFolder(folder)
	if !ok {
		return fmt.Errorf("the formation of cluster %s in %s was made by another node", f.clusterID, n.cfg.RaftDir)
	}
	if n.cfg.NodeID != 0 && n.cfg.NodeID != m.id {
		return fmt.Errorf("cluster %s knows this node as node %d, not as node %d", f.clusterID, m.id, n.cfg.NodeID)
	}
	if err := n.store.Set([]byte(keyFormation), encodeFormation(f)); err != nil {
		return fmt.Errorf("keep the formation: %w", err)
	}
	if f.founder == folder {
		if err := n.bootstrap(f); err != nil {
			return fmt.Errorf("bootstrap Raft: %w", err)
		}
		n.founder = true
	}
	return n.keepIdentity(f, m)
}

// joined makes this node a member of a cluster that has admitted it, in the order of become. It
// asks again after a crash before the first of the steps, and is answered the same.
func (n *Node) joined(f formation, me member) error {
	if n.cfg.NodeID != 0 && n.cfg.NodeID != me.id {
		return fmt.Errorf("cluster %s knows this node as node %d, not as node %d", f.clusterID, me.id, n.cfg.NodeID)
	}
	f.joined = &me
	if err := n.store.Set([]byte(keyFormation), encodeFormation(f)); err != nil {
		return fmt.Errorf("keep the formation: %w", err)
	}
	return n.keepIdentity(f, me)
}

func (n *Node) keepIdentity(f formation, me member) error {
	id := Identity{ClusterID: f.clusterID, NodeID: me.id, Folder: me.folder}
	if err := n.cfg.SaveIdentity(id); err != nil {
		return fmt.Errorf("keep the identity of this node: %w", err)
	}
	n.settled(id, f)
	return nil
}

// bootstrap writes the first Raft configuration. A crash may have left its term without its
// entry, which Raft takes for an existing server; nobody has heard of that term yet.
func (n *Node) bootstrap(f formation) error {
	last, err := n.store.LastIndex()
	if err != nil {
		return err
	}
	if last > 0 {
		return nil // an earlier start got this far
	}
	if err := n.store.SetUint64([]byte(keyTerm), 0); err != nil {
		return err
	}
	snaps, err := n.snapshots()
	if err != nil {
		return err
	}
	var c raft.Configuration
	var self raft.ServerID
	for _, m := range f.members {
		id := serverID(m.id, m.folder)
		if m.folder == f.founder {
			self = id
		}
		c.Servers = append(c.Servers, raft.Server{Suffrage: raft.Voter, ID: id, Address: raft.ServerAddress(id)})
	}
	return raft.BootstrapCluster(n.raftConfig(self, nil), n.store, n.store, snaps, nil, c)
}

// launch makes the founder of a new cluster lead as soon as a majority is there to vote,
// instead of after a timeout.
func (n *Node) launch(self raft.ServerID) {
	until := time.Now().Add(launchWindow)
	for time.Now().Before(until) {
		t, changed := n.lead.get()
		if t.leader != "" {
			return
		}
		there := 0
		for _, m := range n.formation.members {
			if id := serverID(m.id, m.folder); id == self || n.answersRaft(id) {
				there++
			}
		}
		if there > len(n.formation.members)/2 {
			if err := n.transport.electNow(self); err != nil {
				n.log.Debug("the first election waits for its timeout", "error", err)
			}
			return
		}
		if n.awaitLeader(n.ctx, changed) != nil {
			return
		}
	}
}

func (n *Node) answersRaft(id raft.ServerID) bool {
	c, err := n.dialServer(n.ctx, id, KindRaft)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

func encodeFormation(f formation) []byte {
	if f.joined != nil {
		c := codec.NewWriter([]byte{joinedVersion}).Flexible(true)
		(*joinedFormation)(&f).code(c)
		return c.Bytes()
	}
	c := codec.NewWriter([]byte{formationVersion}).Flexible(true)
	f.code(c)
	return c.Bytes()
}

// joinedFormation is the stored form of a formation with the place of its keeper.
type joinedFormation formation

func (j *joinedFormation) code(c *codec.Coder) {
	(*formation)(j).code(c)
	if c.Reading() {
		j.joined = new(member)
	}
	j.joined.code(c)
}

func (m *member) code(c *codec.Coder) {
	codeBroker(c, &m.id)
	c.UUID(&m.folder)
	c.String(&m.addr)
}

func (f *formation) code(c *codec.Coder) {
	c.String(&f.clusterID)
	c.UUID(&f.founder)
	codec.Array(c, &f.members, func(c *codec.Coder, m *member) { m.code(c) })
}

func (r *formReply) code(c *codec.Coder) {
	c.UUID(&r.nonce)
	c.UUID(&r.folder)
	codeBroker(c, &r.nodeID)
	c.Strings((*[]string)(&r.list))
	formed := r.formed != nil
	c.Bool(&formed)
	if formed {
		if c.Reading() {
			r.formed = new(formation)
		}
		r.formed.code(c)
	}
}
