package controller

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestFollowerBehind: one that answers heartbeats and takes no entries is not silent, and lacks
// more and more; what it said in another term counts for nothing.
func TestFollowerBehind(t *testing.T) {
	const id = raft.ServerID("2.00")
	f, at := newFollowerEnds(), time.Now()
	if lag, silent := f.behind(id, 3, 100, at); lag != 100 || silent < time.Hour {
		t.Errorf("unheard: lacks %d, silent for %v", lag, silent)
	}
	f.noted(id, 3, 90, 100, at, at)
	later := at.Add(time.Second)
	f.noted(id, 3, 90, 150, later, later) // a heartbeat
	if lag, silent := f.behind(id, 3, 150, later.Add(time.Second)); lag != 60 || silent != time.Second {
		t.Errorf("it lacks %d, silent for %v; want 60, 1s", lag, silent)
	}
	f.noted(id, 3, 170, 150, later, later) // more than is committed
	if lag, _ := f.behind(id, 3, 150, later); lag != 0 {
		t.Errorf("it lacks %d, and has everything", lag)
	}
	if lag, silent := f.behind(id, 4, 150, later); lag != 150 || silent < time.Hour {
		t.Errorf("in another term: lacks %d, silent for %v", lag, silent)
	}
}
