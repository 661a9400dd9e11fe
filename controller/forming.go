package controller

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirmq/weir/fsm"
)

// member is one voter of a new cluster, or a node that joined it later.
type member struct {
	id     fsm.BrokerID
	folder [16]byte
	// addr is where the forming node reached it, the address in the join list; of one that
	// joined later what it advertised then.
	addr string
}

// formation is the birth certificate of a cluster: who its first voters were. Who votes now is
// in Raft's configuration. Each node keeps it in its Raft store; it also proves that the store
// belongs to the identity in the data folder.
type formation struct {
	clusterID string
	// founder is the folder of the node that created the cluster; it alone bootstraps Raft.
	founder [16]byte
	members []member
	// joined is the node that keeps it, where that is none of the members; it is not shown.
	joined *member
}

// own is the place of the node in a folder, if the formation is its own.
func (f formation) own(folder [16]byte) (member, bool) {
	if f.joined != nil && f.joined.folder == folder {
		return *f.joined, true
	}
	return f.byFolder(folder)
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
	// formJoin means that the cluster exists and this node asks to be admitted as a new one.
	formJoin
)

// decideForming is the whole rule of forming. Problem: nodes started with the same list must
// become one cluster, and a list that differs, a node that is missing or a folder that already
// belongs somewhere must never yield a second one. Invariants: only the first node of the
// list creates; it does so only when every listed node answered, is empty and shows the same
// list; everybody else adopts what it created. An empty node that finds a cluster never
// creates another: it is one of its first voters, or asks to be admitted, whoever else is
// listed and whether it is listed itself. Rejected: agreeing among those present (two
// halves of a list would both agree), and creating on every node from equal inputs (the
// folder ids of nodes that restart meanwhile differ).
func decideForming(me formReply, answers []formAnswer) (formStep, formation, string) {
	if found, why := formedAmong(answers); why != "" {
		return formBlocked, formation{}, why
	} else if found != nil {
		return joinFormed(me, *found)
	}
	if step, why := unreadyList(me, answers); why != "" {
		return step, formation{}, why
	}
	if n := len(answers); n != 1 && n != 3 && n != 5 {
		return formRefused, formation{}, fmt.Sprintf("the join list names %d nodes, and none of them has a cluster: a new one begins with 1, 3 or 5", n)
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

// formedAmong is an answer of a node that has a cluster, nil when nobody has. All that have
// one must have the same.
func formedAmong(answers []formAnswer) (*formAnswer, string) {
	var found *formAnswer
	for i, a := range answers {
		switch {
		case a.err != nil || a.reply.formed == nil:
		case found == nil:
			found = &answers[i]
		case a.reply.formed.clusterID != found.reply.formed.clusterID:
			return nil, fmt.Sprintf("%s belongs to cluster %s and %s to cluster %s: list the nodes of one cluster",
				found.addr, found.reply.formed.clusterID, a.addr, a.reply.formed.clusterID)
		}
	}
	return found, ""
}

// joinFormed judges an existing cluster: its first voters adopt it, others ask to be admitted.
// That nobody gets the id of another folder is for the controller to see; of the first voters
// everybody knows.
func joinFormed(me formReply, a formAnswer) (formStep, formation, string) {
	f := *a.reply.formed
	if _, ok := f.byFolder(me.folder); ok {
		return formAdopt, f, ""
	}
	for _, m := range f.members {
		if me.nodeID != 0 && m.id == me.nodeID {
			return formRefused, formation{}, fmt.Sprintf(
				"cluster %s at %s already has node %d, with another data folder: a node that lost its folder does not get its old identity back; bring the old folder back, or start without --node-id to join as a new node",
				f.clusterID, a.addr, m.id)
		}
	}
	return formJoin, f, ""
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
