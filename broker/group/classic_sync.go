package group

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Sync asks for a member's assignment; from the leader it hands them out.
func (g *Group) Sync(now time.Time, t Ticket, r SyncRequest, topics Topics) Out {
	g.begin(now)
	if !g.isClassic() && g.state != Dead {
		g.syncMixed(t, r, topics)
		return g.end()
	}
	m, code := g.checkSync(r)
	switch {
	case code != None:
		g.reply(t, SyncReply{Code: code})
	case g.state == Stable:
		g.synced(m)
		g.touch(m)
		g.after(t, SyncReply{ProtocolType: g.protocolType, Protocol: g.protocol, Assignment: m.Assignment}, m)
	default:
		g.syncCompleting(t, m, r)
	}
	return g.end()
}

// checkSync is what can be wrong with a sync.
func (g *Group) checkSync(r SyncRequest) (*member, Code) {
	if g.state == Dead {
		return nil, CoordinatorNotAvailable
	}
	if g.state == Empty {
		return nil, UnknownMember
	}
	m, code := g.validate(r.MemberID, r.InstanceID)
	switch {
	case code != None:
		return nil, code
	case r.Generation != g.generation(m):
		return nil, IllegalGeneration
	case r.ProtocolType != "" && r.ProtocolType != g.protocolType, r.Protocol != "" && r.Protocol != g.protocol:
		return nil, InconsistentProtocol
	case g.state == PreparingRebalance:
		return nil, RebalanceInProgress
	}
	return m, None
}

// syncCompleting lets a sync wait for the leader's; the leader's makes the group stable.
func (g *Group) syncCompleting(t Ticket, m *member, r SyncRequest) {
	if m.sync.on {
		g.reply(m.sync.ticket, SyncReply{Code: RebalanceInProgress})
	}
	m.sync = parked{ticket: t, on: true}
	g.synced(m)
	if m.ID != g.leader {
		return
	}
	assigned := make(map[string][]byte, len(r.Assignments))
	for _, a := range r.Assignments {
		assigned[a.MemberID] = a.Assignment
	}
	g.assignmentEpoch = g.epoch
	g.dirty = true
	g.transition(m, Stable, fmt.Sprintf("the leader has assigned generation %d", g.epoch))
	for _, o := range g.members.all {
		o.Assignment = assigned[o.ID]
		if !o.sync.on {
			continue
		}
		t := o.sync.ticket
		o.sync = parked{}
		g.after(t, SyncReply{ProtocolType: g.protocolType, Protocol: g.protocol, Assignment: o.Assignment}, o)
	}
}

// synced notes that a member has synced; the last one ends the wait.
func (g *Group) synced(m *member) {
	m.pendingSync = false
	if len(g.unsynced()) == 0 {
		g.classic.syncAt = time.Time{}
	}
}

// unsynced lists the members that have not synced in this generation.
func (g *Group) unsynced() []*member {
	var all []*member
	for _, m := range g.members.all {
		if m.pendingSync {
			all = append(all, m)
		}
	}
	return all
}

// syncPhaseDue drops the members that have not synced in time.
func (g *Group) syncPhaseDue() {
	g.classic.syncAt = time.Time{}
	missing := g.unsynced()
	if slices.ContainsFunc(missing, func(m *member) bool { return m.holds > 0 }) {
		// They do not know of the generation yet: it is being stored.
		g.classic.syncAt = g.now.Add(g.rebalanceTimeout())
		g.wake(g.classic.syncAt)
		return
	}
	if len(missing) == 0 || g.state != CompletingRebalance && g.state != Stable {
		return
	}
	for _, m := range missing {
		g.dismiss(m)
	}
	g.prepareRebalance(missing[0], "dropped for not syncing in time: "+names(missing))
}

// Heartbeat shows that a member of the classic protocol lives.
func (g *Group) Heartbeat(now time.Time, t Ticket, r HeartbeatRequest, topics Topics) Out {
	g.begin(now)
	if !g.isClassic() && g.state != Dead {
		g.reply(t, HeartbeatReply{g.heartbeatMixed(r, topics)})
		return g.end()
	}
	g.reply(t, HeartbeatReply{g.heartbeat(r)})
	return g.end()
}

func (g *Group) heartbeat(r HeartbeatRequest) Code {
	if g.state == Dead {
		return CoordinatorNotAvailable
	}
	m, code := g.validate(r.MemberID, r.InstanceID)
	if code != None {
		return code
	}
	if r.Generation != g.generation(m) {
		return IllegalGeneration
	}
	g.touch(m)
	if g.state == PreparingRebalance {
		return RebalanceInProgress
	}
	return None
}

// generation is what a member of a classic group must show: that of the group,
// unless the group has been one for a moment only, and the member has not joined
// it again since.
func (g *Group) generation(m *member) int32 {
	if m.Epoch > 0 {
		return m.Epoch
	}
	return g.epoch
}

// Leave removes members. Each has its own outcome.
func (g *Group) Leave(now time.Time, t Ticket, r LeaveRequest) Out {
	g.begin(now)
	if g.state == Dead {
		g.reply(t, LeaveReply{Code: CoordinatorNotAvailable})
		return g.end()
	}
	if g.kind == 0 && len(g.classic.pending) == 0 {
		g.reply(t, LeaveReply{Code: UnknownMember})
		return g.end()
	}
	if !g.isClassic() {
		g.leaveMixed(t, r)
		return g.end()
	}
	var reply LeaveReply
	var last *member
	var left []string
	for _, who := range r.Members {
		m, code := g.leave(who)
		reply.Members = append(reply.Members, LeftMember{who.MemberID, who.InstanceID, code})
		if m != nil {
			last = m
			left = append(left, m.ID+clientReason(who.Reason))
		}
	}
	switch {
	case last != nil && (g.state == Stable || g.state == CompletingRebalance):
		g.prepareRebalance(last, "left: "+strings.Join(first(left), ", "))
	case last != nil:
		g.note(last, "left: "+strings.Join(first(left), ", "))
	}
	g.completeJoinIfReady(nil)
	g.after(t, reply, nil)
	return g.end()
}

// leave removes one member, or one id that was given out.
func (g *Group) leave(who LeaveMember) (*member, Code) {
	if who.MemberID != "" && g.classic.isPending(who.MemberID) {
		g.classic.dropPending(who.MemberID)
		return nil, None
	}
	m, code := g.leaver(who)
	if code != None {
		return nil, code
	}
	g.dismiss(m)
	return m, None
}

// leaver is the member that is to leave.
func (g *Group) leaver(who LeaveMember) (*member, Code) {
	id := who.MemberID
	if m := g.members.instance(who.InstanceID); m != nil && id == "" {
		id = m.ID // an administrator names the instance alone
	}
	return g.validate(id, who.InstanceID)
}

// names lists members for the record.
func names(all []*member) string {
	var ids []string
	for _, m := range all {
		ids = append(ids, m.ID)
	}
	return strings.Join(first(ids), ", ")
}

// first keeps a list in the record short.
func first(all []string) []string {
	const most = 5
	if len(all) <= most {
		return all
	}
	return append(slices.Clone(all[:most]), fmt.Sprintf("and %d more", len(all)-most))
}

// plural is "1 member", "2 members".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
