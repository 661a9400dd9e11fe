package controller

import (
	"sync"

	"github.com/hashicorp/raft"
)

// reach knows which followers answer heartbeats. Problem: after a follower has been away for
// twenty seconds Raft waits up to ten between its tries to send it entries, so that a node
// which comes back stays ignorant for as long. Heartbeats go on four times a second
// throughout. So entries for a follower whose last heartbeat failed wait here, uncounted as
// failures, until one succeeds or this node no longer leads.
type reach struct {
	mu    sync.Mutex
	away  map[raft.ServerID]chan struct{} // closed when the follower is back
	gone  map[raft.ServerID]bool          // removed for good: nobody waits for them
	lead  *leadership
	ended <-chan struct{}
}

func newReach(lead *leadership, ended <-chan struct{}) *reach {
	return &reach{away: make(map[raft.ServerID]chan struct{}), gone: make(map[raft.ServerID]bool), lead: lead, ended: ended}
}

// heard notes the outcome of a heartbeat.
func (r *reach) heard(id raft.ServerID, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	back := r.away[id]
	switch {
	case r.gone[id]:
	case err != nil && back == nil:
		r.away[id] = make(chan struct{})
	case err == nil && back != nil:
		close(back)
		delete(r.away, id)
	}
}

// forget has nobody wait for a follower that was removed: what still is to be sent to it would
// wait for an answer that it is not given any more, and its heartbeats go on as long.
func (r *reach) forget(id raft.ServerID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone[id] = true
	if back := r.away[id]; back != nil {
		close(back)
		delete(r.away, id)
	}
}

// await returns when entries for a follower should be sent, or when there is no reason left
// to send any. It never waits when this node does not lead.
func (r *reach) await(id raft.ServerID) {
	for {
		r.mu.Lock()
		back := r.away[id]
		r.mu.Unlock()
		t, changed := r.lead.get()
		if back == nil || !t.leading {
			return
		}
		select {
		case <-back:
		case <-changed:
		case <-r.ended:
			return
		}
	}
}

// isHeartbeat tells Raft's heartbeats from calls that carry or probe for entries.
func isHeartbeat(a *raft.AppendEntriesRequest) bool {
	return a.PrevLogEntry == 0 && a.PrevLogTerm == 0 && len(a.Entries) == 0 && a.LeaderCommitIndex == 0
}
