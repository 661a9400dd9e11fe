package clients

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// event is one line of a client program.
type event struct {
	Step      string `json:"step"`
	N         int    `json:"n"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Error     string `json:"error"`

	member     int     // index of the process in its flock
	at         int64   // by the client's clock, in ms; of "assigned" and "revoked"
	partitions []int32 // of these
}

// client describes one foreign client: how its programs are called and what they print.
type client struct {
	codecs     []string // beside "none"
	idempotent bool     // its retries make no duplicates
	consumer   bool     // its groups use the consumer protocol (KIP-848)
	anyCodec   bool     // the codec cannot be seen in the batches, or the client chooses it

	produce func(brokers, topic, codec string, first, count int) []string
	read    func(brokers, topic string) []string
	group   func(brokers, topic, group string) []string
	env     []string
	// feed is set for a program that takes its records from stdin and prints no
	// acknowledgements: it has all of them when it exits with 0.
	feed func(first, count int) io.Reader
	// parse turns a line into events; nil means that the line is an event.
	parse func(line []byte) ([]event, error)
	// stopCodes are the exit codes of a program that ended in order with SIGTERM.
	stopCodes []int
}

// ours is a client whose program follows the conventions of doc.go.
func ours(argv ...string) client {
	call := func(args ...string) []string { return append(slices.Clone(argv), args...) }
	return client{
		produce: func(brokers, topic, codec string, first, count int) []string {
			return call("produce", brokers, topic, codec, strconv.Itoa(first), strconv.Itoa(count))
		},
		read:  func(brokers, topic string) []string { return call("read", brokers, topic) },
		group: func(brokers, topic, group string) []string { return call("group", brokers, topic, group) },
	}
}

// program is one running process of a client.
type program struct {
	cmd    *exec.Cmd
	events chan event // closed when stdout ends
	stderr bytes.Buffer
	failed error // of reading stdout; valid when events is closed
}

// launch starts a client's program. It ends with ctx at the latest.
func (c client) launch(ctx context.Context, argv []string, stdin io.Reader) (*program, error) {
	p := &program{events: make(chan event), cmd: exec.CommandContext(ctx, argv[0], argv[1:]...)}
	p.cmd.Env = append(os.Environ(), c.env...)
	p.cmd.Stdin, p.cmd.Stderr = stdin, &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	go p.scan(ctx, c, out)
	return p, nil
}

// scan hands on what the program prints until it closes stdout or ctx ends.
func (p *program) scan(ctx context.Context, c client, out io.Reader) {
	defer close(p.events)
	sc := bufio.NewScanner(out)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		events, err := c.events(sc.Bytes())
		if err != nil {
			p.failed = errors.Join(p.failed, err)
			continue
		}
		for _, e := range events {
			select {
			case p.events <- e:
			case <-ctx.Done():
				return
			}
		}
	}
	p.failed = errors.Join(p.failed, sc.Err())
}

func (c client) events(line []byte) ([]event, error) {
	if c.parse != nil {
		return c.parse(line)
	}
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, fmt.Errorf("the program printed %q: %w", line, err)
	}
	return []event{e}, nil
}

// wait waits for the end of the process; events must be drained.
func (p *program) wait(codes ...int) error {
	err := p.cmd.Wait()
	if slices.Contains(codes, p.cmd.ProcessState.ExitCode()) {
		err = nil
	}
	return errors.Join(p.failed, err)
}

// tail is the end of what the program said on stderr.
func (p *program) tail() string {
	all := p.stderr.Bytes()
	return string(all[max(0, len(all)-4000):])
}

// value is what record n holds. The padding makes compression worth while.
func value(n int) string { return strconv.Itoa(n) + ":" + strings.Repeat("a wall in a river. ", 10) }

// number is the n of a value. VerifiableProducer counts from 0 and writes the
// first number before a dot.
func number(v string) (int, error) {
	digits, _, _ := strings.Cut(v, ":")
	first, rest, dotted := strings.Cut(digits, ".")
	n, err := strconv.Atoi(first)
	if err != nil || !dotted {
		return n, err
	}
	k, err := strconv.Atoi(rest)
	return n + k, err
}

// compatFolder is where scripts/compat has put what it installed. Without it
// the test is skipped: these suites take minutes.
func compatFolder(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("WEIR_COMPAT")
	if dir == "" {
		t.Skip("WEIR_COMPAT is not set; make compat runs the client matrix")
	}
	return dir
}

// lookFor skips the test when a file that scripts/compat installs is missing.
func lookFor(t *testing.T, parts ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{compatFolder(t)}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is missing: scripts/compat could not install it", path)
	}
	return path
}

// lookPath skips the test when a command is missing.
func lookPath(t *testing.T, name string) string {
	t.Helper()
	compatFolder(t)
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	return path
}

// buildGo builds a program of a module of its own, once per test.
func buildGo(t *testing.T, module, pkg string, env ...string) string {
	t.Helper()
	compatFolder(t)
	bin := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", "build", "-o", bin, "./"+pkg)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s of %s: %v\n%s", pkg, module, err, out)
	}
	return bin
}
