package report

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// The measures of the timeline, in units of its viewBox.
const (
	plotWidth  = 1200.0
	plotLeft   = 58.0
	plotRight  = 12.0
	plotHeight = 112.0
	plotGap    = 44.0 // above each plot, for its title
	laneHeight = 19.0
	lanesMax   = 6
	axisHeight = 26.0
	glyph      = 5.9 // width of a letter of a lane's label, about
)

// tick is one mark of an axis.
type tick struct {
	At    string
	Label string
}

// line is one curve.
type line struct {
	Class string // of style.css
	Label string
	D     string // its path
	Area  string // the path of the area below, or ""
}

// plot is one diagram.
type plot struct {
	Title, Note string
	Top, Bottom string // where it is
	TitleY      string
	Ticks       []tick
	Lines       []line
	Clip        string // id of its clip path
}

func num(f float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0") }

// axis maps time to x.
type axis struct{ length time.Duration }

func (a axis) x(d time.Duration) float64 {
	share := float64(d) / float64(max(a.length, 1))
	return plotLeft + min(max(share, 0), 1)*(plotWidth-plotLeft-plotRight)
}

// ticks are round times, ten or so.
func (a axis) ticks() []tick {
	steps := []time.Duration{time.Millisecond * 100, time.Millisecond * 200, time.Millisecond * 500, time.Second, 2 * time.Second, 5 * time.Second,
		10 * time.Second, 20 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute,
		30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour}
	step := 24 * time.Hour
	for i := len(steps) - 1; i >= 0 && a.length/steps[i] <= 14; i-- {
		step = steps[i]
	}
	var out []tick
	for at := time.Duration(0); at <= a.length; at += step {
		out = append(out, tick{num(a.x(at)), clock(at)})
	}
	return out
}

// clock is a time since the start as hours, minutes and seconds, as far as needed.
func clock(d time.Duration) string {
	s := d.Seconds()
	switch {
	case d%time.Second != 0:
		return fmt.Sprintf("%.1fs", s)
	case d < time.Minute:
		return fmt.Sprintf("%.0fs", s)
	case d < time.Hour:
		return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(s)%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", int(d.Hours()), int(d.Minutes())%60, int(s)%60)
}

// scale maps values to y.
type scale struct {
	top    float64 // y of its greatest value
	lo, hi float64 // of the values, or of their logarithms
	log    bool
}

func (s scale) y(v float64) float64 {
	if s.log {
		v = math.Log10(max(v, 1e-12))
	}
	share := (v - s.lo) / (s.hi - s.lo)
	return s.top + plotHeight*(1-min(max(share, 0), 1.2))
}

// linear is a scale from 0 to a round number above most, and its ticks.
func linear(top, most float64, label func(float64) string) (scale, []tick) {
	most = max(most, 1e-9)
	step := math.Pow(10, math.Floor(math.Log10(most)))
	for _, f := range []float64{5, 2.5, 2, 1, 0.5, 0.25} {
		if most/(step*f) >= 2.5 {
			step *= f
			break
		}
	}
	s := scale{top: top, hi: step * math.Ceil(most/step)}
	var out []tick
	for i := 0.0; i*step <= s.hi*1.001; i++ {
		out = append(out, tick{num(s.y(i * step)), label(i * step)})
	}
	return s, out
}

// logarithmic is a scale of decades, and a tick for each.
func logarithmic(top, least, most float64, label func(float64) string) (scale, []tick) {
	lo := math.Floor(math.Log10(max(least, 1e-9)))
	s := scale{top: top, lo: lo, hi: max(math.Ceil(math.Log10(max(most, 1e-9))), lo+1), log: true}
	var out []tick
	for d := s.lo; d <= s.hi; d++ {
		v := math.Pow(10, d)
		out = append(out, tick{num(s.y(v)), label(v)})
	}
	return s, out
}

// curve is the path through the values of buckets, broken where there are none (NaN).
func curve(s scale, xs, vs []float64) string {
	var b strings.Builder
	pen := false
	for i, v := range vs {
		if math.IsNaN(v) {
			pen = false
			continue
		}
		op := "L"
		if !pen {
			op = "M"
		}
		fmt.Fprintf(&b, "%s%s %s", op, num(xs[i]), num(s.y(v)))
		pen = true
	}
	return b.String()
}

// area is the path around what is below a curve without breaks.
func area(s scale, xs, vs []float64) string {
	if len(vs) == 0 {
		return ""
	}
	base := num(s.top + plotHeight)
	return fmt.Sprintf("M%s %s", num(xs[0]), base) + "L" + strings.TrimPrefix(curve(s, xs, vs), "M") + fmt.Sprintf("L%s %sZ", num(xs[len(xs)-1]), base)
}

// count is a number of things, short.
func count(v float64) string {
	switch {
	case v >= 1e6:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", v/1e6), ".0") + " M"
	case v >= 1e4:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", v/1e3), ".0") + " k"
	case v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

// seconds is a span given in seconds, short.
func seconds(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.9995e-3:
		return fmt.Sprintf("%.3g µs", v*1e6)
	case v < 0.9995:
		return fmt.Sprintf("%.3g ms", v*1e3)
	case v < 100:
		return fmt.Sprintf("%.3g s", v)
	}
	return clock(time.Duration(v * float64(time.Second)).Round(time.Second))
}

func span(d time.Duration) string { return seconds(d.Seconds()) }
