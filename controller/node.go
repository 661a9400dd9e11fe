package controller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
)

const (
	// snapshotThreshold entries after the last snapshot make a new one; twice as many and
	// more stay behind it, so that a snapshot older than the newest is still usable. Where
	// that is much, or too little, the compactor has its own numbers.
	snapshotThreshold = 8192
	trailingLogs      = 20_000
	snapshotsKept     = 3
	snapshotInterval  = time.Minute
	// commitTimeout is how often an idle leader repeats its commit index. The pusher has told
	// it already; this is for the call that got lost.
	commitTimeout = 50 * time.Millisecond
	// appendEntriesMax is how many entries share one call and one write of the log. Even with
	// the largest entries that must end well before storeDeadline.
	appendEntriesMax = 64
	// waitReport is how often a starting node says what it waits for.
	waitReport = 5 * time.Second
)

// The log behind a snapshot lets an older one stand in for it.
const _ = uint(trailingLogs - 2*snapshotThreshold)

// Node is this process's part in the cluster's metadata: its peer listener, its Raft server,
// and the controller while it leads.
type Node struct {
	cfg       Config
	log       hclog.Logger
	join      joinList
	store     *store
	peers     *peers
	forming   atomic.Pointer[formReply]
	id        Identity
	formation formation
	// founder is whether this start created the cluster.
	founder bool
	// listedAs is the address of the join list that leads to this node, "" for none.
	listedAs  string
	machine   *machine
	raft      *raft.Raft
	transport *transport
	lead      *leadership
	control   *controlLinks
	proposer  *proposer
	gatherer  *gatherer
	compactor *compactor
	session   *Session
	syncs     *syncs
	// logEnds answers the controller's questions about this broker's logs; nil until it can.
	logEnds atomic.Pointer[LogEnds]
	// succeeding is whether this node looks into the end of the leader.
	succeeding atomic.Bool
	// recoveries counts the partitions whose leader may lack acknowledged records.
	recoveries atomic.Int64
	// change is the right to change who is a member, held by one call at a time on the leader.
	change chan struct{}
	// left is whether this node learnt that it was removed from the cluster.
	left atomic.Bool
	// term is the present term while this node is the controller and has caught up.
	term atomic.Pointer[term]

	// ctx ends when Close begins; everything that waits ends with it.
	ctx    context.Context
	cancel context.CancelFunc
	// raftWaits are goroutines that wait for Raft's answers.
	raftWaits sync.WaitGroup
	closing   sync.Once
	closeErr  error

	mu     sync.Mutex
	wg     sync.WaitGroup
	closed bool
	// outward is the host by whose address this node goes out, "" before it has.
	outward string
	// routes are the addresses at which peers last answered.
	routes map[raft.ServerID]string
}

// Open binds the peer listener, forms the cluster or rejoins it, and starts Raft. It returns
// once the local Image holds what the cluster knew when it asked, or with an error that says
// what it waited for when ctx ends.
func Open(ctx context.Context, cfg Config) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("controller configuration: %w", err)
	}
	n := newNode(cfg)
	if err := n.open(ctx); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func newNode(cfg Config) *Node {
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	n := &Node{cfg: cfg, log: cfg.Logger, lead: newLeadership(), change: make(chan struct{}, 1), routes: make(map[raft.ServerID]string)}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.machine = newMachine(n.exit)
	n.control = &controlLinks{n: n}
	n.proposer = newProposer(n)
	n.gatherer = newGatherer(n)
	n.compactor = newCompactor(n.log)
	n.session = newSession(n)
	n.syncs = &syncs{n: n}
	return n
}

func (n *Node) open(ctx context.Context) error {
	var err error
	if n.join, err = parseJoin(n.cfg.Join); err != nil {
		return err
	}
	if err := makeFolder(n.cfg.RaftDir); err != nil {
		return fmt.Errorf("make the Raft folder: %w", err)
	}
	if n.store, err = openStore(n.cfg.LogFS, n.cfg.RaftDir, n.exit); err != nil {
		return err
	}
	if err := n.listen(); err != nil {
		return err
	}
	if err := n.settle(ctx); err != nil {
		return err
	}
	if err := n.sayRecovered(); err != nil {
		return err
	}
	if err := n.startRaft(); err != nil {
		return err
	}
	return n.catchUp(ctx)
}

// exit reports why the process must end.
func (n *Node) exit(reason error) {
	n.log.Error("this node can not go on", "error", reason)
	n.cfg.Exit(reason)
}

// goFunc runs fn on a goroutine that Close waits for; after Close has begun it does nothing.
func (n *Node) goFunc(fn func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closed {
		n.wg.Go(fn)
	}
}

// goRaft runs fn, which waits for Raft, on a goroutine; after Close has begun it does nothing
// and returns false.
func (n *Node) goRaft(fn func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closed {
		n.raftWaits.Go(fn)
	}
	return !n.closed
}

func (n *Node) listen() error {
	l := n.cfg.Listener
	if l == nil {
		var err error
		if l, err = net.Listen("tcp", n.cfg.Listen); err != nil {
			return fmt.Errorf("listen for peers: %w", err)
		}
	}
	n.peers = newPeers(l, n.log.Named("peer"), n.introduction, n.admit)
	n.peers.handle(KindForm, n.serveForm)
	n.peers.start()
	return nil
}

