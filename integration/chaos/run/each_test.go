package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/integration/chaos/check"
	"github.com/weirmq/weir/integration/chaos/history"
)

// TestTabulate checks that figures that were kept come back as one table, and that a
// kind that has its figures is not measured again.
func TestTabulate(t *testing.T) {
	out := t.TempDir()
	keep := func(kind string, silences ...time.Duration) {
		f := figure{Kind: kind, Nodes: 3, Resolution: 20 * time.Millisecond}
		for _, s := range silences {
			f.Injections = append(f.Injections, check.Injection{Window: history.Window{Kind: kind, Survivable: true}, Silence: s})
		}
		dir := filepath.Join(out, kind)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := storeFigure(dir, f); err != nil {
			t.Fatal(err)
		}
	}
	keep("kill", time.Second, 3*time.Second, 2*time.Second)
	keep("pause", 0, 0)
	var text strings.Builder
	if err := tabulate(out, &text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| `kill`             |          3 |                2 s |      3 s |", "| `pause`            |          2 |            < 20 ms |"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, text.String())
		}
	}
	page, err := os.ReadFile(filepath.Join(out, "figures.html"))
	if err != nil || !strings.Contains(string(page), "kill") || !strings.Contains(string(page), "3 nodes") {
		t.Errorf("the page lacks what the table has (%v)", err)
	}
	s := &settings{each: 3}
	s.Out, s.Self = out, filepath.Join(out, "nothing") // to measure anything would be an error
	if err := s.choose("kill"); err != nil {
		t.Fatal(err)
	}
	if code, err := each(s, nil, &text); code != exitValid || err != nil {
		t.Errorf("measured again: code %d, %v", code, err)
	}
	s.each = 4
	if code, err := each(s, nil, &text); code == exitValid || err == nil {
		t.Error("three of four injections were enough")
	}
}
