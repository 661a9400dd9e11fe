package client

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/urfave/cli/v2"
)

// memberCommands are the verbs that change who is in the cluster, and who votes in it.
func (e *Env) memberCommands() []*cli.Command {
	flags := func(more ...cli.Flag) []cli.Flag { return append(append(connectionFlags(), outputFlag()), more...) }
	return []*cli.Command{
		{
			Name: "quorum", Usage: "show which nodes vote on metadata, or change it", Action: e.quorumShow, Flags: flags(),
			Subcommands: []*cli.Command{
				{Name: "add", Usage: "give a node a vote", ArgsUsage: "NODE", Action: e.quorumAdd, Flags: flags(waitFlag()),
					Description: "The node must have joined the cluster (weir start --join) and kept up with its metadata for ten seconds."},
				{Name: "remove", Usage: "take a node's vote; it stays in the cluster", ArgsUsage: "NODE", Action: e.quorumRemove, Flags: flags(yesFlag()),
					Description: "Refused unless those that still vote and answer are a majority of them."},
				{Name: "replace", Usage: "take the vote of one node and give it to another", ArgsUsage: "NODE", Action: e.quorumReplace,
					Flags:       flags(yesFlag(), waitFlag(), &cli.IntFlag{Name: "with", Required: true, Usage: "the node `ID` that is to vote instead"}),
					Description: "A node that does not answer loses its vote first, so that the new one is not needed for a majority before\nit has proven itself; one that answers loses it last, so that a node may fail meanwhile."},
			},
		},
		{Name: "remove", Usage: "take a node out of the cluster for good", ArgsUsage: "NODE", Action: e.clusterRemove, Flags: flags(yesFlag()),
			Description: "The node must host no replica and have no vote. Its process ends, and neither its id nor its data folder\ncomes back."},
	}
}

func waitFlag() cli.Flag {
	return &cli.DurationFlag{Name: "wait", Value: 30 * time.Second, Usage: "how long to wait for the node to keep up"}
}

// quorumRow is one node of the quorum.
type quorumRow struct {
	Node      int32  `json:"node"`
	Directory string `json:"directory_id"`
	Votes     bool   `json:"votes"`
	Leader    bool   `json:"leader"`
	Lag       int64  `json:"lag"` // -1 when unknown
	// Heard and CaughtUp are how long ago, in ms; -1 when not in this term.
	Heard    int64 `json:"heard_ms"`
	CaughtUp int64 `json:"caught_up_ms"`

	folder [16]byte
}

// lostAfter is how long a node may be silent before it counts as dead. The leader hears a node that
// lives some times a second.
const lostAfter = 2 * time.Second

func (r quorumRow) alive() bool {
	return r.Leader || r.Heard >= 0 && time.Duration(r.Heard)*time.Millisecond < lostAfter
}

// member is one run of a verb on members.
type member struct {
	e    *Env
	c    *cli.Context
	cl   *kgo.Client
	ctx  context.Context
	what string
}

// withNode runs a verb on the node that is its only argument.
func (e *Env) withNode(c *cli.Context, what, usage string, run func(m *member, id int32) error) error {
	id, err := strconv.ParseInt(c.Args().First(), 10, 32)
	if c.NArg() != 1 || err != nil || id < 1 {
		return usagef("%s needs the id of one node: %s", what, usage)
	}
	return e.withQuorum(c, fmt.Sprintf("%s %d", what, id), func(m *member) error { return run(m, int32(id)) })
}

func (e *Env) withQuorum(c *cli.Context, what string, run func(m *member) error) error {
	wait := c.Duration("timeout")
	for _, f := range c.Command.Flags {
		if f.Names()[0] == "wait" {
			wait += c.Duration("wait")
		}
	}
	cl, err := e.connect(c, kgo.RetryTimeout(wait), kgo.RequestTimeoutOverhead(wait))
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(c.Context, wait)
	defer cancel()
	return run(&member{e: e, c: c, cl: cl, ctx: ctx, what: what})
}

