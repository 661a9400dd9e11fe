package mutants

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	root = "../.."
	page = root + "/docs/mutants.md"
)

var rewrite = flag.Bool("rewrite", false, "keep in docs/mutants.md what found each mutant")

// TestEditsMatch checks that each edit still has the one place that it changes.
func TestEditsMatch(t *testing.T) {
	names := map[string]bool{}
	for _, m := range All() {
		if names[m.Name] {
			t.Errorf("two mutants are called %s", m.Name)
		}
		names[m.Name] = true
		if _, err := m.apply(); err != nil {
			t.Error(err)
		}
		if m.Rule == "" || m.Old == m.New {
			t.Errorf("mutant %s changes nothing, or names no rule", m.Name)
		}
	}
	if len(names) < 25 {
		t.Errorf("only %d mutants", len(names))
	}
}

// apply returns the files with the edits made.
func (m Mutant) apply() (map[string]string, error) {
	edits := []FileEdit{{m.File, m.Old, m.New}}
	for _, e := range m.More {
		edits = append(edits, FileEdit{m.File, e.Old, e.New})
	}
	return applied(m.Name, append(edits, m.Also...))
}

// applied returns the files with the edits of a mutant made.
func applied(name string, edits []FileEdit) (map[string]string, error) {
	files := map[string]string{}
	for _, e := range edits {
		text, ok := files[e.File]
		if !ok {
			read, err := os.ReadFile(filepath.Join(root, e.File))
			if err != nil {
				return nil, fmt.Errorf("mutant %s: %w", name, err)
			}
			text = string(read)
		}
		if n := strings.Count(text, e.Old); n != 1 {
			return nil, fmt.Errorf("mutant %s: %q is %d times in %s, not once: the rule it breaks has moved", name, e.Old, n, e.File)
		}
		files[e.File] = strings.Replace(text, e.Old, e.New, 1)
	}
	return files, nil
}

// TestDocumented compares docs/mutants.md with the table.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	rows := rowsOf(string(text))
	for _, m := range All() {
		row, ok := rows[m.Name]
		if !ok || !strings.Contains(row, m.Rule) || !strings.Contains(row, m.File) {
			t.Errorf("docs/mutants.md has no row for %s with its file and rule: | `%s` | %s | %s | … |", m.Name, m.Name, m.File, m.Rule)
		}
		delete(rows, m.Name)
	}
	for name := range rows {
		t.Errorf("docs/mutants.md names %s, which is not in the table", name)
	}
}

// rowsOf are the rows of the page by the name of their mutant.
func rowsOf(text string) map[string]string {
	rows := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		if cells := strings.Split(line, "|"); len(cells) > 4 && strings.Contains(cells[1], "`") {
			rows[strings.Trim(cells[1], " `")] = line
		}
	}
	return rows
}

// lastSeed is the seed that found a mutant last, 0 when none is known.
func lastSeed(row string) uint64 {
	cells := strings.Split(row, "|")
	if len(cells) < 3 {
		return 0
	}
	seed, _ := strconv.ParseUint(strings.TrimSpace(cells[len(cells)-2]), 10, 64)
	return seed
}

// keepRow writes what found a mutant to the page.
func keepRow(m Mutant, found string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	parts := violation.FindStringSubmatch(found)
	if len(parts) != 3 {
		return fmt.Errorf("mutant %s: no seed and invariant in %q", m.Name, found)
	}
	row := fmt.Sprintf("| `%s` | %s | %s | %s | %s |", m.Name, m.File, m.Rule, parts[2], parts[1])
	old, ok := rowsOf(string(text))[m.Name]
	if !ok {
		return fmt.Errorf("mutant %s has no row in %s", m.Name, page)
	}
	return os.WriteFile(page, []byte(strings.Replace(string(text), old, row, 1)), 0o644)
}

// wanted is the pattern of names in a variable of the environment; "all" is any. Without
// it the test is skipped, and says what sets it.
func wanted(t *testing.T, variable, target string) *regexp.Regexp {
	t.Helper()
	switch pattern := os.Getenv(variable); pattern {
	case "":
		t.Skipf("%s is not set: see %s", variable, target)
		return nil
	case "all":
		return regexp.MustCompile("")
	default:
		return regexp.MustCompile(pattern)
	}
}

// TestMutantsAreFound runs the simulator over each mutant, beginning with the seed that
// found it last. It takes minutes, so it runs only where WEIR_MUTANTS asks for it: all,
// or a pattern of names. With -rewrite the page keeps what was found.
func TestMutantsAreFound(t *testing.T) {
	pattern := wanted(t, "WEIR_MUTANTS", "make mutants")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	rows := rowsOf(string(text))
	for _, m := range All() {
		if !pattern.MatchString(m.Name) {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			found, err := m.run(t.TempDir(), lastSeed(rows[m.Name]))
			if err == nil && *rewrite {
				err = keepRow(m, found)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Log(found)
		})
	}
}

// violation is the last line of a failed run: seed and invariant.
var violation = regexp.MustCompile(`seed (\d+), step \d+, [^:]*: ([^:]*): .*`)

// run has the simulator look for the mutant, with the seed that found it last and then
// with all from 1 on, and returns what it found.
func (m Mutant) run(dir string, last uint64) (string, error) {
	files, err := m.apply()
	if err != nil {
		return "", err
	}
	binary, err := buildSimulator(dir, m.Name, files)
	if err != nil {
		return "", err
	}
	seeds := uint64(m.Seeds)
	if seeds == 0 {
		seeds = DefaultSeeds
	}
	if last > 0 && last <= seeds {
		if found, err := look(m.Name, binary, "-test.run=TestSimulation$", "-seeds=1", fmt.Sprintf("-first-seed=%d", last)); err == nil {
			return found, nil
		}
	}
	return look(m.Name, binary, "-test.run=TestSimulation$", fmt.Sprintf("-seeds=%d", seeds))
}

// buildSimulator builds the simulator with files that a mutant has changed.
func buildSimulator(dir, name string, files map[string]string) (string, error) {
	overlay, err := writeOverlays(dir, files)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "sim.test")
	build := exec.Command("go", "test", "-c", "-o", binary, "-vet=off", "-overlay", overlay, "./integration/sim")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("mutant %s can not be built: %w\n%s", name, err, out)
	}
	return binary, nil
}

// errLives says that the simulator saw nothing wrong with a mutant.
var errLives = errors.New("the simulator saw nothing wrong")

// look runs the simulator once; errLives says that it found nothing.
func look(name, binary string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append(args, "-test.timeout=0")...)
	cmd.Dir = filepath.Join(root, "integration/sim")
	out, err := cmd.CombinedOutput()
	if err == nil {
		return "", fmt.Errorf("mutant %s lives: %v: %w", name, args, errLives)
	}
	found := violation.FindAllString(string(out), -1)
	if len(found) == 0 {
		return "", fmt.Errorf("mutant %s: the run failed without a violation: %w\n%s", name, err, out)
	}
	line := found[len(found)-1]
	if len(line) > 300 {
		line = line[:300] + "…"
	}
	return line, nil
}

// writeOverlays writes changed files and the description that go build reads.
func writeOverlays(dir string, files map[string]string) (string, error) {
	replace := map[string]string{}
	for file, text := range files {
		path, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			return "", err
		}
		changed := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(changed, []byte(text), 0o644); err != nil {
			return "", err
		}
		replace[path] = changed
	}
	description, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, description, 0o644)
}
