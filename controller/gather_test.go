package controller

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/weirmq/weir/fsm"
)

// TestGatheredEntriesGetTheirOwnResults hands the gatherer many entries at once: they go in
// fewer, and each gets the results of its own commands.
func TestGatheredEntriesGetTheirOwnResults(t *testing.T) {
	c := newCluster(t, 1)
	c.openAll()
	n := c.leader().node
	before := n.raft.LastIndex()
	const many = 200
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
			defer cancel()
			// Every entry has another order of the same two refusals.
			var commands []fsm.Command
			var want []error
			for bits := i + 2; bits > 1; bits /= 2 {
				if bits%2 == 0 {
					commands, want = append(commands, fsm.DeleteTopic{ID: fsm.TopicID{1}}), append(want, fsm.UnknownTopic)
				} else {
					commands, want = append(commands, fsm.FenceBroker{ID: 99, Epoch: 1}), append(want, fsm.UnknownBroker)
				}
			}
			a, err := n.gatherer.apply(ctx, fsm.EncodeEntry(nil, commands))
			if err != nil || len(a.results) != len(commands) || a.index <= before {
				t.Errorf("entry %d: %d results for %d commands at index %d, %v", i, len(a.results), len(commands), a.index, err)
				return
			}
			for j, r := range a.results {
				if !errors.Is(r.Err, want[j]) {
					t.Errorf("entry %d, command %d: %v, want %v", i, j, r.Err, want[j])
				}
			}
		})
	}
	wg.Wait()
	if entries := n.raft.LastIndex() - before; entries >= many {
		t.Errorf("%d entries went in %d", many, entries)
	}
}

// TestGathererTakesWhatFits: a common entry has the size of one, and an entry that is larger
// goes alone. After the end nothing is taken.
func TestGathererTakesWhatFits(t *testing.T) {
	g := newGatherer(nil)
	for i := range 10 {
		e := &gathered{entry: make([]byte, entrySizeMax/4)}
		if i == 5 {
			e.entry = make([]byte, 2*entrySizeMax)
		}
		g.waiting = append(g.waiting, e)
	}
	for i, want := range []int{4, 1, 1, 4, 0} {
		if got := g.take(); len(got) != want {
			t.Fatalf("take %d: %d entries, want %d", i, len(got), want)
		}
	}
	var last error
	g.waiting = append(g.waiting, &gathered{answer: func(_ appliedEntry, err error) { last = err }})
	g.close()
	if !errors.Is(last, errNotController) {
		t.Errorf("what waited at the end: %v", last)
	}
	if _, err := g.apply(t.Context(), nil); !errors.Is(err, errNotController) {
		t.Errorf("an entry after the end: %v", err)
	}
}
