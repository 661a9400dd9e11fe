package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire/batch"
)

// producer is an idempotent client that writes to one partition, with up to five
// batches in flight, and never gives one up.
type producer struct {
	w         *world
	id        int64
	part      *part // nil while the topic is not there
	topic     string
	partition int32
	plain     bool // not idempotent, acks=1, never sends again
	serial    int
	next      int32
	unacked   []*outgoing // in order
	gen       int         // of the connection; answers on an older one are ignored
	target    *node
	arrives   time.Duration // of the last request on the connection
	quiet     bool          // makes no new batches
	due       bool          // an event sends again
	acks      int           // batches acknowledged
	losses    int           // of the partition, when the producer began
}

// outgoing is one batch of a producer.
type outgoing struct {
	producer int64
	sequence int32
	count    int32
	bytes    []byte
	acked    bool
}

const (
	inFlightMax    = 5
	requestTimeout = 1500 * time.Millisecond
)

// newProducer begins a client for a partition of the topic that has the name now.
func (w *world) newProducer(topic string, partition int32) *producer {
	p := &producer{w: w, topic: topic, partition: partition, id: int64(len(w.clients) + 1)}
	w.clients = append(w.clients, p)
	w.after(w.between(0, 300*time.Millisecond), p.run)
	return p
}

// run makes a new batch now and then, or a burst of them.
func (p *producer) run() {
	w := p.w
	w.after(w.between(50*time.Millisecond, 350*time.Millisecond), p.run)
	if p.quiet || !p.find() {
		return
	}
	if p.plain {
		p.scatter()
		return
	}
	n := 1
	if w.chance(150) {
		n = inFlightMax
	}
	for ; n > 0 && len(p.unacked) < p.inFlight(); n-- {
		p.make()
		if p.target != nil {
			p.send(p.unacked[len(p.unacked)-1])
		}
	}
	if p.target == nil {
		p.again(0)
	}
}

// inFlight bounds the batches in flight. A log takes any sequence from a producer
// that it does not know, as Kafka does; so the second batch must not overtake the
// first before a leader knows the producer.
func (p *producer) inFlight() int {
	if p.acks == 0 {
		return 1
	}
	return inFlightMax
}

// find looks the topic up; a topic that was made anew is another one.
func (p *producer) find() bool {
	t, ok := p.w.raft.image.TopicByName(p.topic)
	if !ok {
		return false
	}
	if p.part == nil || p.part.tp.Topic != t.ID {
		p.part = p.w.part(fsm.TopicPartition{Topic: t.ID, Partition: p.partition})
		p.renew()
	}
	return true
}

// renew begins with a new producer id. What was in flight is given up.
func (p *producer) renew() {
	p.losses = p.part.losses
	p.w.producers++
	p.id = int64(p.w.producers)
	p.next, p.acks, p.unacked, p.target = 0, 0, nil, nil
	p.gen++
	if !p.plain {
		p.part.sequences = append(p.part.sequences, sequenceOf{producer: p.id})
	}
}

// make builds the next batch.
func (p *producer) make() *outgoing {
	w := p.w
	p.serial++
	now := w.wall().UnixMilli()
	b := batch.NewBuilder(now)
	o := &outgoing{producer: p.id, sequence: p.next, count: int32(1 + w.rand.IntN(3))}
	for i := range o.count {
		b.Add(now, nil, fmt.Appendf(nil, "%d/%d/%d", p.id, p.serial, i))
	}
	if !p.plain {
		b.Producer(p.id, 0, p.next)
		p.next += o.count
		p.unacked = append(p.unacked, o)
	}
	o.bytes = b.Bytes()
	return o
}

