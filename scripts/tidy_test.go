package scripts

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const (
	maxFileLines = 800
	maxFuncLines = 70
)

// source is one parsed Go file of the module.
type source struct {
	path string // relative to the root, with slashes
	text string
	file *ast.File
	set  *token.FileSet
}

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); n == ".git" || n == "bin" || strings.HasPrefix(n, "weir-data") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, text, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel("..", path)
		out = append(out, source{path: filepath.ToSlash(rel), text: string(text), file: file, set: set})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 20 {
		t.Fatalf("found only %d Go files: the walk is broken", len(out))
	}
	return out
}

// exemptions reads tidy.txt: lines of "path[:func] lines". The list may only
// shrink: an entry whose subject is within the limit, or gone, fails the test.
func exemptions(t *testing.T) map[string]int {
	t.Helper()
	f, err := os.Open("tidy.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string]int{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line := strings.TrimSpace(sc.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, n, ok := strings.Cut(line, " ")
		lines, err := strconv.Atoi(strings.TrimSpace(n))
		if !ok || err != nil {
			t.Fatalf("tidy.txt: cannot read %q", line)
		}
		out[name] = lines
	}
	return out
}

func TestLengths(t *testing.T) {
	exempt := exemptions(t)
	used := map[string]bool{}
	check := func(name string, lines, limit int) {
		if lines <= limit {
			return
		}
		allowed, ok := exempt[name]
		used[name] = true
		if !ok {
			t.Errorf("%s has %d lines, more than %d", name, lines, limit)
		} else if lines > allowed {
			t.Errorf("%s has grown to %d lines; tidy.txt allows %d", name, lines, allowed)
		}
	}
	for _, s := range sources(t) {
		check(s.path, strings.Count(s.text, "\n"), maxFileLines)
		if s.isTest() {
			continue
		}
		for _, d := range s.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				lines := s.set.Position(fn.End()).Line - s.set.Position(fn.Pos()).Line + 1
				check(s.path+":"+fn.Name.Name, lines, maxFuncLines)
			}
		}
	}
	for name := range exempt {
		if !used[name] {
			t.Errorf("tidy.txt exempts %s, which no longer needs it: delete the line", name)
		}
	}
}

func TestEveryPackageHasDoc(t *testing.T) {
	has := map[string]bool{}
	for _, s := range sources(t) {
		dir := filepath.Dir(s.path)
		if _, seen := has[dir]; !seen && !s.isTest() {
			has[dir] = false
		}
		if !s.isTest() && s.file.Doc != nil {
			has[dir] = true
		}
	}
	for dir, ok := range has {
		if !ok {
			t.Errorf("package %s has no package comment", dir)
		}
	}
}

// banned idioms, each with the files it is banned in and the reason.
var banned = []struct {
	name    string
	pattern *regexp.Regexp
	applies func(source) bool
}{
	{"an unnumbered TODO", regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`), func(s source) bool { return !strings.HasPrefix(s.path, "scripts/") }},
	{"time.Sleep in a test", regexp.MustCompile(`\btime\.Sleep\(`), func(s source) bool { return s.isTest() && !strings.HasPrefix(s.path, "scripts/") }},
	{"init()", regexp.MustCompile(`(?m)^func init\(\)`), func(s source) bool { return !s.isTest() }},
	{"unsafe", regexp.MustCompile(`(?m)^\s*(_ )?"unsafe"$`), func(source) bool { return true }},
	{"reflect outside tests", regexp.MustCompile(`(?m)^\s*"reflect"$`), func(s source) bool { return !s.isTest() }},
}

func TestBannedIdioms(t *testing.T) {
	for _, s := range sources(t) {
		for _, b := range banned {
			if b.applies(s) && b.pattern.MatchString(s.text) {
				t.Errorf("%s holds %s", s.path, b.name)
			}
		}
	}
}

// TestTestdataIsUsed fails for a testdata folder whose package has no test that
// names it, so that dead fixtures do not pile up.
func TestTestdataIsUsed(t *testing.T) {
	named := map[string]bool{}
	for _, s := range sources(t) {
		if s.isTest() && (strings.Contains(s.text, "testdata") || strings.Contains(s.text, "func Fuzz")) {
			named[filepath.Dir(s.path)] = true
		}
	}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == "testdata" {
			rel, _ := filepath.Rel("..", filepath.Dir(path))
			if !named[filepath.ToSlash(rel)] {
				t.Errorf("%s/testdata is used by no test of its package", filepath.ToSlash(rel))
			}
			return filepath.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
