package seeds

import "testing"

// Alone marks a long test that does all its work in one goroutine. The race detector makes it
// many times as long and has nothing to say about it, so go test -short, as make race calls
// it, leaves it out.
func Alone(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("one goroutine: nothing for the race detector")
	}
}
