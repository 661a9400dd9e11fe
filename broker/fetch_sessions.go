package broker

import (
	"container/list"
	"math"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/weirmq/weir/wire"
)

const (
	// fetchSlotBytes is the memory of one slot; a session whose partitions need
	// more, about two thousand of them, takes as many slots as it needs.
	fetchSlotBytes = 128 << 10
	// fetchSlotsMax is the most that one session may take, as far as the cache is
	// large enough for it to be no more than a quarter.
	fetchSlotsMax = 64
	// fetchStaleAfter is how long a session must have been idle to be evicted for
	// any other, and how old it must be to be evicted for a larger one.
	fetchStaleAfter = 2 * time.Minute
	// fetchConnSessions is how many sessions one connection may have. A consumer
	// needs one.
	fetchConnSessions = 16
)

// fetchSession is what one consumer reads from this node, kept between its
// requests (KIP-227). The set belongs to the request that has taken the session.
type fetchSession struct {
	id    int32
	set   fetchSet
	ended chan struct{} // closed when the session is no more

	// The rest is guarded by the mutex of the fetchSessions.
	epoch   int32 // that the next request must have
	taken   bool  // by a request
	slots   int
	created time.Time
	used    time.Time // zero when its connection is gone
	owner   *Conn     // that used it last
	client  *fetchClient
	inAll   *list.Element // in fetchSessions.all
	inOwn   *list.Element // in fetchClient.sessions
}

// fetchClient is all that one address holds.
type fetchClient struct {
	address  netip.Prefix
	slots    int
	sessions *list.List // of *fetchSession, least recently used first
}

// fetchSessions is the cache of a node's fetch sessions.
//
// Problem: every client may ask for sessions, as many and as large as it likes,
// and never come back for them.
//
// A session takes slots by its size, and when no slot is free another session
// must go: first one that was idle for two minutes or whose connection is gone;
// then, if some other client would still have more than this one with its new
// session, the one that client used least recently; last, among this client's
// own, one that is smaller and older than two minutes. Otherwise there is no
// session, and the client goes on with full requests. So a client keeps its share
// whatever the others do. (Kafka has the first and the last rule, the last for
// all clients: there, a thousand quick sessions keep all others out.)
//
// A session that was evicted may still be in use by a request; that one is woken,
// and its answer is the session's last.
type fetchSessions struct {
	slots int
	now   func() time.Time

	mu      sync.Mutex
	free    int                           // guarded by mu
	byID    map[int32]*fetchSession       // guarded by mu
	clients map[netip.Prefix]*fetchClient // guarded by mu; none without sessions
	all     *list.List                    // guarded by mu; of *fetchSession, least recently used first
	perConn map[*Conn]int                 // guarded by mu; sessions by owner, no entry is zero
	evicted int                           // guarded by mu; since the start
}

func newFetchSessions(slots int, now func() time.Time) *fetchSessions {
	return &fetchSessions{
		slots: slots, now: now, free: slots,
		byID: make(map[int32]*fetchSession), clients: make(map[netip.Prefix]*fetchClient), perConn: make(map[*Conn]int),
		all: list.New(),
	}
}

// clientOf is what sessions are counted under: an IPv4 address, or the network
// that an IPv6 host is usually given whole.
func clientOf(a netip.Addr) netip.Prefix {
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // the zero Addr, of a pipe, has the zero Prefix
	return p
}

// nextFetchEpoch follows epoch; it skips 0, which asks for a new session.
func nextFetchEpoch(epoch int32) int32 {
	if epoch == math.MaxInt32 {
		return 1
	}
	return epoch + 1
}

