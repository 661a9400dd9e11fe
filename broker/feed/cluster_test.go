package feed_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/broker/feed"
	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// cluster is three nodes that replicate one partition with the real cores of
// both sides and the real state machine, over connections that lose what is
// under way when they break. A seed reproduces a run.
type cluster struct {
	t      *testing.T
	seed   uint64
	rand   *rand.Rand
	faults int  // of a thousand events
	fsync  bool // flushed ends count, and a power loss costs no seat
	now    time.Time
	serial int
	image  *fsm.Image // the newest; each node sees it late
	nodes  []*node
	links  []*link
	asked  []*proposal

	committed map[batch.Offset]record // all that was ever below a high watermark
	lostPower bool                    // a node lost what it had written; without fsync, a second one may lose records rightly
	trace     []string
}

var theTP = tp("p")

// node is one broker.
type node struct {
	c     *cluster
	id    fsm.BrokerID
	epoch fsm.BrokerEpoch
	boot  int
	up    bool
	torn  bool // lost power and has not registered since
	log   *modelLog
	hw    batch.Offset
	view  *fsm.Image

	leaderID fsm.BrokerID // what the role was made from
	le       batch.Epoch
	leader   *isr.Leader
	follower *isr.Follower
	wake     time.Time
}

// link is the connection on which one node follows what another leads.
type link struct {
	from, to *node // follower, leader
	open     bool
	f        *feed.Follower
	d        *feed.Feeder
	up, down []packet
}

// packet is one frame under way. A follower's carries its log as it was, to
// judge what the leader makes of it.
type packet struct {
	frame   []byte
	records []record
	log     *modelLog
}

// proposal is an ISR change on its way to the controller.
type proposal struct {
	n      *node
	lead   *isr.Leader
	epoch  fsm.BrokerEpoch
	change isr.Change
	late   bool // answered as unknown already; it may still be applied
}

func newCluster(t *testing.T, seed uint64) *cluster {
	c := &cluster{t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1_000_000, 0), image: fsm.NewImage(), committed: make(map[batch.Offset]record)}
	for id := fsm.BrokerID(1); id <= 3; id++ {
		c.nodes = append(c.nodes, &node{c: c, id: id, log: newModelLog(), le: batch.NoEpoch, leaderID: fsm.NoBroker})
	}
	c.apply(fsm.InitCluster{ClusterID: "test"})
	for _, n := range c.nodes {
		c.start(n)
		c.apply(fsm.UnfenceBroker{ID: n.id, Epoch: n.epoch})
		for _, m := range c.nodes {
			if m != n {
				c.links = append(c.links, &link{from: n, to: m})
			}
		}
	}
	replicas := []fsm.BrokerID{1, 2, 3}
	res := c.apply(fsm.CreateTopic{ID: theTP.Topic, Name: "p", Partitions: []fsm.NewPartition{{Replicas: replicas, ISR: replicas, Leader: 1}}})
	if res.Err != nil {
		t.Fatalf("create the topic: %v", res.Err)
	}
	for _, l := range c.links {
		c.connect(l)
	}
	return c
}

func (c *cluster) logf(format string, args ...any) {
	c.trace = append(c.trace, fmt.Sprintf(format, args...))
}

func (c *cluster) fail(format string, args ...any) {
	c.t.Helper()
	var b strings.Builder
	for _, line := range c.trace {
		b.WriteString(line + "\n")
	}
	for _, n := range c.nodes {
		fmt.Fprintf(&b, "node %d epoch=%d up=%v torn=%v le=%d leader=%d log=%v hw=%d\n", n.id, n.epoch, n.up, n.torn, n.le, n.leaderID, n.log, n.hw)
		if n.leader != nil {
			fmt.Fprintf(&b, "%v\n", n.leader)
		}
	}
	p, _ := c.image.Partition(theTP)
	fmt.Fprintf(&b, "image %+v\n", p)
	c.t.Fatalf("seed %d: %s\n%s", c.seed, fmt.Sprintf(format, args...), b.String())
}

