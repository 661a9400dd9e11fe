package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/weirmq/weir/broker/feed"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// source is the follower's side of the feed from one leader node: what package
// broker's follower is.
type source struct {
	n      *node
	leader *node
	wanted []*replica
	conn   *conn
	closed bool
	pause  time.Duration
	began  time.Duration
}

const (
	redialMin = 50 * time.Millisecond
	redialMax = 250 * time.Millisecond
	lasting   = time.Second
)

// setSource makes r be fed by leader in its present epoch; with NoBroker by none.
func (n *node) setSource(r *replica, leader fsm.BrokerID) {
	for _, s := range n.sources {
		if s.leader.id != leader && s.follows(r) {
			n.dropSource(r)
			break
		}
	}
	if leader == fsm.NoBroker {
		return
	}
	i := slices.IndexFunc(n.sources, func(s *source) bool { return s.leader.id == leader })
	if i < 0 {
		s := &source{n: n, leader: n.w.node(leader), pause: redialMin}
		n.sources = append(n.sources, s)
		i = len(n.sources) - 1
		s.connect()
	}
	s := n.sources[i]
	if !s.follows(r) {
		s.wanted = append(s.wanted, r)
	}
	s.add(r)
}

// dropSource stops feeding r. A source that has nothing left is closed.
func (n *node) dropSource(r *replica) {
	for i, s := range n.sources {
		if !s.follows(r) {
			continue
		}
		s.wanted = slices.DeleteFunc(s.wanted, func(x *replica) bool { return x == r })
		if s.conn != nil {
			s.conn.core.Remove(r.tp)
			s.conn.writeSoon()
		}
		if len(s.wanted) == 0 {
			n.sources = slices.Delete(n.sources, i, i+1)
			s.closed = true
			if s.conn != nil {
				s.conn.closeFollower()
			}
		}
		return
	}
}

func (s *source) follows(r *replica) bool { return slices.Contains(s.wanted, r) }

// add has the core follow a replica in the epoch of its role.
func (s *source) add(r *replica) {
	if s.conn == nil || r.role != roleFollower || r.leader != s.leader.id {
		return
	}
	s.conn.core.Add(r.tp, r.epoch, r.local())
	s.conn.writeSoon()
}

// connect keeps one connection open until the source is closed.
func (s *source) connect() {
	s.dial(func(c *conn, refused bool) {
		if s.closed {
			if c != nil {
				c.drop()
			}
			return
		}
		if s.conn != nil {
			return // a late answer to a dial that was given up
		}
		if c == nil || c.served {
			if refused {
				s.reportRefused()
			}
			s.again()
			return
		}
		s.began = s.n.w.now
		s.conn, c.open, c.heardAt = c, true, s.n.w.now
		c.core = feed.NewFollower()
		for _, r := range s.wanted {
			s.add(r)
		}
		c.watchLeader()
		c.flow(&c.down, 0)
	})
}

func (s *source) again() {
	pause := s.pause
	s.pause = min(2*pause, redialMax)
	s.n.do(pause, laneControl, func() {
		if !s.closed && s.conn == nil {
			s.connect()
		}
	})
}

// reportRefused tells the controller that a node refused to be dialled.
func (s *source) reportRefused() {
	id := s.leader.id
	s.n.try(time.Second, func(t *term, reply func(any, error)) {
		t.post(func(then func()) {
			t.probe(id)
			then()
		})
		reply(nil, nil)
	}, func(any, error) {})
}

// drop closes a connection that nobody wants any more.
func (c *conn) drop() {
	if c.to.up && c.to.life == c.toLife {
		c.reset(c.to, c.from, c.shut)
	}
}

// closeFollower ends the follower's end. What was under way is lost.
func (c *conn) closeFollower() {
	s := c.source
	if !c.open {
		return
	}
	c.open, c.down.q = false, nil
	c.drop()
	if s.conn != c {
		return
	}
	s.conn = nil
	if s.closed {
		return
	}
	if s.n.w.now-s.began > lasting {
		s.pause = redialMin
		s.connect()
		return
	}
	s.again()
}

// watchLeader ends a connection on which the leader says nothing for long.
func (c *conn) watchLeader() {
	c.from.do(silence/3, laneControl, func() {
		switch {
		case !c.open:
		case c.w.now-c.heardAt >= silence:
			c.closeFollower()
		default:
			c.watchLeader()
		}
	})
}

