package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/integration/chaos/check"
	"github.com/weirmq/weir/integration/chaos/history"
)

// page is all that the template shows.
type page struct {
	Title, Verdict, Headline string
	Facts                    []fact // what was run
	Command                  string
	Tiles                    []tile
	Timeline                 timeline
	Faults                   []faultRow
	Resolution               string
	Kinds                    []kindBlock
	Failures, Problems       []string
	Losses                   []string // of a run that may lose records
	Notes                    []string
	Counts                   []countRow
	Consumed                 []fact
	Checked                  []checkedKind
}

type fact struct{ Name, Value string }

// tile is one figure that matters.
type tile struct{ Value, Name, Class string }

// faultRow is one kind of fault.
type faultRow struct {
	Class, Kind            string
	Count, Survivable      int
	P50, Max, AllP50, AllM string
}

// kindBlock is one kind of anomaly.
type kindBlock struct {
	Name, Meaning string
	Fails         bool
	Allowed       bool // in this run
	Count         int64
	Cases         []caseBlock
	More          int64 // cases not shown
}

type caseBlock struct {
	ID, Where, At, Text string
	Near                *nearTable
	Cycle               []cycleStep
}

// nearTable is a neighbourhood.
type nearTable struct {
	Offsets []nearCell // the head
	Log     []nearCell
	Rows    []nearRow
	Omitted int
}

type nearCell struct {
	Text  string
	Class string
}

type nearRow struct {
	When, Took, Who, What, Outcome string
	Cells                          []nearCell
	Gap                            int // rows omitted before this one
}

type cycleStep struct{ When, Who, Text, Edge string }

type countRow struct {
	Func           string
	OK, Info, Fail int64
}

// checkedKind is one line of the list of what was looked for.
type checkedKind struct {
	Name, Meaning, Class, Result string
}