// apply commits one command.
func (c *cluster) apply(cmd fsm.Command) fsm.Result {
	im, res := fsm.Apply(c.image, c.image.Index()+1, cmd)
	c.image = im
	return res
}

func (c *cluster) partition() fsm.Partition {
	p, _ := c.image.Partition(theTP)
	return p
}

// start registers a node that is down.
func (c *cluster) start(n *node) {
	old, _ := c.image.Broker(n.id)
	res := c.apply(fsm.RegisterBroker{ID: n.id, Folder: [16]byte{byte(n.id)}, Process: [16]byte{1, byte(old.Epoch >> 8), byte(old.Epoch)},
		BootID: fmt.Sprint(n.boot), Replaces: old.Epoch})
	if res.Err != nil {
		c.fail("register %d: %v", n.id, res.Err)
	}
	n.up, n.torn, n.epoch = true, false, fsm.BrokerEpoch(res.Epoch)
	n.le, n.leaderID = batch.NoEpoch, fsm.NoBroker
	n.install(c.image)
}

// stop ends a node's process.
func (c *cluster) stop(n *node) {
	for _, l := range c.links {
		if l.open && (l.from == n || l.to == n) {
			c.cut(l)
		}
	}
	n.up, n.leader, n.follower, n.wake = false, nil, nil, time.Time{}
}

// powerLoss ends a node with all that was not on its disk.
func (c *cluster) powerLoss(n *node) {
	c.stop(n)
	if !c.fsync {
		c.lostPower, n.torn = true, true
		n.boot++
	}
	n.log.cut(max(n.log.flushed, n.log.start))
	n.hw = min(n.hw, n.log.end())
}

// elect gives the partition a leader from its ISR or, failing that, its ELR.
func (c *cluster) elect(pick int) {
	p := c.partition()
	eligible := func(ids []fsm.BrokerID) []fsm.BrokerID {
		return slices.DeleteFunc(slices.Clone(ids), func(id fsm.BrokerID) bool { return !c.image.Eligible(id) })
	}
	from, kept := eligible(p.ISR), eligible(p.ISR)
	if len(from) == 0 {
		from = eligible(p.ELR)
	}
	if len(from) == 0 {
		return
	}
	leader := from[pick%len(from)]
	if !slices.Contains(kept, leader) {
		kept = append(kept, leader)
	}
	c.logf("elect %d isr=%v", leader, kept)
	res := c.apply(fsm.ChangeLeaders{Items: []fsm.LeaderChange{{
		TP: theTP, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Leader: leader, ISR: kept,
	}}})
	if res.Err != nil || len(res.Skipped) > 0 {
		c.fail("elect %d: %+v", leader, res)
	}
}

// live is the registration of a broker as a node sees it.
func (n *node) live(id fsm.BrokerID) (fsm.BrokerEpoch, bool) {
	b, ok := n.view.Broker(id)
	return b.Epoch, ok && b.Eligible()
}

// install takes an Image and the role that it gives.
func (n *node) install(im *fsm.Image) {
	n.view = im
	p, ok := im.Partition(theTP)
	if !ok {
		return
	}
	s := isr.State{LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Replicas: p.Replicas, ISR: p.ISR, MinISR: p.MinISR, Durability: p.Durability, Unsettled: !p.Settled(), Awaited: p.Awaited()}
	if n.c.fsync {
		s.Wanted = fsm.DurabilityFsync
	}
	switch {
	case p.Leader == n.id && n.leader != nil && n.le == p.LeaderEpoch:
		n.absorb(n.leader.Installed(s, n.c.now, n.live))
	case p.Leader == n.id && p.LeaderEpoch > n.le:
		n.leave()
		n.leaderID, n.le = n.id, p.LeaderEpoch
		self := isr.Member{ID: n.id, Epoch: n.epoch}
		n.leader = isr.NewLeader(isr.Config{Self: self, LagMax: 10 * time.Second}, s, n.span(), n.c.now)
		n.absorb(n.leader.Tick(n.c.now, n.live))
	case p.Leader != n.id && (p.LeaderEpoch != n.le || p.Leader != n.leaderID):
		n.leave()
		n.leaderID, n.le = p.Leader, p.LeaderEpoch
		n.follower = isr.NewFollower(n.le, n.span())
		n.follow()
	}
}

