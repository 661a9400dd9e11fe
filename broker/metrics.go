package broker

import (
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire"
)

// metrics are all counters of a node, one struct per component, registered here
// and nowhere else.
type metrics struct {
	registry *prometheus.Registry
	conns    connMetrics
	apis     apiVectors
	topics   topicMetrics
	replicas replicaMetrics
	disk     diskMetrics
	groups   groupMetrics
	errors   *prometheus.CounterVec
}

// connMetrics count the client connections.
type connMetrics struct {
	open      prometheus.Gauge
	accepted  prometheus.Counter
	refused   prometheus.Counter // over a limit
	displaced prometheus.Counter // silent, closed for another
	failed    prometheus.Counter // ended for what the client sent or did not take
}

// topicMetrics count records in and out.
type topicMetrics struct {
	bytesIn   prometheus.Counter
	recordsIn prometheus.Counter
	batchesIn prometheus.Counter
	refused   prometheus.Counter // batches that were not appended
	bytesOut  prometheus.Counter
}

// replicaMetrics describe this node's replicas. The gauges follow the role
// changes of the reconciler; the counters count from the start of the process.
type replicaMetrics struct {
	partitions      prometheus.Gauge
	leaders         prometheus.Gauge
	underReplicated prometheus.Gauge
	underMinISR     prometheus.Gauge
	recovering      prometheus.Gauge
	reassigning     prometheus.Gauge
	isrShrinks      prometheus.Counter
	isrExpands      prometheus.Counter
	truncations     prometheus.Counter
	feedFailures    prometheus.Counter
	feedBytesIn     prometheus.Counter
	feedBytesOut    prometheus.Counter
}

// diskMetrics tell of calls of the disk that do not return.
type diskMetrics struct {
	hung  prometheus.Gauge
	hangs prometheus.Counter
}

// apiVectors are the metrics that every API has; apiMetrics are those of one.
type apiVectors struct {
	requests      *prometheus.CounterVec
	requestBytes  *prometheus.CounterVec
	responseBytes *prometheus.CounterVec
	seconds       *prometheus.HistogramVec
}

type apiMetrics struct {
	requests      prometheus.Counter
	requestBytes  prometheus.Counter
	responseBytes prometheus.Counter
	seconds       prometheus.Observer
}

// requestBuckets, in seconds, reach from a request that touches memory only to a
// long poll of a minute.
var requestBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

func newMetrics() *metrics {
	r := registrar{prometheus.NewRegistry()}
	m := &metrics{
		registry: r.Registry,
		conns: connMetrics{
			open:      r.gauge("connections", "Open client connections."),
			accepted:  r.counter("connections_accepted_total", "Client connections accepted."),
			refused:   r.counter("connections_refused_total", "Client connections refused because there were too many."),
			displaced: r.counter("connections_displaced_total", "Client connections that had sent no request and were closed to make room for another."),
			failed:    r.counter("connections_failed_total", "Client connections closed for what the client sent, or did not take."),
		},
		apis: apiVectors{
			requests:      r.counters("requests_total", "Requests read.", "api"),
			requestBytes:  r.counters("request_bytes_total", "Bytes of requests read.", "api"),
			responseBytes: r.counters("response_bytes_total", "Bytes of responses written.", "api"),
			seconds:       r.histograms("request_seconds", "Time from the last byte of a request to the last byte of its response.", "api"),
		},
		topics: topicMetrics{
			bytesIn:   r.counter("produce_bytes_total", "Bytes of record batches appended for producers."),
			recordsIn: r.counter("produce_records_total", "Records appended for producers."),
			batchesIn: r.counter("produce_batches_total", "Record batches appended for producers."),
			refused:   r.counter("produce_refused_total", "Record batches of producers that were not appended."),
			bytesOut:  r.counter("fetch_bytes_total", "Bytes of record batches sent to consumers."),
		},
		replicas: newReplicaMetrics(r),
		disk: diskMetrics{
			hung:  r.gauge("disk_hung", "1 while calls of the disk do not return and this node leads nothing."),
			hangs: r.counter("disk_hangs_total", "Times that calls of the disk did not return."),
		},
		groups: newGroupMetrics(r),
		errors: r.counters("errors_total", "Errors answered to clients, by error code.", "code"),
	}
	r.build()
	return m
}

