package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/urfave/cli/v2"
)

func (e *Env) partitionCommand() *cli.Command {
	flags := func(more ...cli.Flag) []cli.Flag { return append(append(connectionFlags(), outputFlag()), more...) }
	wait := &cli.BoolFlag{Name: "wait", Aliases: []string{"w"}, Usage: "return when all of it has been done"}
	return &cli.Command{
		Name: "partition", Aliases: []string{"partitions"}, Usage: "move replicas of partitions between nodes",
		Subcommands: []*cli.Command{
			{
				Name: "move", Usage: "move replicas to other nodes, or away from some", ArgsUsage: "TOPIC[:PARTITION,…]…", Action: e.partitionMove,
				Description: "Returns when the move has begun; a new replica first fetches all records, then the old one goes. " +
					"Replicas that may stay do, and the others are spread evenly. With --from and no topic everything moves away.",
				Flags: flags(wait,
					&cli.StringFlag{Name: "to", Usage: "have the replicas on the nodes `ID,…` only"},
					&cli.StringFlag{Name: "from", Usage: "have no replica on the nodes `ID,…`"},
					&cli.IntFlag{Name: "replicas", Aliases: []string{"r"}, Usage: "have `N` replicas of each; as many as now if not given"},
					&cli.StringSliceFlag{Name: "partition", Aliases: []string{"p"}, Usage: "have partition N of the one topic on exactly these nodes, the first to lead, as `N:ID,…`; may be repeated"},
					&cli.BoolFlag{Name: "dry-run", Usage: "only show what would move"}),
			},
			{Name: "status", Aliases: []string{"move-status"}, Usage: "show what is on the move, and how far it is", ArgsUsage: "[TOPIC[:PARTITION,…]…]", Action: e.partitionStatus, Flags: flags()},
			{
				Name: "cancel", Aliases: []string{"move-cancel"}, Usage: "end moves and have the replicas where they were", ArgsUsage: "[TOPIC[:PARTITION,…]…]", Action: e.partitionCancel,
				Description: "Without a topic everything that is on the move is cancelled.", Flags: flags(wait),
			},
		},
	}
}

// moveRow is the move of one partition.
type moveRow struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	From      []int32 `json:"from"`
	To        []int32 `json:"to"` // null for one that is cancelled
	Status    string  `json:"status"`
	Error     string  `json:"error,omitempty"`
	err       error   // with the broker's words
}

func (e *Env) partitionMove(c *cli.Context) error {
	w, err := parseMove(c)
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
	m, err := adm.Metadata(ctx)
	if err != nil {
		return explain("move partitions", brokersOf(c), err)
	}
	rows, err := w.plan(m)
	if err != nil {
		return err
	}
	if c.Bool("dry-run") {
		for i := range rows {
			rows[i].Status = "would move"
		}
		return e.moved(c, "move partitions", rows)
	}
	if err := reassign(ctx, cl, c, rows); err != nil {
		return explain("move partitions", brokersOf(c), err)
	}
	if err := e.awaitMoves(c, cl, adm, rows, "moved"); err != nil {
		return err
	}
	return e.moved(c, "move partitions", rows)
}

// moved prints the rows and returns an error if any failed: the failure itself where there is one, a count otherwise.
func (e *Env) moved(c *cli.Context, what string, rows []moveRow) error {
	t := table{header: []string{"TOPIC", "PARTITION", "FROM", "TO", "STATUS"}, value: rows}
	failed, first := 0, error(nil)
	for _, r := range rows {
		to := ids(r.To)
		if r.To == nil {
			to = "-"
		}
		t.add(r.Topic, r.Partition, ids(r.From), to, r.Status)
		if r.err != nil {
			failed++
			first = cmp.Or(first, r.err)
		}
	}
	if len(rows) == 0 && c.String("output") == "table" {
		fmt.Fprintln(e.Stdout, "nothing to do")
		return nil
	}
	if err := t.print(c, e.Stdout); err != nil {
		return err
	}
	switch {
	case failed == 0:
		return nil
	case failed == len(rows):
		return explain(what, brokersOf(c), first)
	}
	return &Error{ExitPartial, fmt.Sprintf("%d of %d partitions failed: %v", failed, len(rows), first)}
}

