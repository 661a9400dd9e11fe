package broker

import (
	"container/heap"
	"sync"
	"time"
)

// ticks calls partitions back at the times their cores asked for. One goroutine
// and one timer serve all partitions; a partition with nothing pending is not in
// the heap and costs nothing.
type ticks struct {
	now  func() time.Time
	call func(p *Partition, now time.Time)
	wake chan struct{} // capacity 1: the earliest time has changed
	stop chan struct{}
	done chan struct{}

	mu  sync.Mutex // leaf; guards due
	due tickHeap
}

type tick struct {
	at time.Time
	p  *Partition
}

// newTicks starts the goroutine, which ends with close.
func newTicks(now func() time.Time, call func(*Partition, time.Time)) *ticks {
	t := &ticks{now: now, call: call, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	go t.run()
	return t
}

// schedule asks for one call of p at the given time. The cores ask only for times
// earlier than the one pending, so a partition has one or two calls in the heap.
func (t *ticks) schedule(p *Partition, at time.Time) {
	t.mu.Lock()
	heap.Push(&t.due, tick{at, p})
	first := t.due[0].p == p && t.due[0].at.Equal(at)
	t.mu.Unlock()
	if first {
		wakeUp(t.wake)
	}
}

func (t *ticks) run() {
	defer close(t.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		t.fire()
		timer.Reset(t.untilNext())
		select {
		case <-t.stop:
			return
		case <-t.wake:
		case <-timer.C:
		}
	}
}

// fire calls every partition whose time has come, without holding the lock.
func (t *ticks) fire() {
	for {
		now := t.now()
		t.mu.Lock()
		if len(t.due) == 0 || t.due[0].at.After(now) {
			t.mu.Unlock()
			return
		}
		next := heap.Pop(&t.due).(tick)
		t.mu.Unlock()
		t.call(next.p, now)
	}
}

func (t *ticks) untilNext() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.due) == 0 {
		return time.Hour
	}
	return max(t.due[0].at.Sub(t.now()), time.Millisecond)
}

// close stops the goroutine and waits for it; pending calls are dropped.
func (t *ticks) close() {
	close(t.stop)
	<-t.done
}

type tickHeap []tick

func (h tickHeap) Len() int           { return len(h) }
func (h tickHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h tickHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *tickHeap) Push(x any)        { *h = append(*h, x.(tick)) }
func (h *tickHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = tick{}
	*h = old[:len(old)-1]
	return last
}
