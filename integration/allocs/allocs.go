// Package allocs counts allocations for tests that hold a hot path to them.
package allocs

import "testing"

const (
	// rounds is how often Least looks.
	rounds = 10
	// runs is how many calls it counts at a time.
	runs = 50
)

// Least is how often one call of f allocates when nothing comes in between:
// testing.AllocsPerRun counts what the whole process allocates, and a collection or a
// busy machine in the middle of it empties pools and wakes other goroutines.
func Least(f func()) float64 {
	least := testing.AllocsPerRun(runs, f)
	for range rounds - 1 {
		least = min(least, testing.AllocsPerRun(runs, f))
	}
	return least
}
