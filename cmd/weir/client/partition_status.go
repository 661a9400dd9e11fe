package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/urfave/cli/v2"
)

// movesEvery is how often it is asked what is left to move.
const movesEvery = 250 * time.Millisecond

// ongoingRow is one partition that is on the move.
type ongoingRow struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Replicas  []int32 `json:"replicas"`
	Adding    []int32 `json:"adding"`
	Removing  []int32 `json:"removing"`
	ISR       []int32 `json:"isr"`
	// Bytes is what the new replicas will have together, Done what they have: -1 when nobody says.
	Bytes int64 `json:"bytes"`
	Done  int64 `json:"bytes_done"`
}

func (e *Env) partitionStatus(c *cli.Context) error {
	chosen, err := parseTopics(c.Args().Slice())
	if err != nil {
		return err
	}
	if err := checkOutput(c); err != nil {
		return err
	}
	ctx, cl, adm, done, err := e.adminClient(c)
	if err != nil {
		return err
	}
	defer done()
	rows, err := ongoing(ctx, cl, adm, chosen)
	if err != nil {
		return explain("see what is on the move", brokersOf(c), err)
	}
	t := table{header: []string{"TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING", "ISR", "COPIED"}, value: rows}
	for _, r := range rows {
		t.add(r.Topic, r.Partition, ids(r.Replicas), dash(r.Adding), dash(r.Removing), ids(r.ISR), r.copied())
	}
	if len(rows) == 0 && c.String("output") == "table" {
		fmt.Fprintln(e.Stdout, "nothing is on the move")
		return nil
	}
	return t.print(c, e.Stdout)
}

// dash prints broker ids, and something where there are none.
func dash(list []int32) string {
	if len(list) == 0 {
		return "-"
	}
	return ids(list)
}

// copied says how much of the new replicas is there.
func (r ongoingRow) copied() string {
	switch {
	case r.Bytes < 0:
		return "?"
	case r.Bytes == 0:
		return "nothing to copy"
	}
	return fmt.Sprintf("%d%% of %s", 100*r.Done/r.Bytes, bytesText(r.Bytes))
}

// bytesText prints a number of bytes for people.
func bytesText(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}

// listMoves asks which of the chosen partitions are on the move, by topic and partition.
func listMoves(ctx context.Context, cl *kgo.Client, chosen topicChoice) ([]ongoingRow, error) {
	req := kmsg.NewPtrListPartitionReassignmentsRequest() // kadm cannot ask for all
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = verdict(resp.ErrorCode, resp.ErrorMessage)
	}
	if err != nil {
		return nil, err
	}
	rows := []ongoingRow{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if chosen.has(t.Topic, p.Partition) {
				rows = append(rows, ongoingRow{Topic: t.Topic, Partition: p.Partition, Replicas: p.Replicas, Adding: p.AddingReplicas, Removing: p.RemovingReplicas, Bytes: -1, Done: -1})
			}
		}
	}
	slices.SortFunc(rows, func(a, b ongoingRow) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return rows, nil
}

// ongoing adds to listMoves who is in sync and how far the copies are. What nobody answers is left open.
func ongoing(ctx context.Context, cl *kgo.Client, adm *kadm.Client, chosen topicChoice) ([]ongoingRow, error) {
	rows, err := listMoves(ctx, cl, chosen)
	if err != nil || len(rows) == 0 {
		return rows, err
	}
	set := kadm.TopicsSet{}
	for _, r := range rows {
		set.Add(r.Topic, r.Partition)
	}
	topics, err := adm.ListTopics(ctx, set.Topics()...)
	if err != nil {
		return nil, err
	}
	dirs, _ := adm.DescribeAllLogDirs(ctx, set) // of those that answer
	sizes := map[int32]kadm.DescribedLogDirTopics{}
	dirs.Each(func(d kadm.DescribedLogDir) { sizes[d.Broker] = d.Topics })
	for i := range rows {
		r := &rows[i]
		p, ok := topics[r.Topic].Partitions[r.Partition]
		if !ok {
			continue
		}
		r.ISR = p.ISR
		full, ok := sizes[p.Leader].Lookup(r.Topic, r.Partition)
		if !ok {
			continue
		}
		r.Bytes, r.Done = full.Size*int64(len(r.Adding)), 0
		for _, id := range r.Adding {
			if slices.Contains(p.ISR, id) {
				r.Done += full.Size
			} else if has, ok := sizes[id].Lookup(r.Topic, r.Partition); ok {
				r.Done += min(has.Size, full.Size)
			}
		}
	}
	return rows, nil
}

func (e *Env) partitionCancel(c *cli.Context) error {
	chosen, err := parseTopics(c.Args().Slice())
	if err != nil {
		return err
	}
	if err := checkOutput(c); err != nil {
		return err
	}
	ctx, cl, adm, done, err := e.adminClient(c)
	if err != nil {
		return err
	}
	defer done()
	const what = "cancel moves"
	moves, err := listMoves(ctx, cl, chosen)
	if err != nil {
		return explain(what, brokersOf(c), err)
	}
	rows := []moveRow{}
	for _, m := range moves {
		rows = append(rows, moveRow{Topic: m.Topic, Partition: m.Partition, From: m.Replicas})
	}
	if err := reassign(ctx, cl, c, rows); err != nil {
		return explain(what, brokersOf(c), err)
	}
	if err := e.awaitMoves(c, cl, adm, rows, "cancelled"); err != nil {
		return err
	}
	return e.moved(c, what, rows)
}

// awaitMoves waits, if that is asked for, until none of the partitions is on the move, and says of each that it is.
func (e *Env) awaitMoves(c *cli.Context, cl *kgo.Client, adm *kadm.Client, rows []moveRow, status string) error {
	if !c.Bool("wait") {
		return nil
	}
	chosen := topicChoice{}
	for _, r := range rows {
		if r.err == nil {
			chosen[r.Topic] = append(chosen[r.Topic], r.Partition)
		}
	}
	if len(chosen) == 0 {
		return nil
	}
	bar := e.newBar(int64(len(rows)), "moving", false)
	defer bar.done()
	for shown := 0; ; {
		ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
		left, err := listMoves(ctx, cl, chosen)
		cancel()
		if err != nil {
			return explain("see what is on the move", brokersOf(c), err)
		}
		now := len(rows) - len(left)
		bar.add(now - shown)
		shown = now
		if len(left) == 0 {
			return e.checkMoves(c, adm, rows, status)
		}
		select {
		case <-time.After(movesEvery):
		case <-c.Context.Done():
			return &Error{ExitInterrupted, fmt.Sprintf("interrupted: %d partitions are still on the move; see 'weir partition status'", len(left))}
		}
	}
}

// checkMoves looks whether the partitions are where they were to be: somebody else may have moved them, too.
func (e *Env) checkMoves(c *cli.Context, adm *kadm.Client, rows []moveRow, status string) error {
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	topics, err := adm.ListTopics(ctx)
	if err != nil {
		return explain("see where the partitions are", brokersOf(c), err)
	}
	for i := range rows {
		r := &rows[i]
		switch is := topics[r.Topic].Partitions[r.Partition].Replicas; {
		case r.err != nil:
		case r.To == nil || slices.Equal(is, r.To):
			r.Status = status
		default:
			r.Status, r.Error = "on "+dash(is)+": moved or cancelled by somebody else", "CHANGED"
			r.err = &Error{ExitFailed, fmt.Sprintf("%s-%d is %s", r.Topic, r.Partition, r.Status)}
		}
	}
	return nil
}
