package sim

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// groupID is the one group of a run that has one.
const groupID = "readers"

// Answers to a consumer.
var (
	errNotCoordinator = errors.New("not the coordinator")
	errLost           = errors.New("no answer")
)

// tenure is what a node knows as the owner of the group's slot, as package broker's
// groups do: changes wait while one command is on its way, and a command without an
// answer is repeated until it is taken or the tenure is over.
type tenure struct {
	n       *node
	epoch   int32
	seq     uint64
	waiting []groupWork
	busy    bool
	ended   bool
	began   int   // the number of the newest connection when it began
	commits int   // of the newest that the member committed on
	joined  int32 // the newest generation that was put, stored or not
}

// groupWork is one change with who waits for it.
type groupWork struct {
	change fsm.GroupChange
	done   func(error)
}

// slotChanged begins and ends the node's tenure as its Image says.
func (n *node) slotChanged() {
	if !n.w.plan.Group {
		return
	}
	s := n.im.Slot(fsm.SlotOf(groupID))
	t := n.tenure
	if t != nil && (s.Owner != n.id || s.Epoch != t.epoch) {
		n.tenure = nil
		t.end()
	}
	if b, ok := n.im.Broker(n.id); n.tenure == nil && s.Owner == n.id && ok && b.Epoch == n.epoch {
		n.tenure = &tenure{n: n, epoch: s.Epoch, seq: s.Seq, began: n.w.conns}
	}
}

func (t *tenure) end() {
	t.ended = true
	for _, x := range t.waiting {
		x.done(errNotCoordinator)
	}
	t.waiting = nil
}

// put has a change of the group stored.
func (t *tenure) put(c fsm.GroupChange, done func(error)) {
	t.waiting = append(t.waiting, groupWork{c, done})
	t.work()
}

func (t *tenure) work() {
	if t.busy || t.ended || len(t.waiting) == 0 {
		return
	}
	sent := t.waiting
	t.waiting, t.busy = nil, true
	t.seq++
	cmd := fsm.SlotCommand{Slot: fsm.SlotOf(groupID), Epoch: t.epoch, Seq: t.seq}
	for _, x := range sent {
		cmd.Changes = append(cmd.Changes, x.change)
	}
	t.send(cmd, func(res fsm.Result, err error) {
		t.busy = false
		for i, x := range sent {
			switch {
			case err != nil:
				x.done(err)
			case i < len(res.Items):
				x.done(res.Items[i])
			default:
				x.done(nil)
			}
		}
		t.work()
	})
}

// send repeats a command until it is taken or the tenure is over.
func (t *tenure) send(cmd fsm.SlotCommand, done func(fsm.Result, error)) {
	t.n.propose(session/2, cmd, func(res fsm.Result, err error) {
		switch {
		case t.ended || err == nil && res.Err != nil:
			done(res, errNotCoordinator)
		case err == nil:
			done(res, nil)
		default:
			t.n.do(50*time.Millisecond, laneControl, func() { t.send(cmd, done) })
		}
	})
}

// consumer is the one member of the group. It reads on within a generation and commits
// how far it is; now and then it joins again and begins somewhere before that. Its ghost
// is a member that has not heard of the new generation.
type consumer struct {
	caller
	tp         fsm.TopicPartition
	generation int32 // 0: not joined
	sent       batch.Offset
	acked      batch.Offset // in this generation
	joining    bool
	leaves     *rand.Rand    // of its own, of runs in which it leaves
	leaving    bool          // now and then
	awayUntil  time.Duration // it has left
	tried      int32         // the newest generation that was asked for
	watcher    *caller       // somebody else, who asks what is committed
}

// caller is a client's connection to whom it takes for the coordinator.
type caller struct {
	w       *world
	conn    int // the number of its present connection, of all that there ever were
	asked   int // requests, ever
	served  int // the newest of them on this connection that a node looked at
	at      *node
	arrives time.Duration
}

func (w *world) newConsumer() {
	c := &consumer{caller: caller{w: w}, watcher: &caller{w: w}, leaving: w.plan.stepsClocks()}
	w.after(time.Second, c.run)
}

