package controller

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"slices"
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
	fireRounds = 18
	// fireTimeout is Raft's patience there.
	fireTimeout = 300 * time.Millisecond
	// fireSegment is how large the segments of a log there are: what is kept of one is enough
	// for the terms and votes while a disk is full.
	fireSegment = 1 << 20
	fireLogDir  = "raft"
)

// TestRaftUnderFire runs Raft as we wrap it (our transport, store, votes, snapshots and
// machine) over a network in memory, with short logs, so that snapshots are sent. Nodes are
// cut off, wholly or one way, stand still, restart, hand the leadership over, take snapshots,
// join, get and lose votes, and leave, while every leader commits. There must be one leader a
// term; what was applied at an index must be the same on all nodes, whenever it was; what was
// acknowledged must be among it; every Image must hash the same at its index; what was stored at
// an index in a term must be the same everywhere; and the logs that are on the disks at the end
// must match. A run in which too little of this happened fails: it would show nothing.
func TestRaftUnderFire(t *testing.T) {
	seed := uint64(seeds.For(t))
	f := newFire(t, rand.New(rand.NewPCG(seed, 0)))
	f.open()
	defer f.close()
	rounds := fireRounds
	if seeds.Exploring() {
		rounds *= 3
	}
	for range rounds {
		for range 1 + f.rng.IntN(2) {
			f.strike()
			<-time.After(time.Duration(100+f.rng.IntN(500)) * time.Millisecond)
		}
		f.heal()
		f.calm()
	}
	f.settle()
	last := f.quiet()
	f.close()
	f.compareLogs(last)
	f.checkEnough(rounds)
}

// fireFloors is how often each thing has to have come about in fireRounds rounds.
var fireFloors = map[string]int{
	"commands acknowledged": 300, "snapshots sent": 3, "changes of the servers": 4, "transfers": 4,
	"restarts": 5, "pauses that held up a write": 2, "one-way cuts that stopped something": 3,
	"terms with a leader": 6, "stored entries compared": 200,
}

// checkEnough fails when too little happened for the run to show anything.
func (f *fire) checkEnough(rounds int) {
	f.did["commands acknowledged"], f.did["snapshots sent"] = int(f.acked.Load()), int(f.installs.Load())
	f.did["one-way cuts that stopped something"], f.did["terms with a leader"] = f.net.oneWay, len(f.leaders)
	for _, n := range f.nodes {
		f.did["pauses that held up a write"] += int(n.disk.stopped.Load())
		f.did["writes refused for want of room"] += int(n.disk.refused.Load())
	}
	for what, floor := range fireFloors {
		if least := floor * rounds / fireRounds; f.did[what] < least {
			f.t.Errorf("%s: only %d, want %d at least", what, f.did[what], least)
		}
	}
	f.t.Logf("%v", f.did)
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
	did      map[string]int // what came about how often; of the test's goroutine
	strikes  []int          // the faults still to be made before they are shuffled again
	calms    int            // how many rounds are over
	settled  []*fireNode    // the members in the end, whose logs end alike
	quieted  sync.Once
	closed   sync.Once

	mu      sync.Mutex
	entries map[uint64]uint32        // checksum of what was applied or acknowledged at an index
	images  map[uint64]uint64        // hash of the Image of an index
	written map[[2]uint64]uint32     // checksum of what was stored at an index in a term
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
		did: map[string]int{}, written: map[[2]uint64]uint32{},
		entries: map[uint64]uint32{}, images: map[uint64]uint64{}, leaders: map[uint64]raft.ServerID{},
	}
	f.net.cuts, f.net.bitten, f.net.changed = map[[2]raft.ServerID]bool{}, map[[2]raft.ServerID]bool{}, make(chan struct{})
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

// hush ends what commits and what watches.
func (f *fire) hush() {
	f.quieted.Do(func() {
		close(f.stop)
		f.heal()
		f.wg.Wait()
	})
}

