package group

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/fsm"
)

// classicSoft is what a coordinator knows of a classic group beyond the facts.
type classicSoft struct {
	supports map[string]int // protocol name -> members that speak it
	pending  []pending      // who was given an id and has not joined with it yet; ascending by id

	joinAt    time.Time     // when the join phase ends at the latest
	initial   bool          // the join phase began with no members: it lasts its time
	newcomer  time.Time     // of an initial join phase: when the last member joined since its time was last set
	remaining time.Duration // by how much it may still be extended
	syncAt    time.Time     // when the members that have not synced are dropped
}

// pendingMax bounds the ids that were given out and not used yet. A client comes
// back with its id within milliseconds; past the bound the oldest id is forgotten,
// and whoever still comes with it is told to begin anew.
const pendingMax = 1000

// pending is an id that was given out.
type pending struct {
	id       string
	client   string
	given    time.Time
	deadline time.Time
}

// reset makes what a Group always has.
func (g *Group) reset() {
	g.members.instances = map[string]*member{}
	g.classic.supports = map[string]int{}
	g.resetConsumer()
}

// loadClassic finds out where a group that has members stands. The members that
// had not synced get the time for it anew.
func (g *Group) loadClassic() {
	g.state = Stable
	for _, m := range g.members.all {
		g.touch(m)
	}
	if g.leader == "" {
		g.prepareRebalance(nil, "the rebalance after the move from the consumer protocol goes on")
		return
	}
	if g.assignmentEpoch == g.epoch {
		return
	}
	g.state = CompletingRebalance
	for _, m := range g.members.all {
		m.pendingSync = true
	}
	g.classic.syncAt = g.now.Add(g.rebalanceTimeout())
	g.wake(g.classic.syncAt)
}

// enrol takes a member in, with all that is counted about it.
func (g *Group) enrol(m *member) {
	g.members.add(m)
	for _, p := range m.Protocols {
		g.classic.supports[p.Name]++
	}
	g.emptySince = 0
}

// setProtocols changes what a member speaks.
func (g *Group) setProtocols(m *member, protocols []fsm.GroupProtocol) {
	for _, p := range m.Protocols {
		g.classic.supports[p.Name]--
	}
	m.Protocols = protocols
	for _, p := range m.Protocols {
		g.classic.supports[p.Name]++
	}
}

// dismiss takes a member out. Whoever waits in its name is told that it is unknown.
func (g *Group) dismiss(m *member) {
	m.gone = true
	g.unpark(m, UnknownMember)
	g.setProtocols(m, nil)
	maps.DeleteFunc(g.classic.supports, func(_ string, n int) bool { return n == 0 })
	g.members.remove(m)
	if g.leader == m.ID {
		g.leader = ""
	}
}

// unpark answers what waits in a member's name with an error.
func (g *Group) unpark(m *member, code Code) {
	if m.join.on {
		g.reply(m.join.ticket, JoinReply{Code: code, Generation: -1, MemberID: m.ID})
		m.join = parked{}
	}
	if m.sync.on {
		g.reply(m.sync.ticket, SyncReply{Code: code})
		m.sync = parked{}
	}
}

// validate checks who a request says it comes from.
func (g *Group) validate(id, instance string) (*member, Code) {
	if instance != "" {
		switch m := g.members.instance(instance); {
		case m == nil:
			return nil, UnknownMember
		case m.ID != id:
			return nil, FencedInstance
		}
	}
	m := g.members.find(id)
	if m == nil {
		return nil, UnknownMember
	}
	return m, None
}

// becomeClassic turns a group without members into a classic one. The generation
// goes on from the group epoch, so that it never goes back under one group id.
func (g *Group) becomeClassic() {
	if g.kind == fsm.ClassicGroup {
		return
	}
	if g.kind == fsm.ConsumerGroup {
		g.note(nil, "the empty group moves from the consumer protocol to the classic one")
	}
	g.kind, g.assignmentEpoch = fsm.ClassicGroup, g.epoch
	g.protocolType, g.protocol, g.leader = "", "", ""
	g.resetConsumer()
}

// isClassic says that the group can serve a classic member; one without members
// is of either kind.
func (g *Group) isClassic() bool { return g.kind != fsm.ConsumerGroup || g.members.len() == 0 }

// supportsProtocols says that a member that speaks these would find common ground.
func (g *Group) supportsProtocols(kind string, protocols []fsm.GroupProtocol) bool {
	if g.state == Empty {
		return kind != "" && len(protocols) > 0
	}
	return kind == g.protocolType && slices.ContainsFunc(protocols, func(p fsm.GroupProtocol) bool {
		return g.classic.supports[p.Name] == g.members.len()
	})
}

