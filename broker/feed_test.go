package broker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/broker/feed"
	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// feedNode is the replica side of one node: partitions and feeds over loopback
// sockets, with a shared Image instead of a controller.
type feedNode struct {
	env     *environment
	dir     *storage.Dir
	follows *follows
	feeders *feeders
	addr    string

	mu      sync.Mutex
	cut     bool // refuses to be dialled
	refused int  // how often that was reported
}

// feedNet is a set of such nodes and one partition on all of them.
type feedNet struct {
	*testing.T
	applier *applier
	epochs  map[fsm.BrokerID]fsm.BrokerEpoch
	nodes   map[fsm.BrokerID]*feedNode
	tp      fsm.TopicPartition
	disk    vfs.FS // of all logs
}

func newFeedNet(t *testing.T, size int) *feedNet { return newFeedNetOn(t, size, vfs.OS()) }

func newFeedNetOn(t *testing.T, size int, disk vfs.FS) *feedNet {
	n := &feedNet{T: t, disk: disk, applier: newApplier(t), epochs: map[fsm.BrokerID]fsm.BrokerEpoch{}, nodes: map[fsm.BrokerID]*feedNode{}}
	var ids []fsm.BrokerID
	for i := range size {
		id := fsm.BrokerID(i + 1)
		n.epochs[id] = n.applier.broker(t, id)
		ids = append(ids, id)
	}
	n.tp = fsm.TopicPartition{Topic: fsm.TopicID{9}}
	n.applier.must(t, fsm.CreateTopic{ID: n.tp.Topic, Name: "t", Partitions: []fsm.NewPartition{{Replicas: ids, ISR: ids, Leader: 1}}})
	for _, id := range ids {
		n.nodes[id] = n.node(id)
	}
	return n
}

func (n *feedNet) node(id fsm.BrokerID) *feedNode {
	n.Helper()
	node := &feedNode{}
	env := &environment{
		self: id, epoch: func() fsm.BrokerEpoch { return n.epochs[id] }, image: n.applier.Image, now: time.Now, bootTime: time.Now,
		lagMax: time.Minute, log: hclog.NewNullLogger(), metrics: &newMetrics().replicas,
		fresh: func() bool { return true }, heardSince: func() time.Time { return time.Now().Add(-time.Second) },
		fail:    func(err error) { n.Errorf("node %d failed: %v", id, err) },
		damaged: func(*Partition) { n.Errorf("a log of node %d was found damaged", id) },
		live:    liveIn(n.applier.Image), replicas: newPartitions(),
	}
	env.ticks = newTicks(env.now, func(p *Partition, now time.Time) { p.tick(now) })
	env.changes = newChanges(env, n.applier, hclog.NewNullLogger())
	node.feeders = newFeeders(env, 50*time.Millisecond, 5*time.Second, hclog.NewNullLogger())
	env.heard = node.feeders.heard
	node.env, node.follows = env, newFollows(env, feedNetDialer{n, id}, &buffers{}, 5*time.Second, hclog.NewNullLogger())
	dir, err := storage.OpenDir(n.disk, n.TempDir(), storage.DefaultOptions())
	if err != nil {
		n.Fatal(err)
	}
	node.dir = dir
	l, err := dir.Create("t", 0, storage.ID(n.tp.Topic))
	if err != nil {
		n.Fatal(err)
	}
	env.replicas.put(newPartition(n.tp, l, env))
	n.run(node)
	return node
}

// run starts the goroutines of a node, which end with the test.
func (n *feedNet) run(node *feedNode) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		n.Fatal(err)
	}
	node.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				stop := context.AfterFunc(ctx, func() { _ = c.Close() })
				defer stop()
				var hello [16]byte // who dials, instead of a preface
				if _, err := io.ReadFull(c, hello[:]); err != nil {
					_ = c.Close()
					return
				}
				node.feeders.serve(controller.Preface{NodeID: fsm.BrokerID(hello[0]), BrokerEpoch: fsm.BrokerEpoch(hello[1])}, c)
			})
		}
	})
	go node.env.changes.run(ctx)
	n.Cleanup(func() {
		cancel()
		<-node.env.changes.done
		node.follows.close()
		_ = l.Close()
		conns.Wait()
		node.env.ticks.close()
		if err := node.dir.Close(nil); err != nil {
			n.Errorf("close a folder: %v", err)
		}
	})
}

