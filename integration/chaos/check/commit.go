package check

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirmq/weir/integration/chaos/history"
)

const (
	// commitHorizon is how long an operation on committed offsets may last: what was
	// overwritten longer ago can not explain an answer.
	commitHorizon = int64(15 * time.Minute)
	commitsMin    = 4096 // below which a register is not looked through
)

type registerKey struct {
	group history.Group
	key   history.Key
}

// commitWrite is one commit of one key.
type commitWrite struct {
	offset           int64
	invoke, complete int64 // complete is never where the outcome is unknown
	ok               bool
}

// register is one committed offset: its commits, and the last that went forward.
type register struct {
	writes     []commitWrite
	prune      int // at how many writes to look through them
	generation int32
	last       int64
	lastAt     int64
}

// asked is an answer that no commit known so far explains.
type asked struct {
	at      registerKey
	offset  int64
	process history.Process
	invoke  int64
	done    int64
}

// committedMax is the greatest committed offset of a key.
type committedMax struct {
	offset int64
	group  history.Group
	at     int64
	any    bool
}

func (a *analysis) register(group history.Group, key history.Key) *register {
	at := registerKey{group, key}
	r := a.registers[at]
	if r == nil {
		r = &register{prune: commitsMin, last: history.NoOffset, generation: math.MinInt32}
		a.registers[at] = r
	}
	return r
}

// commit takes in a commit, of which a failed one did nothing.
func (a *analysis) commit(op *history.Op) {
	if op.Outcome == history.Fail {
		return
	}
	for _, at := range op.Positions {
		r := a.register(op.Group, at.Key)
		w := commitWrite{offset: at.Offset, invoke: op.Invoke, complete: op.Complete, ok: op.Outcome == history.OK}
		if !w.ok {
			w.complete = math.MaxInt64
		}
		r.writes = append(r.writes, w)
		if len(r.writes) >= r.prune {
			r.forget(op.Complete)
		}
		if w.ok {
			a.forward(r, op, at)
			k := a.key(at.Key)
			if !k.committed.any || at.Offset > k.committed.offset {
				k.committed = committedMax{at.Offset, op.Group, op.Complete, true}
			}
		}
	}
}

// forward checks that the commits of one generation go forward. Where ends of logs may be
// lost a member may have been set back, and then commits what it reads from there.
func (a *analysis) forward(r *register, op *history.Op, at history.Position) {
	if a.opt.MayLose {
		return
	}
	if op.Generation == r.generation && at.Offset < r.last && r.lastAt <= op.Invoke {
		last := r.last
		a.add(CommittedBack, last-at.Offset, func() Anomaly {
			return Anomaly{Key: at.Key, Offset: at.Offset, At: time.Duration(op.Complete),
				Text: fmt.Sprintf("group %d, generation %d: process %d committed %d after %d", op.Group, op.Generation, op.Process, at.Offset, last)}
		})
	}
	if op.Generation > r.generation || op.Generation == r.generation && at.Offset >= r.last {
		r.generation, r.last, r.lastAt = op.Generation, at.Offset, op.Complete
	}
}

// forget drops writes that were overwritten long ago.
func (r *register) forget(now int64) {
	since := r.since(now - commitHorizon)
	r.writes = slices.DeleteFunc(r.writes, func(w commitWrite) bool { return w.complete < since })
	r.prune = max(commitsMin, 2*len(r.writes))
}

// since is when the last commit that completed before a time was asked for: what
// completed earlier had been overwritten by then.
func (r *register) since(time int64) int64 {
	since := int64(math.MinInt64)
	for _, w := range r.writes {
		if w.ok && w.complete < time {
			since = max(since, w.invoke)
		}
	}
	return since
}

// explains tells whether some commit, or none, may have been the last before an
// answer.
func (r *register) explains(q asked) bool {
	since := r.since(q.invoke)
	if q.offset == history.NoOffset {
		return since == math.MinInt64
	}
	return slices.ContainsFunc(r.writes, func(w commitWrite) bool {
		return w.offset == q.offset && w.invoke < q.done && w.complete >= since
	})
}

// answered takes in what a coordinator says is committed.
func (a *analysis) answered(op *history.Op) {
	if op.Outcome != history.OK {
		return
	}
	for _, at := range op.Positions {
		q := asked{registerKey{op.Group, at.Key}, at.Offset, op.Process, op.Invoke, op.Complete}
		if !a.register(op.Group, at.Key).explains(q) {
			a.asked = append(a.asked, q)
		}
	}
}

// finishCommits judges the answers that nothing had explained when they were given,
// and how far the commits went.
func (a *analysis) finishCommits() {
	for _, q := range a.asked {
		k, r := a.key(q.at.key), a.register(q.at.group, q.at.key)
		if k.deleted && k.deletedAt <= q.done || r.explains(q) {
			continue
		}
		kind := CommittedBack
		if q.offset != history.NoOffset && !slices.ContainsFunc(r.writes, func(w commitWrite) bool { return w.offset == q.offset }) {
			kind = CommittedUnknown
		}
		latest := history.NoOffset
		for _, w := range r.writes {
			if w.ok && w.complete < q.invoke {
				latest = max(latest, w.offset)
			}
		}
		a.add(kind, latest-q.offset, func() Anomaly {
			return Anomaly{Key: q.at.key, Offset: max(q.offset, 0), At: time.Duration(q.done),
				Text: fmt.Sprintf("group %d: process %d was told that %d is committed; %d had been", q.at.group, q.process, q.offset, latest)}
		})
	}
	for _, k := range a.keys {
		if c := k.committed; c.any && c.offset > k.end {
			a.add(CommittedAboveEnd, c.offset-k.end, func() Anomaly {
				return Anomaly{Key: k.key, Offset: c.offset, At: time.Duration(c.at),
					Text: fmt.Sprintf("group %d committed %d; the greatest end that anybody saw is %d", c.group, c.offset, k.end)}
			})
		}
	}
}
