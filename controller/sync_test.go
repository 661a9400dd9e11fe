package controller

import (
	"context"
	"sync"
	"testing"
	"time"
)

// What is acknowledged to one node before another asks is in the other's Image when it is told,
// also where many ask at once and share calls.
func TestSyncSeesWhatWasAcknowledged(t *testing.T) {
	c := patientCluster(t, 3)
	by := c.leader()
	for _, tn := range c.nodes {
		for range 4 {
			var asking sync.WaitGroup
			for range 10 {
				if err := propose(by); err != nil {
					t.Fatal(err)
				}
				want := by.node.Image().Index()
				asking.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
					defer cancel()
					if err := tn.node.Sync(ctx); err != nil {
						t.Errorf("node %d: %v", tn.id(), err)
					} else if got := tn.node.Image().Index(); got < want {
						t.Errorf("node %d is at %d, and %d was acknowledged before it asked", tn.id(), got, want)
					}
				})
			}
			asking.Wait()
		}
	}
}

// A call that is on its way is not shared with those who come later.
func TestSyncsDoNotJoinACallUnderWay(t *testing.T) {
	s := &syncs{n: newNode(Config{})}
	defer s.n.cancel()
	s.busy = true // as if run had just been started
	first, starts := s.join()
	second, again := s.join()
	if starts || again {
		t.Error("run is to be started a second time")
	}
	if first != second {
		t.Error("two that wait for the next call have one each")
	}
	if begun := s.begin(); begun != first {
		t.Error("what begins is not what they wait for")
	}
	if third, _ := s.join(); third == first || s.begin() != third {
		t.Error("one that came later shares the call under way")
	}
	if s.begin() != nil || s.busy {
		t.Error("run goes on although nobody waits")
	}
}

// A controller that was cut off, and does not know it yet, tells itself nothing, nor does anybody
// else; when it hears of its successor it learns what that has decided.
func TestSyncOfADeposedController(t *testing.T) {
	c, w := newPartitionable(t, 3)
	c.openAll()
	c.registerAll()
	victim := c.leader()
	at := c.survivor(victim)
	w.isolate(victim.id())
	c.knowsNothing(victim) // while it leads in its own eyes
	eventually(t, "another controller decides", func() bool { return propose(at) == nil })
	want := at.node.Image().Index()
	c.knowsNothing(victim)
	w.heal()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if err := victim.node.Sync(ctx); err != nil {
		t.Errorf("after the cut was healed: %v", err)
	}
	if got := victim.node.Image().Index(); got < want {
		t.Errorf("it is at %d, and %d was acknowledged before it asked", got, want)
	}
}

// knowsNothing checks that a node which is cut off does not learn how new an Image must be.
func (c *testCluster) knowsNothing(tn *testNode) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := tn.node.Sync(ctx); err == nil {
		c.t.Errorf("node %d is cut off, and takes its Image at %d for new enough", tn.id(), tn.node.Image().Index())
	}
}
