package cluster

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	textBytes  = 100 << 20
	jobTimeout = 4 * time.Minute
)

// job is one cluster of three and the text to send through it.
type job struct {
	*Cluster
	t    *testing.T
	ctx  context.Context
	cl   *kgo.Client
	text string
	sum  string
}

func newJob(t *testing.T, topic string, partitions int32) *job {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), jobTimeout)
	t.Cleanup(cancel)
	c := startThree(ctx, t)
	j := &job{Cluster: c, t: t, ctx: ctx, text: filepath.Join(c.Dir, "text")}
	if err := GatherText(j.text, textBytes); err != nil {
		t.Fatal(err)
	}
	j.sum = fileSum(t, j.text)
	var err error
	if j.cl, err = c.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(topic)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.cl.Close)
	if _, err := kadm.NewClient(j.cl).CreateTopic(ctx, partitions, 3, nil, topic); err != nil {
		t.Fatal(err)
	}
	return j
}

func (j *job) showLogs() {
	for _, n := range j.Nodes {
		log, err := os.ReadFile(n.Log)
		if err == nil {
			j.t.Logf("log of node %d:\n%s", n.ID, log[max(0, len(log)-6000):])
		}
	}
}

func fileSum(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// killLeader kills the leader of partition 0 and returns the node.
func (j *job) killLeader(topic string) (*Node, error) {
	parts, err := j.Partitions(j.ctx, j.cl, topic)
	if err != nil {
		return nil, err
	}
	n := j.Node(parts[0].Leader)
	return n, n.Kill()
}

// killReader passes a stream on and kills the leader once, after half of size bytes.
type killReader struct {
	in     io.Reader
	left   int
	kill   func() error
	killed bool
}

func (k *killReader) Read(p []byte) (int, error) {
	if k.left <= 0 && !k.killed {
		k.killed = true
		if err := k.kill(); err != nil {
			return 0, fmt.Errorf("kill the leader: %w", err)
		}
	}
	n, err := k.in.Read(p)
	k.left -= n
	return n, err
}

// pipeThrough runs a command with the text on its stdin and kills the leader of
// partition 0 in the middle; then it starts that node again.
func (j *job) pipeThrough(topic, name string, args ...string) {
	j.t.Helper()
	f, err := os.Open(j.text)
	if err != nil {
		j.t.Fatal(err)
	}
	defer f.Close()
	var dead *Node
	cmd := exec.CommandContext(j.ctx, name, args...)
	cmd.Stdin = &killReader{in: f, left: textBytes / 2, kill: func() (err error) { dead, err = j.killLeader(topic); return err }}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		j.t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, stderr.String())
	}
	if dead == nil {
		j.t.Fatal("no leader was killed")
	}
	j.revive(topic, dead)
}

func (j *job) revive(topic string, n *Node) {
	j.t.Helper()
	if err := j.StartNode(n); err != nil {
		j.t.Fatal(err)
	}
	if err := j.AwaitISR(j.ctx, j.cl, topic, 3); err != nil {
		j.t.Fatal(err)
	}
}

