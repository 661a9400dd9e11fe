package controller

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/controller/wal"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/integration/seeds"
	"github.com/weirmq/weir/storage/vfs"
)

const (
	fireNodes = 5
	// fireSpares are nodes that join later, and may leave again.
	fireSpares = 2
	// fireRounds is how many faults TestRaftUnderFire makes.
	fireRounds = 16
	// fireTimeout is Raft's patience there.
	fireTimeout = 300 * time.Millisecond
	// fireSegment is how large the segments of a log there are: what is kept of one is enough
	// for the terms and votes while a disk is full.
	fireSegment = 1 << 20
	fireLogDir  = "raft"
)

// TestRaftUnderFire runs Raft as we wrap it (our transport, store, votes, snapshots and
// machine) over a network in memory, with short logs, so that snapshots are sent. Nodes are
// cut off, stand still, restart, hand the leadership over as they stop, take snapshots, join, get
// and lose votes, and leave, while every leader commits. There must be one leader a term; what was applied at an index
// must be the same on all nodes, whenever it was; what was acknowledged must be among it; and
// every Image must hash the same at its index.
func TestRaftUnderFire(t *testing.T) {
	seed := uint64(seeds.For(t))
	f := newFire(t, rand.New(rand.NewPCG(seed, 0)))
	f.open()
	defer f.close()
	for range fireRounds {
		for range 1 + f.rng.IntN(2) {
			f.strike()
			<-time.After(time.Duration(f.rng.IntN(700)) * time.Millisecond)
		}
		f.heal()
		<-time.After(time.Duration(f.rng.IntN(200)) * time.Millisecond)
	}
	f.settle()
	f.mu.Lock()
	defer f.mu.Unlock()
	refused := int64(0)
	for _, n := range f.nodes {
		refused += n.disk.refused.Load()
	}
	t.Logf("%d commands acknowledged, %d entries applied, %d snapshots sent, %d restarts, %d changes of the servers, %d terms, %d writes refused for want of room",
		f.acked.Load(), len(f.entries), f.installs.Load(), f.restarts, f.changed, len(f.leaders), refused)
}

// fire is the cluster and what is known of it.
type fire struct {
	t     *testing.T
	rng   *rand.Rand // of the test's goroutine
	nodes []*fireNode
	net   fireNet
	stop  chan struct{}
	wg    sync.WaitGroup

	acked    atomic.Int64
	installs atomic.Int64
	restarts int
	changed  int // how many changes of the servers were answered

	mu      sync.Mutex
	entries map[uint64]uint32        // checksum of what was applied or acknowledged at an index
	images  map[uint64]uint64        // hash of the Image of an index
	leaders map[uint64]raft.ServerID // by term
}

// fireNode is one server: what it keeps over restarts, and its present process.
type fireNode struct {
	f       *fire
	id      raft.ServerID
	disk    pauser
	raftDir string
	logFS   *vfs.Mem
	exited  atomic.Bool // it asked for the end of its process
	left    bool        // it was removed, and does not come back; of the test's goroutine
	// stream is the present one, for those who dial.
	stream atomic.Pointer[raftStream]

	mu        sync.RWMutex // held by the worker while a command is under way, by who restarts it
	raft      *raft.Raft
	machine   *machine
	store     *store
	log       *wal.Log
	transport *transport
	lead      *leadership
	ended     chan struct{}
	watching  sync.WaitGroup
}

