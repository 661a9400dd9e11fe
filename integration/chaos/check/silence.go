package check

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/integration/chaos/history"
)

const (
	// allKeys stands for all keys together.
	allKeys = math.MaxUint32
	// idleSlack is how long nobody may ask for anything before a silence ends for
	// want of somebody who waits.
	idleSlack = int64(time.Second)
	// quietMin is the shortest silence that is kept at first; it doubles whenever
	// there are quietMax of them.
	quietMin = 20 * time.Millisecond
	quietMax = 1 << 18
)

// silence follows the time without acknowledgement of one key: the time in which
// somebody waited for one and nobody got one.
type silence struct {
	acked   int64 // the last acknowledgement
	waiting bool  // somebody asked since and was not acknowledged
	since   int64 // when the first of those asked
	until   int64 // when the last of those gave up
}

// quiet is one time without acknowledgement.
type quiet struct {
	start, end int64
	key        uint32 // index, or allKeys
}

// silences are those worth keeping.
type silences struct {
	min  time.Duration
	kept []quiet
}

func newSilences() silences { return silences{min: quietMin} }

func (s *silences) keep(q quiet) {
	if time.Duration(q.end-q.start) < s.min {
		return
	}
	if len(s.kept) == quietMax {
		s.min *= 2
		s.kept = slices.DeleteFunc(s.kept, func(q quiet) bool { return time.Duration(q.end-q.start) < s.min })
	}
	s.kept = append(s.kept, q)
}

// asked takes in an attempt that was not acknowledged, and is the silence that ended
// before it because nobody asked.
func (s *silence) asked(invoke, complete int64) (start, end int64) {
	if s.waiting && invoke > s.until+idleSlack {
		start, end = s.close()
	}
	if !s.waiting {
		s.waiting, s.since, s.until = true, max(invoke, s.acked), complete
		return start, end
	}
	s.since = max(min(s.since, invoke), s.acked)
	s.until = max(s.until, complete)
	return start, end
}

// answered takes in an acknowledgement and is the silence that it ends.
func (s *silence) answered(complete int64) (start, end int64) {
	start, end = s.since, complete
	s.waiting = false
	s.acked = max(s.acked, complete)
	return start, end
}

// close ends a silence without an acknowledgement.
func (s *silence) close() (start, end int64) {
	if !s.waiting {
		return 0, 0
	}
	s.waiting = false
	return s.since, s.until
}

// sounded takes in an operation that sent.
func (a *analysis) sounded(op *history.Op) {
	a.soundedIn(&a.all, allKeys, op)
	for i, r := range op.Sends {
		if i > 0 && op.Sends[i-1].Key == r.Key {
			continue
		}
		k := a.key(r.Key)
		a.soundedIn(&k.silence, k.index, op)
	}
}

func (a *analysis) soundedIn(s *silence, key uint32, op *history.Op) {
	a.quiet(key)(s.asked(op.Invoke, op.Complete))
	if op.Outcome == history.OK {
		a.quiet(key)(s.answered(op.Complete))
	}
}

// quiet takes in a silence that ended.
func (a *analysis) quiet(key uint32) func(start, end int64) {
	return func(start, end int64) {
		if key != allKeys && a.keys[key].deleted {
			end = min(end, a.keys[key].deletedAt)
		}
		if end <= start {
			return
		}
		q := quiet{start, end, key}
		a.gaps.keep(q)
		a.rep.Series.silent(q)
	}
}

// finishSilence closes what is still open and judges the faults.
func (a *analysis) finishSilence() {
	a.quiet(allKeys)(a.all.close())
	for _, k := range a.keys {
		a.quiet(k.index)(k.silence.close())
	}
	slices.SortStableFunc(a.windows, func(x, y history.Window) int { return int(min(max(x.Start-y.Start, -1), 1)) })
	for _, w := range a.windows {
		a.rep.Injections = append(a.rep.Injections, a.injection(w))
	}
	if a.opt.ProgressMax == 0 {
		return
	}
	for _, q := range a.gaps.kept {
		if q.key != allKeys {
			a.progress(q)
		}
	}
}

// injection is what one fault cost.
func (a *analysis) injection(w history.Window) Injection {
	out := Injection{Window: w}
	for _, q := range a.gaps.kept {
		if q.start >= w.End || q.end <= w.Start {
			continue
		}
		d := time.Duration(q.end - max(q.start, w.Start))
		switch {
		case q.key == allKeys:
			out.AllSilence = max(out.AllSilence, d)
		case d > out.Silence:
			out.Silence, out.SilenceKey = d, a.keys[q.key].key
		}
	}
	return out
}

// progress checks that a key is not silent for too long, under no fault or under some
// that a majority survives. Faults that it does not survive excuse, until as long after
// them.
func (a *analysis) progress(q quiet) {
	q = a.unexcused(q)
	d := time.Duration(q.end - q.start)
	if d <= a.opt.ProgressMax {
		return
	}
	a.add(NoProgress, int64(d), func() Anomaly {
		return Anomaly{Key: a.keys[q.key].key, Offset: history.NoOffset, At: time.Duration(q.start),
			Text: fmt.Sprintf("nothing acknowledged for %v, allowed are %v; %s", d.Round(time.Millisecond), a.opt.ProgressMax, a.faultsDuring(q))}
	})
}

// faultsDuring says which faults there were during a silence.
func (a *analysis) faultsDuring(q quiet) string {
	var during []string
	for _, w := range a.windows {
		if w.Start < q.end && w.End > q.start {
			during = append(during, fmt.Sprintf("%v for %v of it", w,
				time.Duration(min(w.End, q.end)-max(w.Start, q.start)).Round(time.Millisecond)))
		}
	}
	if len(during) == 0 {
		return "there was no fault"
	}
	return strings.Join(during, ", ")
}

// unexcused is the longest part of a silence that no fault excuses.
func (a *analysis) unexcused(q quiet) quiet {
	var longest quiet
	at := q.start
	part := func(end int64) {
		if end-at > longest.end-longest.start {
			longest = quiet{at, end, q.key}
		}
	}
	for _, w := range a.windows { // by start
		if w.Survivable || w.End+int64(a.opt.ProgressMax) <= at {
			continue
		}
		if w.Start >= q.end {
			break
		}
		part(w.Start)
		at = max(at, w.End+int64(a.opt.ProgressMax))
	}
	part(q.end)
	return longest
}
