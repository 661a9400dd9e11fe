package check

import (
	"slices"

	"github.com/weirmq/weir/integration/chaos/history"
)

// member is a member of the model's group.
type member struct {
	process history.Process
	at      map[history.Key]int64
	moved   []history.Key // since its last poll
	dead    bool
}

// join adds a member, which reads, commits, asks what is committed, and crashes.
func (m *model) join() {
	me := &member{process: m.process(), at: map[history.Key]int64{}}
	var turn func()
	turn = func() {
		switch {
		case m.closed:
			return
		case m.chance(4):
			me.dead = true
			m.record(history.Op{Process: me.process, Func: history.Crash, Outcome: history.OK, Invoke: m.now})
			m.rebalance()
			m.join()
		case m.chance(30):
			m.commit(me, turn)
		case m.chance(20):
			m.committed(me, turn)
		default:
			m.memberPoll(me, turn)
		}
	}
	m.after(20, func() {
		m.record(history.Op{Process: me.process, Func: history.Subscribe, Outcome: history.OK, Invoke: m.now, Group: modelGroup})
		m.group.members = append(m.group.members, me)
		m.rebalance()
		turn()
	})
}

// rebalance begins a generation: keys go to other members, who begin at what is
// committed.
func (m *model) rebalance() {
	g := &m.group
	g.generation++
	g.members = slices.DeleteFunc(g.members, func(me *member) bool { return me.dead })
	for k := range history.Key(modelKeys) {
		if old := g.owner[k]; old != nil {
			delete(old.at, k)
			old.moved = append(old.moved, k)
			g.owner[k] = nil
		}
		if len(g.members) > 0 {
			me := g.members[m.rnd.IntN(len(g.members))]
			g.owner[k] = me
			me.at[k] = max(g.committed[k], 0)
			me.moved = append(me.moved, k)
		}
	}
}

func (m *model) memberPoll(me *member, then func()) {
	op := history.Op{Process: me.process, Func: history.Poll, Outcome: history.OK, Invoke: m.now}
	m.after(10, func() {
		op.Polls, op.Rebalanced = m.readAll(me.at, 5), me.moved
		me.moved = nil
		m.after(10, func() { m.record(op); m.after(10, then) })
	})
}

// commit commits where a member is. It counts only in the generation it was asked
// for in; one of unknown outcome may take effect late.
func (m *model) commit(me *member, then func()) {
	op := history.Op{Process: me.process, Func: history.Commit, Outcome: history.OK, Invoke: m.now, Group: modelGroup, Generation: m.group.generation}
	for k := range history.Key(modelKeys) {
		if at, ok := me.at[k]; ok {
			op.Positions = append(op.Positions, history.Position{Key: k, Offset: at})
		}
	}
	take := func() bool {
		if op.Generation != m.group.generation {
			return false
		}
		for _, p := range op.Positions {
			m.group.committed[p.Key] = p.Offset
		}
		return true
	}
	if m.chance(20) {
		op.Outcome = history.Info
		if m.chance(50) {
			m.after(100, func() { take() })
		}
		m.after(20, func() { m.record(op); then() })
		return
	}
	m.after(10, func() {
		if !take() {
			op.Outcome = history.Fail
		}
		m.after(10, func() { m.record(op); then() })
	})
}

func (m *model) committed(me *member, then func()) {
	op := history.Op{Process: me.process, Func: history.Committed, Outcome: history.OK, Invoke: m.now, Group: modelGroup, Generation: m.group.generation}
	m.after(10, func() {
		for k, o := range m.group.committed {
			op.Positions = append(op.Positions, history.Position{Key: history.Key(k), Offset: o})
		}
		m.after(10, func() { m.record(op); then() })
	})
}
