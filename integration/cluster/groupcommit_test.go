package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// The load that committed offsets are built for.
const (
	loadGroups     = 32
	loadPartitions = 100
	loadRate       = 100_000 // partitions a second
)

// commitFigures is what weir bench commit prints.
type commitFigures struct {
	Commits       int64
	Retries       int64
	PartitionsSec float64 `json:"partitions_per_second"`
	P50Ms         float64 `json:"latency_p50_ms"`
	P99Ms         float64 `json:"latency_p99_ms"`
	P999Ms        float64 `json:"latency_p999_ms"`
	MaxMs         float64 `json:"latency_max_ms"`
}

// TestGroupCommits has 32 groups commit 100 partitions at a time, at 100,000 partitions a
// second and then as fast as they are taken, and reads back what they committed. It reports
// latencies, the nodes' CPU a partition, and how large the Raft folder became.
func TestGroupCommits(t *testing.T) {
	d := timeOf(t, "WEIR_DURATION", 2*time.Second)
	r := newGroupRig(t, 2*d+5*time.Minute, 1)
	idle := r.idleCPU(min(d, 5*time.Second))
	t.Logf("idle: %.2f CPU-seconds of three nodes a minute", idle*60)
	t.Logf("%-10s %12s %9s %9s %9s %9s %8s %18s %12s", "commits", "partitions/s", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "retries", "CPU us/partition", "raft MB max")
	r.commits("at rate", d, idle, "--rate", strconv.Itoa(loadRate))
	r.commits("unbounded", max(d/4, time.Second), idle)
}

// idleCPU is what the nodes take with nothing to do, in CPU-seconds a second.
func (r *groupRig) idleCPU(d time.Duration) float64 {
	before, _ := r.cpu()
	begin := time.Now()
	<-time.After(d)
	after, _ := r.cpu()
	return (after - before).Seconds() / time.Since(begin).Seconds()
}

// commits runs weir bench commit once and reports a line.
func (r *groupRig) commits(name string, d time.Duration, idle float64, args ...string) {
	r.t.Helper()
	stop := r.watchRaft()
	before, _ := r.cpu()
	begin := time.Now()
	args = append([]string{"bench", "commit", "-b", r.Nodes[0].Client, "--groups", strconv.Itoa(loadGroups),
		"-p", strconv.Itoa(loadPartitions), "-r", "3", "-d", d.String(), "--timeout", "1m", "-o", "json"}, args...)
	cmd := exec.CommandContext(r.ctx, r.Bin, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		r.t.Fatalf("bench commit %s: %v: %s", name, err, stderr.String())
	}
	took := time.Since(begin).Seconds()
	after, _ := r.cpu()
	largest := stop()
	var f commitFigures
	if err := json.Unmarshal(stdout.Bytes(), &f); err != nil {
		r.t.Fatalf("%v in %s", err, stdout.String())
	}
	if f.Commits < loadGroups {
		r.t.Errorf("%s: only %d commits in %v", name, f.Commits, d)
	}
	partitions := float64(f.Commits+loadGroups) * loadPartitions
	spent := (after - before).Seconds() * 1e6
	r.t.Logf("%-10s %12.0f %9.2f %9.2f %9.2f %9.2f %8d %18s %12.1f", name, f.PartitionsSec, f.P50Ms, f.P99Ms, f.P999Ms, f.MaxMs, f.Retries,
		fmt.Sprintf("%.2f (net %.2f)", spent/partitions, (spent-idle*took*1e6)/partitions), float64(largest)/(1<<20))
}

// watchRaft looks at the sizes of the Raft folders until it is stopped, and returns the
// largest seen.
func (r *groupRig) watchRaft() (stop func() int64) {
	var largest int64
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, n := range r.Nodes {
				largest = max(largest, folderSize(filepath.Join(n.Data, "raft")))
			}
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	})
	return func() int64 {
		close(done)
		watching.Wait()
		return largest
	}
}
