package check

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/integration/chaos/history"
)

const (
	// nearOffsets is how far to each side a neighbourhood reaches.
	nearOffsets = 3
	// rowsFirst and rowsLast bound the rows of one neighbourhood: those that made it
	// and those of the final reads say most.
	rowsFirst, rowsLast = 26, 10
	// textRecords bounds the records that a step of a cycle tells.
	textRecords = 12
)

// cell is a value that the log holds at a column.
type cell struct {
	value  history.Value
	column int
}

// around makes the neighbourhood of an offset, without rows.
func (a *analysis) around(k *keyLog, offset int64) *Neighbourhood {
	first := max(offset-nearOffsets, 0)
	n := &Neighbourhood{First: first, Columns: int(offset + nearOffsets + 1 - first)}
	n.Log = make([]string, n.Columns)
	for c := range n.Columns {
		o := first + int64(c)
		i := k.at(o)
		if i == 0 {
			continue
		}
		var held []string
		for _, i := range append([]uint32{i - 1}, k.others[o]...) {
			v := a.entries.at(i).value
			held = append(held, v.String())
			n.marked = append(n.marked, cell{v, c})
		}
		n.Log[c] = strings.Join(held, " ")
	}
	return n
}

// row is what one operation saw of a neighbourhood, if anything.
func (n *Neighbourhood) row(key history.Key, i uint32, op *history.Op) (Row, bool) {
	r := Row{Cells: make([]string, n.Columns)}
	any := false
	put := func(c int, text string) {
		any = true
		r.Cells[c] = strings.TrimSpace(r.Cells[c] + " " + text)
	}
	for _, s := range op.Sends {
		if s.Key != key {
			continue
		}
		if c := s.Offset - n.First; s.Offset >= 0 && c >= 0 && c < int64(n.Columns) {
			put(int(c), "sent "+s.Value.String())
		} else if s.Offset < 0 {
			if at := slices.IndexFunc(n.marked, func(m cell) bool { return m.value == s.Value }); at >= 0 {
				put(n.marked[at].column, "sent "+s.Value.String()+"?")
			}
		}
	}
	for _, p := range op.Polls {
		if c := p.Offset - n.First; p.Key == key && c >= 0 && c < int64(n.Columns) {
			put(int(c), p.Value.String())
		}
	}
	for _, p := range op.Positions {
		if c := p.Offset - n.First; p.Key == key && c >= 0 && c < int64(n.Columns) {
			put(int(c), "◂")
		}
	}
	r.Step = Step{Op: i, Process: op.Process, Func: op.Func, Outcome: op.Outcome,
		Invoke: time.Duration(op.Invoke), Took: time.Duration(op.Complete - op.Invoke)}
	return r, any
}

// add appends a row, and drops one of the middle where there are too many.
func (n *Neighbourhood) add(r Row) {
	n.Rows = append(n.Rows, r)
	if len(n.Rows) > rowsFirst+rowsLast {
		n.Rows = slices.Delete(n.Rows, rowsFirst, rowsFirst+1)
		n.Omitted++
	}
}

// neighbourhoods reads the history again and fills in what was around the worst cases.
func (a *analysis) neighbourhoods(r *history.Reader) error {
	near := map[history.Key][]*Neighbourhood{}
	steps := map[uint32][]*Step{}
	for f := range a.rep.Found {
		for c := range a.rep.Found[f].Worst {
			w := &a.rep.Found[f].Worst[c]
			if w.Offset != history.NoOffset {
				w.Near = a.around(a.key(w.Key), w.Offset)
				near[w.Key] = append(near[w.Key], w.Near)
			}
			for s := range w.Cycle {
				steps[w.Cycle[s].Op] = append(steps[w.Cycle[s].Op], &w.Cycle[s])
			}
		}
	}
	if len(near)+len(steps) == 0 {
		return nil
	}
	next := uint32(0)
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, history.ErrTruncated) {
			a.date()
			return nil
		}
		if err != nil {
			return fmt.Errorf("read history again: %w", err)
		}
		if e.Op == nil {
			continue
		}
		op := e.Op
		i := next
		if op.Func == history.Send || op.Func == history.Txn || op.Func == history.Poll {
			next++
			for _, s := range steps[i] {
				s.Text = a.textOf(op)
			}
		}
		addRows(near, i, op)
	}
}

// date gives the cases whose time is not known that of the first operation that saw
// their offset.
func (a *analysis) date() {
	for f := range a.rep.Found {
		for c := range a.rep.Found[f].Worst {
			w := &a.rep.Found[f].Worst[c]
			if w.At != 0 || w.Near == nil {
				continue
			}
			column := w.Offset - w.Near.First
			i := slices.IndexFunc(w.Near.Rows, func(r Row) bool { return r.Cells[column] != "" })
			if i >= 0 {
				w.At = w.Near.Rows[i].Invoke + w.Near.Rows[i].Took
			}
		}
	}
}

// addRows adds an operation to the neighbourhoods of the keys that it touched.
func addRows(near map[history.Key][]*Neighbourhood, i uint32, op *history.Op) {
	if len(near) == 0 {
		return
	}
	var keys []history.Key
	touch := func(k history.Key) {
		if near[k] != nil && !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	for _, r := range op.Sends {
		touch(r.Key)
	}
	for _, r := range op.Polls {
		touch(r.Key)
	}
	for _, p := range op.Positions {
		touch(p.Key)
	}
	for _, k := range keys {
		for _, n := range near[k] {
			if r, ok := n.row(k, i, op); ok {
				n.add(r)
			}
		}
	}
}

// textOf is what an operation sent and read.
func (a *analysis) textOf(op *history.Op) string {
	var b strings.Builder
	list := func(verb string, rs []history.Record) {
		for i, r := range rs {
			if i == textRecords {
				fmt.Fprintf(&b, "and %d more; ", len(rs)-i)
				return
			}
			fmt.Fprintf(&b, "%s %s@%d=%v; ", verb, a.rep.Name(r.Key), r.Offset, r.Value)
		}
	}
	list("sent", op.Sends)
	list("read", op.Polls)
	return strings.TrimSuffix(b.String(), "; ")
}

// OmittedAt is the row before which rows were left out, or -1.
func (n *Neighbourhood) OmittedAt() int {
	if n.Omitted == 0 {
		return -1
	}
	return rowsFirst
}