// send puts one request on the connection.
func (p *producer) send(o *outgoing) {
	w, to, gen, part := p.w, p.target, p.gen, p.part
	d := w.between(50*time.Microsecond, 2*time.Millisecond)
	if w.chance(20) {
		d = w.between(0, 400*time.Millisecond)
	}
	p.arrives = max(p.arrives, w.now+d)
	w.after(requestTimeout, func() { p.lost(gen, o) })
	if to.clientCut > w.now {
		return
	}
	at := p.arrives - w.now
	if !to.up {
		w.after(at, func() { p.lost(gen, o) })
		return
	}
	bytes := slices.Clone(o.bytes)
	to.do(at, laneData, func() {
		to.produce(part.tp, bytes, -1, func(got storage.Appended, err error) {
			if to.clientCut > w.now || to.answersLost > w.now && w.chance(700) {
				return
			}
			if r := to.replica(part.tp); r != nil && r.overruled() {
				return
			}
			// A client that is told is told, whatever becomes of the node then.
			losses := part.losses
			w.after(w.between(50*time.Microsecond, 2*time.Millisecond), func() { p.answered(gen, part, losses, o, got, err) })
		})
	})
}

// produce is a produce request at a node.
func (n *node) produce(tp fsm.TopicPartition, p []byte, acks int, done func(storage.Appended, error)) {
	r := n.replica(tp)
	if r == nil || !n.serving() {
		done(storage.Appended{}, errUnknownPartition)
		return
	}
	b, err := n.validated(tp, p)
	if err != nil {
		done(storage.Appended{}, err)
		return
	}
	r.produce(b, acks, done)
}

// serving tells whether the client port is open: once the node was unfenced.
func (n *node) serving() bool {
	if n.opened || n.reconciled == nil || n.epoch == 0 {
		return n.opened
	}
	b, ok := n.im.Broker(n.id)
	n.opened = ok && !b.Fenced && b.Epoch == n.epoch
	return n.opened
}

// answered takes the answer to a request.
func (p *producer) answered(gen int, part *part, losses int, o *outgoing, got storage.Appended, err error) {
	w := p.w
	if err == nil && part.losses == losses {
		if _, exists := w.raft.image.Partition(part.tp); exists && !o.acked {
			part.acknowledge(o, got.First)
		}
	}
	switch {
	case gen != p.gen || o.acked:
		return
	case err == nil:
		o.acked = true
		p.acks++
		for len(p.unacked) > 0 && p.unacked[0].acked {
			p.unacked = p.unacked[1:]
		}
	case errors.Is(err, storage.ErrOutOfOrderSequence) && part.losses > p.losses:
		p.renew() // what it continued is lost
	case errors.Is(err, storage.ErrOutOfOrderSequence) && p.unacked[0] == o:
		w.fail("retries are recognised", "%s: the oldest batch in flight, p%d/%d, is out of order: %v", part.name(), p.id, o.sequence, err)
	case errors.Is(err, storage.ErrInvalidProducerEpoch):
		w.fail("retries are recognised", "%s: p%d/%d: %v", part.name(), p.id, o.sequence, err)
	default:
		p.again(w.between(10*time.Millisecond, 200*time.Millisecond))
	}
}

// lost is called when a request was not answered in time.
func (p *producer) lost(gen int, o *outgoing) {
	if gen == p.gen && !o.acked {
		p.again(0)
	}
}

// again opens a new connection, to whoever leads now as far as some node knows,
// and sends what was not acknowledged, in order.
func (p *producer) again(d time.Duration) {
	w := p.w
	p.gen++
	p.target, p.arrives = nil, 0
	if p.due {
		return
	}
	p.due = true
	w.after(d+w.between(time.Millisecond, 50*time.Millisecond), func() {
		p.due = false
		if !p.find() {
			return
		}
		p.target = p.ask()
		if p.target == nil {
			if len(p.unacked) > 0 {
				p.again(100 * time.Millisecond)
			}
			return
		}
		for _, o := range p.unacked {
			if !o.acked {
				p.send(o)
			}
		}
	})
}

// ask learns the leader from the metadata of some node.
func (p *producer) ask() *node {
	w := p.w
	n := w.nodes[w.rand.IntN(len(w.nodes))]
	if !n.awake() || n.clientCut > w.now || n.im == nil {
		return nil
	}
	s, ok := n.im.Partition(p.part.tp)
	if !ok {
		return nil
	}
	return w.node(s.Leader)
}

// scatter sends one batch with acks=1, to whoever may lead, and forgets it.
func (p *producer) scatter() {
	to := p.ask()
	if to == nil || !to.up || to.clientCut > p.w.now {
		return
	}
	o, tp := p.make(), p.part.tp
	to.do(p.w.between(0, 5*time.Millisecond), laneData, func() {
		to.produce(tp, o.bytes, 1, func(storage.Appended, error) {})
	})
}