// readThrough runs a command that prints the topic, kills the leader in the
// middle of it, and compares the checksum of what it printed.
func (j *job) readThrough(topic, name string, args ...string) {
	j.t.Helper()
	cmd := exec.CommandContext(j.ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		j.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		j.t.Fatal(err)
	}
	var dead *Node
	h := sha256.New()
	n, err := io.Copy(h, &killReader{in: out, left: textBytes / 2, kill: func() (err error) { dead, err = j.killLeader(topic); return err }})
	if waitErr := cmd.Wait(); err != nil || waitErr != nil {
		j.t.Fatalf("%s %s: read %d bytes: %v\n%s", filepath.Base(name), strings.Join(args, " "), n, errors.Join(err, waitErr), stderr.String())
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != j.sum {
		j.t.Errorf("%s printed %d bytes with checksum %s, want %s", filepath.Base(name), n, got, j.sum)
	}
	if dead == nil {
		j.t.Fatal("no leader was killed while reading")
	}
	j.revive(topic, dead)
}

// TestMainJobByCLI sends real text through the bundled CLI into one partition,
// kills its leader in the middle of writing and again in the middle of reading,
// and compares checksums.
func TestMainJobByCLI(t *testing.T) {
	const topic = "by-cli"
	j := newJob(t, topic, 1)
	brokers := strings.Join(j.Brokers(), ",")
	j.pipeThrough(topic, j.Bin, "produce", topic, "-b", brokers)
	j.readThrough(topic, j.Bin, "consume", topic, "-e", "-b", brokers)
}

// TestMainJobByKcat does the same with a client that nobody here wrote.
func TestMainJobByKcat(t *testing.T) {
	kcat, err := exec.LookPath("kcat")
	if err != nil {
		t.Skip("kcat is not installed; make compat installs it")
	}
	const topic = "by-kcat"
	j := newJob(t, topic, 1)
	brokers := strings.Join(j.Brokers(), ",")
	j.pipeThrough(topic, kcat, "-P", "-b", brokers, "-t", topic, "-p", "0", "-X", "acks=all", "-X", "enable.idempotence=true", "-z", "snappy")
	// -D prints the delimiter after each record; kcat drops empty lines when producing, so compare with a text without them.
	j.sum = sumWithoutEmptyLines(t, j.text)
	j.readThrough(topic, kcat, "-C", "-b", brokers, "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%s\n")
}

func sumWithoutEmptyLines(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	for sc := lineScanner(f); sc.Scan(); {
		if len(sc.Bytes()) > 0 {
			h.Write(append(sc.Bytes(), '\n'))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// lineScanner splits at newlines only, so that carriage returns survive.
func lineScanner(r io.Reader) *bufio.Scanner {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	sc.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			return i + 1, data[:i], nil
		}
		if atEOF && len(data) > 0 {
			return len(data), data, nil
		}
		return 0, nil, nil
	})
	return sc
}

// TestMainJobByFranz spreads the text over six partitions with franz-go, each
// line numbered by its key, through a leader's death, and puts it together again.
func TestMainJobByFranz(t *testing.T) {
	const topic, partitions = "by-franz", 6
	j := newJob(t, topic, partitions)
	lines := j.produceLines(topic, partitions)
	dead, err := j.killLeader(topic) // and again while it is read
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	j.consumeLines(topic, lines, h)
	if got := hex.EncodeToString(h.Sum(nil)); got != j.sum {
		t.Errorf("checksum %s, want %s", got, j.sum)
	}
	j.revive(topic, dead)
}

func (j *job) produceLines(topic string, partitions int) int {
	j.t.Helper()
	f, err := os.Open(j.text)
	if err != nil {
		j.t.Fatal(err)
	}
	defer f.Close()
	var dead *Node
	lines, failed := 0, make(chan error, 1)
	for sc := lineScanner(&killReader{in: f, left: textBytes / 2, kill: func() (err error) { dead, err = j.killLeader(topic); return err }}); sc.Scan(); lines++ {
		r := &kgo.Record{Key: binary.BigEndian.AppendUint64(nil, uint64(lines)), Value: bytes.Clone(sc.Bytes()), Partition: int32(lines / 100 % partitions)}
		j.cl.Produce(j.ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	if err := j.cl.Flush(j.ctx); err != nil {
		j.t.Fatal(err)
	}
	select {
	case err := <-failed:
		j.t.Fatalf("produce: %v", err)
	default:
	}
	j.revive(topic, dead)
	return lines
}

// consumeLines reads lines records into their places and hashes them in order.
func (j *job) consumeLines(topic string, lines int, h hash.Hash) {
	j.t.Helper()
	cl, err := j.Client(kgo.ConsumeTopics(topic))
	if err != nil {
		j.t.Fatal(err)
	}
	defer cl.Close()
	all := make([][]byte, lines)
	for got := 0; got < lines; {
		fs := cl.PollFetches(j.ctx)
		if err := j.ctx.Err(); err != nil {
			j.t.Fatalf("%d of %d records came back: %v", got, lines, err)
		}
		for it := fs.RecordIter(); !it.Done(); got++ {
			r := it.Next()
			n := int(binary.BigEndian.Uint64(r.Key))
			if n >= lines || all[n] != nil {
				j.t.Fatalf("line %d of %d came back twice or was never sent", n, lines)
			}
			all[n] = append(make([]byte, 0, len(r.Value)+1), r.Value...)
			all[n] = append(all[n], '\n')
		}
	}
	for _, line := range all {
		h.Write(line)
	}
}
