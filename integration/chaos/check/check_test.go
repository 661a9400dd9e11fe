package check

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/integration/chaos/history"
)

// fine is a history without anomalies: two keys, a send of unknown outcome that
// happened and one that did not, a failed one, a reader that is assigned, two group
// members, a deleted key, and the final reads.
const fine = `
1 send ok   s:0@0=1.1
1 send ok   s:1@0=1.2
2 send info s:0@?=2.1
2 send info s:1@?=2.2
1 send fail s:0@?=1.3
3 send ok   s:0@2=3.1
4 assign ok k:0 k:1
4 poll ok   r:0@0=1.1 r:1@0=1.2 r:0@1=2.1
4 poll ok
4 poll ok   r:0@2=3.1
5 subscribe ok g:1/0
5 poll ok   r:0@0=1.1 r:1@0=1.2
5 commit ok g:1/1 p:0@1 p:1@1
5 committed ok g:1/1 p:0@1 p:1@1 p:2@?
5 poll ok   b:0 r:0@1=2.1
6 subscribe ok g:1/0
6 poll ok   b:0 r:0@1=2.1
6 ends ok   p:0@3 p:1@1
1 send ok   s:5@0=1.9
1 delete ok k:5
1 crash ok
7 final ok
8 assign ok k:0 k:1
8 poll ok   r:0@0=1.1 r:0@1=2.1 r:0@2=3.1
8 poll ok   r:1@0=1.2
`

