package check

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weirmq/weir/integration/chaos/history"
)

var (
	seeds     = flag.Int("seeds", 30, "how many random histories to check")
	firstSeed = flag.Uint64("first-seed", 0, "the first of them; 0 draws one")
)

// randomSeeds are the seeds of this run.
func randomSeeds(t *testing.T) []uint64 {
	first := *firstSeed
	if first == 0 {
		first = rand.Uint64() >> 16
	}
	t.Logf("-first-seed %d -seeds %d", first, *seeds)
	out := make([]uint64, *seeds)
	for i := range out {
		out[i] = first + uint64(i)
	}
	return out
}

// TestValid checks that nothing is found in histories of a correct cluster.
func TestValid(t *testing.T) {
	var total [history.Funcs][history.Outcomes]int64
	for _, seed := range randomSeeds(t) {
		ops := modelHistory(seed)
		r := analyze(t, write(t, ops, nil), Options{})
		if len(r.Failed()) > 0 || r.Verdict == Invalid {
			t.Fatalf("seed %d: %s", seed, describe(r))
		}
		for f, row := range r.Counts {
			for o, n := range row {
				total[f][o] += n
			}
		}
	}
	for _, f := range []history.Func{history.Send, history.Txn, history.Commit} {
		for o := history.OK; int(o) < history.Outcomes; o++ {
			if total[f][o] == 0 {
				t.Errorf("no %v was ever %v: the model is too tame", f, o)
			}
		}
	}
	if total[history.Poll][history.OK] == 0 || total[history.Committed][history.OK] == 0 || total[history.Crash][history.OK] == 0 {
		t.Errorf("the model is too tame: %v", total)
	}
}

// TestCorrupted checks that each kind of a single corruption of a valid history is
// caught.
func TestCorrupted(t *testing.T) {
	applied := map[string]int{}
	for _, seed := range randomSeeds(t) {
		for _, c := range corruptions {
			ops := modelHistory(seed)
			if !c.apply(&corruption{rnd: rand.New(rand.NewPCG(seed, 11)), ops: ops, at: trueLog(ops)}, &ops) {
				continue
			}
			applied[c.name]++
			if r := analyze(t, write(t, ops, nil), Options{}); r.Verdict != Invalid {
				t.Errorf("seed %d: %s is not caught: %s", seed, c.name, describe(r))
			}
		}
	}
	for _, c := range corruptions {
		if applied[c.name] == 0 {
			t.Errorf("%s was never possible", c.name)
		}
	}
	t.Logf("%v", applied)
}

// place is one record of one operation.
type place struct{ op, i int }

// corruption is what the corruptions of one history share.
type corruption struct {
	rnd *rand.Rand
	ops []history.Op
	at  map[history.Record]int // how often each record was read by ok operations
}

// trueLog counts the reads of each record.
func trueLog(ops []history.Op) map[history.Record]int {
	out := map[history.Record]int{}
	for i := range ops {
		if ops[i].Outcome == history.OK {
			for _, r := range ops[i].Polls {
				out[r]++
			}
		}
	}
	return out
}

// pick is a random place of those that suit.
func (c *corruption) pick(of func(*history.Op) []history.Record, suits func(*history.Op, int) bool) (place, bool) {
	var all []place
	for o := range c.ops {
		for i := range of(&c.ops[o]) {
			if suits(&c.ops[o], i) {
				all = append(all, place{o, i})
			}
		}
	}
	if len(all) == 0 {
		return place{}, false
	}
	return all[c.rnd.IntN(len(all))], true
}

func sends(op *history.Op) []history.Record { return op.Sends }
func polls(op *history.Op) []history.Record { return op.Polls }

// pickRead is a random record that was read, and read again by another operation.
func (c *corruption) pickRead() (place, bool) {
	return c.pick(polls, func(op *history.Op, i int) bool { return op.Outcome == history.OK && c.at[op.Polls[i]] > 1 })
}

// pickSent is a random record of a send that was acknowledged and is read.
func (c *corruption) pickSent() (place, bool) {
	return c.pick(sends, func(op *history.Op, i int) bool { return op.Outcome == history.OK && c.at[op.Sends[i]] > 0 })
}

