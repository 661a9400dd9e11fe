package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/integration/chaos/check"
	"github.com/weirmq/weir/integration/chaos/history"
	"github.com/weirmq/weir/integration/chaos/host"
	"github.com/weirmq/weir/integration/chaos/work"
)

// Options says what a run does.
type Options struct {
	Bin, Self string        // the weir binary, and our own
	Dir       string        // where hosts live; the caller removes it
	Out       string        // where history and report are left
	Nodes     int           // hosts
	Seed      uint64        // of plan and workload
	Length    time.Duration // of the plan
	Kinds     []Kind        // of the plan
	Times     int           // in place of a length: each kind alone, that often
	Scenario  string        // in place of a plan
	Loopback  bool          // no separate hosts, even where they could be had
	Rate      int           // records a second of each producer of the queue
	Patience  time.Duration // how long a healed cluster may take
	Command   string        // repeats the run
	Settings  []string      // of every node
	Text      io.Writer     // progress, for people
}

// Run is one run under way. Everything but the clients happens on one goroutine.
type Run struct {
	options  Options
	cluster  *host.Cluster
	book     *work.Book
	crew     *work.Crew
	rnd      *rand.Rand
	topics   []*work.Topic
	groups   []work.Membership
	configs  map[string]*string // of every topic
	churning *churner
	heart    *heartbeat
	active   []*fault
	start    time.Time
	patience time.Duration
	faults   int                // of a scenario, so far
	clients  context.Context    // of the clients' work
	working  context.CancelFunc // ends it
}

// Result is what a run has come to, before the history is judged.
type Result struct {
	History  string   // path
	Problems []string // what is wrong beside the history
	Losses   []string // what clients say of records that are gone
	MayLose  bool     // the faults were such that acknowledged records may be gone
	Acked    map[string]uint64
	Faults   int
	Elapsed  time.Duration
	Replicas []check.Replica
}

// replicas is the replication factor in a cluster of that size.
func replicas(nodes int) int { return min(3, nodes) }

func (r *Run) note(format string, args ...any) {
	fmt.Fprintf(r.options.Text, "%7.1fs  %s\n", time.Since(r.start).Seconds(), fmt.Sprintf(format, args...))
}

// sleep waits, or returns the context's error.
func (r *Run) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// alive lists the hosts that may run.
func (r *Run) alive() []*host.Host {
	return slices.DeleteFunc(slices.Clone(r.cluster.Hosts), (*host.Host).Lost)
}

// Execute does a whole run. An error means that it could not be done, not that the
// cluster did wrong.
func Execute(ctx context.Context, o Options) (result Result, err error) {
	r := &Run{options: o, start: time.Now(), patience: o.Patience, rnd: rand.New(rand.NewPCG(o.Seed, 0xc105)), working: func() {}}
	scenario, err := o.Script()
	if err != nil {
		return result, err
	}
	r.configs, result.MayLose = scenario.Configs, scenario.MayLose
	result.History = filepath.Join(o.Out, "history")
	file, err := os.Create(result.History)
	if err != nil {
		return result, err
	}
	defer file.Close()
	buffered := bufio.NewWriter(file)
	w, err := history.NewWriter(buffered, history.Header{Seed: o.Seed, StartUnix: r.start.UnixNano(), Command: o.Command})
	if err != nil {
		return result, err
	}
	r.book = work.NewBook(w, r.start)
	if err := r.open(ctx); err != nil {
		return result, errors.Join(err, r.close())
	}
	defer func() {
		err = errors.Join(err, r.close(), w.Flush(), buffered.Flush())
		result.Problems = append(result.Problems, r.crashes()...)
		result.Elapsed = time.Since(r.start)
	}()
	if err := r.begin(ctx); err != nil {
		return result, err
	}
	if result.Faults, err = r.inflictAll(ctx, scenario); err != nil {
		return result, err
	}
	if err := r.finish(ctx, &result); err != nil {
		return result, err
	}
	result.Problems, result.Losses = r.book.Problems(), r.book.Losses()
	result.Acked, _ = r.book.Acked()
	return result, nil
}

// open lays the cluster out and starts it.
func (r *Run) open(ctx context.Context) error {
	make := host.NewLoopback
	if host.IsInside() && !r.options.Loopback {
		make = host.NewSpaces
	}
	network, err := make(r.options.Nodes + 1) // the last is for a spare one
	if err != nil {
		return err
	}
	r.cluster, err = host.New(host.Plan{Bin: r.options.Bin, Self: r.options.Self, Dir: r.options.Dir, Nodes: r.options.Nodes, Network: network,
		Settings: append([]string{"log.segment.bytes=1048576", "log.cleaner.backoff.ms=500", "weir.scrub.bytes.per.second=1073741824"}, r.options.Settings...)})
	if err != nil {
		return err
	}
	if err := restart(r.cluster.Hosts); err != nil {
		return err
	}
	r.crew, err = work.NewCrew(r.book, r.cluster.Brokers, r.patience)
	return err
}