// wish is what partition move was asked for.
type wish struct {
	topics   topicChoice
	to, from []int32
	exact    map[int32][]int32 // by partition
	replicas int               // 0 for as many as there are
}

func parseMove(c *cli.Context) (*wish, error) {
	w := &wish{exact: map[int32][]int32{}, replicas: c.Int("replicas")}
	var err error
	if w.topics, err = parseTopics(c.Args().Slice()); err != nil {
		return nil, err
	}
	if w.to, err = parseIDs("--to", c.String("to")); err != nil {
		return nil, err
	}
	if w.from, err = parseIDs("--from", c.String("from")); err != nil {
		return nil, err
	}
	for _, s := range c.StringSlice("partition") {
		number, list, ok := strings.Cut(s, ":")
		n, err := strconv.ParseInt(number, 10, 32)
		if !ok || err != nil || n < 0 {
			return nil, usagef("-p %q is not PARTITION:ID,…", s)
		}
		if w.exact[int32(n)], err = parseIDs("-p", list); err != nil {
			return nil, err
		}
	}
	spread := len(w.to)+len(w.from) > 0 || w.replicas != 0
	switch {
	case w.replicas < 0:
		return nil, usagef("-r %d: there must be at least one replica", w.replicas)
	case len(w.exact) > 0 && (spread || len(w.topics) != 1):
		return nil, usagef("-p N:ID,… goes with one topic, and without --to, --from and -r")
	case len(w.exact) == 0 && !spread:
		return nil, usagef("partition move needs to know where to: --to ID,…, --from ID,…, -r N or -p N:ID,…")
	case len(w.topics) == 0 && len(w.from) == 0:
		return nil, usagef("partition move needs a topic: weir partition move TOPIC --to ID,…")
	}
	return w, nil
}

// parseIDs reads the ids of nodes; none when nothing is given.
func parseIDs(flag, s string) ([]int32, error) {
	var out []int32
	if s == "" {
		return nil, nil
	}
	for text := range strings.SplitSeq(s, ",") {
		id, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
		if err != nil || id < 0 {
			return nil, usagef("%s %q: %q is not the id of a node", flag, s, text)
		}
		out = append(out, int32(id))
	}
	return out, nil
}

// plan is what has to move, by topic and partition.
func (w *wish) plan(m kadm.Metadata) ([]moveRow, error) {
	for _, name := range slices.Sorted(maps.Keys(w.topics)) {
		t, ok := m.Topics[name]
		if !ok {
			return nil, explain("move partitions of topic "+name, nil, kerr.UnknownTopicOrPartition)
		}
		for _, n := range append(slices.Sorted(maps.Keys(w.exact)), w.topics[name]...) {
			if _, ok := t.Partitions[n]; !ok {
				return nil, &Error{ExitNotFound, fmt.Sprintf("topic %s has no partition %d; see 'weir topic describe %s'", name, n, name)}
			}
		}
	}
	for _, id := range w.to {
		if !slices.Contains(m.Brokers.NodeIDs(), id) {
			return nil, &Error{ExitNotFound, fmt.Sprintf("there is no node %d, or it is not up; see 'weir cluster info'", id)}
		}
	}
	p := newPlacer(m, func(id int32) bool {
		return (len(w.to) == 0 || slices.Contains(w.to, id)) && !slices.Contains(w.from, id)
	})
	rows := []moveRow{}
	for _, t := range m.Topics.Sorted() {
		if _, named := w.topics[t.Topic]; !named && len(w.topics) > 0 {
			continue
		}
		for _, part := range t.Partitions.Sorted() {
			to, err := w.where(p, t.Topic, part)
			if err != nil {
				return nil, &Error{ExitFailed, fmt.Sprintf("cannot move %s-%d: %v", t.Topic, part.Partition, err)}
			}
			if to != nil && !slices.Equal(to, part.Replicas) {
				rows = append(rows, moveRow{Topic: t.Topic, Partition: part.Partition, From: part.Replicas, To: to})
			}
		}
	}
	return rows, nil
}

