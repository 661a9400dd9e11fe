package broker

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

// cacheStand is a session cache with a clock of its own.
type cacheStand struct {
	*testing.T
	c   *fetchSessions
	now time.Time
}

func newCacheStand(t *testing.T, slots int) *cacheStand {
	s := &cacheStand{T: t, now: time.Unix(1000, 0)}
	s.c = newFetchSessions(slots, func() time.Time { return s.now })
	t.Cleanup(s.check)
	return s
}

// check recounts the cache.
func (s *cacheStand) check() {
	s.Helper()
	used, owners := 0, map[*Conn]int{}
	for _, f := range s.c.byID {
		used += f.slots
		if f.owner != nil {
			owners[f.owner]++
		}
	}
	listed, byClients := 0, 0
	for key, c := range s.c.clients {
		slots := 0
		for e := c.sessions.Front(); e != nil; e = e.Next() {
			slots += e.Value.(*fetchSession).slots
		}
		if slots != c.slots || c.address != key || c.sessions.Len() == 0 {
			s.Errorf("client %v has %d sessions of %d slots, and %d are counted", key, c.sessions.Len(), slots, c.slots)
		}
		listed, byClients = listed+c.sessions.Len(), byClients+slots
	}
	if used != s.c.slots-s.c.free || used > s.c.slots || byClients != used || listed != len(s.c.byID) || s.c.all.Len() != listed {
		s.Errorf("slots %d, free %d, used %d, by clients %d; sessions %d, by clients %d, in use order %d",
			s.c.slots, s.c.free, used, byClients, len(s.c.byID), listed, s.c.all.Len())
	}
	if !reflect.DeepEqual(owners, s.c.perConn) {
		s.Errorf("sessions per connection %v, counted %v", owners, s.c.perConn)
	}
}

func connFrom(address string) *Conn { return &Conn{address: netip.MustParseAddr(address)} }

// setOf is a set of n partitions.
func setOf(n int) fetchSet {
	s := fetchSet{ids: true}
	topic := wire.FetchTopic{TopicID: fsm.TopicID{1}}
	for p := range n {
		topic.Partitions = append(topic.Partitions, wire.FetchPartition{Partition: int32(p)})
	}
	s.list([]wire.FetchTopic{topic})
	return s
}

func (s *cacheStand) add(conn *Conn, partitions int) *fetchSession {
	s.Helper()
	f := s.c.add(conn, setOf(partitions))
	s.check()
	return f
}

func (s *cacheStand) has(f *fetchSession) bool { return s.c.byID[f.id] == f }

func TestFetchSizes(t *testing.T) {
	if got := reflect.TypeFor[fetchPart]().Size(); got != fetchPartBytes {
		t.Errorf("a part takes %d bytes, %d are counted", got, fetchPartBytes)
	}
	if got := reflect.TypeFor[fetchTopic]().Size(); got > fetchTopicBytes {
		t.Errorf("a topic takes %d bytes, %d are counted", got, fetchTopicBytes)
	}
}

func TestFetchCacheOff(t *testing.T) {
	s := newCacheStand(t, 0)
	if s.add(connFrom("10.0.0.1"), 1) != nil {
		t.Error("a session without slots")
	}
}

// Idle for two minutes: the one that was idle for longest goes.
func TestFetchCacheStale(t *testing.T) {
	s := newCacheStand(t, 2)
	conn := connFrom("10.0.0.1")
	first, second := s.add(conn, 1), s.add(conn, 1)
	s.now = s.now.Add(fetchStaleAfter)
	if s.add(conn, 1) != nil {
		t.Error("a session was evicted before its time")
	}
	if _, code := s.c.take(conn, first.id, 1, true); code != wire.None {
		t.Fatal(code)
	}
	s.now = s.now.Add(time.Second)
	if third := s.add(conn, 1); third == nil || s.has(second) || !s.has(first) {
		t.Error("the idle one must go, and nothing else")
	}
	s.now = s.now.Add(2 * fetchStaleAfter)
	if s.add(conn, 1) == nil || !s.has(first) {
		t.Error("one that waits is not idle")
	}
	s.c.give(first)
}

