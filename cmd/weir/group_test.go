package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/broker"
	"github.com/weirmq/weir/integration/loopback"
)

// node is a node in this process, and the command line against it.
type node struct {
	*testing.T
	addr string
}

func startNode(t *testing.T) *node {
	cfg := broker.DefaultConfig()
	cfg.DataDir, cfg.AdminListen = t.TempDir(), "none"
	free, err := loopback.FreeAddresses(2)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ClientListen, cfg.PeerListen = free[0], free[1]
	cfg.Groups.InitialDelay = 10 * time.Millisecond
	cfg.Retention.Check = 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	n, err := broker.Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Abort)
	return &node{t, n.Addr()}
}

// weir runs one command line and returns its exit code and what it wrote.
func (n *node) weir(stdin string, args string) (code int, stdout, stderr string) {
	n.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(n.Context(), 30*time.Second)
	defer cancel()
	code = run(ctx, append(strings.Fields(args), "-b", n.addr), strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

// must is weir for command lines that succeed.
func (n *node) must(stdin string, args string) string {
	n.Helper()
	code, stdout, stderr := n.weir(stdin, args)
	if code != 0 {
		n.Fatalf("weir %s: exit code %d, %s", args, code, stderr)
	}
	return stdout
}

// decode reads JSON output into a value.
func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

func numbers(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "r%d\n", i)
	}
	return b.String()
}

// lagJSON is what group lag prints of one group.
type lagJSON struct {
	Group string
	State string
	Total int64 `json:"total_lag"`
	Rows  []struct {
		Topic     string
		Partition int32
		Committed int64 `json:"committed_offset"`
		Lag       int64
		Seconds   *float64
	} `json:"partitions"`
}

func (n *node) lag(group string) lagJSON {
	n.Helper()
	list := decode[[]lagJSON](n.T, n.must("", "group lag -o json "+group))
	if len(list) != 1 {
		n.Fatalf("lag of %d groups", len(list))
	}
	return list[0]
}

// The life of a group at the command line: read a part, look, seek, read again, delete.
func TestGroupCommands(t *testing.T) {
	for _, protocol := range []string{"classic", "consumer"} {
		t.Run(protocol, func(t *testing.T) {
			n := startNode(t)
			n.must("", "topic create t -p 1")
			n.must(numbers(0, 10), "produce t")
			consume := "consume t -g g --group-protocol " + protocol
			if got := n.must("", consume+" -n 4"); got != numbers(0, 4) {
				t.Errorf("first read %q", got)
			}
			if got := n.lag("g"); got.Total != 6 || got.Rows[0].Committed != 4 || got.Rows[0].Seconds == nil || got.State != "Empty" {
				t.Errorf("lag %+v", got)
			}
			if got := n.must("", consume+" -e"); got != numbers(4, 10) {
				t.Errorf("second read %q", got)
			}
			if got := n.lag("g"); got.Total != 0 || *got.Rows[0].Seconds != 0 {
				t.Errorf("lag at the end %+v", got)
			}
			if got := n.must("", consume+" -e"); got != "" {
				t.Errorf("read at the end %q", got)
			}
			list := n.must("", "group list")
			if !strings.Contains(list, protocol) || !strings.Contains(list, "Empty") {
				t.Errorf("list %q", list)
			}
			if got := n.must("", "group list --state Stable -o json"); strings.TrimSpace(got) != "[]" {
				t.Errorf("list of stable groups %q", got)
			}
			if got := n.must("", "group describe g"); !strings.Contains(got, "group g, "+protocol+", Empty, 0 members") || !strings.Contains(got, "why: ") {
				t.Errorf("describe %q", got)
			}
			if got := n.must("", "group describe g"); !strings.Contains(got, "what happened last:") || !strings.Contains(got, "new member ") || !strings.Contains(got, "127.0.0.1") {
				t.Errorf("describe shows no history: %q", got)
			}
			described := decode[[]struct {
				History []struct {
					At                    time.Time
					From, To, Cause, Host string
					Client                string `json:"client_id"`
				}
			}](t, n.must("", "group describe -o json g"))
			if len(described) != 1 || len(described[0].History) < 3 || described[0].History[0].From != "Empty" || described[0].History[0].Client == "" || described[0].History[0].At.IsZero() {
				t.Errorf("described as %+v", described)
			}
			if code, _, stderr := n.weir("", "group delete g"); code != 2 || !strings.Contains(stderr, "--yes") {
				t.Errorf("delete without --yes: %d %q", code, stderr)
			}
			n.must("", "group delete g --yes")
			if code, _, stderr := n.weir("", "group describe g"); code != 3 || !strings.Contains(stderr, "there is no group g") {
				t.Errorf("describe of a deleted group: %d %q", code, stderr)
			}
			if code, _, _ := n.weir("", "group delete g --yes"); code != 3 {
				t.Errorf("delete again: exit code %d", code)
			}
		})
	}
}

