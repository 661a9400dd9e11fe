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
	"github.com/urfave/cli/v2"
)

func (e *Env) groupCommand() *cli.Command {
	admin := func(more ...cli.Flag) []cli.Flag { return append(append(connectionFlags(), outputFlag()), more...) }
	topics := &cli.StringSliceFlag{Name: "topic", Aliases: []string{"t"}, Usage: "only `TOPIC` or TOPIC:PARTITION,…; may be repeated"}
	return &cli.Command{
		Name: "group", Usage: "look at consumer groups and move their offsets",
		Subcommands: []*cli.Command{
			{
				Name: "list", Aliases: []string{"ls"}, Usage: "list groups", Action: e.groupList,
				Flags: admin(
					&cli.StringSliceFlag{Name: "state", Aliases: []string{"s"}, Usage: "only groups in this `STATE`, such as Stable or Empty; may be repeated"},
					&cli.StringSliceFlag{Name: "type", Usage: "only groups of this `TYPE`, classic or consumer; may be repeated"}),
			},
			{Name: "describe", Usage: "show state, why it is not stable, members and lag", ArgsUsage: "GROUP…", Action: e.groupDescribe, Flags: admin()},
			{Name: "members", Usage: "show members and what they are assigned", ArgsUsage: "GROUP…", Action: e.groupMembers, Flags: admin()},
			{
				Name: "lag", Usage: "show how far the committed offsets are behind, in records and in seconds", ArgsUsage: "GROUP…", Action: e.groupLag,
				Description: "SECONDS is the age of the next unread record, which is read to learn its timestamp.",
				Flags:       admin(topics),
			},
			{Name: "offsets", Usage: "show committed offsets", ArgsUsage: "GROUP…", Action: e.groupOffsets, Flags: admin(topics)},
			{
				Name: "seek", Usage: "move committed offsets of a group without members", ArgsUsage: "GROUP", Action: e.groupSeek,
				Description: "Only shows what would be done, unless --execute is given. Without -t it moves the topics that\nthe group has committed; -t may also name topics that it has not.",
				Flags: admin(topics,
					&cli.StringFlag{Name: "to", Usage: "where to: `start`, end, N, +N or -N from the committed offset, or @MILLISECONDS"},
					&cli.BoolFlag{Name: "execute", Usage: "commit the new offsets"}),
			},
			{
				Name: "offset-delete", Usage: "forget committed offsets of topics", ArgsUsage: "GROUP", Action: e.groupOffsetDelete,
				Flags: admin(topics, yesFlag()),
			},
			{Name: "delete", Usage: "delete groups without members and all their offsets", ArgsUsage: "GROUP…", Action: e.groupDelete, Flags: admin(yesFlag())},
		},
	}
}

func yesFlag() cli.Flag {
	return &cli.BoolFlag{Name: "yes", Aliases: []string{"y", "no-confirm"}, Usage: "do not ask"}
}

// groupNames are the arguments of a verb that takes at least one group.
func groupNames(c *cli.Context) ([]string, error) {
	if c.NArg() == 0 {
		return nil, usagef("group %s needs a group: weir group %s GROUP", c.Command.Name, c.Command.Name)
	}
	return c.Args().Slice(), nil
}

func oneGroup(c *cli.Context) (string, error) {
	if c.NArg() != 1 {
		return "", usagef("group %s needs exactly one group: weir group %s GROUP", c.Command.Name, c.Command.Name)
	}
	return c.Args().First(), nil
}

// groupClient is what verbs about groups need: kadm for most, the client itself for the rest.
type groupClient struct {
	*kadm.Client
	kgo *kgo.Client
}

// groups is admin with the client beside it.
func (e *Env) groups(c *cli.Context) (context.Context, groupClient, func(), error) {
	ctx, cl, adm, done, err := e.adminClient(c)
	return ctx, groupClient{adm, cl}, done, err
}

// groupRow is one group of a listing.
type groupRow struct {
	Group       string `json:"group"`
	Type        string `json:"type"`
	State       string `json:"state"`
	Protocol    string `json:"protocol_type"`
	Coordinator int32  `json:"coordinator"`
}

