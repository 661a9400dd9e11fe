package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/urfave/cli/v2"
)

// alterCommands are the verbs that change a topic or look into it.
func (e *Env) alterCommands() []*cli.Command {
	flags := func(more ...cli.Flag) []cli.Flag { return append(append(connectionFlags(), outputFlag()), more...) }
	dry := &cli.BoolFlag{Name: "dry-run", Usage: "only check whether it could be done"}
	partitions := &cli.IntSliceFlag{Name: "partition", Aliases: []string{"p"}, Usage: "only partition `N`; may be repeated"}
	return []*cli.Command{
		{
			Name: "alter", Usage: "change configs of topics", ArgsUsage: "TOPIC…", Action: e.topicAlter,
			Flags: flags(dry,
				&cli.StringSliceFlag{Name: "config", Aliases: []string{"c"}, Usage: "set a config, as `KEY=VALUE`; may be repeated"},
				&cli.StringSliceFlag{Name: "delete", Usage: "go back to the default of `KEY`; may be repeated"},
				&cli.StringSliceFlag{Name: "append", Usage: "add items to a list, as `KEY=ITEM,…`; may be repeated"},
				&cli.StringSliceFlag{Name: "subtract", Usage: "take items from a list, as `KEY=ITEM,…`; may be repeated"}),
		},
		{
			Name: "add-partitions", Usage: "give a topic more partitions", ArgsUsage: "TOPIC", Action: e.topicGrow,
			Description: "Records keep their partition; keys of new records may go to another one than before.",
			Flags: flags(dry,
				&cli.IntFlag{Name: "num", Aliases: []string{"n"}, Usage: "add `N` partitions"},
				&cli.IntFlag{Name: "to", Usage: "have `N` partitions afterwards"},
				&cli.StringSliceFlag{Name: "replicas", Usage: "place one new partition on the nodes `ID,…`, the first to lead; repeated for each"}),
		},
		{
			Name: "offsets", Usage: "show where partitions start and end", ArgsUsage: "TOPIC…", Action: e.topicOffsets,
			Flags: flags(partitions, &cli.StringFlag{Name: "at", Usage: "show the first record at or after a `TIME`, too: @MILLISECONDS or 2006-01-02T15:04:05Z"}),
		},
		{
			Name: "trim", Usage: "delete the oldest records of a topic", ArgsUsage: "TOPIC", Action: e.topicTrim,
			Description: "Records before the given place can never be read again. Returns when all nodes that are up have moved.",
			Flags: flags(partitions, dry, yesFlag(),
				&cli.StringFlag{Name: "to", Required: true, Usage: "the first record to keep: `end` for none, N, +N from the start, -N from the end, or @MILLISECONDS"}),
		},
	}
}

// configSteps are the changes that the flags of topic alter ask for.
func configSteps(c *cli.Context) ([]kadm.AlterConfig, error) {
	var steps []kadm.AlterConfig
	for _, f := range []struct {
		flag, short string
		op          kadm.IncrementalOp
	}{{"config", "-c", kadm.SetConfig}, {"append", "--append", kadm.AppendConfig}, {"subtract", "--subtract", kadm.SubtractConfig}} {
		for _, kv := range c.StringSlice(f.flag) {
			k, v, ok := strings.Cut(kv, "=")
			if !ok {
				return nil, usagef("%s %q is not KEY=VALUE", f.short, kv)
			}
			steps = append(steps, kadm.AlterConfig{Op: f.op, Name: k, Value: &v})
		}
	}
	for _, k := range c.StringSlice("delete") {
		steps = append(steps, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: k})
	}
	if len(steps) == 0 {
		return nil, usagef("topic alter needs a change: -c KEY=VALUE or --delete KEY")
	}
	return steps, nil
}

