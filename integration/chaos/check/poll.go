package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirmq/weir/integration/chaos/history"
)

// mode is how a process came to what it reads.
type mode uint8

const (
	modeNone mode = iota
	modeAssigned
	modeSubscribed
)

// proc is what is known of one process.
type proc struct {
	mode      mode
	began     int64  // when it was told what to read
	lastOp    uint32 // its last operation with records, from 1
	positions map[uint32]*position
	assigned  []uint32 // keys, to look at their lag in turn
	turn      int
}

// position is what one process knows of one key.
type position struct {
	last    int64 // the last offset read, history.NoOffset where it may be anywhere
	known   int64 // the greatest end it knows of
	knownAt int64 // since when
	seen    deliveries
}

func (p *proc) position(k *keyLog) *position {
	out := p.positions[k.index]
	if out == nil {
		out = &position{last: history.NoOffset}
		p.positions[k.index] = out
	}
	return out
}

// learn notes that the process knows an end.
func (p *position) learn(end, at int64) {
	if end > p.known {
		p.known, p.knownAt = end, at
	}
}

// forget drops the positions of keys that keep does not hold.
func (p *proc) forget(keep func(uint32) bool) {
	for i, pos := range p.positions {
		if !keep(i) {
			pos.last = history.NoOffset
		}
	}
}

func (p *proc) subscribe(at int64) {
	p.mode, p.began, p.assigned = modeSubscribed, at, nil
	p.forget(func(uint32) bool { return false })
}

// assign gives a process the keys that it reads from now on.
func (a *analysis) assign(p *proc, op *history.Op) {
	if p.mode == modeSubscribed {
		p.subscribe(op.Complete)
	}
	p.mode, p.began, p.assigned, p.turn = modeAssigned, op.Complete, p.assigned[:0], 0
	keep := map[uint32]bool{}
	for _, key := range op.Keys {
		k := a.key(key)
		keep[k.index] = true
		p.assigned = append(p.assigned, k.index)
	}
	p.forget(func(i uint32) bool { return keep[i] })
}

// polled takes in what an operation read.
func (a *analysis) polled(p *proc, i uint32, op *history.Op) {
	for _, key := range op.Rebalanced {
		p.position(a.key(key)).last = history.NoOffset
	}
	a.touched = a.touched[:0]
	for _, r := range op.Polls {
		if r.Offset < 0 {
			a.problem("offset", "process %d read %v without an offset", op.Process, r.Value)
			continue
		}
		a.polledRecord(p, i, op, r)
	}
	a.rep.Read += int64(len(op.Polls))
	for _, k := range a.touched {
		pos := p.position(k)
		if pos.learn(k.opLast+1, op.Complete); op.Outcome == history.OK {
			pos.last = k.opLast
		} else {
			pos.last = history.NoOffset
		}
		k.supersede.raise(op.Complete, k.opLast+1)
	}
	if op.Outcome == history.OK {
		a.lag(p, op)
	}
}

func (a *analysis) polledRecord(p *proc, i uint32, op *history.Op, r history.Record) {
	k := a.key(r.Key)
	n := k.table.find(&a.entries, k.index, r.Value)
	k.place(&a.entries, n, r.Offset)
	e := a.entries.at(n)
	e.flags |= flagPolled
	pos := p.position(k)
	if op.Outcome == history.OK {
		if !e.flags.has(flagRead) {
			e.flags |= flagRead
			if e.flags.has(flagOK) {
				a.rep.Series.unseen(op.Complete, -1)
			}
		}
		k.maxRead = max(k.maxRead, r.Offset)
		a.addRange(i, k, r.Offset)
		if p.mode == modeSubscribed {
			a.rep.consumed(pos.seen.add(r.Offset))
		}
	}
	if k.opMark != i+1 {
		k.opMark = i + 1
		a.touched = append(a.touched, k)
		a.pollOrder(k, p, i, op, pos.last, r)
	} else if !slices.Contains(op.Rebalanced, r.Key) {
		a.innerOrder(k, i, op, r)
	}
	k.opLast = r.Offset
}

// pollOrder compares the first record of a key in an operation with the last one
// that the process read before.
func (a *analysis) pollOrder(k *keyLog, p *proc, i uint32, op *history.Op, last int64, r history.Record) {
	if last == history.NoOffset || op.Outcome != history.OK {
		return
	}
	back, skip := NonmonotonicPoll, PollSkip
	if p.mode == modeSubscribed {
		back, skip = GroupNonmonotonicPoll, GroupPollSkip
	}
	switch {
	case r.Offset <= last:
		a.add(back, last-r.Offset, func() Anomaly {
			return Anomaly{Key: r.Key, reader: op.Process, again: true, Offset: r.Offset, At: time.Duration(op.Complete),
				Text: fmt.Sprintf("process %d read offset %d after offset %d", op.Process, r.Offset, last)}
		})
	case r.Offset > last+1:
		k.gap(gap{last, r.Offset, skip}, i)
	}
}

// innerOrder compares a record with the one before it in the same operation.
func (a *analysis) innerOrder(k *keyLog, i uint32, op *history.Op, r history.Record) {
	last := k.opLast
	switch {
	case r.Offset <= last:
		a.add(IntNonmonotonicPoll, last-r.Offset, func() Anomaly {
			return Anomaly{Key: r.Key, reader: op.Process, again: true, Offset: r.Offset, At: time.Duration(op.Complete),
				Text: fmt.Sprintf("process %d got offset %d after offset %d in one poll", op.Process, r.Offset, last)}
		})
	case r.Offset > last+1:
		k.gap(gap{last, r.Offset, IntPollSkip}, i)
	}
}

// gap notes a gap that an operation read over.
func (k *keyLog) gap(g gap, op uint32) {
	s, ok := k.gaps[g]
	if !ok {
		s.op = op
	}
	s.n++
	k.gaps[g] = s
}

// addRange notes that an operation read an offset.
func (a *analysis) addRange(i uint32, k *keyLog, offset int64) {
	if n := a.ranges.len(); n > a.ops.at(i).ranges {
		if last := a.ranges.at(n - 1); last.key == k.index && last.from+int64(last.count) == offset {
			last.count++
			return
		}
	}
	a.ranges.add(readRange{from: offset, count: 1, key: k.index})
}

// ends compares the ends that a process was told with what it knew.
func (a *analysis) ends(p *proc, op *history.Op) {
	if op.Outcome != history.OK {
		return
	}
	for _, at := range op.Positions {
		k := a.key(at.Key)
		pos := p.position(k)
		if at.Offset < pos.known && pos.knownAt <= op.Invoke && !(k.deleted && k.deletedAt <= op.Complete) {
			known := pos.known
			a.add(EndBack, known-at.Offset, func() Anomaly {
				return Anomaly{Key: at.Key, Offset: at.Offset, At: time.Duration(op.Complete),
					Text: fmt.Sprintf("process %d was told end %d and knew of %d since %v", op.Process, at.Offset, known, time.Duration(pos.knownAt))}
			})
		}
		pos.learn(at.Offset, op.Complete)
		k.end = max(k.end, at.Offset)
		k.supersede.raise(op.Complete, at.Offset)
	}
}
