package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/integration/chaos"
	"github.com/weirmq/weir/integration/chaos/check"
	"github.com/weirmq/weir/integration/chaos/history"
	"github.com/weirmq/weir/integration/chaos/host"
	"github.com/weirmq/weir/integration/chaos/report"
)

// Exit codes.
const (
	exitValid   = 0
	exitInvalid = 1 // the cluster did wrong
	exitUsage   = 2 // the run could not be done
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == host.OnHostVerb {
		err := host.OnHost(os.Args[2:])
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(exitUsage)
	}
	code, err := run(os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "chaos:", err)
	}
	os.Exit(code)
}

// settings is what the flags say.
type settings struct {
	chaos.Options
	kinds   string
	list    bool
	network string
	config  string
	gap     time.Duration
	judge   string
	hours   float64
	each    int
}

func parse(args []string, stderr io.Writer) (*settings, error) {
	s := &settings{}
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&s.Bin, "weir", "", "the weir `binary`")
	f.StringVar(&s.Out, "out", "chaos-out", "`folder` for the history, the report and the nodes' logs")
	f.IntVar(&s.Nodes, "nodes", 3, "number of nodes")
	f.Uint64Var(&s.Seed, "seed", 0, "repeats the schedule; 0 draws one")
	f.DurationVar(&s.Length, "length", 2*time.Minute, "length of the schedule")
	f.StringVar(&s.kinds, "faults", "", "kinds of faults, by commas (default: all that can be had and nothing is known to go wrong under)")
	f.StringVar(&s.Scenario, "scenario", "", "a script of faults by `name`, in place of a schedule")
	f.StringVar(&s.network, "net", "auto", "auto, hosts (namespaces, needs root) or loopback")
	f.IntVar(&s.Rate, "rate", 50, "records a second of each producer")
	f.DurationVar(&s.Patience, "patience", 2*time.Minute, "how long a healed cluster may take to become whole")
	f.StringVar(&s.config, "config", "", "settings KEY=VALUE of every node, by commas")
	f.IntVar(&s.Times, "times", 0, "in place of a schedule: each kind alone, that often, when the cluster is whole")
	f.IntVar(&s.each, "each", 0, "measure each kind alone, that often, in runs of its own, and write a table; goes on where it was ended")
	f.DurationVar(&s.gap, "gap", time.Minute, "longest time without an acknowledgement in a fault that a majority survives, on a machine that is not starved; 0 reports it only")
	f.StringVar(&s.judge, "judge", "", "judge the history in `file` again, and do nothing else")
	f.Float64Var(&s.hours, "hours", 0, "repeat with the next seed for that long, or until a run goes wrong")
	f.BoolVar(&s.list, "list", false, "list faults and scenarios")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	return s, s.complete()
}

// complete fills in what the flags leave open.
func (s *settings) complete() error {
	if s.Seed == 0 {
		s.Seed = 1 + rand.Uint64N(1_000_000)
	}
	if s.config != "" {
		s.Settings = strings.Split(s.config, ",")
	}
	if !slices.Contains([]string{"auto", "hosts", "loopback"}, s.network) {
		return fmt.Errorf("-net %q is none of auto, hosts, loopback", s.network)
	}
	if err := s.prepare(); err != nil {
		return err
	}
	missing := host.CanSeparate
	if host.IsInside() {
		missing = func() error { return nil }
	}
	s.Loopback = s.network == "loopback"
	if err := missing(); err != nil && !s.Loopback {
		if s.network == "hosts" {
			return fmt.Errorf("hosts cannot be had here: %w", err)
		}
		s.Loopback = true
		fmt.Fprintf(os.Stdout, "hosts cannot be had here (%v): loopback, without full and failing disks and power cuts\n", err)
	}
	return s.pick()
}

