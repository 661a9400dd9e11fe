package broker

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirmq/weir/storage/vfs"
)

// TestTroubleIsToldTwice fills a follower's disk for some tries: one line tells when it
// begins and one when it is over, a counter each try, and the replica catches up.
func TestTroubleIsToldTwice(t *testing.T) {
	var full atomic.Bool
	disk := vfs.NewFaulty(vfs.OS(), func(op vfs.Op, name string) error {
		if full.Load() && op == vfs.OpWriteAt && filepath.Ext(name) == ".log" {
			return syscall.ENOSPC
		}
		return nil
	})
	n := newFeedNetOn(t, 2, disk)
	n.install(1)
	for i := range 20 {
		n.append(1, 1, numbered(i, i+1)[0])
	}
	log := &lockedBuffer{}
	told := func(what string) int { return strings.Count(log.String(), what) }
	n.nodes[2].follows.log = hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Info})
	registry := prometheus.NewRegistry()
	registry.MustRegister(n.nodes[2].env.metrics.feedFailures)
	failures := func() float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		return families[0].GetMetric()[0].GetCounter().GetValue()
	}
	full.Store(true)
	n.install(2)
	n.until("the follower has failed some times", func() bool { return failures() >= 4 })
	if got := told("cannot take"); got != 1 {
		t.Errorf("%d lines about the beginning, want 1", got)
	}
	if got := told("after trouble"); got != 0 {
		t.Errorf("%d lines about the end while it lasts", got)
	}
	full.Store(false)
	n.equal(1, 2)
	n.until("the end is told", func() bool { return told("after trouble") == 1 })
	if got := told("cannot take"); got != 1 {
		t.Errorf("%d lines about the beginning, want 1", got)
	}
}
