package group

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/weirmq/weir/fsm"
)

// refresh looks at the topics again when they have changed. If the targets do not
// cover exactly the partitions that are subscribed to, the group epoch rises.
func (g *Group) refresh(topics Topics) {
	s := &g.soft
	if s.looked && s.version == topics.Version() {
		return
	}
	s.looked, s.version, s.topics, s.regexes = true, topics.Version(), map[string][]Topic{}, map[string]*regexp.Regexp{}
	if g.assignmentEpoch == g.epoch && !g.covered(topics) {
		g.bump(nil, "topics were made, deleted or got partitions")
	}
}

// covered says that the targets hold every partition that is subscribed to, and
// no other. Targets never overlap, so that counting is enough.
func (g *Group) covered(topics Topics) bool {
	wanted, have := map[fsm.TopicID]int{}, map[fsm.TopicID]int{}
	for _, m := range g.members.all {
		for _, t := range g.subscribed(m, topics) {
			wanted[t.ID] = int(t.Partitions)
		}
		for _, t := range m.Target {
			have[t.Topic] += len(t.Partitions)
		}
	}
	for id, n := range wanted {
		if have[id] != n {
			return false
		}
	}
	return len(have) == len(wanted)
}

// subscribed are the topics of a member that exist, ascending by id.
func (g *Group) subscribed(m *member, topics Topics) []Topic {
	s := &g.soft
	if all, known := s.topics[m.subscribing]; known {
		return all
	}
	var all []Topic
	for _, name := range m.Topics {
		if t, ok := topics.Topic(name); ok && t.Partitions > 0 {
			all = append(all, t)
		}
	}
	if re := g.regex(m.Regex); re != nil {
		topics.All(func(t Topic) bool {
			if t.Partitions > 0 && re.MatchString(t.Name) {
				all = append(all, t)
			}
			return true
		})
	}
	slices.SortFunc(all, topicOrder)
	all = slices.CompactFunc(all, func(a, b Topic) bool { return a.ID == b.ID })
	s.topics[m.subscribing] = all
	return all
}

// regex is the compiled form of a member's expression, nil for none.
func (g *Group) regex(expression string) *regexp.Regexp {
	if expression == "" {
		return nil
	}
	re, known := g.soft.regexes[expression]
	if !known {
		re, _ = compile(expression) // nil, matching nothing, if it does not compile
		g.soft.regexes[expression] = re
	}
	return re
}

