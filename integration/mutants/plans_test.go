package mutants

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// plans is where the simulator keeps the plans that broke an invariant once.
const plans = root + "/integration/sim/testdata/regressions"

// TestEveryPlanHasItsFault checks that the table of plans is that of the files, that each
// names the fault that it showed, and that the edits still have their place.
func TestEveryPlanHasItsFault(t *testing.T) {
	rows := map[string]bool{}
	for _, m := range All() {
		rows[m.Name] = true
	}
	listed := map[string]bool{}
	for _, p := range Plans() {
		if listed[p.File] {
			t.Errorf("plan %s is listed twice", p.File)
		}
		listed[p.File] = true
		ways := 0
		for _, there := range []bool{p.Mutant != "", len(p.Edits) > 0, p.Without != ""} {
			if there {
				ways++
			}
		}
		if ways != 1 {
			t.Errorf("plan %s must have one of a mutant, edits of its own, and a reason why it has neither", p.File)
		}
		if p.Mutant != "" && !rows[p.Mutant] {
			t.Errorf("plan %s names mutant %s, which is not in the table", p.File, p.Mutant)
		}
		if _, err := applied(p.File, p.Edits); err != nil {
			t.Error(err)
		}
	}
	files, err := filepath.Glob(plans + "/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no plans found: %v", err)
	}
	for _, file := range files {
		if name := filepath.Base(file); !listed[name] {
			t.Errorf("plan %s names no fault under which it must fail: see Plans", name)
		}
		delete(listed, filepath.Base(file))
	}
	for name := range listed {
		t.Errorf("plan %s is listed and not there", name)
	}
}

// TestPlansShowTheirFault runs each plan with its fault put back, where WEIR_MUTANTS asks for
// the mutant or for the plan. One that sees nothing wrong is stale: where its mutant has a row
// that is a report, since seeds find that one; else it is a failure.
func TestPlansShowTheirFault(t *testing.T) {
	pattern := wanted(t, "WEIR_MUTANTS", "make mutants")
	rows := map[string]Mutant{}
	for _, m := range All() {
		rows[m.Name] = m
	}
	for _, p := range Plans() {
		if p.Without != "" || !pattern.MatchString(p.File) && !pattern.MatchString(p.Mutant) {
			continue
		}
		t.Run(p.File, func(t *testing.T) {
			m := rows[p.Mutant]
			found, err := p.run(t.TempDir(), m)
			switch {
			case errors.Is(err, errLives) && p.Mutant != "":
				t.Skipf("STALE: the plan sees nothing wrong with mutant %s any more; its row is found by seeds", p.Mutant)
			case errors.Is(err, errLives):
				t.Fatalf("STALE: the plan sees nothing wrong with its fault any more, and no seed is known to: %v", err)
			case err != nil:
				t.Fatal(err)
			}
			t.Log(found)
		})
	}
}

// run runs the plan with its fault, that of a row or its own.
func (p Plan) run(dir string, m Mutant) (string, error) {
	files, err := applied(p.File, p.Edits)
	if p.Mutant != "" {
		files, err = m.apply()
	}
	if err != nil {
		return "", err
	}
	binary, err := buildSimulator(dir, p.File, files)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(plans, p.File)); err != nil {
		return "", err
	}
	return look(p.File, binary, "-test.run=TestRegressions/"+p.File+"$")
}
