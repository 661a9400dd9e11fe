package allocs_test

import (
	"testing"

	"github.com/weirmq/weir/integration/allocs"
)

var sink []byte

// One round is disturbed; what is counted is the rest.
func TestLeast(t *testing.T) {
	calls := 0
	got := allocs.Least(func() {
		sink = make([]byte, 1)
		if calls++; calls < 60 {
			sink = make([]byte, 64<<10)
		}
	})
	if got != 1 {
		t.Errorf("counted %v allocations, want 1", got)
	}
}
