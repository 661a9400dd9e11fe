package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weirmq/weir/integration/chaos/history"
)

// finish judges what needs the whole history.
func (a *analysis) finish() {
	a.settle()
	for _, k := range a.keys {
		k.sort(&a.entries)
	}
	a.values()
	for _, k := range a.keys {
		a.function(k)
		a.gapsOf(k)
		a.sendOrder(k)
	}
	a.innerSends()
	a.finishCommits()
	a.finishSilence()
	a.replicas()
	if a.txns {
		a.cycles()
	}
	a.conclude()
}

// settle decides which operations of unknown outcome happened.
func (a *analysis) settle() {
	for i := range a.entries.len() {
		e := a.entries.at(i)
		if e.flags.has(flagRead) && e.flags.has(flagInfo) {
			a.rep.Recovered++
			a.ops.at(e.writer - 1).committed = true
		}
	}
	for _, p := range a.pending {
		e := a.entries.at(p.entry)
		if e.flags.has(flagRead) || e.flags.has(flagTxn) && a.ops.at(e.writer-1).committed {
			a.keys[e.key].place(&a.entries, p.entry, p.offset)
		}
	}
}

// values judges each value alone. Without final reads what was not read tells nothing,
// and what was read may come of sends that were not over.
func (a *analysis) values() {
	for i := range a.entries.len() {
		e := a.entries.at(i)
		k := a.keys[e.key]
		at := func(text string) func() Anomaly {
			return func() Anomaly {
				c := Anomaly{Key: k.key, Offset: e.offset, Text: fmt.Sprintf(text, e.value)}
				if e.writer != 0 {
					c.At = time.Duration(a.ops.at(e.writer - 1).complete)
				}
				return c
			}
		}
		switch {
		case e.writer == 0 && a.finalAt >= 0:
			a.add(UnknownValue, 0, at("%v was read and nobody sent it"))
		case e.flags.has(flagFail) && e.flags.has(flagRead):
			a.add(AbortedRead, 0, at("%v was read and its send had failed"))
		}
		must := e.flags.has(flagOK) || e.flags.has(flagInfo) && e.flags.has(flagTxn) && a.ops.at(e.writer-1).committed
		if !must || e.flags.has(flagRead) || k.deleted {
			continue
		}
		if e.offset != history.NoOffset && e.offset <= k.maxRead {
			a.add(LostWrite, k.maxRead-e.offset, at("%v was acknowledged and never read, later records were"))
		} else if a.finalAt >= 0 {
			a.add(Unseen, 0, at("%v was acknowledged and never read"))
		}
	}
}

// function checks that a key's log is a function both ways.
func (a *analysis) function(k *keyLog) {
	for _, i := range slices.Sorted(maps.Keys(k.moved)) {
		e, offsets := a.entries.at(i), k.moved[i]
		a.add(Duplicate, int64(len(offsets)), func() Anomaly {
			return Anomaly{Key: k.key, Offset: offsets[0], Text: fmt.Sprintf("%v is at offsets %d and %v", e.value, e.offset, offsets)}
		})
	}
	for _, o := range slices.Sorted(maps.Keys(k.others)) {
		a.add(InconsistentOffsets, int64(len(k.others[o])), func() Anomaly {
			held := []history.Value{a.entries.at(k.at(o) - 1).value}
			for _, i := range k.others[o] {
				held = append(held, a.entries.at(i).value)
			}
			return Anomaly{Key: k.key, Offset: o, Text: fmt.Sprintf("offset %d held %v", o, held)}
		})
	}
}