func newFire(t *testing.T, rng *rand.Rand) *fire {
	f := &fire{
		t: t, rng: rng, stop: make(chan struct{}),
		entries: map[uint64]uint32{}, images: map[uint64]uint64{}, leaders: map[uint64]raft.ServerID{},
	}
	f.net.cuts, f.net.changed = map[[2]raft.ServerID]bool{}, make(chan struct{})
	for i := range fireNodes + fireSpares {
		id := serverID(fsm.BrokerID(i+1), [16]byte{byte(i + 1)})
		f.nodes = append(f.nodes, &fireNode{f: f, id: id, raftDir: t.TempDir(), logFS: vfs.NewMem(int64(i))})
		if err := f.nodes[i].logFS.Mkdir(fireLogDir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func (f *fire) open() {
	var c raft.Configuration
	for _, n := range f.nodes[:fireNodes] {
		c.Servers = append(c.Servers, raft.Server{ID: n.id, Address: raft.ServerAddress(n.id)})
	}
	for i, n := range f.nodes {
		n.start()
		if i >= fireNodes {
			continue
		}
		if err := n.raft.BootstrapCluster(c).Error(); err != nil {
			f.t.Fatal(err)
		}
	}
	for _, n := range f.nodes {
		f.wg.Go(n.work)
	}
	f.wg.Go(f.watch)
}

func (f *fire) close() {
	close(f.stop)
	f.heal()
	f.wg.Wait()
	for _, n := range f.nodes {
		n.end()
	}
	f.net.wg.Wait()
}

// start makes the node's process, as Node.startRaft does.
func (n *fireNode) start() {
	n.exited.Store(false)
	n.lead, n.ended = newLeadership(), make(chan struct{})
	n.machine = newMachine(func(error) { n.exited.Store(true) })
	stream := newRaftStream(n.id, func(_ context.Context, to raft.ServerID) (net.Conn, error) { return n.f.net.dial(n, n.f.node(to)) })
	n.stream.Store(stream)
	n.transport = newTransport(stream, newReach(n.lead, n.ended), testLogger(n.f.t, "net"))
	snaps, err := openSnapshots(n.raftDir, testLogger(n.f.t, "snapshots"))
	if err != nil {
		n.f.t.Error(err)
		return
	}
	db, err := wal.Open(n.logFS, fireLogDir, fireSegment)
	if err != nil {
		n.f.t.Error(err)
		return
	}
	st := newStore(pausedDisk{db, &n.disk}, time.Minute, func(error) { n.exited.Store(true) })
	n.log, n.transport.hasRoom = db, st.hasRoom
	n.store = st
	if err := snaps.checkWhole(st); err != nil {
		n.f.t.Errorf("node %s: %v", n.id, err)
	}
	notify, observed := make(chan bool, notifySlots), make(chan raft.Observation, 1)
	of := &Node{cfg: Config{ElectionTimeout: fireTimeout}, log: testLogger(n.f.t, string(n.id[:1]))}
	c := of.raftConfig(n.id, notify)
	c.SnapshotThreshold, c.TrailingLogs, c.SnapshotInterval = 60, uint64(10+n.f.rng.IntN(150)), 100*time.Millisecond
	n.raft, err = raft.NewRaft(c, recorder{n.machine, n}, st, &raftStable{store: st}, snaps, n.transport)
	if err != nil {
		n.f.t.Fatalf("start node %s: %v", n.id, err)
	}
	n.machine.run()
	n.raft.RegisterObserver(raft.NewObserver(observed, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	}))
	ended, lead, server := n.ended, n.lead, n.raft
	n.watching.Go(func() { lead.watch(server, notify, observed, ended) })
}

// end ends the process, without a word to the others.
func (n *fireNode) end() {
	close(n.ended)
	if err := n.raft.Shutdown().Error(); err != nil {
		n.f.t.Error(err)
	}
	_ = n.transport.Close()
	n.transport.CloseStreams()
	_ = n.stream.Load().Close()
	n.transport.pusher.close()
	n.watching.Wait()
	if err := n.store.close(); err != nil {
		n.f.t.Error(err)
	}
}

// restart ends the process, when what it has under way is answered, and starts another.
func (n *fireNode) restart() {
	n.disk.resume()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end()
	n.start()
	n.f.restarts++
}

// work commits commands whenever this node leads.
func (n *fireNode) work() {
	for i := uint64(0); ; i++ {
		select {
		case <-n.f.stop:
			return
		case <-time.After(time.Millisecond):
		}
		n.mu.RLock()
		if n.raft.State() == raft.Leader && !n.exited.Load() {
			n.commit(i)
		}
		n.mu.RUnlock()
	}
}

func (n *fireNode) commit(i uint64) {
	broker := fsm.BrokerID(i%3 + 1)
	cur, _ := n.machine.Image().Broker(broker)
	nonce := [16]byte{n.id[0], byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}
	data := fsm.EncodeEntry(nil, []fsm.Command{fsm.RegisterBroker{ID: broker, Folder: [16]byte{1}, Process: nonce, BootID: "b", Replaces: cur.Epoch}})
	future := n.raft.Apply(data, 50*time.Millisecond)
	if future.Error() != nil {
		return
	}
	n.transport.pusher.commit(future.Index())
	n.f.acked.Add(1)
	n.f.same(n.id, future.Index(), data)
}

// recorder is a node's machine under observation.
type recorder struct {
	*machine
	n *fireNode
}

// Apply implements raft.FSM.
func (r recorder) Apply(l *raft.Log) any {
	out := r.machine.Apply(l)
	r.n.f.same(r.n.id, l.Index, l.Data)
	r.n.f.sameImage(r.n.id, r.Image())
	return out
}

// Restore implements raft.FSM.
func (r recorder) Restore(from io.ReadCloser) error {
	if r.isRunning() {
		r.n.f.installs.Add(1)
	}
	err := r.machine.Restore(from)
	if err == nil {
		r.n.f.sameImage(r.n.id, r.Image())
	}
	return err
}

// same notes what was applied or acknowledged at an index.
func (f *fire) same(id raft.ServerID, index uint64, data []byte) {
	sum := crc32.ChecksumIEEE(data)
	f.mu.Lock()
	defer f.mu.Unlock()
	if old, ok := f.entries[index]; ok && old != sum {
		f.t.Errorf("node %s has another entry at index %d than was committed there", id, index)
	}
	f.entries[index] = sum
}

func (f *fire) sameImage(id raft.ServerID, im *fsm.Image) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old, ok := f.images[im.Index()]; ok && old != im.Hash() {
		f.t.Errorf("the Image of node %s at index %d hashes to %x, that of others to %x", id, im.Index(), im.Hash(), old)
	}
	f.images[im.Index()] = im.Hash()
}

// watch notes who leads which term.
func (f *fire) watch() {
	for {
		select {
		case <-f.stop:
			return
		case <-time.After(2 * time.Millisecond):
		}
		for _, n := range f.nodes {
			n.mu.RLock()
			term, leads := n.raft.CurrentTerm(), n.raft.State() == raft.Leader
			leads = leads && n.raft.CurrentTerm() == term // the state is left before the term
			n.mu.RUnlock()
			if !leads {
				continue
			}
			f.mu.Lock()
			if other, ok := f.leaders[term]; ok && other != n.id {
				f.t.Errorf("nodes %s and %s both lead term %d", other, n.id, term)
			}
			f.leaders[term] = n.id
			f.mu.Unlock()
		}
	}
}

func (f *fire) node(id raft.ServerID) *fireNode {
	for _, n := range f.nodes {
		if n.id == id {
			return n
		}
	}
	return nil
}

func (f *fire) leader() *fireNode {
	for _, n := range f.nodes {
		if n.raft.State() == raft.Leader {
			return n
		}
	}
	return f.nodes[f.rng.IntN(len(f.nodes))]
}

// strike makes one fault, against the leader in half of the cases.
func (f *fire) strike() {
	n := f.nodes[f.rng.IntN(len(f.nodes))]
	if f.rng.IntN(2) == 0 {
		n = f.leader()
	}
	other := f.nodes[f.rng.IntN(len(f.nodes))]
	switch f.rng.IntN(13) {
	case 10, 11, 12:
		f.changeMembers()
	case 9:
		n.logFS.SetCapacity(n.logFS.Used())
		useUp(f.t, n.log, 32<<10)
	case 0:
		f.isolate(n)
	case 7, 8: // two of five, among them often the leader, are alone
		f.isolate(n)
		f.isolate(other)
		f.net.set(n.id, other.id, false)
		f.net.set(other.id, n.id, false)
	case 1:
		f.net.set(n.id, other.id, true)
	case 2:
		f.net.set(n.id, other.id, true)
		f.net.set(other.id, n.id, true)
	case 3: // it stands still
		f.isolate(n)
		n.disk.pause()
	case 4:
		n.restart()
	case 5: // as a node does that stops
		n.disk.resume()
		_ = n.raft.LeadershipTransfer().Error()
		n.restart()
	default:
		n.disk.resume()
		_ = n.raft.Snapshot().Error()
	}
	f.reviveExited()
}

// changeMembers makes one change of the servers by way of the leader, as an operator would who
// does not look at what else goes on: a spare joins or leaves for good, a node gets or loses its
// vote.
func (f *fire) changeMembers() {
	leader, target := f.leader(), f.nodes[f.rng.IntN(len(f.nodes))]
	leader.mu.RLock()
	defer leader.mu.RUnlock()
	ctx, cancel := context.WithTimeout(context.Background(), 4*fireTimeout)
	defer cancel()
	id, folder, _ := parseServerID(leader.id)
	of := &Node{
		cfg: Config{ElectionTimeout: fireTimeout, VoterSteady: 50 * time.Millisecond, Exit: func(error) {}}, log: testLogger(f.t, "change"),
		id: Identity{NodeID: id, Folder: folder}, raft: leader.raft, machine: leader.machine, transport: leader.transport, lead: leader.lead, change: make(chan struct{}, 1), ctx: ctx,
	}
	defer of.raftWaits.Wait()
	tenure, _ := leader.lead.get()
	on := &term{n: of, ctx: ctx, log: of.log, tenure: tenure}
	id, _, _ = parseServerID(target.id)
	s, member := findServer(of.servers(), target.id)
	var err error
	switch spare := int(id) > fireNodes; {
	case !member && !target.left:
		err = of.changeServers(ctx, "join", func([]raft.Server) (serverChange, error) { return addNonvoter(target.id), nil })
	case member && s.Suffrage == raft.Voter:
		_, err = on.removeVoter(ctx, &removeVoterRequest{voter{id: id}})
	case member && spare && f.rng.IntN(4) == 0:
		err = of.changeServers(ctx, "leave", func([]raft.Server) (serverChange, error) { return removeServer(target.id), nil })
		target.left = true // for good, whether or not it was done
	case member:
		_, err = on.addVoter(ctx, &addVoterRequest{voter: voter{id: id}, patience: 2 * fireTimeout})
	}
	if err == nil {
		f.changed++
	}
}

// members are the nodes that the leader's configuration has.
func (f *fire) members() []*fireNode {
	servers := f.leader().raft.GetConfiguration().Configuration().Servers
	var out []*fireNode
	for _, n := range f.nodes {
		if _, ok := findServer(servers, n.id); ok {
			out = append(out, n)
		}
	}
	return out
}

// reviveExited starts the nodes again that ended themselves.
func (f *fire) reviveExited() {
	for _, n := range f.nodes {
		if n.exited.Load() {
			n.restart()
		}
	}
}

func (f *fire) isolate(n *fireNode) {
	for _, other := range f.nodes {
		f.net.set(n.id, other.id, true)
		f.net.set(other.id, n.id, true)
	}
}

func (f *fire) heal() {
	for _, n := range f.nodes {
		n.disk.resume()
		n.logFS.SetCapacity(-1)
	}
	f.net.heal()
}

// settle heals everything and waits until all nodes have applied what one of them committed
// after that.
func (f *fire) settle() {
	f.heal()
	before := f.acked.Load()
	eventually(f.t, "commands go on being acknowledged", func() bool {
		f.reviveExited()
		return f.acked.Load() > before+20
	})
	var last uint64
	f.mu.Lock()
	for index := range f.entries {
		last = max(last, index)
	}
	f.mu.Unlock()
	for _, n := range f.members() {
		eventually(f.t, fmt.Sprintf("node %s has all of it", n.id), func() bool {
			f.reviveExited()
			return n.machine.Image().Index() >= last
		})
	}
}

// fireNet carries connections between nodes. What is written on a way that is cut waits.
type fireNet struct {
	wg      sync.WaitGroup
	mu      sync.Mutex
	cuts    map[[2]raft.ServerID]bool
	changed chan struct{}
}

func (w *fireNet) set(from, to raft.ServerID, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cuts[[2]raft.ServerID{from, to}] = cut && from != to
}

func (w *fireNet) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.cuts)
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *fireNet) cut(from, to raft.ServerID) (bool, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cuts[[2]raft.ServerID{from, to}], w.changed
}