// add makes a session of a set; nil when there is no room for it.
func (c *fetchSessions) add(conn *Conn, set fetchSet) *fetchSession {
	need := slotsOf(&set)
	c.mu.Lock()
	defer c.mu.Unlock()
	if need > c.mostLocked() {
		return nil
	}
	key := clientOf(conn.address)
	client := c.clients[key]
	if client == nil {
		client = &fetchClient{address: key, sessions: list.New()}
	}
	if c.perConn[conn] >= fetchConnSessions {
		c.evictLocked(oldestOf(client, conn))
	}
	if !c.makeRoomLocked(client, need, nil) {
		return nil
	}
	now := c.now()
	s := &fetchSession{id: c.newIDLocked(), set: set, ended: make(chan struct{}), epoch: 1, slots: need, created: now, used: now, owner: conn}
	c.clients[key] = client // an eviction may have taken its last session
	c.byID[s.id] = s
	c.free -= need
	c.perConn[conn]++
	c.enlistLocked(s, client)
	return s
}

// slotsOf is how many slots a set takes.
func slotsOf(set *fetchSet) int { return (set.size() + fetchSlotBytes) / fetchSlotBytes }

// mostLocked is the most slots that one session may take.
func (c *fetchSessions) mostLocked() int {
	if c.slots == 0 {
		return 0
	}
	return min(fetchSlotsMax, max(c.slots/4, 1))
}

func (c *fetchSessions) newIDLocked() int32 {
	for {
		id := rand.Int32N(math.MaxInt32) + 1
		if c.byID[id] == nil {
			return id
		}
	}
}

// take begins an incremental request. Only one request at a time has a session:
// a client has no epoch for the next before it has the answer.
func (c *fetchSessions) take(conn *Conn, id, epoch int32, byID bool) (*fetchSession, wire.Code) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[id]
	switch {
	case s == nil:
		return nil, wire.FetchSessionIDNotFound
	case s.epoch != epoch || s.taken:
		return nil, wire.InvalidFetchSessionEpoch
	case s.set.ids != byID:
		return nil, wire.FetchSessionTopicIDError
	}
	s.taken, s.epoch = true, nextFetchEpoch(epoch)
	c.touchLocked(s, conn)
	return s, wire.None
}

// resized counts a taken session anew after its set has changed. False means
// that it has become too large, or its client has too much, and that it is no more.
func (c *fetchSessions) resized(s *fetchSession) bool {
	need := slotsOf(&s.set)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID[s.id] != s {
		return true // evicted; this request is its last
	}
	if need > s.slots && (need > c.mostLocked() || !c.makeRoomLocked(s.client, need-s.slots, s)) {
		c.removeLocked(s)
		return false
	}
	c.free -= need - s.slots
	s.client.slots += need - s.slots
	s.slots = need
	return true
}

// give ends the request that took s.
func (c *fetchSessions) give(s *fetchSession) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.taken = false
	if c.byID[s.id] == s {
		c.touchLocked(s, s.owner)
	}
}

// drop ends a session, if there is one of this id.
func (c *fetchSessions) drop(id int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byID[id]; s != nil {
		c.removeLocked(s)
	}
}

// leave says that a connection is gone. Its sessions can still be taken up by
// another, but are the first to go.
func (c *fetchSessions) leave(conn *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	client := c.clients[clientOf(conn.address)]
	if client == nil || c.perConn[conn] == 0 {
		return
	}
	for e := client.sessions.Front(); e != nil; e = e.Next() {
		s := e.Value.(*fetchSession)
		if s.owner == conn {
			s.owner, s.used = nil, time.Time{}
			c.all.MoveToFront(s.inAll)
		}
	}
	delete(c.perConn, conn)
}

// touchLocked says that conn uses s now.
func (c *fetchSessions) touchLocked(s *fetchSession, conn *Conn) {
	s.used = c.now()
	if s.owner != conn {
		c.disownLocked(s)
		s.owner = conn
		c.perConn[conn]++
	}
	if key := clientOf(conn.address); key != s.client.address {
		c.delistLocked(s)
		client := c.clients[key]
		if client == nil {
			client = &fetchClient{address: key, sessions: list.New()}
			c.clients[key] = client
		}
		c.enlistLocked(s, client)
		return
	}
	c.all.MoveToBack(s.inAll)
	s.client.sessions.MoveToBack(s.inOwn)
}

