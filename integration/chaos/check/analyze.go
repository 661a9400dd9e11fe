package check

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/weirmq/weir/integration/chaos/history"
)

// maxProblems is how many problems of one kind a report tells in words.
const maxProblems = 5

// opInfo is what is kept of an operation with records.
type opInfo struct {
	invoke, complete int64
	process          history.Process
	prev             uint32 // the operation before it of the same process, from 1; 0: none
	sends, ranges    uint32 // where its sends and ranges begin
	fn               history.Func
	outcome          history.Outcome
	committed        bool // of unknown outcome, and something of it was read
}

// readRange is a run of offsets that an ok operation read.
type readRange struct {
	from  int64
	count uint32
	key   uint32
}

// analysis is the state of the first pass.
type analysis struct {
	opt Options
	rep *Report

	keys    []*keyLog
	keyOf   map[history.Key]*keyLog
	procs   map[history.Process]*proc
	entries list[entry]
	ops     list[opInfo]
	sends   list[uint32] // entries, of one operation after the other
	ranges  list[readRange]
	// pending are offsets that operations of unknown outcome were told.
	pending   []pendingOffset
	registers map[registerKey]*register
	asked     []asked // answers of committed offsets not yet explained
	touched   []*keyLog
	all       silence // of all keys together
	gaps      silences
	windows   []history.Window
	problems  map[string]int
	found     [kinds]worst
	txns      bool
	last      int64 // the last completion
	finalAt   int64
}

type pendingOffset struct {
	entry  uint32
	offset int64
}

// Analyze reads a history and judges it. It opens it again if something was
// found, to show what was around it. An error is one of reading; a history that ends
// early is judged as far as it goes and is at best unknown.
func Analyze(open func() (*history.Reader, error), opt Options) (*Report, error) {
	if opt.LagMax == 0 {
		opt.LagMax = 10 * time.Second
	}
	r, err := open()
	if err != nil {
		return nil, fmt.Errorf("open history: %w", err)
	}
	a := newAnalysis(opt, r.Header())
	if err := a.read(r); err != nil {
		return nil, err
	}
	a.finish()
	if len(a.rep.Found) > 0 {
		if r, err = open(); err != nil {
			return nil, fmt.Errorf("open history again: %w", err)
		}
		if err := a.neighbourhoods(r); err != nil {
			return nil, err
		}
	}
	return a.rep, nil
}

func newAnalysis(opt Options, h history.Header) *analysis {
	return &analysis{
		opt:       opt,
		rep:       &Report{Header: h, Failures: opt.Failures, Losses: opt.Losses, MayLose: opt.MayLose, Names: map[history.Key]string{}, Series: newSeries()},
		keyOf:     map[history.Key]*keyLog{},
		procs:     map[history.Process]*proc{},
		registers: map[registerKey]*register{},
		problems:  map[string]int{},
		gaps:      newSilences(),
		finalAt:   -1,
	}
}

func (a *analysis) read(r *history.Reader) error {
	for {
		e, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, history.ErrTruncated):
			a.problem("truncated", "the history ends within an entry: its writer did not end it")
			return nil
		case err != nil:
			return fmt.Errorf("read history: %w", err)
		case e.Op != nil:
			a.op(e.Op)
		case e.Window != nil:
			a.windows = append(a.windows, *e.Window)
		case e.Name != nil:
			a.rep.Names[e.Name.Key] = e.Name.Name
		}
	}
}

// problem notes why the history does not prove anything; of each sort a few are
// told in words.
func (a *analysis) problem(sort, format string, args ...any) {
	a.problems[sort]++
	if n := a.problems[sort]; n < maxProblems {
		a.rep.Problems = append(a.rep.Problems, fmt.Sprintf(format, args...))
	} else if n == maxProblems {
		a.rep.Problems = append(a.rep.Problems, "and more of this sort: "+fmt.Sprintf(format, args...))
	}
}

func (a *analysis) key(k history.Key) *keyLog {
	l := a.keyOf[k]
	if l == nil {
		l = newKeyLog(k, uint32(len(a.keys)))
		a.keyOf[k] = l
		a.keys = append(a.keys, l)
	}
	return l
}

func (a *analysis) proc(p history.Process) *proc {
	out := a.procs[p]
	if out == nil {
		out = &proc{positions: map[uint32]*position{}}
		a.procs[p] = out
	}
	return out
}

