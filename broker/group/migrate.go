package group

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weirmq/weir/fsm"
)

// This file moves a group with members from one protocol to the other.
//
// Problem: clients are exchanged one by one, and the group must go on meanwhile:
// no partition may have two owners, none may be without one for long, and no
// generation may go back.
//
// Upgrade, when a member of the consumer protocol joins a classic group: each
// classic member becomes a member of the consumer group at the epoch that is its
// generation, with the partitions that it has or may have; from then on it is
// served by mixed.go. Downgrade, when only classic members are left: the group is
// in the join phase of its next generation, which its members learn by a heartbeat.
//
// What a member may have is not what its row says alone: between the join and the
// sync of a generation there is no assignment, but clients that rebalance
// cooperatively keep what they had, and told it as they joined.
//
// Rejected: to take the assignment alone, as Kafka does, which in those states lets
// a new member have what an old one still reads.

// moveToConsumer makes the group one of the consumer protocol, at the epoch that
// was its generation. Ids that were given out stay good.
func (g *Group) moveToConsumer() {
	g.kind, g.assignmentEpoch, g.state = fsm.ConsumerGroup, g.epoch, Empty
	g.protocolType, g.protocol, g.leader = "", g.cfg.Assignors[0], ""
	g.classic.joinAt, g.classic.syncAt = time.Time{}, time.Time{}
	g.classic.initial, g.classic.newcomer = false, time.Time{}
	g.resetConsumer()
}

// stake is what one classic member brings into a consumer group.
type stake struct {
	m        *member
	wants    embedded
	assigned []fsm.TopicPartitions // by the leader
	has      []fsm.TopicPartitions // and what it may have besides
}

// upgrade makes a classic group with members one of the consumer protocol, or says
// why it cannot be.
func (g *Group) upgrade(r ConsumerRequest, topics Topics) (why string) {
	if !g.cfg.Migration.upgrades() {
		return "its members speak the classic protocol, and group.consumer.migration.policy is " + g.cfg.Migration.String()
	}
	if g.protocolType != consumerProtocol {
		return fmt.Sprintf("its members are not consumers but of the type %q", g.protocolType)
	}
	if g.members.len() > g.cfg.ConsumerMaxSize {
		return fmt.Sprintf("it has %s, and group.consumer.max.size is %d", plural(g.members.len(), "member"), g.cfg.ConsumerMaxSize)
	}
	stakes, why := g.stakes(topics)
	if why != "" {
		return why
	}
	for _, s := range stakes {
		g.unpark(s.m, RebalanceInProgress)
		if s.m.nameless {
			g.dismiss(s.m) // it will come back under another name
		}
	}
	g.moveToConsumer()
	for _, s := range stakes {
		if !s.m.gone {
			g.bring(s)
		}
	}
	g.dirty = true
	joins := &member{GroupMember: fsm.GroupMember{ID: r.MemberID, ClientID: r.ClientID, ClientHost: r.ClientHost}}
	g.note(joins, fmt.Sprintf("member %s joins: the group moves to the consumer protocol with %s of the classic protocol", r.MemberID, plural(g.members.len(), "member")))
	return ""
}

// bring makes a classic member one of the consumer group.
func (g *Group) bring(s stake) {
	m := s.m
	if m.Epoch == 0 {
		m.Epoch = g.epoch
	}
	m.PreviousEpoch = m.Epoch
	m.Assigned, m.Target, m.Assignment = s.has, s.has, nil
	m.isNew, m.pendingSync = false, false
	m.subscribe(s.wants)
	g.take(m, m.Assigned)
	g.settle(m)
	g.touch(m)
}

// subscribe takes over what a classic member's metadata says.
func (m *member) subscribe(s embedded) {
	topics := distinctTopics(slices.Clone(s.topics))
	if !slices.Equal(topics, m.Topics) {
		m.Topics = topics
	}
	m.Rack, m.Regex, m.Assignor = s.rack, "", ""
	m.subscribing = subscriptionKey(m)
}