// bad is one history for each kind of anomaly, and what must be found in it: that
// kind and no other.
var bad = []struct {
	name, text string
	opt        Options
	want       string
	verdict    Verdict
}{
	{"an acknowledged record is missing before others", `
1 send ok s:0@0=1.1
1 send ok s:0@1=1.2
2 poll ok r:0@1=1.2
`, Options{}, "lost-write:1", Invalid},
	{"the same where the ends of logs may be lost", `
1 send ok s:0@0=1.1
1 send ok s:0@1=1.2
2 poll ok r:0@1=1.2
`, Options{MayLose: true}, "lost-write:1", Lossy},
	{"what failed is read where the ends of logs may be lost", `
1 send fail s:0@?=1.1
1 send ok s:0@1=1.2
2 poll ok r:0@0=1.1 r:0@1=1.2
`, Options{MayLose: true}, "G1a:1", Invalid},
	{"a transaction of unknown outcome is there in part", `
1 txn info s:0@0=1.1 s:0@1=1.2
2 poll ok r:0@1=1.2
`, Options{}, "lost-write:1", Invalid},
	{"an acknowledged record is missing at the end", `
1 send ok s:0@0=1.1
1 send ok s:0@1=1.2
2 poll ok r:0@0=1.1
`, Options{}, "unseen:1", Invalid},
	{"an acknowledged record without a known offset is missing", `
1 send ok s:0@?=1.1
1 send ok s:0@1=1.2
2 poll ok r:0@1=1.2
`, Options{}, "unseen:1", Invalid},
	{"only a reader of unknown outcome got a record", `
1 send ok s:0@0=1.1
1 send ok s:0@1=1.2
2 poll ok r:0@0=1.1
3 poll info r:0@1=1.2
`, Options{}, "unseen:1", Invalid},
	{"a record twice", `
1 send ok s:0@0=1.1
1 send ok s:0@2=1.2
2 poll ok r:0@0=1.1 r:0@1=1.1 r:0@2=1.2
`, Options{}, "duplicate:1", Invalid},
	{"acknowledged at one offset, read at another", `
1 send ok s:0@1=1.1
2 poll ok r:0@0=1.1
`, Options{}, "duplicate:1", Invalid},
	{"two values at one offset", `
1 send ok s:0@0=1.1
1 send ok s:0@1=1.2
3 send info s:0@?=3.1
2 poll ok r:0@0=1.1 r:0@1=1.2
4 poll ok r:0@0=1.1 r:0@1=3.1
`, Options{}, "inconsistent-offsets:1", Invalid},
	{"a value from nowhere", `
1 send ok s:0@0=1.1
2 poll ok r:0@0=1.1 r:0@1=9.9
`, Options{}, "unknown-value:1", Invalid},
	{"a failed send is read", `
1 send ok s:0@0=1.1
1 send fail s:0@?=1.2
2 poll ok r:0@0=1.1 r:0@1=1.2
`, Options{}, "G1a:1", Invalid},
	{"an aborted transaction is read", `
1 txn fail s:0@0=1.1 s:0@1=1.2
2 poll ok r:0@0=1.1 r:0@1=1.2
`, Options{}, "G1a:2", Invalid},
	{"a transaction reads what it sends", `
1 txn ok s:0@0=1.1 r:0@0=1.1
`, Options{}, "precommitted-read:1", Invalid},
	{"a poll leaves a record out", `
1 send ok s:0@0=1.1
1 send ok s:0@1=1.2
1 send ok s:0@2=1.3
2 poll ok r:0@0=1.1 r:0@2=1.3
3 poll ok r:0@0=1.1 r:0@1=1.2 r:0@2=1.3
`, Options{}, "int-poll-skip:1", Invalid},
	{"a poll that leaves out only what control batches take, or what moved meanwhile", `
1 send ok s:0@0=1.1
1 send ok s:0@3=1.2
1 send ok s:1@0=1.3
1 send ok s:1@1=1.4
1 send ok s:1@2=1.5
2 poll ok r:0@0=1.1 r:0@3=1.2
2 poll ok b:1 r:1@0=1.3 r:1@2=1.5 r:1@1=1.4
`, Options{}, "", Valid},
	{"a poll goes back", `
1 send ok s:0@0=1.1
1 send ok s:0@1=1.2
2 poll ok r:0@1=1.2 r:0@0=1.1
`, Options{}, "int-nonmonotonic-poll:1", Invalid},
	{"polls leave a record out", `
1 send ok s:0@0=1.1
1 send ok s:0@1=1.2
1 send ok s:0@2=1.3
2 assign ok k:0
2 poll ok r:0@0=1.1
2 assign ok k:0 k:1
2 poll ok r:0@2=1.3
3 poll ok r:0@0=1.1 r:0@1=1.2 r:0@2=1.3
`, Options{}, "poll-skip:1", Invalid},
	{"polls go back", `
1 send ok s:0@0=1.1
1 send ok s:0@1=1.2
2 assign ok k:0
2 poll ok r:0@0=1.1 r:0@1=1.2
2 poll ok r:0@1=1.2
`, Options{}, "nonmonotonic-poll:1", Invalid},
	{"polls go back after another assignment, or a failed operation", `
1 send ok s:0@0=1.1
1 send ok s:0@1=1.2
2 assign ok k:0
2 poll ok r:0@0=1.1 r:0@1=1.2
2 assign ok k:1
2 assign ok k:0
2 poll ok r:0@0=1.1
2 txn fail r:0@1=1.2
2 txn ok r:0@1=1.2
`, Options{}, "", Valid},
	{"a group member leaves a record out", `
1 send ok s:0@0=1.1
1 send ok s:0@1=1.2
1 send ok s:0@2=1.3
2 subscribe ok g:1/0
2 poll ok r:0@0=1.1
2 poll ok r:0@2=1.3
3 poll ok r:0@0=1.1 r:0@1=1.2 r:0@2=1.3
`, Options{}, "group-poll-skip:1", Valid},
	{"a group member goes back", `
1 send ok s:0@0=1.1
1 send ok s:0@1=1.2
2 subscribe ok g:1/0
2 poll ok r:0@0=1.1 r:0@1=1.2
2 poll ok r:0@1=1.2
`, Options{}, "group-nonmonotonic-poll:1", Valid},
	{"others lie within a transaction", `
1 txn ok t:0-9 s:0@0=1.1 s:0@2=1.2
2 send ok t:1-2 s:0@1=2.1
3 poll ok r:0@0=1.1 r:0@1=2.1 r:0@2=1.2
`, Options{}, "int-send-skip:1 G0:1", Valid},
	{"a failed transaction lies within another", `
1 txn ok t:0-9 s:0@0=1.1 s:0@2=1.2
2 txn fail t:1-2 s:0@1=2.1
3 poll ok r:0@0=1.1 r:0@2=1.2
`, Options{}, "", Valid},
	{"the records of an operation are not in order", `
1 send ok s:0@1=1.1 s:0@0=1.2
2 poll ok r:0@0=1.2 r:0@1=1.1
`, Options{}, "int-nonmonotonic-send:1", Invalid},
	{"the records of a process are not in order", `
1 send info t:0-1 s:0@?=1.1
1 send ok t:2-3 s:0@0=1.2
2 poll ok r:0@0=1.2 r:0@1=1.1
`, Options{}, "nonmonotonic-send:1", Invalid},
	{"a later record lies before one that was acknowledged", `
1 send ok t:0-1 s:0@1=1.1
2 send ok t:2-3 s:0@0=2.1
3 poll ok r:0@0=2.1 r:0@1=1.1
`, Options{}, "reordered:1", Invalid},
	{"a batch is not a transaction, and what is sent at the instant of an acknowledgement is not after it", `
1 send ok t:0-5 s:0@0=1.1 s:0@2=1.2
2 send ok t:5-9 s:0@1=2.1
3 poll ok r:0@0=1.1 r:0@1=2.1 r:0@2=1.2
`, Options{}, "", Valid},
	{"transactions wrote around each other", `
1 txn ok t:0-9 s:0@0=1.1 s:1@1=1.2
2 txn ok t:0-9 s:0@1=2.1 s:1@0=2.2
3 poll ok r:0@0=1.1 r:0@1=2.1 r:1@0=2.2 r:1@1=1.2
`, Options{}, "G0:1", Valid},
	{"transactions wrote against the order of a process", `
1 txn ok t:0-9 s:0@0=1.1 s:1@1=1.2
2 txn ok t:1-2 s:0@1=2.1
2 txn ok t:3-4 s:1@0=2.2
3 poll ok r:0@0=1.1 r:0@1=2.1 r:1@0=2.2 r:1@1=1.2
`, Options{}, "G0-process:1", Valid},
	{"transactions wrote against real time", `
1 txn ok t:0-9 s:0@0=1.1 s:1@1=1.2
2 txn ok t:1-2 s:0@1=2.1
4 txn ok t:3-4 s:1@0=4.1
3 poll ok r:0@0=1.1 r:0@1=2.1 r:1@0=4.1 r:1@1=1.2
`, Options{}, "G0-realtime:1", Valid},
	{"transactions read each other", `
1 txn ok t:0-9 s:0@0=1.1 r:1@0=2.1
2 txn ok t:0-9 s:1@0=2.1 r:0@0=1.1
`, Options{}, "G1c:1", Invalid},
	{"a transaction read what a later one of the same process than its reader sent", `
1 txn ok t:0-9 s:0@0=1.1 r:1@0=2.1
2 poll ok t:1-2 r:0@0=1.1
2 txn ok t:3-4 s:1@0=2.1
`, Options{}, "G1c-process:1", Invalid},
	{"a transaction read what was sent after it was read", `
1 txn ok t:0-9 s:0@0=1.1 r:1@0=2.1
3 poll ok t:1-2 r:0@0=1.1
2 send ok t:3-4 s:1@0=2.1
`, Options{}, "G1c-realtime:1", Invalid},
	{"a transaction read one that wrote after it", `
1 txn ok t:0-9 s:0@0=1.1 r:1@0=2.1
2 txn ok t:0-9 s:0@1=2.2 s:1@0=2.1
3 poll ok r:0@0=1.1 r:0@1=2.2
`, Options{}, "G1c-ww:1", Valid},
	{"the same through the order of a process", `
1 txn ok t:0-9 s:0@0=1.1 r:1@0=2.2
2 txn ok t:1-2 s:0@1=2.1
2 txn ok t:3-4 s:1@0=2.2
3 poll ok r:0@0=1.1 r:0@1=2.1
`, Options{}, "G1c-ww-process:1", Valid},
	{"the same through real time", `
1 txn ok t:0-9 s:0@0=1.1 r:1@0=4.1
2 txn ok t:1-2 s:0@1=2.1
4 txn ok t:3-4 s:1@0=4.1
3 poll ok r:0@0=1.1 r:0@1=2.1
`, Options{}, "G1c-ww-realtime:1", Valid},
	{"no cycle through an operation of unknown outcome, which may end at any time", `
1 txn ok t:0-9 s:0@0=1.1 s:1@1=1.2
2 txn info t:1-2 s:0@1=2.1
4 txn ok t:3-4 s:1@0=4.1
3 poll ok r:0@0=1.1 r:0@1=2.1 r:1@0=4.1 r:1@1=1.2
`, Options{}, "", Valid},
	{"a member commits less than before", `
1 send ok s:0@0=1.1
2 poll ok r:0@0=1.1
3 commit ok g:1/4 p:0@1
3 commit ok g:1/4 p:0@0
`, Options{}, "committed-back:1", Invalid},
	{"a member of the next generation commits less", `
1 send ok s:0@0=1.1
2 poll ok r:0@0=1.1
3 commit ok g:1/4 p:0@1
3 commit ok g:1/5 p:0@0
3 committed ok g:1/5 p:0@0
`, Options{}, "", Valid},
	{"a coordinator lost a commit", `
1 send ok s:0@0=1.1
2 poll ok r:0@0=1.1
3 commit ok g:1/4 p:0@0
3 commit ok g:1/5 p:0@1
4 committed ok g:1/6 p:0@0
`, Options{}, "committed-back:1", Invalid},
	{"a coordinator lost all commits", `
1 send ok s:0@0=1.1
2 poll ok r:0@0=1.1
3 commit ok g:1/5 p:0@1
4 committed ok g:1/6 p:0@?
`, Options{}, "committed-back:1", Invalid},
	{"an answer explained by a commit that completes later, or may at any time", `
1 send ok s:0@0=1.1
1 send ok s:0@1=1.2
1 send ok s:0@2=1.3
2 poll ok r:0@0=1.1 r:0@1=1.2 r:0@2=1.3
3 commit info t:100-101 g:1/4 p:0@1
3 commit ok t:102-103 g:1/4 p:0@2
4 committed ok t:104-110 g:1/4 p:0@1
4 committed ok t:104-110 g:1/4 p:0@3
3 commit ok t:105-111 g:1/4 p:0@3
`, Options{}, "", Valid},
	{"a committed offset from nowhere", `
1 send ok s:0@0=1.1
1 send ok s:0@1=1.2
2 poll ok r:0@0=1.1 r:0@1=1.2
3 commit ok g:1/5 p:0@1
4 committed ok g:1/5 p:0@2
`, Options{}, "committed-unknown:1", Invalid},
	{"a commit beyond the end", `
1 send ok s:0@0=1.1
2 poll ok r:0@0=1.1
3 commit ok g:1/5 p:0@2
`, Options{}, "committed-above-end:1", Invalid},
	{"an end below one told before", `
1 send ok s:0@0=1.1
2 poll ok r:0@0=1.1
3 ends ok p:0@1
3 ends ok p:0@0
`, Options{}, "end-back:1", Invalid},
	{"an end below what was read", `
1 send ok s:0@0=1.1
2 poll ok r:0@0=1.1
2 ends ok p:0@0
`, Options{}, "end-back:1", Invalid},
	{"ends of other clients, or asked for earlier, may be lower", `
1 send ok s:0@0=1.1
2 poll ok t:10-20 r:0@0=1.1
3 ends ok p:0@0
2 ends ok t:15-25 p:0@0
`, Options{}, "", Valid},
	{"replicas differ", `
1 send ok s:0@0=1.1
2 poll ok r:0@0=1.1
`, Options{Replicas: []Replica{{0, "node 1", 0, 1, "aa"}, {0, "node 2", 0, 1, "ab"}, {1, "node 1", 0, 1, "cc"}, {1, "node 2", 0, 1, "cc"}}}, "replicas-differ:1", Invalid},
	{"a replica is short", `
1 send ok s:0@0=1.1
2 poll ok r:0@0=1.1
`, Options{Replicas: []Replica{{0, "node 1", 0, 2, "aa"}, {0, "node 2", 0, 1, "aa"}}}, "replicas-differ:1", Invalid},
	{"nothing is acknowledged during a fault that a majority survives", `
1 send ok t:0-10 s:0@0=1.1
1 send ok t:100-6000 s:0@1=1.2
2 poll ok r:0@0=1.1 r:0@1=1.2
window kill leader 50-8000 survivable
`, Options{ProgressMax: 5 * time.Second}, "no-progress:1", Invalid},
	{"one key is silent while another is served", `
1 send ok t:0-10 s:0@0=1.1
1 send fail t:10-20 s:0@?=1.2
2 send ok t:1000-1001 s:1@0=2.1
2 send ok t:2000-2001 s:1@1=2.2
1 send fail t:20-3000 s:0@?=1.3
2 send ok t:3000-3001 s:1@2=2.3
2 send ok t:4000-4001 s:1@3=2.4
1 send info t:3500-5100 s:0@?=1.4
2 poll ok r:0@0=1.1 r:1@0=2.1 r:1@1=2.2 r:1@2=2.3 r:1@3=2.4
window kill leader 50-8000 survivable
`, Options{ProgressMax: 5 * time.Second}, "no-progress:1", Invalid},
	{"one key is silent though nothing is wrong with anything", `
1 send ok t:0-10 s:0@0=1.1
1 send info t:20-4000 s:0@?=1.2
2 send ok t:1000-1001 s:1@0=2.1
1 send ok t:4500-5200 s:0@1=1.3
2 poll ok r:0@0=1.1 r:0@1=1.3 r:1@0=2.1
`, Options{ProgressMax: 5 * time.Second}, "no-progress:1", Invalid},
	{"somebody gives up, and nobody asks for long", `
1 send ok t:0-10 s:0@0=1.1
1 send info t:20-100 s:0@?=1.2
1 send ok t:9000-9001 s:0@1=1.3
2 poll ok r:0@0=1.1 r:0@1=1.3
`, Options{ProgressMax: 5 * time.Second}, "", Valid},
	{"nobody asks, or the fault is short, or a worse fault excuses", `
1 send ok t:0-10 s:0@0=1.1
1 send ok t:9000-9001 s:0@1=1.2
1 send ok t:20000-29000 s:0@2=1.3
2 poll ok r:0@0=1.1 r:0@1=1.2 r:0@2=1.3
window kill leader 50-8000 survivable
window kill leader 20000-24000 survivable
window kill all 19900-20100
window pause leader 20000-29000 survivable
`, Options{ProgressMax: 5 * time.Second}, "", Valid},
	{"a reader knows nothing for long", `
1 send ok s:0@0=1.1
2 assign ok k:0
2 poll ok r:0@0=1.1
1 send ok t:1000-1001 s:0@1=1.2
2 poll ok t:9000-9001
2 poll ok t:13000-13001
2 poll ok t:13002-13003 r:0@1=1.2
`, Options{}, "realtime-lag:1", Valid},
	{"deleted keys may lose everything", `
1 send ok t:0-10 s:0@0=1.1
1 send ok t:0-10 s:0@1=1.2
1 send ok t:0-10 s:1@0=1.3
1 send fail t:20-30 s:0@?=1.4
1 delete ok t:30-9000 k:0
1 send fail t:40-9000 s:0@?=1.5
2 poll ok r:0@1=1.2 r:1@0=1.3
window kill leader 20-10000 survivable
`, Options{ProgressMax: 5 * time.Second}, "", Valid},
	{"something else went wrong", `
1 send ok s:0@0=1.1
2 poll ok r:0@0=1.1
`, Options{Failures: []string{"node 2 panicked"}}, "", Invalid},
	{"nothing was acknowledged", `
1 send info s:0@?=1.1
2 poll ok r:0@0=1.1
`, Options{}, "", Unknown},
	{"nothing was read", `
1 send fail s:0@?=1.1
1 txn ok s:0@0=1.2 s:0@1=1.3
`, Options{}, "unseen:2", Invalid},
	{"no commit ever succeeded", `
1 send ok s:0@0=1.1
2 poll ok r:0@0=1.1
3 commit info g:1/1 p:0@1
`, Options{}, "", Unknown},
	{"a value is sent twice", `
1 send ok s:0@0=1.1
1 send info s:0@?=1.1
2 poll ok r:0@0=1.1
`, Options{}, "", Unknown},
}

