package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/urfave/cli/v2"
)

// assignedTopic is what a member is assigned of one topic.
type assignedTopic struct {
	Topic      string  `json:"topic"`
	Partitions []int32 `json:"partitions"`
}

// groupMember is one member of a description, of either protocol.
type groupMember struct {
	ID         string          `json:"member_id"`
	Instance   string          `json:"instance_id,omitempty"`
	Protocol   string          `json:"protocol,omitempty"` // classic or consumer, where the broker tells
	Client     string          `json:"client_id"`
	Host       string          `json:"host"`
	Epoch      int32           `json:"epoch"`
	Topics     []string        `json:"subscribed_topics"`
	Assignment []assignedTopic `json:"assignment"`
	Target     []assignedTopic `json:"target,omitempty"`
}

// groupDescription is a group of either protocol as its coordinator describes it.
type groupDescription struct {
	Group       string        `json:"group"`
	Type        string        `json:"type"`
	State       string        `json:"state"`
	Why         string        `json:"why,omitempty"`
	Coordinator int32         `json:"coordinator"`
	Protocol    string        `json:"protocol"`
	Epoch       int32         `json:"epoch"`
	Members     []groupMember `json:"members"`
	Lag         []lagRow      `json:"lag,omitempty"`
	History     []transition  `json:"history,omitempty"` // the oldest first
}

// describeGroup asks the coordinator, first as for a group of the consumer
// protocol, then as for a classic one. A coordinator that does not know the
// former API says so, too.
func describeGroup(ctx context.Context, adm groupClient, group string) (groupDescription, error) {
	d, err := describeConsumer(ctx, adm, group)
	if err == nil {
		return d, nil
	}
	var ke *kerr.Error
	if errors.As(err, &ke) && !hasCode(err, kerr.GroupIDNotFound) && !hasCode(err, kerr.UnsupportedVersion) {
		return d, err
	}
	return describeClassic(ctx, adm, group)
}

func describeConsumer(ctx context.Context, adm groupClient, group string) (groupDescription, error) {
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{group}
	shards := adm.kgo.RequestSharded(ctx, req)
	for _, shard := range shards {
		if shard.Err != nil {
			return groupDescription{}, shard.Err
		}
		resp, ok := shard.Resp.(*kmsg.ConsumerGroupDescribeResponse)
		if !ok || len(resp.Groups) != 1 {
			continue
		}
		g := resp.Groups[0]
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
			return groupDescription{}, withMessage(err, text(g.ErrorMessage))
		}
		d := groupDescription{
			Group: g.Group, Type: "consumer", State: g.State, Why: text(g.ErrorMessage), Coordinator: shard.Meta.NodeID,
			Protocol: g.AssignorName, Epoch: g.Epoch, Members: []groupMember{},
		}
		for _, m := range g.Members {
			d.Members = append(d.Members, groupMember{
				ID: m.MemberID, Instance: text(m.InstanceID), Protocol: memberProtocol(m.MemberType), Client: m.ClientID, Host: m.ClientHost, Epoch: m.MemberEpoch,
				Topics: orEmpty(m.SubscribedTopics), Assignment: consumerTopics(m.Assignment), Target: consumerTopics(m.TargetAssignment),
			})
		}
		return d, nil
	}
	return groupDescription{}, errors.New("nobody answered for the group")
}

// memberProtocol is the protocol of a member of a consumer group, which may be of either.
func memberProtocol(kind int8) string {
	switch kind {
	case 0:
		return "classic"
	case 1:
		return "consumer"
	}
	return ""
}

func consumerTopics(a kmsg.Assignment) []assignedTopic {
	out := []assignedTopic{}
	for _, t := range a.TopicPartitions {
		out = append(out, assignedTopic{t.Topic, t.Partitions})
	}
	return sortedTopics(out)
}

func sortedTopics(list []assignedTopic) []assignedTopic {
	for _, t := range list {
		slices.Sort(t.Partitions)
	}
	slices.SortFunc(list, func(a, b assignedTopic) int { return strings.Compare(a.Topic, b.Topic) })
	return list
}