var corruptions = []struct {
	name  string
	apply func(c *corruption, ops *[]history.Op) bool
}{
	{"a record is lost", func(c *corruption, ops *[]history.Op) bool {
		p, ok := c.pickSent()
		if !ok {
			return false
		}
		gone := c.ops[p.op].Sends[p.i]
		for i := range c.ops {
			c.ops[i].Polls = slices.DeleteFunc(c.ops[i].Polls, func(r history.Record) bool { return r == gone })
		}
		return true
	}},
	{"a reader gets another value", func(c *corruption, ops *[]history.Op) bool {
		p, ok := c.pickRead()
		if !ok {
			return false
		}
		r := &c.ops[p.op].Polls[p.i]
		other, ok := c.pick(polls, func(op *history.Op, i int) bool { return op.Polls[i].Key == r.Key && op.Polls[i].Value != r.Value })
		if ok {
			r.Value = c.ops[other.op].Polls[other.i].Value
		}
		return ok
	}},
	{"a reader gets another offset", func(c *corruption, ops *[]history.Op) bool {
		p, ok := c.pickRead()
		if ok {
			c.ops[p.op].Polls[p.i].Offset += 1 + c.rnd.Int64N(3)
		}
		return ok
	}},
	{"an acknowledgement names another offset", func(c *corruption, ops *[]history.Op) bool {
		p, ok := c.pickSent()
		if ok {
			c.ops[p.op].Sends[p.i].Offset += 1 + c.rnd.Int64N(3)
		}
		return ok
	}},
	{"a send that happened is said to have failed", func(c *corruption, ops *[]history.Op) bool {
		p, ok := c.pickSent()
		if ok {
			c.ops[p.op].Outcome = history.Fail
		}
		return ok
	}},
	{"a read value was never sent", func(c *corruption, ops *[]history.Op) bool {
		p, ok := c.pickSent()
		if ok {
			*ops = slices.Delete(c.ops, p.op, p.op+1)
		}
		return ok
	}},
	{"a poll swaps neighbours", func(c *corruption, ops *[]history.Op) bool {
		p, ok := c.pick(polls, func(op *history.Op, i int) bool {
			return i > 0 && op.Polls[i-1].Key == op.Polls[i].Key && len(op.Rebalanced) == 0
		})
		if ok {
			rs := c.ops[p.op].Polls
			rs[p.i-1], rs[p.i] = rs[p.i], rs[p.i-1]
		}
		return ok
	}},
	{"a poll leaves a record out", func(c *corruption, ops *[]history.Op) bool {
		p, ok := c.pick(polls, func(op *history.Op, i int) bool {
			return i > 0 && i+1 < len(op.Polls) && op.Polls[i-1].Key == op.Polls[i].Key && op.Polls[i+1].Key == op.Polls[i].Key &&
				len(op.Rebalanced) == 0 && c.at[op.Polls[i]] > 1
		})
		if ok {
			c.ops[p.op].Polls = slices.Delete(c.ops[p.op].Polls, p.i, p.i+1)
		}
		return ok
	}},
	{"a poll is answered twice", func(c *corruption, ops *[]history.Op) bool {
		p, ok := c.pickFinal(func(int) bool { return true })
		if ok {
			*ops = slices.Insert(c.ops, p.op, c.ops[p.op])
		}
		return ok
	}},
	{"a poll is lost between others", func(c *corruption, ops *[]history.Op) bool {
		p, ok := c.pickFinal(func(o int) bool { // a later poll of the same reader has the key
			key := c.ops[o].Polls[0].Key
			before, after := false, false
			for i := range c.ops {
				has := c.ops[i].Process == c.ops[o].Process && slices.ContainsFunc(c.ops[i].Polls, func(r history.Record) bool { return r.Key == key })
				before, after = before || has && i < o, after || has && i > o
			}
			return before && after
		})
		if ok {
			*ops = slices.Delete(c.ops, p.op, p.op+1)
		}
		return ok
	}},
	{"two records of a process change places", func(c *corruption, ops *[]history.Op) bool {
		p, ok := c.pickSent()
		if !ok {
			return false
		}
		x := c.ops[p.op].Sends[p.i]
		p, ok = c.pick(sends, func(op *history.Op, i int) bool {
			r := op.Sends[i]
			return op.Outcome == history.OK && c.at[r] > 0 && r.Key == x.Key && r.Value.Process() == x.Value.Process() && r.Value != x.Value
		})
		if !ok {
			return false
		}
		y := c.ops[p.op].Sends[p.i]
		for o := range c.ops {
			for i := range c.ops[o].Polls {
				c.ops[o].Polls[i].Value = swapped(c.ops[o].Polls[i], x, y).Value
			}
			for i := range c.ops[o].Sends {
				c.ops[o].Sends[i].Offset = swapped(c.ops[o].Sends[i], x, y).Offset
			}
		}
		return true
	}},
	{"a transaction reads its own", func(c *corruption, ops *[]history.Op) bool {
		p, ok := c.pick(sends, func(op *history.Op, i int) bool { return op.Func == history.Txn && op.Sends[i].Offset >= 0 })
		if ok {
			op := &c.ops[p.op]
			op.Polls = append(op.Polls, op.Sends[p.i])
		}
		return ok
	}},
	{"a committed offset comes from nowhere", func(c *corruption, ops *[]history.Op) bool {
		return c.position(history.Committed, func(p history.Position) int64 { return 1 << 30 })
	}},
	{"all commits are lost", func(c *corruption, ops *[]history.Op) bool {
		return c.position(history.Committed, func(p history.Position) int64 { return history.NoOffset })
	}},
	{"a commit goes beyond the end", func(c *corruption, ops *[]history.Op) bool {
		return c.position(history.Commit, func(p history.Position) int64 { return 1 << 30 })
	}},
	{"an end goes back", func(c *corruption, ops *[]history.Op) bool {
		return c.position(history.Ends, func(p history.Position) int64 { return 0 })
	}},
}

