package sim

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

var (
	seeds     = flag.Uint64("seeds", 60, "number of runs")
	firstSeed = flag.Uint64("first-seed", 1, "seed of the first of them")
	shrink    = flag.Int("shrink", 0, "how many runs may be spent on a smaller plan for a seed that fails")
	keep      = flag.String("keep", "", "file to write the plan of a seed that fails to, as a regression")
)

// TestSimulation runs plans of many seeds. The first that breaks an invariant is
// printed with its last events; -first-seed and -seeds 1 run it again.
func TestSimulation(t *testing.T) {
	began, busy := time.Now(), processorTime()
	sum, p, bad := runSeeds(t, *firstSeed, *seeds)
	if bad != nil {
		report(t, p, bad)
		return
	}
	n, busy := *seeds, processorTime()-busy
	t.Logf("seeds %d to %d in %v, %.1f seeds per CPU-second: a run has %d events, %d faults, %d restarts, %d records acknowledged, %d leader epochs, %d cuts, %d lost in blackouts, %d moves, %d replicas gone by them, %d reads, %d metadata entries, %v of virtual time",
		*firstSeed, *firstSeed+n-1, time.Since(began).Round(time.Millisecond), float64(n)/busy.Seconds(), sum.Events/int(n), sum.Faults/int(n), sum.Restarts/int(n),
		sum.Acked/int(n), sum.Epochs/int(n), sum.Truncated/int(n), sum.Lost/int(n), sum.Moves/int(n), sum.Left/int(n), sum.Reads/int(n), sum.Entries/int(n), (sum.Elapsed / time.Duration(n)).Round(time.Second))
}

// processorTime is what this process has used, in all.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// runSeeds runs plans on all processors; of those that fail it returns the first.
func runSeeds(t *testing.T, first, n uint64) (sum Report, p Plan, bad *Violation) {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 30)) // most of what a run makes is garbage
	var (
		next    atomic.Uint64
		mu      sync.Mutex // guards sum, p, bad
		workers sync.WaitGroup
	)
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= n {
					return
				}
				plan := PlanFor(first + i)
				rep, v := Run(plan)
				if v == nil && (rep.Events < enoughEvents || rep.Faults < enoughFaults || rep.Acked < enoughAcked) {
					t.Errorf("too little happens with seed %d: %+v", plan.Seed, rep)
				}
				mu.Lock()
				sum.add(rep)
				if v != nil {
					next.Store(n)
					if bad == nil || v.Seed < bad.Seed {
						p, bad = plan, v
					}
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return sum, p, bad
}

func (r *Report) add(o Report) {
	r.Events += o.Events
	r.Faults += o.Faults
	r.Acked += o.Acked
	r.Epochs += o.Epochs
	r.Entries += o.Entries
	r.Elapsed += o.Elapsed
	r.Reads += o.Reads
	r.Restarts += o.Restarts
	r.Truncated += o.Truncated
	r.Lost += o.Lost
	r.Moves += o.Moves
	r.Left += o.Left
}

// report prints a violation, shrunk when asked to, and keeps its plan.
func report(t *testing.T, p Plan, bad *Violation) {
	t.Helper()
	if *shrink > 0 {
		was := len(p.Faults)
		p, bad = Shrink(p, bad, *shrink)
		t.Logf("shrunk from %d faults to %d", was, len(p.Faults))
	}
	if *keep != "" {
		text, err := json.MarshalIndent(p, "", " ")
		if err == nil {
			err = os.WriteFile(*keep, append(text, '\n'), 0o644)
		}
		if err != nil {
			t.Errorf("keep the plan: %v", err)
		}
	}
	t.Errorf("%v\n%s", p, bad.Full())
}

// TestRegressions runs the plans that broke an invariant once. Each file's name
// says which fault of which rule it showed.
func TestRegressions(t *testing.T) {
	files, err := filepath.Glob("testdata/regressions/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no regressions found: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var p Plan
			d := json.NewDecoder(bytes.NewReader(text))
			d.DisallowUnknownFields()
			if err := d.Decode(&p); err != nil {
				t.Fatalf("read the plan: %v", err)
			}
			if _, bad := Run(p); bad != nil {
				report(t, p, bad)
			}
		})
	}
}

