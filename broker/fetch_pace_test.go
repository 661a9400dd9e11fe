package broker

import (
	"testing"
	"time"
)

// A waiting fetch looks seldom while it has long to wait, often when it is nearly
// done, and never later than a quarter of its time.
func TestFetchPace(t *testing.T) {
	begin := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	const want, look = 1_000_000, 5 * time.Microsecond
	tests := []struct {
		name    string
		perTick int // bytes that come each millisecond
		looks   int // at most
		late    time.Duration
	}{
		{"slow", 100, 80, fetchRestLong},
		{"a second", 1000, 60, 10 * time.Millisecond},
		{"fast", 100_000, 30, 3 * time.Millisecond},
	}
	for _, tt := range tests {
		p := fetchPace{want: want, had: 50, since: begin}
		looks, passed := 0, time.Duration(0)
		size := func() int { return p.had + int(passed/time.Millisecond)*tt.perTick }
		for passed = time.Millisecond; size() < want; looks++ {
			now := begin.Add(passed)
			passed += max(p.rest(now.Add(-look), now, size()), time.Millisecond) // the next record wakes it
		}
		due := time.Duration((want-p.had)/tt.perTick) * time.Millisecond
		if late := passed - due; looks > tt.looks || late > tt.late {
			t.Errorf("%s: %d looks and %s late, want at most %d and %s", tt.name, looks, late, tt.looks, tt.late)
		}
	}
	never := fetchPace{want: 1 << 30, since: begin}
	if got := never.rest(begin.Add(time.Hour-look), begin.Add(time.Hour), 1); got != fetchRestLong {
		t.Errorf("what will never come: a rest of %s, want %s", got, fetchRestLong)
	}
	if got := never.rest(begin.Add(time.Hour-look), begin.Add(time.Hour), 0); got != fetchRest*look {
		t.Errorf("nothing has come: a rest of %s, want %s", got, fetchRest*look)
	}
}
