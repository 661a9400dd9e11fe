package sim

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/weirmq/weir/fsm"
)

// raft stands in for the consensus library: an ideal ordered log. Its leader can
// be lost, deposed without knowing it, and replaced; a proposal is then dropped,
// or comes to pass after its proposer was told that nobody knows.
type raft struct {
	w       *world
	entries []metaEntry
	index   uint64
	image   *fsm.Image // after the last entry

	term      int
	leader    *node // of the newest term; nil before the first
	pending   []*metaProposal
	unwell    time.Duration // since when the leader could not commit; 0: it can
	patience  time.Duration // how long the others wait
	committer bool          // an event is on its way that commits the first pending
}

// metaEntry is one committed entry.
type metaEntry struct {
	index   uint64
	data    []byte // nil: a barrier
	hash    uint64 // of the Image after it
	results []fsm.Result
}

// metaProposal is an entry that a leader has taken and not committed yet.
type metaProposal struct {
	n    *node
	life int
	data []byte
	done func(*metaEntry, error)
}

// Outcomes of what was asked of the controller.
var (
	errNotController = errors.New("not the controller") // surely not done
	errUnknown       = errors.New("outcome unknown")
	errNoController  = errors.New("no controller") // surely not done, in time
)

const (
	raftTick = 150 * time.Millisecond
	// lease is how long a leader that reaches no majority goes on believing.
	lease = 500 * time.Millisecond
)

func newRaft(w *world) *raft { return &raft{w: w, image: fsm.NewImage()} }

func (r *raft) begin() {
	r.patience = 100 * time.Millisecond
	r.tick()
}

// tick looks after the leadership.
func (r *raft) tick() {
	r.w.after(raftTick, r.tick)
	l := r.leader
	switch {
	case l != nil && l.leadTerm == r.term && l.awake() && r.quorum(l):
		r.unwell = 0
	case r.unwell == 0:
		r.unwell = r.w.now
		r.patience = r.w.between(400*time.Millisecond, 1500*time.Millisecond)
	case r.w.now-r.unwell >= r.patience:
		r.elect()
	}
	for _, n := range r.w.nodes {
		if n.leadTerm != 0 && n.awake() {
			r.lookAround(n)
		}
		if l.awake() && l.leadTerm == r.term && n.awake() && n.knownTerm < r.term && r.w.reaches(l, n) {
			n.learn(l, r.term) // by a heartbeat
		}
	}
}

// lookAround makes a leader that was deposed, or reaches no majority for long, step down.
func (r *raft) lookAround(n *node) {
	if n.leadTerm < r.term && r.leader.awake() && r.w.reaches(r.leader, n) {
		n.stepDown()
		return
	}
	if r.quorum(n) {
		n.alone = 0
		return
	}
	if n.alone == 0 {
		n.alone = r.w.now
	}
	if r.w.now-n.alone >= lease {
		n.stepDown()
	}
}

// quorum tells whether a node can exchange messages with a majority.
func (r *raft) quorum(n *node) bool {
	count := 0
	for _, m := range r.w.nodes {
		if m == n || m.awake() && r.w.reaches(n, m) && r.w.reaches(m, n) {
			count++
		}
	}
	return count > len(r.w.nodes)/2
}

// elect begins a new term, if a majority can.
func (r *raft) elect() { r.electOther() }

// electOther begins a new term, led by none of these.
func (r *raft) electOther(not ...*node) {
	var able []*node
	for _, n := range r.w.nodes {
		if n.awake() && n.im != nil && r.quorum(n) && !slices.Contains(not, n) {
			able = append(able, n)
		}
	}
	if len(able) == 0 {
		return
	}
	r.office(able[r.w.rand.IntN(len(able))])
}

