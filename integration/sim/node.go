package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// node is one machine with one process: what package broker's Node, reconciler,
// feeds and session are there.
type node struct {
	w     *world
	index int
	id    fsm.BrokerID

	// The machine: it outlives the process.
	disk            *disk
	folder          [16]byte
	folderCount     int // data folders this node has had
	journals        []*held
	snapshot        []byte // of the Image
	snapshotApplied int
	dark            bool          // without power: nobody answers, not even to refuse
	walled          time.Duration // when the last firewall around it goes
	drift           float64       // how fast its clocks go
	ahead           time.Duration // by how much its wall clock is

	// The process. life numbers them; events of earlier ones do not happen.
	life         int
	up           bool
	pausedUntil  time.Duration
	stalledUntil time.Duration
	dir          *storage.Dir
	told         []fsm.TopicPartition // of which this process reported damage
	working      *replica             // whose log is being worked on, for a stop in the middle
	cutTo        int64                // where that work may cut the log to; negative: it does not
	stopping     bool
	changesLate  time.Duration // until when its ISR changes reach the controller late
	changesAfter time.Duration // until when that is just after they are given up
	patience     time.Duration // after which they are then
	opened       bool          // the client port is
	fullUntil    time.Duration // until when its disk has no room
	clientCut    time.Duration // until when clients can not reach it
	answersLost  time.Duration // until when most answers to clients are lost
	away         bool          // stays down to the end

	// Metadata.
	im        *fsm.Image
	applied   int
	metaDue   bool
	metaHeld  time.Duration
	waiting   []indexWait
	leadTerm  int // of which this node takes itself for the leader; 0 none
	alone     time.Duration
	futile    []*metaProposal
	known     *node // whom it takes for the leader
	knownTerm int
	term      *term

	// Session.
	epoch fsm.BrokerEpoch
	sent  time.Time // of the newest acknowledged heartbeat that this broker has caught up with
	acks  []ack     // that wait for that, oldest first
	ready bool

	// Replicas.
	replicas   []*replica // in order of creation
	adopted    *fsm.Image // by which the folders were judged at start
	reconciled *fsm.Image // that roles were last made from
	roleDue    bool
	work       folderWork
	keeper     keeper
	changes    changes
	committing bool      // a flush of durable logs is due
	sources    []*source // one a leader node
	feeders    []*conn   // one a follower node, by index; nil when there is none
	aged       agedWork
	tenure     *tenure // as coordinator of the group; nil when it is not
}

// held is what one partition's log on the disk must hold.
type held struct {
	tp    fsm.TopicPartition
	topic string
	j     journal

	// How the process that had it ended; read by the next start.
	flushed batch.Offset // Flushed as it was
	last    batch.Epoch  // LastEpoch as it was
	power   bool         // the machine lost power
	cutTo   int64        // a cut to here was under way; -1 when none was
	leaving bool         // the folder was about to be removed
	gone    bool         // it has been
	rot     []rotten     // what changed on the disk by itself since
}

const dataPath = "/data"

// clockZero is what all clocks show when a run begins. It is never written.
var clockZero = time.Unix(1_000_000_000, 0)

func newNode(w *world, index int) *node {
	n := &node{w: w, index: index, id: fsm.BrokerID(index + 1), drift: 1}
	n.drift = 1 + float64(w.rand.IntN(41)-20)/1000
	n.disk = newDisk(w, vfs.NewMem(int64(w.plan.Seed)<<8|int64(n.id)))
	n.newFolder()
	return n
}

// newFolder gives the node an empty disk.
func (n *node) newFolder() {
	n.folderCount++
	n.folder = [16]byte{byte(n.id), byte(n.folderCount)}
}

func (n *node) String() string {
	s := fmt.Sprintf("node %d: up=%v life=%d epoch=%d intact=%v leadTerm=%d", n.id, n.up, n.life, n.epoch, n.intact(), n.leadTerm)
	if n.im != nil {
		s += fmt.Sprintf(" image=%d", n.im.Index())
	}
	for _, r := range n.replicas {
		s += "\n  " + r.String()
	}
	return s
}

// clock is the node's monotonic clock, CLOCK_BOOTTIME too.
func (n *node) clock() time.Time {
	return clockZero.Add(n.passed())
}

// passed is the time since the run began, as the node counts it.
func (n *node) passed() time.Duration { return time.Duration(float64(n.w.now) * n.drift) }

// awake tells whether the process runs now.
func (n *node) awake() bool { return n != nil && n.up && n.pausedUntil <= n.w.now }

func (n *node) heldUntil(l lane) time.Duration {
	if l == laneData {
		return max(n.pausedUntil, n.stalledUntil)
	}
	return n.pausedUntil
}

// do runs fn in this process after a while.
func (n *node) do(d time.Duration, l lane, fn func()) {
	n.w.push(event{at: n.w.now + d, node: n, life: n.life, lane: l, fn: fn})
}

// ended is panicked with when a process ends itself: nothing of the step may go on.
type ended struct{}

