package client

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/urfave/cli/v2"
)

// seekRow is the move of one partition.
type seekRow struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"` // -1 when nothing was committed
	To        int64  `json:"to"`
	Error     string `json:"error,omitempty"`
}

// seekAnswer is the whole answer of seek.
type seekAnswer struct {
	Group    string    `json:"group"`
	Executed bool      `json:"executed"`
	Moves    []seekRow `json:"moves"`
}

// parseSeek reads --to. Other than consume's -o, +N and -N are from where the group is.
func parseSeek(s string) (position, error) {
	if strings.HasPrefix(s, "+") || strings.HasPrefix(s, "-") {
		at, err := parseOffset("+" + s[1:])
		if err != nil {
			return position{}, usagef("--to %q is not a position; use start, end, N, +N, -N or @MILLISECONDS", s)
		}
		if s[0] == '-' {
			at.value = -at.value
		}
		return position{"committed", at.value}, nil
	}
	at, err := parseOffset(s)
	if err != nil {
		return position{}, usagef("--to %q is not a position; use start, end, N, +N, -N or @MILLISECONDS", s)
	}
	return at, nil
}

func (e *Env) groupSeek(c *cli.Context) error {
	group, err := oneGroup(c)
	if err != nil {
		return err
	}
	if c.String("to") == "" {
		return usagef("group seek needs --to: start, end, N, +N, -N or @MILLISECONDS")
	}
	to, err := parseSeek(c.String("to"))
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
	moves, err := planSeek(ctx, adm, group, to, chosen)
	if err != nil {
		return explain("seek group "+group, brokersOf(c), err)
	}
	answer := seekAnswer{Group: group, Moves: moves, Executed: c.Bool("execute")}
	var failed error
	if answer.Executed {
		if failed, err = executeSeek(ctx, adm, group, moves); err != nil {
			return explain("seek group "+group, brokersOf(c), err)
		}
	}
	return e.printSeek(c, answer, failed)
}

// planSeek decides where each partition goes, within what the partition holds.
func planSeek(ctx context.Context, adm groupClient, group string, to position, chosen topicChoice) ([]seekRow, error) {
	committed, err := committedOffsets(ctx, adm, group)
	if err != nil {
		return nil, err
	}
	from := map[topicPartition]int64{}
	topics := map[string]bool{}
	for t := range chosen {
		topics[t] = true
	}
	for _, o := range committed {
		if chosen.has(o.Topic, o.Partition) {
			from[topicPartition{o.Topic, o.Partition}] = o.At
			topics[o.Topic] = true
		}
	}
	if len(topics) == 0 {
		return nil, &Error{ExitNotFound, fmt.Sprintf("group %s has committed no offsets; name topics with -t", group)}
	}
	var moves []seekRow
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		// A topic that the user named is moved whole; one that was found, where it was committed.
		only := chosen[topic]
		if _, named := chosen[topic]; !named {
			for tp := range from {
				if tp.topic == topic {
					only = append(only, tp.partition)
				}
			}
		}
		rows, err := seekTopic(ctx, adm, topic, to, only, from)
		if err != nil {
			return nil, err
		}
		moves = append(moves, rows...)
	}
	return moves, nil
}

func seekTopic(ctx context.Context, adm groupClient, topic string, to position, only []int32, from map[topicPartition]int64) ([]seekRow, error) {
	numbers := make([]int, len(only))
	for i, p := range only {
		numbers[i] = int(p)
	}
	ask := to
	if to.base == "committed" {
		ask = position{base: "start"}
	}
	all, err := listSpans(ctx, adm.Client, topic, ask, numbers, true)
	if err != nil {
		return nil, err
	}
	var rows []seekRow
	for _, p := range slices.Sorted(maps.Keys(all)) {
		s := all[p]
		was, ok := from[topicPartition{topic, p}]
		if !ok {
			was = -1
		}
		row := seekRow{Topic: topic, Partition: p, From: was, To: s.next}
		if to.base == "committed" {
			if !ok {
				return nil, usagef("--to %+d: partition %d of %s has no committed offset to count from", to.value, p, topic)
			}
			row.To = min(max(was+to.value, s.next), s.end) // s.next is the start here
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// executeSeek commits the moves from outside the group, which is refused while it
// has members. The first result is the failure of single partitions.
func executeSeek(ctx context.Context, adm groupClient, group string, moves []seekRow) (failed, err error) {
	offsets := kadm.Offsets{}
	for _, m := range moves {
		offsets.Add(kadm.Offset{Topic: m.Topic, Partition: m.Partition, At: m.To, LeaderEpoch: -1})
	}
	answers, err := adm.CommitOffsets(ctx, group, offsets)
	if err != nil {
		return nil, err
	}
	for i := range moves {
		m := &moves[i]
		if o, ok := answers.Lookup(m.Topic, m.Partition); ok && o.Err != nil {
			m.Error, failed = message(o.Err, ""), o.Err
		}
	}
	return failed, nil
}

func (e *Env) printSeek(c *cli.Context, a seekAnswer, failed error) error {
	t := table{header: []string{"TOPIC", "PARTITION", "FROM", "TO"}, value: a}
	if failed != nil {
		t.header = append(t.header, "STATUS")
	}
	for _, m := range a.Moves {
		cells := []any{m.Topic, m.Partition, known(m.From, "-"), m.To}
		if failed != nil {
			cells = append(cells, orDash(m.Error))
		}
		t.add(cells...)
	}
	if err := t.print(c, e.Stdout); err != nil {
		return err
	}
	if hasCode(failed, kerr.UnknownMemberID) {
		return &Error{ExitFailed, fmt.Sprintf("group %s has members, which would go on from where they are: stop them first, see 'weir group members %s'", a.Group, a.Group)}
	}
	if failed == nil && !a.Executed {
		fmt.Fprintln(e.Stderr, "weir: nothing was changed; add --execute to move the offsets")
	}
	return explain("seek group "+a.Group, brokersOf(c), failed)
}
