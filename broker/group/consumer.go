package group

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/fsm"
)

// consumerSoft is what a coordinator knows of a consumer group beyond the facts.
type consumerSoft struct {
	owners     map[fsm.TopicPartition]*member // who has a partition, or has not said yet that it gave it up
	assignedAt time.Time                      // of the last target assignment by this coordinator
	bumpedAt   time.Time                      // of the last rise of the group epoch under it
	cause      string                         // of the last change of the group epoch
	looked     bool                           // version is set
	version    uint64                         // of the topics that the following was made from
	topics     map[string][]Topic             // subscription -> its topics
	regexes    map[string]*regexp.Regexp
}

func (g *Group) resetConsumer() {
	g.soft = consumerSoft{owners: map[fsm.TopicPartition]*member{}}
}

// loadConsumer counts again what follows from the facts.
func (g *Group) loadConsumer() {
	for _, m := range g.members.all {
		m.subscribing = subscriptionKey(m)
		g.take(m, m.Assigned)
		g.take(m, m.Revoking)
		if len(m.Revoking) > 0 {
			g.due(m)
		}
		g.settle(m)
		g.touch(m)
	}
}

// ConsumerHeartbeat is the one request of members of the consumer protocol: they
// join, tell what they have, learn what they shall have, and leave by it.
func (g *Group) ConsumerHeartbeat(now time.Time, t Ticket, r ConsumerRequest, topics Topics) Out {
	g.begin(now)
	if bad := g.checkConsumer(r); bad.Code != None {
		g.reply(t, bad)
		return g.end()
	}
	if r.Epoch < 0 {
		g.leaveConsumer(t, r)
		return g.end()
	}
	m, bad := g.consumerMember(r, topics)
	if m == nil {
		g.reply(t, bad)
		return g.end()
	}
	before, epoch := m.Assigned, m.Epoch
	g.refresh(topics)
	g.assign(topics)
	g.reconcile(m, r, topics)
	g.touch(m)
	reply := ConsumerReply{MemberID: m.ID, Epoch: m.Epoch, HeartbeatInterval: g.beatInterval(m)}
	if r.Epoch == EpochJoin || r.full() || r.Epoch != epoch || !equal(before, m.Assigned) {
		reply.HasAssignment, reply.Assignment = true, m.Assigned
	}
	g.after(t, reply, m)
	return g.end()
}

// Members of a group that is changing come as often as this, and less often the more
// there are: each change of assignment is learned, and each partition handed on, by
// nothing but heartbeats.
const (
	changingHeartbeat   = 500 * time.Millisecond
	changingHeartbeatOf = time.Millisecond // for each member
)

// beatInterval is when a member shall come again. A group is changing while a member
// has not what it shall have, and until all members have come once since its epoch rose.
func (g *Group) beatInterval(m *member) time.Duration {
	usual := g.cfg.ConsumerHeartbeat
	if m.settled && !g.now.Before(g.soft.bumpedAt.Add(usual)) {
		return usual
	}
	return min(usual, max(changingHeartbeat, time.Duration(g.members.len())*changingHeartbeatOf))
}

// full says that the request tells everything, as a client does when it does not
// know what the coordinator knows.
func (r ConsumerRequest) full() bool {
	return r.RebalanceTimeout >= 0 && (r.Topics != nil || r.Regex != nil) && r.Owned != nil
}

// refusal is an answer that says what is wrong.
func (r ConsumerRequest) refusal(c Code, format string, args ...any) ConsumerReply {
	return ConsumerReply{Code: c, Message: fmt.Sprintf(format, args...), MemberID: r.MemberID, Epoch: r.Epoch}
}