// rows asks for the quorum, the voters first.
func (m *member) rows() ([]quorumRow, error) {
	req := kmsg.NewPtrDescribeQuorumRequest()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic, topic.Partitions = "__cluster_metadata", []kmsg.DescribeQuorumRequestTopicPartition{{}}
	req.Topics = []kmsg.DescribeQuorumRequestTopic{topic}
	resp, err := req.RequestWith(m.ctx, m.cl)
	if err == nil {
		err = verdict(resp.ErrorCode, resp.ErrorMessage)
	}
	if err != nil {
		return nil, explain(m.what, brokersOf(m.c), err)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, explain(m.what, brokersOf(m.c), kerr.UnknownServerError)
	}
	p, now := resp.Topics[0].Partitions[0], time.Now().UnixMilli()
	if err := verdict(p.ErrorCode, p.ErrorMessage); err != nil {
		return nil, explain(m.what, brokersOf(m.c), err)
	}
	ago := func(at int64) int64 {
		if at < 0 {
			return -1
		}
		return max(0, now-at)
	}
	var rows []quorumRow
	for i, list := range [][]kmsg.DescribeQuorumResponseTopicPartitionReplicaState{p.CurrentVoters, p.Observers} {
		for _, s := range list {
			r := quorumRow{Node: s.ReplicaID, Directory: fmt.Sprintf("%x", s.ReplicaDirectoryID), folder: s.ReplicaDirectoryID, Votes: i == 0, Leader: s.ReplicaID == p.LeaderID,
				Lag: -1, Heard: ago(s.LastFetchTimestamp), CaughtUp: ago(s.LastCaughtUpTimestamp)}
			if s.LogEndOffset >= 0 {
				r.Lag = max(0, p.HighWatermark-s.LogEndOffset)
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

func (e *Env) quorumShow(c *cli.Context) error {
	return e.withQuorum(c, "describe the quorum", func(m *member) error {
		rows, err := m.rows()
		if err != nil {
			return err
		}
		return m.print(rows)
	})
}

// print shows the quorum, and says what is wrong with it.
func (m *member) print(rows []quorumRow) error {
	t := table{header: []string{"NODE", "VOTES", "LEADER", "LAG", "HEARD", "DIRECTORY"}, value: rows}
	mark := map[bool]string{true: "*"}
	for _, r := range rows {
		heard := "-"
		switch {
		case r.Leader:
			heard = "leads"
		case r.Heard >= 0:
			heard = (time.Duration(r.Heard) * time.Millisecond).String()
		}
		lag := "-"
		if r.Lag >= 0 {
			lag = fmt.Sprint(r.Lag)
		}
		t.add(r.Node, mark[r.Votes], mark[r.Leader], lag, heard, r.Directory)
	}
	if err := t.print(m.c, m.e.Stdout); err != nil {
		return err
	}
	voters, alive := votersOf(rows)
	if voters%2 == 0 {
		fmt.Fprintf(m.e.Stderr, "warning: %d nodes vote, of which %d may fail: %d would do the same; give another node a vote or take one\n", voters, (voters-1)/2, voters-1)
	}
	if spare := alive - voters/2 - 1; voters > 1 && spare == 0 {
		fmt.Fprintf(m.e.Stderr, "warning: if one more of the %d nodes that vote fails, the cluster can decide nothing\n", voters)
	}
	return nil
}

// votersOf counts who votes, and who of them is alive.
func votersOf(rows []quorumRow) (voters, alive int) {
	for _, r := range rows {
		if r.Votes {
			voters++
			if r.alive() {
				alive++
			}
		}
	}
	return voters, alive
}

// look asks for the quorum, and finds a node in it.
func (m *member) look(id int32) ([]quorumRow, quorumRow, error) {
	rows, err := m.rows()
	if err != nil {
		return nil, quorumRow{}, err
	}
	r, err := m.find(rows, id)
	return rows, r, err
}

// find is the row of a node.
func (m *member) find(rows []quorumRow, id int32) (quorumRow, error) {
	i := slices.IndexFunc(rows, func(r quorumRow) bool { return r.Node == id })
	if i < 0 {
		return quorumRow{}, &Error{Code: ExitNotFound, Text: fmt.Sprintf("%s: node %d is not in this cluster: start it with --join first", m.what, id)}
	}
	return rows[i], nil
}

// done explains the error of a change, or says what was changed.
func (m *member) done(err error, format string, args ...any) error {
	if err != nil {
		return explain(m.what, brokersOf(m.c), err)
	}
	fmt.Fprintf(m.e.Stderr, format, args...)
	return nil
}

// give has a node vote.
func (m *member) give(r quorumRow) error {
	req := kmsg.NewPtrAddRaftVoterRequest()
	req.VoterID, req.VoterDirectoryID, req.TimeoutMillis = r.Node, r.folder, int32(m.c.Duration("wait").Milliseconds())
	resp, err := req.RequestWith(m.ctx, m.cl)
	if err == nil {
		err = verdict(resp.ErrorCode, resp.ErrorMessage)
	}
	return m.done(err, "node %d votes\n", r.Node)
}

// take has a node vote no more.
func (m *member) take(r quorumRow) error {
	req := kmsg.NewPtrRemoveRaftVoterRequest()
	req.VoterID, req.VoterDirectoryID = r.Node, r.folder
	resp, err := req.RequestWith(m.ctx, m.cl)
	if err == nil {
		err = verdict(resp.ErrorCode, resp.ErrorMessage)
	}
	return m.done(err, "node %d votes no more\n", r.Node)
}

// shown ends a verb with the quorum as it is then.
func (m *member) shown() error {
	rows, err := m.rows()
	if err != nil {
		return err
	}
	return m.print(rows)
}

func (e *Env) quorumAdd(c *cli.Context) error {
	return e.withNode(c, "give a vote to node", "weir cluster quorum add NODE", func(m *member, id int32) error {
		_, r, err := m.look(id)
		if err == nil {
			err = m.give(r)
		}
		if err != nil {
			return err
		}
		return m.shown()
	})
}

func (e *Env) quorumRemove(c *cli.Context) error {
	return e.withNode(c, "take the vote of node", "weir cluster quorum remove NODE", func(m *member, id int32) error {
		rows, r, err := m.look(id)
		if err != nil {
			return err
		}
		voters, _ := votersOf(rows)
		if err := m.e.confirm(m.c, fmt.Sprintf("Take the vote of node %d? %d of %d nodes that vote are left, of which %d may fail.", id, voters-1, voters, max(0, voters-2)/2)); err != nil {
			return err
		}
		if err := m.take(r); err != nil {
			return err
		}
		return m.shown()
	})
}

func (e *Env) quorumReplace(c *cli.Context) error {
	return e.withNode(c, "replace node", "weir cluster quorum replace NODE --with NODE", func(m *member, id int32) error {
		rows, out, err := m.look(id)
		if err != nil {
			return err
		}
		in, err := m.find(rows, int32(c.Int("with")))
		if err != nil {
			return err
		}
		if err := m.e.confirm(m.c, fmt.Sprintf("Take the vote of node %d and give one to node %d?", out.Node, in.Node)); err != nil {
			return err
		}
		return m.replace(out, in)
	})
}

// replace moves a vote, in the order that needs the fewest nodes meanwhile. What was done by an
// earlier try is not done again.
func (m *member) replace(out, in quorumRow) error {
	if out.Node == in.Node {
		return usagef("%s: it can not be replaced with itself", m.what)
	}
	if out.alive() {
		if !in.Votes {
			if err := m.give(in); err != nil {
				return err
			}
		}
		if out.Votes {
			if err := m.take(out); err != nil {
				return err
			}
		}
		return m.shown()
	}
	if !in.Votes {
		if err := m.ready(in.Node); err != nil {
			return err
		}
	}
	if out.Votes {
		if err := m.take(out); err != nil {
			return err
		}
	}
	if !in.Votes {
		if err := m.give(in); err != nil {
			return err
		}
	}
	return m.shown()
}

// readyFor is how long a node must have kept up before another vote is taken for it, and
// readyPause lies between two looks at it.
const (
	readyFor   = 10 * time.Second
	readyPause = 500 * time.Millisecond
	readyLag   = 512
)

// ready waits until a node keeps up, so that it gets its vote soon after the other one is taken.
func (m *member) ready(id int32) error {
	var since time.Time
	until := time.Now().Add(m.c.Duration("wait"))
	for {
		_, r, err := m.look(id)
		if err != nil {
			return err
		}
		switch {
		case !r.alive() || r.Lag < 0 || r.Lag > readyLag:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		if !since.IsZero() && time.Since(since) >= readyFor {
			return nil
		}
		if time.Now().After(until) {
			return &Error{Code: ExitTimeout, Text: fmt.Sprintf("%s: nothing was changed: node %d has not kept up with the metadata for %v; allow more time with --wait, or choose another node", m.what, id, readyFor)}
		}
		select {
		case <-time.After(readyPause):
		case <-m.ctx.Done():
			return explain(m.what, brokersOf(m.c), m.ctx.Err())
		}
	}
}

func (e *Env) clusterRemove(c *cli.Context) error {
	return e.withNode(c, "remove node", "weir cluster remove NODE", func(m *member, id int32) error {
		if err := m.e.confirm(m.c, fmt.Sprintf("Remove node %d for good? Its id and its data folder do not come back.", id)); err != nil {
			return err
		}
		req := kmsg.NewPtrUnregisterBrokerRequest()
		req.BrokerID = id
		resp, err := req.RequestWith(m.ctx, m.cl)
		if err == nil {
			err = verdict(resp.ErrorCode, resp.ErrorMessage)
		}
		return m.done(err, "node %d is removed\n", id)
	})
}
