package storage

import (
	"testing"
	"time"

	"github.com/weirmq/weir/storage/vfs"
)

// TestProducersOutliveClockSteps sets the wall clock weeks forward and back while a producer
// is in use: it is forgotten for the time that has passed, not for what the clock shows.
func TestProducersOutliveClockSteps(t *testing.T) {
	o := testOptions()
	wall, passed := time.UnixMilli(1_700_000_000_000), time.Duration(0)
	o.Now = func() time.Time { return wall }
	o.Steady = func() time.Duration { return passed }
	d := mustOpen(t, vfs.NewMem(1), o)
	defer mustClose(t, d)
	l := mustCreate(t, d, "t", 0)
	known := func() int {
		t.Helper()
		if err := d.Tick(); err != nil {
			t.Fatal(err)
		}
		return len(l.Producers())
	}
	mustAppend(t, l, producerBatchOf(7, 0, 0, 1), 0)
	for _, step := range []time.Duration{30 * 24 * time.Hour, -60 * 24 * time.Hour} {
		wall, passed = wall.Add(step), passed+o.ProducerExpiry/3
		if got := known(); got != 1 {
			t.Errorf("%d producers are known after a step of %v, %v after the append", got, step, passed)
		}
	}
	passed += o.ProducerExpiry
	if got := known(); got != 0 {
		t.Errorf("%d producers are known %v after the append", got, passed)
	}
}
