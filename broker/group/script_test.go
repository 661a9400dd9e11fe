package group_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/weirmq/weir/broker/group"
	"github.com/weirmq/weir/fsm"
)

// TestScripts runs the scripts of testdata. Each step makes one call and prints
// what it gave, and where the group stands afterwards. Puts are committed at once
// unless the step says "hold".
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{start: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), cfg: group.DefaultConfig(),
			asked: map[group.Ticket]string{}, topics: topicSet{}, ids: map[string]int{}}
		s.now = s.start
		datadriven.RunTest(t, path, s.step)
	})
}

// script is the state of one file.
type script struct {
	t      *testing.T
	d      *datadriven.TestData
	out    strings.Builder
	start  time.Time
	now    time.Time
	cfg    group.Config
	g      *group.Group
	row    *fsm.Group // the last that was committed
	put    *fsm.Group // the last that was not
	seq    uint64
	hold   bool
	ticket group.Ticket
	asked  map[group.Ticket]string // who asked what and has no answer
	ids    map[string]int          // how many ids were made for a client
	topics topicSet
}

func (s *script) step(t *testing.T, d *datadriven.TestData) string {
	s.t, s.d = t, d
	s.out.Reset()
	s.hold = d.HasArg("hold")
	switch d.Cmd {
	case "new":
		s.configure()
		s.g = group.New(s.text("id", "orders"), s.cfg)
		s.row, s.put = nil, nil
		clear(s.asked)
		return ""
	case "topics":
		s.setTopics()
		return ""
	case "why":
		return s.g.Why() + "\n"
	case "history":
		return s.history()
	case "describe":
		return s.describe()
	case "row":
		return printRow(s.row, s.topics)
	case "check":
		return s.check()
	}
	s.call()
	s.state()
	return s.out.String()
}

// call makes the call that the step names.
func (s *script) call() {
	switch s.d.Cmd {
	case "join":
		s.took(s.g.Join(s.now, s.ask("join"), s.joinRequest(), s.topics))
	case "sync":
		s.took(s.g.Sync(s.now, s.ask("sync"), s.syncRequest(), s.topics))
	case "heartbeat":
		s.took(s.g.Heartbeat(s.now, s.ask("heartbeat"), group.HeartbeatRequest{
			MemberID: s.name(), InstanceID: s.text("instance", ""), Generation: s.number("gen", 0)}, s.topics))
	case "leave":
		s.took(s.g.Leave(s.now, s.ask("leave"), s.leaveRequest()))
	case "consumer":
		s.took(s.g.ConsumerHeartbeat(s.now, s.ask("consumer"), s.consumerRequest(), s.topics))
	case "delete":
		s.took(s.g.Delete(s.now, s.ask("delete")))
	case "advance":
		s.advance(s.span(s.d.CmdArgs[0].Key))
	case "expire":
		s.took(s.g.Expire(s.now))
	case "stall":
		s.now = s.now.Add(s.span(s.d.CmdArgs[0].Key))
		s.took(s.g.Expire(s.now))
	case "commit":
		s.apply()
		s.took(s.g.Committed(s.now, s.seq))
	case "refuse":
		s.put = nil
		s.took(s.g.Refused(s.now, s.seq))
	case "close":
		s.took(s.g.Close(s.now))
	case "failover":
		s.failover()
	default:
		s.d.Fatalf(s.t, "unknown command %s", s.d.Cmd)
	}
}

// ask makes a ticket for a request.
func (s *script) ask(what string) group.Ticket {
	s.ticket++
	s.asked[s.ticket] = what + " of " + s.name()
	return s.ticket
}

// took prints what a call gave, and commits its Put.
func (s *script) took(o group.Out) {
	for _, r := range o.Replies {
		who, open := s.asked[r.Ticket]
		if !open {
			s.d.Fatalf(s.t, "ticket %d is answered again: %+v", r.Ticket, r.Answer)
		}
		delete(s.asked, r.Ticket)
		fmt.Fprintf(&s.out, "%s: %s\n", who, s.printAnswer(r.Answer))
	}
	if o.Dead {
		s.out.WriteString("dead: to be loaded again\n")
	}
	if o.Put == nil && !o.Delete {
		return
	}
	s.put, s.seq = o.Put, o.Seq
	if o.Delete {
		s.out.WriteString("wants to delete its row\n")
	} else {
		fmt.Fprintf(&s.out, "stores epoch %d with %d members\n", o.Put.Epoch, len(o.Put.Members))
	}
	if !s.hold {
		s.apply()
		s.took(s.g.Committed(s.now, s.seq))
	}
}

// apply makes the row of the last Put, or of the last Delete none.
func (s *script) apply() {
	if s.put != nil {
		s.put = fsm.PutGroup{Group: s.put}.Over(s.row)
	}
	s.row, s.put = s.put, nil
}

