package check

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/integration/chaos/history"
)

// WriteText writes what matters of a report for a terminal.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d records acknowledged, %d of unknown outcome (%d of them happened), %d failed, %d reads, in %v\n",
		r.Verdict, r.Sent[history.OK], r.Sent[history.Info], r.Recovered, r.Sent[history.Fail], r.Read, r.Length.Round(time.Second))
	for _, s := range r.Failures {
		fmt.Fprintf(&b, "failure: %s\n", s)
	}
	for _, s := range r.Losses {
		fmt.Fprintf(&b, "clients say: %s\n", s)
	}
	for _, s := range r.Problems {
		fmt.Fprintf(&b, "proves nothing: %s\n", s)
	}
	for _, f := range r.Found {
		fmt.Fprintf(&b, "%s (%s): %d, %s\n", f.Kind, r.grade(f.Kind), f.Count, f.Kind.Meaning())
		for _, c := range f.Worst {
			r.writeCase(&b, c)
		}
	}
	for _, f := range r.Faults() {
		fmt.Fprintf(&b, "%-24s %4d times, without an acknowledgement of one key p50 %v, max %v; of all p50 %v, max %v\n", f.Kind, f.Count,
			r.silence(f.P50), r.silence(f.Max), r.silence(f.AllP50), r.silence(f.AllMax))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// grade says what an anomaly of a kind means for the verdict.
func (r *Report) grade(k Kind) string {
	switch {
	case !k.Fails():
		return "informational"
	case r.MayLose && k.FollowsLoss():
		return "LOST, as these faults may"
	}
	return "FAILS"
}

// silence is a time without acknowledgement in words.
func (r *Report) silence(d time.Duration) string {
	if d == 0 {
		return "< " + r.Resolution.String()
	}
	return d.Round(time.Millisecond).String()
}

func (r *Report) writeCase(b *strings.Builder, c Anomaly) {
	if len(c.Cycle) > 0 {
		fmt.Fprintf(b, "  at %v: %s\n", c.At.Round(time.Millisecond), c.Text)
		for _, s := range c.Cycle {
			fmt.Fprintf(b, "    process %d, %v at %v: %s → %s\n", s.Process, s.Func, s.Invoke, s.Text, s.Edge)
		}
		return
	}
	fmt.Fprintf(b, "  %s at %v: %s\n", r.Name(c.Key), c.At.Round(time.Millisecond), c.Text)
}

// Fault is what faults of one kind cost.
type Fault struct {
	Kind           string
	Count          int
	Survivable     int           // of them
	P50, Max       time.Duration // time without an acknowledgement of one key
	AllP50, AllMax time.Duration // of all keys together
}

// Faults sums up the injections by kind, in order of their names. Times below
// Resolution are zero.
func (r *Report) Faults() []Fault {
	by := map[string][]Injection{}
	var names []string
	for _, i := range r.Injections {
		if by[i.Kind] == nil {
			names = append(names, i.Kind)
		}
		by[i.Kind] = append(by[i.Kind], i)
	}
	slices.Sort(names)
	var out []Fault
	for _, name := range names {
		f := Fault{Kind: name, Count: len(by[name])}
		var one, all []time.Duration
		for _, i := range by[name] {
			one, all = append(one, i.Silence), append(all, i.AllSilence)
			if i.Survivable {
				f.Survivable++
			}
		}
		f.P50, f.Max = spread(one)
		f.AllP50, f.AllMax = spread(all)
		out = append(out, f)
	}
	return out
}

// spread is the median and the maximum.
func spread(ds []time.Duration) (p50, most time.Duration) {
	slices.Sort(ds)
	n := len(ds)
	return (ds[(n-1)/2] + ds[n/2]) / 2, ds[n-1]
}