func (e *Env) topicAlter(c *cli.Context) error {
	names := c.Args().Slice()
	if len(names) == 0 {
		return usagef("topic alter needs a name: weir topic alter TOPIC -c KEY=VALUE")
	}
	steps, err := configSteps(c)
	if err != nil {
		return err
	}
	ctx, adm, done, err := e.admin(c)
	if err != nil {
		return err
	}
	defer done()
	alter, status := adm.AlterTopicConfigs, "altered"
	if c.Bool("dry-run") {
		alter, status = adm.ValidateAlterTopicConfigs, "could be altered"
	}
	answers, err := alter(ctx, steps, names...)
	if err != nil {
		return explain("alter topics", brokersOf(c), err)
	}
	var list []topicStatus
	var first error
	for _, name := range names {
		s := topicStatus{Name: name, Status: status}
		a, err := answers.On(name, nil)
		if err == nil {
			err = a.Err
		}
		if err != nil {
			s.Status, s.Error = message(err, a.ErrMessage), err.Error()
			first = errors.Join(first, withMessage(err, a.ErrMessage))
		}
		list = append(list, s)
	}
	return e.statuses(c, "alter topics", list, first)
}

// placements are the values of --replicas.
func placements(c *cli.Context) ([]kmsg.CreatePartitionsRequestTopicAssignment, error) {
	var out []kmsg.CreatePartitionsRequestTopicAssignment
	for _, s := range c.StringSlice("replicas") {
		var a kmsg.CreatePartitionsRequestTopicAssignment
		for text := range strings.SplitSeq(s, ",") {
			id, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
			if err != nil {
				return nil, usagef("--replicas %q: %q is not the id of a node", s, text)
			}
			a.Replicas = append(a.Replicas, int32(id))
		}
		out = append(out, a)
	}
	return out, nil
}

func (e *Env) topicGrow(c *cli.Context) error {
	name, more, to := c.Args().First(), c.Int("num"), c.Int("to")
	switch {
	case c.NArg() != 1:
		return usagef("topic add-partitions needs one name: weir topic add-partitions TOPIC -n N")
	case more < 0 || to < 0 || (more > 0) == (to > 0):
		return usagef("topic add-partitions needs either -n N, how many to add, or --to N, how many there shall be")
	}
	assigned, err := placements(c)
	if err != nil {
		return err
	}
	cl, err := e.connect(c, kgo.RetryTimeout(c.Duration("timeout")))
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	what := "add partitions to topic " + name
	if to == 0 {
		topics, err := kadm.NewClient(cl).ListTopics(ctx, name)
		if err == nil {
			err = topics[name].Err
		}
		if err != nil {
			return explain(what, brokersOf(c), err)
		}
		to = len(topics[name].Partitions) + more
	}
	// kadm has no way to name replicas.
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis, req.ValidateOnly = int32(c.Duration("timeout").Milliseconds()), c.Bool("dry-run")
	req.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: name, Count: int32(to), Assignment: assigned}}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return explain(what, brokersOf(c), err)
	}
	s := topicStatus{Name: name, Status: fmt.Sprintf("has %d partitions", to), Partitions: int32(to)}
	if req.ValidateOnly {
		s.Status = fmt.Sprintf("could have %d partitions", to)
	}
	r := resp.Topics[0]
	if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
		said := words(r.ErrorMessage)
		return e.statuses(c, what, []topicStatus{{Name: name, Status: message(err, said), Error: err.Error()}}, withMessage(err, said))
	}
	return e.statuses(c, what, []topicStatus{s}, nil)
}

// configRow is one config of a topic's description.
type configRow struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// configRows are a topic's configs, what was set on it first.
func configRows(r kadm.ResourceConfig) []configRow {
	var out []configRow
	for _, c := range r.Configs {
		out = append(out, configRow{Name: c.Key, Value: c.MaybeValue(), Source: sourceName(c.Source)})
	}
	slices.SortStableFunc(out, func(a, b configRow) int {
		switch {
		case a.Source == b.Source:
			return strings.Compare(a.Name, b.Name)
		case a.Source == "topic":
			return -1
		case b.Source == "topic":
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out
}

// sourceName says in a word where a value comes from.
func sourceName(s kmsg.ConfigSource) string {
	switch s {
	case kmsg.ConfigSourceDynamicTopicConfig:
		return "topic"
	case kmsg.ConfigSourceStaticBrokerConfig:
		return "node"
	case kmsg.ConfigSourceDefaultConfig:
		return "default"
	}
	return strings.ToLower(s.String())
}