// close ends everything that runs, and keeps the nodes' logs.
func (r *Run) close() error {
	r.working()
	if r.churning != nil {
		r.churning.end()
	}
	if r.crew != nil {
		r.crew.Close()
	}
	if r.heart != nil {
		r.heart.end()
	}
	if r.cluster == nil {
		return nil
	}
	err := r.cluster.Close()
	for _, h := range r.cluster.All() {
		text, e := os.ReadFile(h.Log())
		if e == nil {
			e = os.WriteFile(filepath.Join(r.options.Out, fmt.Sprintf("node-%d.log", h.ID)), text, 0o644)
		}
		err = errors.Join(err, e)
	}
	return err
}

// begin makes the topics and sets the clients to work.
func (r *Run) begin(ctx context.Context) error {
	limit, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	if err := r.awaitBrokers(limit); err != nil {
		return err
	}
	heart, err := beat(r.book, r.options.Dir)
	if err != nil {
		return err
	}
	r.heart = heart
	queue, large := r.book.Topic("queue", 4, 1), r.book.Topic("large", 2, 1)
	wide, jobs := r.book.Topic("wide", 24, 1), r.book.Topic("jobs", 6, 1)
	for _, t := range []*work.Topic{queue, large, wide, jobs} {
		if err := r.crew.CreateTopic(limit, t, replicas(r.options.Nodes), r.configs); err != nil {
			return err
		}
		r.topics = append(r.topics, t)
	}
	r.churning = &churner{run: r}
	if err := r.churning.begin(limit); err != nil {
		return err
	}
	if err := r.awaitWhole(ctx, r.patience); err != nil {
		return err
	}
	r.groups = []work.Membership{
		{Group: "classic-workers", Number: 1, Protocol: work.Classic, Topic: jobs},
		{Group: "consumer-workers", Number: 2, Protocol: work.Consumer, Topic: jobs},
	}
	r.employ(ctx, queue, large, wide, jobs)
	r.note("%d nodes, %s; clients are at work", r.options.Nodes, r.place())
	return r.sleep(ctx, holdMin)
}

func (r *Run) place() string {
	if r.cluster.Network().Separate() {
		return "each a host with a network namespace and a disk"
	}
	return "on loopback (no full or failing disks, no power cuts, and cuts by a proxy)"
}

// employ starts the clients.
func (r *Run) employ(ctx context.Context, queue, large, wide, jobs *work.Topic) {
	r.clients, r.working = context.WithCancel(ctx)
	working := r.clients
	seeds := rand.New(rand.NewPCG(r.options.Seed, 0x3eed))
	rate := r.options.Rate
	for range 2 {
		r.crew.Produce(working, seeds.Uint64(), work.Producing{Workload: "queue", Topic: queue, Rate: rate, Small: 100, Large: 4 << 10})
	}
	r.crew.Produce(working, seeds.Uint64(), work.Producing{Workload: "large", Topic: large, Rate: 2, Small: 10 << 10, Large: 200 << 10, Compressed: true})
	r.crew.Produce(working, seeds.Uint64(), work.Producing{Workload: "wide", Topic: wide, Rate: rate, Small: 64})
	r.crew.Produce(working, seeds.Uint64(), work.Producing{Workload: "jobs", Topic: jobs, Rate: rate, Small: 100, Compressed: true})
	r.crew.Read(working, seeds.Uint64(), work.Reading{Topics: []*work.Topic{queue, large}})
	r.crew.Read(working, seeds.Uint64(), r.readingFrom("rack-2"))
	for _, g := range r.groups {
		for range 2 {
			r.crew.Join(working, seeds.Uint64(), g)
		}
	}
	r.crew.Observe(working, []*work.Topic{queue, large, wide, jobs}, r.groups)
}

// readingFrom is a reader of small topics that prefers the replicas in a rack.
func (r *Run) readingFrom(rack string) work.Reading {
	return work.Reading{Topics: []*work.Topic{r.topics[0], r.topics[2]}, Rack: rack}
}

// awaitBrokers waits until all nodes are brokers.
func (r *Run) awaitBrokers(ctx context.Context) error {
	for {
		m, err := r.metadata(ctx)
		if err == nil && len(m.Brokers) == r.options.Nodes {
			return nil
		}
		if e := r.sleep(ctx, 100*time.Millisecond); e != nil {
			return fmt.Errorf("the cluster has not formed (last answer: %w)", errors.Join(err, e))
		}
	}
}

// inflictAll carries out the scenario, if it has a name, or the plan, and returns how
// many faults there were.
func (r *Run) inflictAll(ctx context.Context, scenario Scenario) (int, error) {
	if scenario.Name != "" {
		return r.play(ctx, scenario)
	}
	plan := r.options.plan()
	for i, s := range plan {
		if err := r.sleep(ctx, s.After); err != nil {
			return i, err
		}
		if err := r.step(ctx, s); err != nil {
			return i, err
		}
	}
	return len(plan), nil
}

// Script is the scenario that is asked for, or one without a name.
func (o Options) Script() (Scenario, error) {
	if o.Scenario == "" {
		return Scenario{}, nil
	}
	return ScenarioNamed(o.Scenario)
}

