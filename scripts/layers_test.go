package scripts

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/weirmq/weir"

// layers is the import table: for each package, the packages of ours that its
// non-test files may import. A package that is missing here may not exist.
var layers = map[string][]string{
	"wire/codec":       {},
	"wire/batch":       {},
	"wire/compress":    {},
	"wire":             {"wire/codec", "wire/batch"},
	"storage/vfs":      {},
	"storage":          {"storage/vfs", "wire/batch", "wire/compress"},
	"fsm":              {"wire/codec", "wire/batch"},
	"controller/elect": {"fsm", "wire/batch"},
	"broker/isr":       {"fsm", "wire/batch"},
	"broker/feed":      {"broker/isr", "fsm", "wire/batch", "wire/codec"},
	"broker/group":     {"fsm", "wire/batch"},
	"broker/send":      {"storage"},
	"controller/wal":   {"storage/vfs"},
	"controller":       {"controller/elect", "controller/wal", "fsm", "storage/vfs", "wire", "wire/codec"},
	"broker": {"wire", "wire/codec", "wire/batch", "wire/compress", "storage", "storage/vfs", "fsm",
		"controller", "controller/elect", "broker/isr", "broker/feed", "broker/group", "broker/send"},
	"cmd/weir":        {"broker", "controller", "cmd/weir/client", "storage", "storage/vfs", "wire", "wire/batch", "wire/compress", "fsm"},
	"cmd/weir/client": {},
	"scripts":         {},
}

// free lists the folders whose packages may import anything.
var free = []string{"integration/"}

// pure lists the packages that may not touch the outside world.
var pure = []string{"wire", "wire/codec", "wire/batch", "fsm", "controller/elect", "broker/isr", "broker/feed", "broker/group"}

// impure is what a pure package may not import directly. Time is allowed as a
// type; reading the clock is forbidden by the linter.
var impure = []string{"net", "os", "sync", "sync/atomic", "context", "log", "log/slog", "math/rand", "math/rand/v2", "crypto/rand",
	"github.com/hashicorp/go-hclog", "github.com/prometheus/client_golang/prometheus"}

type listed struct {
	ImportPath string
	Imports    []string
	GoFiles    []string
}

func listPackages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,GoFiles", "./...")
	cmd.Dir = ".."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, stderr.String())
	}
	var pkgs []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return pkgs
		}
		if err != nil {
			t.Fatalf("go list output: %v", err)
		}
		pkgs = append(pkgs, p)
	}
}

func TestLayers(t *testing.T) {
	pkgs := listPackages(t)
	if len(pkgs) < 10 {
		t.Fatalf("go list found only %d packages: the walk is broken", len(pkgs))
	}
	for _, p := range pkgs {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if slices.ContainsFunc(free, func(f string) bool { return strings.HasPrefix(name, f) }) {
			continue
		}
		allowed, known := layers[name]
		if !known {
			t.Errorf("package %s is not in the import table", name)
			continue
		}
		for _, imp := range p.Imports {
			ours, isOurs := strings.CutPrefix(imp, module+"/")
			if isOurs && !slices.Contains(allowed, ours) {
				t.Errorf("%s imports %s, which the import table does not allow", name, ours)
			}
		}
	}
}

func TestPurePackages(t *testing.T) {
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if !slices.Contains(pure, name) {
			continue
		}
		for _, imp := range p.Imports {
			if slices.Contains(impure, imp) {
				t.Errorf("%s is pure but imports %s", name, imp)
			}
		}
	}
}