// spoken is the metadata that counts of a classic member: for the protocol of the
// group, else for the one that it likes best.
func (g *Group) spoken(m *member) []byte {
	if p := m.metadata(g.protocol); p != nil {
		return p
	}
	return m.Protocols[0].Metadata
}

// stakes finds out what each classic member has, so that no partition is had twice.
// The leader's word counts first, then what members told as they joined, that of
// the newest generation first.
func (g *Group) stakes(topics Topics) (all []stake, why string) {
	owners := map[fsm.TopicPartition]*member{}
	for _, m := range g.members.all {
		s := stake{m: m}
		var ok bool
		if s.wants, ok = parseSubscription(g.spoken(m)); !ok {
			return nil, "what member " + m.ID + " says about itself cannot be read"
		}
		given, own, ok := parseAssignment(m.Assignment)
		switch {
		case !ok:
			return nil, "the assignment of member " + m.ID + " cannot be read"
		case own:
			return nil, "its assignor tells members more than their partitions, which would be lost; use another one first"
		}
		s.assigned = union(m.Assigned, resolve(given, topics))
		if twice := claim(owners, m, s.assigned); len(twice) > 0 {
			return nil, fmt.Sprintf("%s of member %s are another's too; use another assignor first", plural(count(twice), "partition"), m.ID)
		}
		all = append(all, s)
	}
	order := make([]*stake, len(all))
	for i := range all {
		order[i] = &all[i]
	}
	slices.SortStableFunc(order, func(a, b *stake) int { return cmp.Compare(b.wants.generation, a.wants.generation) })
	for _, s := range order {
		told := resolve(s.wants.owned, topics)
		s.has = union(s.assigned, subtract(told, claim(owners, s.m, subtract(told, s.assigned))))
	}
	return all, ""
}

// claim makes m the owner of what has none, and returns what has.
func claim(owners map[fsm.TopicPartition]*member, m *member, set []fsm.TopicPartitions) []fsm.TopicPartitions {
	return filter(set, func(topic fsm.TopicID, p int32) bool {
		tp := fsm.TopicPartition{Topic: topic, Partition: p}
		if owners[tp] != nil {
			return true
		}
		owners[tp] = m
		return false
	})
}

// downgrades says that the group is to go back to the classic protocol: nobody else
// is left in it.
func (g *Group) downgrades() bool {
	n := g.members.len()
	if n == 0 || n > g.cfg.MaxSize || !g.cfg.Migration.downgrades() {
		return false
	}
	if slices.ContainsFunc(g.members.all, func(m *member) bool { return !m.classic() }) {
		return false
	}
	for _, speak := range g.classic.supports {
		if speak == n {
			return true
		}
	}
	return false
}

// downgrade makes a consumer group of classic members a classic group, which
// rebalances at once. Until a member has joined again it may show the epoch that it
// had; and what it may have is kept, should the group move again before that.
func (g *Group) downgrade(m *member, cause string) {
	for _, o := range g.members.all {
		o.Assigned = union(o.Assigned, o.Revoking)
		o.Target, o.Revoking, o.Grants, o.Assignment = nil, nil, nil, nil
		o.Topics, o.Rack = nil, ""
		if o.Epoch == g.epoch {
			o.Epoch = 0
		}
		o.PreviousEpoch, o.settled, o.pendingSync = 0, false, false
		o.dueAt, o.untold, o.reported, o.disclaims = time.Time{}, false, nil, false
	}
	g.kind, g.assignmentEpoch, g.state = fsm.ClassicGroup, g.epoch, Stable
	g.protocolType, g.leader = consumerProtocol, ""
	g.protocol = g.selectProtocol()
	g.resetConsumer()
	g.dirty = true
	g.prepareRebalance(m, cause+": the group moves to the classic protocol, which all its members speak")
}
