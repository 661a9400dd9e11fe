package client

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/urfave/cli/v2"
)

func (e *Env) topicCommand() *cli.Command {
	return &cli.Command{
		Name: "topic", Usage: "create, list, describe, alter and delete topics",
		Subcommands: append([]*cli.Command{
			{
				Name: "create", Usage: "create topics", ArgsUsage: "TOPIC…", Action: e.topicCreate,
				Flags: append(connectionFlags(), outputFlag(),
					&cli.IntFlag{Name: "partitions", Aliases: []string{"p"}, Value: -1, Usage: "`N` partitions; the cluster's default if not given"},
					&cli.IntFlag{Name: "replicas", Aliases: []string{"r"}, Value: -1, Usage: "`N` replicas of each; the cluster's default if not given"},
					&cli.StringSliceFlag{Name: "config", Aliases: []string{"c"}, Usage: "topic config as `KEY=VALUE`; may be repeated"},
					&cli.BoolFlag{Name: "if-not-exists", Usage: "succeed if the topic is there already"},
					&cli.BoolFlag{Name: "dry-run", Usage: "only check whether it could be created"}),
			},
			{Name: "list", Aliases: []string{"ls"}, Usage: "list topics", Action: e.topicList, Flags: append(connectionFlags(), outputFlag())},
			{Name: "describe", Usage: "show partitions, leaders, replicas and offsets", ArgsUsage: "TOPIC…", Action: e.topicDescribe,
				Flags: append(connectionFlags(), outputFlag(), &cli.BoolFlag{Name: "configs", Aliases: []string{"c"}, Usage: "show configs, too"})},
			{
				Name: "delete", Usage: "delete topics and all their records", ArgsUsage: "TOPIC…", Action: e.topicDelete,
				Flags: append(connectionFlags(), outputFlag(), yesFlag()),
			},
		}, e.alterCommands()...),
	}
}

// topicStatus is one line of the answer to create and delete.
type topicStatus struct {
	Name       string `json:"name"`
	Status     string `json:"status"`
	Partitions int32  `json:"partitions,omitempty"`
	Replicas   int16  `json:"replicas,omitempty"`
	Error      string `json:"error,omitempty"`
}

// statuses prints one line a topic and returns an error if any failed: the
// failure itself where there is one topic, a count otherwise.
func (e *Env) statuses(c *cli.Context, what string, list []topicStatus, first error) error {
	t := table{header: []string{"TOPIC", "STATUS"}, value: list}
	failed := 0
	for _, s := range list {
		t.add(s.Name, s.Status)
		if s.Error != "" {
			failed++
		}
	}
	if err := t.print(c, e.Stdout); err != nil {
		return err
	}
	switch {
	case failed == 0:
		return nil
	case failed == len(list):
		return explain(what, brokersOf(c), first)
	default:
		return &Error{ExitPartial, fmt.Sprintf("%d of %d topics failed: %v", failed, len(list), first)}
	}
}

func (e *Env) topicCreate(c *cli.Context) error {
	names := c.Args().Slice()
	if len(names) == 0 {
		return usagef("topic create needs a name: weir topic create TOPIC [-p PARTITIONS] [-r REPLICAS]")
	}
	configs := map[string]*string{}
	for _, kv := range c.StringSlice("config") {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			return usagef("-c %q is not KEY=VALUE", kv)
		}
		configs[k] = &v
	}
	ctx, adm, done, err := e.admin(c)
	if err != nil {
		return err
	}
	defer done()
	create := adm.CreateTopics
	if c.Bool("dry-run") {
		create = adm.ValidateCreateTopics
	}
	answers, err := create(ctx, int32(c.Int("partitions")), int16(c.Int("replicas")), configs, names...)
	if err != nil {
		return explain("create topics", brokersOf(c), err)
	}
	var list []topicStatus
	var first error
	for _, name := range names {
		a := answers[name]
		s := topicStatus{Name: name, Status: "created", Partitions: a.NumPartitions, Replicas: a.ReplicationFactor}
		switch {
		case a.Err == nil && c.Bool("dry-run"):
			s.Status = "could be created"
		case errors.Is(a.Err, kerr.TopicAlreadyExists) && c.Bool("if-not-exists"):
			s.Status = "exists"
		case a.Err != nil:
			s.Status, s.Error = message(a.Err, a.ErrMessage), a.Err.Error()
			first = errors.Join(first, withMessage(a.Err, a.ErrMessage))
		}
		list = append(list, s)
	}
	return e.statuses(c, "create topics", list, first)
}

