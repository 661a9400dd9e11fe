package group

import (
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/fsm"
)

// member is one member: its row, and what only this coordinator knows. Slices of
// the row are never changed in place, since stored rows share them.
type member struct {
	fsm.GroupMember

	deadline time.Time // end of the session; see paused
	holds    int       // replies to it that wait for a Put
	joined   uint64    // order of joining
	gone     bool      // is not a member any more
	commits  uint64    // the newest connection that it committed on

	// Of a classic group.
	join        parked // its JoinGroup waits
	sync        parked // its SyncGroup waits
	isNew       bool   // its first join has not been answered
	nameless    bool   // its client does not know the member id yet
	pendingSync bool   // has not synced in this generation

	// Of a consumer group.
	dueAt       time.Time             // end of the time it has to give partitions up, to join again or to sync; zero when nothing is due
	untold      bool                  // the reply that tells it so has not gone out: the time has not begun
	reported    []fsm.TopicPartitions // what it said last that it has
	disclaims   bool                  // it said, perhaps before it was told, that it does not have what it shall give up
	settled     bool                  // has its whole target
	subscribing string                // key of its subscription, for what is kept by subscription
}

// parked is a request that waits for others.
type parked struct {
	ticket Ticket
	on     bool
}

// session is the member's session timeout.
func (m *member) session() time.Duration { return time.Duration(m.SessionMs) * time.Millisecond }

// rebalance is how long the member may take to join again, or to revoke.
func (m *member) rebalance() time.Duration { return time.Duration(m.RebalanceMs) * time.Millisecond }

// paused says that the session does not run: it is we who owe an answer. Only the
// first join of a new member is bounded even then.
func (m *member) paused() bool { return m.join.on && !m.isNew || m.sync.on || m.holds > 0 }

// classic says that the member speaks the classic protocol, whatever the kind of
// its group: only then it has told protocols.
func (m *member) classic() bool { return len(m.Protocols) > 0 }

// speaks says that a classic member supports a protocol.
func (m *member) speaks(protocol string) bool {
	return slices.ContainsFunc(m.Protocols, func(p fsm.GroupProtocol) bool { return p.Name == protocol })
}

// static says that the member has an instance id.
func (m *member) static() bool { return m.InstanceID != "" }

// metadata is what the member said about itself for one protocol.
func (m *member) metadata(protocol string) []byte {
	for _, p := range m.Protocols {
		if p.Name == protocol {
			return p.Metadata
		}
	}
	return nil
}

// roster holds the members, by id and by instance id.
type roster struct {
	all       []*member // ascending by ID
	instances map[string]*member
	joins     uint64
}

func (r *roster) len() int { return len(r.all) }

// find returns the member with that id, or nil.
func (r *roster) find(id string) *member {
	i, ok := r.search(id)
	if !ok {
		return nil
	}
	return r.all[i]
}

// instance returns the static member with that instance id, or nil.
func (r *roster) instance(id string) *member {
	if id == "" {
		return nil
	}
	return r.instances[id]
}

func (r *roster) search(id string) (int, bool) {
	return slices.BinarySearchFunc(r.all, id, func(m *member, id string) int { return strings.Compare(m.ID, id) })
}

// add takes a member in, as the last that joined.
func (r *roster) add(m *member) {
	i, found := r.search(m.ID)
	if found || m.static() && r.instances[m.InstanceID] != nil {
		panic("BUG: member " + m.ID + " is there already")
	}
	r.all = slices.Insert(r.all, i, m)
	if m.static() {
		r.instances[m.InstanceID] = m
	}
	if m.joined == 0 {
		r.joins++
		m.joined = r.joins
	}
}

// remove takes a member out.
func (r *roster) remove(m *member) {
	i, found := r.search(m.ID)
	if !found || r.all[i] != m {
		panic("BUG: member " + m.ID + " is not there")
	}
	r.all = slices.Delete(r.all, i, i+1)
	if m.static() {
		delete(r.instances, m.InstanceID)
	}
}

// rename gives a static member another id; it keeps its place in the order of joining.
func (r *roster) rename(m *member, id string) {
	r.remove(m)
	m.ID = id
	r.add(m)
}
