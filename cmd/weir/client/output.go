package client

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"
)

// table is one listing: rows for people, value for programs.
type table struct {
	header []string
	rows   [][]string
	value  any // what json prints: always an object or array with snake_case names
}

func (t *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.rows = append(t.rows, row)
}

// print writes t in the form that --output asks for.
func (t *table) print(c *cli.Context, w io.Writer) error {
	switch form := c.String("output"); form {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(t.value)
	case "table":
		tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(tw, strings.Join(t.header, "\t"))
		for _, r := range t.rows {
			fmt.Fprintln(tw, strings.Join(r, "\t"))
		}
		return tw.Flush()
	default:
		return usagef("unknown output %q; use table or json", form)
	}
}

// checkOutput refuses a form of output that there is none of, before a verb does its work.
func checkOutput(c *cli.Context) error {
	if form := c.String("output"); form != "table" && form != "json" {
		return usagef("unknown output %q; use table or json", form)
	}
	return nil
}

// ids prints broker ids as Kafka's tools do: 1,2,3.
func ids(list []int32) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(list)), ","), "[]")
}