// checkConsumer is what can be wrong with a request whoever asks.
func (g *Group) checkConsumer(r ConsumerRequest) ConsumerReply {
	switch {
	case g.state == Dead:
		return r.refusal(CoordinatorNotAvailable, "The group is being removed or loaded anew; try again.")
	case r.Epoch < EpochLeaveStatic:
		return r.refusal(InvalidRequest, "Member epoch %d is not valid.", r.Epoch)
	case r.MemberID == "" && r.Epoch != EpochJoin:
		return r.refusal(InvalidRequest, "A member id is needed.")
	case r.Epoch == EpochLeaveStatic && r.InstanceID == "":
		return r.refusal(InvalidRequest, "Member epoch -2 is for members with an instance id.")
	case r.Epoch == EpochJoin && r.RebalanceTimeout < 0:
		return r.refusal(InvalidRequest, "A rebalance timeout is needed to join.")
	case r.Epoch == EpochJoin && (r.Owned == nil || count(r.Owned) > 0):
		return r.refusal(InvalidRequest, "A member that joins must say that it owns no partitions.")
	case r.Epoch == EpochJoin && r.Topics == nil && r.Regex == nil:
		return r.refusal(InvalidRequest, "A member that joins must name topics or a regular expression.")
	case r.tooLong():
		return r.refusal(InvalidRequest, "A name is longer than %d bytes.", textMax)
	case r.Assignor != nil && *r.Assignor != "" && !slices.Contains(g.cfg.Assignors, *r.Assignor):
		return r.refusal(UnsupportedAssignor, "Assignor %s is not supported; use one of %s.", *r.Assignor, strings.Join(g.cfg.Assignors, ", "))
	}
	if r.Regex != nil && *r.Regex != "" {
		if _, err := compile(*r.Regex); err != nil {
			return r.refusal(InvalidRegex, "The regular expression is not valid in RE2: %s.", err)
		}
	}
	return ConsumerReply{}
}

func (r ConsumerRequest) tooLong() bool {
	long := tooLong(r.MemberID, r.InstanceID, r.NewID, r.ClientID, r.ClientHost) || tooLong(r.Topics...)
	for _, p := range []*string{r.Rack, r.Regex, r.Assignor} {
		long = long || p != nil && len(*p) > textMax
	}
	return long
}

// consumerMember finds the member that a request comes from, takes it in if it
// is new, and takes over what the request says about it.
func (g *Group) consumerMember(r ConsumerRequest, topics Topics) (*member, ConsumerReply) {
	if r.Epoch == EpochJoin {
		return g.joinConsumer(r, topics)
	}
	if g.kind != fsm.ConsumerGroup {
		return nil, r.refusal(UnknownMember, "Member %s is not in the group.", r.MemberID)
	}
	m, code := g.validate(r.MemberID, r.InstanceID)
	switch {
	case code == FencedInstance:
		return nil, r.refusal(code, "Instance id %s belongs to another member now.", r.InstanceID)
	case code != None:
		return nil, r.refusal(code, "Member %s is not in the group.", r.MemberID)
	case m.classic():
		return nil, r.refusal(UnknownMember, "Member %s speaks the classic protocol.", r.MemberID)
	case r.Epoch == m.Epoch:
	case r.Epoch == m.PreviousEpoch && r.Epoch < m.Epoch && r.Owned != nil && len(subtract(normal(r.Owned), m.Assigned)) == 0:
		// The answer with the new epoch was lost.
	default:
		return nil, r.refusal(FencedMemberEpoch, "Member epoch %d is not the current %d; give all partitions up and join again.", r.Epoch, m.Epoch)
	}
	g.update(m, r, "")
	return m, ConsumerReply{}
}

