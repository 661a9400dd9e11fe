package broker

import (
	"errors"
	"sync"
	"time"

	"github.com/weirmq/weir/broker/group"
	"github.com/weirmq/weir/fsm"
)

// shard is one slot as this node sees it.
type shard struct {
	groups *groups
	slot   int32

	mu     sync.Mutex
	tenure *tenure // guarded by mu; nil while another node owns the slot, or none does
	closed bool    // guarded by mu; this node is closing
}

// tenure is the time in which this node owns a slot: one epoch of it. All of it is
// guarded by its shard's mu.
type tenure struct {
	shard *shard
	epoch int32
	conns uint64 // the number of the newest connection when it began
	ended bool

	live  map[string]*liveGroup
	waits map[group.Ticket]chan groupAnswer
	last  group.Ticket // the ticket given out last
	queue slotQueue
	made  []*liveGroup // the groups made anew last, the oldest first; see bear
}

// liveGroup is a group with a core. Groups that have no members and whom nobody
// asks to join are in the Image alone.
type liveGroup struct {
	id    string
	core  *group.Group
	due   time.Time // when it is to be looked at; zero when never
	timer groupTimer
	put   *slotChange // the group's newest value, while it waits to be proposed
}

// groupAnswer is a core's answer to one request, or why there is none.
type groupAnswer struct {
	answer group.Answer
	err    error
}

// enter locks the shard that coordinates id, and returns its tenure and the Image
// that says so. The caller unlocks t.shard.mu. Without a fresh session another
// node may coordinate it by now.
func (g *groups) enter(id string) (*tenure, *fsm.Image, error) {
	if !g.fresh() {
		g.refused.Store(int64(g.now().Sub(g.began)))
		return nil, nil, errNotCoordinator
	}
	s := &g.shards[fsm.SlotOf(id)]
	s.mu.Lock()
	im := g.image()
	s.follow(im)
	if s.tenure == nil {
		s.mu.Unlock()
		return nil, nil, errNotCoordinator
	}
	return s.tenure, im, nil
}

// eachTenure visits the slots that this node owns, each under its lock.
func (g *groups) eachTenure(visit func(*tenure, *fsm.Image)) {
	for i := range g.shards {
		s := &g.shards[i]
		s.mu.Lock()
		im := g.image()
		s.follow(im)
		if s.tenure != nil {
			visit(s.tenure, im)
		}
		s.mu.Unlock()
	}
}

// follow makes the shard agree with im. Images are loaded under the lock, so they
// never go back here.
func (s *shard) follow(im *fsm.Image) {
	g := s.groups
	slot := im.Slot(s.slot)
	mine := slot.Owner == g.self && g.registered(im) && !s.closed
	if s.tenure != nil && (!mine || s.tenure.epoch != slot.Epoch) {
		s.endLocked()
	}
	if s.tenure != nil || !mine {
		return
	}
	t := &tenure{
		shard: s, epoch: slot.Epoch, conns: g.conns.Load(), live: make(map[string]*liveGroup),
		waits: make(map[group.Ticket]chan groupAnswer), queue: slotQueue{seq: slot.Seq},
	}
	s.tenure = t
	g.metrics.owned.Inc()
	now := g.now()
	for row := range im.Groups(s.slot) {
		if len(row.Members) > 0 {
			t.load(row, now)
		}
	}
}

// endLocked ends the present tenure, if there is one.
func (s *shard) endLocked() {
	if s.tenure != nil {
		s.tenure.end(errNotCoordinator)
	}
}

// end answers everybody who waits. The caller holds the shard's lock.
func (t *tenure) end(err error) {
	if t.ended {
		return
	}
	t.ended = true
	if t.shard.tenure == t {
		t.shard.tenure = nil
		t.shard.groups.metrics.owned.Dec()
	}
	for _, c := range append(t.queue.sent, t.queue.changes...) {
		if c.what != nil {
			c.settle(err)
		}
	}
	t.queue.sent, t.queue.changes = nil, nil
	for _, ch := range t.waits {
		ch <- groupAnswer{err: err}
	}
	for _, lg := range t.live {
		t.shard.groups.timers.drop(&lg.timer)
	}
	t.waits, t.live = nil, nil
}

// load makes the core of a group that has a row, with a full session for each member.
func (t *tenure) load(row *fsm.Group, now time.Time) *liveGroup {
	lg := t.keep(row.ID, group.Load(row, t.shard.groups.config.Config, now))
	t.schedule(lg, lg.core.WakeAt())
	return lg
}

// keep takes a core in.
func (t *tenure) keep(id string, core *group.Group) *liveGroup {
	lg := &liveGroup{id: id, core: core}
	lg.timer.t, lg.timer.lg = t, lg
	t.live[id] = lg
	return lg
}

// find returns the core of a group, made from its row if need be; nil when there
// is no such group.
func (t *tenure) find(im *fsm.Image, id string, now time.Time) *liveGroup {
	if lg := t.live[id]; lg != nil {
		return lg
	}
	if row, ok := im.Group(id); ok {
		return t.load(row, now)
	}
	return nil
}

// findOrMake is find that makes a new group where there is none.
func (t *tenure) findOrMake(im *fsm.Image, id string, now time.Time) *liveGroup {
	lg := t.find(im, id, now)
	if lg == nil {
		lg = t.keep(id, group.New(id, t.shard.groups.config.Config))
		t.bear(lg)
	}
	return lg
}