// pickFinal is a poll of the final reads with records that suits.
func (c *corruption) pickFinal(suits func(op int) bool) (place, bool) {
	final := slices.IndexFunc(c.ops, func(op history.Op) bool { return op.Func == history.Final })
	var all []place
	for o := final; o < len(c.ops); o++ {
		if len(c.ops[o].Polls) > 0 && suits(o) {
			all = append(all, place{op: o})
		}
	}
	if len(all) == 0 {
		return place{}, false
	}
	return all[c.rnd.IntN(len(all))], true
}

// swapped is a record with the offset and value of the other of two, if it is one of
// them.
func swapped(r, x, y history.Record) history.Record {
	switch r {
	case x:
		return y
	case y:
		return x
	}
	return r
}

// position changes the last position of the last ok operation of a kind that follows
// an acknowledged one which settles the key's value.
func (c *corruption) position(f history.Func, to func(history.Position) int64) bool {
	for o := len(c.ops) - 1; o >= 0; o-- {
		op := &c.ops[o]
		if op.Func != f || op.Outcome != history.OK {
			continue
		}
		for i, p := range op.Positions {
			if p.Offset > 0 && c.settled(o, p.Key) {
				op.Positions[i].Offset = to(p)
				return true
			}
		}
	}
	return false
}

// settled tells whether an operation that says something of a key follows one, in
// time, that made it certain: a commit of the group, or an answer to the same process.
func (c *corruption) settled(o int, key history.Key) bool {
	for i := range c.ops {
		b := &c.ops[i]
		made := b.Func == history.Commit
		if c.ops[o].Func == history.Ends {
			made = b.Func == history.Ends && b.Process == c.ops[o].Process
		}
		if made && b.Outcome == history.OK && b.Complete < c.ops[o].Invoke &&
			slices.ContainsFunc(b.Positions, func(p history.Position) bool { return p.Key == key && p.Offset > 0 }) {
			return true
		}
	}
	return c.ops[o].Func == history.Commit
}