func (e *Env) groupList(c *cli.Context) error {
	ctx, adm, done, err := e.groups(c)
	if err != nil {
		return err
	}
	defer done()
	groups, err := adm.ListGroupsByType(ctx, c.StringSlice("type"), c.StringSlice("state")...)
	if err != nil {
		return explain("list groups", brokersOf(c), err)
	}
	rows := []groupRow{}
	t := table{header: []string{"GROUP", "TYPE", "STATE", "PROTOCOL", "COORDINATOR"}}
	for _, g := range groups.Sorted() {
		r := groupRow{Group: g.Group, Type: g.GroupType, State: g.State, Protocol: g.ProtocolType, Coordinator: g.Coordinator}
		rows = append(rows, r)
		t.add(r.Group, r.Type, r.State, orDash(r.Protocol), r.Coordinator)
	}
	t.value = rows
	return t.print(c, e.Stdout)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// groupStatus is one line of the answer to delete.
type groupStatus struct {
	Group  string `json:"group"`
	Status string `json:"status"`
	Error  string `json:"error,omitempty"`
}

func (e *Env) groupDelete(c *cli.Context) error {
	names, err := groupNames(c)
	if err != nil {
		return err
	}
	if err := e.confirm(c, "Delete "+strings.Join(names, ", ")+" and all its committed offsets?"); err != nil {
		return err
	}
	ctx, adm, done, err := e.groups(c)
	if err != nil {
		return err
	}
	defer done()
	answers, err := adm.DeleteGroups(ctx, names...)
	if err != nil && len(answers) == 0 {
		return explain("delete groups", brokersOf(c), err)
	}
	list, failed := make([]groupStatus, 0, len(names)), error(nil)
	t := table{header: []string{"GROUP", "STATUS"}}
	for _, name := range names {
		s := groupStatus{Group: name, Status: "deleted"}
		if err := answers[name].Err; err != nil {
			s.Status, s.Error = message(err, ""), err.Error()
			failed = errors.Join(failed, err)
		}
		list = append(list, s)
		t.add(s.Group, s.Status)
	}
	t.value = list
	if err := t.print(c, e.Stdout); err != nil {
		return err
	}
	bad := 0
	for _, s := range list {
		if s.Error != "" {
			bad++
		}
	}
	if bad > 0 && bad < len(list) {
		return &Error{ExitPartial, fmt.Sprintf("%d of %d groups failed: %v", bad, len(list), failed)}
	}
	return explain("delete groups", brokersOf(c), failed)
}

// topicChoice is a parsed list of -t: for each topic the partitions chosen, none for all.
type topicChoice map[string][]int32

func parseTopics(list []string) (topicChoice, error) {
	out := topicChoice{}
	for _, s := range list {
		topic, numbers, some := strings.Cut(s, ":")
		if topic == "" {
			return nil, usagef("-t %q names no topic; use TOPIC or TOPIC:PARTITION,…", s)
		}
		if !some {
			out[topic] = nil
			continue
		}
		for text := range strings.SplitSeq(numbers, ",") {
			n, err := strconv.ParseInt(text, 10, 32)
			if err != nil || n < 0 {
				return nil, usagef("-t %q: %q is not a partition", s, text)
			}
			out[topic] = append(out[topic], int32(n))
		}
	}
	return out, nil
}

// has tells whether a partition is chosen; everything is when nothing was named.
func (t topicChoice) has(topic string, partition int32) bool {
	if len(t) == 0 {
		return true
	}
	ps, ok := t[topic]
	return ok && (len(ps) == 0 || slices.Contains(ps, partition))
}

func (e *Env) groupOffsetDelete(c *cli.Context) error {
	group, err := oneGroup(c)
	if err != nil {
		return err
	}
	chosen, err := parseTopics(c.StringSlice("topic"))
	if err != nil {
		return err
	}
	if len(chosen) == 0 {
		return usagef("group offset-delete needs -t TOPIC; to forget the whole group use weir group delete")
	}
	if err := e.confirm(c, "Forget these committed offsets of "+group+"?"); err != nil {
		return err
	}
	ctx, adm, done, err := e.groups(c)
	if err != nil {
		return err
	}
	defer done()
	committed, err := committedOffsets(ctx, adm, group)
	if err != nil {
		return explain("delete offsets of group "+group, brokersOf(c), err)
	}
	set := kadm.TopicsSet{}
	for _, o := range committed {
		if chosen.has(o.Topic, o.Partition) {
			set.Add(o.Topic, o.Partition)
		}
	}
	if len(set) == 0 {
		return &Error{ExitNotFound, fmt.Sprintf("group %s has no committed offsets of these topics; see weir group offsets %s", group, group)}
	}
	answers, err := adm.DeleteOffsets(ctx, group, set)
	if err != nil {
		return explain("delete offsets of group "+group, brokersOf(c), err)
	}
	return e.printDeleted(c, group, set, answers)
}

func (e *Env) printDeleted(c *cli.Context, group string, set kadm.TopicsSet, answers kadm.DeleteOffsetsResponses) error {
	type row struct {
		Topic     string `json:"topic"`
		Partition int32  `json:"partition"`
		Status    string `json:"status"`
	}
	rows, failed := []row{}, error(nil)
	t := table{header: []string{"TOPIC", "PARTITION", "STATUS"}}
	for _, tp := range set.Sorted() {
		for _, p := range tp.Partitions {
			r := row{tp.Topic, p, "deleted"}
			if err, ok := answers.Lookup(tp.Topic, p); ok && err != nil {
				r.Status, failed = message(err, ""), err
			}
			rows = append(rows, r)
			t.add(r.Topic, r.Partition, r.Status)
		}
	}
	t.value = rows
	if err := t.print(c, e.Stdout); err != nil {
		return err
	}
	return explain("delete offsets of group "+group, brokersOf(c), failed)
}

// committedOffsets are all committed offsets of a group, in order. A partition
// that could not be told is an error.
func committedOffsets(ctx context.Context, adm groupClient, group string) ([]kadm.OffsetResponse, error) {
	offsets, err := adm.FetchOffsets(ctx, group)
	if err != nil {
		return nil, err
	}
	out := offsets.Sorted()
	for _, o := range out {
		if o.Err != nil {
			return nil, fmt.Errorf("partition %d of %s: %w", o.Partition, o.Topic, o.Err)
		}
	}
	return slices.DeleteFunc(out, func(o kadm.OffsetResponse) bool { return o.At < 0 }), nil
}

// noSuchGroup is the answer for a group that is not there.
func noSuchGroup(group string) *Error {
	return &Error{ExitNotFound, fmt.Sprintf("there is no group %s; see weir group list", group)}
}

func isMissingGroup(err error) bool { return hasCode(err, kerr.GroupIDNotFound) }

// hasCode tells whether err is that refusal, in whatever words the broker put it.
func hasCode(err error, of *kerr.Error) bool {
	var ke *kerr.Error
	return errors.As(err, &ke) && ke.Code == of.Code
}