func (c *consumer) run() {
	w := c.w
	w.after(w.between(40*time.Millisecond, 300*time.Millisecond), c.run)
	t, ok := w.raft.image.TopicByName(w.plan.Topics[0].Name)
	if !ok || c.leaving && c.leave() {
		return
	}
	if tp := (fsm.TopicPartition{Topic: t.ID}); c.tp != tp || c.generation == 0 || w.chance(20) {
		c.join(tp)
		return
	}
	if w.chance(30) && c.generation > 1 { // its ghost
		generation := c.generation - 1
		c.commit(generation, 0, func(err error) {
			if err == nil {
				w.fail("commits of an old generation are refused", "one of generation %d was stored", generation)
			}
		})
		return
	}
	c.sent += batch.Offset(1 + w.rand.IntN(4))
	generation, offset := c.generation, c.sent
	c.commit(generation, offset, func(err error) {
		if err == nil && c.generation == generation {
			c.acked = max(c.acked, offset)
		}
	})
	if w.chance(300) {
		c.fetch()
	}
}

// join begins a generation.
func (c *consumer) join(tp fsm.TopicPartition) {
	if c.joining {
		return
	}
	w := c.w
	c.put(func(_ *tenure, next int32) *fsm.Group {
		return &fsm.Group{
			ID: groupID, Kind: fsm.ClassicGroup, Epoch: next, ProtocolType: "consumer", Protocol: "range", Leader: "member",
			Members: []fsm.GroupMember{{ID: "member", ClientID: "sim", SessionMs: 10_000, RebalanceMs: 10_000,
				Protocols: []fsm.GroupProtocol{{Name: "range"}}}},
		}
	}, func(next int32, err error) {
		if err == nil {
			c.generation, c.tp = next, tp
			c.acked, c.sent = 0, batch.Offset(w.rand.Int64N(int64(c.sent)+1))
		} else {
			c.generation = 0 // it may have begun
		}
	})
}

// put has the group become another one, of the next generation.
func (c *consumer) put(group func(t *tenure, next int32) *fsm.Group, done func(next int32, err error)) {
	c.joining = true
	c.tried++ // an earlier one may yet begin
	next := c.tried
	c.ask(func(t *tenure, _ int, done func(error)) {
		if now, ok := t.n.im.Group(groupID); next <= t.joined || ok && now.Epoch >= next {
			done(errNotCoordinator) // what the core of a coordinator would not decide
			return
		}
		t.joined = next
		t.put(fsm.PutGroup{Group: group(t, next)}, done)
	}, func(err error) {
		c.joining = false
		done(next, err)
	})
}

func (c *consumer) commit(generation int32, offset batch.Offset, done func(error)) {
	req := fsm.CommitOffsets{
		Group: groupID, Member: "member", Epoch: generation, ExpireMs: -1,
		Topics: []fsm.CommitTopic{{Topic: c.tp.Topic, Partitions: []fsm.CommitPartition{{Partition: c.tp.Partition, LeaderEpoch: -1, Offset: offset}}}},
	}
	c.ask(func(t *tenure, conn int, done func(error)) {
		if conn <= t.began || conn < t.commits {
			done(errLost) // it may be late: the connection is closed
			return
		}
		t.commits = conn
		req.CommitMs = t.n.wall().UnixMilli()
		t.put(req, done)
	}, done)
}

// fetch asks the coordinator what is committed, as who commits or as somebody else, who may not
// have heard of a new coordinator. It answers when its Image is as new as the controller's was after
// the question, if the slot is still its own then.
func (c *consumer) fetch() {
	generation, tp, acked := c.generation, c.tp, c.acked
	who := &c.caller
	if c.w.chance(700) {
		who = c.watcher
	}
	who.ask(func(t *tenure, _ int, done func(error)) {
		if !t.n.fresh() {
			done(errNotCoordinator)
			return
		}
		t.n.sync(syncWait, func(err error) {
			if err != nil || t.ended || !t.n.fresh() {
				done(errNotCoordinator)
				return
			}
			c.w.checkCommitted(t.n, tp, generation, acked)
			done(nil)
		})
	}, func(error) {})
}