// advance lets time pass, with an Expire whenever the group wants one.
func (s *script) advance(d time.Duration) {
	end := s.now.Add(d)
	for w := s.g.WakeAt(); !w.IsZero() && !w.After(end); w = s.g.WakeAt() {
		if w.After(s.now) {
			s.now = w
		}
		before := s.out.String()
		s.out.Reset()
		s.took(s.g.Expire(s.now))
		text := s.out.String()
		s.out.Reset()
		s.out.WriteString(before)
		if next := s.g.WakeAt(); !next.IsZero() && !next.After(s.now) {
			s.d.Fatalf(s.t, "Expire at %s asks to be called at %s again", s.clock(s.now), s.clock(next))
		}
		if text != "" {
			fmt.Fprintf(&s.out, "at %s:\n%s", s.clock(s.now), text)
		}
	}
	s.now = end
}

// failover loads the group from its row. Whoever waited has lost the connection.
func (s *script) failover() {
	s.cfg.MaxSize = int(s.number("max", s.cfg.MaxSize)) // the next coordinator is configured otherwise
	s.asked = map[group.Ticket]string{}
	s.put = nil
	if s.row == nil {
		s.g = group.New(s.g.ID(), s.cfg)
		return
	}
	s.g = group.Load(s.row, s.cfg, s.now)
}

// state prints where the group stands.
func (s *script) state() {
	d := s.g.Describe()
	fmt.Fprintf(&s.out, "%s %s epoch %d", s.clock(s.now), d.State, d.Epoch)
	if d.Kind == fsm.ConsumerGroup {
		fmt.Fprintf(&s.out, " assignment %d", d.AssignmentEpoch)
	}
	if d.Protocol != "" && len(d.Members) > 0 {
		fmt.Fprintf(&s.out, " %s", d.Protocol)
	}
	for _, m := range d.Members {
		fmt.Fprintf(&s.out, "\n  %s", m.ID)
		if m.ID == d.Leader {
			s.out.WriteString(" leader")
		}
		if m.Waiting {
			s.out.WriteString(" waits")
		}
		if d.Kind == fsm.ConsumerGroup {
			if m.Kind == fsm.ClassicGroup {
				s.out.WriteString(" classic")
			}
			fmt.Fprintf(&s.out, " epoch %d has %s", m.Epoch, s.topics.print(m.Assigned))
			if len(m.Revoking) > 0 {
				fmt.Fprintf(&s.out, " revokes %s", s.topics.print(m.Revoking))
			}
			fmt.Fprintf(&s.out, " target %s", s.topics.print(m.Target))
		}
	}
	s.out.WriteString("\n")
	if len(s.asked) > 0 {
		var open []string
		for _, t := range slices.Sorted(maps.Keys(s.asked)) {
			open = append(open, s.asked[t])
		}
		fmt.Fprintf(&s.out, "  unanswered: %s\n", strings.Join(open, ", "))
	}
}

func (s *script) clock(t time.Time) string { return "+" + t.Sub(s.start).String() }

func (s *script) history() string {
	var out strings.Builder
	for _, t := range s.g.History() {
		fmt.Fprintf(&out, "%s %s→%s epoch %d", s.clock(t.At), t.From, t.To, t.Epoch)
		if t.Member != "" {
			fmt.Fprintf(&out, " [%s %s %s]", t.Member, t.ClientID, t.ClientHost)
		}
		fmt.Fprintf(&out, " %s\n", t.Cause)
	}
	return out.String()
}

func (s *script) describe() string {
	d := s.g.Describe()
	out := fmt.Sprintf("%s kind %d state %s epoch %d type %q protocol %q leader %q\n", d.ID, d.Kind, d.State, d.Epoch, d.ProtocolType, d.Protocol, d.Leader)
	if !d.EmptySince.IsZero() {
		out += "empty since " + s.clock(d.EmptySince) + "\n"
	}
	for _, m := range d.Members {
		out += fmt.Sprintf("  %s instance %q client %s at %s metadata %s assignment %q", m.ID, m.InstanceID, m.ClientID, m.ClientHost, printMetadata(m.Metadata), m.Assignment)
		if !m.Deadline.IsZero() {
			out += " session until " + s.clock(m.Deadline)
		}
		out += "\n"
	}
	return out
}

// check asks whether offsets may be committed or fetched, and who subscribes.
func (s *script) check() string {
	out := fmt.Sprintf("commit %s\n", s.g.CheckCommit(s.name(), s.text("instance", ""), s.number("epoch", -1)))
	out += fmt.Sprintf("fetch %s\n", s.g.CheckFetch(s.name(), s.number("epoch", -1)))
	if topic := s.text("topic", ""); topic != "" {
		out += fmt.Sprintf("subscribed to %s: %v (known %v)\n", topic, s.g.Subscribed(topic), s.g.KnowsSubscriptions())
	}
	return out
}