// writeSoon has the follower's writer run.
func (c *conn) writeSoon() {
	if c.writing || !c.open {
		return
	}
	c.writing = true
	c.from.do(c.w.between(5*time.Microsecond, 300*time.Microsecond), laneData, func() {
		c.writing = false
		c.write()
	})
}

func (c *conn) write() {
	if !c.open {
		return
	}
	now := c.from.clock()
	for _, f := range c.core.Pending(nil, 64, now) {
		c.sendUp(feed.AppendFrame(nil, f))
	}
	if at := c.core.WakeAt(); !at.IsZero() && !at.Equal(c.wakeAt) {
		c.wakeAt = at
		c.from.do(max(at.Sub(now), 0)+50*time.Microsecond, laneData, func() {
			if !c.writing {
				c.write()
			}
		})
	}
}

// receiveDown takes one frame at the follower's end.
func (c *conn) receiveDown(pk packet) {
	if !c.open {
		return
	}
	c.heardAt = c.w.now
	f, _, err := feed.DecodeFrame(pk.frame)
	if err != nil {
		c.w.fail("frames decode", "from node %d to %d: %v", c.to.id, c.from.id, err)
	}
	actions, err := c.core.Receive(nil, f, c.from.clock())
	if err != nil {
		c.w.fail("the feed's protocol", "node %d from node %d: %v", c.from.id, c.to.id, err)
	}
	c.act(actions, pk.payload)
}

// act does what the core asks for. Now and then other things happen first: the
// reader holds no lock between two actions.
func (c *conn) act(actions []feed.Action, payload []byte) {
	for i, a := range actions {
		if c.w.chance(100) {
			c.acting = true
			rest := actions[i:]
			c.from.do(c.w.between(0, 3*time.Millisecond), laneData, func() {
				c.acting = false
				if !c.open {
					return
				}
				c.actOne(rest[0], payload)
				if c.open {
					c.act(rest[1:], payload)
				}
				if !c.acting {
					c.flow(&c.down, 0)
				}
			})
			return
		}
		c.actOne(a, payload)
		if !c.open {
			return
		}
	}
	c.writeSoon()
}

func (c *conn) actOne(a feed.Action, payload []byte) {
	r := c.from.replica(a.TP)
	if r == nil || a.Kind == feed.ActionDrain || a.Kind == feed.ActionRefused {
		return
	}
	var local feed.Local
	var err error
	switch a.Kind {
	case feed.ActionAppend:
		c.append(r, a, payload)
		return
	case feed.ActionMark:
		if local, err = r.marked(a.LeaderEpoch, a.HW, a.LogStart); err == nil {
			c.core.Started(a.TP, local.LogStart)
		}
	case feed.ActionTruncate:
		local, err = r.truncateFed(a.LeaderEpoch, a.Epoch, a.End)
	case feed.ActionReset:
		local, err = r.resetFed(a.LeaderEpoch, a.LogStart)
	}
	c.acted(a, local, err)
}

// acted tells the core how an action went.
func (c *conn) acted(a feed.Action, local feed.Local, err error) {
	switch {
	case errors.Is(err, errStaleAttempt):
	case err != nil:
		c.from.trouble(err)
		c.core.Retry(a.Ref, local, c.from.clock())
	case a.Kind == feed.ActionTruncate, a.Kind == feed.ActionReset:
		c.core.Truncated(a.Ref, local)
	case a.Kind == feed.ActionAppend:
		c.core.Appended(a.Ref, local)
	}
}

// append takes the records behind a FEED.
func (c *conn) append(r *replica, a feed.Action, payload []byte) {
	good, bad, err := checkRun(payload)
	if err != nil {
		c.w.note(c.from.id, "gets what are no batches from node %d: %v", c.to.id, err)
		c.closeFollower()
		return
	}
	if len(good) > 0 {
		local, err := r.appendFed(a.LeaderEpoch, good, a.HW, a.LogStart)
		c.acted(a, local, err)
		if err != nil {
			return
		}
	}
	if bad >= 0 && r.follows(a.LeaderEpoch) {
		c.core.Bad(a.Ref, bad, r.local(), c.from.clock())
	}
}

// checkRun is package broker's: what comes before the first batch with a wrong
// CRC, and that one's offset, -1 when there is none.
func checkRun(payload []byte) (good batch.Run, bad batch.Offset, err error) {
	for rest := payload; len(rest) > 0; {
		b, next, err := batch.Next(rest)
		if err != nil {
			return nil, -1, err
		}
		if b.CheckCRC() != nil {
			return payload[:len(payload)-len(rest)], b.Base(), nil
		}
		rest = next
	}
	return payload, -1, nil
}
