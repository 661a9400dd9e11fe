package sim

import (
	"errors"

	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
)

// What the controller does for other nodes, as package controller does it.

type registered struct {
	epoch   fsm.BrokerEpoch
	index   uint64
	refusal error
}

func (t *term) register(c fsm.RegisterBroker, reply func(any, error)) {
	t.post(func(then func()) {
		if cur, ok := t.n.im.Broker(c.ID); ok {
			c.SessionLive = !cur.Fenced || t.live.Live(cur.ID, cur.Epoch, t.n.clock())
		}
		t.commit([]fsm.Command{c}, func(res []fsm.Result, index uint64) {
			got := registered{fsm.BrokerEpoch(res[0].Epoch), index, res[0].Err}
			if got.refusal == nil {
				t.live.Heartbeat(c.ID, got.epoch, t.n.clock())
			}
			reply(got, nil)
			then()
		}, func(err error) {
			reply(nil, err)
			then()
		})
	})
}

type beat struct {
	id      fsm.BrokerID
	epoch   fsm.BrokerEpoch
	settled uint64 // index of the Image that the reconciler has acted on
	ready   bool
}

type beatReply struct {
	stale, fenced bool
	index         uint64 // of the controller's Image
}

func (t *term) heartbeat(r beat, reply func(any, error)) {
	arrived := t.n.clock()
	t.post(func(then func()) {
		b, ok := t.n.im.Broker(r.id)
		if !ok || b.Epoch != r.epoch {
			t.beats = append(t.beats, func(err error) { reply(beatReply{stale: true}, err) })
			then()
			return
		}
		t.live.Heartbeat(r.id, r.epoch, arrived)
		answer := func(fenced bool) {
			index := t.n.im.Index()
			t.beats = append(t.beats, func(err error) { reply(beatReply{fenced: fenced, index: index}, err) })
			then()
		}
		if r.ready && b.Fenced && !b.Stopping && r.settled >= uint64(b.Epoch) {
			t.n.w.note(t.n.id, "unfences broker %d at epoch %d", b.ID, b.Epoch)
			t.commitWithElections([]fsm.Command{fsm.UnfenceBroker{ID: b.ID, Epoch: b.Epoch}}, func() { answer(false) })
			return
		}
		answer(b.Fenced)
	})
}

func (t *term) stopBroker(id fsm.BrokerID, epoch fsm.BrokerEpoch, reply func(any, error)) {
	t.post(func(then func()) {
		stop := fsm.StopBroker{ID: id, Epoch: epoch}
		im, res := fsm.Apply(t.n.im, t.n.im.Index()+1, stop)
		if res.Err != nil {
			reply(t.n.im.Index(), nil)
			then()
			return
		}
		t.commit(packed([]fsm.Command{stop}, elect.HandOff(im, id))[0], func(_ []fsm.Result, index uint64) {
			reply(index, nil)
			then()
		}, func(err error) {
			reply(nil, err)
			then()
		})
	})
}

// propose commits an entry of a node's command.
func (t *term) propose(data []byte, reply func(any, error)) {
	t.n.w.raft.propose(t.n, t.number, data, func(e *metaEntry, err error) { reply(e, err) })
}

// sync names the index that a starting node must reach.
func (t *term) sync(reply func(any, error)) {
	index := t.n.im.Index()
	t.beats = append(t.beats, func(err error) { reply(index, err) })
	t.wake()
}

// createTopic places a topic on the brokers and creates it.
func (t *term) createTopic(p TopicPlan, seed uint64, reply func(any, error)) {
	im, w := t.n.im, t.n.w
	if _, ok := im.TopicByName(p.Name); ok {
		reply(true, nil)
		return
	}
	lists, err := elect.Place(im, p.Partitions, p.Replicas, seed)
	if err != nil {
		reply(nil, errNotController) // too few brokers yet: asked again
		return
	}
	w.topics++ // no id is proposed twice
	id := fsm.TopicID{byte(w.topics), byte(w.topics >> 8), 0xff}
	c := fsm.CreateTopic{ID: id, Name: p.Name, Configs: w.plan.configs(p)}
	for _, replicas := range lists {
		np, ok := elect.Initial(im, replicas)
		if !ok {
			reply(nil, errNotController)
			return
		}
		c.Partitions = append(c.Partitions, np)
	}
	w.raft.propose(t.n, t.number, fsm.EncodeEntry(nil, []fsm.Command{c}), func(e *metaEntry, err error) {
		if err == nil && e.results[0].Err != nil && !errors.Is(e.results[0].Err, fsm.TopicExists) {
			err = errNotController // a broker was fenced in between
		}
		reply(true, err)
	})
}