// span is the log with the high watermark that the node knows.
func (n *node) span() isr.Span {
	n.hw = min(max(n.hw, n.log.start), n.log.end())
	return isr.Span{Start: n.log.start, End: n.log.end(), Flushed: min(n.log.flushed, n.log.end()), HW: n.hw}
}

// leave ends the present role.
func (n *node) leave() {
	old := n.le
	wasLeader := n.leader != nil
	n.leader, n.follower, n.wake = nil, nil, time.Time{}
	for _, l := range n.c.links {
		switch {
		case !l.open:
		case l.to == n && wasLeader:
			l.d.CloseEpoch(theTP, old)
		case l.from == n:
			l.f.Remove(theTP)
		}
	}
}

// follow adds the partition to the connection to its leader.
func (n *node) follow() {
	for _, l := range n.c.links {
		if l.open && l.from == n && l.to.id == n.leaderID && n.follower != nil {
			l.f.Add(theTP, n.le, n.log.local())
		}
	}
}

// absorb acts on what the core of a leader asks for.
func (n *node) absorb(e isr.Effects) {
	if e.HW < n.hw {
		n.c.fail("high watermark of node %d went back from %d to %d", n.id, n.hw, e.HW)
	}
	if e.HWMoved || e.HW > n.hw {
		n.c.commit(n, e.HW)
		n.hw = e.HW
		for _, l := range n.c.links {
			if l.open && l.to == n {
				l.d.DirtyMark(theTP, n.c.now)
			}
		}
	}
	if e.Propose != nil {
		n.c.asked = append(n.c.asked, &proposal{n: n, lead: n.leader, epoch: n.epoch, change: *e.Propose})
	}
	if !e.WakeAt.IsZero() {
		n.wake = e.WakeAt
	}
}

// commit notes what a high watermark covers. No offset may ever hold two records.
func (c *cluster) commit(n *node, hw batch.Offset) {
	if hw > n.log.end() {
		c.fail("high watermark %d of node %d past its end %d", hw, n.id, n.log.end())
	}
	for at := max(n.log.start, n.hw); at < hw; at++ {
		r := n.log.records[at-n.log.start]
		if old, ok := c.committed[at]; ok && old != r {
			c.fail("node %d in epoch %d commits %+v at %d, where %+v was committed", n.id, n.le, r, at, old)
		}
		c.committed[at] = r
	}
}

// check holds after every step: whoever may be elected holds all that was
// committed, and nobody shows anything else.
func (c *cluster) check() {
	p := c.partition()
	for _, n := range c.nodes {
		if !n.torn && (slices.Contains(p.ISR, n.id) || slices.Contains(p.ELR, n.id)) {
			for at, r := range c.committed {
				if at < n.log.start {
					continue
				}
				if at >= n.log.end() || n.log.records[at-n.log.start] != r {
					c.fail("node %d is in ISR %v or ELR %v without the committed %+v at %d", n.id, p.ISR, p.ELR, r, at)
				}
			}
		}
		for at := n.log.start; at < n.hw && !n.torn; at++ {
			if r, ok := c.committed[at]; !ok || r != n.log.records[at-n.log.start] {
				c.fail("node %d shows %+v at %d, where %+v was committed (%v)", n.id, n.log.records[at-n.log.start], at, r, ok)
			}
		}
	}
}