const final = "\n99 final ok\n"

func TestFine(t *testing.T) {
	ops, _ := parse(t, fine)
	r := analyze(t, write(t, ops, nil), Options{ProgressMax: time.Second})
	if r.Verdict != Valid || len(r.Found) > 0 {
		t.Errorf("got %s", describe(r))
	}
	if r.Recovered != 1 || r.Sent[history.OK] != 4 || r.Sent[history.Info] != 2 || r.Sent[history.Fail] != 1 || r.Keys != 3 {
		t.Errorf("recovered %d, sent %v, keys %d; want 1, [0 4 2 1], 3", r.Recovered, r.Sent, r.Keys)
	}
	want := []Kind{PrecommittedRead, IntSendSkip, G0, G0Process, G0Realtime, G1c, G1cProcess, G1cRealtime, G1cWW, G1cWWProcess, G1cWWRealtime, ReplicasDiffer}
	if !slices.Equal(r.Untried, want) {
		t.Errorf("untried %v, want %v", r.Untried, want)
	}
	if len(r.Consumed) != 2 || r.Consumed[1] != 4 {
		t.Errorf("consumed %v, want 4 once each", r.Consumed)
	}
}

// TestAnomalies checks that in each history exactly what is there is found.
func TestAnomalies(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range bad {
		t.Run(c.name, func(t *testing.T) {
			ops, windows := parse(t, c.text+final)
			r := analyze(t, write(t, ops, windows), c.opt)
			for _, f := range r.Found {
				if slices.Contains(r.Untried, f.Kind) {
					t.Errorf("found %v, which is said to be untried", f.Kind)
				}
			}
			if got := summary(r); got != c.want || r.Verdict != c.verdict {
				t.Errorf("got %q, %v, want %q, %v\n%s%s", got, r.Verdict, c.want, c.verdict, describe(r), c.text)
			}
		})
		for w := range strings.FieldsSeq(c.want) {
			name, _, _ := strings.Cut(w, ":")
			seen[name] = true
		}
	}
	for _, k := range Kinds() {
		if !seen[k.String()] {
			t.Errorf("no history has a %v", k)
		}
		if k.Meaning() == "" {
			t.Errorf("%v says nothing", k)
		}
	}
}