// prepare looks whether the scenario can be played, and where.
func (s *settings) prepare() error {
	if s.Scenario == "" {
		return nil
	}
	scenario, err := s.Script()
	if err != nil {
		return err
	}
	s.Nodes = max(s.Nodes, scenario.Nodes)
	needs := map[bool]string{scenario.Loopback: "loopback", scenario.Needs == chaos.Machines: "hosts"}[true]
	if needs != "" && s.network != "auto" && s.network != needs {
		return fmt.Errorf("scenario %s needs -net %s", s.Scenario, needs)
	}
	if needs != "" {
		s.network = needs
	}
	return nil
}

// pick chooses the kinds of faults.
func (s *settings) pick() error {
	if err := s.choose(s.kinds); err != nil {
		return err
	}
	s.Kinds = slices.DeleteFunc(s.Kinds, func(k chaos.Kind) bool { return s.Loopback && k.Needs > chaos.Anywhere })
	s.Kinds = slices.DeleteFunc(s.Kinds, func(k chaos.Kind) bool {
		if k.Missing == nil {
			return false
		}
		err := k.Missing()
		if err != nil {
			fmt.Fprintf(os.Stdout, "without %s, which cannot be had here: %v\n", k.Name, err)
		}
		return err != nil
	})
	if len(s.Kinds) == 0 {
		return errors.New("none of these faults can be had here")
	}
	return nil
}

// choose takes kinds by their names, or those that are there by default.
func (s *settings) choose(names string) (err error) {
	if names == "" {
		s.Kinds = chaos.Default()
		return nil
	}
	s.Kinds, err = chaos.KindsNamed(strings.Split(names, ",")...)
	return err
}

func run(args []string, stdout, stderr io.Writer) (int, error) {
	if host.IsInside() {
		if err := host.Settle(); err != nil {
			return exitUsage, err
		}
	}
	s, err := parse(args, stderr)
	if err != nil {
		return exitUsage, err
	}
	if s.list {
		list(stdout)
		return exitValid, nil
	}
	if s.judge != "" {
		scenario, err := s.Script()
		if err != nil {
			return exitUsage, err
		}
		return verdict(s, chaos.Result{History: s.judge, MayLose: scenario.MayLose})
	}
	if s.Self, err = os.Executable(); err != nil {
		return exitUsage, err
	}
	if s.hours > 0 {
		return soak(s, args)
	}
	if s.each > 0 {
		return each(s, args, stdout)
	}
	s.Text = stdout
	s.Command = "scripts/chaos " + s.command()
	if !s.Loopback && !host.IsInside() {
		return separate(s, args)
	}
	if host.IsInside() {
		s.Dir = os.Getenv(dirKey)
	} else {
		dir, remove, err := host.Folder("")
		if err != nil {
			return exitUsage, err
		}
		defer func() { _ = remove() }() // what stays is swept by the next run
		s.Dir = dir
	}
	ctx, stop := host.Interruptible()
	defer stop()
	return judge(ctx, s)
}

// dirKey passes the folder of a run to the process inside.
const dirKey = "WEIR_CHAOS_DIR"

// separate does the run in namespaces of its own. The folder is ours, so that it is
// removed however the run ends.
func separate(s *settings, args []string) (int, error) {
	dir, remove, err := host.Folder("")
	if err != nil {
		return exitUsage, err
	}
	if err := os.Setenv(dirKey, dir); err != nil {
		return exitUsage, errors.Join(err, remove())
	}
	code, err := host.RunInside(s.Self, append(slices.Clone(args), "-seed", fmt.Sprint(s.Seed)))
	if err != nil {
		code = exitUsage
	}
	return code, errors.Join(err, remove())
}

// soak does run after run in processes of their own, each with the next seed and a
// folder of its own for what it leaves.
func soak(s *settings, args []string) (int, error) {
	end := time.Now().Add(time.Duration(s.hours * float64(time.Hour)))
	for seed := s.Seed; time.Now().Before(end); seed++ {
		code, err := s.child(append(slices.Clone(args), "-hours", "0", "-seed", fmt.Sprint(seed), "-out", filepath.Join(s.Out, fmt.Sprintf("seed-%d", seed))))
		if err != nil || code != exitValid {
			return code, errors.Join(err, fmt.Errorf("the run with seed %d went wrong", seed))
		}
	}
	return exitValid, nil
}

