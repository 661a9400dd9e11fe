// Package seeds gives randomised tests their seeds.
//
// A test run says whether a change broke something, so it takes the same seeds each
// time: a fault that a new seed would find was there before the change. Looking for
// such faults is a run of its own, make explore, with a new seed for every test.
// Alone marks the long ones that the race detector need not run.
package seeds

import (
	"hash/fnv"
	"os"
	"strconv"
	"testing"
	"time"
)

// For returns the test's seed, which is never negative, and prints it if the test
// fails. WEIR_SEED is the seed to repeat, or "random" for a new one; otherwise the
// seed follows from the test's name.
func For(t testing.TB) int64 {
	t.Helper()
	seed, err := choose(os.Getenv("WEIR_SEED"), t.Name(), time.Now().UnixNano())
	if err != nil {
		t.Fatalf("WEIR_SEED is a number from 0, or the word random: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("to repeat this: WEIR_SEED=%d", seed)
		}
	})
	return seed
}

// Exploring tells whether WEIR_SEED chooses the seeds: then nobody waits for the run, and a test
// may do more of what it does.
func Exploring() bool { return os.Getenv("WEIR_SEED") != "" }

func choose(wanted, name string, now int64) (int64, error) {
	switch wanted {
	case "":
		h := fnv.New32a()
		_, _ = h.Write([]byte(name)) // never fails
		return int64(h.Sum32()), nil
	case "random":
		return now, nil
	}
	seed, err := strconv.ParseUint(wanted, 10, 63)
	return int64(seed), err
}
