package group

import (
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/fsm"
)

// This file serves classic members of a consumer group. JoinGroup stands for a
// heartbeat that tells everything and asks for an epoch, SyncGroup for the answer
// that has the assignment; nobody leads, nobody waits for the others, and the
// generation that a member is told is its member epoch.
//
// A classic member says what it has when it joins and at no other time. A client
// that rebalances eagerly has given everything up by then; one that does so
// cooperatively tells what it keeps, gives up what its next assignment lacks, and
// joins again.

// checkMixedJoin is what can be wrong with a classic join of a consumer group.
func (g *Group) checkMixedJoin(r JoinRequest) Code {
	known := g.members.find(r.MemberID) != nil || g.members.instance(r.InstanceID) != nil
	switch {
	case g.cfg.Migration == MigrationDisabled:
		return InconsistentProtocol
	case !known && g.members.len() >= g.cfg.ConsumerMaxSize:
		g.classic.dropPending(r.MemberID)
		return GroupMaxSizeReached
	case !g.speaksAlike(r):
		return InconsistentProtocol
	}
	for _, p := range r.Protocols {
		if _, ok := parseSubscription(p.Metadata); !ok {
			return InconsistentProtocol
		}
	}
	return None
}

// speaksAlike says that a consumer that speaks these protocols has one in common
// with all other classic members, as it must when nobody else is left.
func (g *Group) speaksAlike(r JoinRequest) bool {
	if r.ProtocolType != consumerProtocol || len(r.Protocols) == 0 {
		return false
	}
	others := g.classics()
	return others == 0 || slices.ContainsFunc(r.Protocols, func(p fsm.GroupProtocol) bool { return g.classic.supports[p.Name] == others })
}

// joinMixed is the join of a classic member of a consumer group, or of a new one.
func (g *Group) joinMixed(t Ticket, r JoinRequest, topics Topics) {
	m, cause, code := g.mixedMember(r)
	switch {
	case code == MemberIDRequired:
		g.joinLater(t, r)
		return
	case code != None:
		g.reply(t, JoinReply{Code: code, Generation: -1, MemberID: r.MemberID})
		return
	}
	wants := g.updateMixed(m, r, cause)
	if g.downgrades() {
		g.downgrade(m, "member "+m.ID+" is the last to go back to the classic protocol")
		g.park(m, t, r)
		g.completeJoinIfReady(m)
		return
	}
	g.refresh(topics)
	g.assign(topics)
	g.reconcileMixed(m, wants, topics)
	m.pendingSync, m.dueAt, m.untold = true, g.now.Add(m.rebalance()), true
	g.touch(m)
	g.after(t, JoinReply{Generation: m.Epoch, ProtocolType: consumerProtocol, Protocol: g.common(m).Name, MemberID: m.ID}, m)
}

// common is the protocol of a classic member that counts: the first that all classic
// members speak, so that clients which can rebalance in two ways do it in the same.
func (g *Group) common(m *member) fsm.GroupProtocol {
	others := g.classics()
	for _, p := range m.Protocols {
		if g.classic.supports[p.Name] == others {
			return p
		}
	}
	return m.Protocols[0]
}

// classics counts the classic members.
func (g *Group) classics() int {
	n := 0
	for _, m := range g.members.all {
		if m.classic() {
			n++
		}
	}
	return n
}

// mixedMember finds the member that joins, or takes a new one in. cause says why
// there must be a new assignment, if there must.
func (g *Group) mixedMember(r JoinRequest) (m *member, cause string, code Code) {
	id := r.MemberID
	switch {
	case id == "" && r.InstanceID != "" && g.members.instance(r.InstanceID) != nil:
		return g.takeOver(g.members.instance(r.InstanceID), r), "", None
	case id == "" && r.InstanceID == "" && r.KnownIDRequired:
		return nil, "", MemberIDRequired
	case id == "":
		id = r.NewID
	case r.InstanceID == "" && g.classic.isPending(id):
		g.classic.dropPending(id)
	default:
		if m, code = g.validate(id, r.InstanceID); code == None && !m.classic() {
			code = UnknownMember
		}
		return m, "", code
	}
	m = &member{}
	m.ID, m.InstanceID = id, r.InstanceID
	g.enrol(m)
	return m, "new member " + id + clientReason(r.Reason), None
}

// takeOver gives a static member its place back, whichever protocol it had spoken.
// The client that was there is fenced, and has what the new one has not told to have.
func (g *Group) takeOver(m *member, r JoinRequest) *member {
	old := m.ID
	g.members.rename(m, r.NewID)
	m.Epoch, m.PreviousEpoch = 0, 0
	g.dirty = true
	g.note(m, "static member "+r.InstanceID+" is back in place of "+old+", with the classic protocol"+clientReason(r.Reason))
	return m
}