// preferred is the assignor that most members ask for, of equals the first of the
// configuration; the default when nobody asks.
func (g *Group) preferred() string {
	votes := map[string]int{}
	for _, m := range g.members.all {
		if m.Assignor != "" {
			votes[m.Assignor]++
		}
	}
	best := g.cfg.Assignors[0]
	for _, name := range g.cfg.Assignors {
		if votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

// assign makes the target assignment if the group epoch asks for a new one and
// the last one is old enough.
func (g *Group) assign(topics Topics) {
	s := &g.soft
	if g.assignmentEpoch == g.epoch || g.now.Before(s.assignedAt.Add(g.cfg.AssignmentInterval)) {
		return
	}
	all := make([]assignee, 0, g.members.len())
	for _, m := range g.members.all {
		all = append(all, assignee{id: m.ID, instance: m.InstanceID, topics: g.subscribed(m, topics), target: m.Target})
	}
	g.protocol = g.preferred()
	targets := assign(g.protocol, all)
	g.assignmentEpoch = g.epoch
	for i, m := range g.members.all {
		if !equal(m.Target, targets[i]) {
			m.Target = targets[i]
		}
		g.settle(m)
	}
	s.assignedAt = g.now
	g.dirty = true
	g.note(nil, fmt.Sprintf("the %s assignor made assignment %d (%s)", g.protocol, g.epoch, s.cause))
}

// reconcile brings a member nearer to its target: first it gives up what it shall
// not have; when it has, it goes to the epoch of the assignment and gets what
// nobody else has; the rest as others give it up.
//
// Problem: no partition may have two owners at any moment, and a client gives one
// up only some time after it was told to.
// Invariant: owners has at most one member for each partition, which is the one
// that has it in Assigned or Revoking; a partition leaves Revoking only when its
// member has given it up, see gaveUp, or is not a member any more.
func (g *Group) reconcile(m *member, r ConsumerRequest, topics Topics) {
	defer g.settled(m)
	owned := normal(r.Owned)
	if len(m.Revoking) > 0 {
		if !m.gaveUp(r, owned) {
			m.report(r, owned)
			return
		}
		g.release(m, m.Revoking)
		m.ungrant(m.Revoking)
		m.Revoking, m.dueAt, m.untold, m.disclaims = nil, time.Time{}, false, false
		g.dirty = true
	}
	m.report(r, owned)
	target := g.wanted(m, topics)
	if drop := subtract(m.Assigned, target); len(drop) > 0 {
		m.Assigned = intersect(m.Assigned, target)
		g.dirty = true
		if r.Epoch != EpochJoin {
			m.Revoking = drop
			m.dueAt, m.untold = g.now.Add(m.rebalance()), true
			m.disclaims = r.full() && !overlaps(owned, drop)
			return
		}
		g.release(m, drop)
	}
	g.advance(m, target)
}

// gaveUp says that a member does not have what it was told to give up. A client
// that joins has given everything up. One that tells what has changed has had our
// last answer, so that it knows what it shall not have, and means it. One that
// tells everything has perhaps not: it may be about to take over what an earlier
// answer gave it. It is believed if it has told before that it had these
// partitions; else when its next request shows that it has had our answer, and
// that nothing has changed.
//
// Rejected: to believe it always, as Kafka does. Random runs with lost answers
// found two clients with the same partition.
func (m *member) gaveUp(r ConsumerRequest, owned []fsm.TopicPartitions) bool {
	switch {
	case r.Epoch == EpochJoin:
		return true
	case r.Owned == nil:
		return m.disclaims
	case overlaps(owned, m.Revoking):
		m.disclaims = false
		return false
	case !r.full() || len(subtract(m.Revoking, m.reported)) == 0:
		return true
	}
	m.disclaims = true
	return false
}

// report remembers what a client says that it has.
func (m *member) report(r ConsumerRequest, owned []fsm.TopicPartitions) {
	if r.Owned != nil {
		m.reported = owned
	}
}

// settled notes whether a member has its whole target, and what that makes of the group.
func (g *Group) settled(m *member) {
	g.settle(m)
	if g.State() != g.history.state {
		g.note(m, "member "+m.ID+" has reconciled")
	}
}

// told begins the time that a member has to revoke, when it has been told to.
func (g *Group) told(m *member) {
	if m.untold {
		m.untold, m.dueAt = false, g.now.Add(m.rebalance())
		g.wake(m.dueAt)
	}
}

// wanted is a member's target, without topics that it has unsubscribed from since
// the target was made.
func (g *Group) wanted(m *member, topics Topics) []fsm.TopicPartitions {
	if g.assignmentEpoch == g.epoch {
		return m.Target
	}
	subscribed := g.subscribed(m, topics)
	return filter(m.Target, func(id fsm.TopicID, _ int32) bool {
		return slices.ContainsFunc(subscribed, func(t Topic) bool { return t.ID == id })
	})
}

// advance moves a member that has nothing to give up to the epoch of the
// assignment, with all of its target that is free.
func (g *Group) advance(m *member, target []fsm.TopicPartitions) {
	if free := g.unowned(target); len(free) > 0 {
		g.take(m, free)
		m.Assigned = union(m.Assigned, free)
		g.dirty = true
	}
	if m.Epoch != g.assignmentEpoch {
		m.PreviousEpoch, m.Epoch = m.Epoch, g.assignmentEpoch
		g.dirty = true
	}
	m.grant()
}

// grant notes that a member has what it got just now from its present epoch on.
func (m *member) grant() {
	fresh := m.Assigned
	for _, held := range m.Grants {
		fresh = subtract(fresh, held.Partitions)
	}
	if len(fresh) == 0 {
		return
	}
	grants := slices.Clone(m.Grants) // the Image has the old ones
	if last := len(grants) - 1; last >= 0 && grants[last].Epoch == m.Epoch {
		grants[last].Partitions = union(grants[last].Partitions, fresh)
	} else {
		grants = append(grants, fsm.Grant{Epoch: m.Epoch, Partitions: fresh})
	}
	m.Grants = grants
}

// ungrant forgets since when a member had what it has given up.
func (m *member) ungrant(lost []fsm.TopicPartitions) {
	var grants []fsm.Grant
	for _, held := range m.Grants {
		if rest := subtract(held.Partitions, lost); len(rest) > 0 {
			grants = append(grants, fsm.Grant{Epoch: held.Epoch, Partitions: rest})
		}
	}
	m.Grants = grants
}

// unowned is what nobody owns of a set.
func (g *Group) unowned(set []fsm.TopicPartitions) []fsm.TopicPartitions {
	return filter(set, func(id fsm.TopicID, p int32) bool {
		return g.soft.owners[fsm.TopicPartition{Topic: id, Partition: p}] == nil
	})
}

// settle notes whether a member has its whole target. One that is away for a
// while has what it can have.
func (g *Group) settle(m *member) {
	m.settled = len(m.Revoking) == 0 && (m.Epoch == g.assignmentEpoch || m.Epoch == EpochLeaveStatic) && equal(m.Assigned, m.Target)
}

// unsettled counts the members that do not have their whole target.
func (g *Group) unsettled() int {
	n := 0
	for _, m := range g.members.all {
		if !m.settled {
			n++
		}
	}
	return n
}

// take makes m the owner of partitions that nobody owns.
func (g *Group) take(m *member, set []fsm.TopicPartitions) {
	for _, t := range set {
		for _, p := range t.Partitions {
			tp := fsm.TopicPartition{Topic: t.Topic, Partition: p}
			if o := g.soft.owners[tp]; o != nil {
				panic(fmt.Sprintf("BUG: partition %d of %x has the owners %s and %s in group %s", p, t.Topic, o.ID, m.ID, g.id))
			}
			g.soft.owners[tp] = m
		}
	}
}

// release ends the ownership of m.
func (g *Group) release(m *member, set []fsm.TopicPartitions) {
	for _, t := range set {
		for _, p := range t.Partitions {
			tp := fsm.TopicPartition{Topic: t.Topic, Partition: p}
			if o := g.soft.owners[tp]; o != m {
				panic(fmt.Sprintf("BUG: partition %d of %x is not owned by %s in group %s", p, t.Topic, m.ID, g.id))
			}
			delete(g.soft.owners, tp)
		}
	}
}
