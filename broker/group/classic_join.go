package group

import (
	"math"
	"time"

	"github.com/weirmq/weir/fsm"
)

// textMax is how long a stored name may be.
const textMax = math.MaxInt16

// Join asks to be a member with the classic protocol, or to be one of the next
// generation.
func (g *Group) Join(now time.Time, t Ticket, r JoinRequest, topics Topics) Out {
	g.begin(now)
	r.Protocols = distinct(r.Protocols)
	code := g.checkJoin(r)
	switch {
	case code != None:
	case g.isClassic():
		code = g.checkClassicJoin(r)
	default:
		code = g.checkMixedJoin(r)
	}
	switch {
	case code != None:
		g.reply(t, JoinReply{Code: code, Generation: -1, MemberID: r.MemberID})
	case g.isClassic():
		g.becomeClassic()
		g.joinClassic(t, r)
	default:
		g.joinMixed(t, r, topics)
	}
	return g.end()
}

// joinClassic finds out who joins a classic group.
func (g *Group) joinClassic(t Ticket, r JoinRequest) {
	switch {
	case r.MemberID == "" && r.InstanceID != "":
		g.joinStatic(t, r)
	case r.MemberID == "" && r.KnownIDRequired:
		g.joinLater(t, r)
	case r.MemberID == "":
		g.joinNew(t, r, r.NewID)
	case r.InstanceID == "" && g.classic.isPending(r.MemberID):
		g.classic.dropPending(r.MemberID)
		g.joinNew(t, r, r.MemberID)
	default:
		g.joinAgain(t, r)
	}
}

// checkJoin is what can be wrong with a join whoever asks.
func (g *Group) checkJoin(r JoinRequest) Code {
	switch {
	case g.state == Dead:
		return CoordinatorNotAvailable
	case r.SessionTimeout < g.cfg.MinSession || r.SessionTimeout > g.cfg.MaxSession:
		return InvalidSessionTimeout
	case tooLong(r.MemberID, r.InstanceID, r.NewID, r.ClientID, r.ClientHost, r.ProtocolType) || tooLongNames(r.Protocols):
		return InvalidRequest
	}
	return None
}

// checkClassicJoin is what can be wrong with a join of a classic group.
func (g *Group) checkClassicJoin(r JoinRequest) Code {
	switch {
	case !g.hasRoom(r):
		g.squeezeOut(r.MemberID)
		return GroupMaxSizeReached
	case !g.supportsProtocols(r.ProtocolType, r.Protocols):
		return InconsistentProtocol
	}
	return None
}

func tooLong(texts ...string) bool {
	for _, t := range texts {
		if len(t) > textMax {
			return true
		}
	}
	return false
}

func tooLongNames(all []fsm.GroupProtocol) bool {
	for _, p := range all {
		if len(p.Name) > textMax {
			return true
		}
	}
	return false
}

// hasRoom bounds the group. During the join phase those who have joined count, so
// that a group above the bound shrinks to it by leaving out the last to come.
func (g *Group) hasRoom(r JoinRequest) bool {
	m := g.members.find(r.MemberID)
	if m == nil {
		m = g.members.instance(r.InstanceID)
	}
	switch g.state {
	case PreparingRebalance:
		return m != nil && m.join.on || g.joining() < g.cfg.MaxSize
	case CompletingRebalance, Stable:
		return m != nil || g.members.len() < g.cfg.MaxSize
	}
	return true
}

// squeezeOut drops a member, or an id that was given out, for which there is no
// room any more.
func (g *Group) squeezeOut(id string) {
	g.classic.dropPending(id)
	if m := g.members.find(id); m != nil {
		g.dismiss(m)
		g.departed(m, "the group is full")
	}
	g.completeJoinIfReady(nil)
}

// joinLater gives a new dynamic member its id, to ask again with. A client whose
// answer was lost thus leaves no member behind.
func (g *Group) joinLater(t Ticket, r JoinRequest) {
	p := pending{id: r.NewID, client: r.ClientID, given: g.now, deadline: g.now.Add(r.SessionTimeout)}
	g.classic.addPending(p)
	g.wake(p.deadline)
	g.reply(t, JoinReply{Code: MemberIDRequired, Generation: -1, MemberID: r.NewID})
}