// guard runs one step, in which the process may end.
func (n *node) guard(fn func()) {
	defer func() {
		switch x := recover().(type) {
		case nil, ended:
		case stopped:
			n.w.note(n.id, "stops in the middle of its work, power=%v", x.power)
			n.end(x.power)
		default:
			panic(x)
		}
	}()
	fn()
}

// scrubStep is how many bytes a node scrubs between two rounds of background work.
const scrubStep = 2000

func (n *node) options() storage.Options {
	o := storage.DefaultOptions()
	o.SegmentBytes, o.IndexIntervalBytes = n.w.plan.SegmentBytes, 300
	o.SnapshotBytes, o.MinFreeBytes = 3000, -1
	o.FlushInterval, o.CheckpointInterval = 0, 3*time.Second
	o.ExpiryInterval = 4 * time.Second
	o.Now, o.Steady = n.wall, n.passed
	o.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: logWriter{n}, DisableTime: true})
	return o
}

// logWriter takes what storage logs into the trail.
type logWriter struct{ n *node }

func (l logWriter) Write(p []byte) (int, error) {
	l.n.w.note(l.n.id, "%s", strings.TrimSpace(string(p)))
	return len(p), nil
}

// start begins the boot: logs, metadata, folders, registration, roles, session.
func (n *node) start() {
	if n.up || n.away {
		return
	}
	n.up, n.dark, n.life = true, false, n.life+1
	n.stalledUntil, n.pausedUntil = 0, 0
	n.w.note(n.id, "starts")
	n.w.report.Restarts++
	n.resetProcess()
	n.do(n.w.between(time.Millisecond, 60*time.Millisecond), laneData, n.open)
}

func (n *node) resetProcess() {
	n.im, n.applied, n.metaDue, n.waiting = nil, 0, false, nil
	n.leadTerm, n.alone, n.futile, n.term = 0, 0, nil, nil
	n.known, n.knownTerm = nil, 0
	n.epoch, n.sent, n.acks, n.ready, n.stopping, n.opened = 0, time.Time{}, nil, false, false, false
	n.replicas, n.adopted, n.reconciled, n.roleDue = nil, nil, nil, false
	n.work, n.keeper, n.changes, n.sources = folderWork{}, keeper{}, changes{}, nil
	n.feeders = make([]*conn, len(n.w.nodes))
	n.working, n.cutTo, n.dir, n.committing, n.tenure, n.told = nil, -1, nil, false, nil, nil
	n.aged = agedWork{}
}

// open recovers the logs and compares them with what they must hold.
func (n *node) open() {
	d, err := storage.OpenDir(n.disk, dataPath, n.options())
	if err != nil {
		n.w.note(n.id, "can not open its logs: %v", err)
		n.exit()
	}
	n.dir = d
	n.checkRecovered()
	n.restoreImage()
	if l := n.w.raft.leader; l != nil && n.w.reaches(l, n) {
		n.known, n.knownTerm = l, n.w.raft.term
	}
	n.metaSoon()
	n.flushSoon()
	n.catchUpWithCluster()
}

// catchUpWithCluster waits until the Image is as new as the controller's.
func (n *node) catchUpWithCluster() {
	n.sync(time.Hour, func(err error) {
		if err != nil {
			n.do(retryPause, laneControl, n.catchUpWithCluster)
			return
		}
		n.do(0, laneData, func() {
			n.adopt()
			n.register()
		})
	})
}

// register makes this process the broker's present incarnation.
func (n *node) register() {
	n.registerUntil(n.w.now+time.Hour, func() { n.do(time.Second, laneControl, n.register) }, func() { n.do(0, laneData, n.join) })
}

// join reports damage, then takes up the roles and the session.
func (n *node) join() {
	var damaged []fsm.TopicPartition
	for _, r := range n.replicas {
		if r.log.Damaged() != nil {
			damaged = append(damaged, r.tp)
		}
	}
	if len(damaged) == 0 {
		n.takeUp()
		return
	}
	n.propose(callTimeout, fsm.ReportDamaged{Broker: n.id, BrokerEpoch: n.epoch, Items: damaged}, func(res fsm.Result, err error) {
		if err != nil || res.Err != nil {
			n.exit() // as a node that can not start
			return
		}
		n.do(0, laneData, n.takeUp)
	})
}

func (n *node) takeUp() {
	n.startRoles()
	n.ready = true
	n.beat()
}

// imageChanged is called when the node's Image has moved.
func (n *node) imageChanged() {
	if n.w.chance(30) {
		n.takeSnapshot()
	}
	n.wakeIndexWaits()
	if n.reconciled != nil && !n.roleDue {
		n.roleDue = true
		n.do(n.w.between(20*time.Microsecond, 3*time.Millisecond), laneData, n.reconcile)
	}
	if n.term != nil {
		n.do(0, laneControl, n.term.wake)
	}
}

// flushSoon has the folder's background work done, again and again.
func (n *node) flushSoon() {
	n.do(n.w.between(300*time.Millisecond, 1500*time.Millisecond), laneData, func() {
		if _, err := n.dir.Scrub(scrubStep); err != nil {
			n.w.note(n.id, "scrub: %v", err)
		}
		if err := n.dir.Tick(); err != nil {
			n.offline(err)
		}
		n.lookForOld()
		n.flushSoon()
	})
}

