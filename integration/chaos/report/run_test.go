package report

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirmq/weir/integration/chaos/check"
	"github.com/weirmq/weir/integration/chaos/history"
)

// run makes the history of a run of two minutes with faults, from a seed: six keys,
// their leaders on three nodes, and a broker that loses a record if told to.
type run struct {
	rnd     *rand.Rand
	ops     []history.Op
	logs    [runKeys][]history.Value
	windows []history.Window
	lose    bool
}

const (
	runKeys   = 6
	runLength = 120 * time.Second
)

// down is when the leader of a key answers again, if it does not at a time.
func (r *run) down(k int, at time.Duration) (time.Duration, bool) {
	for _, w := range r.windows {
		start := time.Duration(w.Start)
		gap := map[string]time.Duration{"kill": 1800 * time.Millisecond, "pause": 3200 * time.Millisecond, "partition": 3500 * time.Millisecond, "power loss": 9 * time.Second}[w.Kind]
		hit := w.Kind == "power loss" || int(w.Start/1e9)%3 == k%3
		if hit && start <= at && at < start+gap {
			return start + gap, true
		}
	}
	return 0, false
}

func (r *run) plan() {
	kinds := []struct {
		kind, target string
		length       time.Duration
		survivable   bool
	}{
		{"kill", "leader, node 2", 6 * time.Second, true},
		{"partition", "node 1 | nodes 2, 3", 9 * time.Second, true},
		{"pause", "node 3", 7 * time.Second, true},
		{"slow link", "node 1, 1 Mbit/s", 11 * time.Second, true},
		{"power loss", "all nodes", 4 * time.Second, false},
		{"kill", "controller, node 1", 5 * time.Second, true},
		{"bit flip", "node 2, 00000000000000000000.log", 3 * time.Second, true},
	}
	at := 8 * time.Second
	for i, k := range kinds {
		r.windows = append(r.windows, history.Window{Start: int64(at), End: int64(at + k.length), Kind: k.kind, Target: k.target, Survivable: k.survivable})
		at += k.length + time.Duration(2+i%3)*time.Second
		if i == 1 {
			at -= 6 * time.Second // overlaps the one before
		}
	}
}

func (r *run) add(op history.Op, at, done time.Duration) {
	op.Invoke, op.Complete = int64(at), int64(done)
	r.ops = append(r.ops, op)
}

func (r *run) make() {
	r.plan()
	var free [runKeys]time.Duration
	counter := uint64(0)
	at := [2][runKeys]int{}
	for p := range 2 {
		r.add(history.Op{Process: history.Process(10 + p), Func: []history.Func{history.Assign, history.Subscribe}[p], Outcome: history.OK, Group: 1, Keys: keys()[:runKeys*(1-p)]}, 0, time.Millisecond)
	}
	for now := 10 * time.Millisecond; now < 100*time.Second; now += 4 * time.Millisecond {
		k := r.rnd.IntN(runKeys)
		if free[k] > now {
			continue
		}
		counter++
		r.send(k, counter, now, &free[k])
		if p := int(now/time.Millisecond) % 2; r.rnd.IntN(6) == 0 {
			r.poll(10+p, &at[p], now, 40)
		}
	}
	end := 104 * time.Second
	r.add(history.Op{Process: 20, Func: history.Final, Outcome: history.OK}, end, end)
	r.add(history.Op{Process: 21, Func: history.Assign, Outcome: history.OK, Keys: keys()}, end, end+time.Millisecond)
	last := [runKeys]int{}
	for now := end; now < end+6*time.Second; now += 15 * time.Millisecond {
		r.poll(21, &last, now, 300)
	}
	slices.SortStableFunc(r.ops, func(x, y history.Op) int { return int(x.Complete - y.Complete) })
}

func keys() (out []history.Key) {
	for k := range history.Key(runKeys) {
		out = append(out, k)
	}
	return out
}

// send sends one record to a key, which is busy until it is answered.
func (r *run) send(k int, n uint64, now time.Duration, free *time.Duration) {
	v := history.NewValue(1, n)
	op := history.Op{Process: 1, Func: history.Send, Outcome: history.OK, Sends: []history.Record{{Key: history.Key(k), Offset: history.NoOffset, Value: v}}}
	took := time.Duration(1.5e6 * math.Exp(r.rnd.NormFloat64()*0.5))
	if now > 48*time.Second && now < 59*time.Second {
		took *= 12 // the slow link
	}
	up, down := r.down(k, now)
	if down {
		took += up - now
	}
	*free = now + took
	if down && r.rnd.IntN(3) == 0 {
		op.Outcome = history.Info
		if r.rnd.IntN(2) == 0 {
			r.add(op, now, now+took)
			return
		}
	}
	r.logs[k] = append(r.logs[k], v)
	if op.Outcome == history.OK {
		op.Sends[0].Offset = int64(len(r.logs[k]) - 1)
	}
	r.add(op, now, now+took)
}

// poll reads some of all keys. What a broker loses is two records
// of key 2.
func (r *run) poll(p int, at *[runKeys]int, now time.Duration, most int) {
	op := history.Op{Process: history.Process(p), Func: history.Poll, Outcome: history.OK}
	for k := range runKeys {
		for n := 0; at[k] < len(r.logs[k]) && n < most; n++ {
			rec := history.Record{Key: history.Key(k), Offset: int64(at[k]), Value: r.logs[k][at[k]]}
			if !r.lose || k != 2 || at[k]/2 != 200 {
				op.Polls = append(op.Polls, rec)
			}
			at[k]++
		}
	}
	r.add(op, now, now+time.Millisecond)
}

// reportOf analyzes a run of a seed.
func reportOf(t *testing.T, seed uint64, lose bool) *check.Report {
	t.Helper()
	r := run{rnd: rand.New(rand.NewPCG(seed, 1)), lose: lose}
	r.make()
	var buf bytes.Buffer
	w, err := history.NewWriter(&buf, history.Header{Seed: seed, StartUnix: 1790000000e9, Command: "scripts/chaos -seed 42 -length 2m -faults all"})
	if err != nil {
		t.Fatal(err)
	}
	for k, name := range []string{"orders-0", "orders-1", "orders-2", "payments-0", "payments-1", "payments-2"} {
		if err := w.Name(history.Name{Key: history.Key(k), Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range r.ops {
		if err := w.Append(&r.ops[i]); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range r.windows {
		if err := w.Window(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	out, err := check.Analyze(func() (*history.Reader, error) { return history.NewReader(bytes.NewReader(buf.Bytes())) }, check.Options{ProgressMax: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
