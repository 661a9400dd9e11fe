package sim

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/fsm"
)

// world is one run.
type world struct {
	plan  Plan
	now   time.Duration
	queue events
	seq   uint64
	count int

	rand      *rand.Rand // delays and races
	nodes     []*node
	raft      *raft
	parts     []*part // of all topics that ever were, in order of creation
	clients   []*producer
	producers int           // ids given out
	skew      time.Duration // of the clients' clocks
	healed    bool
	healedAt  time.Duration
	topics    int               // created so far
	doomed    []fsm.TopicID     // asked to be deleted
	moves     []move            // reassignments that were asked for
	cut       [][]int           // by sender and receiver: how many faults stop messages
	walls     []int             // by node: how many firewalls stand around it
	slow      [][]time.Duration // added to each message
	trail     trail
	scanned   []rec      // what scan found last
	scanBytes []byte     // its buffer
	touched   []*part    // to be checked after this event
	before    *fsm.Image // the one that raft's replaced
	forced    map[fsm.TopicPartition]forced
	stored    committed
	blackouts int
	conns     int           // connections of clients to coordinators, ever
	strikes   time.Duration // until when one fault strikes many machines, one after the other
	disasters int           // in which more disks were lost than the cluster can spare
	report    Report
	struck    func(*world, Fault) // nil: nobody looks at faults
}

// Report says what happened in a run.
type Report struct {
	Events    int           // steps of the run
	Faults    int           // that took effect
	Acked     int           // records
	Epochs    int           // leader epochs, over all partitions
	Entries   int           // of the metadata log
	Elapsed   time.Duration // virtual
	Reads     int           // answered
	Restarts  int
	Truncated int    // cuts of logs
	Lost      int    // records, in blackouts and disasters
	Moves     int    // reassignments that were started, redirected or cancelled
	Left      int    // replicas that left by them
	Steps     uint64 // a sum over the order of all steps: their times, nodes and numbers
}

// Violation says which invariant a run broke.
type Violation struct {
	Seed      uint64
	Event     int           // number of the step
	At        time.Duration // virtual time
	HealedAt  time.Duration // when the faults ended, 0 if they had not
	Invariant string
	Detail    string
	Trail     []string // the last events
}

// Error is the violation without the events before it.
func (v *Violation) Error() string {
	return fmt.Sprintf("seed %d, step %d, %v: %s: %s", v.Seed, v.Event, v.At, v.Invariant, v.Detail)
}

// Full is the violation with the last events.
func (v *Violation) Full() string { return strings.Join(v.Trail, "\n") + "\n" + v.Error() }

// event is one step: fn runs at its time unless the node's process has ended.
type event struct {
	at   time.Duration
	seq  uint64
	node *node // nil: of no node
	life int
	lane lane
	fn   func()
}

// lane says what holds an event up.
type lane uint8

const (
	laneControl lane = iota // a pause of the process
	laneData                // also a slow disk
)

// Run runs a plan to its end, or to the first violation.
func Run(p Plan) (Report, *Violation) { return run(p, nil) }

// run is Run with a look at each fault that took effect at once.
func run(p Plan, struck func(*world, Fault)) (rep Report, bad *Violation) {
	w := newWorld(p)
	w.struck = struck
	defer func() {
		rep = w.report
		rep.Events, rep.Elapsed = w.count, w.now
		switch x := recover().(type) {
		case nil:
		case *Violation:
			bad = x
		default:
			bad = w.violation("no panic", "%v\n%s", x, debug.Stack())
		}
	}()
	w.run()
	return w.report, nil
}

func newWorld(p Plan) *world {
	w := &world{plan: p, rand: rand.New(rand.NewPCG(p.Seed, 0x51a)), forced: map[fsm.TopicPartition]forced{}}
	w.raft, w.walls = newRaft(w), make([]int, p.Nodes)
	w.before = w.raft.image
	for i := range p.Nodes {
		w.nodes = append(w.nodes, newNode(w, i))
		w.cut = append(w.cut, make([]int, p.Nodes))
		w.slow = append(w.slow, make([]time.Duration, p.Nodes))
	}
	return w
}

// run is the whole of a run: formation, faults, healing, the last look.
func (w *world) run() {
	w.raft.begin()
	for _, n := range w.nodes {
		n.start()
	}
	w.form()
	for _, f := range w.plan.Faults {
		w.after(max(f.At-w.now, 0), func() { w.inflict(f) })
	}
	w.until(w.plan.Span, func() bool { return false })
	for _, f := range w.plan.More {
		if w.enough() {
			break
		}
		w.until(f.At, func() bool { return false })
		w.inflict(f)
	}
	w.heal()
	w.finish()
}

// enough tells whether as much has happened as each seed must see.
func (w *world) enough() bool {
	return w.count >= enoughEvents && w.report.Faults >= enoughFaults && w.report.Acked >= enoughAcked
}

// until runs events up to a time, or until done holds.
func (w *world) until(limit time.Duration, done func() bool) bool {
	for len(w.queue) > 0 && w.queue[0].at <= limit {
		if done() {
			return true
		}
		w.step()
	}
	w.now = max(w.now, limit)
	return done()
}

// step runs the first event, or puts it off while its node stands still.
func (w *world) step() {
	e := w.queue.pop()
	if n := e.node; n != nil {
		if n.life != e.life || !n.up {
			return
		}
		if held := n.heldUntil(e.lane); held > e.at {
			e.at = held
			w.queue.push(e)
			return
		}
	}
	w.now = max(w.now, e.at)
	w.count++
	w.sum(e)
	if e.node != nil {
		e.node.guard(e.fn)
	} else {
		e.fn()
	}
	w.checkTouched()
	if w.count%checkEvery == 0 {
		w.checkAll()
	}
}

// sum takes a step into the sum over their order.
func (w *world) sum(e event) {
	x := uint64(w.now)<<4 ^ e.seq<<20 ^ uint64(e.lane)
	if e.node != nil {
		x ^= uint64(e.node.id) << 1
	}
	const odd = 0x9e3779b97f4a7c15 // mixes upwards, the rotation downwards
	w.report.Steps = bits.RotateLeft64(w.report.Steps^x, 29) * odd
}

// after runs fn of no node after a while.
func (w *world) after(d time.Duration, fn func()) { w.push(event{at: w.now + d, fn: fn}) }

func (w *world) push(e event) {
	w.seq++
	e.seq = w.seq
	w.queue.push(e)
}

// between draws a time.
func (w *world) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.rand.Int64N(int64(most-least)+1))
}

// chance is true in that many of a thousand cases.
func (w *world) chance(perMille int) bool { return w.rand.IntN(1000) < perMille }

// reaches tells whether a message sent now can arrive.
func (w *world) reaches(from, to *node) bool { return from == to || w.cut[from.index][to.index] == 0 }

// transit is how long a message takes. Most are quick, a few are not.
func (w *world) transit(from, to *node) time.Duration {
	if from == to {
		return 10 * time.Microsecond
	}
	d := w.between(50*time.Microsecond, 2*time.Millisecond)
	if w.chance(20) {
		d += w.between(0, 100*time.Millisecond)
	}
	return d + w.slow[from.index][to.index]
}

// fail ends the run.
func (w *world) fail(invariant, format string, args ...any) {
	panic(w.violation(invariant, format, args...))
}

func (w *world) violation(invariant, format string, args ...any) *Violation {
	return &Violation{
		Seed: w.plan.Seed, Event: w.count, At: w.now, HealedAt: w.healedAt, Invariant: invariant,
		Detail: fmt.Sprintf(format, args...), Trail: append(w.trail.lines(), w.picture()...),
	}
}

// picture is the state of the cluster in words.
func (w *world) picture() []string {
	im := w.raft.image
	var out []string
	for _, n := range w.nodes {
		out = append(out, n.String())
	}
	for _, p := range w.parts {
		s, ok := im.Partition(p.tp)
		if !ok {
			continue
		}
		out = append(out, fmt.Sprintf("%s: %v, committed to %d", p.name(), stateText(s), p.end))
	}
	return out
}

// node returns the node of a broker id.
func (w *world) node(id fsm.BrokerID) *node {
	if id < 1 || int(id) > len(w.nodes) {
		return nil
	}
	return w.nodes[id-1]
}

// part returns the model of a partition; it begins with the first call.
func (w *world) part(tp fsm.TopicPartition) *part {
	for _, p := range w.parts {
		if p.tp == tp {
			return p
		}
	}
	w.fail("known partitions", "nobody created partition %x-%d", tp.Topic[:4], tp.Partition)
	return nil
}

// touch has a partition checked after this event.
func (w *world) touch(p *part) {
	if !slices.Contains(w.touched, p) {
		w.touched = append(w.touched, p)
	}
}

// trail keeps the last events, to be put in words only when a run fails.
type trail struct {
	ring [256]note
	next int
}

type note struct {
	at     time.Duration
	step   int
	node   fsm.BrokerID
	format string
	args   [4]any
	n      int
}

// note remembers an event of a node (0: of none). Arguments are kept as they are
// and must not change afterwards.
func (w *world) note(n fsm.BrokerID, format string, args ...any) {
	t := &w.trail
	e := &t.ring[t.next%len(t.ring)]
	t.next++
	e.at, e.step, e.node, e.format, e.n = w.now, w.count, n, format, copy(e.args[:], args)
}

func (t *trail) lines() []string {
	var out []string
	for i := max(0, t.next-len(t.ring)); i < t.next; i++ {
		e := &t.ring[i%len(t.ring)]
		out = append(out, fmt.Sprintf("%9.4fs #%d node %d: %s", e.at.Seconds(), e.step, e.node, fmt.Sprintf(e.format, e.args[:e.n]...)))
	}
	return out
}

// events is a heap by time, then by order of making.
type events []event

func (q events) less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}

func (q *events) push(e event) {
	*q = append(*q, e)
	h := *q
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.less(i, up) {
			return
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

func (q *events) pop() event {
	h := *q
	top, last := h[0], len(h)-1
	h[0], h[last] = h[last], event{}
	h = h[:last]
	*q = h
	for i := 0; ; {
		low := 2*i + 1
		if low >= last {
			return top
		}
		if low+1 < last && h.less(low+1, low) {
			low++
		}
		if !h.less(low, i) {
			return top
		}
		h[i], h[low] = h[low], h[i]
		i = low
	}
}