func newPage(r *check.Report, m Meta) page {
	p := page{
		Title: m.Title, Verdict: string(r.Verdict), Headline: headline(r), Command: r.Header.Command, Notes: m.Notes,
		Failures: r.Failures, Problems: r.Problems, Timeline: newTimeline(r), Resolution: span(r.Resolution),
	}
	if r.MayLose {
		p.Losses = r.Losses
	} else {
		p.Failures = slices.Concat(r.Failures, r.Losses)
	}
	if p.Title == "" {
		p.Title = "Chaos run"
	}
	p.Facts = []fact{
		{"Seed", fmt.Sprint(r.Header.Seed)},
		{"Started", time.Unix(0, r.Header.StartUnix).UTC().Format("2006-01-02 15:04:05 UTC")},
		{"Length", clock(r.Length.Round(time.Second))},
		{"Broker", m.Version},
		{"Cluster", m.Cluster},
	}
	p.tiles(r)
	p.faults(r)
	for _, f := range r.Found {
		p.Kinds = append(p.Kinds, newKind(r, f))
	}
	for f := history.Func(1); int(f) < history.Funcs; f++ {
		if n := r.Counts[f]; n[history.OK]+n[history.Info]+n[history.Fail] > 0 {
			p.Counts = append(p.Counts, countRow{f.String(), n[history.OK], n[history.Info], n[history.Fail]})
		}
	}
	for n, c := range r.Consumed {
		if c > 0 {
			p.Consumed = append(p.Consumed, fact{times(n), fmt.Sprint(c)})
		}
	}
	p.checked(r)
	return p
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func headline(r *check.Report) string {
	switch r.Verdict {
	case check.Valid:
		return "Everything that was acknowledged is there, once and in order."
	case check.Unknown:
		return "Nothing wrong was found, but the run proves too little."
	case check.Lossy:
		return "Ends of logs were lost, as these faults may, and nothing else is wrong: " + anomalies(r)
	}
	return anomalies(r)
}

// anomalies counts what was found by kind.
func anomalies(r *check.Report) string {
	var parts []string
	for _, f := range r.Failed() {
		parts = append(parts, fmt.Sprintf("%d × %v", f.Count, f.Kind))
	}
	if n := len(r.Failures) + len(r.Losses); n > 0 {
		parts = append(parts, fmt.Sprintf("%d × failure", n))
	}
	return strings.Join(parts, ", ")
}

func (p *page) tiles(r *check.Report) {
	l := r.Series.Latency()
	var one, all time.Duration
	for i := range r.Series.Buckets {
		one, all = max(one, r.Series.Buckets[i].Silence), max(all, r.Series.Buckets[i].AllSilence)
	}
	p.Tiles = []tile{
		{count(float64(r.Sent[history.OK])), "records acknowledged", ""},
		{count(float64(r.Sent[history.Info])), fmt.Sprintf("outcome unknown, %s happened", count(float64(r.Recovered))), ""},
		{count(float64(r.Sent[history.Fail])), "failed", ""},
		{count(float64(r.Read)), "reads of records", ""},
		{count(float64(len(r.Injections))), "faults", ""},
		{span(l.Quantile(0.99)), "p99 to acknowledge, max " + span(l.Max), ""},
		{span(one), "longest without an ack; all together " + span(all), ""},
	}
	failed := int64(0)
	for _, f := range r.Failed() {
		failed += f.Count
	}
	class := "good"
	if failed > 0 {
		class = "bad"
	}
	p.Tiles = append(p.Tiles, tile{count(float64(failed)), "anomalies", class})
}

func (p *page) faults(r *check.Report) {
	classes := kindClass(r)
	for _, f := range r.Faults() {
		p.Faults = append(p.Faults, p.faultRow(f, classes[f.Kind]))
	}
}

func (p *page) faultRow(f check.Fault, class string) faultRow {
	short := func(d time.Duration) string {
		if d == 0 {
			return "< " + p.Resolution
		}
		return span(d)
	}
	return faultRow{class, f.Kind, f.Count, f.Survivable, short(f.P50), short(f.Max), short(f.AllP50), short(f.AllMax)}
}

func caseID(k check.Kind, i int) string { return fmt.Sprintf("%v-%d", k, i+1) }

func newKind(r *check.Report, f check.Found) kindBlock {
	out := kindBlock{Name: f.Kind.String(), Meaning: f.Kind.Meaning(), Fails: f.Kind.Fails(), Allowed: r.MayLose && f.Kind.Fails() && f.Kind.FollowsLoss(), Count: f.Count, More: f.Count - int64(len(f.Worst))}
	for i, c := range f.Worst {
		b := caseBlock{ID: caseID(f.Kind, i), Text: c.Text, At: clock(c.At.Round(100 * time.Millisecond))}
		if len(c.Cycle) == 0 {
			b.Where = r.Name(c.Key)
		}
		if c.Near != nil {
			b.Near = newNear(c)
		}
		for _, s := range c.Cycle {
			b.Cycle = append(b.Cycle, cycleStep{clock(s.Invoke.Round(time.Millisecond * 100)), who(s), s.Text, s.Edge})
		}
		out.Cases = append(out.Cases, b)
	}
	return out
}

func who(s check.Step) string { return fmt.Sprintf("process %d, %v %v", s.Process, s.Func, s.Outcome) }

func newNear(c check.Anomaly) *nearTable {
	n := c.Near
	focus := int(c.Offset - n.First)
	class := func(i int) string {
		if i == focus {
			return "focus"
		}
		return ""
	}
	t := &nearTable{Omitted: n.Omitted}
	for i, held := range n.Log {
		t.Offsets = append(t.Offsets, nearCell{fmt.Sprint(n.First + int64(i)), class(i)})
		t.Log = append(t.Log, nearCell{held, class(i)})
	}
	for i, row := range n.Rows {
		out := nearRow{When: fmt.Sprintf("%.3fs", row.Invoke.Seconds()), Took: span(row.Took), Who: fmt.Sprint(row.Process), What: row.Func.String(), Outcome: row.Outcome.String()}
		if i == n.OmittedAt() {
			out.Gap = n.Omitted
		}
		for j, text := range row.Cells {
			out.Cells = append(out.Cells, nearCell{text, strings.TrimSpace(class(j) + cellClass(text, n.Log[j]))})
		}
		t.Rows = append(t.Rows, out)
	}
	return t
}

// cellClass marks what an operation did, and what differs from what the log holds.
func cellClass(text, held string) string {
	switch {
	case text == "":
		return ""
	case strings.HasPrefix(text, "sent "):
		return " sent"
	case text == "◂":
		return " pos"
	case text != held:
		return " odd"
	}
	return " got"
}

// checked lists what was looked for.
func (p *page) checked(r *check.Report) {
	found := map[check.Kind]int64{}
	for _, f := range r.Found {
		found[f.Kind] = f.Count
	}
	for _, k := range check.Kinds() {
		c := checkedKind{Name: k.String(), Meaning: k.Meaning(), Class: "good", Result: "none"}
		if n := found[k]; n > 0 {
			c.Result, c.Class = fmt.Sprint(n), "bad"
			if !k.Fails() {
				c.Class = "info"
			}
		} else if slices.Contains(r.Untried, k) {
			c.Result, c.Class = "nothing to look at", "untried"
		}
		p.Checked = append(p.Checked, c)
	}
}