// command is the arguments that repeat the run.
func (s *settings) command() string {
	out := fmt.Sprintf("-seed %d -nodes %d -rate %d", s.Seed, s.Nodes, s.Rate)
	if s.Scenario != "" {
		out += " -scenario " + s.Scenario
	} else if s.Times > 0 {
		out += fmt.Sprintf(" -times %d", s.Times)
	} else {
		out += fmt.Sprintf(" -length %s", s.Length)
	}
	if s.kinds != "" {
		out += " -faults " + s.kinds
	}
	if s.network != "auto" {
		out += " -net " + s.network
	}
	if s.config != "" {
		out += " -config " + s.config
	}
	return out
}

func judge(ctx context.Context, s *settings) (int, error) {
	if err := os.MkdirAll(s.Out, 0o755); err != nil {
		return exitUsage, err
	}
	fmt.Fprintf(s.Text, "seed %d; to repeat: %s\n", s.Seed, s.Command)
	result, err := chaos.Execute(ctx, s.Options)
	if err != nil {
		return exitUsage, err
	}
	fmt.Fprintf(s.Text, "%d faults in %s; acknowledged: %v\n", result.Faults, result.Elapsed.Round(time.Second), result.Acked)
	return verdict(s, result)
}

// verdict judges a run, prints what was found and draws the page.
func verdict(s *settings, result chaos.Result) (int, error) {
	found, err := examine(result, s.gap)
	if err != nil {
		return exitUsage, err
	}
	if err := found.WriteText(os.Stdout); err != nil {
		return exitUsage, err
	}
	page := filepath.Join(filepath.Dir(result.History), "report.html")
	if err := draw(page, found, s); err != nil {
		return exitUsage, err
	}
	fmt.Fprintf(os.Stdout, "%s; the whole report is %s\n", found.Verdict, page)
	if found.Verdict == check.Valid || found.Verdict == check.Lossy {
		return exitValid, nil
	}
	return exitInvalid, nil
}

func draw(path string, found *check.Report, s *settings) error {
	meta := report.Meta{Title: "Chaos", Cluster: fmt.Sprintf("%d nodes", s.Nodes)}
	if s.Scenario != "" {
		meta.Title = "Chaos, scenario " + s.Scenario
	}
	if s.Loopback {
		meta.Notes = []string{"On loopback: no full or failing disks, no power cuts, and links are cut by proxies."}
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(report.Write(f, found, meta), f.Close())
}

// examine judges a history, of this run or of an earlier one.
func examine(result chaos.Result, gap time.Duration) (*check.Report, error) {
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	open := func() (*history.Reader, error) {
		f, err := os.Open(result.History)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
		return history.NewReader(f)
	}
	return check.Analyze(open, check.Options{ProgressMax: gap, Replicas: result.Replicas, Failures: result.Problems, MayLose: result.MayLose, Losses: result.Losses})
}

func list(w io.Writer) {
	fmt.Fprintln(w, "faults (-faults a,b,…):")
	for _, k := range chaos.Kinds() {
		note := ""
		if k.Needs == chaos.Machines {
			note = " [needs hosts]"
		}
		if k.Known != "" {
			note += " [only by name: " + k.Known + "]"
		}
		fmt.Fprintf(w, "  %-16s %s%s\n", k.Name, k.About, note)
	}
	fmt.Fprintln(w, "scenarios (-scenario NAME):")
	for _, s := range chaos.Scenarios() {
		note := ""
		if s.Missing != "" {
			note = " [cannot be played without " + s.Missing + "]"
		}
		fmt.Fprintf(w, "  %-16s %s%s\n", s.Name, s.About, note)
	}
}