// gapsOf looks at the gaps that readers met: those that hold records were skips.
func (a *analysis) gapsOf(k *keyLog) {
	all := slices.SortedFunc(maps.Keys(k.gaps), func(x, y gap) int {
		return cmp.Or(cmp.Compare(x.from, y.from), cmp.Compare(x.to, y.to), cmp.Compare(x.kind, y.kind))
	})
	for _, g := range all {
		n, first := k.between(g.from, g.to)
		if n == 0 {
			continue
		}
		seen := k.gaps[g]
		op := a.ops.at(seen.op)
		a.add(g.kind, n, func() Anomaly {
			return Anomaly{Key: k.key, Offset: first, At: time.Duration(op.complete),
				Text: fmt.Sprintf("process %d read offset %d after offset %d: %d records left out", op.process, g.to, g.from, n)}
		})
		a.found[g.kind].count += seen.n - 1
	}
}

// sendOrder checks the order of a key's log against that of its senders and of real
// time.
func (a *analysis) sendOrder(k *keyLog) {
	type sent struct {
		value history.Value
		op    uint32
	}
	last := map[history.Process]sent{}
	var latest, latestOffset int64 = -1, history.NoOffset // the latest Invoke so far
	for n, i := range k.order {
		e := a.entries.at(i)
		if e.writer == 0 || e.pos != uint32(n+1) {
			continue
		}
		op := a.ops.at(e.writer - 1)
		before := last[op.process]
		if e.value < before.value && e.writer != before.op {
			a.add(NonmonotonicSend, int64(before.value-e.value), func() Anomaly {
				return Anomaly{Key: k.key, Offset: e.offset, At: time.Duration(op.complete),
					Text: fmt.Sprintf("process %d sent %v before %v, which lies before it", op.process, e.value, before.value)}
			})
		}
		if e.value >= before.value {
			last[op.process] = sent{e.value, e.writer}
		}
		if e.flags.has(flagOK) && op.complete < latest {
			a.add(Reordered, latest-op.complete, func() Anomaly {
				return Anomaly{Key: k.key, Offset: e.offset, At: time.Duration(op.complete),
					Text: fmt.Sprintf("%v at offset %d was acknowledged %v before the record at offset %d was sent", e.value, e.offset, time.Duration(latest-op.complete), latestOffset)}
			})
		}
		if op.invoke > latest {
			latest, latestOffset = op.invoke, e.offset
		}
	}
}

// innerSends checks the order of what one operation sent.
func (a *analysis) innerSends() {
	last := map[uint32]*entry{} // by key
	for i := range a.ops.len() {
		from, to := a.sendsOf(i)
		if to-from < 2 {
			continue
		}
		clear(last)
		op := a.ops.at(i)
		for ; from < to; from++ {
			e := a.entries.at(*a.sends.at(from))
			if e.pos == 0 {
				continue
			}
			before := last[e.key]
			last[e.key] = e
			if before == nil {
				continue
			}
			a.innerSend(op, before, e)
		}
	}
}

func (a *analysis) innerSend(op *opInfo, before, e *entry) {
	at := func(text string) func() Anomaly {
		return func() Anomaly {
			return Anomaly{Key: a.keys[e.key].key, Offset: e.offset, At: time.Duration(op.complete),
				Text: fmt.Sprintf(text, op.process, before.value, before.offset, e.value, e.offset)}
		}
	}
	switch {
	case e.pos <= before.pos:
		a.add(IntNonmonotonicSend, int64(before.pos-e.pos), at("process %d sent %v (offset %d) and then %v (offset %d)"))
	case e.pos > before.pos+1 && op.fn == history.Txn:
		a.add(IntSendSkip, int64(e.pos-before.pos), at("others lie between what process %d sent: %v (offset %d) and %v (offset %d)"))
	}
}

// sendsOf is where in sends the values of an operation are.
func (a *analysis) sendsOf(i uint32) (from, to uint32) {
	if i+1 == a.ops.len() {
		return a.ops.at(i).sends, a.sends.len()
	}
	return a.ops.at(i).sends, a.ops.at(i + 1).sends
}

// rangesOf is where in ranges what an operation read is.
func (a *analysis) rangesOf(i uint32) (from, to uint32) {
	if i+1 == a.ops.len() {
		return a.ops.at(i).ranges, a.ranges.len()
	}
	return a.ops.at(i).ranges, a.ops.at(i + 1).ranges
}

