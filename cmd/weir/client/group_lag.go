package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/urfave/cli/v2"
)

// peekPatience bounds the reading of the next unread records.
const peekPatience = 5 * time.Second

// lagRow is how far a group is behind in one partition.
type lagRow struct {
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Committed int64    `json:"committed_offset"` // -1 for none
	Start     int64    `json:"log_start_offset"`
	End       int64    `json:"high_watermark"`
	Lag       int64    `json:"lag"`     // -1 when it is not known
	Seconds   *float64 `json:"seconds"` // age of the next unread record; null when it is not known
	Member    string   `json:"member_id,omitempty"`
	Error     string   `json:"error,omitempty"`
}

// next is the offset that the group reads next: without a commit, the start.
func (r lagRow) next() int64 { return min(max(r.Committed, r.Start), r.End) }

// groupLag compares what a group has committed, or is assigned, with the ends of the partitions.
func groupLag(ctx context.Context, adm groupClient, group string, assigned map[topicPartition]string, chosen topicChoice) ([]lagRow, error) {
	committed, err := committedOffsets(ctx, adm, group)
	if err != nil {
		return nil, err
	}
	rows := map[topicPartition]*lagRow{}
	topics := map[string]bool{}
	row := func(topic string, partition int32) *lagRow {
		tp := topicPartition{topic, partition}
		if rows[tp] == nil {
			rows[tp] = &lagRow{Topic: topic, Partition: partition, Committed: -1, Start: -1, End: -1, Lag: -1, Member: assigned[tp]}
			topics[topic] = true
		}
		return rows[tp]
	}
	for _, o := range committed {
		if chosen.has(o.Topic, o.Partition) {
			row(o.Topic, o.Partition).Committed = o.At
		}
	}
	for tp := range assigned {
		if chosen.has(tp.topic, tp.partition) {
			row(tp.topic, tp.partition)
		}
	}
	if len(rows) > 0 {
		fillEnds(ctx, adm, rows, slices.Sorted(maps.Keys(topics)))
	}
	out := make([]lagRow, 0, len(rows))
	for _, r := range rows {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b lagRow) int {
		if d := strings.Compare(a.Topic, b.Topic); d != 0 {
			return d
		}
		return int(a.Partition) - int(b.Partition)
	})
	return out, nil
}

// fillEnds asks for start and end of each partition. One whose leader cannot be
// asked keeps its error, so that lag works in the middle of a failover.
func fillEnds(ctx context.Context, adm groupClient, rows map[topicPartition]*lagRow, topics []string) {
	starts, startErr := adm.ListStartOffsets(ctx, topics...)
	ends, endErr := adm.ListEndOffsets(ctx, topics...)
	for _, r := range rows {
		start, ok := starts.Lookup(r.Topic, r.Partition)
		end, found := ends.Lookup(r.Topic, r.Partition)
		switch err := errors.Join(start.Err, end.Err); {
		case ok && found && err == nil:
			r.Start, r.End = start.Offset, end.Offset
			r.Lag = r.End - r.next()
		case err != nil:
			r.Error = message(errors.Join(start.Err, end.Err), "")
		default:
			r.Error = lookupError(startErr, endErr)
		}
	}
}

func lookupError(errs ...error) string {
	if err := errors.Join(errs...); err != nil {
		return err.Error()
	}
	return kerr.UnknownTopicOrPartition.Message
}

