package report

import (
	"fmt"
	"io"
	"time"

	"github.com/weirmq/weir/integration/chaos/check"
)

// Figures are what kinds of faults cost, each measured alone, over several runs.
type Figures struct {
	Faults     []check.Fault
	Resolution time.Duration // shorter times are not kept
}

// WriteFigures writes a page with the table of figures alone.
func WriteFigures(w io.Writer, f Figures, m Meta) error {
	t, err := parse()
	if err != nil {
		return err
	}
	p := page{Title: m.Title, Notes: m.Notes, Facts: []fact{{"Broker", m.Version}, {"Cluster", m.Cluster}}, Resolution: span(f.Resolution)}
	for i, fault := range f.Faults {
		p.Faults = append(p.Faults, p.faultRow(fault, fmt.Sprintf("k%d", i%kindClasses)))
	}
	if err := t.ExecuteTemplate(w, "figures", p); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	return nil
}

// WriteTable writes the same table as text that is at once a table of Markdown.
func WriteTable(w io.Writer, f Figures) error {
	p := page{Resolution: span(f.Resolution)}
	rows := [][]string{{"fault", "injections", "one partition, p50", "max", "all partitions, p50", "max"}, {"---", "---:", "---:", "---:", "---:", "---:"}}
	for _, fault := range f.Faults {
		r := p.faultRow(fault, "")
		rows = append(rows, []string{"`" + r.Kind + "`", fmt.Sprint(r.Count), r.P50, r.Max, r.AllP50, r.AllM})
	}
	for _, row := range rows {
		_, err := fmt.Fprintf(w, "| %-18s | %10s | %18s | %8s | %19s | %8s |\n", row[0], row[1], row[2], row[3], row[4], row[5])
		if err != nil {
			return fmt.Errorf("write figures: %w", err)
		}
	}
	return nil
}
