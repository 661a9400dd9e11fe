package controller

import (
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// TestSessionCountsOnlyWhatItCaughtUpWith takes acknowledgements of a controller
// that is ahead: they make the session fresh only when the broker acts on an
// Image as new.
func TestSessionCountsOnlyWhatItCaughtUpWith(t *testing.T) {
	s := newSession(&Node{log: hclog.NewNullLogger(), cfg: Config{Session: 8 * time.Second}})
	const life = 7 * time.Second
	valid := func(now time.Duration, want bool) {
		t.Helper()
		if got := s.Valid(now); got != want {
			t.Errorf("valid at %s: %v, want %v", now, got, want)
		}
	}
	s.acknowledge(ack{1 * time.Second, 10}) // before the broker reports an index all count
	valid(1*time.Second+life-1, true)
	valid(1*time.Second+life, false)
	s.Settled(10)
	s.acknowledge(ack{5 * time.Second, 12})
	s.acknowledge(ack{6 * time.Second, 13})
	s.acknowledge(ack{7 * time.Second, 15})
	valid(1*time.Second+life, false)
	s.Settled(13)
	valid(6*time.Second+life-1, true)
	valid(6*time.Second+life, false)
	s.Settled(20)
	valid(7*time.Second+life-1, true)
	s.lapse()
	valid(7*time.Second, false)
	s.acknowledge(ack{8 * time.Second, 20})
	valid(8*time.Second, true)
	s.Suspend()
	valid(8*time.Second, false)
	s.acknowledge(ack{9 * time.Second, 20}) // the answer to a heartbeat that was under way
	valid(9*time.Second, false)
	s.Resume()
	valid(9*time.Second, false)
	s.acknowledge(ack{10 * time.Second, 20})
	valid(10*time.Second, true)
	s.lapse()
	for i := range maxAcks + 5 {
		s.acknowledge(ack{time.Duration(20+i) * time.Second, uint64(100 + i)})
	}
	if len(s.acks) != maxAcks {
		t.Errorf("%d acknowledgements wait, want at most %d", len(s.acks), maxAcks)
	}
}