// TestLosses checks that what clients say of records that are gone makes a history
// invalid, and lossy only where the ends of logs may be lost.
func TestLosses(t *testing.T) {
	ops, _ := parse(t, fine)
	for _, c := range []struct {
		name string
		opt  Options
		want Verdict
	}{
		{"must not", Options{Losses: []string{"gone"}}, Invalid},
		{"may", Options{Losses: []string{"gone"}, MayLose: true}, Lossy},
		{"may and did not", Options{MayLose: true}, Valid},
		{"may and something else", Options{Losses: []string{"gone"}, MayLose: true, Failures: []string{"a panic"}}, Invalid},
	} {
		if r := analyze(t, write(t, ops, nil), c.opt); r.Verdict != c.want {
			t.Errorf("%s: got %s, want %s", c.name, describe(r), c.want)
		}
	}
}

// TestUnended checks what is said of histories that end early.
func TestUnended(t *testing.T) {
	ops, _ := parse(t, fine)
	b := write(t, ops, nil)
	if r := analyze(t, b[:len(b)-1], Options{}); r.Verdict != Unknown {
		t.Errorf("cut: got %s", describe(r))
	}
	ops = append(ops[:len(ops)-4], ops[0]) // before final
	ops[len(ops)-1].Sends = []history.Record{{Key: 1, Offset: 1, Value: history.NewValue(1, 99)}}
	ops[1].Sends = nil // what is read was sent by none that was over
	if r := analyze(t, write(t, ops, nil), Options{}); r.Verdict != Unknown {
		t.Errorf("without final reads: got %s", describe(r))
	}
}

