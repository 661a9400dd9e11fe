package report

import (
	"embed"
	"fmt"
	"html/template"
	"io"

	"github.com/weirmq/weir/integration/chaos/check"
)

//go:embed page.html figures.html faults.html style.css script.js
var files embed.FS

// Meta is what the caller knows of the run beside its history.
type Meta struct {
	Title   string   // as "Chaos, all faults"; empty stands for "Chaos run"
	Version string   // of the broker
	Cluster string   // as "3 nodes, 12 partitions, replication factor 3"
	Notes   []string // what the reader should know, as faults that this host could not inject
}

// Write writes the page.
func Write(w io.Writer, r *check.Report, m Meta) error {
	t, err := parse()
	if err != nil {
		return err
	}
	if err := t.ExecuteTemplate(w, "page", newPage(r, m)); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// parse makes the template. The style and the script are part of its text, so
// that they are checked as what they are.
func parse() (*template.Template, error) {
	t := template.New("")
	for _, f := range []struct{ name, file, before, after string }{
		{"style", "style.css", "<style>\n", "</style>"},
		{"script", "script.js", "<script>\n", "</script>"},
		{"faults", "faults.html", "", ""},
		{"page", "page.html", "", ""},
		{"figures", "figures.html", "", ""},
	} {
		text, err := files.ReadFile(f.file)
		if err != nil {
			return nil, fmt.Errorf("read the report's %s: %w", f.file, err)
		}
		if _, err := t.New(f.name).Parse(f.before + string(text) + f.after); err != nil {
			return nil, fmt.Errorf("parse the report's %s: %w", f.file, err)
		}
	}
	return t, nil
}