// plan draws the plan.
func (o Options) plan() Plan {
	if o.Times > 0 {
		return DrawAlone(o.Seed, o.Times, o.Kinds)
	}
	return Draw(o.Seed, o.Length, o.Kinds)
}

// step carries out one step of a plan. What a fault itself complains of is a problem
// of the run; only the end of ctx ends the run.
func (r *Run) step(ctx context.Context, s Step) error {
	kinds, err := s.resolve()
	if err != nil {
		return err
	}
	if s.Whole || slices.ContainsFunc(kinds, func(k Kind) bool { return k.Whole }) {
		if err := r.awaitWhole(ctx, r.patience); err != nil {
			r.book.Problem("before %s: %v", s, err)
			return ctx.Err()
		}
	}
	f := r.strike(s.kinds(), s.String())
	heals := r.aimAll(ctx, f, kinds, s.Faults)
	err = r.sleep(ctx, s.Hold)
	for _, heal := range heals {
		if e := heal(ctx); e != nil {
			r.complain(ctx, "healing", e)
		}
	}
	r.over(f)
	return err
}

// aimAll begins all kinds of a fault and returns what ends them, in order.
func (r *Run) aimAll(ctx context.Context, f *fault, kinds []Kind, aims []Aim) []func(context.Context) error {
	var heals []func(context.Context) error
	for i, k := range kinds {
		heal := r.aim(ctx, f, k, aims[i].Target)
		switch {
		case heal == nil:
		case k.Waits:
			heals = append(heals, heal)
		default:
			heals = slices.Insert(heals, 0, heal)
		}
	}
	return heals
}

// aim begins one kind as a part of a fault and returns what ends it.
func (r *Run) aim(ctx context.Context, f *fault, k Kind, target Target) func(context.Context) error {
	victims := r.victims(ctx, target)
	r.note("%s %s%s", k.Name, target, names(victims))
	heal, err := r.inflict(ctx, f, k, victims)
	if err != nil {
		r.complain(ctx, k.Name, err)
	}
	return heal
}

// inflict begins a kind, as a part of a fault, on its victims, and returns what ends it.
func (r *Run) inflict(ctx context.Context, f *fault, k Kind, victims []*host.Host) (func(context.Context) error, error) {
	if k.Mild {
		r.takeNone(f, victims)
	} else {
		r.take(f, victims)
	}
	return k.inflict(ctx, r, victims)
}

func (r *Run) complain(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		r.note("%s: %v", what, err)
		r.book.Problem("%s: %v", what, err)
	}
}

// resolve finds the kinds of a step.
func (s Step) resolve() ([]Kind, error) {
	var out []Kind
	for _, a := range s.Faults {
		k, err := kindNamed(a.Kind)
		if err != nil {
			return nil, err
		}
		out = append(out, k)
	}
	return out, nil
}

func (s Step) kinds() string {
	var out []string
	for _, a := range s.Faults {
		out = append(out, a.Kind)
	}
	return strings.Join(out, "+")
}

func names(victims []*host.Host) string {
	if len(victims) == 0 {
		return ""
	}
	var ids []string
	for _, h := range victims {
		ids = append(ids, fmt.Sprint(h.ID))
	}
	return " (node " + strings.Join(ids, ", ") + ")"
}

// finish heals everything, ends the clients' work and reads everything back.
func (r *Run) finish(ctx context.Context, result *Result) error {
	r.note("healing")
	err := errors.Join(r.cluster.Heal(), each(r.alive(), (*host.Host).Resume), restart(r.cluster.Hosts))
	if err != nil {
		return err
	}
	if err := r.awaitWhole(ctx, r.patience); err != nil {
		r.book.Problem("%v", err)
	}
	if err := r.sleep(ctx, holdMin); err != nil {
		return err
	}
	r.churning.end()
	r.working()
	r.crew.Wait()
	if result.MayLose {
		r.book.ForgetEnds()
	}
	_, n := r.book.Acked()
	r.note("%d records acknowledged; reading everything back", n)
	limit, cancel := context.WithTimeout(ctx, 2*r.patience)
	defer cancel()
	ends, err := r.crew.ReadBack(limit, r.topics, r.groups)
	if err != nil {
		r.book.Problem("%v", err)
	}
	if err := r.awaitWhole(ctx, r.patience); err != nil {
		r.book.Problem("%v", err)
	}
	result.Replicas = r.digests(ends)
	return ctx.Err()
}

// crashes lists nodes whose program has crashed. One whose store was damaged may: it
// has ended, and the others have to go on without it.
func (r *Run) crashes() []string {
	var out []string
	for _, h := range r.cluster.All() {
		line, err := h.Panicked()
		if err != nil {
			line = err.Error()
		}
		if line != "" && h.Lost() {
			r.note("node %d, which was to be lost, ended by %s", h.ID, line)
		} else if line != "" {
			out = append(out, fmt.Sprintf("node %d: %s", h.ID, line))
		}
	}
	return out
}
