package controller

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/fsm"
)

// notifySlots is the size of Raft's leadership channel. Raft's main loop blocks when it is
// full, so one goroutine does nothing but empty it into the cell below.
const notifySlots = 1024

// tenure is what this node knows about who leads.
type tenure struct {
	// leader is the present Raft leader, "" when none is known.
	leader raft.ServerID
	// leading tells whether it is this node; gained counts how often it became so. Two
	// tenures of this node differ in gained even when the loss between them went unseen.
	leading bool
	gained  uint64
	// deciding is whether this node, leading, has caught up and takes calls.
	deciding bool
}

// broker is the node id of the leader.
func (t tenure) broker() (fsm.BrokerID, bool) {
	id, _, ok := parseServerID(t.leader)
	return id, ok
}

// leadership is the cell with the newest tenure.
type leadership struct {
	mu      sync.Mutex
	cur     tenure
	changed chan struct{}
	// present is who leads by Raft's latest word, and former who did before; see follow.
	present raft.ServerID
	former  former
}

// former is a leader of before the present one, and when this node last answered any that came
// before the present one: exact where it was silent at the end, else later.
type former struct {
	leader raft.ServerID
	at     time.Time
}

// unknownLeader stands for whoever led before this process looked.
const unknownLeader = "?"

func newLeadership() *leadership {
	return &leadership{changed: make(chan struct{}), present: unknownLeader, former: former{at: time.Now()}}
}

// follow notes a change of the leader. Raft's main loop calls it in the midst of the change, so
// that nothing of the leader that was can have been answered since contact.
func (l *leadership) follow(leader, self raft.ServerID, contact time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.present != "" {
		if l.present == self {
			contact = time.Now()
		}
		if contact.Before(l.former.at) { // of an earlier process, or of none
			contact = l.former.at
		}
		l.former = former{l.present, contact}
	}
	l.present = leader
}

// before returns the leader before the given one; false when another leads by now.
func (l *leadership) before(leader raft.ServerID) (former, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.former, l.present == leader
}

// get returns the newest tenure and a channel that closes when it is no longer the newest.
func (l *leadership) get() (tenure, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cur, l.changed
}

// holds tells whether t is this node's own and still the newest.
func (l *leadership) holds(t tenure) bool {
	now, _ := l.get()
	return now.leading && now.gained == t.gained
}

// decides notes that the term of t takes calls.
func (l *leadership) decides(t tenure) {
	l.update(func(now *tenure) { now.deciding = now.leading && now.gained == t.gained })
}

func (l *leadership) update(change func(*tenure)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.cur
	change(&next)
	if next != l.cur {
		l.cur = next
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

// watch keeps the cell up to date until stop closes. observed only says that the leader has
// changed; who it is now is asked anew, so a dropped observation loses nothing.
func (l *leadership) watch(r *raft.Raft, notify <-chan bool, observed <-chan raft.Observation, stop <-chan struct{}) {
	for {
		var became, lost bool
		select {
		case gained := <-notify:
			became, lost = gained, !gained
		case <-observed:
		case <-stop:
			return
		}
		_, leader := r.LeaderWithID()
		l.update(func(t *tenure) {
			t.leader = leader
			if became {
				t.leading, t.deciding = true, false
				t.gained++
			}
			if lost {
				t.leading, t.deciding = false, false
			}
		})
	}
}
