package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/urfave/cli/v2"
)

// topicOffsetRow is one partition of topic offsets.
type topicOffsetRow struct {
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition"`
	Start     int64      `json:"log_start_offset"` // -1 when its leader did not answer
	End       int64      `json:"high_watermark"`
	At        *int64     `json:"at,omitempty"`           // the first record at or after --at; the end when there is none
	Time      *time.Time `json:"at_timestamp,omitempty"` // of that record
	Error     string     `json:"error,omitempty"`
}

// parseTime reads --at.
func parseTime(s string) (int64, error) {
	if at, err := parseOffset(s); err == nil && at.base == "time" {
		return at.value, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return 0, usagef("--at %q is not a time; use @MILLISECONDS or, for example, 2006-01-02T15:04:05Z", s)
	}
	return t.UnixMilli(), nil
}

func (e *Env) topicOffsets(c *cli.Context) error {
	names := c.Args().Slice()
	if len(names) == 0 {
		return usagef("topic offsets needs a name: weir topic offsets TOPIC…")
	}
	var at *int64
	if c.IsSet("at") {
		ms, err := parseTime(c.String("at"))
		if err != nil {
			return err
		}
		at = &ms
	}
	ctx, adm, done, err := e.admin(c)
	if err != nil {
		return err
	}
	defer done()
	var rows []topicOffsetRow
	for _, name := range names {
		more, err := offsetsOf(ctx, adm, name, at)
		if err != nil {
			return explain("list the offsets of topic "+name, brokersOf(c), err)
		}
		rows = append(rows, more...)
	}
	if only := c.IntSlice("partition"); len(only) > 0 {
		rows = slices.DeleteFunc(rows, func(r topicOffsetRow) bool { return !slices.Contains(only, int(r.Partition)) })
	}
	return printOffsets(c, e, rows, at != nil)
}

// offsetsOf asks for the offsets of one topic.
func offsetsOf(ctx context.Context, adm *kadm.Client, name string, at *int64) ([]topicOffsetRow, error) {
	starts, err := adm.ListStartOffsets(ctx, name)
	if err != nil {
		return nil, err
	}
	ends, err := adm.ListEndOffsets(ctx, name)
	if err != nil {
		return nil, err
	}
	var found kadm.ListedOffsets
	if at != nil {
		if found, err = adm.ListOffsetsAfterMilli(ctx, *at, name); err != nil {
			return nil, err
		}
	}
	var rows []topicOffsetRow
	for _, start := range starts.Offsets().Sorted() {
		s, _ := starts.Lookup(name, start.Partition)
		end, _ := ends.Lookup(name, start.Partition)
		r := topicOffsetRow{Topic: name, Partition: start.Partition, Start: s.Offset, End: end.Offset}
		if f, ok := found.Lookup(name, start.Partition); ok && f.Err == nil {
			r.At = &f.Offset
			if f.Timestamp >= 0 {
				t := time.UnixMilli(f.Timestamp).UTC()
				r.Time = &t
			}
		}
		for _, err := range []error{s.Err, end.Err} {
			if err != nil {
				r.Start, r.End, r.Error = -1, -1, message(err, "")
			}
		}
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		if err := starts.Error(); err != nil {
			return nil, err
		}
		return nil, kerr.UnknownTopicOrPartition
	}
	if rows[0].Partition < 0 { // how a topic that is not there is reported
		return nil, starts.Error()
	}
	return rows, nil
}

func printOffsets(c *cli.Context, e *Env, rows []topicOffsetRow, withTime bool) error {
	t := table{header: []string{"TOPIC", "PARTITION", "START", "END", "RECORDS"}, value: rows}
	if withTime {
		t.header = append(t.header, "AT", "TIME")
	}
	for _, r := range rows {
		cells := []any{r.Topic, r.Partition, r.Start, r.End, r.End - r.Start}
		if r.Error != "" {
			cells = []any{r.Topic, r.Partition, "?", "?", r.Error}
		}
		if withTime {
			at, when := "?", ""
			if r.At != nil {
				at = fmt.Sprint(*r.At)
			}
			if r.Time != nil {
				when = r.Time.Format(time.RFC3339Nano)
			}
			cells = append(cells, at, when)
		}
		t.add(cells...)
	}
	return t.print(c, e.Stdout)
}