// introduction is this node's side of a preface exchange.
func (n *Node) introduction() answer {
	f := n.forming.Load()
	if f == nil {
		return answer{}
	}
	a := answer{nodeID: f.nodeID, folder: f.folder}
	if f.formed != nil {
		a.clusterID = f.formed.clusterID
	}
	return a
}

// admit judges the preface of a connection to this node.
func (n *Node) admit(p Preface) *RefusedError {
	if p.Kind < KindForm || p.Kind > KindJoin {
		return &RefusedError{RefusedKind, fmt.Sprintf("there is no connection of %s", p.Kind)}
	}
	me := n.introduction()
	switch {
	case p.Kind == KindForm:
		return nil
	case me.clusterID == "":
		return &RefusedError{RefusedNotReady, "this node has no cluster yet"}
	case p.ClusterID != me.clusterID:
		return &RefusedError{RefusedCluster, fmt.Sprintf("this node belongs to cluster %s, node %d that dials to cluster %q", me.clusterID, p.NodeID, p.ClusterID)}
	case p.Kind == KindJoin:
		return nil
	case p.NodeID < 1:
		return &RefusedError{RefusedNode, fmt.Sprintf("%d is no node id", p.NodeID)}
	case p.NodeID == me.nodeID && p.Folder != me.folder:
		return &RefusedError{RefusedNode, fmt.Sprintf("this node is node %d already, with another data folder", me.nodeID)}
	}
	// What the Image says of ids and folders is for good, however old it is.
	if node, ok := n.Image().Node(p.NodeID); ok && node.Folder != p.Folder {
		return &RefusedError{RefusedNode, fmt.Sprintf("node %d has another data folder: a node that lost its folder does not get its old identity back", p.NodeID)}
	} else if ok && node.Removed {
		return &RefusedError{RefusedRemoved, removedText(p.NodeID, me.clusterID)}
	}
	// On kind control an epoch that is over is no reason: it is there that its broker learns of
	// it and registers again.
	if b, ok := n.Image().Broker(p.NodeID); ok && p.Kind == KindFeed && p.BrokerEpoch < b.Epoch {
		return &RefusedError{RefusedEpoch, fmt.Sprintf("broker %d has registered again since epoch %d: its epoch is %d", p.NodeID, p.BrokerEpoch, b.Epoch)}
	}
	return nil
}

// startRaft starts Raft and everything that listens to it.
func (n *Node) startRaft() error {
	self := n.serverID()
	stream := newRaftStream(self, func(ctx context.Context, to raft.ServerID) (net.Conn, error) {
		return n.dialServer(ctx, to, KindRaft)
	})
	n.transport = newTransport(stream, newReach(n.lead, n.ctx.Done()), newRaftLogger(n.log.Named("raft-net")))
	n.transport.hasRoom, n.store.roomChanged = n.store.hasRoom, n.roomChanged
	snaps, err := n.snapshots()
	if err != nil {
		return err
	}
	if err := snaps.settle(n.store, n.log); err != nil {
		return err
	}
	if err := n.watchLog(snaps); err != nil {
		return err
	}
	notify := make(chan bool, notifySlots)
	observed := make(chan raft.Observation, 1)
	log, err := newLogCache(n.store)
	if err != nil {
		return err
	}
	if n.raft, err = raft.NewRaft(n.raftConfig(self, notify), n.machine, log, &raftStable{store: n.store}, snaps, n.transport); err != nil {
		return fmt.Errorf("start Raft: %w", err)
	}
	n.machine.run()
	n.raft.RegisterObserver(raft.NewObserver(observed, false, func(o *raft.Observation) bool {
		l, ok := o.Data.(raft.LeaderObservation)
		if ok {
			n.lead.follow(l.LeaderID, self, o.Raft.LastContact())
		}
		return ok
	}))
	n.goFunc(func() { n.lead.watch(n.raft, notify, observed, n.ctx.Done()) })
	n.goFunc(n.runTerms)
	n.goFunc(func() { n.proposer.run(n.ctx.Done()) })
	n.goFunc(func() { n.gatherer.run(n.ctx.Done()) })
	n.goFunc(func() { n.compact(n.ctx.Done()) })
	n.peers.handle(KindRaft, stream.serve)
	n.peers.handle(KindControl, n.serveControl)
	n.peers.handle(KindJoin, n.serveJoin)
	return n.stand(self)
}

// roomChanged says that the Raft store takes no entries for want of room, or does again.
func (n *Node) roomChanged(short bool) {
	if short {
		n.log.Error("the disk has no room for the cluster's metadata: this node stores nothing new and decides nothing until there is")
	} else {
		n.log.Info("there is room again for the cluster's metadata")
	}
}

