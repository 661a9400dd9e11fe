package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/integration/chaos"
	"github.com/weirmq/weir/integration/chaos/check"
	"github.com/weirmq/weir/integration/chaos/report"
)

// figure is what the runs of one kind of fault have come to. It is kept beside them, so
// that a long measurement can be done in parts.
type figure struct {
	Kind       string
	Nodes      int
	Resolution time.Duration // shorter times are not kept
	Injections []check.Injection
}

const figureFile = "figure.json"

// each measures every kind alone, in runs of its own, and writes one table of all
// figures in the folder. A kind that has its figures there is not measured again; one
// whose run goes wrong has none, and the others are measured all the same.
func each(s *settings, args []string, stdout io.Writer) (int, error) {
	if s.Scenario != "" {
		return exitUsage, errors.New("-each measures kinds of faults, not scenarios")
	}
	code, failed := exitValid, error(nil)
	for _, k := range s.Kinds {
		dir := filepath.Join(s.Out, k.Name)
		if f, err := loadFigure(dir); err == nil && len(f.Injections) >= s.each {
			fmt.Fprintf(stdout, "%s: measured before, see %s\n", k.Name, dir)
			continue
		}
		f, c, err := s.measure(k, dir, args)
		code = max(code, c)
		if err == nil && c == exitValid {
			err = storeFigure(dir, f)
		}
		failed = errors.Join(failed, err)
		if err := tabulate(s.Out, io.Discard); err != nil { // what there is so far
			return exitUsage, err
		}
		if c == exitUsage {
			return code, failed
		}
	}
	return code, errors.Join(failed, tabulate(s.Out, stdout))
}

// measure has a kind happen often enough. One whose victims do not return needs a
// cluster for each time.
func (s *settings) measure(k chaos.Kind, dir string, args []string) (figure, int, error) {
	f := figure{Kind: k.Name, Nodes: s.Nodes}
	times := s.each
	if k.Final {
		times = 1
	}
	for n := 1; len(f.Injections) < s.each; n++ {
		out := filepath.Join(dir, fmt.Sprint(n))
		code, err := s.child(append(slices.Clone(args), "-each", "0", "-times", fmt.Sprint(times), "-faults", k.Name,
			"-seed", fmt.Sprint(s.Seed+uint64(n)-1), "-out", out))
		if err != nil || code != exitValid {
			return f, code, errors.Join(err, fmt.Errorf("%s is not measured: its run went wrong, see %s", k.Name, out))
		}
		found, err := examine(chaos.Result{History: filepath.Join(out, "history")}, 0)
		if err != nil {
			return f, exitUsage, err
		}
		before := len(f.Injections)
		for _, i := range found.Injections {
			if i.Kind == k.Name {
				f.Injections = append(f.Injections, i)
			}
		}
		f.Resolution = max(f.Resolution, found.Resolution)
		if len(f.Injections) == before {
			return f, exitUsage, fmt.Errorf("%s did not happen, see %s", k.Name, out)
		}
	}
	return f, exitValid, nil
}

// child does a run in a process of its own and returns its exit code.
func (s *settings) child(args []string) (int, error) {
	cmd := exec.Command(s.Self, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return exitUsage, fmt.Errorf("start a run: %w", err)
	}
	return exitValid, nil
}

func storeFigure(dir string, f figure) error {
	text, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("keep the figures of %s: %w", f.Kind, err)
	}
	return os.WriteFile(filepath.Join(dir, figureFile), text, 0o644)
}

func loadFigure(dir string) (figure, error) {
	var f figure
	text, err := os.ReadFile(filepath.Join(dir, figureFile))
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return f, fmt.Errorf("read the figures in %s: %w", dir, err)
	}
	return f, nil
}

// tabulate prints the table of all figures in a folder, and writes it as figures.md and figures.html.
func tabulate(out string, stdout io.Writer) error {
	files, err := filepath.Glob(filepath.Join(out, "*", figureFile))
	if err != nil || len(files) == 0 {
		return err
	}
	all := report.Figures{}
	nodes := map[string]bool{}
	var rows []check.Injection
	for _, path := range files {
		f, err := loadFigure(filepath.Dir(path))
		if err != nil {
			return err
		}
		nodes[fmt.Sprintf("%d nodes", f.Nodes)] = true
		rows = append(rows, f.Injections...)
		all.Resolution = max(all.Resolution, f.Resolution)
	}
	all.Faults = (&check.Report{Injections: rows}).Faults()
	var text, page strings.Builder
	meta := report.Meta{Title: "What each fault costs"}
	if len(nodes) == 1 {
		for n := range nodes {
			meta.Cluster = n
		}
	}
	if err := errors.Join(report.WriteTable(&text, all), report.WriteFigures(&page, all, meta)); err != nil {
		return err
	}
	_, err = io.WriteString(stdout, text.String())
	return errors.Join(err, os.WriteFile(filepath.Join(out, "figures.md"), []byte(text.String()), 0o644),
		os.WriteFile(filepath.Join(out, "figures.html"), []byte(page.String()), 0o644))
}