// joinConsumer takes a member in, or lets one start afresh. An instance that goes
// on with the consumer protocol takes its place over at once.
func (g *Group) joinConsumer(r ConsumerRequest, topics Topics) (*member, ConsumerReply) {
	if r.MemberID == "" {
		r.MemberID = r.NewID
	}
	m, same := g.members.find(r.MemberID), g.members.instance(r.InstanceID)
	switch {
	case same != nil && same != m && m != nil, m != nil && same == nil && r.InstanceID != "" && m.static():
		return nil, r.refusal(InvalidRequest, "Member id %s belongs to another instance.", r.MemberID)
	case same != nil && same != m && same.Epoch != EpochLeaveStatic && !same.classic():
		return nil, r.refusal(UnreleasedInstance, "Instance id %s still belongs to member %s.", r.InstanceID, same.ID)
	case same == nil && m == nil && g.members.len() >= g.cfg.ConsumerMaxSize:
		return nil, r.refusal(GroupMaxSizeReached, "The group has its %d members.", g.cfg.ConsumerMaxSize)
	}
	if why := g.becomeConsumer(r, topics); why != "" {
		return nil, r.refusal(GroupNotFound, "Group %s cannot change to the consumer protocol: %s.", g.id, why)
	}
	switch m, same = g.members.find(r.MemberID), g.members.instance(r.InstanceID); {
	case same != nil:
		return g.rejoinStatic(same, r), ConsumerReply{}
	case m != nil:
		if r.InstanceID != "" {
			g.members.remove(m)
			m.InstanceID = r.InstanceID
			g.members.add(m)
			g.dirty = true
		}
		g.startAfresh(m)
		g.update(m, r, "")
		return m, ConsumerReply{}
	}
	m = &member{}
	m.ID, m.InstanceID = r.MemberID, r.InstanceID
	g.enrol(m)
	g.update(m, r, "new member "+m.ID)
	return m, ConsumerReply{}
}

// rejoinStatic gives a static member its place back, under its new member id.
func (g *Group) rejoinStatic(m *member, r ConsumerRequest) *member {
	old := m.ID
	if old != r.MemberID {
		g.members.rename(m, r.MemberID)
	}
	if m.Epoch == EpochLeaveStatic || m.classic() {
		m.Epoch, m.PreviousEpoch = 0, 0
	}
	g.startAfresh(m)
	g.dirty = true
	g.note(m, "static member "+r.InstanceID+" is back in place of "+old)
	g.update(m, r, "")
	return m
}

// startAfresh ends what a member owed under the classic protocol, if it spoke that.
func (g *Group) startAfresh(m *member) {
	m.Grants = nil // what it commits later it has read later
	if m.classic() {
		g.setProtocols(m, nil)
		m.pendingSync, m.dueAt, m.untold = false, time.Time{}, false
	}
}

// becomeConsumer makes the group one of the consumer protocol, unless it is one. A
// group with members that cannot be is left alone, and why is returned.
func (g *Group) becomeConsumer(r ConsumerRequest, topics Topics) (why string) {
	switch {
	case g.kind == fsm.ConsumerGroup:
		return ""
	case g.members.len() > 0:
		return g.upgrade(r, topics)
	case g.kind == fsm.ClassicGroup:
		g.note(nil, "the empty group moves from the classic protocol to the consumer protocol")
	}
	g.moveToConsumer()
	return ""
}

// update takes over what a request says about its member. The group epoch rises
// when the target assignment must be made anew; cause says why if it must anyway.
func (g *Group) update(m *member, r ConsumerRequest, cause string) {
	was := m.GroupMember
	m.ClientID, m.ClientHost = r.ClientID, r.ClientHost
	m.SessionMs = millis(g.cfg.ConsumerSession)
	if r.RebalanceTimeout >= 0 {
		m.RebalanceMs = millis(r.RebalanceTimeout)
	}
	setIfGiven(&m.Rack, r.Rack)
	setIfGiven(&m.Regex, r.Regex)
	setIfGiven(&m.Assignor, r.Assignor)
	if r.Topics != nil {
		topics := slices.Clone(r.Topics)
		slices.Sort(topics)
		if topics = slices.Compact(topics); !slices.Equal(topics, m.Topics) {
			m.Topics = topics
		}
	}
	m.subscribing = subscriptionKey(m)
	if was.ClientID != m.ClientID || was.ClientHost != m.ClientHost || was.SessionMs != m.SessionMs ||
		was.RebalanceMs != m.RebalanceMs || was.Rack != m.Rack || was.Assignor != m.Assignor {
		g.dirty = true
	}
	switch {
	case cause != "":
	case was.Regex != m.Regex || !slices.Equal(was.Topics, m.Topics):
		cause = "member " + m.ID + " subscribes to other topics"
	case was.Assignor != m.Assignor && g.preferred() != g.protocol:
		cause = "member " + m.ID + " asks for another assignor"
	default:
		return
	}
	g.bump(m, cause)
}

