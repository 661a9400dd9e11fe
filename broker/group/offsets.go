package group

import (
	"regexp"
	"slices"

	"github.com/weirmq/weir/fsm"
)

// CheckCommit says whether a commit may be proposed. Apply looks at it again, so
// that one in flight during a change cannot slip in. epoch is the generation, the
// member epoch, or -1 from someone who is no member.
func (g *Group) CheckCommit(memberID, instance string, epoch int32) Code {
	if g.state == Dead {
		return CoordinatorNotAvailable
	}
	if g.kind == fsm.ConsumerGroup {
		return g.checkConsumerCommit(memberID, instance, epoch)
	}
	if epoch < 0 && g.state == Empty {
		return None
	}
	if epoch < 0 && memberID == "" && instance == "" {
		return UnknownMember
	}
	m, code := g.validate(memberID, instance)
	if code != None {
		return code
	}
	switch {
	case epoch != g.generation(m):
		return IllegalGeneration
	case g.state == CompletingRebalance:
		return RebalanceInProgress
	}
	return None
}

func (g *Group) checkConsumerCommit(memberID, instance string, epoch int32) Code {
	if epoch < 0 && g.members.len() == 0 {
		return None
	}
	m, code := g.validate(memberID, instance)
	switch {
	case code != None:
		return code
	case epoch == m.Epoch:
		return None
	case m.classic():
		return IllegalGeneration
	case epoch < m.Epoch && len(m.Grants) > 0 && epoch >= m.Grants[0].Epoch:
		return None // Apply looks at the partitions
	}
	return StaleMemberEpoch
}

// CommitsOn notes the connection on which a member commits, by a number that rises from one connection
// to the next. It returns false for one older than the last: what comes there may have
// been overtaken. Who is no member may commit on any.
func (g *Group) CommitsOn(memberID string, connection uint64) bool {
	m := g.members.find(memberID)
	if m == nil {
		return true
	}
	late := connection < m.commits
	m.commits = max(m.commits, connection)
	return !late
}

// HasEpochs says that a member has an epoch of its own that it must show: it speaks
// the consumer protocol.
func (g *Group) HasEpochs(memberID string) bool {
	m := g.members.find(memberID)
	return m != nil && g.kind == fsm.ConsumerGroup && !m.classic()
}

// CheckFetch says whether a member of a consumer group may fetch offsets. A
// request that names no member always may.
func (g *Group) CheckFetch(memberID string, epoch int32) Code {
	if g.kind != fsm.ConsumerGroup || memberID == "" && epoch < 0 {
		return None
	}
	m := g.members.find(memberID)
	switch {
	case m == nil:
		return UnknownMember
	case epoch != m.Epoch:
		return StaleMemberEpoch
	}
	return None
}

// KnowsSubscriptions says that Subscribed can be relied on: of a classic group
// with members only when it is stable and speaks the consumers' own protocol.
func (g *Group) KnowsSubscriptions() bool {
	if g.kind == fsm.ConsumerGroup || g.members.len() == 0 {
		return true
	}
	if g.state != Stable || g.protocolType != consumerProtocol {
		return false
	}
	return !slices.ContainsFunc(g.members.all, func(m *member) bool {
		_, ok := subscription(m.metadata(g.protocol))
		return !ok
	})
}

// Subscribed says whether a member subscribes to the topic.
func (g *Group) Subscribed(topic string) bool {
	return slices.ContainsFunc(g.members.all, func(m *member) bool {
		if g.kind == fsm.ConsumerGroup {
			return slices.Contains(m.Topics, topic) || m.Regex != "" && matches(m.Regex, topic)
		}
		topics, ok := subscription(m.metadata(g.protocol))
		return ok && slices.Contains(topics, topic)
	})
}

// matches says that the whole name matches; an expression that does not compile
// (an older version may have stored it) matches nothing.
func matches(expression, name string) bool {
	re, err := compile(expression)
	return err == nil && re.MatchString(name)
}

// compile makes an RE2 expression that must match a whole name.
func compile(expression string) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(expression); err != nil {
		return nil, err
	}
	return regexp.Compile("^(?:" + expression + ")$")
}
