package group

import (
	"time"

	"github.com/weirmq/weir/fsm"
)

// Out is what a call wants from the shell.
type Out struct {
	// Replies are to be sent now.
	Replies []Reply
	// Put is the group's new row: propose it. It holds all that earlier ones hold,
	// so of several that wait the newest is enough. It is not changed afterwards.
	Put *fsm.Group
	// Delete asks to propose that the row be removed.
	Delete bool
	// Seq numbers Put or Delete, for Committed and Refused; it rises.
	Seq uint64
	// Dead says that this Group is of no more use: drop it and what waits of it,
	// and Load it from its row, if there is one.
	Dead bool
	// WakeAt is when to call Expire; zero means never. It may be early, never late.
	WakeAt time.Time
}

// Group is one group at its coordinator. See the package's page for how to drive it.
type Group struct {
	id  string
	cfg Config

	// Facts: what Put holds, as this coordinator has decided it. It may be ahead of the row.
	kind            fsm.GroupKind // 0 before the first member
	epoch           int32
	assignmentEpoch int32 // of a classic group: the generation that the assignments are for
	protocolType    string
	protocol        string
	leader          string
	emptySince      int64
	members         roster

	state   State // of a classic group; that of a consumer group is derived
	classic classicSoft
	soft    consumerSoft

	seq       uint64 // of the last Put or Delete
	committed uint64 // the newest known to have been applied
	held      []held // ascending by seq
	history   recorder

	// Within one call.
	now    time.Time
	out    Out
	dirty  bool
	fresh  []held
	wakeAt time.Time // not later than the first deadline; lives on between calls
}

// held is a reply that must not be seen before its Put is applied.
type held struct {
	seq   uint64
	reply Reply
	m     *member // whom it is for; its session starts again when the reply goes out
	id    string  // of m, when it asked
}

// New is a group that has no row.
func New(id string, c Config) *Group {
	g := &Group{id: id, cfg: c}
	g.reset()
	return g
}

// Load takes a group over from its row, after a failover: nothing is rebalanced,
// and each member has one full session from now. The row is not changed.
func Load(row *fsm.Group, c Config, now time.Time) *Group {
	g := New(row.ID, c)
	g.begin(now)
	g.kind, g.epoch, g.assignmentEpoch = row.Kind, row.Epoch, row.AssignmentEpoch
	g.protocolType, g.protocol, g.leader = row.ProtocolType, row.Protocol, row.Leader
	g.emptySince = row.EmptySince
	g.history.load(row, Empty)
	for i := range row.Members {
		g.enrol(&member{GroupMember: row.Members[i]})
	}
	switch {
	case g.kind == fsm.ConsumerGroup:
		g.loadConsumer()
	case g.members.len() > 0:
		g.loadClassic()
	}
	if g.members.len() > 0 {
		g.note(nil, "taken over by this coordinator")
	}
	return g
}

// ID is the group's id.
func (g *Group) ID() string { return g.id }

// Idle says that nothing is lost when this Group is dropped and loaded again when
// needed: no members, nobody waits, nothing is being stored.
func (g *Group) Idle() bool {
	return g.members.len() == 0 && len(g.classic.pending) == 0 && len(g.held) == 0 && g.seq == g.committed
}

// Unborn says that this Group is no more than ids that were given out: nobody is
// a member, and nothing was stored or is being stored.
func (g *Group) Unborn() bool {
	return g.members.len() == 0 && len(g.held) == 0 && g.seq == 0
}

// WakeAt is the latest Out.WakeAt.
func (g *Group) WakeAt() time.Time { return g.wakeAt }

// Committed tells that the Put or Delete of that sequence was applied, and with
// it all earlier ones.
func (g *Group) Committed(now time.Time, seq uint64) Out {
	g.begin(now)
	g.committed = max(g.committed, min(seq, g.seq))
	n := 0
	for ; n < len(g.held) && g.held[n].seq <= g.committed; n++ {
		g.send(g.held[n])
	}
	g.held = g.held[n:]
	if n > 0 && len(g.held) == 0 {
		g.held = nil
	}
	if g.committed == g.seq {
		g.history.stored = g.history.put
	}
	if g.state == Dead && g.committed == g.seq {
		g.out.Dead = true
	}
	return g.end()
}

// Refused tells that the Put or Delete of that sequence was certainly not applied
// and will not be: whatever was decided since the row is void. All who wait are
// told to come back, and Out.Dead is set.
func (g *Group) Refused(now time.Time, seq uint64) Out {
	g.begin(now)
	if seq <= g.committed {
		return g.end()
	}
	g.abandon(CoordinatorNotAvailable)
	return g.end()
}

// Close ends the group at this coordinator, which has lost the slot: all who wait
// are told to look for the new one.
func (g *Group) Close(now time.Time) Out {
	g.begin(now)
	g.abandon(NotCoordinator)
	return g.end()
}

// Delete removes a group that has no members.
func (g *Group) Delete(now time.Time, t Ticket) Out {
	g.begin(now)
	switch {
	case g.state == Dead:
		g.reply(t, DeleteReply{CoordinatorNotAvailable})
	case g.members.len() > 0:
		g.reply(t, DeleteReply{NonEmptyGroup})
	default:
		g.transition(nil, Dead, "deleted")
		g.classic.pending = nil
		g.out.Delete = true
		g.after(t, DeleteReply{}, nil)
	}
	return g.end()
}

// Expire does what is due at now.
func (g *Group) Expire(now time.Time) Out {
	g.begin(now)
	if g.state == Dead {
		g.wakeAt = time.Time{}
		return g.end()
	}
	g.forgiveStall()
	switch g.kind {
	case fsm.ConsumerGroup:
		g.expireConsumer()
	default:
		g.expireClassic()
	}
	g.wakeAt = g.firstDeadline()
	return g.end()
}