// commitSoon has what was appended to durable logs flushed, together with what
// comes before the disk is ready for it.
func (n *node) commitSoon() {
	if n.committing {
		return
	}
	n.committing = true
	n.do(n.w.between(200*time.Microsecond, 30*time.Millisecond), laneData, func() {
		n.committing = false
		if err := n.dir.Commit(); err != nil && n.dir.Offline() != nil {
			n.offline(err)
		}
	})
}

// offline ends a process whose folder can not be used any more.
func (n *node) offline(err error) {
	n.w.note(n.id, "goes offline: %v", err)
	n.exit()
}

// exit ends the process by itself. It does not return.
func (n *node) exit() {
	n.end(false)
	n.w.after(n.w.between(200*time.Millisecond, 3*time.Second), n.start)
	panic(ended{})
}

// end stops the process, or cuts the power of the machine.
func (n *node) end(power bool) {

	if !n.up {
		return
	}
	n.up, n.dark, n.life = false, power, n.life+1
	n.disk.stopAfter, n.disk.failAfter = -1, -1
	n.remember(power)
	if power {
		n.losePower()
	} else {
		n.w.note(n.id, "ends")
		n.disk = newDisk(n.w, n.disk.ProcessClone())
	}
	n.disk.SetCapacity(-1)
	n.term, n.leadTerm = nil, 0
	n.w.hangUp(n)
}

// losePower takes what was not synced from a machine without a process.
func (n *node) losePower() {
	n.w.note(n.id, "loses power")
	n.dark = true
	for _, h := range n.journals {
		h.power = true
	}
	seed := int64(n.w.rand.Uint64() >> 1)
	if n.w.chance(150) {
		seed = 0
	}
	n.disk = newDisk(n.w, n.disk.CrashClone(seed))
}

// remember keeps what the next start must find.
func (n *node) remember(power bool) {
	for _, h := range n.journals {
		if n.dir == nil { // it never got to open them
			h.power = h.power || power
			continue
		}
		h.power = power
		if l := n.dir.Log(h.topic, h.tp.Partition); l != nil && fsm.TopicID(l.ID()) == h.tp.Topic {
			h.flushed, h.last = l.Flushed(), l.LastEpoch()
		}
		if n.working != nil && n.working.h == h {
			h.cutTo = n.cutTo
		}
	}
	n.dir = nil
}

// wipe gives a node that is down an empty disk.
func (n *node) wipe() {
	n.w.note(n.id, "loses its disk")
	n.newFolder()
	n.disk = newDisk(n.w, vfs.NewMem(int64(n.w.plan.Seed)<<16|int64(n.folderCount)<<8|int64(n.id)))
	n.journals = nil
	for _, p := range n.w.parts { // what it gets again it gets as no member
		if p.held != nil {
			p.held[n.id-1] = 0
		}
	}
}

// intact tells whether the disk holds what the node's present registration stands
// for: not after it was lost and before the node has registered again.
func (n *node) intact() bool {
	b, ok := n.w.raft.image.Broker(n.id)
	return ok && b.Folder == n.folder && b.BootID == n.disk.BootID()
}

// shutdown is the controlled one.
func (n *node) shutdown(then func()) {
	if !n.up || n.stopping || n.epoch == 0 || n.reconciled == nil {
		n.end(false)
		then()
		return
	}
	n.stopping = true
	n.w.note(n.id, "stops in order")
	closed := false
	closeUp := func() {
		if closed {
			return
		}
		closed = true
		n.do(n.w.between(0, 20*time.Millisecond), laneData, func() {
			n.closeDown()
			then()
		})
	}
	epoch := n.epoch
	n.do(callTimeout, laneControl, closeUp)
	n.call(n.w.now+callTimeout, func(t *term, reply func(any, error)) { t.stopBroker(n.id, epoch, reply) }, func(v any, err error) {
		if err != nil {
			closeUp()
			return
		}
		n.awaitIndex(v.(uint64), func() { n.do(0, laneControl, func() { n.awaitHandOff(closeUp) }) })
	})
}

// closeDown flushes everything and leaves the mark of a clean stop.
func (n *node) closeDown() {
	err := n.dir.Close(&storage.CleanStop{BrokerEpoch: int64(n.epoch)})
	n.w.note(n.id, "is closed: %v", err)
	if n.leadTerm != 0 && n.w.raft.leader == n {
		n.stepDown()
		n.w.raft.unwell = 1
		n.w.raft.patience = 0
	}
	n.end(false)
}

// journal returns what a partition's log on this node must hold.
func (n *node) journal(tp fsm.TopicPartition) *held {
	i := slices.IndexFunc(n.journals, func(h *held) bool { return h.tp == tp })
	if i < 0 {
		return nil
	}
	return n.journals[i]
}

// trouble ends the process when an error says that its folder can be used no more.
func (n *node) trouble(err error) {
	if errors.Is(err, storage.ErrOffline) {
		n.offline(err)
	}
}