func newReplicaMetrics(r registrar) replicaMetrics {
	return replicaMetrics{
		partitions:      r.gauge("partitions", "Replicas on this node."),
		leaders:         r.gauge("partitions_leading", "Partitions that this node leads."),
		underReplicated: r.gauge("partitions_under_replicated", "Partitions led here whose ISR lacks a replica."),
		underMinISR:     r.gauge("partitions_under_min_isr", "Partitions led here whose ISR is below the effective min ISR."),
		recovering:      r.gauge("partitions_recovering", "Partitions led here by a leader that was chosen at the risk of loss, whose ISR is not full yet."),
		reassigning:     r.gauge("partitions_reassigning", "Partitions led here whose replicas are being reassigned."),
		isrShrinks:      r.counter("isr_shrinks_total", "ISR changes that removed a replica, proposed here and committed."),
		isrExpands:      r.counter("isr_expands_total", "ISR changes that added a replica, proposed here and committed."),
		truncations:     r.counter("truncations_total", "Truncations of a replica's log to follow its leader."),
		feedFailures:    r.counter("feed_failures_total", "Times that a replica could not take what its leader sent."),
		feedBytesIn:     r.counter("feed_received_bytes_total", "Bytes of record batches received from leaders."),
		feedBytesOut:    r.counter("feed_sent_bytes_total", "Bytes of record batches sent to followers."),
	}
}

// watchBudget shows how much of the request memory is in use.
func (m *metrics) watchBudget(b *budget) {
	total := b.unused()
	m.registry.MustRegister(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Namespace: namespace, Name: "request_memory_bytes", Help: "Bytes held by requests in hand."},
		func() float64 { return float64(total - b.unused()) }))
}

// watchRecoveries shows how often this node, as controller, had to choose a leader
// that may lack acknowledged records.
func (m *metrics) watchRecoveries(count func() int64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(
		prometheus.CounterOpts{Namespace: namespace, Name: "recoveries_total", Help: "Partitions that this node, as controller, gave a leader which may lack acknowledged records, since nobody who surely has them was left."},
		func() float64 { return float64(count()) }))
}

// followerMetrics are gauges of each server of the metadata log, on the controller alone: a node
// that stops being it stops telling of others.
type followerMetrics struct {
	followers   func() []controller.Follower
	lag, silent *prometheus.Desc
}

// watchFollowers shows how far the servers of the metadata log are behind.
func (m *metrics) watchFollowers(followers func() []controller.Follower) {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, []string{"node"}, nil)
	}
	m.registry.MustRegister(&followerMetrics{
		followers: followers,
		lag:       desc("raft_follower_lag_entries", "Committed entries of the metadata log that another node lacks; told by the controller."),
		silent:    desc("raft_follower_silent_seconds", "Time since another node last took what the metadata log's leader sent it; told by the controller."),
	})
}

// Describe implements prometheus.Collector.
func (f *followerMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- f.lag
	to <- f.silent
}

// Collect implements prometheus.Collector.
func (f *followerMetrics) Collect(to chan<- prometheus.Metric) {
	for _, s := range f.followers() {
		node := strconv.Itoa(int(s.ID))
		to <- prometheus.MustNewConstMetric(f.lag, prometheus.GaugeValue, float64(s.Lag), node)
		to <- prometheus.MustNewConstMetric(f.silent, prometheus.GaugeValue, s.Silent.Seconds(), node)
	}
}

// watchTail shows what a loss of power would take from this node.
func (m *metrics) watchTail(d *storage.Dir) {
	show := func(name, help string, value func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, value))
	}
	show("unsynced_bytes", "Bytes of record batches that are written and not on the disk yet.", func() float64 { return float64(d.Unsynced()) })
	show("unsynced_seconds", "Age of the oldest of them.", func() float64 {
		since := d.UnsyncedSince()
		if since.IsZero() {
			return 0
		}
		return max(0, time.Since(since).Seconds())
	})
}

