package sim

import (
	"time"

	"github.com/weirmq/weir/broker/feed"
	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// conn is one feed connection: a follower node's machine at one end, a leader
// node's at the other, and two pipes that keep their order. Each end closes by
// itself, and learns of the other's end later, or by silence.
type conn struct {
	w        *world
	source   *source // the follower's end
	from, to *node   // follower, leader
	fromLife int
	toLife   int
	peer     isr.Member
	up, down pipe

	// The follower's end.
	core    *feed.Follower
	open    bool
	heardAt time.Duration
	acting  bool // an action waits; frames wait behind it
	writing bool
	wakeAt  time.Time // for which an event has the writer run by itself

	// The leader's end.
	feeder   *feed.Feeder
	serving  bool
	served   bool // the end has been there, and is closed now
	askedAt  time.Duration
	news     []feedNews
	pumping  bool
	sending  bool // a read of records is under way
	nextPing time.Time
	laterSeq int // of the newest event that has the writer run by itself
}

// feedNews is what a feeder was woken for.
type feedNews struct {
	r       *replica
	records bool
}

// packet is what one write carries.
type packet struct {
	at      time.Duration
	frame   []byte
	payload []byte
}

// pipe is one direction: packets arrive in order, each as soon as it can.
type pipe struct {
	q    []packet
	busy bool // an event is on its way for the first
	last time.Duration
}

// silence is how long an end waits for any sign of life.
const silence = session

// hangUp ends both ends of a node's connections when its process has ended.
// Others notice soon if the machine is there to say so.
func (w *world) hangUp(n *node) {
	for _, c := range n.feeders {
		if c != nil {
			c.serving, c.served = false, true
		}
	}
	for _, s := range n.sources {
		s.closed = true
		if s.conn != nil {
			s.conn.open = false
		}
	}
	for _, m := range w.nodes {
		if m == n || !m.up {
			continue
		}
		for _, s := range m.sources {
			if c := s.conn; c != nil && c.to == n {
				c.reset(m, n, c.closeFollower)
			}
		}
		if c := m.feeders[n.index]; c != nil {
			c.reset(m, n, c.shut)
		}
	}
}

// reset tells m's end of a connection that n's is closed, if the word gets there.
func (c *conn) reset(m, n *node, end func()) {
	if n.dark || !c.w.reaches(n, m) {
		return
	}
	m.do(c.w.transit(n, m), laneControl, end)
}

// sendUp puts a frame on its way to the leader.
func (c *conn) sendUp(frame []byte) { c.send(&c.up, c.from, c.to, packet{frame: frame}) }

// sendDown puts a frame, and records behind it, on its way to the follower.
func (c *conn) sendDown(frame, payload []byte) {
	c.send(&c.down, c.to, c.from, packet{frame: frame, payload: payload})
}

func (c *conn) send(p *pipe, from, to *node, pk packet) {
	pk.at = max(p.last, c.w.now+c.w.transit(from, to))
	p.last = pk.at
	p.q = append(p.q, pk)
	c.flow(p, 0)
}

// flow has the first packet of a pipe delivered.
func (c *conn) flow(p *pipe, pause time.Duration) {
	if p.busy || len(p.q) == 0 {
		return
	}
	p.busy = true
	d := max(p.q[0].at-c.w.now, pause)
	if p == &c.up {
		c.to.do(d, laneData, func() { c.arrive(p, c.from, c.to) })
	} else {
		c.from.do(d, laneData, func() { c.arrive(p, c.to, c.from) })
	}
}

// arrive delivers the first packet, unless the network holds it up: then it comes
// once the network is whole again, if the connection lives that long.
func (c *conn) arrive(p *pipe, from, to *node) {
	p.busy = false
	if len(p.q) == 0 {
		return
	}
	if !c.w.reaches(from, to) {
		c.flow(p, c.w.between(50*time.Millisecond, 200*time.Millisecond))
		return
	}
	if p == &c.down && c.acting {
		return // taken up again when the action is done
	}
	pk := p.q[0]
	p.q[0] = packet{}
	p.q = p.q[1:]
	if p == &c.up {
		c.receiveUp(pk)
	} else {
		c.receiveDown(pk)
	}
	c.flow(p, 0)
}

// dial opens a connection for a source; done gets it, or nil when there is none.
func (s *source) dial(done func(*conn, bool)) {
	n, to := s.n, s.leader
	w := n.w
	if w.walledOff(n, to) {
		n.do(w.between(50*time.Microsecond, time.Millisecond), laneControl, func() { done(nil, true) })
		return
	}
	if !w.reaches(n, to) || !w.reaches(to, n) {
		n.do(time.Second, laneControl, func() { done(nil, false) })
		return
	}
	if !to.up {
		n.do(w.transit(n, to)*2, laneControl, func() { done(nil, !to.dark) })
		return
	}
	c := &conn{
		w: w, source: s, from: n, to: to, fromLife: n.life, toLife: to.life,
		peer: isr.Member{ID: n.id, Epoch: n.epoch},
	}
	there := w.transit(n, to)
	to.do(there, laneControl, func() {
		if w.reaches(n, to) && w.reaches(to, n) {
			c.accept()
			n.do(w.transit(to, n), laneControl, func() { done(c, false) })
		}
	})
	n.do(time.Second, laneControl, func() {
		if !c.serving && !c.served {
			done(nil, false)
		}
	})
}

// accept takes a connection at the leader's end: a new one of a node closes its
// older one before any of its frames counts.
func (c *conn) accept() {
	n := c.to
	if n.reconciled == nil { // the feed handler is not there yet
		c.served = true
		return
	}
	if b, ok := n.im.Broker(c.peer.ID); !ok || b.Epoch > c.peer.Epoch {
		c.served = true
		return
	}
	old := n.feeders[c.from.index]
	if old != nil && old.peer.Epoch > c.peer.Epoch {
		c.served = true
		return
	}
	n.feeders[c.from.index] = c
	if old != nil {
		old.shut()
	}
	c.feeder = feed.NewFeeder(c.peer, feed.Window{ConnBytes: 3000, PartitionBytes: 2000, FeedBytes: 900, MarkDelay: 5 * time.Millisecond})
	c.serving = true
	c.askedAt, c.nextPing = c.w.now, n.clock()
	c.pumpSoon(0)
	c.flow(&c.up, 0)
	c.watchFollower()
}

// watchFollower cuts off a follower that says nothing for long.
func (c *conn) watchFollower() {
	c.to.do(silence/3, laneControl, func() {
		switch {
		case !c.serving:
		case c.w.now-c.askedAt >= silence:
			c.shut()
		default:
			c.watchFollower()
		}
	})
}

// shut makes everything that still arrives at the leader's end count for nothing.
func (c *conn) shut() {
	if !c.serving {
		return
	}
	c.serving, c.served = false, true
	c.apply(c.feeder.Close(nil))
	n := c.to
	if n.feeders[c.from.index] == c {
		n.feeders[c.from.index] = nil
	}
	c.up.q = nil
	if c.from.up && c.from.life == c.fromLife {
		c.reset(c.from, c.to, c.closeFollower)
	}
}

// receiveUp takes one frame at the leader's end.
func (c *conn) receiveUp(pk packet) {
	if !c.serving {
		return
	}
	c.askedAt = c.w.now
	f, _, err := feed.DecodeFrame(pk.frame)
	if err != nil {
		c.w.fail("frames decode", "from node %d to %d: %v", c.from.id, c.to.id, err)
	}
	vs, err := c.feeder.Receive(nil, f, view{c})
	c.apply(vs)
	if err != nil {
		c.w.fail("the feed's protocol", "node %d from node %d: %v", c.to.id, c.from.id, err)
	}
	c.pumpSoon(0)
	for _, v := range vs {
		if v.Kind == feed.VerdictBad {
			if r := c.to.replica(v.TP); r != nil {
				r.suspect(v.Epoch, v.Offset)
			}
		}
	}
}

// apply tells partitions what was received.
func (c *conn) apply(vs []feed.Verdict) {
	for _, v := range vs {
		r := c.to.replica(v.TP)
		if r == nil {
			continue
		}
		switch v.Kind {
		case feed.VerdictOpened:
			if !r.opened(c, v.Epoch, v.Position) {
				c.feeder.CloseEpoch(v.TP, v.Epoch)
			}
		case feed.VerdictProgressed:
			r.progressed(c, v.Epoch, v.Position)
		case feed.VerdictGone:
			r.gone(c, v.Epoch)
		case feed.VerdictBehind:
			r.behind(c.peer, v.Epoch, v.Offset)
		}
	}
}

// wake tells the feeder what changed in a partition.
func (c *conn) wake(r *replica, records bool) {
	c.news = append(c.news, feedNews{r, records})
	c.pumpSoon(0)
}

func (c *conn) closeEpoch(r *replica, epoch batch.Epoch) {
	if c.serving {
		c.feeder.CloseEpoch(r.tp, epoch)
		c.pumpSoon(0)
	}
}

// pumpSoon has the leader's writer run.
func (c *conn) pumpSoon(d time.Duration) {
	if c.pumping || !c.serving {
		return
	}
	c.pumping = true
	c.to.do(d+c.w.between(5*time.Microsecond, 300*time.Microsecond), laneData, func() {
		c.pumping = false
		c.pump()
	})
}

// pump sends what the core decides until there is nothing more.
func (c *conn) pump() {
	n := c.to
	if !c.serving || c.sending {
		return
	}
	for {
		now := n.clock()
		if !now.Before(c.nextPing) {
			c.feeder.Ping(now)
			c.nextPing = now.Add(heartbeat)
		}
		for _, x := range c.news {
			if x.records {
				c.feeder.Dirty(x.r.tp)
			} else {
				c.feeder.DirtyMark(x.r.tp, now)
			}
		}
		c.news = c.news[:0]
		out := c.feeder.Next(view{c}, now)
		if out.Gone != nil {
			c.apply([]feed.Verdict{*out.Gone})
		}
		switch out.Kind {
		case feed.OutFrame:
			c.sendDown(feed.AppendFrame(nil, out.Frame), nil)
		case feed.OutSend:
			if !c.records(out.Send) {
				return
			}
		default:
			at := c.nextPing
			if !out.WakeAt.IsZero() && out.WakeAt.Before(at) {
				at = out.WakeAt
			}
			c.pumpLater(at.Sub(now))
			return
		}
	}
}

// pumpLater has the writer run when something is due by itself.
func (c *conn) pumpLater(d time.Duration) {
	c.laterSeq++
	seq := c.laterSeq
	c.to.do(max(d, 0)+10*time.Microsecond, laneData, func() {
		if seq == c.laterSeq && !c.pumping {
			c.pump()
		}
	})
}

// view is what the follower node may see of the leader's partitions.
type view struct{ c *conn }

// Leading implements feed.View.
func (v view) Leading(tp fsm.TopicPartition) (feed.Leading, feed.Code) {
	r := v.c.to.replica(tp)
	if r == nil {
		return feed.Leading{}, feed.CodeUnknown
	}
	return r.leading(v.c.from.id)
}

// EpochEnd implements feed.View.
func (v view) EpochEnd(tp fsm.TopicPartition, e batch.Epoch) (batch.Epoch, batch.Offset) {
	r := v.c.to.replica(tp)
	if r == nil {
		return -1, 0
	}
	return r.log.EpochEnd(e)
}

// heard is when the last question was sent that the member has answered.
func (n *node) heard(m isr.Member) time.Time {
	if c := n.feeders[m.ID-1]; c != nil && c.peer == m {
		return c.feeder.Heard()
	}
	return time.Time{}
}
