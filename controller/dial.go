package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/fsm"
)

// DialPeer opens a connection to a registered broker and checks that it is the one, in this
// cluster and in the folder that it registered with.
func (n *Node) DialPeer(ctx context.Context, id fsm.BrokerID, kind Kind, epoch fsm.BrokerEpoch) (net.Conn, error) {
	b, ok := n.Image().Broker(id)
	if !ok {
		return nil, fmt.Errorf("dial node %d: %w", id, fsm.UnknownBroker)
	}
	return n.dialAs(ctx, endpointAddr(b.Peer), kind, epoch, serverID(b.ID, b.Folder))
}

// dialServer opens a connection to a node by its name in Raft. Nodes may move, so it tries
// every address that may be right and lets the preface tell.
func (n *Node) dialServer(ctx context.Context, to raft.ServerID, kind Kind) (net.Conn, error) {
	last := fmt.Errorf("no address is known for node %s", to)
	for _, addr := range n.addrsOf(to) {
		c, err := n.dialAs(ctx, addr, kind, n.session.Epoch(), to)
		if err == nil {
			n.mu.Lock()
			n.routes[to] = addr
			n.mu.Unlock()
			return c, nil
		}
		last = err
		if ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

// addrsOf lists where a node may be: where it last answered, where it is registered, where it
// was when it joined or when the cluster formed, and the addresses of the join list.
func (n *Node) addrsOf(to raft.ServerID) []string {
	id, folder, ok := parseServerID(to)
	if !ok {
		return nil
	}
	n.mu.Lock()
	candidates := []string{n.routes[to]}
	n.mu.Unlock()
	im := n.Image()
	if b, ok := im.Broker(id); ok && b.Folder == folder {
		candidates = append(candidates, endpointAddr(b.Peer))
	}
	if node, ok := im.Node(id); ok && node.Folder == folder && node.Peer.Host != "" {
		candidates = append(candidates, endpointAddr(node.Peer))
	}
	if m, ok := n.formation.byFolder(folder); ok {
		candidates = append(candidates, m.addr)
	}
	var addrs []string
	for _, a := range append(candidates, n.join...) {
		if a != "" && a != n.listedAs && !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// dialAs opens a connection and checks that the wanted node answers, in this cluster.
func (n *Node) dialAs(ctx context.Context, addr string, kind Kind, epoch fsm.BrokerEpoch, want raft.ServerID) (net.Conn, error) {
	p := Preface{Kind: kind, ClusterID: n.id.ClusterID, NodeID: n.id.NodeID, Folder: n.id.Folder, BrokerEpoch: epoch}
	c, err := dialPeer(ctx, addr, p, func(a answer) error {
		if a.clusterID != n.id.ClusterID {
			return fmt.Errorf("%s belongs to cluster %q, not to %s", addr, a.clusterID, n.id.ClusterID)
		}
		if got := serverID(a.nodeID, a.folder); got != want {
			return fmt.Errorf("%s is node %s, not %s", addr, got, want)
		}
		return nil
	})
	if refusal := (*RefusedError)(nil); errors.As(err, &refusal) && refusal.Code == RefusedRemoved {
		n.leave() // whoever says so has it from the metadata, where it stays
	}
	return c, err
}

// wentOut notes by which address this node reaches others.
func (n *Node) wentOut(c net.Conn) {
	if a, ok := c.LocalAddr().(*net.TCPAddr); ok {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.outward = a.IP.String()
	}
}

// reachable tells whether an address is known at which other hosts could reach this node.
func (n *Node) reachable() bool {
	e := n.Advertised()
	ip := net.ParseIP(e.Host)
	return ip == nil || !ip.IsUnspecified()
}

// Advertised is where other nodes reach this one: what the configuration says, else the
// address in the join list that leads here, else the listener's own, with the host from which
// this node goes out in place of "all of them".
func (n *Node) Advertised() fsm.Endpoint {
	e := n.cfg.Advertise
	at := n.peers.listener.Addr().String()
	if n.listedAs != "" {
		at = n.listedAs
	}
	host, port := splitAddr(at)
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		n.mu.Lock()
		host = cmp.Or(n.outward, host)
		n.mu.Unlock()
	}
	if e.Host == "" {
		e.Host = host
	}
	if e.Port == 0 {
		e.Port = int32(port)
	}
	return e
}

func endpointAddr(e fsm.Endpoint) string {
	return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
}