// office gives a node the leadership. What the old leader had not committed is
// lost from some point on.
func (r *raft) office(n *node) {
	old := r.pending
	r.pending = nil
	for _, p := range old {
		if r.w.chance(400) {
			break
		}
		r.commit(p.data)
		r.w.note(p.n.id, "an entry of an ended term is committed as %d", r.index)
	}
	for _, p := range old {
		r.w.dismiss(p)
	}
	r.term++
	r.leader, r.unwell = n, 0
	r.w.note(n.id, "leads the metadata in term %d", r.term)
	if n.leadTerm != 0 {
		n.stepDown()
	}
	n.leadTerm, n.alone = r.term, 0
	term := r.term
	for _, m := range r.w.nodes {
		if m.up {
			m.do(r.w.transit(n, m)+r.w.between(0, 20*time.Millisecond), laneControl, func() { m.learn(n, term) })
		}
	}
	n.do(r.w.between(5*time.Millisecond, 30*time.Millisecond), laneControl, func() { n.beginTerm(term) })
}

// dismiss tells the proposer of an ended term that nobody knows.
func (w *world) dismiss(p *metaProposal) {
	if p.n.up && p.n.life == p.life {
		p.n.do(w.between(0, 5*time.Millisecond), laneControl, func() { p.done(nil, errUnknown) })
	}
}

// propose hands an entry to a node that takes itself for the leader of a term.
func (r *raft) propose(n *node, term int, data []byte, done func(*metaEntry, error)) {
	if term == 0 || n.leadTerm != term {
		done(nil, errNotController)
		return
	}
	p := &metaProposal{n: n, life: n.life, data: data, done: done}
	if term != r.term {
		n.futile = append(n.futile, p)
		return
	}
	r.pending = append(r.pending, p)
	r.commitSoon(r.w.between(300*time.Microsecond, 4*time.Millisecond))
}

func (r *raft) commitSoon(d time.Duration) {
	if r.committer || len(r.pending) == 0 {
		return
	}
	r.committer = true
	r.w.after(d, func() {
		r.committer = false
		r.commitFirst()
	})
}

// commitFirst commits what is pending when a majority can be reached.
func (r *raft) commitFirst() {
	l := r.leader
	if len(r.pending) == 0 {
		return
	}
	if !l.awake() || l.leadTerm != r.term || !r.quorum(l) {
		r.commitSoon(50 * time.Millisecond)
		return
	}
	for _, p := range r.pending {
		e := r.commit(p.data)
		if p.n.life != p.life {
			continue
		}
		p.n.do(r.w.between(0, 500*time.Microsecond), laneControl, func() {
			p.n.catchUp()
			p.done(&r.entries[e], nil)
		})
	}
	r.pending = nil
}

// commit appends an entry and applies it to the reference Image.
func (r *raft) commit(data []byte) int {
	r.index += 1 + uint64(r.w.rand.IntN(2))
	e := metaEntry{index: r.index, data: data}
	if data != nil {
		r.image, e.results = applyEntry(r.w, r.image, e.index, data)
	}
	e.hash = r.image.Hash()
	r.entries = append(r.entries, e)
	for _, n := range r.w.nodes {
		n.metaSoon()
	}
	r.w.imageChanged()
	return len(r.entries) - 1
}

func applyEntry(w *world, im *fsm.Image, index uint64, data []byte) (*fsm.Image, []fsm.Result) {
	cs, err := fsm.DecodeEntry(data)
	if err != nil {
		w.fail("entries decode", "entry %d: %v", index, err)
	}
	results := make([]fsm.Result, len(cs))
	for i, c := range cs {
		im, results[i] = fsm.Apply(im, index, c)
	}
	return im, results
}

// catchUp applies every committed entry to the node's Image.
func (n *node) catchUp() { n.catchUpTo(len(n.w.raft.entries)) }

