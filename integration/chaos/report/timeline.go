package report

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirmq/weir/integration/chaos/check"
)

// pointsMax is how many points a curve has at most: more hide its shape.
const pointsMax = 420

// timeline is the SVG.
type timeline struct {
	Width, Height   string
	PlotX, PlotEnd  string // where the plots begin and end
	ClipWidth       string
	PlotsTop, Floor string // of all plots together
	XTicks          []tick
	TickY           string
	Faults          []faultBox
	Marks           []mark
	MarkY           string
	Plots           []plot
	FinalX          string // "" where there were no final reads
	FinalY          string
	Data            readout
}

// faultBox is one fault in its lane and its shade.
type faultBox struct {
	X, Width, Y, Height  string
	TextX, TextY, Label  string // Label is "" where there is no room
	Tip                  string
	Class                string
	ShadeTop, ShadeHight string
}

// mark is the place of an anomaly.
type mark struct{ X, Href, Tip string }

// readout is what the script shows under the pointer.
type readout struct {
	Left, Right float64 // share of the SVG's width at which the plots begin and end
	Length      float64 // of the run, seconds
	Step        float64 // of a row, seconds
	Names       []string
	Rows        [][]string
	Faults      []readoutFault
}

type readoutFault struct {
	Start, End float64
	Label      string
}

// kindClasses is how many colours there are for kinds of faults.
const kindClasses = 10

func newTimeline(r *check.Report) timeline {
	series := r.Series.Coarse(pointsMax)
	length := max(r.Length, 1)
	for _, i := range r.Injections {
		length = max(length, time.Duration(i.End))
	}
	a := axis{length}
	t := timeline{Width: num(plotWidth), PlotX: num(plotLeft), PlotEnd: num(plotWidth - plotRight), ClipWidth: num(plotWidth - plotLeft - plotRight), XTicks: a.ticks()}
	lanes := t.placeFaults(r, a)
	top := 4 + float64(lanes)*laneHeight
	t.MarkY = num(top + 8)
	for _, f := range r.Failed() {
		for i, c := range f.Worst {
			t.Marks = append(t.Marks, mark{num(a.x(c.At)), "#" + caseID(f.Kind, i), fmt.Sprintf("%v at %s: %s", f.Kind, clock(c.At.Round(time.Second)), c.Text)})
		}
	}
	if len(t.Marks) > 0 {
		top += 14
	}
	plotsTop := top
	t.PlotsTop = num(plotsTop)
	xs := make([]float64, len(series.Buckets))
	for i := range xs {
		xs[i] = a.x(time.Duration(i)*series.Width + series.Width/2)
	}
	for _, make := range []func(*check.Report, *check.Series, []float64, float64) plot{throughput, latency, availability, reading, backlog} {
		top += plotGap
		p := make(r, &series, xs, top)
		p.Top, p.Bottom, p.TitleY = num(top), num(top+plotHeight), num(top-12)
		p.Clip = fmt.Sprintf("clip%d", len(t.Plots))
		t.Plots = append(t.Plots, p)
		top += plotHeight
	}
	t.Floor, t.TickY, t.Height = num(top), num(top+17), num(top+axisHeight)
	for i := range t.Faults {
		t.Faults[i].ShadeTop, t.Faults[i].ShadeHight = t.PlotsTop, num(top-plotsTop)
	}
	if r.FinalAt >= 0 {
		t.FinalX, t.FinalY = num(a.x(r.FinalAt)), num(plotsTop+12)
	}
	t.Data = newReadout(r, &series, length)
	return t
}