func (n *Node) raftConfig(self raft.ServerID, notify chan<- bool) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = self
	c.HeartbeatTimeout = n.cfg.ElectionTimeout
	c.ElectionTimeout = n.cfg.ElectionTimeout
	// The lease only says when a leader gives up; half as long, a busy machine ended it several
	// times a minute while no follower missed anything. What needs a leader verifies it.
	c.LeaderLeaseTimeout = n.cfg.ElectionTimeout
	c.CommitTimeout = commitTimeout
	c.MaxAppendEntries = appendEntriesMax
	c.SnapshotThreshold = snapshotThreshold
	c.SnapshotInterval = snapshotInterval
	c.TrailingLogs = trailingLogs
	c.NotifyCh = notify
	c.NoLegacyTelemetry = true
	c.ShutdownOnRemove = false // a process without its Raft would be of no use to anyone
	c.Logger = newRaftLogger(n.log.Named("raft"))
	return c
}

func (n *Node) snapshots() (*snapshots, error) {
	return openSnapshots(n.cfg.RaftDir, n.log.Named("snapshot"))
}

// stand makes a sole voter lead at once, since it has nobody to wait for, and the founder of
// a new cluster as soon as others can vote.
func (n *Node) stand(self raft.ServerID) error {
	switch e := n.electorate(); {
	case e.self && len(e.others) == 0:
		return n.transport.electNow(self)
	case n.founder:
		n.goFunc(func() { n.launch(self) })
	}
	return nil
}

// catchUp waits until the local Image holds what the present controller knows.
func (n *Node) catchUp(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n.goFunc(func() { n.reportWaiting(ctx, cancel) })
	for {
		err := n.Sync(ctx)
		if err == nil {
			return nil
		}
		if n.left.Load() {
			return n.removed()
		}
		if ctx.Err() != nil || n.ctx.Err() != nil {
			return fmt.Errorf("wait for the cluster's metadata: %w", err)
		}
	}
}

// reportWaiting tells from time to time why a node is not up yet, until ctx ends. It ends ctx
// when this node learns that it has been removed, and nobody is going to tell it anything else.
func (n *Node) reportWaiting(ctx context.Context, cancel context.CancelFunc) {
	tick := time.NewTicker(waitReport)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-n.ctx.Done():
			return
		}
		t, _ := n.lead.get()
		switch {
		case t.leader != "":
			n.log.Info("catching up with the controller's metadata", "controller", t.leader, "index", n.Image().Index())
		case len(n.servers()) == 0:
			n.log.Info("waiting for the controller to send the cluster's metadata")
		default:
			n.log.Info("waiting for a majority of the nodes that vote", "nodes", serverNames(n.servers(), raft.Voter))
		}
		if t.leader == "" && n.askWhetherRemoved(ctx) {
			cancel()
			return
		}
	}
}

// Identity is who this node is.
func (n *Node) Identity() Identity { return n.id }

// serverID is this node's name in Raft.
func (n *Node) serverID() raft.ServerID { return serverID(n.id.NodeID, n.id.Folder) }

// Image is the newest Image; one atomic load.
func (n *Node) Image() *fsm.Image { return n.machine.Image() }

// Changed is closed when a newer Image is published. Take it before the Image it guards.
func (n *Node) Changed() <-chan struct{} { return n.machine.Changed() }

// IsLeader tells whether this node is the controller, caught up and deciding.
func (n *Node) IsLeader() bool { return n.term.Load() != nil }

// Leader is the node that is the controller, as far as this node knows.
func (n *Node) Leader() (fsm.BrokerID, bool) {
	t, _ := n.lead.get()
	return t.broker()
}

// Addr is the address that the peer listener is bound to.
func (n *Node) Addr() net.Addr { return n.peers.listener.Addr() }

// HandleFeed registers the handler of feed connections. It owns each connection and may
// return before it ends; one that it still serves when the node closes is closed.
func (n *Node) HandleFeed(fn func(Preface, net.Conn)) { n.peers.handle(KindFeed, fn) }

// ReportRefused tells the controller that a redial of a broker was refused, which speaks for
// the end of its process.
func (n *Node) ReportRefused(id fsm.BrokerID) {
	n.goFunc(func() {
		ctx, cancel := context.WithTimeout(n.ctx, n.cfg.Session)
		defer cancel()
		_, _ = n.call(ctx, &refusedRequest{id: id}) // evidence only: without it the session just runs out
	})
}

// StopBroker begins the controlled shutdown of this broker: it is marked as stopping, and its
// leaderships move to in-sync followers. It returns once the local Image shows that no more
// can move, or when ctx ends.
func (n *Node) StopBroker(ctx context.Context) error {
	ctx, cancel := n.bounded(ctx)
	defer cancel()
	epoch := n.session.Epoch()
	if epoch == 0 {
		return nil // never registered: it leads nothing
	}
	rep, err := n.call(ctx, &stopRequest{id: n.id.NodeID, epoch: epoch})
	if err != nil {
		return fmt.Errorf("stop broker %d: %w", n.id.NodeID, err)
	}
	if err := n.machine.wait(ctx, rep.(*indexReply).index); err != nil {
		return err
	}
	for {
		changed := n.Changed()
		if len(elect.HandOff(n.Image(), n.id.NodeID)) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("hand over the leaderships of broker %d: %w", n.id.NodeID, ctx.Err())
		}
	}
}