// catchUpTo applies the first entries of the log.
func (n *node) catchUpTo(count int) {
	r := n.w.raft
	if n.im == nil || n.applied >= count {
		return
	}
	for ; n.applied < count; n.applied++ {
		e := &r.entries[n.applied]
		if e.data == nil {
			continue
		}
		n.im, _ = applyEntry(n.w, n.im, e.index, e.data)
		if n.im.Hash() != e.hash {
			n.w.fail("Images agree", "that of node %d at index %d hashes to %x, of others to %x", n.id, e.index, n.im.Hash(), e.hash)
		}
	}
	n.imageChanged()
}

// metaSoon has new entries brought to the node.
func (n *node) metaSoon() {
	if n.im == nil || n.metaDue {
		return
	}
	n.metaDue = true
	n.do(n.w.between(200*time.Microsecond, 15*time.Millisecond), laneControl, n.metaArrives)
}

func (n *node) metaArrives() {
	w, l := n.w, n.w.raft.leader
	switch {
	case n.metaHeld > w.now:
		n.do(n.metaHeld-w.now, laneControl, n.metaArrives)
		return
	case l != n && (!l.awake() || !w.reaches(l, n)):
		n.do(w.between(50*time.Millisecond, 150*time.Millisecond), laneControl, n.metaArrives)
		return
	}
	n.metaDue = false
	if behind := len(w.raft.entries) - n.applied; behind > 1 && w.chance(300) { // the rest comes later
		n.catchUpTo(n.applied + 1 + w.rand.IntN(behind-1))
		n.metaDue = true
		n.do(w.between(time.Millisecond, 400*time.Millisecond), laneControl, n.metaArrives)
		return
	}
	n.catchUp()
}

// learn tells a node who leads the metadata.
func (n *node) learn(leader *node, term int) {
	if term < n.knownTerm {
		return
	}
	if n != leader && !n.w.reaches(leader, n) {
		if term == n.w.raft.term {
			n.do(100*time.Millisecond, laneControl, func() { n.learn(leader, term) })
		}
		return
	}
	n.known, n.knownTerm = leader, term
	if n.leadTerm != 0 && n.leadTerm < term {
		n.stepDown()
	}
}

// stepDown ends what the node believed to be its leadership.
func (n *node) stepDown() {
	n.w.note(n.id, "steps down from term %d", n.leadTerm)
	n.leadTerm, n.alone = 0, 0
	if n.term != nil {
		n.term.end()
	}
	futile := n.futile
	n.futile = nil
	for _, p := range futile {
		n.w.dismiss(p)
	}
}

// restoreImage gives a starting node the Image of its last snapshot, read back
// from its encoding; what came after it is applied again.
func (n *node) restoreImage() {
	n.im, n.applied = fsm.NewImage(), 0
	if n.snapshot == nil {
		return
	}
	im, err := fsm.ReadSnapshot(bytes.NewReader(n.snapshot))
	if err != nil {
		n.w.fail("snapshots are read back", "node %d: %v", n.id, err)
	}
	n.im, n.applied = im, n.snapshotApplied
}

// takeSnapshot keeps the node's Image for its next start.
func (n *node) takeSnapshot() {
	var b bytes.Buffer
	if err := fsm.WriteSnapshot(&b, n.im); err != nil {
		n.w.fail("snapshots are written", "node %d: %v", n.id, err)
	}
	n.snapshot, n.snapshotApplied = b.Bytes(), n.applied
}

// awaitIndex calls then once the node's Image has reached an index.
func (n *node) awaitIndex(index uint64, then func()) {
	if n.im.Index() >= index {
		then()
		return
	}
	n.waiting = append(n.waiting, indexWait{index, then})
}

type indexWait struct {
	index uint64
	then  func()
}

func (n *node) wakeIndexWaits() {
	if len(n.waiting) == 0 {
		return
	}
	var due []indexWait
	n.waiting = slices.DeleteFunc(n.waiting, func(x indexWait) bool {
		if n.im.Index() >= x.index {
			due = append(due, x)
			return true
		}
		return false
	})
	for _, x := range due {
		x.then()
	}
}