// close ends all processes. What was on the disks stays.
func (f *fire) close() {
	f.closed.Do(func() {
		f.hush()
		for _, n := range f.nodes {
			n.end()
		}
		f.net.wg.Wait()
	})
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
	st := newStore(pausedDisk{db, &n.disk, func(ls []*raft.Log) { n.f.stored(n.id, ls) }}, time.Minute, func(error) { n.exited.Store(true) })
	n.log, n.transport.hasRoom = db, st.hasRoom
	n.store = st
	if err := snaps.checkWhole(st); err != nil {
		n.f.t.Errorf("node %s: %v", n.id, err)
	}
	notify, observed := make(chan bool, notifySlots), make(chan raft.Observation, 1)
	of := &Node{cfg: Config{ElectionTimeout: fireTimeout}, log: testLogger(n.f.t, string(n.id[:1]))}
	c := of.raftConfig(n.id, notify)
	c.SnapshotThreshold, c.TrailingLogs, c.SnapshotInterval = fireThreshold, uint64(5+n.f.rng.IntN(fireTrailing-4)), 100*time.Millisecond
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
	n.f.did["restarts"]++
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

// leader is the node that leads the newest term of those that believe to lead, else any.
func (f *fire) leader() *fireNode {
	leads := f.nodes[f.rng.IntN(len(f.nodes))]
	var newest uint64
	for _, n := range f.nodes {
		if term := n.raft.CurrentTerm(); n.raft.State() == raft.Leader && term > newest {
			leads, newest = n, term
		}
	}
	return leads
}

// The faults. They are dealt like cards, so that each comes in its turn: fireDeck is how often
// each of them is among those that are shuffled.
const (
	strikeAlone    = iota // a node is cut off
	strikePair            // two of five, among them often the leader, are alone
	strikeOneWay          // what one node says to another does not arrive
	strikeDumb            // what a node says does not arrive, and it hears all
	strikeDeaf            // a node hears nothing
	strikeLink            // two nodes do not reach each other
	strikeFrozen          // a node stands still
	strikeHung            // a disk stands still, and the node goes on
	strikeRestart         // a process is killed and comes back
	strikeFull            // a disk has no room
	strikeSnapshot        // a snapshot is taken
	strikeMembers         // the servers change
	strikeTransfer        // a node hands its leadership over as it stops
)

var fireDeck = map[int]int{
	strikeAlone: 2, strikePair: 2, strikeOneWay: 1, strikeDumb: 2, strikeDeaf: 1, strikeLink: 1, strikeFrozen: 1,
	strikeHung: 2, strikeRestart: 3, strikeFull: 1, strikeSnapshot: 1, strikeMembers: 3, strikeTransfer: 1,
}

// deal is the next fault.
func (f *fire) deal() int {
	if len(f.strikes) == 0 {
		for strike := range strikeTransfer + 1 {
			f.strikes = append(f.strikes, slices.Repeat([]int{strike}, fireDeck[strike])...)
		}
		f.rng.Shuffle(len(f.strikes), func(i, j int) { f.strikes[i], f.strikes[j] = f.strikes[j], f.strikes[i] })
	}
	next := f.strikes[0]
	f.strikes = f.strikes[1:]
	return next
}

// strike makes one fault, against the leader in half of the cases.
func (f *fire) strike() {
	i := f.rng.IntN(len(f.nodes))
	n := f.nodes[i]
	strike := f.deal()
	if f.rng.IntN(2) == 0 || strike == strikeOneWay || strike == strikeDumb { // others say little
		n = f.leader()
		i = slices.Index(f.nodes, n)
	}
	other := f.nodes[(i+1+f.rng.IntN(len(f.nodes)-1))%len(f.nodes)]
	switch strike {
	case strikeAlone:
		f.isolate(n)
	case strikePair:
		f.isolate(n)
		f.isolate(other)
		f.net.set(n.id, other.id, false)
		f.net.set(other.id, n.id, false)
	case strikeOneWay:
		f.net.set(n.id, other.id, true)
	case strikeDumb:
		f.silence(n)
	case strikeDeaf:
		f.deafen(n)
	case strikeLink:
		f.net.set(n.id, other.id, true)
		f.net.set(other.id, n.id, true)
	case strikeFrozen:
		f.isolate(n)
		n.disk.pause()
	case strikeHung:
		f.leader().disk.pause()
	case strikeRestart:
		n.restart()
	case strikeFull:
		n.logFS.SetCapacity(n.logFS.Used())
		useUp(f.t, n.log, 32<<10)
	case strikeSnapshot:
		n.disk.resume()
		_ = n.raft.Snapshot().Error()
	case strikeMembers:
		f.changeMembers()
	case strikeTransfer:
		f.transfer(f.leader())
		n.restart()
	}
	f.reviveExited()
}

// transfer has a node hand the leadership over, as one does that stops.
func (f *fire) transfer(n *fireNode) {
	n.disk.resume()
	if n.raft.LeadershipTransfer().Error() == nil {
		f.did["transfers"]++
	}
}

// calm waits for a leader that is heard by a majority, and has it hand over, change the servers,
// go on until a follower needs a snapshot, or stand before a disk that hangs: in the midst of faults
// these seldom succeed, and nobody may lead.
func (f *fire) calm() {
	before := f.acked.Load()
	eventually(f.t, "a command is acknowledged", func() bool {
		f.reviveExited()
		return f.acked.Load() > before
	})
	f.calms++
	switch leader := f.leader(); f.calms % 6 {
	case 1, 4:
		f.transfer(leader)
	case 2:
		f.hang(leader)
	case 5:
		f.transfer(leader)
		leader.restart()
	case 3:
		f.changeMembers()
	default:
		f.changeMembers()
		f.leaveBehind()
	}
}

// hang has a leader's disk stand still under a write, into the next round.
func (f *fire) hang(leader *fireNode) {
	before := leader.disk.stopped.Load()
	leader.disk.pause()
	eventually(f.t, "a write hangs, or the node leads no more", func() bool {
		return leader.disk.stopped.Load() > before || leader.raft.State() != raft.Leader
	})
}

const (
	// fireThreshold is after how many entries there a snapshot is taken.
	fireThreshold = 30
	// fireTrailing is how many are kept below a snapshot at most.
	fireTrailing = 65
	// fireBehindMax bounds the wait for a follower to be left behind: where few vote, nothing is
	// committed without it.
	fireBehindMax = 1500 * time.Millisecond
)

// leaveBehind cuts a follower off, into the next round, until the entries that it lacks are gone.
func (f *fire) leaveBehind() {
	leader := f.leader()
	members := slices.DeleteFunc(f.members(), func(n *fireNode) bool { return n == leader })
	if len(members) == 0 {
		return
	}
	f.isolate(members[f.rng.IntN(len(members))])
	began, before := time.Now(), f.acked.Load()
	eventually(f.t, "a follower is left behind", func() bool {
		f.reviveExited()
		return f.acked.Load() > before+2*fireThreshold+fireTrailing || time.Since(began) > fireBehindMax
	})
}

// changeMembers makes one change of the servers by way of the leader, as an operator would who
// does not look at what else goes on: a spare joins or leaves for good, a node gets or loses its
// vote.
func (f *fire) changeMembers() {
	leader, target := f.leader(), f.nodes[f.rng.IntN(len(f.nodes))]
	leader.disk.resume() // it answers in the end: that is waited for
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
		f.did["changes of the servers"]++
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
	f.silence(n)
	f.deafen(n)
}

// silence cuts the ways from a node.
func (f *fire) silence(n *fireNode) {
	for _, other := range f.nodes {
		f.net.set(n.id, other.id, true)
	}
}

// deafen cuts the ways to a node.
func (f *fire) deafen(n *fireNode) {
	for _, other := range f.nodes {
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