// unbornMax bounds the groups of one slot that exist only because somebody was
// given an id to join with.
const unbornMax = 128

// bear bounds the groups that never come to be: clients can make up any number of
// names, and say that they may take half an hour to come back. When many groups
// have been made after one that still has no member, it is forgotten; whoever
// comes back to it is told to begin anew.
func (t *tenure) bear(lg *liveGroup) {
	t.made = append(t.made, lg)
	if len(t.made) <= unbornMax {
		return
	}
	oldest := t.made[0]
	t.made[0] = nil
	t.made = t.made[1:]
	if t.live[oldest.id] == oldest && oldest.core.Unborn() {
		t.forget(oldest)
	}
}

// ticket makes a ticket and the channel on which its answer arrives, once.
func (t *tenure) ticket() (group.Ticket, chan groupAnswer) {
	t.last++
	ch := make(chan groupAnswer, 1)
	t.waits[t.last] = ch
	return t.last, ch
}

// do carries out what a core wants.
func (t *tenure) do(lg *liveGroup, out group.Out) {
	for _, r := range out.Replies {
		if ch := t.waits[r.Ticket]; ch != nil {
			delete(t.waits, r.Ticket)
			ch <- groupAnswer{answer: r.Answer}
		}
	}
	switch {
	case out.Put != nil:
		t.put(lg, out.Put, out.Seq)
	case out.Delete:
		t.drop(lg, out.Seq)
	}
	if out.Dead {
		t.forget(lg)
	}
	if t.ended || t.live[lg.id] != lg {
		return
	}
	t.schedule(lg, out.WakeAt)
	t.dismiss(lg)
}

// dismiss drops a core that holds nothing of a group that has no row, so that
// requests for groups that never come to be leave nothing behind.
func (t *tenure) dismiss(lg *liveGroup) {
	if !lg.core.Idle() {
		return
	}
	if _, stored := t.shard.groups.image().Group(lg.id); !stored {
		t.forget(lg)
	}
}

// put proposes a group's new value, in place of one that still waits.
func (t *tenure) put(lg *liveGroup, row *fsm.Group, seq uint64) {
	if lg.put != nil {
		lg.put.what = nil
	}
	g := t.shard.groups
	c := &slotChange{what: fsm.PutGroup{Group: row}, size: rowSize(row)}
	if c.size > g.rowMax {
		g.log.Error("a group is too large to be stored: its members are refused", "group", lg.id, "members", len(row.Members), "bytes", c.size)
		t.do(lg, lg.core.Refused(g.now(), seq))
		return
	}
	c.settle = func(err error) { t.stored(lg, c, seq, err) }
	lg.put = c
	t.propose(c)
}

// drop proposes that a group goes, with its offsets.
func (t *tenure) drop(lg *liveGroup, seq uint64) {
	c := &slotChange{what: fsm.DeleteGroup{ID: lg.id}, size: len(lg.id)}
	c.settle = func(err error) {
		if errors.Is(err, fsm.UnknownGroup) {
			err = nil // it had no row yet
		}
		t.stored(lg, c, seq, err)
	}
	t.propose(c)
}

// stored tells the core what became of a change. At the end of the tenure the
// cores go, and all who wait are answered at once.
func (t *tenure) stored(lg *liveGroup, c *slotChange, seq uint64, err error) {
	if t.ended || t.live[lg.id] != lg {
		return
	}
	if lg.put == c {
		lg.put = nil
	}
	g := t.shard.groups
	if err != nil {
		g.log.Error("the cluster refused a group's new value", "group", lg.id, "error", err)
		t.do(lg, lg.core.Refused(g.now(), seq))
		return
	}
	t.do(lg, lg.core.Committed(g.now(), seq))
}

// forget drops a core that is of no more use, and its value that still waits. The
// group is made from its row again when somebody asks for it.
func (t *tenure) forget(lg *liveGroup) {
	if lg.put != nil {
		lg.put.what = nil
	}
	if t.live[lg.id] == lg {
		delete(t.live, lg.id)
		t.shard.groups.timers.drop(&lg.timer)
	}
}

// rowSize is about how many bytes a group takes in an entry.
func rowSize(g *fsm.Group) int {
	size := 64 + len(g.ID) + len(g.History)
	for i := range g.Members {
		m := &g.Members[i]
		size += 128 + len(m.Assignment) + len(m.Regex)
		for _, p := range m.Protocols {
			size += len(p.Name) + len(p.Metadata)
		}
		for _, topic := range m.Topics {
			size += len(topic)
		}
		for _, list := range [][]fsm.TopicPartitions{m.Assigned, m.Target, m.Revoking} {
			for _, tp := range list {
				size += 18 + len(tp.Partitions)
			}
		}
	}
	return size
}

// schedule asks for the group to be looked at. A time later than the one set is
// left to the look at that time.
func (t *tenure) schedule(lg *liveGroup, at time.Time) {
	if at.IsZero() || (!lg.due.IsZero() && !at.Before(lg.due)) {
		return
	}
	lg.due = at
	if t.shard.groups.timers.set(&lg.timer, at) {
		t.shard.groups.signal()
	}
}

// expire looks at a group whose timer was set for at.
func (t *tenure) expire(lg *liveGroup, at, now time.Time) {
	if t.ended || t.live[lg.id] != lg || !lg.due.Equal(at) {
		return
	}
	lg.due = time.Time{}
	t.do(lg, lg.core.Expire(now))
}
