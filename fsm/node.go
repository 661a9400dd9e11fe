package fsm

import (
	"cmp"
	"slices"
)

// Node is what is for good between a node id and a data folder: the one has had the other
// since it was admitted, and nobody else ever gets either. The nodes that formed the cluster
// have rows once the first one was admitted after them, or removed.
type Node struct {
	ID     BrokerID
	Folder [16]byte
	// Peer is where the others reach it until it has registered.
	Peer Endpoint
	// Removed nodes have left: their rows keep ids and folders from coming back.
	Removed bool
}

// AdmitNode gives a data folder a node id, for good. The node gets no vote and hosts
// nothing by it. Repeating it changes nothing but the address. Result.Epoch is the id.
type AdmitNode struct {
	ID     BrokerID
	Folder [16]byte
	Peer   Endpoint
}

// RemoveNode takes a node out of the cluster. It must host no replica. Neither its id nor
// its folder can come back.
type RemoveNode struct {
	ID     BrokerID
	Folder [16]byte
	// Epoch is that of its broker, 0 when it has none registered.
	Epoch BrokerEpoch
}

func (c AdmitNode) apply(e *edit) Result {
	if c.ID < 1 || c.Folder == ([16]byte{}) {
		return refused(BadCommand)
	}
	if no := e.next.mayServe(c.ID, c.Folder); no != 0 {
		return refused(no)
	}
	for b := range e.next.Brokers() {
		if b.ID == c.ID && b.Folder != c.Folder {
			return refused(NodeIDTaken)
		}
		if b.ID != c.ID && b.Folder == c.Folder {
			return refused(FolderKnown)
		}
	}
	e.setNode(Node{ID: c.ID, Folder: c.Folder, Peer: c.Peer})
	return Result{Epoch: int64(c.ID)}
}

// mayServe tells why a node in a folder may not have an id, 0 when it may.
func (im *Image) mayServe(id BrokerID, folder [16]byte) Refusal {
	n, ok := im.Node(id)
	other, known := im.nodeOf(folder)
	switch {
	case ok && n.Removed:
		return NodeRemoved
	case ok && n.Folder != folder:
		return NodeIDTaken
	case known && other.ID != id:
		return FolderKnown
	}
	return 0
}

func (c RemoveNode) apply(e *edit) Result {
	n, known := e.next.Node(c.ID)
	b, registered := e.next.Broker(c.ID)
	switch {
	case c.ID < 1 || c.Folder == ([16]byte{}):
		return refused(BadCommand)
	case !known && !registered:
		return refused(UnknownBroker)
	case known && n.Removed && n.Folder == c.Folder:
		return Result{}
	case registered && b.Folder != c.Folder:
		return refused(NodeIDTaken)
	case e.next.mayServe(c.ID, c.Folder) != 0:
		return refused(e.next.mayServe(c.ID, c.Folder))
	case b.Epoch != c.Epoch:
		return refused(StaleBrokerEpoch)
	case e.next.hosts(c.ID):
		return refused(HostsReplicas)
	}
	e.freeSlots(c.ID)
	e.confirmAll(c.ID)
	if registered {
		e.dropBroker(c.ID)
	}
	e.setNode(Node{ID: c.ID, Folder: c.Folder, Peer: n.Peer, Removed: true})
	return Result{}
}

// hosts tells whether a broker has any replica.
func (im *Image) hosts(id BrokerID) bool {
	for range im.Hosted(id) {
		return true
	}
	return false
}

// confirmAll has nobody wait for a broker to delete anything.
func (e *edit) confirmAll(id BrokerID) {
	for t := range values(e.next.tombstones) {
		i, waits := slices.BinarySearch(t.Pending, id)
		if !waits {
			continue
		}
		left := slices.Delete(slices.Clone(t.Pending), i, i+1)
		e.setTombstone(&Tombstone{ID: t.ID, Name: t.Name, Pending: left}, t)
	}
}

// dropBroker removes a registered broker in a fresh copy of the list.
func (e *edit) dropBroker(id BrokerID) {
	list := slices.Clone(e.next.brokers)
	i, _ := findBroker(list, id)
	e.next.hash -= hashBroker(list[i])
	e.next.brokers = slices.Delete(list, i, i+1)
}

// setNode stores n in a fresh copy of the list.
func (e *edit) setNode(n Node) {
	i, known := findNode(e.next.nodes, n.ID)
	e.next.nodes = put(e, e.next.nodes, i, known, n, hashNode)
}

// nodeOf is the node that has, or had, a folder.
func (im *Image) nodeOf(folder [16]byte) (Node, bool) {
	i := slices.IndexFunc(im.nodes, func(n Node) bool { return n.Folder == folder })
	if i < 0 {
		return Node{}, false
	}
	return im.nodes[i], true
}

func findNode(list []Node, id BrokerID) (int, bool) {
	return slices.BinarySearchFunc(list, id, func(n Node, id BrokerID) int { return cmp.Compare(n.ID, id) })
}
