package controller

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/fsm"
)

// ids returns the node ids of a cluster with the given one first.
func (c *testCluster) ids(first *testNode) []fsm.BrokerID {
	out := []fsm.BrokerID{first.node.Identity().NodeID}
	for _, tn := range c.nodes {
		if tn != first && tn.node != nil {
			out = append(out, tn.node.Identity().NodeID)
		}
	}
	return out
}

// survivor is an open node other than the given one.
func (c *testCluster) survivor(of *testNode) *testNode {
	for _, tn := range c.nodes {
		if tn != of && tn.node != nil {
			return tn
		}
	}
	return nil
}

// longSession makes the end of a session by time far later than any evidence.
func longSession(c *testCluster) {
	for _, tn := range c.nodes {
		tn.cfg.Session = 20 * time.Second
	}
}

// awaitMove waits until a partition has another leader and returns how long that took.
func awaitMove(t *testing.T, at *testNode, topic fsm.TopicID, from fsm.BrokerID) time.Duration {
	t.Helper()
	began := time.Now()
	eventually(t, "another leader", func() bool {
		p := at.partition(topic)
		return len(p.Replicas) > 0 && p.Leader != fsm.NoBroker && p.Leader != from
	})
	return time.Since(began)
}

func TestCrashedBrokerIsFencedOnEvidence(t *testing.T) {
	c := newCluster(t, 3)
	longSession(c)
	c.openAll()
	c.registerAll()
	victim := c.follower()
	ids := c.ids(victim)
	topic := c.leader().create("t", ids...)
	at := c.survivor(victim)
	began := time.Now()
	victim.crash()
	awaitMove(t, at, topic, ids[0])
	took := time.Since(began)
	t.Logf("failover after a broker's crash: %v", took)
	if took > at.cfg.Session/2 {
		t.Errorf("it took %v: the session ran out instead of ending by evidence", took)
	}
	p := at.partition(topic)
	if p.LeaderEpoch == 0 || len(p.ISR) != 2 {
		t.Errorf("partition after the failover: %+v", p)
	}
	if b, _ := at.node.Image().Broker(ids[0]); !b.Fenced {
		t.Errorf("the crashed broker is not fenced: %+v", b)
	}
}

func TestCrashedControllerIsReplaced(t *testing.T) {
	c := newCluster(t, 3)
	longSession(c)
	c.openAll()
	c.registerAll()
	victim := c.leader()
	ids := c.ids(victim)
	topic := victim.create("t", ids...)
	at := c.survivor(victim)
	eventually(t, "the topic everywhere", func() bool { return at.partition(topic).Leader == ids[0] })
	began := time.Now()
	victim.crash()
	awaitMove(t, at, topic, ids[0])
	took := time.Since(began)
	t.Logf("failover after the crash of the controller: %v", took)
	if took > at.cfg.Session/2 {
		t.Errorf("it took %v: the session ran out instead of ending by evidence", took)
	}
	for _, tn := range c.nodes {
		if tn == victim {
			continue
		}
		if b, _ := tn.node.Image().Broker(tn.node.Identity().NodeID); b.Fenced {
			t.Errorf("the new controller fenced broker %d, which lives", b.ID)
		}
	}
	// The node returns under its old identity and is served again.
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := victim.open(ctx); err != nil {
		t.Fatalf("reopen the crashed controller: %v", err)
	}
	if epoch := victim.register(); epoch <= fsm.BrokerEpoch(0) {
		t.Fatalf("registered at epoch %d", epoch)
	}
}

func TestControlledShutdownHandsOver(t *testing.T) {
	c := newCluster(t, 3)
	longSession(c)
	c.openAll()
	c.registerAll()
	victim := c.leader() // the harder case: Raft is handed over too
	ids := c.ids(victim)
	topic := victim.create("t", ids...)
	at := c.survivor(victim)
	eventually(t, "the topic everywhere", func() bool { return at.partition(topic).Leader == ids[0] })
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	began := time.Now()
	if err := victim.node.StopBroker(ctx); err != nil {
		t.Fatal(err)
	}
	handed := time.Since(began)
	if p := victim.partition(topic); p.Leader == ids[0] || len(p.ISR) != 2 {
		t.Errorf("after StopBroker the local Image says %+v", p)
	}
	awaitMove(t, at, topic, ids[0])
	seen := time.Since(began)
	victim.close()
	if err := propose(at); err != nil {
		t.Errorf("the first proposal after the shutdown: %v", err)
	}
	t.Logf("handed over in %v, seen elsewhere in %v, next proposal done in %v", handed, seen, time.Since(began))
}

// propose gets a harmless command through a node.
func propose(tn *testNode) error {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	r, err := tn.node.Propose(ctx, fsm.InitCluster{ClusterID: tn.node.Identity().ClusterID})
	return errors.Join(err, r.Err)
}