// watchScrub shows what is not known to be sound on the disk, and what was not.
func (m *metrics) watchScrub(d *storage.Dir) {
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: "unproven_bytes",
			Help: "Bytes of logs that were written before the start, or proven long ago, and have not been read and found whole since."},
			func() float64 { return float64(d.Unproven()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Name: "scrubbed_bytes_total",
			Help: "Bytes of logs that the scrub has read and found whole."}, func() float64 { return float64(d.Scrubbed()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Name: "damage_found_total",
			Help: "Replicas found damaged on the disk: at the start, by a read or by the scrub."}, func() float64 { return float64(d.DamageFound()) }))
}

// watchCleaner shows what compaction does.
func (m *metrics) watchCleaner(d *storage.Dir) {
	count := func(name, help string, value func(storage.CleanerStats) int64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help},
			func() float64 { return float64(value(d.CleanerStats())) }))
	}
	count("compactions_total", "Logs that were compacted.", func(s storage.CleanerStats) int64 { return s.Runs })
	count("compaction_read_bytes_total", "Bytes of logs that were read to compact them.", func(s storage.CleanerStats) int64 { return s.ReadBytes })
	count("compaction_written_bytes_total", "Bytes that compaction has written.", func(s storage.CleanerStats) int64 { return s.WrittenBytes })
	count("compaction_dropped_records_total", "Records that compaction has left out.", func(s storage.CleanerStats) int64 { return s.DroppedRecords })
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: "compaction_dirty_ratio_max",
			Help: "Greatest share of one log's bytes that could be compacted and never were."},
			func() float64 { return d.CleanerStats().MaxDirtyRatio }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: "compaction_last_seconds",
			Help: "When a log was compacted last, in seconds since 1970; 0 for never."},
			func() float64 { return float64(d.CleanerStats().LastMs) / 1000 }))
}

// watchFetchSessions shows how many fetch sessions there are, and what they take.
func (m *metrics) watchFetchSessions(c *fetchSessions) {
	show := func(name, help string, value func(fetchSessionCounts) int) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help},
			func() float64 { return float64(value(c.counts())) }))
	}
	show("fetch_sessions", "Fetch sessions in the cache.", func(n fetchSessionCounts) int { return n.sessions })
	show("fetch_session_slots", "Slots of the fetch session cache in use.", func(n fetchSessionCounts) int { return n.slots })
	m.registry.MustRegister(prometheus.NewCounterFunc(
		prometheus.CounterOpts{Namespace: namespace, Name: "fetch_sessions_evicted_total", Help: "Fetch sessions that had to go for another."},
		func() float64 { return float64(c.counts().evicted) }))
}

// of returns the metrics of one API.
func (v *apiVectors) of(api string) *apiMetrics {
	return &apiMetrics{
		requests:      v.requests.WithLabelValues(api),
		requestBytes:  v.requestBytes.WithLabelValues(api),
		responseBytes: v.responseBytes.WithLabelValues(api),
		seconds:       v.seconds.WithLabelValues(api),
	}
}

func (m *apiMetrics) received(sizeBytes int) {
	m.requests.Inc()
	m.requestBytes.Add(float64(sizeBytes))
}

func (m *apiMetrics) answered(sizeBytes int, d time.Duration) {
	m.responseBytes.Add(float64(sizeBytes))
	m.seconds.Observe(d.Seconds())
}

// failed counts one error answered to a client.
func (m *metrics) failed(c wire.Code) {
	m.errors.WithLabelValues(c.Name()).Inc()
}

// handler serves the metrics in Prometheus' text format.
func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// namespace is what the name of every metric of ours begins with.
const namespace = "weir"

// registrar makes metrics and registers them.
type registrar struct{ *prometheus.Registry }

func (r registrar) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
	r.MustRegister(c)
	return c
}

func (r registrar) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
	r.MustRegister(g)
	return g
}

func (r registrar) counters(name, help, label string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, []string{label})
	r.MustRegister(c)
	return c
}

func (r registrar) histograms(name, help, label string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(
		prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: requestBuckets}, []string{label})
	r.MustRegister(h)
	return h
}

// build registers what every Go process shows, and which build this is.
func (r registrar) build() {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: "build_info", Help: "Always 1; the label is the version.",
			ConstLabels: prometheus.Labels{"version": version}}, func() float64 { return 1 }))
}