// placeFaults puts each fault into the first lane that is free, and is how many lanes
// there are. Where there is room up to the next one of its lane, it is labelled.
func (t *timeline) placeFaults(r *check.Report, a axis) int {
	lanes := make([]int, len(r.Injections)) // of each fault
	room := make([]float64, len(r.Injections))
	var ends []float64 // of the lanes
	var last []int     // fault of each lane
	classes := kindClass(r)
	for i, f := range r.Injections {
		x, end := a.x(time.Duration(f.Start)), a.x(time.Duration(f.End))
		lane := slices.IndexFunc(ends, func(e float64) bool { return e <= x })
		switch {
		case lane < 0 && len(ends) < lanesMax:
			lane = len(ends)
			ends, last = append(ends, 0), append(last, i)
		case lane < 0: // all are taken: the one that is free first
			lane = slices.Index(ends, slices.Min(ends))
		}
		room[last[lane]] = x - a.x(time.Duration(r.Injections[last[lane]].Start))
		lanes[i], last[lane], room[i] = lane, i, plotWidth-x
		ends[lane] = max(ends[lane], max(end, x+2)+1)
		t.Faults = append(t.Faults, faultBox{X: num(x), Width: num(max(end-x, 2)), Class: classes[f.Kind], Tip: faultTip(r, f)})
	}
	for i, f := range r.Injections {
		b, y := &t.Faults[i], 4+float64(lanes[i])*laneHeight
		b.Y, b.Height = num(y), num(laneHeight-3)
		b.TextX, b.TextY = num(a.x(time.Duration(f.Start))+5), num(y+11.5)
		for _, label := range []string{f.String(), f.Kind} {
			if float64(len([]rune(label)))*glyph+8 < room[i] {
				b.Label = label
				break
			}
		}
	}
	return len(ends)
}

func faultTip(r *check.Report, f check.Injection) string {
	s := fmt.Sprintf("%v, %s for %s", f.Window, clock(time.Duration(f.Start).Round(100*time.Millisecond)), span(time.Duration(f.End-f.Start)))
	if !f.Survivable {
		s += " (no majority)"
	}
	if f.Silence > 0 {
		s += fmt.Sprintf("; %s without an acknowledgement of %s", span(f.Silence), r.Name(f.SilenceKey))
	}
	return s
}

// kindClass gives each kind of fault a colour.
func kindClass(r *check.Report) map[string]string {
	out := map[string]string{}
	for i, f := range r.Faults() {
		out[f.Kind] = fmt.Sprintf("k%d", i%kindClasses)
	}
	return out
}

// each is one value of each bucket.
func each(s *check.Series, of func(*check.Bucket) float64) []float64 {
	out := make([]float64, len(s.Buckets))
	for i := range out {
		out[i] = of(&s.Buckets[i])
	}
	return out
}

func rate(s *check.Series, n int64) float64 { return float64(n) / s.Width.Seconds() }

// greatest is the greatest number of some lists.
func greatest(lists ...[]float64) float64 {
	most := 0.0
	for _, l := range lists {
		for _, v := range l {
			if !math.IsNaN(v) {
				most = max(most, v)
			}
		}
	}
	return most
}

func throughput(_ *check.Report, s *check.Series, xs []float64, top float64) plot {
	acked := each(s, func(b *check.Bucket) float64 { return rate(s, b.Acked) })
	unknown := each(s, func(b *check.Bucket) float64 { return rate(s, b.Unknown) })
	failed := each(s, func(b *check.Bucket) float64 { return rate(s, b.Failed) })
	y, ticks := linear(top, greatest(acked, unknown, failed), count)
	return plot{Title: "Records sent per second", Ticks: ticks, Lines: []line{
		{Class: "acked", Label: "acknowledged", D: curve(y, xs, acked), Area: area(y, xs, acked)},
		{Class: "unknown-line", Label: "outcome unknown", D: curve(y, xs, unknown)},
		{Class: "failed", Label: "failed", D: curve(y, xs, failed)},
	}}
}