// feedNetDialer dials as one of the nodes.
type feedNetDialer struct {
	n  *feedNet
	id fsm.BrokerID
}

var errCut = errors.New("the test has cut this node off")

func (d feedNetDialer) DialFeed(ctx context.Context, to fsm.BrokerID) (net.Conn, error) {
	target := d.n.nodes[to]
	target.mu.Lock()
	cut := target.cut
	target.mu.Unlock()
	if cut {
		return nil, errCut
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", target.addr)
	if err != nil {
		return nil, err
	}
	_, err = c.Write(append([]byte{byte(d.id), byte(d.n.epochs[d.id])}, make([]byte, 14)...))
	return c, err
}

func (d feedNetDialer) ReportRefused(id fsm.BrokerID) {
	target := d.n.nodes[id]
	target.mu.Lock()
	defer target.mu.Unlock()
	target.refused++
}

// install lets some nodes act on the present Image, as their reconcilers would.
func (n *feedNet) install(ids ...fsm.BrokerID) {
	s, _ := n.applier.Image().Partition(n.tp)
	for _, id := range ids {
		node := n.nodes[id]
		p := node.env.replicas.Get(n.tp)
		if s.Leader == id {
			node.follows.drop(p)
			p.becomeLeader(stateOf(s))
		} else if anew, whole := p.becomeFollower(s.Leader, s.LeaderEpoch, s.Seated(id)); anew && whole {
			node.follows.set(p, s.Leader, s.LeaderEpoch)
		}
	}
}

func (n *feedNet) p(id fsm.BrokerID) *Partition { return n.nodes[id].env.replicas.Get(n.tp) }

func (n *feedNet) elect(leader fsm.BrokerID) {
	n.Helper()
	s, _ := n.applier.Image().Partition(n.tp)
	res := n.applier.must(n.T, fsm.ChangeLeaders{Items: []fsm.LeaderChange{{TP: n.tp, LeaderEpoch: s.LeaderEpoch,
		PartitionEpoch: s.PartitionEpoch, Leader: leader, ISR: s.ISR}}})
	if len(res.Skipped) > 0 {
		n.Fatalf("election of %d was skipped: %v", leader, res.Why)
	}
}

func (n *feedNet) until(what string, ok func() bool) {
	n.Helper()
	(&cluster{T: n.T}).until(what, ok)
}

func (n *feedNet) append(id fsm.BrokerID, acks int16, value string) Ticket {
	n.Helper()
	tk, err := n.p(id).Append(testBatch(value), acks)
	if err != nil {
		n.Fatalf("append %q on node %d: %v", value, id, err)
	}
	return tk
}

// bytes is the whole log of a node.
func (n *feedNet) bytes(id fsm.BrokerID) []byte {
	n.Helper()
	l := n.p(id).log
	var all []byte
	for at := l.Start(); at < l.End(); {
		r, err := l.Read(at, l.End(), 1<<20)
		if err != nil {
			n.Fatalf("read the log of node %d: %v", id, err)
		}
		p := make([]byte, r.Len())
		if _, err := r.ReadAt(p, 0); err != nil && !errors.Is(err, io.EOF) {
			n.Fatal(err)
		}
		all, at = append(all, p...), r.End()
		r.Release()
	}
	return all
}

// equal waits until the nodes have the same end and compares their bytes.
func (n *feedNet) equal(ids ...fsm.BrokerID) {
	n.Helper()
	first := n.p(ids[0]).log
	for _, id := range ids[1:] {
		l := n.p(id).log
		n.until("the logs end alike", func() bool { return l.End() == first.End() && l.LastEpoch() == first.LastEpoch() })
		if !bytes.Equal(n.bytes(ids[0]), n.bytes(id)) {
			n.Errorf("the logs of nodes %d and %d differ", ids[0], id)
		}
	}
}

func TestFeedReplicates(t *testing.T) {
	n := newFeedNet(t, 3)
	n.install(1, 2, 3)
	for i := range 20 {
		if err := n.append(1, -1, numbered(i, i+1)[0]).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	n.equal(1, 2, 3)
	n.until("followers know the high watermark", func() bool { return n.p(2).log.HW() == 20 && n.p(3).log.HW() == 20 })
	m := isr.Member{ID: 2, Epoch: n.epochs[2]}
	n.until("the follower answers pings", func() bool { return !n.nodes[1].feeders.heard(m).IsZero() })
}

func TestFeedSendsMuch(t *testing.T) {
	n := newFeedNet(t, 2)
	n.install(1)
	value := string(bytes.Repeat([]byte("0123456789abcdef"), 20_000)) // 320 kB a batch: sent from the file
	for range 40 {
		n.append(1, 1, value)
		n.append(1, 1, "small")
	}
	n.install(2)
	n.equal(1, 2)
	n.until("the high watermark is at the end", func() bool { return n.p(1).log.HW() == 80 })
}

func TestFeedTruncatesDivergence(t *testing.T) {
	n := newFeedNet(t, 2)
	n.install(1, 2)
	if err := n.append(1, -1, "a").Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.nodes[2].follows.drop(n.p(2)) // node 1 is cut off: what it appends now stays with it
	for _, v := range []string{"lost1", "lost2", "lost3"} {
		n.append(1, 1, v)
	}
	n.elect(2)
	n.install(2)
	n.append(2, 1, "b")
	n.install(1) // it learns of it only now
	n.equal(2, 1)
	if end := n.p(1).log.End(); end != 2 {
		t.Errorf("the log ends at %d, want 2", end)
	}
	n.until("the record of the new leader is committed", func() bool { return n.p(2).log.HW() == 2 })

	// Twice: a leader of an epoch that the other side never had.
	n.nodes[1].follows.drop(n.p(1))
	n.append(2, 1, "lost4")
	n.elect(1)
	n.install(1)
	n.elect(2)
	n.elect(1)
	n.install(1)
	n.append(1, 1, "c")
	n.install(2)
	n.equal(1, 2)
}

// TestFollowerBeginsInsideABatch: the leader's log start lies inside a batch, and
// a follower whose log is empty needs the whole of it.
func TestFollowerBeginsInsideABatch(t *testing.T) {
	n := newFeedNet(t, 2)
	n.install(1, 2)
	b := batch.NewBuilder(1000)
	for range 10 {
		b.Add(1000, nil, []byte("v"))
	}
	tk, err := n.p(1).Append(b.Bytes(), -1)
	if err != nil {
		t.Fatal(err)
	}
	if err := tk.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.nodes[2].follows.drop(n.p(2))
	if _, err := n.p(1).Trim(5); err != nil {
		t.Fatal(err)
	}
	if err := n.p(2).log.ResetTo(0); err != nil { // its disk was replaced
		t.Fatal(err)
	}
	n.nodes[2].follows.set(n.p(2), 1, 0)
	n.until("the follower has the batch", func() bool { return n.p(2).log.End() == 10 && n.p(2).log.Start() == 5 })
	n.append(1, 1, "more")
	n.until("and goes on", func() bool { return n.p(2).log.End() == 11 })
}

func TestISRShrinksAndExpands(t *testing.T) {
	n := newFeedNet(t, 3)
	n.nodes[1].env.lagMax = 500 * time.Millisecond
	n.install(1, 2, 3)
	if err := n.append(1, -1, "a").Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	members := func() int {
		s, _ := n.applier.Image().Partition(n.tp)
		n.install(1)
		return len(s.ISR)
	}
	n.nodes[3].follows.drop(n.p(3))
	tk := n.append(1, -1, "b") // waits for node 3 until the ISR has shrunk
	n.until("the ISR has shrunk to two", func() bool { return members() == 2 })
	if err := tk.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, _ := n.applier.Image().Partition(n.tp)
	n.nodes[3].follows.set(n.p(3), 1, s.LeaderEpoch)
	n.until("the ISR has grown to three", func() bool { return members() == 3 })
	n.equal(1, 2, 3)
}

func TestNewConnectionReplacesOlder(t *testing.T) {
	n := newFeedNet(t, 2)
	n.install(1, 2)
	if err := n.append(1, -1, "a").Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	fs := n.nodes[1].feeders
	current := func() *feeder {
		fs.mu.RLock()
		defer fs.mu.RUnlock()
		return fs.nodes[2]
	}
	first := current()
	c, err := feedNetDialer{n, 2}.DialFeed(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // the test is over
	n.until("the older connection has ended", func() bool {
		select {
		case <-first.ended:
			return true
		default:
			return false
		}
	})
	n.until("the follower has connected again", func() bool { f := current(); return f != nil && f != first })
	if err := n.append(1, -1, "b").Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	stale := isr.Member{ID: 2, Epoch: n.epochs[2] - 1}
	old := newFeeder(stale, c, n.nodes[1].env, time.Second, time.Second, hclog.NewNullLogger())
	if _, ok := fs.enter(old); ok {
		t.Error("a connection of an earlier incarnation replaced that of a later one")
	}
}

// TestThirdConnectionWaitsForTheFirst has three connections of one node at once, as
// after a pause of the leader. Until the first is closed no frame of the third may
// be read: a position that the first still brings would count after a later one.
func TestThirdConnectionWaitsForTheFirst(t *testing.T) {
	n := newFeedNet(t, 2)
	fs := n.nodes[1].feeders
	var served sync.WaitGroup
	defer served.Wait()
	dial := func() net.Conn {
		here, there := net.Pipe()
		t.Cleanup(func() { _ = here.Close() })
		served.Go(func() { fs.serve(controller.Preface{NodeID: 2, BrokerEpoch: n.epochs[2]}, there) })
		return here
	}
	current := func() *feeder {
		fs.mu.RLock()
		defer fs.mu.RUnlock()
		return fs.nodes[2]
	}
	one := dial()
	n.until("the first connection is there", func() bool { return current() != nil })
	first := current()
	first.mu.Lock() // it is in the middle of a frame
	two := dial()
	n.until("the second has taken its place", func() bool { return current() != first })
	three := dial()
	frame := feed.AppendFrame(nil, feed.Ping{Number: 1})
	_ = three.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	if k, err := three.Write(frame); err == nil || k > 0 {
		t.Errorf("%d bytes of the third connection were read before the first was closed", k)
	}
	first.mu.Unlock()
	_ = three.SetWriteDeadline(time.Time{})
	if _, err := three.Write(frame); err != nil {
		t.Errorf("the third connection is not served: %v", err)
	}
	for _, c := range []net.Conn{one, two, three} {
		_ = c.Close()
	}
}

func TestRefusedDialIsReported(t *testing.T) {
	n := newFeedNet(t, 2)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.nodes[1].addr = l.Addr().String()
	_ = l.Close() // nobody listens there any more
	n.install(1, 2)
	n.until("the refusal is reported", func() bool {
		n.nodes[1].mu.Lock()
		defer n.nodes[1].mu.Unlock()
		return n.nodes[1].refused > 1
	})
}

func TestFeedRefusesGarbage(t *testing.T) {
	good := testBatch("x")
	good.Assign(0, 0)
	bad := bytes.Clone(good)
	bad[len(bad)-1] ^= 1
	batch.Batch(bad).Assign(1, 0)
	other := testBatch("y")
	other.Assign(1, 0)
	astray := bytes.Clone(other)
	batch.Batch(astray).Assign(2, 0)
	for name, c := range map[string]struct {
		payload []byte
		next    batch.Offset
		good    int // bytes
		broken  bool
	}{
		"one":                {good, 0, len(good), false},
		"two":                {append(bytes.Clone(good), other...), 0, len(good) + len(other), false},
		"inside a batch":     {other, 1, len(other), false},
		"a wrong checksum":   {append(bytes.Clone(good), bad...), 0, len(good), true},
		"half a batch":       {append(bytes.Clone(good), other[:len(other)-1]...), 0, len(good), true},
		"half the first":     {good[:len(good)-1], 0, 0, true},
		"a gap":              {append(bytes.Clone(good), astray...), 0, len(good), true},
		"a gap at the start": {astray, 1, 0, true},
		"again":              {append(bytes.Clone(good), good...), 0, len(good), true},
	} {
		run, err := checkRun(c.payload, c.next)
		if len(run) != c.good || (err != nil) != c.broken {
			t.Errorf("%s: checkRun = %d bytes, %v; want %d", name, len(run), err, c.good)
		}
	}
}