// joinNew takes a new member in.
func (g *Group) joinNew(t Ticket, r JoinRequest, id string) {
	m := &member{isNew: true, nameless: r.MemberID == ""}
	m.ID, m.InstanceID = id, r.InstanceID
	if g.state == Empty {
		g.protocolType = r.ProtocolType
	}
	g.enrol(m)
	g.describeMember(m, r)
	if g.leader == "" {
		g.leader = id
	}
	if g.state == PreparingRebalance {
		g.classic.newcomer = g.now
		g.note(m, "joined"+clientReason(r.Reason))
	}
	g.park(m, t, r)
	g.rebalance(m, "new member "+id+clientReason(r.Reason))
}

// describeMember takes over what a join says about its member.
func (g *Group) describeMember(m *member, r JoinRequest) {
	m.ClientID, m.ClientHost = r.ClientID, r.ClientHost
	m.SessionMs, m.RebalanceMs = millis(r.SessionTimeout), millis(r.RebalanceTimeout)
	g.setProtocols(m, r.Protocols)
}

// park lets a join wait for the others. An older one of the same member gives way.
func (g *Group) park(m *member, t Ticket, r JoinRequest) {
	if m.join.on {
		g.reply(m.join.ticket, JoinReply{Code: RebalanceInProgress, Generation: -1, MemberID: m.ID})
	}
	m.join = parked{ticket: t, on: true}
	if m.isNew {
		m.deadline = g.now.Add(NewMemberJoin)
		g.wake(m.deadline)
	}
}

// joinAgain is the join of a member, or of somebody who says so.
func (g *Group) joinAgain(t Ticket, r JoinRequest) {
	m, code := g.validate(r.MemberID, r.InstanceID)
	if code != None {
		g.reply(t, JoinReply{Code: code, Generation: -1, MemberID: r.MemberID})
		return
	}
	unchanged := sameProtocols(m.Protocols, r.Protocols)
	switch {
	case g.state == CompletingRebalance && unchanged, g.state == Stable && unchanged && m.ID != g.leader:
		// Its answer was lost, or it only wants to know where it stands.
		g.touch(m)
		g.after(t, g.joined(m), m)
		return
	}
	cause := "member " + m.ID + " has changed"
	if unchanged && m.ID == g.leader {
		cause = "the leader " + m.ID + " joins again"
	}
	g.describeMember(m, r)
	g.park(m, t, r)
	g.rebalance(m, cause+clientReason(r.Reason))
}

// joinStatic is the join of a static member that has no member id: a new one, or
// one that was restarted and takes its own place over.
func (g *Group) joinStatic(t Ticket, r JoinRequest) {
	m := g.members.instance(r.InstanceID)
	if m == nil {
		g.joinNew(t, r, r.NewID)
		return
	}
	oldID, oldLeader, wasLeader := m.ID, g.leader, m.ID == g.leader
	old := m.metadata(g.protocol)
	g.unpark(m, FencedInstance)
	g.members.rename(m, r.NewID)
	if wasLeader {
		g.leader = m.ID
	}
	g.describeMember(m, r)
	g.touch(m)
	if g.state == Stable && g.selectProtocol() == g.protocol && sameSubscription(g.protocolType, old, m.metadata(g.protocol)) {
		g.note(m, "static member "+r.InstanceID+" is back in place of "+oldID+": nothing changes")
		g.dirty = true
		g.after(t, g.replaced(m, r, oldLeader), m)
		return
	}
	g.park(m, t, r)
	g.rebalance(m, "static member "+r.InstanceID+" is back in place of "+oldID+clientReason(r.Reason))
}

// replaced tells a static member that it has its old place in a stable group. A
// leader need not assign; one that cannot be told so is not told that it leads.
func (g *Group) replaced(m *member, r JoinRequest, oldLeader string) JoinReply {
	reply := g.joined(m)
	if g.leader != m.ID {
		return reply
	}
	if r.MaySkipAssignment {
		reply.SkipAssignment = true
		return reply
	}
	reply.Leader, reply.Members = oldLeader, nil
	return reply
}

// clientReason is what the client gave as its reason, for the record.
func clientReason(reason string) string {
	const most = 200
	if reason == "" {
		return ""
	}
	if len(reason) > most {
		reason = reason[:most]
	}
	return " (client: " + reason + ")"
}

// millis is a span as it is stored.
func millis(d time.Duration) int32 {
	return int32(min(max(d.Milliseconds(), 0), math.MaxInt32))
}
