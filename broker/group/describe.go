package group

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirmq/weir/fsm"
)

// Description is a group as it can be shown. Its slices are not to be changed.
type Description struct {
	ID              string
	Kind            fsm.GroupKind
	State           State
	Epoch           int32 // generation or group epoch
	AssignmentEpoch int32
	ProtocolType    string // of a classic group; empty for one that only commits
	Protocol        string // the chosen protocol of a classic group, the assignor of a consumer group
	Leader          string
	EmptySince      time.Time // zero while there are members
	Members         []MemberDescription
}

// MemberDescription is one member of a Description.
type MemberDescription struct {
	fsm.GroupMember
	Kind     fsm.GroupKind // the protocol that it speaks, in a group of either
	Metadata []byte        // of a member of a classic group, for the chosen protocol
	Waiting  bool          // a request of it waits for others
	Deadline time.Time     // when its session ends; zero while it does not run
}

// Describe shows the group as this coordinator has decided it.
func (g *Group) Describe() Description {
	d := Description{
		ID: g.id, Kind: g.kind, State: g.State(), Epoch: g.epoch, AssignmentEpoch: g.assignmentEpoch,
		ProtocolType: g.protocolType, Protocol: g.protocol, Leader: g.leader,
	}
	if d.Kind == 0 {
		d.Kind = fsm.ClassicGroup
	}
	if g.emptySince != 0 {
		d.EmptySince = time.UnixMilli(g.emptySince)
	}
	for _, m := range g.members.all {
		o := MemberDescription{GroupMember: m.GroupMember, Kind: fsm.ConsumerGroup, Metadata: m.metadata(g.protocol), Waiting: m.join.on || m.sync.on}
		if m.classic() {
			o.Kind = fsm.ClassicGroup
		}
		if !m.paused() {
			o.Deadline = m.deadline
		}
		d.Members = append(d.Members, o)
	}
	return d
}

// State is where the group stands.
func (g *Group) State() State {
	if g.kind != fsm.ConsumerGroup || g.state == Dead {
		return g.state
	}
	switch {
	case g.members.len() == 0:
		return Empty
	case g.assignmentEpoch < g.epoch:
		return Assigning
	case g.unsettled() > 0:
		return Reconciling
	}
	return Stable
}

// Why says in one sentence why the group is not stable, or that it is.
func (g *Group) Why() string {
	s := fmt.Sprintf("group %s is %s", g.id, g.State())
	if t, ok := g.history.last(); ok {
		s += " since " + g.clock(t.At) + ", because " + cause(t)
	}
	if w := g.waitsFor(); w != "" {
		s += "; it waits for " + w
	}
	return s + "."
}

// clock is a time of day, with the day when it is not the last.
func (g *Group) clock(t time.Time) string {
	if g.now.Sub(t) >= 24*time.Hour {
		return t.UTC().Format("2006-01-02 15:04:05.000")
	}
	return t.UTC().Format("15:04:05.000")
}

// cause is what a transition says about who and why.
func cause(t Transition) string {
	if t.ClientID == "" && t.ClientHost == "" {
		return t.Cause
	}
	return fmt.Sprintf("%s (client %s at %s)", t.Cause, t.ClientID, t.ClientHost)
}

// waitsFor names what must happen before the group is stable.
func (g *Group) waitsFor() string {
	switch g.State() {
	case PreparingRebalance:
		return g.joinWaitsFor()
	case CompletingRebalance:
		if m := g.members.find(g.leader); m != nil && m.holds == 0 {
			return "the assignment from its leader " + who(m)
		}
		return "its new generation to be stored"
	case Assigning:
		return "the next assignment, which a heartbeat of any member makes"
	case Reconciling:
		return g.reconcileWaitsFor()
	case Stable:
		if g.seq > g.committed {
			return "its last change to be stored"
		}
	}
	return ""
}

func (g *Group) joinWaitsFor() string {
	if g.classic.initial {
		return "more members, until " + g.classic.joinAt.UTC().Format("15:04:05.000")
	}
	var missing []string
	for _, m := range g.members.all {
		if !m.join.on {
			missing = append(missing, who(m))
		}
	}
	for _, p := range g.classic.pending {
		missing = append(missing, fmt.Sprintf("%s (client %s), which was given its id", p.id, p.client))
	}
	return fmt.Sprintf("%d of %s to join: %s, until %s", len(missing), plural(g.members.len()+len(g.classic.pending), "member"),
		strings.Join(first(missing), ", "), g.classic.joinAt.UTC().Format("15:04:05.000"))
}

func (g *Group) reconcileWaitsFor() string {
	var revoking, rejoining []string
	for _, m := range g.members.all {
		switch {
		case len(m.Revoking) > 0:
			revoking = append(revoking, fmt.Sprintf("%s to give up %s", who(m), plural(count(m.Revoking), "partition")))
		case !m.dueAt.IsZero():
			rejoining = append(rejoining, fmt.Sprintf("%s to %s", who(m), m.owes()))
		}
	}
	if missing := append(revoking, rejoining...); len(missing) > 0 {
		return strings.Join(first(missing), ", ")
	}
	return fmt.Sprintf("heartbeats of %s", plural(g.unsettled(), "member"))
}

// who names a member and where it is.
func who(m *member) string {
	return fmt.Sprintf("%s (client %s at %s)", m.ID, m.ClientID, m.ClientHost)
}