// fakeBroker registers a broker that lives only by the heartbeats a test sends; its peer
// port accepts connections, so that no evidence speaks against it.
type fakeBroker struct {
	t     *testing.T
	at    *testNode
	req   registerRequest
	epoch fsm.BrokerEpoch
	// flip is what the hashes it reports differ by.
	flip uint64
}

func newFakeBroker(t *testing.T, at *testNode, id fsm.BrokerID) *fakeBroker {
	t.Helper()
	l := listen(t, anyPort(t))
	t.Cleanup(func() { _ = l.Close() })
	host, port := splitAddr(l.Addr().String())
	return &fakeBroker{t: t, at: at, req: registerRequest{
		id: id, folder: [16]byte{byte(id)}, process: newUUID(), bootID: "boot",
		client: fsm.Endpoint{Host: host, Port: 1}, peer: fsm.Endpoint{Host: host, Port: int32(port)},
	}}
}

// register sends the registration of this process, which looked at the newest Image first.
func (f *fakeBroker) register() fsm.Refusal {
	f.t.Helper()
	cur, _ := f.at.node.Image().Broker(f.req.id)
	f.req.replaces = cur.Epoch
	return f.registerAgain()
}

// registerAgain sends the same registration again.
func (f *fakeBroker) registerAgain() fsm.Refusal {
	f.t.Helper()
	rep, err := f.at.node.call(context.Background(), &f.req)
	if err != nil {
		f.t.Fatalf("register broker %d: %v", f.req.id, err)
	}
	r := rep.(*registerReply)
	if r.refusal == 0 {
		f.epoch = r.epoch
	}
	return r.refusal
}

// beat is the heartbeat of a broker that is ready and whose roles are those of the newest Image.
func (f *fakeBroker) beat() *heartbeatReply {
	f.t.Helper()
	return f.beatAs(f.at.node.Image().Index(), true)
}

func (f *fakeBroker) beatAs(settled uint64, ready bool) *heartbeatReply {
	f.t.Helper()
	im := f.at.node.Image()
	rep, err := f.at.node.call(context.Background(), &heartbeatRequest{id: f.req.id, epoch: f.epoch, applied: im.Index(), hash: im.Hash() ^ f.flip, settled: settled, ready: ready})
	if err != nil {
		f.t.Fatalf("heartbeat of broker %d: %v", f.req.id, err)
	}
	return rep.(*heartbeatReply)
}

func (f *fakeBroker) fenced() bool {
	b, ok := f.at.node.Image().Broker(f.req.id)
	return ok && b.Fenced
}

// H53: a broker whose roles are older than its registration still acts for the incarnation
// before it; elected then it would go on where that one was.
func TestUnfencedOnceItsRolesAreThoseOfItsEpoch(t *testing.T) {
	c := newCluster(t, 1)
	c.openAll()
	at := c.nodes[0]
	at.register()
	f := newFakeBroker(t, at, 2)
	if refusal := f.register(); refusal != 0 {
		t.Fatal(refusal)
	}
	for _, beat := range []struct {
		settled uint64
		ready   bool
		fenced  bool
	}{{uint64(f.epoch) - 1, true, true}, {uint64(f.epoch), false, true}, {uint64(f.epoch), true, false}} {
		if r := f.beatAs(beat.settled, beat.ready); r.stale || r.fenced != beat.fenced || f.fenced() != beat.fenced {
			t.Errorf("a heartbeat of epoch %d settled at %d, ready %t: %+v, fenced %t", f.epoch, beat.settled, beat.ready, r, f.fenced())
		}
	}
}

func TestSilentBrokerIsFencedWhenItsSessionEnds(t *testing.T) {
	c := newCluster(t, 1)
	c.nodes[0].cfg.Session, c.nodes[0].cfg.Heartbeat = 600*time.Millisecond, 100*time.Millisecond
	c.openAll()
	at := c.nodes[0]
	at.register()
	f := newFakeBroker(t, at, 2)
	if refusal := f.register(); refusal != 0 {
		t.Fatal(refusal)
	}
	if r := f.beat(); r.stale || r.fenced || f.fenced() {
		t.Fatalf("after a heartbeat of a ready broker: %+v, fenced %v", r, f.fenced())
	}
	topic := at.create("t", 2, 1)
	began := time.Now()
	awaitMove(t, at, topic, 2)
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("it was fenced after %v, before its session ended", took)
	}
	// Its next heartbeat brings it back at the same epoch.
	if r := f.beat(); r.stale || r.fenced {
		t.Fatalf("the heartbeat after the pause: %+v", r)
	}
}

