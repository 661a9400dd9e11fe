package main

import "testing"

func TestCollectorPace(t *testing.T) {
	const mb = 1 << 20
	var c collector
	cycles := uint64(7)
	look := func(n, live uint64, want int) {
		t.Helper()
		cycles += n
		if got := c.next(cycles, live); got != want {
			t.Errorf("%d collections, %d MB live: %d%%, want %d%%", n, live/mb, got, want)
		}
	}
	c.next(cycles, 0)
	c = collector{cycles: cycles}
	look(0, 4*mb, 100)
	look(1, 4*mb, 100)
	look(2, 4*mb, 400)  // it is busy
	look(1, 12*mb, 200) // and has as much room, whatever is live
	look(0, 13*mb, 100)
	for range collectCalm - 2 {
		look(0, 4*mb, 400)
	}
	look(0, 4*mb, 100) // at rest
	look(1, 4*mb, 100)
	look(4, 6*mb, 400)
	look(0, 7*mb, 200)
}