// op takes in one operation.
func (a *analysis) op(op *history.Op) {
	a.rep.Counts[op.Func][op.Outcome]++
	if op.Complete < op.Invoke {
		a.problem("times", "process %d: a %v completes before it begins, at %v", op.Process, op.Func, time.Duration(op.Complete))
	}
	a.last = max(a.last, op.Complete)
	p := a.proc(op.Process)
	switch op.Func {
	case history.Send, history.Txn, history.Poll:
		a.records(p, op)
	case history.Assign:
		if op.Outcome == history.OK {
			a.assign(p, op)
		}
	case history.Subscribe:
		if op.Outcome == history.OK {
			p.subscribe(op.Complete)
		}
	case history.Commit:
		a.commit(op)
	case history.Committed:
		a.answered(op)
	case history.Ends:
		a.ends(p, op)
	case history.Delete:
		a.deleted(op)
	case history.Crash:
		delete(a.procs, op.Process)
	case history.Final:
		if a.finalAt < 0 {
			a.finalAt = op.Complete
		}
	}
}

// records takes in an operation that sends or reads.
func (a *analysis) records(p *proc, op *history.Op) {
	i := a.ops.add(opInfo{
		invoke: op.Invoke, complete: op.Complete, process: op.Process, prev: p.lastOp,
		sends: a.sends.len(), ranges: a.ranges.len(), fn: op.Func, outcome: op.Outcome,
	})
	p.lastOp = i + 1
	if op.Func == history.Txn {
		a.txns = true
	}
	a.sent(p, i, op)
	a.polled(p, i, op)
	a.precommitted(op)
	a.rep.Series.op(op)
	if len(op.Sends) > 0 {
		a.sounded(op)
	}
}

// sent takes in what an operation sent.
func (a *analysis) sent(p *proc, i uint32, op *history.Op) {
	for _, r := range op.Sends {
		k := a.key(r.Key)
		n := k.table.find(&a.entries, k.index, r.Value)
		e := a.entries.at(n)
		a.rep.Sent[op.Outcome]++
		if e.writer != 0 {
			a.problem("sent twice", "value %v of %s was sent by two operations: values must be sent once", r.Value, a.rep.Name(r.Key))
			continue
		}
		if r.Value.Process() != op.Process {
			a.problem("foreign", "process %d sent value %v of another process", op.Process, r.Value)
		}
		e.writer = i + 1
		a.sends.add(n)
		e.flags |= [history.Outcomes]entryFlags{history.OK: flagOK, history.Info: flagInfo, history.Fail: flagFail}[op.Outcome]
		if op.Func == history.Txn {
			e.flags |= flagTxn
		}
		if op.Outcome == history.OK && !e.flags.has(flagRead) {
			a.rep.Series.unseen(op.Complete, 1)
		}
		if r.Offset < 0 {
			continue
		}
		switch op.Outcome {
		case history.OK:
			k.place(&a.entries, n, r.Offset)
			k.supersede.raise(op.Complete, r.Offset+1)
			p.position(k).learn(r.Offset+1, op.Complete)
		case history.Info:
			a.pending = append(a.pending, pendingOffset{n, r.Offset})
		}
	}
}

// precommitted looks for an operation that read what it sent.
func (a *analysis) precommitted(op *history.Op) {
	if len(op.Sends) == 0 {
		return
	}
	for _, r := range op.Polls {
		if r.Value.Process() != op.Process {
			continue
		}
		if slices.ContainsFunc(op.Sends, func(s history.Record) bool { return s.Key == r.Key && s.Value == r.Value }) {
			a.add(PrecommittedRead, 0, func() Anomaly {
				return Anomaly{Key: r.Key, Offset: r.Offset, At: time.Duration(op.Complete),
					Text: fmt.Sprintf("process %d read %v in the transaction that sent it", op.Process, r.Value)}
			})
		}
	}
}

// deleted notes that keys may lose their records.
func (a *analysis) deleted(op *history.Op) {
	if op.Outcome == history.Fail {
		return
	}
	for _, key := range op.Keys {
		if k := a.key(key); !k.deleted { // of several tries the first may have done it
			k.deleted, k.deletedAt = true, op.Invoke
		}
	}
}
