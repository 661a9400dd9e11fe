package check

import (
	"fmt"
	"sort"
	"time"

	"github.com/weirmq/weir/integration/chaos/history"
)

const (
	// lagQuantum is how exactly the growth of a log is kept: a lag may be told too
	// large by as much.
	lagQuantum = int64(50 * time.Millisecond)
	// stairsMax bounds a log's stairs; at it every other one is dropped, which makes
	// the quantum of what is past coarser.
	stairsMax = 1 << 14
	// lagKeys is how many further keys of an assignment each poll looks at, in turn.
	lagKeys = 4
)

type stair struct{ at, end int64 }

// stairs is when a log was first known to reach which end; both rise.
type stairs struct {
	s []stair
}

func (s *stairs) raise(at, end int64) {
	n := len(s.s)
	switch {
	case n > 0 && end <= s.s[n-1].end:
		return
	case n > 0 && at < s.s[n-1].at+lagQuantum:
		s.s[n-1].end = end
		return
	case n == stairsMax:
		// Of two stairs the earlier time and the greater end remain.
		for i := range n / 2 {
			s.s[i] = stair{s.s[2*i].at, s.s[2*i+1].end}
		}
		s.s = s.s[:n/2]
	}
	s.s = append(s.s, stair{at, end})
}

// beyond is since when the log was known to go beyond an end.
func (s *stairs) beyond(end int64) (int64, bool) {
	i := sort.Search(len(s.s), func(i int) bool { return s.s[i].end > end })
	if i == len(s.s) {
		return 0, false
	}
	return s.s[i].at, true
}

// lag looks at how far a reader is behind in the keys that it just got records of,
// and in some others of its assignment. It is never further behind than it is old: who
// begins to read an old log is not late yet.
func (a *analysis) lag(p *proc, op *history.Op) {
	for _, k := range a.touched {
		a.lagOf(p, k, op)
	}
	for range min(lagKeys, len(p.assigned)) {
		k := a.keys[p.assigned[p.turn%len(p.assigned)]]
		p.turn++
		a.lagOf(p, k, op)
	}
}

func (a *analysis) lagOf(p *proc, k *keyLog, op *history.Op) {
	last := p.position(k).last
	if p.mode == modeNone || k.deleted || last == history.NoOffset {
		return
	}
	since, ok := k.supersede.beyond(last + 1)
	lag := op.Invoke - max(since, p.began)
	if !ok || lag <= 0 {
		return
	}
	a.rep.MaxLag = max(a.rep.MaxLag, time.Duration(lag))
	a.rep.Series.lag(op.Complete, lag)
	if lag > int64(a.opt.LagMax) {
		a.add(RealtimeLag, lag, func() Anomaly {
			return Anomaly{Key: k.key, reader: op.Process, again: true, Offset: last, At: time.Duration(op.Complete),
				Text: fmt.Sprintf("process %d polled and still knew nothing after offset %d, %v after more was known", op.Process, last, time.Duration(lag))}
		})
	}
}
