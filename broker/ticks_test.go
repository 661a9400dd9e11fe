package broker

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTicksCallInOrderOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type called struct {
			p  *Partition
			at time.Duration
		}
		began := time.Now()
		calls := make(chan called, 10)
		ts := newTicks(time.Now, func(p *Partition, now time.Time) { calls <- called{p, now.Sub(began)} })
		defer ts.close()
		a, b, c := &Partition{}, &Partition{}, &Partition{}
		ts.schedule(a, began.Add(30*time.Second))
		ts.schedule(b, began.Add(10*time.Second))
		synctest.Wait()
		ts.schedule(c, began.Add(20*time.Second))
		for _, want := range []called{{b, 10 * time.Second}, {c, 20 * time.Second}, {a, 30 * time.Second}} {
			if got := <-calls; got != want {
				t.Errorf("called %p after %v, want %p after %v", got.p, got.at, want.p, want.at)
			}
		}
		if n := len(ts.due); n != 0 {
			t.Errorf("%d calls are left in the heap", n)
		}
	})
}