func TestOneIDOneFolder(t *testing.T) {
	c := newCluster(t, 1)
	c.nodes[0].cfg.Session, c.nodes[0].cfg.Heartbeat = 400*time.Millisecond, 100*time.Millisecond
	c.openAll()
	f := newFakeBroker(t, c.nodes[0], 2)
	f.register()
	f.beat()
	first := f.epoch
	if refusal := f.registerAgain(); refusal != 0 || f.epoch != first || f.fenced() {
		t.Fatalf("a copy of the registration: %v, epoch %d after %d, fenced %v", refusal, f.epoch, first, f.fenced())
	}
	former := *f
	f.req.process = newUUID()
	if refusal := f.register(); refusal != 0 || f.epoch <= first {
		t.Fatalf("another process of the same folder: %v, epoch %d after %d", refusal, f.epoch, first)
	}
	if refusal := former.registerAgain(); refusal != fsm.StaleBrokerEpoch {
		t.Fatalf("a copy of the former's registration: %v", refusal)
	}
	old := *f
	old.epoch = first
	if r := old.beat(); !r.stale {
		t.Fatalf("a heartbeat of the replaced incarnation: %+v, want stale", r)
	}
	f.beat()
	other := newFakeBroker(t, c.nodes[0], 2)
	other.req.folder = [16]byte{0xaa}
	if refusal := other.register(); refusal != fsm.FolderInUse {
		t.Fatalf("another folder while the session lives: %v", refusal)
	}
	eventually(t, "the other folder is let in when the session has ended", func() bool { return other.register() == 0 })
}

func TestDivergedBrokerIsTold(t *testing.T) {
	c := newCluster(t, 1)
	c.openAll()
	c.nodes[0].register()
	f := newFakeBroker(t, c.nodes[0], 2)
	f.register()
	if r := f.beat(); r.diverged {
		t.Fatal("a broker with an equal Image was told to stop")
	}
	f.flip = 1
	if r := f.beat(); !r.diverged {
		t.Fatalf("a broker with another Image was answered %+v", r)
	}
}

// TestDivergedControllerStops has two of three brokers report another Image.
func TestDivergedControllerStops(t *testing.T) {
	c := newCluster(t, 3)
	c.openAll()
	at := c.leader()
	ids := []fsm.BrokerID{11, 12} // of those that do not vote it takes no notice
	for _, tn := range c.nodes {
		if tn != at {
			ids = append(ids, tn.node.Identity().NodeID)
		}
	}
	for _, id := range ids {
		f := newFakeBroker(t, at, id)
		f.register()
		f.flip = 1
		if r := f.beat(); r.diverged {
			t.Errorf("broker %d was blamed although no majority agrees with the controller", id)
		}
	}
	if err := <-at.exited; !strings.Contains(err.Error(), "differs from that of 2 brokers") {
		t.Fatal(err)
	}
}

// TestSessionRegistersAgain replaces a broker's registration behind its back, on a follower
// whose connection to the controller then breaks: the new one is opened under the old epoch.
func TestSessionRegistersAgain(t *testing.T) {
	c := newCluster(t, 3)
	for _, tn := range c.nodes {
		tn.cfg.Heartbeat = 50 * time.Millisecond
	}
	c.openAll()
	tn := c.follower()
	first := tn.register()
	impostor := newFakeBroker(t, c.leader(), tn.node.Identity().NodeID)
	impostor.req.folder = tn.node.Identity().Folder
	if refusal := impostor.register(); refusal != 0 || impostor.epoch <= first {
		t.Fatalf("%v, epoch %d after %d", refusal, impostor.epoch, first)
	}
	tenure, _ := tn.node.lead.get()
	tn.node.control.drop(tenure.leader)
	eventually(t, "a new epoch, unfenced and valid", func() bool {
		b, _ := tn.node.Image().Broker(tn.node.Identity().NodeID)
		s := tn.node.Session()
		return b.Epoch > impostor.epoch && s.Epoch() == b.Epoch && !b.Fenced && s.Valid(BootTime())
	})
}

