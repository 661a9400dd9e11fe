package feed_test

import (
	"errors"
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/weirmq/weir/broker/feed"
	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

var (
	seeds     = flag.Uint64("seeds", 200, "number of random runs of the cluster")
	firstSeed = flag.Uint64("first-seed", 1, "seed of the first of them")
)

// Leading implements feed.View for the follower's end of a connection.
func (l *link) Leading(fsm.TopicPartition) (feed.Leading, feed.Code) {
	if l.to.leader == nil {
		return feed.Leading{}, feed.CodeNotLeader
	}
	return feed.Leading{Epoch: l.to.le, Start: l.to.log.start, End: l.to.log.end(), HW: l.to.hw}, feed.CodeNone
}

// EpochEnd implements feed.View.
func (l *link) EpochEnd(_ fsm.TopicPartition, e batch.Epoch) (batch.Epoch, batch.Offset) {
	return l.to.log.epochEnd(e)
}

// connect opens a connection anew; an older one ends first.
func (c *cluster) connect(l *link) {
	if l.open {
		c.cut(l)
	}
	w := feed.Window{ConnBytes: 1000, PartitionBytes: 600, FeedBytes: 300, MarkDelay: 5 * time.Millisecond}
	l.open, l.f = true, feed.NewFollower()
	l.d = feed.NewFeeder(isr.Member{ID: l.from.id, Epoch: l.from.epoch}, w)
	l.from.follow()
}

// cut breaks a connection: what is under way is lost.
func (c *cluster) cut(l *link) {
	for _, v := range l.d.Close(nil) {
		l.apply(v, nil)
	}
	l.open, l.up, l.down = false, nil, nil
}

// pump moves what either side has to send onto the wire.
func (c *cluster) pump(l *link) {
	for _, f := range l.f.Pending(nil, 8, c.now) {
		l.up = append(l.up, packet{frame: feed.AppendFrame(nil, f), log: l.from.log.clone()})
	}
	for range 4 {
		out := l.d.Next(l, c.now)
		if out.Gone != nil {
			l.apply(*out.Gone, nil)
		}
		switch out.Kind {
		case feed.OutNone:
			return
		case feed.OutFrame:
			l.down = append(l.down, packet{frame: feed.AppendFrame(nil, out.Frame)})
		case feed.OutSend:
			s := out.Send
			to := min(s.End, s.From+batch.Offset(s.MaxBytes/recordBytes))
			if f, ok := l.d.Sent(s, to, int(to-s.From)*recordBytes); ok {
				l.down = append(l.down, packet{frame: feed.AppendFrame(nil, f), records: l.to.log.read(s.From, to)})
			}
		}
	}
}

// deliverUp gives the leader one frame.
func (c *cluster) deliverUp(l *link) {
	pk := l.up[0]
	l.up = l.up[1:]
	f, _, err := feed.DecodeFrame(pk.frame)
	if err != nil {
		c.fail("decode: %v", err)
	}
	vs, err := l.d.Receive(nil, f, l)
	if err != nil {
		c.fail("%d to %d: %s: %v", l.from.id, l.to.id, show(f, tpName), err)
	}
	c.logf("%d→%d %s: %d verdicts", l.from.id, l.to.id, show(f, tpName), len(vs))
	for _, v := range vs {
		l.apply(v, pk.log)
	}
}

// apply is what the leader's shell makes of a verdict.
func (l *link) apply(v feed.Verdict, sent *modelLog) {
	n, c := l.to, l.to.c
	if n.leader == nil || n.le != v.Epoch {
		return
	}
	m := l.d.Peer()
	switch v.Kind {
	case feed.VerdictOpened, feed.VerdictProgressed:
		if err := n.log.sameAs(sent, v.Position.Written); err != nil {
			c.fail("node %d counts %+v of node %d, whose log was another: %v", n.id, v.Position, m.ID, err)
		}
		if v.Kind == feed.VerdictOpened {
			n.leader.Follow(m, c.now)
		}
		n.absorb(n.leader.Progressed(m, v.Position, c.now, n.live))
	case feed.VerdictGone:
		n.leader.Gone(m)
	case feed.VerdictBehind:
		n.absorb(n.leader.Behind(m, v.Offset, c.now, n.live))
	}
}

// deliverDown gives the follower one frame. The first record may arrive broken.
func (c *cluster) deliverDown(l *link, broken bool) {
	pk := l.down[0]
	l.down = l.down[1:]
	f, _, err := feed.DecodeFrame(pk.frame)
	if err != nil {
		c.fail("decode: %v", err)
	}
	as, err := l.f.Receive(nil, f, c.now)
	if err != nil {
		c.fail("%d to %d: %s: %v", l.to.id, l.from.id, show(f, tpName), err)
	}
	c.logf("%d←%d %s: %d actions", l.from.id, l.to.id, show(f, tpName), len(as))
	for _, a := range as {
		l.act(a, pk.records, broken)
	}
}

// act is what the follower's shell makes of an action.
func (l *link) act(a feed.Action, rs []record, broken bool) {
	n, c := l.from, l.from.c
	if a.Kind == feed.ActionDrain || a.Kind == feed.ActionRefused {
		return
	}
	if n.follower == nil || n.le != a.LeaderEpoch {
		c.fail("an action of epoch %d counts on node %d in epoch %d", a.LeaderEpoch, n.id, n.le)
	}
	switch a.Kind {
	case feed.ActionAppend:
		if broken {
			l.f.Bad(a.Ref, n.log.end(), n.log.local(), c.now)
			return
		}
		if rs[0].epoch < n.log.lastEpoch() || rs[len(rs)-1].epoch > n.le {
			c.fail("node %d appends epochs %d to %d to %v in epoch %d", n.id, rs[0].epoch, rs[len(rs)-1].epoch, n.log, n.le)
		}
		n.log.append(rs...)
		l.mark(a)
		l.f.Appended(a.Ref, n.log.local())
	case feed.ActionMark:
		l.mark(a)
	case feed.ActionTruncate:
		n.log.cut(feed.CutTo(a.Epoch, a.End, n.log.epochEnd))
		n.follower.Truncated(n.log.start, n.log.end())
		n.hw = n.follower.HW()
		l.f.Truncated(a.Ref, n.log.local())
	case feed.ActionReset:
		n.log.reset(a.LogStart)
		n.follower.Truncated(n.log.start, n.log.end())
		n.hw = n.follower.HW()
		l.f.Truncated(a.Ref, n.log.local())
	}
}

func (l *link) mark(a feed.Action) {
	n := l.from
	n.hw = n.follower.Mark(a.HW, a.LogStart, n.log.end())
	if start := n.follower.LogStart(); start > n.log.start {
		n.log.advanceStart(start)
		l.f.Started(a.TP, start)
	}
}

// produce appends one record on a node that believes to lead.
func (c *cluster) produce(n *node) {
	c.serial++
	n.log.append(record{n.le, c.serial})
	n.absorb(n.leader.Appended(n.log.end(), c.now))
	for _, l := range c.links {
		if l.open && l.to == n {
			l.d.Dirty(theTP)
		}
	}
}

// decide carries one proposal to the controller, or loses it or its answer.
func (c *cluster) decide(i, fate int) {
	p := c.asked[i]
	c.asked = slices.Delete(c.asked, i, i+1)
	switch fate {
	case 0: // never left the node
		p.answer(isr.Refused)
		return
	case 1: // lost
		p.answer(isr.Unknown)
		return
	case 2: // under way for longer than anyone waits
		p.answer(isr.Unknown)
		p.late = true
		c.asked = append(c.asked, p)
		return
	}
	ch := p.change
	res := c.apply(fsm.ChangeISR{Proposer: p.n.id, BrokerEpoch: p.epoch, Items: []fsm.ISRChange{{
		TP: theTP, LeaderEpoch: ch.LeaderEpoch, PartitionEpoch: ch.PartitionEpoch, ISR: ch.ISR, Durability: ch.Durability, Confirms: ch.Confirms,
	}}})
	err := res.Err
	if len(res.Why) > 0 {
		err = res.Why[0]
	}
	c.logf("ISR change %+v of node %d: %v", ch, p.n.id, err)
	switch {
	case fate == 3: // applied, the answer is lost
		p.answer(isr.Unknown)
	case err == nil:
		p.answer(isr.Committed)
	case errors.Is(err, fsm.IneligibleReplica):
		p.answer(isr.Refused)
	default:
		p.answer(isr.Unknown)
	}
}

func (p *proposal) answer(o isr.Outcome) {
	if p.late || p.n.leader != p.lead {
		return
	}
	p.n.absorb(p.lead.Answered(p.change.PartitionEpoch, o, p.n.c.now, p.n.live))
}

// tick lets time pass and calls the leaders that asked for it.
func (c *cluster) tick(d time.Duration) {
	c.now = c.now.Add(d)
	for _, n := range c.nodes {
		if n.leader != nil && !n.wake.IsZero() && !c.now.Before(n.wake) {
			n.wake = time.Time{}
			n.absorb(n.leader.Tick(c.now, n.live))
		}
	}
}

// step draws one event and makes it happen if it can.
func (c *cluster) step() {
	n := c.nodes[c.rand.IntN(len(c.nodes))]
	l := c.links[c.rand.IntN(len(c.links))]
	if c.rand.IntN(1000) < c.faults {
		c.fault(n, l, c.rand.IntN(100))
		return
	}
	switch x := c.rand.IntN(100); {
	case x < 12:
		if n.leader != nil {
			c.produce(n)
		}
	case x < 15:
		n.flush()
	case x < 35:
		if l.open {
			c.pump(l)
		}
	case x < 60:
		for range c.rand.IntN(4) {
			if len(l.up) > 0 {
				c.deliverUp(l)
			}
		}
	case x < 85:
		for range c.rand.IntN(4) {
			if len(l.down) > 0 {
				c.deliverDown(l, c.rand.IntN(50) == 0)
			}
		}
	case x < 90:
		if n.up && n.view != c.image {
			c.logf("node %d installs %d", n.id, c.image.Index())
			n.install(c.image)
		}
	case x < 95:
		if len(c.asked) > 0 {
			c.decide(c.rand.IntN(len(c.asked)), c.rand.IntN(10))
		}
	default:
		c.tick([]time.Duration{1, 10, 100, 1000, 4000}[c.rand.IntN(5)] * time.Millisecond)
	}
}

// fault is one of the rarer events.
func (c *cluster) fault(n *node, l *link, x int) {
	switch {
	case x < 35:
		if l.from.up && l.to.up {
			c.logf("connect %d→%d", l.from.id, l.to.id)
			c.connect(l)
		}
	case x < 55:
		c.elect(c.rand.IntN(3))
	case x < 63:
		c.logf("fence %d", n.id)
		c.apply(fsm.FenceBroker{ID: n.id, Epoch: n.epoch})
	case x < 78:
		if n.up {
			c.apply(fsm.UnfenceBroker{ID: n.id, Epoch: n.epoch})
		}
	case x < 88:
		if n.leader != nil && n.hw > n.log.start {
			n.log.advanceStart(n.log.start + (n.hw-n.log.start+1)/2)
			n.leader.Started(n.log.start)
		}
	default:
		c.downOrUp(n)
	}
}

// flush brings a node's log to its disk.
func (n *node) flush() {
	if !n.up {
		return
	}
	n.log.flushed = n.log.end()
	if n.leader != nil {
		n.absorb(n.leader.Flushed(n.log.end(), n.c.now, n.live))
	}
	for _, l := range n.c.links {
		if l.open && l.from == n {
			l.f.Flushed(theTP, n.log.end())
		}
	}
}

// downOrUp kills a node, cuts its power, or starts it again.
func (c *cluster) downOrUp(n *node) {
	p := c.partition()
	holders := append(slices.Clone(p.ISR), p.ELR...)
	others := slices.ContainsFunc(holders, func(id fsm.BrokerID) bool { return id != n.id })
	switch {
	case !n.up:
		c.logf("start %d", n.id)
		c.start(n)
	case !c.lostPower && others && c.rand.IntN(2) == 0:
		c.logf("power loss of %d", n.id)
		c.powerLoss(n)
	default:
		c.logf("kill %d", n.id)
		c.stop(n)
	}
}

// heal ends all faults and runs until the nodes agree.
func (c *cluster) heal() {
	for _, n := range c.nodes {
		if !n.up {
			c.start(n)
		}
		c.apply(fsm.UnfenceBroker{ID: n.id, Epoch: n.epoch})
	}
	for _, l := range c.links {
		c.connect(l)
	}
	for range 600 {
		if c.partition().Leader == fsm.NoBroker {
			c.elect(0)
		}
		for _, n := range c.nodes {
			n.flush()
			if n.view != c.image {
				n.install(c.image)
			}
		}
		for len(c.asked) > 0 {
			c.decide(0, 9)
		}
		for _, l := range c.links {
			c.pump(l)
			for len(l.up) > 0 {
				c.deliverUp(l)
			}
			for len(l.down) > 0 {
				c.deliverDown(l, false)
			}
		}
		c.check()
		if c.agree() {
			return
		}
		c.tick(50 * time.Millisecond)
	}
	c.fail("the nodes never agree")
}

// agree tells whether all replicas are in sync and equal, and know it.
func (c *cluster) agree() bool {
	if len(c.partition().ISR) != len(c.nodes) {
		return false
	}
	for _, n := range c.nodes {
		if n.view != c.image || n.log.end() != c.nodes[0].log.end() || n.hw != n.log.end() {
			return false
		}
		if err := n.log.sameAs(c.nodes[0].log, n.log.end()); err != nil {
			c.fail("logs of equal length differ: %v", err)
		}
	}
	return true
}

// TestReplicationIsSafe runs the cluster through random events. A record below
// any leader's high watermark is never lost or replaced, no position counts that
// is not a common prefix, no high watermark goes back, and once the faults end
// all replicas become equal and in sync.
func TestReplicationIsSafe(t *testing.T) {
	events, committed, epochs := 0, 0, 0
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		c := newCluster(t, seed)
		c.faults = []int{5, 20, 50, 150}[c.rand.IntN(4)]
		c.fsync = seed%3 == 0
		for range 200 + c.rand.IntN(2000) {
			events++
			c.step()
			c.check()
		}
		c.heal()
		committed += len(c.committed)
		epochs += int(c.partition().LeaderEpoch)
	}
	t.Logf("seeds %d to %d: %d events, %d records committed, %d leader epochs", *firstSeed, *firstSeed+*seeds-1, events, committed, epochs)
	if committed < int(*seeds) || epochs < int(*seeds) {
		t.Errorf("too little happened: %d records committed, %d leader epochs", committed, epochs)
	}
}
