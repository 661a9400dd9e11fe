package hostile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/weirmq/weir/integration/cluster"
)

const (
	// patience bounds every wait for something that must come.
	patience = 2 * time.Minute
	// memoryBound is how much an input may make the process grow that names no other bound.
	memoryBound = 64 << 20
	// processBound is how much the process may grow over all inputs of a chapter:
	// what one has taken is not given back before the next begins.
	processBound = 320 << 20
	// starved is how long the well-behaved client may stand still in the full form.
	starved = 5 * time.Second
	// leakSlack is how many goroutines and descriptors may come and go by themselves.
	leakSlack = 12
	// loggedClosings is how many lines about closed connections a node writes in a burst.
	loggedClosings = 20

	prey = "prey" // the topic that is attacked
)

// input is one hostile input. Run sends it, checks the answers, and says what they were.
type input struct {
	number int
	name   string
	memory int64 // what it may take of memory, where that is more than memoryBound
	run    func(a *attack) string
}

// chapter is a list of inputs that one node lives through.
type chapter struct {
	name   string
	config []string // settings of the node
	inputs []input
}

// form is how much of everything there is.
type form struct {
	full    bool
	records int // that the well-behaved client must get through beside each input
}

// size chooses how many, by form.
func (f form) size(short, full int) int {
	if f.full {
		return full
	}
	return short
}

func chapters(f form) []chapter {
	return []chapter{
		{name: "frames", inputs: slices.Concat(frameInputs(), sasl())},
		{name: "fields", inputs: fieldInputs()},
		{name: "requests", inputs: slices.Concat(requestInputs(), offsetInputs(), operatorInputs())},
		{name: "batches", inputs: batchInputs()},
		{name: "fetches", inputs: fetchInputs()},
		{name: "groups", inputs: groupInputs()},
		{name: "crowds", config: []string{fmt.Sprintf("max.connections=%d", f.size(1000, 10_000))}, inputs: crowdInputs()},
	}
}

// TestHostile runs every input against a node, one chapter after the other.
func TestHostile(t *testing.T) {
	f := form{full: os.Getenv("WEIR_HOSTILE") == "full"}
	f.records = f.size(20, 400)
	bin, err := cluster.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var table []result
	for _, ch := range chapters(f) {
		s := start(t, bin, f, ch)
		for _, in := range ch.inputs {
			t.Run(fmt.Sprintf("%02d %s", in.number, in.name), func(t *testing.T) {
				table = append(table, s.attack(t, in))
			})
			if s.node.PID() == 0 {
				t.Fatalf("%s: the node has ended:\n%s", ch.name, s.process.log())
			}
		}
		s.end(t)
	}
	slices.SortStableFunc(table, func(a, b result) int { return a.number - b.number })
	t.Log("\n" + render(table))
}

// stage is one node with its well-behaved client.
type stage struct {
	form
	node     *cluster.Node
	process  *process
	witness  *witness
	base     int64 // resident memory before the first input
	closings int   // connections that the inputs so far have made the node close
}

// start starts a node, its client, and the topic to be attacked.
func start(t *testing.T, bin string, f form, ch chapter) *stage {
	t.Helper()
	args := []string{"-c", "group.initial.rebalance.delay.ms=0"}
	if !f.full { // on a machine that is busy with other tests
		args = append(args, "-c", "broker.session.timeout.ms=60000")
	}
	for _, kv := range ch.config {
		args = append(args, "-c", kv)
	}
	c, err := cluster.New(bin, filepath.Join(t.TempDir(), ch.name), 1, args...)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(c.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // ends what end did not
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	s := &stage{form: f, node: c.Nodes[0], process: newProcess(c.Nodes[0])}
	cl, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	for _, topic := range []string{witnessTopic, prey} {
		if _, err := admin.CreateTopic(ctx, 1, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	s.witness = newWitness(t, c)
	s.witness.getOn(t, 10)
	s.base = s.process.usage(t).resident
	return s
}

// end stops the client, which must have got everything, and then the node.
func (s *stage) end(t *testing.T) {
	t.Helper()
	s.witness.finish(t)
	s.witness.close()
	log := s.process.log()
	for _, bad := range []string{"panic", "BUG", "goroutine ", "[ERROR]"} {
		if strings.Contains(log, bad) {
			t.Errorf("the node's log contains %q:\n%s", bad, log)
		}
	}
	if i := strings.IndexFunc(log, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f }); i >= 0 {
		t.Errorf("the node's log holds a control character: %q", log[max(0, i-80):min(len(log), i+20)])
	}
	if err := s.node.Stop(); err != nil {
		t.Error(err)
	}
	s.process.http.CloseIdleConnections()
}

// result is one row of the table.
type result struct {
	number        int
	name, outcome string
	without, with latencies
	stood         time.Duration // the longest time in which the client got nowhere
	grown         int64
}

// attack runs one input and checks what must hold around it.
func (s *stage) attack(t *testing.T, in input) result {
	before := s.process.usage(t)
	quiet := s.witness.mark()
	s.witness.getOn(t, s.records)
	begin := s.witness.mark()
	s.process.resetPeak(t)
	a := &attack{T: t, stage: s, logFrom: len(s.process.log())}
	a.Cleanup(a.closeAll) // of a run that failed
	r := result{number: in.number, name: in.name, without: s.witness.between(quiet, begin)}
	r.outcome = in.run(a)
	s.witness.getOn(t, s.records)
	now := s.witness.mark()
	r.with, r.stood = s.witness.between(begin, now), s.witness.longestGap(begin, now)
	a.closeAll()
	s.settle(t, before)
	peak := s.process.usage(t).peak
	r.grown = peak - before.resident
	if bound := max(memoryBound, in.memory); r.grown > bound {
		t.Errorf("the process grew by %d MiB; the bound is %d", r.grown>>20, bound>>20)
	}
	if total := peak - s.base; total > processBound {
		t.Errorf("the process has grown by %d MiB since its start; the bound is %d", total>>20, processBound>>20)
	}
	if s.full && r.stood > starved {
		t.Errorf("the well-behaved client got nowhere for %s", r.stood)
	}
	a.checkClosings(before)
	return r
}

// settle waits until nothing is left of an input.
func (s *stage) settle(t *testing.T, before usage) {
	t.Helper()
	var now usage
	eventually(t, func() error {
		now = s.process.usage(t)
		switch {
		case now.connections > before.connections:
			return fmt.Errorf("%d connections are open, %d were", now.connections, before.connections)
		case now.goroutines > before.goroutines+leakSlack:
			return fmt.Errorf("there are %d goroutines, there were %d", now.goroutines, before.goroutines)
		case now.descriptors > before.descriptors+leakSlack:
			return fmt.Errorf("%d descriptors are open, %d were", now.descriptors, before.descriptors)
		case now.requests > before.requests+1<<20:
			return fmt.Errorf("requests hold %d bytes", now.requests)
		}
		return nil
	})
}

// eventually waits until check holds.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		<-tick.C
	}
}

func render(table []result) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "no\tinput\toutcome\twithout p50/p99\tbeside p50/p99/max\tstood still\tmemory")
	for _, r := range table {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s/%s\t%s/%s/%s\t%s\t%+d MiB\n", r.number, r.name, r.outcome,
			ms(r.without.p50), ms(r.without.p99), ms(r.with.p50), ms(r.with.p99), ms(r.with.max), ms(r.stood), r.grown>>20)
	}
	_ = w.Flush() // into memory
	return out.String()
}

// ms is a span as the table shows it, in milliseconds.
func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }
