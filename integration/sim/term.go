package sim

import (
	"time"

	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// term is one stretch of a node's leadership as controller: the loop of package
// controller, whose steps wait for each commit. It decides from the newest Image
// and from soft state that dies with it.
type term struct {
	n        *node
	life     int
	number   int
	deciding bool // the barrier has passed
	ended    bool
	busy     bool // a step waits for its commit
	posted   []func(then func())
	wakeSeq  int

	live      *elect.Liveness
	beats     []func(error)
	verifying bool
	probing   map[fsm.BrokerID]bool
	elected   *fsm.Image
	recovery  *elect.Recovery
	handedOff time.Time
}

const (
	handOffPause    = 100 * time.Millisecond
	questionPause   = 200 * time.Millisecond
	questionTimeout = 2 * time.Second
	clusterID       = "simulated"
)

// redialPauses lie between the dials of a suspected broker, as in package controller.
var redialPauses = [...]time.Duration{
	40 * time.Millisecond, 40 * time.Millisecond, 80 * time.Millisecond, 160 * time.Millisecond, 320 * time.Millisecond, 0,
}

// beginTerm decides nothing before the barrier of the term has passed.
func (n *node) beginTerm(number int) {
	if n.leadTerm != number {
		return
	}
	t := &term{n: n, life: n.life, number: number, probing: map[fsm.BrokerID]bool{}, recovery: elect.NewRecovery(questionPause)}
	n.term = t
	n.w.raft.propose(n, number, nil, func(_ *metaEntry, err error) {
		if err != nil || t.ended {
			t.abandon()
			return
		}
		t.begin()
	})
}

func (t *term) begin() {
	t.live = elect.NewLiveness(session)
	t.live.Takeover(t.n.clock(), t.n.im)
	t.deciding = true
	for b := range t.n.im.Brokers() {
		if !b.Fenced {
			t.probe(b.ID)
		}
	}
	if t.n.im.ClusterID() == "" {
		t.busy = true
		t.commit([]fsm.Command{fsm.InitCluster{ClusterID: clusterID}}, func([]fsm.Result, uint64) { t.act() }, t.abandonOn)
		return
	}
	t.act()
}

// end stops the loop.
func (t *term) end() { t.ended = true }

// abandon ends a loop after an error; if the node still leads, another one
// begins after a breath.
func (t *term) abandon() {
	t.end()
	n, number := t.n, t.number
	if n.leadTerm == number {
		n.do(retryPause, laneControl, func() {
			if n.term == t {
				n.beginTerm(number)
			}
		})
	}
}

func (t *term) abandonOn(error) { t.abandon() }

// post has the loop do something; it calls then when it is done.
func (t *term) post(fn func(then func())) {
	if t.ended {
		return
	}
	t.posted = append(t.posted, fn)
	t.next()
}

func (t *term) next() {
	if t.busy || t.ended || len(t.posted) == 0 {
		return
	}
	fn := t.posted[0]
	t.posted = t.posted[1:]
	t.busy = true
	fn(t.act)
}

// wake is called when the Image changed.
func (t *term) wake() {
	if t.deciding && !t.busy && !t.ended {
		t.act()
	}
}

// act does all that time and the newest Image call for, then sleeps.
func (t *term) act() {
	if t.ended {
		return
	}
	t.busy = true
	t.fenceExpired(func() {
		t.electLeaders(func() {
			t.recoverLeaders(func(again time.Duration) {
				t.handOver(func(next time.Duration) {
					t.finishReassignments(func() {
						t.assignSlots(func() {
							t.verify()
							t.sleep(min(again, next))
						})
					})
				})
			})
		})
	})
}

func (t *term) sleep(next time.Duration) {
	t.busy = false
	if len(t.posted) > 0 {
		t.next()
		return
	}
	next = min(next, max(t.live.WakeAt().Sub(t.n.clock()), 0))
	t.wakeSeq++
	seq := t.wakeSeq
	t.n.do(next+time.Microsecond, laneControl, func() {
		if seq == t.wakeSeq && !t.busy && !t.ended {
			t.act()
		}
	})
}

// commit gets commands into the log as one entry. Without an error then is called,
// with the node's own Image past it.
func (t *term) commit(cs []fsm.Command, then func([]fsm.Result, uint64), failed func(error)) {
	t.n.w.raft.propose(t.n, t.number, fsm.EncodeEntry(nil, cs), func(e *metaEntry, err error) {
		switch {
		case t.ended:
		case err != nil:
			failed(err)
		default:
			then(e.results, e.index)
		}
	})
}

// commitAll commits entries one after the other.
func (t *term) commitAll(entries [][]fsm.Command, then func()) {
	if len(entries) == 0 {
		then()
		return
	}
	t.commit(entries[0], func([]fsm.Result, uint64) { t.commitAll(entries[1:], then) }, t.abandonOn)
}

func (t *term) fenceExpired(then func()) {
	var fences []fsm.Command
	for _, f := range t.live.Expired(t.n.clock(), t.n.im) {
		t.n.w.note(t.n.id, "fences broker %d at epoch %d", f.ID, f.Epoch)
		fences = append(fences, f)
	}
	t.commitWithElections(fences, then)
}

// commitWithElections commits facts together with the leaders they call for.
func (t *term) commitWithElections(facts []fsm.Command, then func()) {
	if len(facts) == 0 {
		then()
		return
	}
	im := t.n.im
	for _, f := range facts {
		im, _ = fsm.Apply(im, im.Index()+1, f)
	}
	t.commitAll(packed(facts, elect.Leaders(im)), then)
}

func packed(facts []fsm.Command, items []fsm.LeaderChange) [][]fsm.Command {
	if len(items) > 0 {
		facts = append(facts, fsm.ChangeLeaders{Items: items})
	}
	if len(facts) == 0 {
		return nil
	}
	return [][]fsm.Command{facts}
}

func (t *term) electLeaders(then func()) {
	im := t.n.im
	if t.elected != nil && !elect.MayDiffer(t.elected, im) {
		t.elected = im
		then()
		return
	}
	t.elected = im
	t.recovery.Update(im)
	t.commitAll(packed(nil, elect.Leaders(im)), then)
}

// recoverLeaders finds leaders for partitions of which only the last members are
// left, by asking them for their logs.
func (t *term) recoverLeaders(then func(time.Duration)) {
	var items []fsm.LeaderChange
	for _, d := range t.recovery.Decide(t.n.im) {
		items = append(items, d.Change)
	}
	t.commitAll(packed(nil, items), func() {
		for _, q := range t.recovery.Questions(t.n.clock()) {
			t.ask(q)
		}
		at, more := t.recovery.WakeAt()
		if !more {
			then(time.Hour)
			return
		}
		then(max(at.Sub(t.n.clock()), 0))
	})
}

// ask gets one question answered; the loop takes the answer.
func (t *term) ask(q elect.Question) {
	t.question(q, func(answers []elect.Answer, ok bool) {
		t.post(func(then func()) {
			if ok {
				t.recovery.Answered(q, answers, t.n.clock())
			} else {
				t.recovery.Failed(q, t.n.clock())
			}
			then()
		})
	})
}

// question asks a broker; done is called once.
func (t *term) question(q elect.Question, done func([]elect.Answer, bool)) {
	n, w, to := t.n, t.n.w, t.n.w.node(q.Broker)
	over := false
	finish := func(answers []elect.Answer, ok bool) {
		if !over {
			over = true
			done(answers, ok)
		}
	}
	n.do(questionTimeout, laneControl, func() { finish(nil, false) })
	if !to.up || !w.reaches(n, to) || !w.reaches(to, n) {
		return
	}
	life := n.life
	to.do(w.transit(n, to), laneData, func() {
		answers, ok := to.logEnds(q)
		if w.reaches(to, n) && n.life == life {
			n.do(w.transit(to, n), laneControl, func() { finish(answers, ok) })
		}
	})
}

// logEnds tells where this node's logs end, once its roles follow an Image that is
// not older than the question's.
func (n *node) logEnds(q elect.Question) ([]elect.Answer, bool) {
	if n.epoch != q.Epoch || n.reconciled == nil || n.reconciled.Index() < q.Index {
		return nil, false
	}
	var answers []elect.Answer
	for _, tp := range q.Partitions {
		end := elect.LogEnd{Broker: n.id, Epoch: batch.NoEpoch}
		if r := n.replica(tp); r != nil {
			end = elect.EndOf(n.id, r.log, r.damaged())
		}
		answers = append(answers, elect.Answer{TP: tp, End: end, Epoch: n.epoch})
	}
	return answers, true
}

// handOver moves what stopping brokers still lead.
func (t *term) handOver(then func(time.Duration)) {
	var entries [][]fsm.Command
	stopping := false
	for b := range t.n.im.Brokers() {
		if !b.Stopping || b.Fenced {
			continue
		}
		if wait := handOffPause - t.n.clock().Sub(t.handedOff); wait > 0 {
			then(wait)
			return
		}
		stopping = true
		entries = append(entries, packed(nil, elect.HandOff(t.n.im, b.ID))...)
	}
	if !stopping {
		then(time.Hour)
		return
	}
	t.handedOff = t.n.clock()
	t.commitAll(entries, func() { then(handOffPause) })
}

// verify confirms the leadership for the heartbeats that have arrived, and then
// answers them.
func (t *term) verify() {
	if t.verifying || len(t.beats) == 0 {
		return
	}
	beats := t.beats
	t.beats, t.verifying = nil, true
	t.n.do(t.n.w.between(100*time.Microsecond, 3*time.Millisecond), laneControl, func() {
		r := t.n.w.raft
		var err error
		if t.ended || t.number != r.term || !r.quorum(t.n) {
			err = errNotController
		}
		for _, b := range beats {
			b(err)
		}
		t.verifying = false
		t.wake()
	})
}

// probe redials a broker that may be dead. Two refusals end its session.
func (t *term) probe(id fsm.BrokerID) {
	b, ok := t.n.im.Broker(id)
	if !ok || b.Fenced || id == t.n.id || t.probing[id] {
		return
	}
	t.probing[id] = true
	t.redial(b, 0, 0)
}

func (t *term) redial(b fsm.Broker, n, refusals int) {
	if t.ended || n == len(redialPauses) {
		delete(t.probing, b.ID)
		return
	}
	if !t.n.refusedBy(t.n.w.node(b.ID)) {
		refusals = 0
	} else if refusals++; refusals == 1 {
		t.post(func(then func()) {
			t.live.Reported(b.ID, b.Epoch, t.n.clock())
			then()
		})
	} else {
		delete(t.probing, b.ID)
		t.post(func(then func()) {
			t.live.Refused(b.ID, b.Epoch, t.n.clock())
			then()
		})
		return
	}
	t.n.do(redialPauses[n], laneControl, func() { t.redial(b, n+1, refusals) })
}

// refusedBy tells whether a dial is refused: the host is there and no process is, or a firewall
// answers for it.
func (n *node) refusedBy(m *node) bool {
	return n.w.walledOff(n, m) || m != n && !m.up && !m.dark && n.w.reaches(n, m) && n.w.reaches(m, n)
}
