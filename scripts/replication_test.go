package scripts

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// page is the description of replication whose names must exist.
const page = "../docs/replication.md"

// packagesOf says where the page's short names of packages are.
var packagesOf = map[string]string{
	"isr": "broker/isr", "feed": "broker/feed", "fsm": "fsm", "elect": "controller/elect",
	"controller": "controller", "storage": "storage", "broker": "broker",
}

// scriptsOf says where the scripts of a short name are.
var scriptsOf = map[string]string{
	"isr": "broker/isr/testdata", "feed": "broker/feed/testdata/scripts", "fsm": "fsm/testdata/scripts",
	"elect": "controller/elect/testdata", "storage": "storage/testdata", "group": "broker/group/testdata/scripts",
	"sim": "integration/sim/testdata/regressions",
}

var (
	quoted  = regexp.MustCompile("`([^`\n]+)`")
	script  = regexp.MustCompile(`^([a-z]+)/([\w/]+\.(?:txt|json))$`)
	goName  = regexp.MustCompile(`^(isr|feed|fsm|elect|controller|storage|broker)\.(\w+)(?:\.(\w+))?$`)
	mutant  = regexp.MustCompile(`^[a-z]+(-[a-z]+)+$`)
	hazard  = regexp.MustCompile(`^\| H(\d+) \|`)
	hazards = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 42 43 47 48 49 50 51 52 53 54 55"
)

// TestReplicationPage checks that every function, script, test and mutant that the
// page names exists, and that each hazard has its row.
func TestReplicationPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	mutants, err := os.ReadFile("../docs/mutants.md")
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{}
	checked := map[string]bool{}
	for _, m := range quoted.FindAllStringSubmatch(string(text), -1) {
		name := m[1]
		if checked[name] {
			continue
		}
		checked[name] = true
		switch {
		case script.MatchString(name):
			checkScript(t, script.FindStringSubmatch(name))
		case goName.MatchString(name):
			checkGoName(t, sources, goName.FindStringSubmatch(name))
		case mutant.MatchString(name) && !strings.Contains(string(mutants), fmt.Sprintf("| `%s` |", name)):
			t.Errorf("%s: there is no mutant %s", page, name)
		}
	}
	if len(checked) < 40 { // then the page, or how it names things, is another
		t.Errorf("%s: only %d names found", page, len(checked))
	}
	rows := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if m := hazard.FindStringSubmatch(line); m != nil {
			rows[m[1]] = true
		}
	}
	for _, n := range strings.Fields(hazards) {
		if !rows[n] {
			t.Errorf("%s: no row for H%s", page, n)
		}
	}
}

// numbered is the file name of a script that is about a hazard.
var numbered = regexp.MustCompile(`^h(\d\d)_\w+\.txt$`)

// TestNumberedScripts checks that each script that bears a hazard's number says so in the comment
// at its head, and that the page names it.
func TestNumberedScripts(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for short, folder := range scriptsOf {
		root := filepath.Join("..", folder)
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !numbered.MatchString(d.Name()) {
				return err
			}
			seen++
			script, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if err := checkHead(d.Name(), string(script)); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			in, err := filepath.Rel(root, path)
			if name := "`" + short + "/" + filepath.ToSlash(in) + "`"; !strings.Contains(string(text), name) {
				t.Errorf("%s: does not name %s", page, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 70 { // then they are elsewhere
		t.Errorf("only %d scripts with a hazard's number found", seen)
	}
}

// checkHead looks for a script's hazard in the comment that it begins with.
func checkHead(name, script string) error {
	number := numbered.FindStringSubmatch(name)[1]
	head := ""
	for line := range strings.Lines(script) {
		if !strings.HasPrefix(line, "#") {
			break
		}
		head += line
	}
	if h := "H" + strings.TrimPrefix(number, "0"); !regexp.MustCompile(`\b` + h + `\b`).MatchString(head) {
		return fmt.Errorf("its head does not name %s, but is %q", h, head)
	}
	return nil
}

func TestCheckHead(t *testing.T) {
	for _, c := range []struct {
		name, script string
		ok           bool
	}{
		{"h07_maximal_isr.txt", "# H7: while a change is pending.\nlead\n", true},
		{"h14_leader_leaves.txt", "# A leader leaves:\n# H13, H14.\n", true},
		{"h07_maximal_isr.txt", "# H17, H70: another.\n", false},
		{"h07_maximal_isr.txt", "# Of positions.\n\n# H7: not at its head.\n", false},
	} {
		if err := checkHead(c.name, c.script); (err == nil) != c.ok {
			t.Errorf("%s: %q: %v, want it to pass: %v", c.name, c.script, err, c.ok)
		}
	}
}

func checkScript(t *testing.T, m []string) {
	t.Helper()
	folder, ok := scriptsOf[m[1]]
	if !ok {
		t.Errorf("%s: %s is in no known folder", page, m[0])
		return
	}
	if _, err := os.Stat(filepath.Join("..", folder, m[2])); err != nil {
		t.Errorf("%s: %v", page, err)
	}
}

// checkGoName looks for a function, a type, or a method of a type.
func checkGoName(t *testing.T, sources map[string]string, m []string) {
	t.Helper()
	folder := packagesOf[m[1]]
	if _, ok := sources[folder]; !ok {
		sources[folder] = goText(t, folder)
	}
	is := fmt.Sprintf(`(?m)^(func|type) %s\b`, m[2])
	if m[3] != "" {
		is = fmt.Sprintf(`(?m)^func \(\w+ \*?%s\) %s\(`, m[2], m[3])
	}
	if !regexp.MustCompile(is).MatchString(sources[folder]) {
		t.Errorf("%s: there is no %s in %s", page, m[0], folder)
	}
}

// goText is the text of all Go files of a folder.
func goText(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no Go files in %s: %v", folder, err)
	}
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
		all.WriteByte('\n')
	}
	return all.String()
}
