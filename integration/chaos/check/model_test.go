package check

import (
	"container/heap"
	"math/rand/v2"
	"slices"

	"github.com/weirmq/weir/integration/chaos/history"
)

// model is a correct cluster and its clients, in one goroutine and virtual time: logs
// that only grow, transactions, a group with committed offsets; clients that crash,
// give up on what may yet happen, and retry without doing it twice. Everything is
// drawn from a seed.
type model struct {
	rnd    *rand.Rand
	now    int64
	queue  queue
	seq    int
	ops    []history.Op
	logs   [][]slot
	nextID history.Process
	closed bool // no client begins anything new

	group struct {
		generation int32
		members    []*member
		owner      []*member // by key
		committed  []int64
	}
}

// slot is one offset of a log.
type slot struct {
	value   history.Value
	control bool
	txn     *txn // nil: not of a transaction
}

type txn struct{ open, aborted bool }

type event struct {
	at, seq int64
	do      func()
}

type queue []event

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(event)) }
func (q *queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

const (
	modelKeys  = 4
	modelGroup = 1
)

// modelHistory is a valid history of a seed.
func modelHistory(seed uint64) []history.Op {
	m := &model{rnd: rand.New(rand.NewPCG(seed, 7)), logs: make([][]slot, modelKeys)}
	m.group.owner = make([]*member, modelKeys)
	m.group.committed = slices.Repeat([]int64{history.NoOffset}, modelKeys)
	txns := m.rnd.IntN(2) == 0
	for range 2 + m.rnd.IntN(3) {
		m.producer(txns)
	}
	for range 1 + m.rnd.IntN(3) {
		m.reader()
	}
	for range m.rnd.IntN(4) {
		m.join()
	}
	m.asker()
	m.run(ms(int64(500 + m.rnd.IntN(3000))))
	m.closed = true
	m.run(1 << 62)
	m.final()
	slices.SortStableFunc(m.ops, func(x, y history.Op) int { return int(min(max(x.Complete-y.Complete, -1), 1)) })
	return m.ops
}

func (m *model) run(until int64) {
	for len(m.queue) > 0 && m.queue[0].at <= until {
		e := heap.Pop(&m.queue).(event)
		m.now = e.at
		e.do()
	}
}

// after does something within a span of milliseconds, at a time of its own.
func (m *model) after(span int64, do func()) { m.at(m.now+1+m.rnd.Int64N(ms(span)), do) }

func (m *model) at(t int64, do func()) {
	m.seq++
	heap.Push(&m.queue, event{t, int64(m.seq), do})
}

func (m *model) process() history.Process { m.nextID++; return m.nextID }

func (m *model) chance(percent int) bool { return m.rnd.IntN(100) < percent }

func (m *model) key() history.Key { return history.Key(m.rnd.IntN(modelKeys)) }

func (m *model) append(k history.Key, s slot) int64 {
	m.logs[k] = append(m.logs[k], s)
	return int64(len(m.logs[k]) - 1)
}

// stable is the last stable offset.
func (m *model) stable(k history.Key) int64 {
	for o, s := range m.logs[k] {
		if s.txn != nil && s.txn.open {
			return int64(o)
		}
	}
	return int64(len(m.logs[k]))
}

// read is what a reader at a position gets, and where it is then.
func (m *model) read(k history.Key, from int64, most int) (rs []history.Record, next int64) {
	for from < m.stable(k) && len(rs) < most {
		if s := m.logs[k][from]; !s.control && (s.txn == nil || !s.txn.aborted) {
			rs = append(rs, history.Record{Key: k, Offset: from, Value: s.value})
		}
		from++
	}
	return rs, from
}

// record adds an operation that completes now, in its process's name.
func (m *model) record(op history.Op) {
	op.Complete = m.now
	m.ops = append(m.ops, op)
}

// producer sends, several records in flight, or transactions one after the other.
func (m *model) producer(txns bool) {
	p, n, reached := m.process(), uint64(0), int64(0)
	var turn func()
	turn = func() {
		switch {
		case m.closed:
			return
		case m.chance(3):
			m.record(history.Op{Process: p, Func: history.Crash, Outcome: history.OK, Invoke: m.now})
			m.producer(txns)
			return
		case txns && m.chance(50):
			m.txn(p, &n, turn)
			return
		}
		n++
		m.send(p, history.NewValue(p, n), &reached)
		// A transaction has to wait for what is in flight.
		if txns {
			m.at(max(m.now, reached)+ms(60), turn)
		} else {
			m.after(10, turn)
		}
	}
	m.after(20, turn)
}

// send sends one record. What one process sends takes effect in its order, however
// often it is retried, and also after the process gave up on it.
func (m *model) send(p history.Process, v history.Value, reached *int64) {
	k, offset := m.key(), history.NoOffset
	op := history.Op{Process: p, Func: history.Send, Outcome: history.OK, Invoke: m.now}
	finish := func() {
		op.Sends = []history.Record{{Key: k, Offset: offset, Value: v}}
		m.record(op)
	}
	luck := m.rnd.IntN(100)
	if luck < 5 {
		op.Outcome = history.Fail
		m.after(20, finish)
		return
	}
	if luck < 20 {
		op.Outcome = history.Info
		m.after(40, finish)
		if luck < 12 {
			return
		}
	}
	*reached = max(*reached, m.now) + 1 + m.rnd.Int64N(ms(20))
	m.at(*reached, func() {
		at := m.append(k, slot{value: v})
		if op.Outcome == history.OK {
			offset = at
			m.after(20, finish)
		}
	})
}

// txn is one transaction: it sends and reads for a while and then commits or aborts.
func (m *model) txn(p history.Process, n *uint64, then func()) {
	op := history.Op{Process: p, Func: history.Txn, Outcome: history.OK, Invoke: m.now}
	t := &txn{open: true}
	next := map[history.Key]int64{}
	touched := map[history.Key]bool{}
	steps := 1 + m.rnd.IntN(5)
	var step func()
	step = func() {
		if steps--; steps < 0 {
			m.end(op, t, touched, then)
			return
		}
		k := m.key()
		if m.chance(70) {
			*n++
			r := history.Record{Key: k, Value: history.NewValue(p, *n)}
			r.Offset = m.append(k, slot{value: r.Value, txn: t})
			touched[k] = true
			op.Sends = append(op.Sends, r)
		} else {
			from, seen := next[k]
			if !seen {
				from = m.rnd.Int64N(int64(len(m.logs[k])) + 1)
			}
			var rs []history.Record
			rs, next[k] = m.read(k, from, 3)
			op.Polls = append(op.Polls, rs...)
		}
		m.after(10, step)
	}
	m.after(5, step)
}

func (m *model) end(op history.Op, t *txn, touched map[history.Key]bool, then func()) {
	luck := m.rnd.IntN(100)
	op.Outcome = []history.Outcome{history.OK, history.Info, history.Fail}[min(max(luck-40, 0)/20, 2)]
	aborted := op.Outcome == history.Fail || op.Outcome == history.Info && m.chance(50)
	decide := func() {
		t.open, t.aborted = false, aborted
		for k := range history.Key(modelKeys) {
			if touched[k] {
				m.append(k, slot{control: true})
			}
		}
	}
	if op.Outcome == history.Info {
		// The process does not know its transaction's end and is replaced; what it
		// was told of offsets may be known or not.
		if m.chance(50) {
			for i := range op.Sends {
				op.Sends[i].Offset = history.NoOffset
			}
		}
		m.after(30, func() { m.record(op); m.producer(true) })
		m.after(60, decide)
		return
	}
	m.after(10, func() {
		decide()
		m.after(10, func() {
			m.record(op)
			// Where it reads next is not where it stopped.
			m.record(history.Op{Process: op.Process, Func: history.Assign, Outcome: history.OK, Invoke: m.now})
			then()
		})
	})
}

// reader reads an assignment that changes, and crashes.
func (m *model) reader() {
	p := m.process()
	at := map[history.Key]int64{}
	assign := func() {
		old := at
		at = map[history.Key]int64{}
		op := history.Op{Process: p, Func: history.Assign, Outcome: history.OK, Invoke: m.now}
		for k := range history.Key(modelKeys) {
			if m.chance(60) {
				from, kept := old[k]
				if !kept {
					from = m.rnd.Int64N(int64(len(m.logs[k])) + 1)
				}
				at[k], op.Keys = from, append(op.Keys, k)
			}
		}
		m.record(op)
	}
	var poll func()
	poll = func() {
		if m.closed {
			return
		}
		if m.chance(4) {
			m.record(history.Op{Process: p, Func: history.Crash, Outcome: history.OK, Invoke: m.now})
			m.reader()
			return
		}
		if m.chance(5) {
			assign()
		}
		op := history.Op{Process: p, Func: history.Poll, Outcome: history.OK, Invoke: m.now}
		m.after(10, func() {
			op.Polls = m.readAll(at, 8)
			m.after(10, func() {
				m.record(op)
				m.after(20, poll)
			})
		})
	}
	m.after(10, func() { assign(); poll() })
}

// readAll reads some of each key and moves the positions.
func (m *model) readAll(at map[history.Key]int64, most int) (out []history.Record) {
	for k := range history.Key(modelKeys) {
		if from, ok := at[k]; ok {
			var rs []history.Record
			rs, at[k] = m.read(k, from, most)
			out = append(out, rs...)
		}
	}
	return out
}

// asker asks for ends.
func (m *model) asker() {
	p := m.process()
	var ask func()
	ask = func() {
		op := history.Op{Process: p, Func: history.Ends, Outcome: history.OK, Invoke: m.now}
		m.after(10, func() {
			for k := range m.logs {
				op.Positions = append(op.Positions, history.Position{Key: history.Key(k), Offset: int64(len(m.logs[k]))})
			}
			m.after(10, func() {
				m.record(op)
				if !m.closed {
					m.after(50, ask)
				}
			})
		})
	}
	m.after(10, ask)
}

// final reads everything, twice.
func (m *model) final() {
	m.record(history.Op{Func: history.Final, Outcome: history.OK, Invoke: m.now})
	m.closed = false
	m.asker()
	m.closed = true
	m.run(1 << 62)
	for range 2 {
		p := m.process()
		m.now++
		m.record(history.Op{Process: p, Func: history.Assign, Outcome: history.OK, Invoke: m.now, Keys: []history.Key{0, 1, 2, 3}})
		at := map[history.Key]int64{0: 0, 1: 0, 2: 0, 3: 0}
		for empty := false; !empty; {
			op := history.Op{Process: p, Func: history.Poll, Outcome: history.OK, Invoke: m.now + 1, Polls: m.readAll(at, 20)}
			m.now += 10
			m.record(op)
			empty = len(op.Polls) == 0
		}
	}
}
