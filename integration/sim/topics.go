package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// What users do to topics while everything fails. Each tells whether it was asked for.

// recreate deletes a topic and makes it again under its name.
func (w *world) recreate(t TopicPlan) bool {
	now, ok := w.raft.image.TopicByName(t.Name)
	if !ok {
		return false
	}
	n := w.nodes[w.rand.IntN(len(w.nodes))]
	if !n.awake() || n.epoch == 0 {
		return false
	}
	w.doomed = append(w.doomed, now.ID)
	n.propose(callTimeout, fsm.DeleteTopic{ID: now.ID}, func(fsm.Result, error) {})
	w.after(w.between(100*time.Millisecond, 3*time.Second), func() { w.create(t) })
	return true
}

// create makes a topic, through any node, until it is there.
func (w *world) create(t TopicPlan) {
	now, ok := w.raft.image.TopicByName(t.Name)
	if ok && !slices.Contains(w.doomed, now.ID) {
		return
	}
	w.after(300*time.Millisecond, func() { w.create(t) })
	n := w.nodes[w.rand.IntN(len(w.nodes))]
	if ok || !n.awake() || n.epoch == 0 {
		return
	}
	seed := w.rand.Uint64()
	n.try(time.Second, func(x *term, reply func(any, error)) { x.createTopic(t, seed, reply) }, func(any, error) {})
}

// trim moves the log start of what a node leads, anywhere up to the high watermark,
// and often all the way: a log without a batch still has a history.
func (w *world) trim(n *node, r *rand.Rand) bool {
	if !n.awake() || n.stalledUntil > w.now {
		return false
	}
	for _, x := range n.replicas {
		if x.role != roleLeader || x.hw <= x.log.Start() {
			continue
		}
		start := x.log.Start() + 1 + batch.Offset(r.Int64N(int64(x.hw-x.log.Start())))
		if r.IntN(2) == 0 {
			start = x.hw
		}
		n.guard(func() {
			move := x.advance // as DeleteRecords does
			if r.IntN(2) == 0 {
				move = x.raise // as retention does
			}
			x.begin(move, start)
		})
		return true
	}
	return false
}

// changeDurability turns a topic's durability into the other one.
func (w *world) changeDurability(t TopicPlan) bool {
	now, ok := w.raft.image.TopicByName(t.Name)
	n := w.nodes[w.rand.IntN(len(w.nodes))]
	if !ok || !n.awake() || n.epoch == 0 {
		return false
	}
	other := fsm.DurabilityFsync - now.Config.Durability
	changes, err := now.PlanConfigs([]fsm.ConfigOp{{Name: fsm.DurabilityConfig, Value: other.String()}})
	if err != nil {
		w.fail("durabilities are configs", "%v", err)
	}
	n.propose(callTimeout, fsm.AlterTopicConfigs{ID: now.ID, Changes: changes}, func(fsm.Result, error) {})
	return true
}

// configs are those that a topic is created with.
func (p Plan) configs(t TopicPlan) [][2]string {
	var configs [][2]string
	if t.MinISR != 0 {
		configs = append(configs, [2]string{fsm.MinInsyncReplicas, string(rune('0' + t.MinISR))})
	}
	if p.Fsync || t.Fsync {
		configs = append(configs, [2]string{fsm.DurabilityConfig, fsm.DurabilityFsync.String()})
	}
	if t.AppendTime {
		configs = append(configs, [2]string{"message.timestamp.type", "LogAppendTime"})
	}
	return configs
}