// Seek shows what it would do, and does it with --execute alone.
func TestGroupSeek(t *testing.T) {
	n := startNode(t)
	n.must("", "topic create t -p 2")
	n.must(numbers(0, 10), "produce t -p 0")
	n.must(numbers(10, 13), "produce t -p 1")
	n.must("", "consume t -g g -e")
	type move struct {
		Partition int32
		From, To  int64
	}
	type answer struct {
		Executed bool
		Moves    []move
	}
	cases := []struct {
		flags string
		want  []move
	}{
		{"--to start", []move{{0, 10, 0}, {1, 3, 0}}},
		{"--to end", []move{{0, 10, 10}, {1, 3, 3}}},
		{"--to 5", []move{{0, 10, 5}, {1, 3, 3}}},
		{"--to=-2", []move{{0, 10, 8}, {1, 3, 1}}},
		{"--to +2", []move{{0, 10, 10}, {1, 3, 3}}},
		{"--to @0 -t t:1", []move{{1, 3, 0}}},
	}
	for _, tc := range cases {
		got := decode[answer](t, n.must("", "group seek g -o json "+tc.flags))
		if got.Executed || fmt.Sprint(got.Moves) != fmt.Sprint(tc.want) {
			t.Errorf("seek %s: %+v, want %v", tc.flags, got, tc.want)
		}
	}
	if got := n.lag("g"); got.Total != 0 {
		t.Fatalf("a dry run moved the group: %+v", got)
	}
	if got := decode[answer](t, n.must("", "group seek g --to=-2 -t t:0 --execute -o json")); !got.Executed {
		t.Errorf("%+v", got)
	}
	if got := n.must("", "consume t -g g -e"); got != numbers(8, 10) {
		t.Errorf("after the seek the group reads %q", got)
	}
	offsets := n.must("", "group offsets g")
	if strings.Count(offsets, "\n") != 3 {
		t.Errorf("offsets %q", offsets)
	}
	n.must("", "group offset-delete g -t t:1 --yes")
	if got := n.must("", "group offsets g -o json"); strings.Count(got, `"partition"`) != 1 {
		t.Errorf("offsets after one was deleted %q", got)
	}
	if code, _, stderr := n.weir("", "group seek nobody --to start"); code != 3 || !strings.Contains(stderr, "has committed no offsets") {
		t.Errorf("seek of nobody: %d %q", code, stderr)
	}
	if got := n.must("", "group seek fresh --to end -t t --execute"); !strings.Contains(got, "10") {
		t.Errorf("seek of a group that is not there yet: %q", got)
	}
}

func TestGroupRefusals(t *testing.T) {
	for args, want := range map[string]string{
		"group describe":               "group describe needs a group",
		"group seek g":                 "group seek needs --to",
		"group seek g --to there":      `--to "there" is not a position`,
		"group seek g --to +x":         `--to "+x" is not a position`,
		"group lag g -t :1":            "names no topic",
		"group lag g -t a:x":           `"x" is not a partition`,
		"group offset-delete g":        "needs -t TOPIC",
		"consume t -g g -p 1":          "-p and -g exclude each other",
		"consume t -g g -o 5":          "does not go with -g",
		"consume t --group-protocol x": `unknown --group-protocol "x"`,
	} {
		var stdout, stderr bytes.Buffer
		code := run(context.Background(), append(strings.Fields(args), "-b", "127.0.0.1:1"), strings.NewReader(""), &stdout, &stderr)
		if code != 2 || !strings.Contains(stderr.String(), want) {
			t.Errorf("weir %s: exit code %d, %q, want 2 and %q", args, code, stderr.String(), want)
		}
	}
}

// A group with members is neither moved nor deleted, and the user reads why.
func TestGroupWithMembersIsLeftAlone(t *testing.T) {
	n := startNode(t)
	n.must("", "topic create t -p 1")
	n.must(numbers(0, 3), "produce t")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int)
	reading := &signalWriter{seen: make(chan struct{})}
	go func() {
		var stderr bytes.Buffer
		done <- run(ctx, []string{"consume", "t", "-g", "g", "-b", n.addr}, strings.NewReader(""), reading, &stderr)
	}()
	select {
	case <-reading.seen:
	case <-time.After(30 * time.Second):
		t.Fatal("the member reads nothing")
	}
	if code, _, stderr := n.weir("", "group seek g --to start -t t --execute"); code != 1 || !strings.Contains(stderr, "has members") {
		t.Errorf("seek: %d %q", code, stderr)
	}
	if code, _, stderr := n.weir("", "group delete g --yes"); code != 1 || !strings.Contains(stderr, "has members") {
		t.Errorf("delete: %d %q", code, stderr)
	}
	members := n.must("", "group members g")
	if !strings.Contains(members, "t:0") || !strings.Contains(members, "weir-cli") {
		t.Errorf("members %q", members)
	}
	cancel()
	if code := <-done; code != 130 {
		t.Errorf("exit code %d after an interrupt, want 130", code)
	}
	if got := n.lag("g"); got.Total != 0 || got.State != "Empty" {
		t.Errorf("what was printed is not committed: %+v", got)
	}
}

// signalWriter tells when something was written.
type signalWriter struct {
	seen chan struct{}
	once bool
}

// Write implements io.Writer.
func (w *signalWriter) Write(p []byte) (int, error) {
	if !w.once {
		w.once = true
		close(w.seen)
	}
	return len(p), nil
}
