package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Target says whom a fault is aimed at.
type Target string

// The targets. Leader, follower and coordinator are those of a partition or group
// drawn when the fault begins.
const (
	Leader      Target = "leader"
	Follower    Target = "follower"
	Controller  Target = "controller"
	Coordinator Target = "coordinator"
	Minority    Target = "minority"
	Majority    Target = "majority"
	All         Target = "all"
	// Nobody is the target of faults that concern the cluster as one.
	Nobody Target = "cluster"
)

// Step is one fault of a plan.
type Step struct {
	After  time.Duration // since the end of the step before
	Hold   time.Duration // how long the fault stays
	Faults []Aim         // at the same time
	Whole  bool          // all replicas must be in sync before it
}

// Aim is a kind of fault and whom it is aimed at.
type Aim struct {
	Kind   string
	Target Target
}

// String is "kill leader + slow minority".
func (s Step) String() string {
	var out []string
	for _, a := range s.Faults {
		out = append(out, fmt.Sprintf("%s %s", a.Kind, a.Target))
	}
	return strings.Join(out, " + ")
}

// Plan is the faults of a run in order.
type Plan []Step

const (
	quietMin, quietSpan = 2 * time.Second, 4 * time.Second
	holdMin, holdSpan   = 2 * time.Second, 6 * time.Second
)

// Draw draws a plan of about that length. Every kind occurs before one occurs twice;
// one step in four holds two faults that can be combined. The same arguments give the
// same plan.
func Draw(seed uint64, length time.Duration, kinds []Kind) Plan {
	rnd := rand.New(rand.NewPCG(seed, 0xfa017))
	var plan Plan
	var deck []Kind
	last := slices.DeleteFunc(slices.Clone(kinds), func(k Kind) bool { return !k.Final })
	kinds = slices.DeleteFunc(slices.Clone(kinds), func(k Kind) bool { return k.Final })
	deal := func() Kind {
		if len(deck) == 0 {
			deck = slices.Clone(kinds)
			rnd.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		k := deck[0]
		deck = deck[1:]
		return k
	}
	add := func(s Step) time.Duration {
		s.After = quietMin + time.Duration(rnd.Int64N(int64(quietSpan)))
		s.Hold = holdMin + time.Duration(rnd.Int64N(int64(holdSpan)))
		plan = append(plan, s)
		return s.After + s.Hold
	}
	for at := time.Duration(0); len(kinds) > 0 && at < length; {
		k := deal()
		s := Step{Faults: []Aim{k.aim(rnd)}}
		if k.Mixes && rnd.IntN(4) == 0 {
			if other := kinds[rnd.IntN(len(kinds))]; other.Mixes && other.Name != k.Name {
				s.Faults = append(s.Faults, other.aim(rnd))
			}
		}
		at += add(s)
	}
	if len(last) > 0 {
		add(Step{Faults: []Aim{last[rnd.IntN(len(last))].aim(rnd)}})
	}
	return plan
}

const (
	aloneMin, aloneSpan = time.Second, time.Second
	// aloneHold is longer than it takes to miss a node, a session of 3 s, and to go on without it.
	aloneHold = 6 * time.Second
)

// DrawAlone draws a plan in which each kind happens alone that many times, one after the
// other, each when the cluster is whole, aimed at what leaves a majority. A kind whose
// victims do not return happens once, at the end; of several only the first.
func DrawAlone(seed uint64, times int, kinds []Kind) Plan {
	rnd := rand.New(rand.NewPCG(seed, 0xa10e))
	var plan, last Plan
	for _, k := range kinds {
		k.Targets = slices.DeleteFunc(slices.Clone(k.Targets), func(t Target) bool { return t == Majority || t == All })
		one := func() Step {
			return Step{After: aloneMin + time.Duration(rnd.Int64N(int64(aloneSpan))), Hold: aloneHold, Faults: []Aim{k.aim(rnd)}, Whole: true}
		}
		if k.Final {
			last = append(last, one())
			continue
		}
		for range times {
			plan = append(plan, one())
		}
	}
	return append(plan, last[:min(1, len(last))]...)
}

func (k Kind) aim(rnd *rand.Rand) Aim {
	return Aim{Kind: k.Name, Target: k.Targets[rnd.IntN(len(k.Targets))]}
}