func (s *script) printAnswer(a group.Answer) string {
	switch a := a.(type) {
	case group.JoinReply:
		return printJoin(a)
	case group.SyncReply:
		if a.Code != group.None {
			return a.Code.String()
		}
		return fmt.Sprintf("%s/%s assigned %s", a.ProtocolType, a.Protocol, printAssignment(a.Assignment))
	case group.HeartbeatReply:
		return a.Code.String()
	case group.LeaveReply:
		out := a.Code.String()
		for _, m := range a.Members {
			out += fmt.Sprintf(" [%s %s]", strings.TrimSpace(m.MemberID+" "+m.InstanceID), m.Code)
		}
		return out
	case group.ConsumerReply:
		if a.Code != group.None {
			return fmt.Sprintf("%s: %s", a.Code, a.Message)
		}
		out := fmt.Sprintf("member %s epoch %d", a.MemberID, a.Epoch)
		if a.HasAssignment {
			out += " assigned " + s.topics.print(a.Assignment)
		}
		return out
	case group.DeleteReply:
		return a.Code.String()
	}
	return fmt.Sprintf("unknown answer %T", a)
}

func printJoin(a group.JoinReply) string {
	if a.Code != group.None {
		return fmt.Sprintf("%s id %q", a.Code, a.MemberID)
	}
	out := fmt.Sprintf("generation %d %s/%s leader %s you %s", a.Generation, a.ProtocolType, a.Protocol, a.Leader, a.MemberID)
	if a.SkipAssignment {
		out += " skip-assignment"
	}
	for _, m := range a.Members {
		out += fmt.Sprintf(" (%s %s)", strings.TrimSpace(m.ID+" "+m.InstanceID), printMetadata(m.Metadata))
	}
	return out
}

func printRow(row *fsm.Group, topics topicSet) string {
	if row == nil {
		return "no row\n"
	}
	out := fmt.Sprintf("kind %d epoch %d assignment %d type %q protocol %q leader %q empty %v\n", row.Kind, row.Epoch, row.AssignmentEpoch,
		row.ProtocolType, row.Protocol, row.Leader, row.EmptySince != 0)
	for _, m := range row.Members {
		out += fmt.Sprintf("  %s", m.ID)
		if row.Kind == fsm.ClassicGroup {
			out += " assignment " + printAssignment(m.Assignment)
			if m.Epoch != 0 || m.Assigned != nil {
				out += fmt.Sprintf(" epoch %d had %s", m.Epoch, topics.print(m.Assigned))
			}
			out += "\n"
			continue
		}
		out += fmt.Sprintf(" epoch %d (before %d) assigned %s revoking %s target %s\n", m.Epoch, m.PreviousEpoch,
			topics.print(m.Assigned), topics.print(m.Revoking), topics.print(m.Target))
	}
	return out
}

// Reading the arguments of a step.

func (s *script) text(key, otherwise string) string {
	for _, a := range s.d.CmdArgs {
		if a.Key == key && len(a.Vals) > 0 {
			return strings.Join(a.Vals, ",")
		}
	}
	return otherwise
}

func (s *script) list(key string) []string {
	for _, a := range s.d.CmdArgs {
		if a.Key == key {
			if len(a.Vals) == 1 && a.Vals[0] == "" {
				return []string{}
			}
			return a.Vals
		}
	}
	return nil
}

func (s *script) number(key string, otherwise int) int32 {
	n, err := strconv.Atoi(s.text(key, strconv.Itoa(otherwise)))
	if err != nil {
		s.d.Fatalf(s.t, "%s: %v", key, err)
	}
	return int32(n)
}

func (s *script) span(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
	return d
}

// name is the first argument: who asks.
func (s *script) name() string {
	if len(s.d.CmdArgs) == 0 || len(s.d.CmdArgs[0].Vals) > 0 {
		return ""
	}
	if name := s.d.CmdArgs[0].Key; name != "-" {
		return name
	}
	return ""
}

func (s *script) configure() {
	s.cfg = group.DefaultConfig()
	s.cfg.InitialDelay = s.span(s.text("delay", "3s"))
	s.cfg.MaxSize = int(s.number("max", 1000))
	s.cfg.ConsumerMaxSize = s.cfg.MaxSize
	s.cfg.AssignmentInterval = s.span(s.text("interval", "0s"))
	for _, m := range group.Migrations() {
		if m.String() == s.text("policy", "") {
			s.cfg.Migration = m
		}
	}
}
