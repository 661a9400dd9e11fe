package clients

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/integration/cluster"
)

// complaint matches what DumpLogSegments prints about a file it does not like.
// The tool exits with 0 all the same.
var complaint = regexp.MustCompile(`(?i)mismatch|non-consecutive|out of order|isvalid: false|exception|corrupt|could not|invalid|should be smaller`)

// firstOffset is what the tool says of every segment that does not begin at
// offset 0, of Kafka's own too: it compares the first record with no record.
var firstOffset = regexp.MustCompile(`Non-consecutive offsets in \S*/0*(\d+)\.log\n  -1 is followed by \d+\n`)

// TestDumpLogSegments lets Kafka's own dump tool read the partition folders of
// three replicas: every codec, several segments, indexes and producer snapshots.
func TestDumpLogSegments(t *testing.T) {
	libs := os.Getenv("KAFKA_LIBS")
	if libs == "" {
		t.Skip("KAFKA_LIBS names no folder with Kafka's jars; make compat fetches them")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	dir := t.TempDir()
	bin, err := cluster.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.New(bin, dir, 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	fill(ctx, t, c)
	for _, n := range c.Nodes {
		if err := n.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range c.Nodes {
		files, err := filepath.Glob(filepath.Join(n.Data, "dumped-*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for _, f := range files {
			seen[filepath.Ext(f)]++
		}
		if seen[".log"] < 4 || seen[".index"] < 4 || seen[".timeindex"] < 4 || seen[".snapshot"] < 1 {
			t.Errorf("node %d holds too little to judge: %v", n.ID, seen)
		}
		dump(ctx, t, libs, files, "--deep-iteration", "--print-data-log")
		dump(ctx, t, libs, files, "--index-sanity-check")
		dump(ctx, t, libs, files, "--verify-index-only")
	}
}

// fill writes a topic with each codec in turn until its segments have rolled.
func fill(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	const topic, rounds, perRound = "dumped", 4, 1500
	segment := "1048576"
	adm, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer adm.Close()
	if _, err := kadm.NewClient(adm).CreateTopic(ctx, 2, 3, map[string]*string{"segment.bytes": &segment}, topic); err != nil {
		t.Fatal(err)
	}
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for i := range rounds * len(codecs) {
		cl, err := c.Client(kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codecs[i%len(codecs)]), kgo.ProducerBatchMaxBytes(64<<10))
		if err != nil {
			t.Fatal(err)
		}
		for k := range perRound {
			value := strings.Repeat(fmt.Sprintf("round %d record %d ", i, k*k), 20)
			r := &kgo.Record{Key: fmt.Append(nil, k), Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("v")}}}
			cl.Produce(ctx, r, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		if err := cl.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		cl.Close()
	}
}

func dump(ctx context.Context, t *testing.T, libs string, files []string, flags ...string) {
	t.Helper()
	var known []string
	for _, f := range files {
		switch filepath.Ext(f) {
		case ".log", ".index", ".timeindex", ".snapshot", ".txnindex":
			known = append(known, f)
		}
	}
	args := append([]string{"-Xmx512M", "-cp", filepath.Join(libs, "*"), "org.apache.kafka.tools.DumpLogSegments", "--files", strings.Join(known, ",")}, flags...)
	cmd := exec.CommandContext(ctx, "java", args...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("DumpLogSegments %v: %v\n%s", flags, err, stderr.String())
	}
	said := firstOffset.ReplaceAllString(out.String()+stderr.String(), "")
	for _, line := range strings.Split(said, "\n") {
		if !strings.Contains(line, "payload:") && complaint.MatchString(line) && !strings.Contains(line, "isvalid: true") {
			t.Errorf("DumpLogSegments %v: %s", flags, line)
		}
	}
	if n := strings.Count(out.String(), "Dumping"); n < len(known) {
		t.Errorf("DumpLogSegments %v dumped %d of %d files", flags, n, len(known))
	}
}