func latency(_ *check.Report, s *check.Series, xs []float64, top float64) plot {
	of := func(value func(*check.Latencies) time.Duration) []float64 {
		return each(s, func(b *check.Bucket) float64 {
			if b.Latency.Count == 0 {
				return math.NaN()
			}
			return max(value(&b.Latency).Seconds(), 1e-6)
		})
	}
	p50 := of(func(l *check.Latencies) time.Duration { return l.Quantile(0.5) })
	p99 := of(func(l *check.Latencies) time.Duration { return l.Quantile(0.99) })
	most := of(func(l *check.Latencies) time.Duration { return l.Max })
	least := math.Inf(1)
	for _, v := range p50 {
		if !math.IsNaN(v) {
			least = min(least, v)
		}
	}
	if math.IsInf(least, 1) {
		least = 1e-3
	}
	y, ticks := logarithmic(top, least, greatest(most), seconds)
	return plot{Title: "Time to acknowledge", Note: "logarithmic", Ticks: ticks, Lines: []line{
		{Class: "max", Label: "max", D: curve(y, xs, most)},
		{Class: "p99", Label: "p99", D: curve(y, xs, p99)},
		{Class: "p50", Label: "p50", D: curve(y, xs, p50)},
	}}
}

func availability(_ *check.Report, s *check.Series, xs []float64, top float64) plot {
	one := each(s, func(b *check.Bucket) float64 { return b.Silence.Seconds() })
	all := each(s, func(b *check.Bucket) float64 { return b.AllSilence.Seconds() })
	y, ticks := linear(top, max(greatest(one, all), 0.1), seconds)
	return plot{Title: "Time without an acknowledgement", Note: "while somebody waits for one", Ticks: ticks, Lines: []line{
		{Class: "one", Label: "of the worst partition", D: curve(y, xs, one), Area: area(y, xs, one)},
		{Class: "all", Label: "of all together", D: curve(y, xs, all), Area: area(y, xs, all)},
	}}
}

// reading is clipped to what was read before the final reads, which are much faster.
func reading(r *check.Report, s *check.Series, xs []float64, top float64) plot {
	read := each(s, func(b *check.Bucket) float64 { return rate(s, b.Read) })
	before := read
	if r.FinalAt >= 0 {
		before = read[:min(int(r.FinalAt/s.Width), len(read))]
	}
	p := plot{Title: "Records read per second"}
	most := greatest(before)
	if most == 0 {
		most = greatest(read)
	}
	if all := greatest(read); all > most {
		p.Note = "final reads reach " + count(math.Round(all))
	}
	y, ticks := linear(top, most, count)
	p.Ticks, p.Lines = ticks, []line{{Class: "read", Label: "read", D: curve(y, xs, read), Area: area(y, xs, read)}}
	return p
}

func backlog(_ *check.Report, s *check.Series, xs []float64, top float64) plot {
	unseen := each(s, func(b *check.Bucket) float64 { return float64(b.Unseen) })
	y, ticks := linear(top, max(greatest(unseen), 1), count)
	return plot{Title: "Records acknowledged and not yet read", Ticks: ticks, Lines: []line{
		{Class: "unseen", Label: "not yet read", D: curve(y, xs, unseen), Area: area(y, xs, unseen)},
	}}
}

func newReadout(r *check.Report, s *check.Series, length time.Duration) readout {
	out := readout{
		Left: plotLeft / plotWidth, Right: 1 - plotRight/plotWidth, Length: length.Seconds(), Step: s.Width.Seconds(),
		Names: []string{"acknowledged /s", "unknown /s", "failed /s", "p50", "p99", "max", "without ack, worst", "without ack, all", "read /s", "not yet read"},
	}
	for i := range s.Buckets {
		b := &s.Buckets[i]
		row := []string{count(math.Round(rate(s, b.Acked))), count(math.Round(rate(s, b.Unknown))), count(math.Round(rate(s, b.Failed))), "–", "–", "–",
			span(b.Silence), span(b.AllSilence), count(math.Round(rate(s, b.Read))), count(float64(b.Unseen))}
		if b.Latency.Count > 0 {
			row[3], row[4], row[5] = span(b.Latency.Quantile(0.5)), span(b.Latency.Quantile(0.99)), span(b.Latency.Max)
		}
		out.Rows = append(out.Rows, row)
	}
	for _, f := range r.Injections {
		out.Faults = append(out.Faults, readoutFault{time.Duration(f.Start).Seconds(), time.Duration(f.End).Seconds(), f.String()})
	}
	return out
}