// reader reads at random places and checks what it gets.
func (w *world) runReader() {
	w.after(w.between(50*time.Millisecond, 200*time.Millisecond), w.runReader)
	if len(w.parts) == 0 {
		return
	}
	p := w.parts[w.rand.IntN(len(w.parts))]
	n := w.nodes[w.rand.IntN(len(w.nodes))]
	if !n.awake() || n.clientCut > w.now {
		return
	}
	asked := p.end
	losses := p.losses
	acked, before := p.acked, p.ackedBy(w.now-2*heartbeat-heartbeat/2)
	from := batch.Offset(0)
	if asked > 0 {
		from = batch.Offset(w.rand.Int64N(int64(asked)))
	}
	n.do(w.between(50*time.Microsecond, 5*time.Millisecond), laneData, func() {
		r := n.replica(p.tp)
		if r == nil || !n.serving() || r.overruled() {
			return
		}
		w.report.Reads++
		if r.role == roleFollower { // followers serve what they know to be committed
			if r.follow.Told() {
				r.read(from)
			}
			return
		}
		if r.role != roleLeader || !r.mayServe() {
			return
		}
		if p.losses > losses {
			acked, before = 0, 0
		}
		if !n.fresh() {
			acked = before // its whole ISR answered, but that may have been a while ago
		}
		r.latest(acked)
		r.read(from)
	})
}

// latest is ListOffsets for the latest offset: what was acknowledged before the
// question was asked lies below the answer. A leadership that is moved by a fact while its
// leader lives may be late: docs/replication.md, what is not protected.
func (r *replica) latest(acked batch.Offset) {
	if !r.lead.Servable() || r.deposedAlive() {
		return
	}
	if r.hw < acked {
		r.n.w.fail("latest is not stale", "node %d answers %d for %s in epoch %d, where %d was acknowledged before", r.n.id, r.hw, r.part.name(), r.epoch, acked)
	}
}

// read is a fetch: whole batches below the high watermark, all of them committed.
func (r *replica) read(from batch.Offset) {
	if from < r.log.Start() || from >= r.hw {
		return
	}
	rg, err := r.log.Read(from, r.hw, 2000)
	if r.spoilt(err) {
		return // the client asks another replica, once this one has told
	}
	if err != nil {
		r.n.trouble(err)
		r.n.w.fail("logs can be read", "%s on node %d at %d below %d: %v", r.part.name(), r.n.id, from, r.hw, err)
	}
	defer rg.Release()
	p, err := r.n.w.take(rg)
	if err != nil {
		r.n.trouble(err)
		r.n.w.fail("logs can be read", "%s on node %d at %d below %d: %v", r.part.name(), r.n.id, from, r.hw, err)
	}
	if rg.End() > r.part.end {
		r.n.w.fail("what is shown is committed", "node %d serves %s to %d, committed to %d", r.n.id, r.part.name(), rg.End(), r.part.end)
	}
	for b, err := range batch.Run(p).Batches() {
		if err != nil {
			r.n.w.fail("logs can be read", "%s on node %d: %v", r.part.name(), r.n.id, err)
		}
		if x := recOf(b); r.part.recs[r.part.at(x.base)] != x {
			r.n.w.fail("what is shown is committed", "node %d serves %v of %s where %v was committed", r.n.id, x, r.part.name(), r.part.recs[r.part.at(x.base)])
		}
	}
}

// deposedAlive tells whether the cluster has ended this leadership otherwise than by the
// end of the node's session: after that it is served again only once its Image has caught up.
// Who is refused by a firewall is fenced before its session ends.
func (r *replica) deposedAlive() bool {
	im := r.n.w.raft.image
	b, ok := im.Broker(r.n.id)
	p, exists := im.Partition(r.part.tp)
	walled := r.n.walled+session > r.n.w.now
	return ok && b.Epoch == r.n.epoch && (!b.Fenced || walled) && (!exists || p.LeaderEpoch > r.epoch)
}