// TestNear checks what is shown around an anomaly.
func TestNear(t *testing.T) {
	ops, _ := parse(t, `
1 send ok s:0@0=1.1
1 send ok s:0@1=1.2
1 send ok s:0@2=1.3
3 send info s:0@?=3.1
2 poll ok r:0@2=1.3 r:0@3=3.1
4 poll ok r:0@0=1.1
1 send ok s:0@9=1.4
2 poll ok r:0@9=1.4
3 commit ok g:1/1 p:0@2
2 poll ok r:1@2=1.9
`+final)
	r := analyze(t, write(t, ops, nil), Options{})
	if len(r.Found) != 2 || r.Found[0].Kind != LostWrite {
		t.Fatalf("got %s", describe(r))
	}
	n := r.Found[0].Worst[0].Near
	if got := strings.Join(n.Log, "|"); n.First != 0 || got != "1.1|1.2|1.3|3.1|" {
		t.Errorf("log from %d: %s", n.First, got)
	}
	want := []string{"sent 1.1||||", "|sent 1.2|||", "||sent 1.3||", "|||sent 3.1?|", "||1.3|3.1|", "1.1||||", "||◂||"}
	for i, row := range n.Rows {
		if got := strings.Join(row.Cells, "|"); i >= len(want) || got != want[i] {
			t.Errorf("row %d: %s, want of %q", i, got, want)
		}
	}
	if len(n.Rows) != len(want) || n.Omitted != 0 {
		t.Errorf("%d rows, %d omitted, want %d, 0", len(n.Rows), n.Omitted, len(want))
	}
}

