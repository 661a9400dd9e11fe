package broker

import (
	"sync"

	"github.com/weirmq/weir/wire/batch"
)

// waiter is one produce that waits for the high watermark to pass its last offset.
type waiter struct {
	last       batch.Offset
	done       chan error // capacity 1, so that an answer never blocks the partition
	prev, next *waiter
	listed     bool
}

// waitList holds a partition's waiters in the order of their offsets. Produces
// arrive nearly in that order, so an insertion starts its search at the tail.
type waitList struct {
	head, tail *waiter
}

func (l *waitList) insert(w *waiter) {
	at := l.tail // the waiter after which w goes
	for at != nil && at.last > w.last {
		at = at.prev
	}
	w.listed, w.prev = true, at
	if at == nil {
		w.next, l.head = l.head, w
	} else {
		w.next, at.next = at.next, w
	}
	if w.next == nil {
		l.tail = w
	} else {
		w.next.prev = w
	}
}

// remove takes w out; false means that it has been answered already.
func (l *waitList) remove(w *waiter) bool {
	if !w.listed {
		return false
	}
	if w.prev == nil {
		l.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.listed = nil, nil, false
	return true
}

// completeBelow answers all whose last offset is below hw.
func (l *waitList) completeBelow(hw batch.Offset) {
	for l.head != nil && l.head.last < hw {
		l.answer(l.head, nil)
	}
}

// fail answers all.
func (l *waitList) fail(err error) {
	for l.head != nil {
		l.answer(l.head, err)
	}
}

func (l *waitList) answer(w *waiter, err error) {
	l.remove(w)
	w.done <- err
}

// waiterPool recycles waiters, so that a waiting produce allocates nothing.
type waiterPool struct {
	pool sync.Pool
}

func (wp *waiterPool) take(last batch.Offset) *waiter {
	w, _ := wp.pool.Get().(*waiter)
	if w == nil {
		w = &waiter{done: make(chan error, 1)}
	}
	w.last = last
	return w
}

// put takes back a waiter that is not listed and whose answer has been received.
func (wp *waiterPool) put(w *waiter) { wp.pool.Put(w) }