// selectProtocol lets each member vote for the first of its protocols that all
// speak. Most votes win; of equals the first by name.
func (g *Group) selectProtocol() string {
	votes := map[string]int{}
	for _, m := range g.members.all {
		for _, p := range m.Protocols {
			if g.classic.supports[p.Name] == g.members.len() {
				votes[p.Name]++
				break
			}
		}
	}
	if len(votes) == 0 {
		panic("BUG: no protocol in common in group " + g.id)
	}
	best := ""
	for _, name := range slices.Sorted(maps.Keys(votes)) {
		if best == "" || votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

// rebalanceTimeout is how long the slowest member may take.
func (g *Group) rebalanceTimeout() time.Duration {
	var most time.Duration
	for _, m := range g.members.all {
		most = max(most, m.rebalance())
	}
	return most
}

// allJoined says that nobody is missing from the join phase.
func (g *Group) allJoined() bool {
	return len(g.classic.pending) == 0 && !slices.ContainsFunc(g.members.all, func(m *member) bool { return !m.join.on })
}

// joining counts the members whose join waits.
func (g *Group) joining() int {
	n := 0
	for _, m := range g.members.all {
		if m.join.on {
			n++
		}
	}
	return n
}

// rebalance begins a rebalance, or ends the join phase of one if m was the last
// that was missing.
func (g *Group) rebalance(m *member, cause string) {
	if g.state == PreparingRebalance {
		g.completeJoinIfReady(m)
		return
	}
	g.prepareRebalance(m, cause)
}

// prepareRebalance asks all members to join again. They learn it by their next
// heartbeat, or at once where they wait for an assignment.
func (g *Group) prepareRebalance(m *member, cause string) {
	s := &g.classic
	initial := g.state == Empty
	for _, o := range g.members.all {
		o.pendingSync = false
		if o.sync.on {
			g.reply(o.sync.ticket, SyncReply{Code: RebalanceInProgress})
			o.sync = parked{}
			g.touch(o)
		}
	}
	s.syncAt = time.Time{}
	s.initial, s.newcomer = initial, time.Time{}
	g.transition(m, PreparingRebalance, cause)
	if !initial {
		s.joinAt = g.now.Add(g.rebalanceTimeout())
		g.wake(s.joinAt)
		g.completeJoinIfReady(nil)
		return
	}
	delay := g.cfg.InitialDelay
	s.remaining = max(g.rebalanceTimeout()-delay, 0)
	s.joinAt = g.now.Add(delay)
	g.wake(s.joinAt)
	if delay <= 0 {
		g.completeJoin("no initial delay")
	}
}

// completeJoinIfReady ends the join phase when nobody is missing; an initial one
// lasts its time. m is the last that joined, if somebody did.
func (g *Group) completeJoinIfReady(m *member) {
	if g.state != PreparingRebalance || g.classic.initial || !g.allJoined() {
		return
	}
	if m != nil {
		g.completeJoin("all have joined, the last was " + m.ID)
		return
	}
	g.completeJoin("all have joined")
}

// joinPhaseDue ends the join phase at its time, or extends an initial one until the
// last who came meanwhile has been there for the initial delay. Kafka waits that
// long again from now on, up to twice as long as anybody needs.
func (g *Group) joinPhaseDue() {
	s := &g.classic
	if delay := min(s.newcomer.Add(g.cfg.InitialDelay).Sub(g.now), s.remaining); s.initial && delay > 0 {
		s.newcomer = time.Time{}
		s.remaining -= delay
		s.joinAt = g.now.Add(delay)
		g.wake(s.joinAt)
		return
	}
	if s.initial {
		g.completeJoin("the initial delay is over")
		return
	}
	g.completeJoin("the rebalance timeout is over")
}

// completeJoin begins a new generation with those who have joined. Static members
// that have not are kept; if nobody else is there, they get more time.
func (g *Group) completeJoin(cause string) {
	s := &g.classic
	s.joinAt = time.Time{}
	for _, m := range slices.Clone(g.members.all) {
		if !m.join.on && !m.static() {
			g.dismiss(m)
			g.note(m, "dropped: it did not join again in time")
		}
	}
	if g.members.len() > 0 && !g.electLeader() {
		s.joinAt = g.now.Add(g.rebalanceTimeout())
		g.wake(s.joinAt)
		return
	}
	s.initial = false
	g.epoch++
	g.dirty = true
	if g.members.len() == 0 {
		g.assignmentEpoch = g.epoch
		g.protocol, g.leader = "", ""
		g.emptySince = g.now.UnixMilli()
		g.transition(nil, Empty, "no members are left")
		return
	}
	g.protocol = g.selectProtocol()
	g.transition(nil, CompletingRebalance, fmt.Sprintf("generation %d with %s: %s", g.epoch, plural(g.members.len(), "member"), cause))
	for _, m := range g.members.all {
		g.admit(m)
	}
	s.syncAt = g.now.Add(g.rebalanceTimeout())
	g.wake(s.syncAt)
}

// admit tells one member about the new generation.
func (g *Group) admit(m *member) {
	m.Assignment, m.Assigned, m.Epoch = nil, nil, 0
	m.pendingSync = true
	if !m.join.on {
		g.touch(m)
		return
	}
	t := m.join.ticket
	m.join, m.isNew, m.nameless = parked{}, false, false
	g.after(t, g.joined(m), m)
}

// joined is the answer to a member of the current generation.
func (g *Group) joined(m *member) JoinReply {
	r := JoinReply{Generation: g.epoch, ProtocolType: g.protocolType, Protocol: g.protocol, Leader: g.leader, MemberID: m.ID}
	if g.leader == m.ID {
		r.Members = g.joinMembers()
	}
	return r
}

func (g *Group) joinMembers() []JoinMember {
	all := make([]JoinMember, 0, g.members.len())
	for _, m := range g.members.all {
		all = append(all, JoinMember{m.ID, m.InstanceID, m.metadata(g.protocol)})
	}
	return all
}

// electLeader keeps the leader if it has joined again; else the first that joined
// the group and is back leads.
func (g *Group) electLeader() bool {
	if m := g.members.find(g.leader); m != nil && m.join.on {
		return true
	}
	var first *member
	for _, m := range g.members.all {
		if m.join.on && (first == nil || m.joined < first.joined) {
			first = m
		}
	}
	if first == nil {
		return false
	}
	g.leader = first.ID
	return true
}

// expireClassic does what is due in a classic group.
func (g *Group) expireClassic() {
	s := &g.classic
	s.expirePending(g.now)
	if !s.joinAt.IsZero() && !s.joinAt.After(g.now) {
		g.joinPhaseDue()
	}
	if !s.syncAt.IsZero() && !s.syncAt.After(g.now) {
		g.syncPhaseDue()
	}
	for _, m := range slices.Clone(g.members.all) {
		if m.paused() || m.deadline.After(g.now) || g.members.find(m.ID) != m {
			continue
		}
		cause := "its session of " + m.session().String() + " is over"
		if m.isNew {
			cause = "its first join was in flight for " + NewMemberJoin.String()
		}
		g.dismiss(m)
		g.departed(m, cause)
	}
	g.completeJoinIfReady(nil)
}

// departed goes on after a member was dismissed.
func (g *Group) departed(m *member, cause string) {
	switch g.state {
	case Stable, CompletingRebalance:
		g.prepareRebalance(m, "member "+m.ID+" is gone: "+cause)
	case PreparingRebalance:
		g.note(m, "dropped: "+cause)
		g.completeJoinIfReady(nil)
	}
}

// sameProtocols says that two lists are equal.
func sameProtocols(a, b []fsm.GroupProtocol) bool {
	return slices.EqualFunc(a, b, func(x, y fsm.GroupProtocol) bool {
		return x.Name == y.Name && bytes.Equal(x.Metadata, y.Metadata)
	})
}

// distinct drops protocols that are named again.
func distinct(all []fsm.GroupProtocol) []fsm.GroupProtocol {
	seen := make(map[string]bool, len(all))
	return slices.DeleteFunc(slices.Clone(all), func(p fsm.GroupProtocol) bool {
		again := seen[p.Name]
		seen[p.Name] = true
		return again
	})
}

// expirePending forgets ids that were given out and not used in time.
func (s *classicSoft) expirePending(now time.Time) {
	s.pending = slices.DeleteFunc(s.pending, func(p pending) bool { return !p.deadline.After(now) })
}

// isPending says that the id was given out.
func (s *classicSoft) isPending(id string) bool {
	_, found := s.findPending(id)
	return found
}

// dropPending forgets an id that was given out.
func (s *classicSoft) dropPending(id string) {
	if i, found := s.findPending(id); found {
		s.pending = slices.Delete(s.pending, i, i+1)
	}
}

// addPending remembers an id that was given out.
func (s *classicSoft) addPending(p pending) {
	if len(s.pending) >= pendingMax {
		s.dropOldestPending()
	}
	i, found := s.findPending(p.id)
	if found {
		panic("BUG: id " + p.id + " was given out twice")
	}
	s.pending = slices.Insert(s.pending, i, p)
}

// dropOldestPending forgets the id that was given out first, however long its
// client said that it may take.
func (s *classicSoft) dropOldestPending() {
	oldest := 0
	for i := range s.pending {
		if s.pending[i].given.Before(s.pending[oldest].given) {
			oldest = i
		}
	}
	s.pending = slices.Delete(s.pending, oldest, oldest+1)
}

func (s *classicSoft) findPending(id string) (int, bool) {
	return slices.BinarySearchFunc(s.pending, id, func(p pending, id string) int { return strings.Compare(p.id, id) })
}
