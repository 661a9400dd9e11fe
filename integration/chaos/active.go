package chaos

import (
	"slices"

	"github.com/weirmq/weir/integration/chaos/history"
	"github.com/weirmq/weir/integration/chaos/host"
)

// fault is a fault under way.
type fault struct {
	began        int64
	kind, target string
	down         []*host.Host // whom it takes away, from clients or from each other
	survivable   bool         // so far
}

// strike notes that a fault begins. What it takes away is told by take.
func (r *Run) strike(kind, target string) *fault {
	f := &fault{began: r.book.Now(), kind: kind, target: target, survivable: true}
	r.active = append(r.active, f)
	r.outnumber()
	return f
}

// take notes whom a fault under way takes away.
func (r *Run) take(f *fault, victims []*host.Host) {
	f.target += names(victims)
	f.down = append(f.down, victims...)
	r.outnumber()
}

// takeNone notes whom a fault under way troubles without taking it away.
func (r *Run) takeNone(f *fault, victims []*host.Host) { f.target += names(victims) }

// outnumber judges all faults that are active together: where no majority is left,
// none of them is one that the cluster has to go on under.
func (r *Run) outnumber() {
	if majorityUp(r.cluster.Hosts, r.active) {
		return
	}
	for _, f := range r.active {
		f.survivable = false
	}
}

// majorityUp tells whether more than half of the hosts are neither lost nor taken away by any fault.
func majorityUp(hosts []*host.Host, active []*fault) bool {
	up := 0
	for _, h := range hosts {
		taken := slices.ContainsFunc(active, func(f *fault) bool { return slices.Contains(f.down, h) })
		if !h.Lost() && !taken {
			up++
		}
	}
	return up > len(hosts)/2
}

// over records a fault that has ended.
func (r *Run) over(f *fault) {
	r.active = slices.DeleteFunc(r.active, func(o *fault) bool { return o == f })
	r.book.Window(history.Window{Start: f.began, End: r.book.Now(), Kind: f.kind, Target: f.target, Survivable: f.survivable})
}
