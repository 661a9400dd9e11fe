package hostile

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/integration/cluster"
)

// process looks at a node from outside.
type process struct {
	node *cluster.Node
	http *http.Client
}

func newProcess(n *cluster.Node) *process {
	return &process{node: n, http: &http.Client{Timeout: patience, Transport: &http.Transport{}}}
}

// usage is what a node has in use at one moment. Sizes are in bytes.
type usage struct {
	resident, peak int64
	goroutines     int
	descriptors    int
	connections    int
	requests       int64 // held by requests in hand
	failed         int   // connections closed so far for what was sent
}

// usage measures the node.
func (p *process) usage(t *testing.T) usage {
	t.Helper()
	m := p.metrics(t)
	u := usage{
		goroutines: int(m["go_goroutines"]), descriptors: int(m["process_open_fds"]), connections: int(m["weir_connections"]),
		requests: int64(m["weir_request_memory_bytes"]), failed: int(m["weir_connections_failed_total"]),
	}
	u.resident, u.peak = p.memory(t)
	return u
}

// metrics reads /metrics.
func (p *process) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	resp, err := p.http.Get("http://" + p.node.Admin + "/metrics")
	if err != nil {
		t.Fatalf("read the node's metrics: %v\n%s", err, p.log())
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	all := map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			all[name] = v
		}
	}
	_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is used again
	return all
}

// memory reads the resident size and its peak since resetPeak.
func (p *process) memory(t *testing.T) (resident, peak int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.node.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kib); n == 1 {
			resident = kib << 10
		}
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			peak = kib << 10
		}
	}
	return resident, peak
}

// resetPeak begins to measure the peak anew.
func (p *process) resetPeak(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.node.PID()), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

// cpu is the processor time that the node has used.
func (p *process) cpu(t *testing.T) time.Duration {
	t.Helper()
	return time.Duration(p.metrics(t)["process_cpu_seconds_total"] * float64(time.Second))
}

// log is what the node has logged so far.
func (p *process) log() string {
	text, err := os.ReadFile(p.node.Log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