func describeClassic(ctx context.Context, adm groupClient, group string) (groupDescription, error) {
	answers, err := adm.DescribeGroups(ctx, group)
	if err != nil {
		return groupDescription{}, err
	}
	g, ok := answers[group]
	if !ok {
		return groupDescription{}, errors.New("nobody answered for the group")
	}
	if g.Err != nil {
		return groupDescription{}, withMessage(g.Err, g.ErrMessage)
	}
	if g.State == "Dead" {
		return groupDescription{}, kerr.GroupIDNotFound
	}
	d := groupDescription{
		Group: g.Group, Type: "classic", State: g.State, Why: g.ErrMessage, Coordinator: g.Coordinator.NodeID,
		Protocol: g.Protocol, Members: []groupMember{},
	}
	for _, m := range g.Members {
		row := groupMember{ID: m.MemberID, Instance: text(m.InstanceID), Protocol: "classic", Client: m.ClientID, Host: m.ClientHost, Topics: []string{}, Assignment: []assignedTopic{}}
		if join, ok := m.Join.AsConsumer(); ok {
			row.Topics = orEmpty(join.Topics)
		}
		if a, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range a.Topics {
				row.Assignment = append(row.Assignment, assignedTopic{t.Topic, t.Partitions})
			}
		}
		row.Assignment = sortedTopics(row.Assignment)
		d.Members = append(d.Members, row)
	}
	return d, nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func orEmpty(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// describeGroups describes each group of the command line.
func (e *Env) describeGroups(c *cli.Context, withLag bool) ([]groupDescription, error) {
	names, err := groupNames(c)
	if err != nil {
		return nil, err
	}
	ctx, adm, done, err := e.groups(c)
	if err != nil {
		return nil, err
	}
	defer done()
	var all []groupDescription
	for _, name := range names {
		d, err := describeGroup(ctx, adm, name)
		if err == nil && withLag {
			d.Lag, err = groupLag(ctx, adm, name, d.assigned(), nil)
		}
		if err == nil && withLag {
			d.History, err = groupHistory(ctx, adm, &d)
		}
		if isMissingGroup(err) {
			return nil, noSuchGroup(name)
		}
		if err != nil {
			return nil, explain("describe group "+name, brokersOf(c), err)
		}
		all = append(all, d)
	}
	return all, nil
}

// topicPartition names a partition as users do.
type topicPartition struct {
	topic     string
	partition int32
}

// assigned is, for each partition, the member that it is assigned to.
func (d *groupDescription) assigned() map[topicPartition]string {
	out := map[topicPartition]string{}
	for _, m := range d.Members {
		for _, t := range m.Assignment {
			for _, p := range t.Partitions {
				out[topicPartition{t.Topic, p}] = m.ID
			}
		}
	}
	return out
}

func (e *Env) groupDescribe(c *cli.Context) error {
	all, err := e.describeGroups(c, true)
	if err != nil {
		return err
	}
	if c.String("output") != "table" {
		return (&table{value: all}).print(c, e.Stdout)
	}
	for _, d := range all {
		fmt.Fprintf(e.Stdout, "group %s, %s, %s, %d members, coordinator %d", d.Group, d.Type, d.State, len(d.Members), d.Coordinator)
		if d.Protocol != "" {
			fmt.Fprintf(e.Stdout, ", assigned by %s", d.Protocol)
		}
		fmt.Fprintln(e.Stdout)
		if d.Why != "" {
			fmt.Fprintf(e.Stdout, "why: %s\n", d.Why)
		}
		if err := lagTable(d.Lag, false).print(c, e.Stdout); err != nil {
			return err
		}
		if len(d.History) == 0 {
			continue
		}
		fmt.Fprintln(e.Stdout, "\nwhat happened last:")
		if err := historyTable(d.History).print(c, e.Stdout); err != nil {
			return err
		}
	}
	return nil
}

func (e *Env) groupMembers(c *cli.Context) error {
	all, err := e.describeGroups(c, false)
	if err != nil {
		return err
	}
	t := table{header: []string{"GROUP", "MEMBER", "INSTANCE", "PROTOCOL", "CLIENT", "HOST", "EPOCH", "ASSIGNMENT"}, value: all}
	for _, d := range all {
		for _, m := range d.Members {
			t.add(d.Group, m.ID, orDash(m.Instance), orDash(m.Protocol), m.Client, m.Host, m.Epoch, assignmentText(m.Assignment))
		}
	}
	return t.print(c, e.Stdout)
}

// assignmentText is an assignment as topic:1,2,3 topic:4.
func assignmentText(list []assignedTopic) string {
	var words []string
	for _, t := range list {
		words = append(words, t.Topic+":"+ids(t.Partitions))
	}
	return orDash(strings.Join(words, " "))
}
