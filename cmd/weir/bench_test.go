package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// Groups commit, and what they committed is there afterwards.
func TestBenchCommit(t *testing.T) {
	n := startNode(t)
	type result struct {
		Groups     int
		Partitions int `json:"partitions_per_commit"`
		Commits    int64
		Rate       float64 `json:"partitions_per_second"`
		P99        float64 `json:"latency_p99_ms"`
		Max        float64 `json:"latency_max_ms"`
	}
	for _, flags := range []string{"", " --rate 3000"} {
		got := decode[result](t, n.must("", "bench commit --groups 3 --partitions 5 --duration 100ms -o json"+flags))
		if got.Groups != 3 || got.Partitions != 5 || got.Commits < 3 || got.Rate <= 0 || got.P99 <= 0 || got.Max < got.P99 {
			t.Errorf("%q: %+v", flags, got)
		}
	}
	for _, group := range []string{"weir-bench-0", "weir-bench-1", "weir-bench-2"} {
		if offsets := n.must("", "group offsets "+group+" -o json"); strings.Count(offsets, `"partition"`) != 5 {
			t.Errorf("offsets of %s: %s", group, offsets)
		}
	}
	text := n.must("", "bench commit --groups 2 -p 5 -d 50ms -g other")
	for _, want := range []string{" commits of 5 partitions by 2 groups, ", " partitions/sec (", " commits/sec), ", " ms avg latency, ", " ms 99th, "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
	if code, _, stderr := n.weir("", "bench commit -p 6"); code != 2 || !strings.Contains(stderr, "has 5 partitions, not 6") {
		t.Errorf("more partitions than the topic has: %d %q", code, stderr)
	}
}

// Every record is measured once, and records of others are not.
func TestBenchEndToEnd(t *testing.T) {
	n := startNode(t)
	type result struct {
		Records int64
		Bytes   int64
		P50     float64 `json:"latency_p50_ms"`
		Max     float64 `json:"latency_max_ms"`
	}
	for _, flags := range []string{"", " --rate 500", " --acks 1 -s 16"} {
		got := decode[result](t, n.must("", "bench e2e -n 20 -p 2 -o json"+flags))
		if got.Records != 20 || got.Bytes < 20*16 || got.P50 <= 0 || got.Max < got.P50 {
			t.Errorf("%q: %+v", flags, got)
		}
		n.must("not mine\n", "produce weir-bench-e2e")
	}
	if text := n.must("", "bench e2e -n 5"); !strings.Contains(text, "5 records end to end, ") || !strings.Contains(text, " ms 99.9th") {
		t.Errorf("%q", text)
	}
}

func TestBenchRefusals(t *testing.T) {
	for args, want := range map[string]string{
		"bench commit --groups 0":           "must be above 0",
		"bench commit --partitions 0":       "must be above 0",
		"bench commit --duration 0s":        "must be above 0",
		"bench e2e -s 15":                   "--size 16 or more",
		"bench e2e -n 0":                    "--records must be above 0",
		"bench e2e --acks 2":                `unknown acks "2"`,
		"bench produce -n 0":                "--records must be above 0",
		"bench produce --request-bytes 9":   "above --batch-bytes",
		"bench commit --groups 1 -o banana": `unknown output "banana"`,
		"bench e2e -o banana":               `unknown output "banana"`,
	} {
		var stdout, stderr bytes.Buffer
		code := run(context.Background(), append(strings.Fields(args), "-b", "127.0.0.1:1"), strings.NewReader(""), &stdout, &stderr)
		if code != 2 || !strings.Contains(stderr.String(), want) {
			t.Errorf("weir %s: exit code %d, %q, want 2 and %q", args, code, stderr.String(), want)
		}
	}
}
