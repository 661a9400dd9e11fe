package client

import (
	"context"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"
)

// Latencies are kept in log-linear buckets of microseconds: subBuckets to each
// power of two, so a quantile is off by at most 1/subBuckets.
const (
	subBits    = 5
	subBuckets = 1 << subBits
	maxBuckets = (64 - subBits) * subBuckets
)

// histogram counts latencies; safe for concurrent use.
type histogram struct {
	counts [maxBuckets]atomic.Int64
	sum    atomic.Int64 // microseconds
	max    atomic.Int64
}

func bucketOf(us int64) int {
	if us < subBuckets {
		return int(max(us, 0))
	}
	shift := bits.Len64(uint64(us)) - 1 - subBits
	return (shift+1)*subBuckets + int(us>>shift) - subBuckets
}

// lowest is the least value that falls into bucket b.
func lowest(b int) int64 {
	if b < subBuckets {
		return int64(b)
	}
	shift := b/subBuckets - 1
	return int64(b%subBuckets+subBuckets) << shift
}

func (h *histogram) add(d time.Duration) {
	us := d.Microseconds()
	h.counts[bucketOf(us)].Add(1)
	h.sum.Add(us)
	for {
		old := h.max.Load()
		if us <= old || h.max.CompareAndSwap(old, us) {
			return
		}
	}
}

// quantile returns the latency in milliseconds below which the share q lies.
func (h *histogram) quantile(q float64) float64 {
	var total int64
	for i := range h.counts {
		total += h.counts[i].Load()
	}
	rank, seen := int64(q*float64(total)), int64(0)
	for i := range h.counts {
		if seen += h.counts[i].Load(); seen > rank {
			return float64(lowest(i)) / 1e3
		}
	}
	return float64(h.max.Load()) / 1e3
}

// latencies are what a bench prints of a histogram.
type latencies struct {
	AvgMs  float64 `json:"latency_avg_ms,omitempty"`
	P50Ms  float64 `json:"latency_p50_ms,omitempty"`
	P95Ms  float64 `json:"latency_p95_ms,omitempty"`
	P99Ms  float64 `json:"latency_p99_ms,omitempty"`
	P999Ms float64 `json:"latency_p999_ms,omitempty"`
	MaxMs  float64 `json:"latency_max_ms,omitempty"`
}

// String is how Kafka's own tools print latencies.
func (l latencies) String() string {
	return fmt.Sprintf("%.2f ms avg latency, %.2f ms max latency, %.2f ms 50th, %.2f ms 95th, %.2f ms 99th, %.2f ms 99.9th",
		l.AvgMs, l.MaxMs, l.P50Ms, l.P95Ms, l.P99Ms, l.P999Ms)
}

// latencies sums up n latencies.
func (h *histogram) latencies(n int64) latencies {
	if n == 0 {
		return latencies{}
	}
	return latencies{
		AvgMs: float64(h.sum.Load()) / float64(n) / 1e3,
		P50Ms: h.quantile(0.5), P95Ms: h.quantile(0.95), P99Ms: h.quantile(0.99), P999Ms: h.quantile(0.999),
		MaxMs: float64(h.max.Load()) / 1e3,
	}
}

// arrival rides on a record's context from the moment it is made to its answer.
type arrival struct {
	context.Context
	sent    time.Time
	latency *histogram
}

func withArrival(sent time.Time, h *histogram) context.Context {
	return arrival{context.Background(), sent, h}
}

// answered notes the latency of a record that bench made; others carry none.
func answered(ctx context.Context) {
	if a, ok := ctx.(arrival); ok {
		a.latency.add(time.Since(a.sent))
	}
}
