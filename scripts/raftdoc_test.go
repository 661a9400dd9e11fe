package scripts

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRaftPage checks that the files and tests that docs/raft.md names are there.
func TestRaftPage(t *testing.T) {
	page, err := os.ReadFile("../docs/raft.md")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, dir := range []string{"../controller", "../controller/wal", "../integration/cluster"} {
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			tests.Write(text)
		}
	}
	names := regexp.MustCompile("`(Test[A-Za-z0-9]+|[a-z/]+\\.go)`").FindAllStringSubmatch(string(page), -1)
	if len(names) < 40 {
		t.Errorf("only %d names on the page", len(names))
	}
	for _, m := range names {
		if strings.HasPrefix(m[1], "Test") {
			if !strings.Contains(tests.String(), "func "+m[1]+"(") {
				t.Errorf("docs/raft.md names %s, which is no test", m[1])
			}
		} else if _, err := os.Stat(filepath.Join("../controller", m[1])); err != nil {
			t.Errorf("docs/raft.md names %s: %v", m[1], err)
		}
	}
}