// TestSeedReproduces runs a few seeds twice: the same steps happen, in the same order.
func TestSeedReproduces(t *testing.T) {
	sums := map[uint64]uint64{}
	for seed := *firstSeed; seed < *firstSeed+5; seed++ {
		a, badA := Run(PlanFor(seed))
		b, badB := Run(PlanFor(seed))
		if a != b || fmt.Sprint(badA) != fmt.Sprint(badB) {
			t.Errorf("seed %d: %+v (%v), then %+v (%v)", seed, a, badA, b, badB)
		}
		if other, known := sums[a.Steps]; known {
			t.Errorf("seeds %d and %d have the same sum of steps %x", other, seed, a.Steps)
		}
		sums[a.Steps] = seed
	}
}

// TestStepsAreSummed changes one thing about two steps: their order, time or node.
func TestStepsAreSummed(t *testing.T) {
	sum := func(steps ...event) uint64 {
		w := &world{}
		for _, e := range steps {
			w.now = e.at
			w.sum(e)
		}
		return w.report.Steps
	}
	n, m := &node{id: 1}, &node{id: 2}
	a, b := event{at: 5, seq: 1, node: n}, event{at: 5, seq: 2, node: n}
	late, other, none, slow := b, b, b, b
	late.at, other.node, none.node, slow.lane = 6, m, nil, laneData
	want := sum(a, b)
	for name, got := range map[string]uint64{
		"order": sum(b, a), "time": sum(a, late), "node": sum(a, other), "no node": sum(a, none), "lane": sum(a, slow), "none": sum(a),
	} {
		if got == want {
			t.Errorf("another %s gives the same sum %x", name, got)
		}
	}
}

// TestShrink breaks an invariant of its own by one fault of a plan. What is left is that
// fault alone, in a shorter and simpler run that breaks the same invariant.
func TestShrink(t *testing.T) {
	p := PlanFor(*firstSeed)
	guilty := &p.Faults[len(p.Faults)/2]
	guilty.Kind, guilty.Seed = FaultClock, 77
	run := func(p Plan) (Report, *Violation) {
		return run(p, func(w *world, f Fault) {
			switch {
			case f.Kind == FaultClock && f.Seed == 77:
				w.fail("nobody sets clocks", "%v", f)
			case f.Kind != FaultClock && len(w.plan.Faults) == 1:
				w.fail("another invariant", "%v", f)
			}
		})
	}
	_, bad := run(p)
	if bad == nil || bad.Invariant != "nobody sets clocks" {
		t.Fatalf("the plan breaks %v", bad)
	}
	small, same := shrinkBy(run, p, bad, 100)
	if len(small.Faults) != 1 || small.Faults[0].Seed != 77 || len(small.More) != 0 {
		t.Errorf("%d faults are left of %d, and %d more: %v", len(small.Faults), len(p.Faults), len(small.More), small.Faults)
	}
	if small.Span >= p.Span || len(small.Topics) != 1 || small.Topics[0].Partitions != 1 || small.SegmentBytes == p.SegmentBytes {
		t.Errorf("the run has become no simpler: %v", small)
	}
	if same == nil || same.Invariant != bad.Invariant {
		t.Errorf("the plan that is left breaks %v, not %v", same, bad)
	}
	if _, again := run(small); again == nil || again.Error() != same.Error() {
		t.Errorf("run again the plan that is left breaks %v, not %v", again, same)
	}
}

// TestShrinkKeepsWhatHolds shrinks a plan that breaks nothing: it stays as it is.
func TestShrinkKeepsWhatHolds(t *testing.T) {
	p := PlanFor(*firstSeed)
	bad := &Violation{Invariant: "none"}
	small, same := Shrink(p, bad, 5)
	if len(small.Faults) != len(p.Faults) || same != bad {
		t.Errorf("a plan without the violation was shrunk from %d faults to %d", len(p.Faults), len(small.Faults))
	}
}