func (c *fetchSessions) enlistLocked(s *fetchSession, client *fetchClient) {
	s.client = client
	s.inAll, s.inOwn = c.all.PushBack(s), client.sessions.PushBack(s)
	client.slots += s.slots
}

func (c *fetchSessions) delistLocked(s *fetchSession) {
	c.all.Remove(s.inAll)
	s.client.sessions.Remove(s.inOwn)
	s.client.slots -= s.slots
	if s.client.sessions.Len() == 0 {
		delete(c.clients, s.client.address)
	}
}

func (c *fetchSessions) disownLocked(s *fetchSession) {
	if s.owner == nil {
		return
	}
	if c.perConn[s.owner]--; c.perConn[s.owner] == 0 {
		delete(c.perConn, s.owner)
	}
}

func (c *fetchSessions) removeLocked(s *fetchSession) {
	delete(c.byID, s.id)
	c.free += s.slots
	c.disownLocked(s)
	c.delistLocked(s)
	close(s.ended)
}

func (c *fetchSessions) evictLocked(s *fetchSession) {
	c.evicted++
	c.removeLocked(s)
}

// makeRoomLocked evicts sessions until need slots are free for client; grown, if
// not nil, is the session that needs them.
func (c *fetchSessions) makeRoomLocked(client *fetchClient, need int, grown *fetchSession) bool {
	for c.free < need {
		victim := c.staleLocked(grown)
		if victim == nil {
			victim = c.heaviestLocked(client, need)
		}
		if victim == nil {
			victim = c.lesserLocked(client, need, grown)
		}
		if victim == nil {
			return false
		}
		c.evictLocked(victim)
	}
	return true
}

// staleLocked is the session that was idle for longest, if it was for long enough.
func (c *fetchSessions) staleLocked(but *fetchSession) *fetchSession {
	now := c.now()
	for e := c.all.Front(); e != nil; e = e.Next() {
		s := e.Value.(*fetchSession)
		if now.Sub(s.used) <= fetchStaleAfter {
			return nil
		}
		if s != but && !s.taken { // one that waits is not idle
			return s
		}
	}
	return nil
}

// heaviestLocked is the least recently used session of the client that has most,
// if that is more than client would have with need more.
func (c *fetchSessions) heaviestLocked(client *fetchClient, need int) *fetchSession {
	most := client
	for _, other := range c.clients {
		if other.slots > most.slots {
			most = other
		}
	}
	if most == client || most.slots <= client.slots+need {
		return nil
	}
	return most.sessions.Front().Value.(*fetchSession)
}

// lesserLocked is the smallest old session of client that is smaller than the one
// that is to have room.
func (c *fetchSessions) lesserLocked(client *fetchClient, need int, grown *fetchSession) *fetchSession {
	size := need
	if grown != nil {
		size += grown.slots
	}
	var least *fetchSession
	for e := client.sessions.Front(); e != nil; e = e.Next() {
		s := e.Value.(*fetchSession)
		if s != grown && s.slots < size && c.now().Sub(s.created) > fetchStaleAfter && (least == nil || s.slots < least.slots) {
			least = s
		}
	}
	return least
}

// oldestOf is the least recently used session of a client's connection.
func oldestOf(client *fetchClient, conn *Conn) *fetchSession {
	for e := client.sessions.Front(); e != nil; e = e.Next() {
		if s := e.Value.(*fetchSession); s.owner == conn {
			return s
		}
	}
	panic("BUG: a connection has fetch sessions that its address lacks")
}

// fetchSessionCounts is what the cache shows as metrics.
type fetchSessionCounts struct{ sessions, slots, evicted int }

func (c *fetchSessions) counts() fetchSessionCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fetchSessionCounts{sessions: len(c.byID), slots: c.slots - c.free, evicted: c.evicted}
}
