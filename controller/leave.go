package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weirmq/weir/fsm"
)

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