// updateMixed takes over what a join says about its member.
func (g *Group) updateMixed(m *member, r JoinRequest, cause string) embedded {
	before, regex := m.Topics, m.Regex
	if !sameProtocols(m.Protocols, r.Protocols) || m.ClientID != r.ClientID || m.ClientHost != r.ClientHost {
		g.dirty = true
	}
	g.describeMember(m, r)
	wants, _ := parseSubscription(g.common(m).Metadata)
	m.subscribe(wants)
	if cause == "" && (regex != "" || !slices.Equal(before, m.Topics)) {
		cause = "member " + m.ID + " subscribes to other topics"
	}
	if cause != "" {
		g.bump(m, cause)
	}
	return wants
}

// reconcileMixed brings a classic member nearer to its target, like reconcile. Here
// the client's word counts at once: it gets to know what it shall have by its next
// sync alone, which it has not asked for yet.
func (g *Group) reconcileMixed(m *member, wants embedded, topics Topics) {
	defer g.settled(m)
	owned := resolve(wants.owned, topics)
	target := g.wanted(m, topics)
	had := union(m.Assigned, m.Revoking)
	keeps := intersect(m.Assigned, target)
	revokes := intersect(subtract(had, keeps), owned)
	if gone := subtract(subtract(had, keeps), revokes); len(gone) > 0 {
		g.release(m, gone)
		g.dirty = true
	}
	if !equal(m.Assigned, keeps) || !equal(m.Revoking, revokes) {
		m.Assigned, m.Revoking = keeps, revokes
		g.dirty = true
	}
	if len(revokes) == 0 {
		g.advance(m, target)
	}
}

// syncMixed tells a classic member of a consumer group what it has.
func (g *Group) syncMixed(t Ticket, r SyncRequest, topics Topics) {
	m, code := g.validate(r.MemberID, r.InstanceID)
	switch {
	case code != None:
	case !m.classic():
		code = UnknownMember
	case r.Generation != m.Epoch:
		code = IllegalGeneration
	case g.assignmentEpoch > m.Epoch && len(m.Revoking) == 0:
		m.dueAt = time.Time{}
		g.mustRejoin(m)
		code = RebalanceInProgress
	case r.ProtocolType != "" && r.ProtocolType != consumerProtocol, r.Protocol != "" && !m.speaks(r.Protocol):
		code = InconsistentProtocol
	}
	if code != None {
		g.reply(t, SyncReply{Code: code})
		return
	}
	m.pendingSync, m.dueAt, m.untold = false, time.Time{}, false
	if len(m.Revoking) > 0 {
		m.dueAt, m.untold = g.now.Add(m.rebalance()), true
	}
	g.touch(m)
	p := g.common(m)
	wants, _ := parseSubscription(p.Metadata)
	reply := SyncReply{ProtocolType: consumerProtocol, Protocol: r.Protocol, Assignment: appendAssignment(nil, wants.version, named(m.Assigned, topics))}
	if reply.Protocol == "" {
		reply.Protocol = p.Name
	}
	g.after(t, reply, m)
}

// heartbeatMixed shows that a classic member of a consumer group lives, and tells
// it to join again when that would change what it has. It also looks at the topics:
// no client does in a group that nobody leads.
func (g *Group) heartbeatMixed(r HeartbeatRequest, topics Topics) Code {
	m, code := g.validate(r.MemberID, r.InstanceID)
	switch {
	case code != None:
		return code
	case !m.classic():
		return UnknownMember
	case r.Generation != m.Epoch:
		return IllegalGeneration
	}
	g.touch(m)
	g.refresh(topics)
	g.assign(topics)
	if !g.hasNews(m) {
		return None
	}
	g.mustRejoin(m)
	return RebalanceInProgress
}

// hasNews says that a classic member shall join again: to get to a newer epoch, to
// tell that it has given partitions up, or to get all that it has been waiting for.
// One that is about to sync hears of it then.
func (g *Group) hasNews(m *member) bool {
	switch {
	case m.pendingSync:
		return false
	case m.Epoch < g.assignmentEpoch || len(m.Revoking) > 0:
		return true
	case m.settled:
		return false
	}
	missing := subtract(m.Target, m.Assigned)
	return len(missing) > 0 && equal(missing, g.unowned(missing))
}

// mustRejoin begins the time in which a member must join again.
func (g *Group) mustRejoin(m *member) {
	m.pendingSync = false
	if m.dueAt.IsZero() {
		g.due(m)
	}
}

// leaveMixed removes members of either protocol from a consumer group.
func (g *Group) leaveMixed(t Ticket, r LeaveRequest) {
	var reply LeaveReply
	var last *member
	var left []string
	for _, who := range r.Members {
		out := LeftMember{MemberID: who.MemberID, InstanceID: who.InstanceID}
		if who.MemberID != "" && g.classic.isPending(who.MemberID) {
			g.classic.dropPending(who.MemberID)
			reply.Members = append(reply.Members, out)
			continue
		}
		var m *member
		if m, out.Code = g.leaver(who); out.Code == None {
			g.evict(m)
			last, left = m, append(left, m.ID+clientReason(who.Reason))
		}
		reply.Members = append(reply.Members, out)
	}
	if last != nil {
		g.vacated(last, "left: "+strings.Join(first(left), ", "))
	}
	g.after(t, reply, nil)
}
