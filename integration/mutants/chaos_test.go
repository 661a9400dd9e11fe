package mutants

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestChaosEditsMatch checks that each edit still has the one place that it changes, and
// that docs/reliability.md has a row for each mutant.
func TestChaosEditsMatch(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/reliability.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range Chaos() {
		if names[m.Name] || m.Rule == "" || m.Args == "" {
			t.Errorf("mutant %s is there twice, or is not whole", m.Name)
		}
		names[m.Name] = true
		if _, err := m.apply(); err != nil {
			t.Error(err)
		}
		if row := fmt.Sprintf("| `%s` | %s |", m.Name, m.Rule); !strings.Contains(string(text), row) {
			t.Errorf("docs/reliability.md has no row that begins %s", row)
		}
	}
	if len(names) < 6 {
		t.Errorf("only %d mutants", len(names))
	}
}

// apply returns the files with the edits made.
func (m ChaosMutant) apply() (map[string]string, error) { return applied(m.Name, m.Edits) }

// TestChaosFindsMutants runs scripts/chaos against a broker built with each mutant. It
// takes some minutes for each, so it runs only where WEIR_CHAOS_MUTANTS asks for it: all,
// or a pattern of names.
func TestChaosFindsMutants(t *testing.T) {
	pattern := wanted(t, "WEIR_CHAOS_MUTANTS", "make chaos-mutants")
	for _, m := range Chaos() {
		if !pattern.MatchString(m.Name) {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			if m.Hosts && os.Getuid() != 0 {
				t.Skip("the run needs hosts with disks of their own, and so root")
			}
			m.find(t)
		})
	}
}

// chaosSeeds is within how many runs a mutant must be found.
const chaosSeeds = 3

// find builds the mutant and runs chaos until it is found.
func (m ChaosMutant) find(t *testing.T) {
	bin := m.build(t)
	for seed := 1; seed <= chaosSeeds; seed++ {
		args := append(strings.Fields(m.Args), "-seed", fmt.Sprint(seed))
		code, report := m.run(t, bin, append(args, "-out", t.TempDir()))
		if code == 1 {
			found := regexp.MustCompile("(?m)^.*" + m.Found).FindString(report)
			if found == "" {
				t.Fatalf("mutant %s: scripts/chaos %s found something else than %s:\n%s", m.Name, strings.Join(args, " "), m.Found, report)
			}
			t.Logf("scripts/chaos %s: %s", strings.Join(args, " "), found)
			return
		}
		if code != 0 {
			t.Fatalf("mutant %s: scripts/chaos %s could not be done:\n%s", m.Name, strings.Join(args, " "), report)
		}
	}
	t.Errorf("mutant %s lives: scripts/chaos %s saw nothing wrong with seeds 1 to %d", m.Name, m.Args, chaosSeeds)
}

// build builds a broker with the edits.
func (m ChaosMutant) build(t *testing.T) string {
	files, err := m.apply()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay, err := writeOverlays(dir, files)
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "weir")
	cmd := exec.Command("go", "build", "-overlay", overlay, "-o", bin, "./cmd/weir")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("mutant %s does not build: %v\n%s", m.Name, err, out)
	}
	return bin
}

// run runs scripts/chaos and returns its exit code and what it said.
func (m ChaosMutant) run(t *testing.T, bin string, args []string) (int, string) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "scripts/chaos", append(args, "-patience", "45s")...) // a broken cluster may never become whole
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "WEIR_BIN="+bin)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it takes its nodes with it
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}