func TestSessionEndsWithoutAMajority(t *testing.T) {
	c := newCluster(t, 3)
	for _, tn := range c.nodes {
		tn.cfg.Session, tn.cfg.Heartbeat = 900*time.Millisecond, 100*time.Millisecond
	}
	c.openAll()
	c.registerAll()
	last := c.leader()
	if !last.node.Session().Valid(BootTime()) {
		t.Fatal("the session is not valid after heartbeats")
	}
	for _, tn := range c.nodes {
		if tn != last {
			tn.crash()
		}
	}
	began := time.Now()
	eventually(t, "the session ends", func() bool { return !last.node.Session().Valid(BootTime()) })
	if took := time.Since(began); took > last.cfg.Session {
		t.Errorf("the broker believed in its session for %v", took)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, err := last.node.Propose(ctx, fsm.InitCluster{ClusterID: "x"})
	if !errors.Is(err, ErrNoController) || errors.Is(err, ErrUnknown) {
		t.Errorf("a proposal without a leader: %v, want that it was not done", err)
	}
}

func TestProposalInFlightWhenTheMajorityGoesIsUnknown(t *testing.T) {
	c := newCluster(t, 3)
	c.openAll()
	leader := c.leader()
	for _, tn := range c.nodes {
		if tn != leader {
			tn.crash()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	_, err := leader.node.Propose(ctx, fsm.InitCluster{ClusterID: leader.node.Identity().ClusterID})
	if !errors.Is(err, ErrUnknown) || errors.Is(err, ErrNoController) {
		t.Fatalf("got %v, want an unknown outcome", err)
	}
}

func TestPoisonedStoreEndsTheProcess(t *testing.T) {
	c := newCluster(t, 1)
	c.openAll()
	tn := c.nodes[0]
	if err := tn.node.store.db.Close(); err != nil { // every later write fails
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if _, err := tn.node.Propose(ctx, fsm.InitCluster{ClusterID: "x"}); err == nil {
		t.Error("a proposal succeeded without a disk")
	}
	select {
	case err := <-tn.exited:
		t.Log(err)
	case <-ctx.Done():
		t.Fatal("exit was not called")
	}
}

func TestClusterSurvivesARestartOfAll(t *testing.T) {
	c := newCluster(t, 3)
	c.openAll()
	c.registerAll()
	leader := c.leader()
	topic := leader.create("t", c.ids(leader)...)
	if err := leader.node.raft.Snapshot().Error(); err != nil {
		t.Fatalf("take a snapshot: %v", err)
	}
	before := map[*testNode]Identity{}
	for _, tn := range c.nodes {
		before[tn] = tn.node.Identity()
	}
	for _, tn := range c.nodes {
		tn.crash()
	}
	began := time.Now()
	c.openAll()
	t.Logf("all open again in %v", time.Since(began))
	for _, tn := range c.nodes {
		if tn.node.Identity() != before[tn] {
			t.Errorf("identity was %+v and is %+v", before[tn], tn.node.Identity())
		}
		if p := tn.partition(topic); len(p.Replicas) != 3 {
			t.Errorf("the topic is lost: %+v", p)
		}
	}
	c.registerAll()
}

func TestNodesMove(t *testing.T) {
	c := newCluster(t, 3)
	c.openAll()
	c.registerAll()
	for _, tn := range c.nodes {
		tn.close()
	}
	var join []string
	for _, tn := range c.nodes {
		tn.cfg.Listener = listen(t, anyPort(t))
		tn.addr = tn.cfg.Listener.Addr().String()
		join = append(join, tn.addr)
	}
	for _, tn := range c.nodes {
		tn.cfg.Join = join
	}
	c.openAll()
	c.registerAll()
	for _, tn := range c.nodes {
		b, _ := c.leader().node.Image().Broker(tn.node.Identity().NodeID)
		if endpointAddr(b.Peer) != tn.addr {
			t.Errorf("broker %d moved to %s and is registered at %s", b.ID, tn.addr, endpointAddr(b.Peer))
		}
	}
}

func TestDialPeerAndFeed(t *testing.T) {
	c := newCluster(t, 3)
	c.openAll()
	c.registerAll()
	from, to := c.nodes[0], c.nodes[1]
	got := make(chan Preface, 1)
	to.node.HandleFeed(func(p Preface, conn net.Conn) {
		got <- p
		_ = conn.Close()
	})
	id, target := from.node.Identity(), to.node.Identity().NodeID
	b, _ := to.node.Image().Broker(id.NodeID)
	eventually(t, "the target in the local Image", func() bool { x, ok := from.node.Image().Broker(target); return ok && !x.Fenced })
	conn, err := from.node.DialPeer(context.Background(), target, KindFeed, b.Epoch)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if p := <-got; p.Kind != KindFeed || p.ClusterID != id.ClusterID || p.NodeID != id.NodeID || p.Folder != id.Folder || p.BrokerEpoch != b.Epoch {
		t.Errorf("the feed was opened with %+v", p)
	}
	var refused *RefusedError
	if _, err := from.node.DialPeer(context.Background(), target, KindFeed, b.Epoch-1); !errors.As(err, &refused) || refused.Code != RefusedEpoch {
		t.Errorf("a feed of an epoch that is over: %v", err)
	}
	if _, err := from.node.DialPeer(context.Background(), 99, KindFeed, b.Epoch); !errors.Is(err, fsm.UnknownBroker) {
		t.Errorf("dial an unknown broker: %v", err)
	}
}
