package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirmq/weir/integration/chaos/check"
	"github.com/weirmq/weir/integration/chaos/history"
)

var (
	rewrite = flag.Bool("rewrite", false, "rewrite the structures under testdata")
	out     = flag.String("out", "", "a folder for the pages, to look at them")
)

func pageOf(t *testing.T, r *check.Report, name string) string {
	t.Helper()
	var buf bytes.Buffer
	m := Meta{Version: "v0.1.0", Cluster: "3 nodes, 6 partitions, replication factor 3", Notes: []string{"This host could not step clocks <or more>."}}
	if err := Write(&buf, r, m); err != nil {
		t.Fatal(err)
	}
	if *out != "" {
		if err := os.WriteFile(filepath.Join(*out, name+".html"), buf.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return buf.String()
}

var code = regexp.MustCompile(`(?s)<(style|script)>.*?</(style|script)>`)

// structure is a page's elements by depth with their ids and classes; what repeats is
// counted roughly, since how many ticks or columns there are is not structure.
func structure(t *testing.T, page string) string {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(code.ReplaceAllString(page, "<$1></$1>")))
	d.Entity = xml.HTMLEntity
	var (
		b     strings.Builder
		last  string
		depth int
	)
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		if err != nil {
			t.Fatalf("the page is not well formed: %v", err)
		}
		switch e := tok.(type) {
		case xml.StartElement:
			line := strings.Repeat("  ", depth) + e.Name.Local
			for _, a := range e.Attr {
				switch a.Name.Local {
				case "id":
					line += "#" + a.Value
				case "class":
					line += "." + strings.ReplaceAll(a.Value, " ", ".")
				}
			}
			if line != last {
				b.WriteString(line + "\n")
			}
			last = line
			depth++
		case xml.EndElement:
			depth--
		}
	}
}

// TestStructure compares the elements of two pages with those recorded.
func TestStructure(t *testing.T) {
	for name, r := range map[string]*check.Report{"valid": reportOf(t, 42, false), "invalid": reportOf(t, 42, true)} {
		if string(r.Verdict) != name {
			t.Errorf("verdict %s, want %s", r.Verdict, name)
		}
		got := structure(t, pageOf(t, r, name))
		file := filepath.Join("testdata", name+".txt")
		if *rewrite {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s has another structure; -rewrite records it:\n%s", name, difference(string(want), got))
		}
	}
}

// difference is the first lines that differ.
func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d: got %q, want %q", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("got %d lines, want %d", len(g), len(w))
}

// TestAlone checks that a page needs nothing else.
func TestAlone(t *testing.T) {
	page := pageOf(t, reportOf(t, 1, true), "alone")
	for _, bad := range []string{"http:", "https:", "src=", "@import", "url(/", "<link", "ZgotmplZ", "NaN", "Inf"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	for _, want := range []string{"lost-write", "orders-2", "scripts/chaos -seed 42", "prefers-color-scheme: dark", "&lt;or more&gt;", "power loss", "no majority"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// TestEmpty checks that a page comes of a history with nothing in it.
func TestEmpty(t *testing.T) {
	var buf bytes.Buffer
	w, err := history.NewWriter(&buf, history.Header{})
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := check.Analyze(func() (*history.Reader, error) { return history.NewReader(bytes.NewReader(buf.Bytes())) }, check.Options{Failures: []string{"no node came up"}})
	if err != nil {
		t.Fatal(err)
	}
	page := pageOf(t, r, "empty")
	structure(t, page)
	if !strings.Contains(page, "no node came up") || strings.Contains(page, "NaN") {
		t.Error("the page does not say what went wrong, or says NaN")
	}
}

// TestHostile checks that what nodes and keys are called can not become markup.
func TestHostile(t *testing.T) {
	r := reportOf(t, 2, true)
	const evil = `</script><script>alert(1)</script>"'<b>`
	for k := range r.Names {
		r.Names[k] = evil
	}
	for i := range r.Injections {
		r.Injections[i].Kind, r.Injections[i].Target = evil, evil
	}
	r.Header.Command, r.Failures = evil, []string{evil}
	page := pageOf(t, r, "hostile")
	structure(t, page)
	if strings.Contains(page, "<script>alert") || strings.Count(page, "<script>") != 1 {
		t.Error("a name became markup")
	}
}

func TestSpans(t *testing.T) {
	for _, c := range []struct {
		v    float64
		want string
	}{{0, "0"}, {1e-6, "1 µs"}, {0.0123, "12.3 ms"}, {0.9999, "1 s"}, {1.234, "1.23 s"}, {99.9, "99.9 s"}, {3599, "59:59"}, {7322, "2:02:02"}} {
		if got := seconds(c.v); got != c.want {
			t.Errorf("seconds(%v) = %q, want %q", c.v, got, c.want)
		}
	}
}