// A larger session evicts a smaller one that is old, of the same client alone.
func TestFetchCacheLesser(t *testing.T) {
	s := newCacheStand(t, 16)
	a, b := connFrom("10.0.0.1"), connFrom("10.0.0.2")
	var own, others []*fetchSession
	for range 8 {
		own, others = append(own, s.add(a, 1)), append(others, s.add(b, 1))
	}
	if s.add(a, 3000) != nil {
		t.Error("young sessions were evicted for a larger one")
	}
	s.now = s.now.Add(fetchStaleAfter + time.Second)
	for _, f := range append(own, others...) {
		if _, code := s.c.take(f.owner, f.id, 1, true); code != wire.None {
			t.Fatal(code)
		}
		s.c.give(f)
	}
	if s.add(a, 1) != nil {
		t.Error("a session was evicted for one that is no larger")
	}
	if s.add(a, 3000) == nil || s.c.evicted != 2 {
		t.Errorf("no room for a larger one, %d evicted", s.c.evicted)
	}
	for _, f := range others {
		if !s.has(f) {
			t.Error("another client's session was evicted")
		}
	}
}

// Whoever has most gives to whoever has less, down to equal shares.
func TestFetchCacheShares(t *testing.T) {
	s := newCacheStand(t, 12)
	var flood []*fetchSession
	for range 3 {
		conn := connFrom("10.0.0.1")
		for range 6 {
			if f := s.add(conn, 1); f != nil {
				flood = append(flood, f)
			}
		}
	}
	if len(flood) != 12 {
		t.Fatalf("%d sessions in an empty cache of 12", len(flood))
	}
	made := 0
	conn := connFrom("10.0.0.2")
	for range 10 {
		if s.add(conn, 1) != nil {
			made++
		}
	}
	if made != 6 {
		t.Errorf("the second client got %d of 12 slots, want half", made)
	}
	if s.has(flood[0]) || !s.has(flood[11]) {
		t.Error("the least recently used were to go")
	}
	// Hosts of one IPv6 network are one client.
	v6 := 0
	for _, a := range []string{"2001:db8::1", "2001:db8::2", "2001:db8:0:0:1::", "2001:db8::4", "2001:db8::5"} {
		if s.add(connFrom(a), 1) != nil {
			v6++
		}
	}
	if v6 != 4 {
		t.Errorf("the third client got %d of 12 slots, want a third", v6)
	}
}

// A connection has a bounded number; when it is gone its sessions go first.
func TestFetchCacheConnections(t *testing.T) {
	s := newCacheStand(t, 20)
	a, b := connFrom("10.0.0.1"), connFrom("10.0.0.1")
	kept := s.add(b, 1)
	var made []*fetchSession
	for range 100 {
		made = append(made, s.add(a, 1))
	}
	if len(s.c.byID) != 1+fetchConnSessions || !s.has(kept) || s.has(made[83]) || !s.has(made[84]) {
		t.Errorf("%d sessions after a hundred by one connection", len(s.c.byID))
	}
	s.c.leave(a)
	s.check()
	if _, code := s.c.take(b, made[99].id, 1, true); code != wire.None {
		t.Errorf("taken up by another connection: %v", code)
	}
	s.c.give(made[99])
	for range 10 {
		if s.add(b, 1) == nil {
			t.Error("no room, though a connection is gone")
		}
	}
	if !s.has(kept) || !s.has(made[99]) {
		t.Error("sessions in use were evicted before those of a connection that is gone")
	}
	s.c.leave(b)
	s.c.leave(a)
}

// A session may be used from another address, which it then counts for.
func TestFetchCacheMoves(t *testing.T) {
	s := newCacheStand(t, 4)
	a, b := connFrom("10.0.0.1"), connFrom("10.0.0.2")
	f := s.add(a, 1)
	if _, code := s.c.take(b, f.id, 1, true); code != wire.None {
		t.Fatal(code)
	}
	s.check()
	s.c.give(f)
	if len(s.c.clients) != 1 || s.c.clients[clientOf(b.address)] == nil {
		t.Errorf("clients %v", s.c.clients)
	}
	s.c.drop(f.id)
	s.check()
	select {
	case <-f.ended:
	default:
		t.Error("the session has not ended")
	}
	s.c.give(f) // of a request that had it still
}

func TestNextFetchEpoch(t *testing.T) {
	for epoch, want := range map[int32]int32{0: 1, 1: 2, 1<<31 - 1: 1} {
		if got := nextFetchEpoch(epoch); got != want {
			t.Errorf("after %d: %d, want %d", epoch, got, want)
		}
	}
}
