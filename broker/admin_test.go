package broker

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// testAdmin serves an admin listener on loopback and returns a getter.
func testAdmin(t *testing.T, c adminConfig) func(path string) (int, string) {
	t.Helper()
	c.Metrics, c.Log = newMetrics(), hclog.NewNullLogger()
	a := newAdmin(c)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- a.Serve(l) }()
	client := &http.Client{}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		if err := a.Close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Errorf("close: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return func(path string) (int, string) {
		t.Helper()
		resp, err := client.Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
}

func TestHealth(t *testing.T) {
	var live, raft, listener error
	started := false
	get := testAdmin(t, adminConfig{
		Live:    func() error { return live },
		Started: func() bool { return started },
		Ready: []healthCheck{
			{"raft", func() error { return raft }},
			{"listener", func() error { return listener }},
		},
	})
	check := func(path string, status int, parts ...string) {
		t.Helper()
		got, body := get(path)
		if got != status {
			t.Errorf("GET %s = %d, want %d", path, got, status)
		}
		for _, part := range parts {
			if !strings.Contains(body, part) {
				t.Errorf("GET %s = %q, want %q in it", path, body, part)
			}
		}
	}
	check("/livez", 200, "ok")
	check("/startupz", 503, "starting")
	started = true
	check("/startupz", 200)
	check("/readyz", 200, "ok")
	check("/readyz?verbose", 200, "[+] raft: ok", "[+] listener: ok")
	raft = errors.New("not caught up")
	check("/readyz", 503, "[-] raft: not caught up")
	check("/healthz?verbose", 503, "[-] raft: not caught up", "[+] listener: ok")
	live = errors.New("the data folder is offline")
	check("/livez", 503, "the data folder is offline")
	check("/nothing", 404)
}

func TestMetricsPage(t *testing.T) {
	get := testAdmin(t, adminConfig{Live: func() error { return nil }})
	status, body := get("/metrics")
	if status != 200 {
		t.Fatalf("status %d", status)
	}
	for _, name := range []string{"weir_connections ", "weir_build_info{", "weir_partitions ", "go_goroutines ", "process_open_fds "} {
		if !strings.Contains(body, "\n"+name) {
			t.Errorf("no %q on the page", name)
		}
	}
}

// What goes through a server shows in its metrics.
func TestMetricsCount(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.topic("orders", nil, selfID)
	w := ts.dial()
	w.ask(produceRequest(9, 1, "orders", records(5, 10)))
	w.ask(produceRequest(9, 1, "missing", records(5, 10)))
	families, err := ts.srv.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	want := map[string]float64{
		"weir_connections": 1, "weir_connections_accepted_total": 1, "weir_requests_total Produce": 2,
		"weir_request_seconds Produce": 2, "weir_produce_records_total": 5, "weir_produce_batches_total": 1,
		"weir_produce_refused_total": 1, "weir_errors_total UNKNOWN_TOPIC_OR_PARTITION": 1,
	}
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s = %v, want %v", name, got[name], n)
		}
	}
	if got["weir_request_bytes_total Produce"] == 0 || got["weir_response_bytes_total Produce"] == 0 || got["weir_produce_bytes_total"] == 0 {
		t.Error("no bytes are counted")
	}
}