// forgiveStall starts the clocks again when this coordinator itself stood still:
// the heartbeats of that time wait unread in the sockets.
func (g *Group) forgiveStall() {
	late := g.now.Sub(g.wakeAt)
	if g.wakeAt.IsZero() || late <= g.cfg.MinSession/2 {
		return
	}
	for _, m := range g.members.all {
		m.deadline = later(m.deadline, g.now.Add(m.session()))
		m.dueAt = shift(m.dueAt, late)
	}
	for i := range g.classic.pending {
		g.classic.pending[i].deadline = shift(g.classic.pending[i].deadline, late)
	}
	g.classic.joinAt = shift(g.classic.joinAt, late)
	g.classic.syncAt = shift(g.classic.syncAt, late)
	g.note(nil, "the coordinator stood still: all sessions start again")
}

// firstDeadline is the earliest of all.
func (g *Group) firstDeadline() time.Time {
	first := earlier(g.classic.joinAt, g.classic.syncAt)
	for _, p := range g.classic.pending {
		first = earlier(first, p.deadline)
	}
	for _, m := range g.members.all {
		if !m.paused() {
			first = earlier(first, m.deadline)
		}
		if !m.untold {
			first = earlier(first, m.dueAt)
		}
	}
	return first
}

// begin opens a call.
func (g *Group) begin(now time.Time) {
	g.now, g.out, g.dirty, g.fresh = now, Out{}, false, nil
}

// end closes a call: it makes the Put, and holds back what depends on it.
func (g *Group) end() Out {
	if g.dirty && g.out.Delete {
		panic("BUG: one call stores and deletes group " + g.id)
	}
	if g.dirty {
		g.out.Put = g.row()
	}
	if g.dirty || g.out.Delete {
		g.seq++
		g.out.Seq = g.seq
	}
	for _, h := range g.fresh {
		h.seq = g.seq
		if h.seq > g.committed {
			g.held = append(g.held, h)
			continue
		}
		g.send(h)
	}
	g.out.WakeAt = g.wakeAt
	out := g.out
	g.out, g.fresh, g.dirty = Out{}, nil, false
	return out
}

// row is the group as it is to be stored.
func (g *Group) row() *fsm.Group {
	row := &fsm.Group{
		ID: g.id, Kind: g.kind, Epoch: g.epoch, AssignmentEpoch: g.assignmentEpoch,
		ProtocolType: g.protocolType, Protocol: g.protocol, Leader: g.leader, EmptySince: g.emptySince,
		Members: make([]fsm.GroupMember, 0, g.members.len()),
	}
	for _, m := range g.members.all {
		row.Members = append(row.Members, m.GroupMember)
	}
	g.history.fill(row)
	return row
}

// reply answers at once.
func (g *Group) reply(t Ticket, a Answer) {
	g.out.Replies = append(g.out.Replies, Reply{t, a})
}

// after answers when all that was decided up to the end of this call is stored.
// Until then the session of m, if given, does not run.
func (g *Group) after(t Ticket, a Answer, m *member) {
	if m != nil {
		m.holds++
	}
	h := held{reply: Reply{t, a}, m: m}
	if m != nil {
		h.id = m.ID
	}
	g.fresh = append(g.fresh, h)
}

// send lets a held reply go. A member that was dropped or replaced meanwhile is
// told that instead: what it was promised others may have by now.
func (g *Group) send(h held) {
	if h.m != nil {
		h.m.holds--
		switch {
		case h.m.gone:
			h.reply.Answer = failed(h.reply.Answer, UnknownMember)
		case h.m.ID != h.id:
			h.reply.Answer = failed(h.reply.Answer, FencedInstance)
		default:
			g.touch(h.m)
			g.told(h.m)
		}
	}
	g.out.Replies = append(g.out.Replies, h.reply)
}

// touch starts the session of m again.
func (g *Group) touch(m *member) {
	if m.isNew && m.join.on {
		return // bounded by NewMemberJoin
	}
	m.deadline = g.now.Add(m.session())
	g.wake(m.deadline)
}

// wake asks for an Expire at t at the latest.
func (g *Group) wake(t time.Time) { g.wakeAt = earlier(g.wakeAt, t) }

// abandon answers everyone with code and ends the group here.
func (g *Group) abandon(code Code) {
	for _, h := range append(g.held, g.fresh...) {
		g.reply(h.reply.Ticket, failed(h.reply.Answer, code))
	}
	g.held, g.fresh, g.dirty = nil, nil, false
	for _, m := range g.members.all {
		m.holds = 0
		g.unpark(m, code)
	}
	if g.state != Dead {
		g.transition(nil, Dead, "the coordinator gave it up: "+code.String())
	}
	g.wakeAt = time.Time{}
	g.committed = g.seq
	g.out.Dead = true
}

// failed is the answer of the same kind as a that says code.
func failed(a Answer, code Code) Answer {
	switch a := a.(type) {
	case JoinReply:
		return JoinReply{Code: code, Generation: -1, MemberID: a.MemberID}
	case SyncReply:
		return SyncReply{Code: code}
	case HeartbeatReply:
		return HeartbeatReply{code}
	case LeaveReply:
		return LeaveReply{Code: code}
	case ConsumerReply:
		return ConsumerReply{Code: code, MemberID: a.MemberID}
	case DeleteReply:
		return DeleteReply{code}
	}
	panic("BUG: an answer of no known kind")
}

// earlier is the earlier of two times, either of which may be zero: never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// later is the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// shift moves a deadline, if it is set.
func shift(t time.Time, d time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(d)
}
