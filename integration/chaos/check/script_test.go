package check

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/integration/chaos/history"
)

// parse reads a history from lines of words:
//
//	<process> <func> <outcome> [s:<key>@<offset>=<value>]… [r:<key>@<offset>=<value>]…
//	    [k:<key>]… [b:<key>]… [g:<group>/<generation>] [p:<key>@<offset>]… [t:<invoke>-<complete>]
//	window <kind> <target> <start>-<end> [survivable]
//
// A value is <process>.<counter>; an offset "?" is not known; times are milliseconds.
// An operation without times begins after all before it and takes a millisecond.
func parse(t *testing.T, text string) (ops []history.Op, windows []history.Window) {
	t.Helper()
	clock := int64(0)
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if words[0] == "window" {
			from, to := pair(t, words[3], "-")
			windows = append(windows, history.Window{Start: ms(from), End: ms(to), Kind: words[1], Target: words[2], Survivable: len(words) > 4})
			continue
		}
		op := history.Op{Process: history.Process(number(t, words[0])), Invoke: clock + ms(1), Complete: clock + ms(2)}
		for f := history.Func(1); int(f) < history.Funcs; f++ {
			if f.String() == words[1] {
				op.Func = f
			}
		}
		for o := history.OK; int(o) < history.Outcomes; o++ {
			if o.String() == words[2] {
				op.Outcome = o
			}
		}
		for _, w := range words[3:] {
			word(t, &op, w)
		}
		if op.Func == 0 || op.Outcome == 0 {
			t.Fatalf("%q: no function or no outcome", line)
		}
		clock = max(clock, op.Complete)
		ops = append(ops, op)
	}
	return ops, windows
}

func ms(n int64) int64 { return n * int64(time.Millisecond) }

func number(t *testing.T, s string) int64 {
	t.Helper()
	if s == "?" {
		return history.NoOffset
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func pair(t *testing.T, s, sep string) (int64, int64) {
	t.Helper()
	x, y, _ := strings.Cut(s, sep)
	return number(t, x), number(t, y)
}

func word(t *testing.T, op *history.Op, w string) {
	t.Helper()
	kind, rest, _ := strings.Cut(w, ":")
	record := func() history.Record {
		at, value, _ := strings.Cut(rest, "=")
		k, o := pair(t, at, "@")
		p, n := pair(t, value, ".")
		return history.Record{Key: history.Key(k), Offset: o, Value: history.NewValue(history.Process(p), uint64(n))}
	}
	switch kind {
	case "s":
		op.Sends = append(op.Sends, record())
	case "r":
		op.Polls = append(op.Polls, record())
	case "k":
		op.Keys = append(op.Keys, history.Key(number(t, rest)))
	case "b":
		op.Rebalanced = append(op.Rebalanced, history.Key(number(t, rest)))
	case "g":
		g, gen := pair(t, rest, "/")
		op.Group, op.Generation = history.Group(g), int32(gen)
	case "p":
		k, o := pair(t, rest, "@")
		op.Positions = append(op.Positions, history.Position{Key: history.Key(k), Offset: o})
	case "t":
		from, to := pair(t, rest, "-")
		op.Invoke, op.Complete = ms(from), ms(to)
	default:
		t.Fatalf("word %q", w)
	}
}

// write makes a history of operations and windows.
func write(t testing.TB, ops []history.Op, windows []history.Window) []byte {
	t.Helper()
	var buf bytes.Buffer
	w, err := history.NewWriter(&buf, history.Header{Seed: 1, Command: "test"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range ops {
		if err := w.Append(&ops[i]); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range windows {
		if err := w.Window(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func analyze(t testing.TB, b []byte, opt Options) *Report {
	t.Helper()
	r, err := Analyze(func() (*history.Reader, error) { return history.NewReader(bytes.NewReader(b)) }, opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// summary is what was found, as "lost-write:1 G0:2".
func summary(r *Report) string {
	var out []string
	for _, f := range r.Found {
		out = append(out, fmt.Sprintf("%v:%d", f.Kind, f.Count))
	}
	return strings.Join(out, " ")
}

// describe is all that a report says of anomalies and problems.
func describe(r *Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.Verdict)
	for _, f := range r.Found {
		for _, c := range f.Worst {
			fmt.Fprintf(&b, "  %v: %s\n", f.Kind, c.Text)
			for _, s := range c.Cycle {
				fmt.Fprintf(&b, "    %d %v: %s: %s\n", s.Process, s.Func, s.Text, s.Edge)
			}
		}
	}
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "  problem: %s\n", p)
	}
	return b.String()
}
