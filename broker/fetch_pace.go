package broker

import "time"

const (
	// fetchRest times as long as a pass over all partitions took, and no longer
	// than fetchRestMax, is waited before the next: a Fetch that waits for many
	// bytes of busy partitions must not read all the time.
	fetchRest    = 10
	fetchRestMax = 20 * time.Millisecond
	// fetchShare is the part of the time until a Fetch has what it wants, at the
	// pace so far, for which it rests, up to fetchRestLong.
	fetchShare    = 4
	fetchRestLong = 250 * time.Millisecond
)

// fetchPace says how long a waiting Fetch leaves its partitions alone after a look
// that did not give enough.
//
// Problem: every record that is appended is worth a look to every Fetch that waits
// at its partition. Thousands that wait for more than will ever come would take all
// processors, for nothing.
//
// A Fetch rests for a quarter of the time that it will take at the pace so far, so
// it looks a few times, ever more often as the end comes near. One that is content
// with any record is answered by its first look, and never rests for long.
type fetchPace struct {
	want  int // bytes
	had   int // when the wait began
	since time.Time
}

// rest follows a look that lasted from began to now and found size bytes.
func (p fetchPace) rest(began, now time.Time, size int) time.Duration {
	short := min(fetchRest*now.Sub(began), fetchRestMax)
	grown := size - p.had
	if grown <= 0 {
		return short
	}
	due := float64(now.Sub(p.since)) / float64(grown) * float64(p.want-size)
	return max(short, time.Duration(min(due/fetchShare, float64(fetchRestLong))))
}