// peek reads the next unread record of each partition that has one, and notes its age.
func peek(ctx context.Context, opts []kgo.Opt, rows []lagRow) error {
	at, wanted := map[string]map[int32]kgo.Offset{}, map[topicPartition]*lagRow{}
	for i := range rows {
		r := &rows[i]
		switch {
		case r.Lag == 0:
			r.Seconds = new(float64)
		case r.Lag > 0:
			if at[r.Topic] == nil {
				at[r.Topic] = map[int32]kgo.Offset{}
			}
			at[r.Topic][r.Partition] = kgo.NewOffset().At(r.next())
			wanted[topicPartition{r.Topic, r.Partition}] = r
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	cl, err := kgo.NewClient(append(opts, kgo.ConsumePartitions(at), kgo.FetchMaxPartitionBytes(1))...)
	if err != nil {
		return fmt.Errorf("read the next records: %w", err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, peekPatience)
	defer cancel()
	for len(wanted) > 0 && ctx.Err() == nil {
		cl.PollFetches(ctx).EachRecord(func(rec *kgo.Record) {
			tp := topicPartition{rec.Topic, rec.Partition}
			if r := wanted[tp]; r != nil {
				age := max(0, time.Since(rec.Timestamp).Seconds())
				r.Seconds = &age
				delete(wanted, tp)
				cl.PauseFetchPartitions(map[string][]int32{rec.Topic: {rec.Partition}})
			}
		})
	}
	return nil // what could not be read stays unknown
}

// groupLags is the whole answer for one group.
type groupLags struct {
	Group string   `json:"group"`
	State string   `json:"state"`
	Total int64    `json:"total_lag"`
	Rows  []lagRow `json:"partitions"`
}

func (e *Env) groupLag(c *cli.Context) error {
	names, err := groupNames(c)
	if err != nil {
		return err
	}
	chosen, err := parseTopics(c.StringSlice("topic"))
	if err != nil {
		return err
	}
	ctx, adm, done, err := e.groups(c)
	if err != nil {
		return err
	}
	defer done()
	var all []groupLags
	for _, name := range names {
		d, err := describeGroup(ctx, adm, name)
		if isMissingGroup(err) {
			return noSuchGroup(name)
		}
		var rows []lagRow
		if err == nil {
			rows, err = groupLag(ctx, adm, name, d.assigned(), chosen)
		}
		if err == nil {
			err = peek(ctx, clientOpts(brokersOf(c)), rows)
		}
		if err != nil {
			return explain("tell the lag of group "+name, brokersOf(c), err)
		}
		g := groupLags{Group: name, State: d.State, Rows: rows}
		for _, r := range rows {
			g.Total += max(0, r.Lag)
		}
		all = append(all, g)
	}
	return e.printLags(c, all)
}

func (e *Env) printLags(c *cli.Context, all []groupLags) error {
	if c.String("output") != "table" {
		return (&table{value: all}).print(c, e.Stdout)
	}
	for _, g := range all {
		fmt.Fprintf(e.Stdout, "group %s, %s, %d records behind\n", g.Group, g.State, g.Total)
		if err := lagTable(g.Rows, true).print(c, e.Stdout); err != nil {
			return err
		}
	}
	return nil
}

// lagTable is the listing of lags; withSeconds for those that were peeked at.
func lagTable(rows []lagRow, withSeconds bool) *table {
	t := &table{header: []string{"TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER"}, value: rows}
	if withSeconds {
		t.header = slices.Insert(t.header, 5, "SECONDS")
	}
	for _, r := range rows {
		cells := []any{r.Topic, r.Partition, known(r.Committed, "-"), known(r.End, "?"), known(r.Lag, "?")}
		if withSeconds {
			seconds := "?"
			if r.Seconds != nil {
				seconds = fmt.Sprintf("%.1f", *r.Seconds)
			}
			cells = append(cells, seconds)
		}
		t.add(append(cells, orDash(r.Member))...)
	}
	return t
}

func known(n int64, unknown string) string {
	if n < 0 {
		return unknown
	}
	return fmt.Sprint(n)
}

// offsetRow is one committed offset.
type offsetRow struct {
	Topic       string `json:"topic"`
	Partition   int32  `json:"partition"`
	Offset      int64  `json:"offset"`
	LeaderEpoch int32  `json:"leader_epoch"`
	Metadata    string `json:"metadata"`
}

// groupOffsetList is the whole answer for one group.
type groupOffsetList struct {
	Group   string      `json:"group"`
	Offsets []offsetRow `json:"offsets"`
}

func (e *Env) groupOffsets(c *cli.Context) error {
	names, err := groupNames(c)
	if err != nil {
		return err
	}
	chosen, err := parseTopics(c.StringSlice("topic"))
	if err != nil {
		return err
	}
	ctx, adm, done, err := e.groups(c)
	if err != nil {
		return err
	}
	defer done()
	t := table{header: []string{"GROUP", "TOPIC", "PARTITION", "OFFSET", "EPOCH", "METADATA"}}
	all := []groupOffsetList{}
	for _, name := range names {
		committed, err := committedOffsets(ctx, adm, name)
		if err != nil {
			return explain("list offsets of group "+name, brokersOf(c), err)
		}
		g := groupOffsetList{Group: name, Offsets: []offsetRow{}}
		for _, o := range committed {
			if !chosen.has(o.Topic, o.Partition) {
				continue
			}
			g.Offsets = append(g.Offsets, offsetRow{o.Topic, o.Partition, o.At, o.LeaderEpoch, o.Metadata})
			t.add(name, o.Topic, o.Partition, o.At, known(int64(o.LeaderEpoch), "-"), orDash(o.Metadata))
		}
		all = append(all, g)
	}
	t.value = all
	return t.print(c, e.Stdout)
}
