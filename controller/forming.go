package controller

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirmq/weir/fsm"
)

// member is one voter of a new cluster.
type member struct {
	id     fsm.BrokerID
	folder [16]byte
	// addr is where the forming node reached it: the address in the join list.
	addr string
}

// formation is the birth certificate of a cluster: who its first voters are. Each of them
// keeps it in its Raft store; it also proves that the store belongs to the identity in the
// data folder.
type formation struct {
	clusterID string
	// founder is the folder of the node that created the cluster; it alone bootstraps Raft.
	founder [16]byte
	members []member
}

func (f formation) byFolder(folder [16]byte) (member, bool) {
	i := slices.IndexFunc(f.members, func(m member) bool { return m.folder == folder })
	if i < 0 {
		return member{}, false
	}
	return f.members[i], true
}

// formReply is what a node shows to any that asks with KindForm.
type formReply struct {
	// nonce is drawn at each start; a node recognises itself by it.
	nonce  [16]byte
	folder [16]byte
	// nodeID is the --node-id, or the node's id once it has one; 0 for none.
	nodeID fsm.BrokerID
	// list is the node's join list in the common order.
	list joinList
	// formed is the cluster that the node belongs to; nil while its folder is empty.
	formed *formation
}

// formAnswer is the outcome of asking one listed address.
type formAnswer struct {
	addr  string
	reply formReply
	err   error
}

// formStep is what an empty node does next.
type formStep uint8

const (
	// formWait means ask again later: something is missing that may still come.
	formWait formStep = iota
	// formBlocked means ask again later, but somebody must correct a setting first.
	formBlocked
	// formRefused means that this node can not become a member of what it found.
	formRefused
	// formFound means that this node creates the cluster.
	formFound
	// formAdopt means that the cluster exists and this node is one of its first voters.
	formAdopt
)

// decideForming is the whole rule of forming. Problem: nodes started with the same list must
// become one cluster, and a list that differs, a node that is missing or a folder that already
// belongs somewhere must never yield a second one. Invariants: only the first node of the
// list creates; it does so only when every listed node answered, is empty and shows the same
// list; everybody else adopts what it created. Rejected: agreeing among those present (two
// halves of a list would both agree), and creating on every node from equal inputs (the
// folder ids of nodes that restart meanwhile differ).
func decideForming(me formReply, answers []formAnswer) (formStep, formation, string) {
	for _, a := range answers {
		if a.err == nil && a.reply.formed != nil {
			return joinFormed(me, answers, a)
		}
	}
	if step, why := unreadyList(me, answers); why != "" {
		return step, formation{}, why
	}
	members, why := assignIDs(answers)
	if why != "" {
		return formBlocked, formation{}, why
	}
	first := answers[0]
	if first.reply.nonce != me.nonce {
		return formWait, formation{}, fmt.Sprintf("waiting for %s, the first of the list, to create the cluster", first.addr)
	}
	return formFound, formation{members: members}, ""
}

// joinFormed judges an existing cluster: its first voters adopt it, others are refused.
func joinFormed(me formReply, answers []formAnswer, a formAnswer) (formStep, formation, string) {
	f := *a.reply.formed
	if _, ok := f.byFolder(me.folder); ok {
		return formAdopt, f, ""
	}
	self := selfAddr(me, answers)
	for _, m := range f.members {
		if (me.nodeID != 0 && m.id == me.nodeID) || (me.nodeID == 0 && m.addr == self) {
			return formRefused, formation{}, fmt.Sprintf(
				"cluster %s at %s already has node %d, with another data folder: a node that lost its folder does not get its old identity back; bring the old folder back",
				f.clusterID, a.addr, m.id)
		}
	}
	return formRefused, formation{}, fmt.Sprintf(
		"cluster %s already exists at %s and this node, whose folder is empty, is not one of its first nodes; adding nodes to a running cluster is not supported yet",
		f.clusterID, a.addr)
}

// selfAddr is the listed address that led back to this node, or "".
func selfAddr(me formReply, answers []formAnswer) string {
	for _, a := range answers {
		if a.err == nil && a.reply.nonce == me.nonce {
			return a.addr
		}
	}
	return ""
}

// unreadyList says what keeps an all-empty list from forming, or "".
func unreadyList(me formReply, answers []formAnswer) (formStep, string) {
	seen := make(map[[16]byte]string, len(answers))
	var missing []string
	for _, a := range answers {
		if a.err != nil {
			missing = append(missing, fmt.Sprintf("%s (%v)", a.addr, a.err))
			continue
		}
		if !slices.Equal(a.reply.list, me.list) {
			return formBlocked, fmt.Sprintf("%s was started with another join list: it has %s, this node has %s", a.addr, a.reply.list, me.list)
		}
		if other, ok := seen[a.reply.nonce]; ok {
			return formBlocked, fmt.Sprintf("%s and %s in the join list are the same node", other, a.addr)
		}
		seen[a.reply.nonce] = a.addr
	}
	if len(missing) > 0 {
		return formWait, "waiting for " + strings.Join(missing, ", ")
	}
	if _, ok := seen[me.nonce]; !ok {
		return formBlocked, fmt.Sprintf("none of the addresses in the join list %s leads to this node", me.list)
	}
	return formWait, ""
}

// assignIDs gives every listed node its id: the one it asks for, else its position from 1.
func assignIDs(answers []formAnswer) ([]member, string) {
	members := make([]member, 0, len(answers))
	taken := make(map[fsm.BrokerID]string, len(answers))
	for i, a := range answers {
		id := a.reply.nodeID
		if id == 0 {
			id = fsm.BrokerID(i + 1)
		}
		if other, ok := taken[id]; ok {
			return nil, fmt.Sprintf("%s and %s would both be node %d; give each its own --node-id", other, a.addr, id)
		}
		taken[id] = a.addr
		members = append(members, member{id: id, folder: a.reply.folder, addr: a.addr})
	}
	return members, ""
}

func (f formation) String() string {
	names := make([]string, len(f.members))
	for i, m := range f.members {
		names[i] = fmt.Sprintf("%d@%s", m.id, m.addr)
	}
	return strings.Join(names, " ")
}