// TestAgain checks that one reader who shows a kind of anomaly again and again does not
// hide the others.
func TestAgain(t *testing.T) {
	a := newAnalysis(Options{}, history.Header{})
	for i := range int64(1000) {
		a.add(RealtimeLag, 5000-i, func() Anomaly { return Anomaly{reader: 7, again: true} })
		a.add(RealtimeLag, i/2, func() Anomaly { return Anomaly{reader: history.Process(i % 4), again: true} })
	}
	w := a.found[RealtimeLag]
	if w.count != 2000 || len(w.cases) != 5 || w.cases[0].Size != 5000 || w.cases[4].Size != 498 {
		t.Errorf("count %d, cases %+v", w.count, w.cases)
	}
}

// TestWorst checks that of many cases the worst are kept.
func TestWorst(t *testing.T) {
	a := newAnalysis(Options{}, history.Header{})
	for i := range int64(1000) {
		size := i * 7919 % 1000
		a.add(RealtimeLag, size, func() Anomaly { return Anomaly{} })
	}
	w := a.found[RealtimeLag]
	if w.count != 1000 || len(w.cases) != worstMax {
		t.Fatalf("count %d, kept %d", w.count, len(w.cases))
	}
	for i, c := range w.cases {
		if c.Size != 999-int64(i) {
			t.Errorf("case %d has size %d", i, c.Size)
		}
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct{ ds, want []time.Duration }{
		{[]time.Duration{5}, []time.Duration{5, 5}},
		{[]time.Duration{9, 1}, []time.Duration{5, 9}},
		{[]time.Duration{9, 1, 2}, []time.Duration{2, 9}},
	} {
		if p50, most := spread(c.ds); p50 != c.want[0] || most != c.want[1] {
			t.Errorf("of %v: got %v, %v, want %v", c.ds, p50, most, c.want)
		}
	}
}
