package broker

import (
	"testing"

	"github.com/weirmq/weir/integration/allocs"
)

// A set of watchers signals those that are in it, each once, however many and in
// whatever order they come and go, and they are out of it then.
func TestWatchSet(t *testing.T) {
	var s watchSet
	ws := make([]*Watcher, 6)
	for i := range ws {
		ws[i] = NewWatcher()
	}
	check := func(what string, in ...int) {
		t.Helper()
		s.signal()
		want := map[int]bool{}
		for _, i := range in {
			want[i] = true
		}
		for i, w := range ws {
			if got := len(w.C()) == 1; got != want[i] {
				t.Errorf("%s: watcher %d signalled: %v, want %v", what, i, got, want[i])
			}
			select {
			case <-w.C():
			default:
			}
		}
	}
	all := func(and ...*Watcher) {
		for _, w := range append(ws, and...) {
			s.add(w)
		}
	}
	check("empty")
	all(ws...)
	check("all, added twice", 0, 1, 2, 3, 4, 5)
	check("all were signalled before")
	all()
	s.remove(ws[0])
	s.remove(ws[0])
	check("one of the first gone", 1, 2, 3, 4, 5)
	all()
	s.add(ws[4])
	s.remove(ws[4])
	check("one of many, added again and gone", 0, 1, 2, 3, 5)
	all()
	s.remove(ws[0])
	s.add(ws[0])
	check("back", 0, 1, 2, 3, 4, 5)
	all()
	for _, w := range ws {
		s.remove(w)
	}
	check("none")
	if s.more != nil {
		t.Error("an empty table is kept")
	}
	if n := allocs.Least(func() { s.add(ws[0]); s.add(ws[1]); s.remove(ws[0]); s.remove(ws[1]) }); n > 0 {
		t.Errorf("%v allocations for two", n)
	}
}
