package sim

import (
	"slices"
	"time"
)

// Shrink looks for a smaller plan that breaks the same invariant: with fewer
// faults, a shorter time, fewer topics and clients. It runs at most tries plans
// and returns the smallest one that failed, with its violation.
func Shrink(p Plan, bad *Violation, tries int) (Plan, *Violation) {
	return shrinkBy(Run, p, bad, tries)
}

func shrinkBy(run func(Plan) (Report, *Violation), p Plan, bad *Violation, tries int) (Plan, *Violation) {
	s := shrinker{run: run, best: p, bad: bad, left: tries}
	s.try(p.asFar(bad))
	s.try(s.without(len(p.Faults), len(p.Faults))) // without faults at all?
	s.cutTime()
	for size := max(len(s.best.Faults)/2, 1); ; size /= 2 {
		s.dropFaults(size)
		if size <= 1 {
			break
		}
	}
	s.simplify()
	s.dropFaults(1)
	s.cutTime()
	return s.best, s.bad
}

// asFar is the plan with as many of its further faults as had happened, as
// ordinary ones.
func (p Plan) asFar(bad *Violation) Plan {
	span := bad.At
	if bad.HealedAt > 0 {
		span = bad.HealedAt
	}
	p.Faults = slices.Clone(p.Faults)
	for _, f := range p.More {
		if f.At <= span {
			p.Faults = append(p.Faults, f)
		}
	}
	p.Span, p.More = max(p.Span, span), nil
	return p
}

type shrinker struct {
	run  func(Plan) (Report, *Violation)
	best Plan
	bad  *Violation
	left int
}

// try runs a plan and keeps it if it breaks the same invariant.
func (s *shrinker) try(p Plan) bool {
	if s.left <= 0 {
		return false
	}
	s.left--
	_, bad := s.run(p)
	if bad == nil || bad.Invariant != s.bad.Invariant {
		return false
	}
	s.best, s.bad = p, bad
	return true
}

// without is the plan without n faults that end before index end.
func (s *shrinker) without(end, n int) Plan {
	p := s.best
	p.Faults = append(append([]Fault(nil), p.Faults[:end-n]...), p.Faults[end:]...)
	return p
}

// dropFaults leaves out runs of faults, the last first.
func (s *shrinker) dropFaults(size int) {
	for end := len(s.best.Faults); end > 0; {
		n := min(size, end)
		s.try(s.without(end, n))
		end = min(end-n, len(s.best.Faults))
	}
}

// cutTime ends the run soon after the violation.
func (s *shrinker) cutTime() {
	p := s.best
	if end := s.bad.At + time.Second; end < p.Span {
		p.Span = end
		for i, f := range p.Faults {
			if f.At >= end {
				p.Faults = p.Faults[:i]
				break
			}
		}
		s.try(p)
	}
}

// simplify takes away what the run may not need.
func (s *shrinker) simplify() {
	for len(s.best.Topics) > 1 {
		p := s.best
		p.Topics = p.Topics[:len(p.Topics)-1]
		if !s.try(p) {
			break
		}
	}
	for _, change := range []func(*Plan){
		func(p *Plan) { p.ControlLoss = 0 },
		func(p *Plan) { p.BadBytes = 0 },
		func(p *Plan) {
			p.Fsync, p.Topics = false, slices.Clone(p.Topics)
			for i := range p.Topics {
				p.Topics[i].Fsync = false
			}
		},
		func(p *Plan) { p.SegmentBytes = 1 << 20 },
		func(p *Plan) { p.Topics = []TopicPlan{{Name: "orders", Partitions: 1, Replicas: 3, Producers: 1}} },
	} {
		p := s.best
		change(&p)
		s.try(p)
	}
	for i := range s.best.Faults {
		p := s.best
		p.Faults = append([]Fault(nil), p.Faults...)
		if p.Faults[i].For > time.Second {
			p.Faults[i].For = p.Faults[i].For / 2
			s.try(p)
		}
	}
}