// trimRow is one partition of topic trim.
type trimRow struct {
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
	Records   int64  `json:"records"`
	Error     string `json:"error,omitempty"`
}

// trimAnswer is the whole answer of topic trim.
type trimAnswer struct {
	Topic    string    `json:"topic"`
	Executed bool      `json:"executed"`
	Trims    []trimRow `json:"trims"`
}

func (e *Env) topicTrim(c *cli.Context) error {
	if c.NArg() != 1 {
		return usagef("topic trim needs one name: weir topic trim TOPIC --to PLACE")
	}
	name := c.Args().First()
	to, err := parseOffset(c.String("to"))
	if err != nil {
		return usagef("--to %q is not a place; use end, N, +N, -N or @MILLISECONDS", c.String("to"))
	}
	ctx, adm, done, err := e.admin(c)
	if err != nil {
		return err
	}
	defer done()
	answer := trimAnswer{Topic: name, Executed: !c.Bool("dry-run")}
	if answer.Trims, err = planTrim(ctx, adm, name, to, c.IntSlice("partition")); err != nil {
		return explain("trim topic "+name, brokersOf(c), err)
	}
	records := int64(0)
	for _, r := range answer.Trims {
		records += r.Records
	}
	if answer.Executed && records > 0 {
		if err := e.confirm(c, fmt.Sprintf("Delete %d records of %s for good?", records, name)); err != nil {
			return err
		}
		if err := executeTrim(ctx, adm, &answer); err != nil {
			return explain("trim topic "+name, brokersOf(c), err)
		}
	}
	return e.printTrim(c, answer)
}

// planTrim decides where each partition is to start, within what it holds.
func planTrim(ctx context.Context, adm *kadm.Client, name string, to position, only []int) ([]trimRow, error) {
	spans, err := listSpans(ctx, adm, name, to, only, true)
	if err != nil {
		return nil, err
	}
	starts, err := adm.ListStartOffsets(ctx, name)
	if err != nil {
		return nil, err
	}
	var rows []trimRow
	for p, s := range spans {
		start, _ := starts.Lookup(name, p)
		if start.Err != nil {
			return nil, start.Err
		}
		rows = append(rows, trimRow{Partition: p, From: start.Offset, To: s.next, Records: max(0, s.next-start.Offset)})
	}
	slices.SortFunc(rows, func(a, b trimRow) int { return int(a.Partition - b.Partition) })
	return rows, nil
}

// executeTrim deletes what was planned and notes what became of each partition.
func executeTrim(ctx context.Context, adm *kadm.Client, answer *trimAnswer) error {
	offsets := kadm.Offsets{}
	for _, r := range answer.Trims {
		if r.Records > 0 {
			offsets.AddOffset(answer.Topic, r.Partition, r.To, -1)
		}
	}
	got, err := adm.DeleteRecords(ctx, offsets)
	if err != nil {
		return err
	}
	for i := range answer.Trims {
		r := &answer.Trims[i]
		if a, ok := got.Lookup(answer.Topic, r.Partition); ok && a.Err != nil {
			r.Error = message(a.Err, "")
			err = a.Err
		}
	}
	if failed := countFailed(answer.Trims); failed == len(answer.Trims) {
		return err
	}
	return nil
}

func countFailed(rows []trimRow) int {
	n := 0
	for _, r := range rows {
		if r.Error != "" {
			n++
		}
	}
	return n
}

func (e *Env) printTrim(c *cli.Context, answer trimAnswer) error {
	t := table{header: []string{"PARTITION", "FROM", "TO", "RECORDS", "STATUS"}, value: answer}
	for _, r := range answer.Trims {
		status := "trimmed"
		switch {
		case r.Error != "":
			status = r.Error
		case r.Records == 0:
			status = "nothing to do"
		case !answer.Executed:
			status = "would be trimmed"
		}
		t.add(r.Partition, r.From, r.To, r.Records, status)
	}
	if err := t.print(c, e.Stdout); err != nil {
		return err
	}
	if failed := countFailed(answer.Trims); failed > 0 {
		return &Error{ExitPartial, fmt.Sprintf("%d of %d partitions were not trimmed", failed, len(answer.Trims))}
	}
	return nil
}
