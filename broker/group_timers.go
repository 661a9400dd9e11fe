package broker

import (
	"container/heap"
	"sync"
	"time"
)

// groupTimers holds when groups want to be looked at. A group has one entry at
// most, and a group that is dropped has none: names that clients make up must not
// be kept until the times that they asked for.
type groupTimers struct {
	mu  sync.Mutex // leaf; guards due, and what is in it
	due groupHeap
}

// groupTimer is the entry of one live group.
type groupTimer struct {
	t     *tenure
	lg    *liveGroup
	at    time.Time // guarded by groupTimers.mu
	place int       // guarded by groupTimers.mu; from 1 in the heap, 0 while not in it
}

// set sets the time of an entry, and returns whether it is the earliest now.
func (h *groupTimers) set(e *groupTimer, at time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.at = at
	if e.place == 0 {
		heap.Push(&h.due, e)
	} else {
		heap.Fix(&h.due, e.place-1)
	}
	return h.due[0] == e
}

// drop takes an entry out. One that is not in is none.
func (h *groupTimers) drop(e *groupTimer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.place > 0 {
		heap.Remove(&h.due, e.place-1)
	}
}

// next takes the earliest entry whose time has come, and says which time that was.
func (h *groupTimers) next(now time.Time) (*groupTimer, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.due) == 0 || h.due[0].at.After(now) {
		return nil, time.Time{}
	}
	e := heap.Pop(&h.due).(*groupTimer)
	return e, e.at
}

// untilNext is how long nothing is due; long when there are no timers.
func (h *groupTimers) untilNext(now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.due) == 0 {
		return time.Hour
	}
	return max(h.due[0].at.Sub(now), time.Millisecond)
}

// fire looks at every group whose time has come.
func (g *groups) fire(now time.Time) {
	for {
		e, at := g.timers.next(now)
		if e == nil {
			return
		}
		e.t.shard.mu.Lock()
		e.t.expire(e.lg, at, now)
		e.t.shard.mu.Unlock()
	}
}

type groupHeap []*groupTimer

func (h groupHeap) Len() int           { return len(h) }
func (h groupHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h groupHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}
func (h *groupHeap) Push(x any) {
	e := x.(*groupTimer)
	*h = append(*h, e)
	e.place = len(*h)
}
func (h *groupHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	last.place = 0
	return last
}