func setIfGiven(s, given *string) {
	if given != nil {
		*s = *given
	}
}

// subscriptionKey names a member's subscription.
func subscriptionKey(m *member) string { return strings.Join(m.Topics, "\x00") + "\x00\x00" + m.Regex }

// bump raises the group epoch: the target assignment must be made anew.
func (g *Group) bump(m *member, cause string) {
	g.epoch++
	g.dirty = true
	g.soft.cause, g.soft.bumpedAt = cause, g.now
	if g.members.len() == 0 {
		g.assignmentEpoch = g.epoch
		g.emptySince = g.now.UnixMilli()
		g.soft.assignedAt = time.Time{}
	}
	g.note(m, cause)
}

// leaveConsumer is a member's farewell. A static one that will be back keeps its
// place, and its partitions, for one session.
func (g *Group) leaveConsumer(t Ticket, r ConsumerRequest) {
	var m *member
	code := UnknownMember
	if g.kind == fsm.ConsumerGroup {
		m, code = g.validate(r.MemberID, r.InstanceID)
	}
	if m != nil && m.classic() {
		code = UnknownMember
	}
	if code != None {
		g.reply(t, r.refusal(code, "Member %s is not in the group, or its instance id %q belongs to another.", r.MemberID, r.InstanceID))
		return
	}
	if r.Epoch == EpochLeave {
		g.expel(m, "member "+m.ID+" left")
	} else {
		g.release(m, m.Revoking)
		m.Epoch, m.Revoking, m.dueAt, m.untold = EpochLeaveStatic, nil, time.Time{}, false
		g.settle(m)
		g.touch(m)
		g.dirty = true
		g.note(m, "static member "+m.InstanceID+" left for a while")
	}
	g.after(t, ConsumerReply{MemberID: m.ID, Epoch: r.Epoch, HeartbeatInterval: g.cfg.ConsumerHeartbeat}, nil)
}

// expel takes a member out; what it had is free at once.
func (g *Group) expel(m *member, cause string) {
	g.evict(m)
	g.vacated(m, cause)
}

// evict is expel without what follows from it.
func (g *Group) evict(m *member) {
	g.release(m, m.Assigned)
	g.release(m, m.Revoking)
	g.dismiss(m)
}

// vacated goes on after members were evicted, the last of which was m.
func (g *Group) vacated(m *member, cause string) {
	if g.downgrades() {
		g.downgrade(m, cause)
		return
	}
	g.bump(m, cause)
}

// due gives a member the time to do what it is told.
func (g *Group) due(m *member) {
	m.dueAt = g.now.Add(m.rebalance())
	g.wake(m.dueAt)
}

// expireConsumer does what is due in a consumer group.
func (g *Group) expireConsumer() {
	g.classic.expirePending(g.now)
	for _, m := range slices.Clone(g.members.all) {
		switch {
		case !m.untold && !m.dueAt.IsZero() && !m.dueAt.After(g.now):
			g.expel(m, fmt.Sprintf("member %s is dropped: it did not %s within %s", m.ID, m.owes(), m.rebalance()))
		case !m.paused() && !m.deadline.After(g.now):
			g.expel(m, fmt.Sprintf("member %s is dropped: its session of %s is over", m.ID, m.session()))
		}
		if g.kind == fsm.ClassicGroup {
			g.expireClassic()
			return
		}
	}
}

// owes is what a member must do by dueAt.
func (m *member) owes() string {
	switch {
	case m.pendingSync:
		return "ask for its assignment"
	case len(m.Revoking) > 0:
		return "give " + plural(count(m.Revoking), "partition") + " up"
	}
	return "join again"
}