// replicas compares what the nodes hold.
func (a *analysis) replicas() {
	first := map[history.Key]Replica{}
	for _, r := range a.opt.Replicas {
		f, ok := first[r.Key]
		if !ok {
			first[r.Key] = r
			continue
		}
		if f.First == r.First && f.End == r.End && f.Sum == r.Sum {
			continue
		}
		a.add(ReplicasDiffer, 0, func() Anomaly {
			return Anomaly{Key: r.Key, Offset: history.NoOffset, At: time.Duration(a.last), Text: fmt.Sprintf(
				"%s holds [%d, %d) with sum %s, %s holds [%d, %d) with sum %s", f.Node, f.First, f.End, f.Sum, r.Node, r.First, r.End, r.Sum)}
		})
	}
}

// conclude fills the report.
func (a *analysis) conclude() {
	r := a.rep
	r.Keys, r.Length, r.FinalAt = len(a.keys), time.Duration(a.last), time.Duration(a.finalAt)
	r.Resolution = a.gaps.min
	r.Series.finish()
	a.enough()
	a.untried()
	for _, fails := range []bool{true, false} {
		for kind, w := range a.found {
			if k := Kind(kind); w.count > 0 && k.Fails() == fails {
				r.Found = append(r.Found, Found{Kind: k, Count: w.count, Worst: w.cases})
			}
		}
	}
	r.Verdict = r.verdict()
}

// verdict is what everything that was found comes to.
func (r *Report) verdict() Verdict {
	failed := r.Failed()
	beyondLoss := slices.ContainsFunc(failed, func(f Found) bool { return !f.Kind.FollowsLoss() })
	lost := len(failed) > 0 || len(r.Losses) > 0
	switch {
	case len(r.Failures) > 0 || beyondLoss || lost && !r.MayLose:
		return Invalid
	case len(r.Problems) > 0:
		return Unknown
	case lost:
		return Lossy
	}
	return Valid
}

// enough notes what a history lacks to prove anything.
func (a *analysis) enough() {
	if a.finalAt < 0 {
		a.problem("final", "there were no final reads")
	}
	if a.rep.Sent[history.OK] == 0 {
		a.problem("sent", "no record was acknowledged")
	}
	if a.rep.Read == 0 {
		a.problem("read", "no record was read")
	}
	for f, row := range a.rep.Counts {
		if row[history.OK] == 0 && row[history.Info]+row[history.Fail] > 0 {
			a.problem("never ok", "no %v succeeded", history.Func(f))
		}
	}
}

// untried notes the kinds that nothing in the history could have shown.
func (a *analysis) untried() {
	counts := &a.rep.Counts
	sure := func(ok bool, kinds ...Kind) {
		if !ok {
			a.rep.Untried = append(a.rep.Untried, kinds...)
		}
	}
	sure(counts[history.Send][history.Fail]+counts[history.Txn][history.Fail] > 0, AbortedRead)
	sure(a.finalAt >= 0, Unseen, UnknownValue)
	sure(a.txns, PrecommittedRead, IntSendSkip, G0, G0Process, G0Realtime, G1c, G1cProcess, G1cRealtime, G1cWW, G1cWWProcess, G1cWWRealtime)
	sure(counts[history.Subscribe][history.OK] > 0, GroupPollSkip, GroupNonmonotonicPoll)
	sure(counts[history.Commit][history.OK] > 0, CommittedAboveEnd)
	sure(counts[history.Commit][history.OK]+counts[history.Committed][history.OK] > 0, CommittedBack)
	sure(counts[history.Committed][history.OK] > 0, CommittedUnknown)
	sure(counts[history.Ends][history.OK] > 0, EndBack)
	sure(len(a.opt.Replicas) > 0, ReplicasDiffer)
	sure(a.opt.ProgressMax > 0, NoProgress)
}
