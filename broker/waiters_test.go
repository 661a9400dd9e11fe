package broker

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/weirmq/weir/integration/seeds"
	"github.com/weirmq/weir/wire/batch"
)

func TestWaitListAnswersInOrder(t *testing.T) {
	seed := uint64(seeds.For(t))
	rnd := rand.New(rand.NewPCG(seed, 0))
	var list waitList
	var pool waiterPool
	open := map[*waiter]bool{}
	var hw batch.Offset
	for range 2000 {
		switch rnd.IntN(4) {
		case 0, 1:
			w := pool.take(hw + batch.Offset(rnd.IntN(50)))
			list.insert(w)
			open[w] = true
		case 2:
			for w := range open {
				if !list.remove(w) {
					t.Fatalf("waiter for %d is not listed although it was not answered", w.last)
				}
				delete(open, w)
				pool.put(w)
				break
			}
		case 3:
			hw += batch.Offset(rnd.IntN(10))
			list.completeBelow(hw)
			for w := range open {
				select {
				case err := <-w.done:
					if err != nil || w.last >= hw {
						t.Fatalf("waiter for %d got %v at high watermark %d", w.last, err, hw)
					}
					delete(open, w)
					pool.put(w)
				default:
					if w.last < hw {
						t.Fatalf("waiter for %d has no answer at high watermark %d", w.last, hw)
					}
				}
			}
		}
		n := 0
		last := batch.Offset(-1)
		for w := list.head; w != nil; w = w.next {
			if w.last < last {
				t.Fatalf("waiter for %d comes after %d", w.last, last)
			}
			last, n = w.last, n+1
		}
		if n != len(open) {
			t.Fatalf("%d waiters are listed, want %d", n, len(open))
		}
	}
	list.fail(errNotLeader)
	for w := range open {
		if err := <-w.done; !errors.Is(err, errNotLeader) {
			t.Fatalf("waiter for %d got %v at the end of the epoch", w.last, err)
		}
		if list.remove(w) {
			t.Fatal("an answered waiter was still listed")
		}
	}
}