func (w *fireNet) dial(from, to *fireNode) (net.Conn, error) {
	if cut, _ := w.cut(from.id, to.id); cut {
		return nil, errors.New("the dial goes nowhere")
	}
	stream := to.stream.Load()
	if stream == nil {
		return nil, errors.New("the node has not started yet")
	}
	here, there := net.Pipe()
	closed := make(chan struct{})
	var once sync.Once
	end := func() { once.Do(func() { close(closed) }) }
	w.wg.Go(func() {
		stream.serve(Preface{}, &fireConn{Conn: there, net: w, from: to.id, to: from.id, closed: closed, end: end})
	})
	return &fireConn{Conn: here, net: w, from: from.id, to: to.id, closed: closed, end: end}, nil
}

// fireConn is one end of a connection.
type fireConn struct {
	net.Conn
	net      *fireNet
	from, to raft.ServerID
	closed   chan struct{} // by either end
	end      func()
	deadline atomic.Int64 // in ns of the Unix epoch, 0 for none
}

// Write waits until the way is open.
func (c *fireConn) Write(p []byte) (int, error) {
	for {
		cut, changed := c.net.cut(c.from, c.to)
		if !cut {
			return c.Conn.Write(p)
		}
		patience := time.Hour
		if d := c.deadline.Load(); d != 0 {
			patience = time.Until(time.Unix(0, d))
		}
		select {
		case <-changed:
		case <-c.closed:
			return 0, net.ErrClosed
		case <-time.After(patience):
			return 0, os.ErrDeadlineExceeded
		}
	}
}

