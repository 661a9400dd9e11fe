package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// collectLook is how often the pace of the garbage collector is looked at.
	collectLook = time.Second
	// collectRoom is what a busy node's heap may grow by between two collections.
	collectRoom = 24 << 20
	// collectDefault and collectMost bound the growth in percent of what is live.
	collectDefault = 100
	collectMost    = 400
	// collectCalm is how many looks without a collection end the time of a busy node.
	collectCalm = 10
)

// collector sets the pace of the garbage collector.
//
// Problem: Go collects when the heap has doubled, and what is live in a node is a few MB.
// Under load it collects several times a second, and each time takes processors away from
// requests for milliseconds: most of the 99th percentile of a commit where there are two.
// A fixed larger growth would cost a node at rest its small size.
//
// The rule: a node that collects twice within a second may grow by collectRoom, until it
// has not collected at all for some seconds. A heap that is large already keeps Go's pace.
type collector struct {
	cycles uint64 // as of the last look
	calm   int    // looks in a row without a collection
	busy   bool
}

// next returns the growth in percent until the next look, given how many collections there
// have been since the process began and how many bytes were live after the last.
func (c *collector) next(cycles, live uint64) int {
	n := cycles - c.cycles
	c.cycles = cycles
	c.calm++
	if n > 0 {
		c.calm = 0
	}
	c.busy = n >= 2 || c.busy && c.calm < collectCalm
	to := collectDefault
	for c.busy && to < collectMost && live*uint64(2*to)/100 <= collectRoom {
		to *= 2 // in few steps: each change stops the world
	}
	return to
}

// paceCollector runs until the function that it returns is called. With GOGC in the
// environment the pace is the operator's.
func paceCollector() (stop func()) {
	if _, set := os.LookupEnv("GOGC"); set {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		defer debug.SetGCPercent(collectDefault)
		tick := time.NewTicker(collectLook)
		defer tick.Stop()
		var c collector
		now := collectDefault
		s := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/gc/heap/live:bytes"}}
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			metrics.Read(s)
			if to := c.next(s[0].Value.Uint64(), s[1].Value.Uint64()); to != now {
				debug.SetGCPercent(to)
				if now = to; to == collectDefault {
					debug.FreeOSMemory() // a node at rest is small again
				}
			}
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}