// message prefers the broker's own words for an error.
func message(err error, words string) string {
	if words != "" {
		return words
	}
	var ke *kerr.Error
	if errors.As(err, &ke) {
		return ke.Message
	}
	return err.Error()
}

// withMessage joins the broker's words to the code, so that both are shown.
func withMessage(err error, words string) error {
	var ke *kerr.Error
	if words == "" || !errors.As(err, &ke) {
		return err
	}
	return &kerr.Error{Message: ke.Message, Code: ke.Code, Retriable: ke.Retriable, Description: words}
}

// words are a broker's own for an error, if it has any.
func words(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// verdict is the error of an answer, with the broker's words.
func verdict(code int16, said *string) error {
	return withMessage(kerr.ErrorForCode(code), words(said))
}

func (e *Env) topicDelete(c *cli.Context) error {
	names := c.Args().Slice()
	if len(names) == 0 {
		return usagef("topic delete needs a name: weir topic delete TOPIC…")
	}
	if err := e.confirm(c, "Delete "+strings.Join(names, ", ")+" and all records in it?"); err != nil {
		return err
	}
	ctx, adm, done, err := e.admin(c)
	if err != nil {
		return err
	}
	defer done()
	answers, err := adm.DeleteTopics(ctx, names...)
	if err != nil {
		return explain("delete topics", brokersOf(c), err)
	}
	var list []topicStatus
	var first error
	for _, name := range names {
		s := topicStatus{Name: name, Status: "deleted"}
		if err := answers[name].Err; err != nil {
			s.Status, s.Error = message(err, answers[name].ErrMessage), err.Error()
			first = errors.Join(first, err)
		}
		list = append(list, s)
	}
	return e.statuses(c, "delete topics", list, first)
}

// confirm asks on a terminal, unless --yes was given, and refuses elsewhere.
func (e *Env) confirm(c *cli.Context, question string) error {
	if c.Bool("yes") {
		return nil
	}
	in, ok := e.Stdin.(*os.File)
	if !ok || !isatty.IsTerminal(in.Fd()) {
		return usagef("there is no terminal to ask on whether this is meant; add --yes to go on")
	}
	fmt.Fprintf(e.Stderr, "%s [y/N] ", question)
	line, err := bufio.NewReader(in).ReadString('\n')
	if err == nil && strings.HasPrefix(strings.ToLower(strings.TrimSpace(line)), "y") {
		return nil
	}
	return &Error{ExitFailed, "nothing was changed"}
}

// topicID prints an id as Kafka's tools do.
func topicID(id kadm.TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// topicRow is one topic of a listing.
type topicRow struct {
	Name       string `json:"name"`
	ID         string `json:"topic_id"`
	Partitions int    `json:"partitions"`
	Replicas   int    `json:"replicas"`
	UnderRepl  int    `json:"under_replicated_partitions"`
	Leaderless int    `json:"leaderless_partitions"`
}

func (e *Env) topicList(c *cli.Context) error {
	ctx, adm, done, err := e.admin(c)
	if err != nil {
		return err
	}
	defer done()
	topics, err := adm.ListTopics(ctx)
	if err != nil {
		return explain("list topics", brokersOf(c), err)
	}
	rows := []topicRow{}
	t := table{header: []string{"NAME", "PARTITIONS", "REPLICAS", "UNDER-REPLICATED", "LEADERLESS"}}
	for _, d := range topics.Sorted() {
		r := topicRow{Name: d.Topic, ID: topicID(d.ID), Partitions: len(d.Partitions), Replicas: d.Partitions.NumReplicas()}
		for _, p := range d.Partitions {
			if len(p.ISR) < len(p.Replicas) {
				r.UnderRepl++
			}
			if p.Leader < 0 {
				r.Leaderless++
			}
		}
		rows = append(rows, r)
		t.add(r.Name, r.Partitions, r.Replicas, r.UnderRepl, r.Leaderless)
	}
	t.value = rows
	return t.print(c, e.Stdout)
}

// partitionRow is one partition of a description.
type partitionRow struct {
	Partition   int32   `json:"partition"`
	Leader      int32   `json:"leader"`
	LeaderEpoch int32   `json:"leader_epoch"`
	Replicas    []int32 `json:"replicas"`
	ISR         []int32 `json:"isr"`
	Offline     []int32 `json:"offline"`
	Start       int64   `json:"log_start_offset"`
	HW          int64   `json:"high_watermark"`
	Error       string  `json:"error,omitempty"`
}

// topicDescription is the whole answer for one topic.
type topicDescription struct {
	Name       string         `json:"name"`
	ID         string         `json:"topic_id"`
	Partitions []partitionRow `json:"partitions"`
	Configs    []configRow    `json:"configs,omitempty"`
}

func (e *Env) topicDescribe(c *cli.Context) error {
	names := c.Args().Slice()
	if len(names) == 0 {
		return usagef("topic describe needs a name: weir topic describe TOPIC…")
	}
	ctx, adm, done, err := e.admin(c)
	if err != nil {
		return err
	}
	defer done()
	topics, err := adm.ListTopics(ctx, names...)
	if err != nil {
		return explain("describe topics", brokersOf(c), err)
	}
	var all []topicDescription
	for _, name := range names {
		d := topics[name]
		if d.Err != nil {
			return explain("describe topic "+name, brokersOf(c), d.Err)
		}
		all = append(all, describe(ctx, adm, d))
	}
	if c.Bool("configs") {
		if err := addConfigs(ctx, adm, all); err != nil {
			return explain("describe the configs of topics", brokersOf(c), err)
		}
	}
	if c.String("output") != "table" {
		return (&table{value: all}).print(c, e.Stdout)
	}
	for _, d := range all {
		fmt.Fprintf(e.Stdout, "topic %s, id %s, %d partitions\n", d.Name, d.ID, len(d.Partitions))
		t := table{header: []string{"PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "OFFLINE", "LOG-START", "HIGH-WATERMARK"}}
		for _, p := range d.Partitions {
			leader, start, hw := fmt.Sprint(p.Leader), fmt.Sprint(p.Start), fmt.Sprint(p.HW)
			if p.Leader < 0 {
				leader = "none"
			}
			if p.Start < 0 {
				start = "?"
			}
			if p.HW < 0 {
				hw = "?"
			}
			t.add(p.Partition, leader, p.LeaderEpoch, ids(p.Replicas), ids(p.ISR), ids(p.Offline), start, hw)
		}
		if err := t.print(c, e.Stdout); err != nil {
			return err
		}
		if len(d.Configs) == 0 {
			continue
		}
		configs := table{header: []string{"CONFIG", "VALUE", "FROM"}}
		for _, r := range d.Configs {
			configs.add(r.Name, r.Value, r.Source)
		}
		if err := configs.print(c, e.Stdout); err != nil {
			return err
		}
	}
	return nil
}

// addConfigs asks for the configs of the topics described.
func addConfigs(ctx context.Context, adm *kadm.Client, all []topicDescription) error {
	var names []string
	for _, d := range all {
		names = append(names, d.Name)
	}
	got, err := adm.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return err
	}
	for i := range all {
		r, err := got.On(all[i].Name, nil)
		if err == nil {
			err = r.Err
		}
		if err != nil {
			return err
		}
		all[i].Configs = configRows(r)
	}
	return nil
}

// describe adds offsets to what metadata says. A partition whose leader cannot
// be asked keeps -1, so that describe works in the middle of a failover.
func describe(ctx context.Context, adm *kadm.Client, d kadm.TopicDetail) topicDescription {
	out := topicDescription{Name: d.Topic, ID: topicID(d.ID)}
	starts, startErr := adm.ListStartOffsets(ctx, d.Topic)
	ends, endErr := adm.ListEndOffsets(ctx, d.Topic)
	for _, p := range d.Partitions.Sorted() {
		row := partitionRow{Partition: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, Replicas: p.Replicas, ISR: p.ISR, Offline: p.OfflineReplicas, Start: -1, HW: -1}
		if s, ok := starts.Lookup(d.Topic, p.Partition); startErr == nil && ok && s.Err == nil {
			row.Start = s.Offset
		}
		if s, ok := ends.Lookup(d.Topic, p.Partition); endErr == nil && ok && s.Err == nil {
			row.HW = s.Offset
		}
		if p.Err != nil {
			row.Error = message(p.Err, "")
		}
		out.Partitions = append(out.Partitions, row)
	}
	return out
}