// checkCommitted checks what a coordinator tells a member of a generation that knew of acked
// when it asked.
func (w *world) checkCommitted(n *node, tp fsm.TopicPartition, generation int32, acked batch.Offset) {
	if g, ok := n.im.Group(groupID); !ok || g.Epoch != generation {
		return
	}
	got, _ := n.im.Committed(groupID, tp)
	if _, exists := w.raft.image.Partition(tp); exists && got.Offset < acked {
		w.fail("acknowledged commits are read", "node %d reads %d in generation %d, where %d was acknowledged", n.id, got.Offset, generation, acked)
	}
}

// ask sends a request to whom some node takes for the coordinator. Requests of one
// connection arrive in order. One that is not answered in time ends the connection for the
// client; what it sent on it while the network was cut may arrive all the same, seconds later.
func (c *caller) ask(serve func(t *tenure, conn int, done func(error)), done func(error)) {
	w := c.w
	if c.at == nil {
		some := w.nodes[w.rand.IntN(len(w.nodes))]
		if !some.awake() || some.im == nil {
			done(errLost)
			return
		}
		c.at = w.node(some.im.Slot(fsm.SlotOf(groupID)).Owner)
		w.conns++
		c.conn, c.served, c.arrives = w.conns, 0, w.now
	}
	c.asked++
	to, conn, number := c.at, c.conn, c.asked
	over := false
	finish := func(err error) {
		if over {
			return
		}
		over = true
		if errors.Is(err, errNotCoordinator) || errors.Is(err, errLost) {
			if conn == c.conn {
				c.at = nil
			}
		}
		done(err)
	}
	w.after(requestTimeout, func() { finish(errLost) })
	if to == nil || !to.up || to.clientCut > w.now && w.chance(500) {
		return
	}
	c.arrives = max(c.arrives, w.now+w.between(50*time.Microsecond, 2*time.Millisecond))
	if to.clientCut > w.now {
		c.arrives = max(c.arrives, to.clientCut+w.between(0, 4*time.Second)) // when it is sent again
	}
	to.do(c.arrives-w.now, laneData, func() {
		t := to.tenure
		if conn == c.conn {
			if number < c.served { // a pause that healing cut short would let it arrive after later ones
				return
			}
			c.served = number
		}
		if t == nil || t.ended {
			finish(errNotCoordinator)
			return
		}
		serve(t, conn, func(err error) {
			if to.answersLost > w.now && w.chance(700) {
				return
			}
			w.after(w.between(50*time.Microsecond, 2*time.Millisecond), func() { finish(err) })
		})
	})
}

// committed is how far the group has come in a generation, by what is stored.
type committed struct {
	generation int32
	tp         fsm.TopicPartition
	offset     batch.Offset
}

// checkOffsets checks that what the group has committed does not go back within a
// generation. Its first commit there may be anywhere.
func (w *world) checkOffsets() {
	if !w.plan.Group {
		return
	}
	g, ok := w.raft.image.Group(groupID)
	if !ok {
		return
	}
	if was, ok := w.before.Group(groupID); !ok || was.Epoch != g.Epoch {
		w.stored = committed{}
		return // the entry may hold commits of both
	}
	w.checkKept(g)
	for tp, now := range w.raft.image.CommittedOf(groupID) {
		if was, ok := w.before.Committed(groupID, tp); ok && was.Offset == now.Offset {
			continue
		}
		c := committed{g.Epoch, tp, now.Offset}
		if last := w.stored; last.generation == c.generation && last.tp == tp && c.offset < last.offset {
			w.fail("committed offsets never go back within a generation", "from %d to %d in generation %d", last.offset, c.offset, g.Epoch)
		}
		w.stored = c
	}
}

// assignSlots spreads the slots over the brokers.
func (t *term) assignSlots(then func()) {
	if !t.n.w.plan.Group {
		then()
		return
	}
	items := elect.Slots(t.n.im)
	if len(items) == 0 {
		then()
		return
	}
	t.commitAll([][]fsm.Command{{fsm.AssignSlots{Items: items}}}, then)
}