// SetDeadline is also that of a Write that waits.
func (c *fireConn) SetDeadline(t time.Time) error {
	if t.IsZero() {
		c.deadline.Store(0)
	} else {
		c.deadline.Store(t.UnixNano())
	}
	return c.Conn.SetDeadline(t)
}

// Close ends both directions.
func (c *fireConn) Close() error {
	c.end()
	return c.Conn.Close()
}

// pausedDisk is the store, which can stand still.
type pausedDisk struct {
	backing
	pauser *pauser
}

// pauser outlives the process whose disk it holds up.
type pauser struct {
	refused atomic.Int64 // writes for want of room

	mu   sync.Mutex
	gate chan struct{} // closed when it goes on; nil while it does
}

func (p *pauser) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate == nil {
		p.gate = make(chan struct{})
	}
}

func (p *pauser) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate != nil {
		close(p.gate)
		p.gate = nil
	}
}

func (p *pauser) wait() {
	p.mu.Lock()
	gate := p.gate
	p.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

func (d pausedDisk) StoreLogs(ls []*raft.Log) error {
	d.pauser.wait()
	err := d.backing.StoreLogs(ls)
	if errors.Is(err, errNoRoom) {
		d.pauser.refused.Add(1)
	}
	return err
}

func (d pausedDisk) Set(k, v []byte) error {
	d.pauser.wait()
	return d.backing.Set(k, v)
}

func (d pausedDisk) SetUint64(k []byte, v uint64) error {
	d.pauser.wait()
	return d.backing.SetUint64(k, v)
}