// where is where a partition is to be; nil where it is not asked for.
func (w *wish) where(p *placer, topic string, part kadm.PartitionDetail) ([]int32, error) {
	if len(w.exact) > 0 {
		return w.exact[part.Partition], nil
	}
	concerned := len(w.from) == 0 || w.replicas > 0 || len(w.to) > 0 || slices.ContainsFunc(part.Replicas, func(id int32) bool { return slices.Contains(w.from, id) })
	if !w.topics.has(topic, part.Partition) || !concerned {
		return nil, nil
	}
	n := w.replicas
	if n == 0 {
		n = len(part.Replicas)
	}
	return p.place(part.Replicas, n)
}

// settlePause lies between two tries to take a replica away that is still needed.
const settlePause = 500 * time.Millisecond

// reassign asks for the moves and fills in what became of each. The error is for all of them. A
// new replica that is in sync already may be needed for some seconds yet, when it is to go
// again: then it is asked again, as long as there is time.
func reassign(ctx context.Context, cl *kgo.Client, c *cli.Context, rows []moveRow) error {
	todo := make([]*moveRow, len(rows))
	for i := range rows {
		todo[i] = &rows[i]
	}
	for {
		if err := alterAssignments(ctx, cl, c, todo); err != nil {
			return err
		}
		todo = slices.DeleteFunc(todo, func(r *moveRow) bool { return r.Error != kerr.ReassignmentInProgress.Message })
		if len(todo) == 0 {
			return nil
		}
		select {
		case <-time.After(settlePause):
		case <-ctx.Done():
			return nil
		}
	}
}

// assignmentsPerRequest bounds one request; a large move takes several.
const assignmentsPerRequest = 5000

// alterAssignments is one try of reassign.
func alterAssignments(ctx context.Context, cl *kgo.Client, c *cli.Context, rows []*moveRow) error {
	for part := range slices.Chunk(rows, assignmentsPerRequest) {
		req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		req.TimeoutMillis = int32(c.Duration("timeout").Milliseconds())
		for _, r := range part {
			if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != r.Topic {
				req.Topics = append(req.Topics, kmsg.AlterPartitionAssignmentsRequestTopic{Topic: r.Topic})
			}
			t := &req.Topics[len(req.Topics)-1]
			t.Partitions = append(t.Partitions, kmsg.AlterPartitionAssignmentsRequestTopicPartition{Partition: r.Partition, Replicas: r.To})
		}
		resp, err := req.RequestWith(ctx, cl)
		if err == nil {
			err = verdict(resp.ErrorCode, resp.ErrorMessage)
		}
		if err != nil {
			return err
		}
		i := 0
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if i == len(part) || part[i].Topic != t.Topic || part[i].Partition != p.Partition {
					return errors.New("the answer is about other partitions than those asked for")
				}
				part[i].answered(kerr.ErrorForCode(p.ErrorCode), words(p.ErrorMessage))
				i++
			}
		}
	}
	return nil
}

func (r *moveRow) answered(err error, words string) {
	r.Error, r.err = "", nil
	switch {
	case err != nil:
		r.Status, r.Error, r.err = message(err, words), codeName(err), withMessage(err, words)
	case r.To == nil:
		r.Status = "cancelled"
	default:
		r.Status = "moving"
	}
}

// codeName is the name of a broker's error code.
func codeName(err error) string {
	var ke *kerr.Error
	if errors.As(err, &ke) {
		return ke.Message
	}
	return err.Error()
}
