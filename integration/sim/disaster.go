package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// forced is an election that an operator asked for: in which leader epoch, and who
// said where its log ends.
type forced struct {
	epoch   batch.Epoch
	brokers []fsm.BrokerID
}

// strikeAll is a fault of more than one machine.
func (w *world) strikeAll(f Fault, r *rand.Rand) bool {
	effect := slices.ContainsFunc(w.nodes, func(n *node) bool { return !n.dark })
	switch f.Kind {
	case FaultBlackout:
		w.blackout(f, r)
	case FaultDisks:
		return w.loseDisks(f, r)
	case FaultRelapse:
		w.relapse(f, r)
	case FaultUnclean:
		w.forceLeaders(f, r)
	}
	return effect
}

// relapse cuts the power of all machines. Some of those that are back, and may have
// said already where their logs end, lose it again, or their disks.
func (w *world) relapse(f Fault, r *rand.Rand) {
	w.blackout(f, r)
	for range 1 + r.IntN(3) {
		n, wipes := w.nodes[r.IntN(len(w.nodes))], r.IntN(3) == 0
		w.after(time.Duration(r.Int64N(2*int64(f.For))), func() {
			if w.healed || !n.up {
				return
			}
			w.blackouts++
			n.end(true)
			if wipes {
				w.disasters++
				n.wipe()
			}
			w.after(time.Duration(r.Int64N(int64(f.For)/2)), n.start)
		})
	}
}

// forceLeaders cuts the power of all machines. Some are away for long, and an operator
// asks for leaders meanwhile.
func (w *world) forceLeaders(f Fault, r *rand.Rand) {
	w.blackouts++
	w.disasters++
	for _, n := range w.nodes {
		if n.up {
			n.end(true)
		} else {
			n.losePower()
		}
		back := time.Duration(r.Int64N(int64(f.For)))
		if r.IntN(3) == 0 {
			back += 2 * f.For
		}
		w.after(back, n.start)
	}
	for i := range 4 {
		w.after(f.For/2+time.Duration(i)*f.For/2, func() {
			if n := w.nodes[w.rand.IntN(len(w.nodes))]; n.awake() && n.epoch != 0 && !w.healed {
				n.try(callTimeout, func(t *term, reply func(any, error)) { t.electUnclean(reply) }, func(any, error) {})
			}
		})
	}
}

// electUnclean is ElectLeaders for all partitions without a leader, as package controller
// serves it: the live replicas are asked, and the loop decides with what they said.
func (t *term) electUnclean(reply func(any, error)) {
	im, answers := t.n.im, []elect.Answer(nil)
	for tp, p := range im.Leaderless() {
		for _, id := range elect.Contenders(im, tp, p) {
			b, _ := im.Broker(id)
			q := elect.Question{Broker: id, Epoch: b.Epoch, Index: im.Index(), Partitions: []fsm.TopicPartition{tp}}
			t.question(q, func(got []elect.Answer, ok bool) { answers = append(answers, got...) })
		}
	}
	t.n.do(questionTimeout, laneControl, func() {
		t.post(func(then func()) {
			t.commitAll(packed(nil, t.chooseUnclean(im, answers)), then)
		})
		reply(true, nil)
	})
}

// chooseUnclean decides by the newest Image.
func (t *term) chooseUnclean(asked *fsm.Image, answers []elect.Answer) []fsm.LeaderChange {
	var items []fsm.LeaderChange
	ends := elect.Ends(asked, t.n.im, answers)
	for tp, p := range t.n.im.Leaderless() {
		if c, choice := elect.Unclean(t.n.im, tp, p, ends[tp]); choice == elect.Elected {
			items = append(items, c)
			who := forced{epoch: p.LeaderEpoch}
			contenders := elect.Contenders(t.n.im, tp, p)
			for _, e := range ends[tp] {
				if slices.Contains(contenders, e.Broker) { // and has not died since it answered
					who.brokers = append(who.brokers, e.Broker)
				}
			}
			slices.Sort(who.brokers)
			t.n.w.forced[tp] = who
		}
	}
	return items
}
