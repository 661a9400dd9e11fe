package feed_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirmq/weir/broker/feed"
	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// record is one record of a model log, a batch of its own. Its serial number is
// unique over a test, so that two logs can be told to hold the same bytes.
type record struct {
	epoch  batch.Epoch
	serial int
}

// modelLog is a log in memory with a record at each offset from start on.
type modelLog struct {
	start   batch.Offset
	records []record
	flushed batch.Offset
	// past is the epoch of the last record that the log start passed, if the log
	// is empty for that reason; else NoEpoch. A log that was restarted has lost it.
	past batch.Epoch
}

func newModelLog() *modelLog { return &modelLog{past: batch.NoEpoch} }

func (l *modelLog) end() batch.Offset { return l.start + batch.Offset(len(l.records)) }

func (l *modelLog) lastEpoch() batch.Epoch {
	if len(l.records) == 0 {
		return l.past
	}
	return l.records[len(l.records)-1].epoch
}

// epochEnd is the largest epoch that is at most e, with its end.
func (l *modelLog) epochEnd(e batch.Epoch) (batch.Epoch, batch.Offset) {
	if len(l.records) == 0 && l.past != batch.NoEpoch && l.past <= e {
		return l.past, l.end()
	}
	i := len(l.records)
	for i > 0 && l.records[i-1].epoch > e {
		i--
	}
	if i == 0 {
		return batch.NoEpoch, l.start
	}
	return l.records[i-1].epoch, l.start + batch.Offset(i)
}

func (l *modelLog) append(rs ...record) {
	l.records, l.past = append(l.records, rs...), batch.NoEpoch
}

func (l *modelLog) read(from, end batch.Offset) []record {
	return slices.Clone(l.records[from-l.start : end-l.start])
}

// cut truncates, or resets when the cut lies below the start.
func (l *modelLog) cut(end batch.Offset) {
	if end < l.start {
		l.reset(end)
		return
	}
	l.records, l.past = l.records[:end-l.start], batch.NoEpoch
	l.flushed = min(l.flushed, end)
}

func (l *modelLog) reset(start batch.Offset) {
	l.start, l.records, l.flushed, l.past = start, nil, start, batch.NoEpoch
}

func (l *modelLog) advanceStart(start batch.Offset) {
	if start > l.start {
		if start == l.end() {
			l.past = l.lastEpoch()
		}
		l.records = l.records[start-l.start:]
		l.start = start
	}
}

func (l *modelLog) local() feed.Local {
	return feed.Local{Written: l.end(), Flushed: min(l.flushed, l.end()), LastEpoch: l.lastEpoch(), LogStart: l.start}
}

// clone is the log as a copy.
func (l *modelLog) clone() *modelLog {
	return &modelLog{l.start, slices.Clone(l.records), l.flushed, l.past}
}

// sameAs tells whether both logs hold the same records where both have some,
// up to end.
func (l *modelLog) sameAs(o *modelLog, end batch.Offset) error {
	for at := max(l.start, o.start); at < end; at++ {
		if a, b := l.records[at-l.start], o.records[at-o.start]; a != b {
			return fmt.Errorf("at %d one log has %+v, the other %+v", at, a, b)
		}
	}
	return nil
}

// String lists the epochs with their ends, as "[0 1:10 2:20)".
func (l *modelLog) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%d", l.start)
	for i, r := range l.records {
		if i == len(l.records)-1 || l.records[i+1].epoch != r.epoch {
			fmt.Fprintf(&b, " %d:%d", r.epoch, l.start+batch.Offset(i)+1)
		}
	}
	return b.String() + ")"
}

// show prints a frame as one line of a transcript.
func show(f feed.Frame, name func(fsm.TopicPartition) string) string {
	ref := func(r feed.Ref) string { return fmt.Sprintf("h%d a%d", r.Handle, r.Attempt) }
	switch f := f.(type) {
	case feed.Follow:
		return fmt.Sprintf("FOLLOW %s %s epoch=%d written=%d flushed=%d last=%d start=%d",
			ref(f.Ref), name(f.TP), f.LeaderEpoch, f.Written, f.Flushed, f.LastEpoch, f.LogStart)
	case feed.Feed:
		return fmt.Sprintf("FEED %s hw=%d start=%d size=%d", ref(f.Ref), f.HW, f.LogStart, f.Size)
	case feed.Progress:
		s := "PROGRESS"
		for _, i := range f.Items {
			s += fmt.Sprintf(" (%s written=%d flushed=%d start=%d)", ref(i.Ref), i.Written, i.Flushed, i.LogStart)
		}
		return s
	case feed.Mark:
		s := "MARK"
		for _, i := range f.Items {
			s += fmt.Sprintf(" (%s hw=%d start=%d)", ref(i.Ref), i.HW, i.LogStart)
		}
		return s
	case feed.Diverged:
		return fmt.Sprintf("DIVERGED %s epoch=%d end=%d", ref(f.Ref), f.Epoch, f.End)
	case feed.Refused:
		return fmt.Sprintf("REFUSED %s %s start=%d end=%d", ref(f.Ref), codeNames[f.Code], f.LogStart, f.End)
	case feed.Bad:
		return fmt.Sprintf("BAD %s offset=%d", ref(f.Ref), f.Offset)
	case feed.Unfollow:
		return "UNFOLLOW " + ref(f.Ref)
	case feed.Ping:
		return fmt.Sprintf("PING %d", f.Number)
	case feed.Pong:
		return fmt.Sprintf("PONG %d", f.Number)
	}
	return fmt.Sprintf("%T", f)
}

var codeNames = map[feed.Code]string{
	feed.CodeOldEpoch: "old-epoch", feed.CodeNewEpoch: "new-epoch", feed.CodeNotLeader: "not-leader",
	feed.CodeUnknown: "unknown", feed.CodeOutOfRange: "out-of-range", feed.CodeStorage: "storage",
}

func showPosition(p isr.Position) string {
	return fmt.Sprintf("written=%d flushed=%d start=%d", p.Written, p.Flushed, p.LogStart)
}
