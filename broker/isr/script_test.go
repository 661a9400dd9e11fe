package isr_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// TestScripts runs the scripts of testdata. Each directive is one event; the
// output is its effects and the whole state after it. A script is named by the
// hazards that it shows to be ruled out.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{start: time.Unix(1_000_000, 0), brokers: make(map[fsm.BrokerID]broker)}
		s.now = s.start
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return s.run(t, d)
		})
	})
}

// script is a leader, the brokers around it and a clock.
type script struct {
	start, now time.Time
	brokers    map[fsm.BrokerID]broker
	self       isr.Member
	state      isr.State
	leader     *isr.Leader
	follower   *isr.Follower
}

type broker struct {
	epoch    fsm.BrokerEpoch
	eligible bool
}

func (s *script) live(id fsm.BrokerID) (fsm.BrokerEpoch, bool) {
	b := s.brokers[id]
	return b.epoch, b.eligible
}

// run is one event. "at" moves the clock before any of them.
func (s *script) run(t *testing.T, d *datadriven.TestData) (out string) {
	defer func() {
		if r := recover(); r != nil {
			out = fmt.Sprintf("panic: %v\n", r)
		}
	}()
	a := args{t, d}
	if at := a.text("at", ""); at != "" {
		s.now = s.start.Add(a.duration(at))
	}
	switch d.Cmd {
	case "broker":
		id, _ := strconv.Atoi(d.CmdArgs[0].Key)
		s.brokers[fsm.BrokerID(id)] = broker{fsm.BrokerEpoch(a.number("epoch", 0)), !d.HasArg("fenced") && !d.HasArg("stopping")}
		return ""
	case "follow-as", "mark", "truncated":
		return s.runFollower(a)
	case "lead":
		return s.lead(a)
	}
	return s.report(s.event(a))
}

func (s *script) lead(a args) string {
	s.self = isr.Member{ID: 1, Epoch: s.brokers[1].epoch}
	s.state = isr.State{LeaderEpoch: batch.Epoch(a.number("epoch", 0))}
	s.merge(a)
	end := a.offset("end", 0)
	span := isr.Span{Start: a.offset("start", 0), End: end, Flushed: a.offset("flushed", end), HW: a.offset("hw", end)}
	c := isr.Config{Self: s.self, LagMax: 10 * time.Second}
	s.leader = isr.NewLeader(c, s.state, span, s.now)
	return s.report(s.leader.Tick(s.now, s.live))
}

// merge takes what a directive says of the partition's state.
func (s *script) merge(a args) {
	s.state.PartitionEpoch = fsm.PartitionEpoch(a.number("pe", int64(s.state.PartitionEpoch)))
	s.state.MinISR = int16(a.number("min", int64(s.state.MinISR)))
	s.state.Unsettled = a.d.HasArg("unsettled")
	s.state.Awaited = a.d.HasArg("awaited")
	durabilities := map[string]fsm.Durability{"replicated": fsm.DurabilityReplicated, "fsync": fsm.DurabilityFsync}
	if w := a.text("wanted", ""); w != "" {
		s.state.Wanted = durabilities[w]
	}
	if r := a.text("recorded", ""); r != "" {
		s.state.Durability = durabilities[r]
	}
	if r := a.text("replicas", ""); r != "" {
		s.state.Replicas = ids(r)
	}
	if r := a.text("isr", ""); r != "" {
		s.state.ISR = ids(r)
	}
}

func ids(s string) []fsm.BrokerID {
	var out []fsm.BrokerID
	for word := range strings.SplitSeq(s, "/") {
		id, _ := strconv.Atoi(word)
		out = append(out, fsm.BrokerID(id))
	}
	return out
}

func (s *script) event(a args) isr.Effects {
	l := s.leader
	switch a.d.Cmd {
	case "append":
		return l.Appended(a.offset("end", 0), s.now)
	case "flush":
		return l.Flushed(a.offset("end", 0), s.now, s.live)
	case "started":
		l.Started(a.offset("start", 0))
	case "follow":
		l.Follow(a.member(), s.now)
		return l.Progressed(a.member(), a.position(), s.now, s.live)
	case "progress":
		return l.Progressed(a.member(), a.position(), s.now, s.live)
	case "behind":
		return l.Behind(a.member(), a.offset("end", 0), s.now, s.live)
	case "gone":
		l.Gone(a.member())
	case "tick":
		return l.Tick(s.now, s.live)
	case "install":
		s.merge(a)
		s.state.LeaderEpoch = batch.Epoch(a.number("epoch", int64(s.state.LeaderEpoch)))
		return l.Installed(s.state, s.now, s.live)
	case "answer":
		o := map[string]isr.Outcome{"committed": isr.Committed, "refused": isr.Refused, "unknown": isr.Unknown}[a.text("was", "")]
		return l.Answered(fsm.PartitionEpoch(a.number("pe", 0)), o, s.now, s.live)
	case "ask":
	default:
		a.d.Fatalf(a.t, "unknown event %q", a.d.Cmd)
	}
	return isr.Effects{HW: l.HW()}
}

func (s *script) report(e isr.Effects) string {
	var b strings.Builder
	if e.HWMoved {
		fmt.Fprintf(&b, "-> high watermark %d\n", e.HW)
	}
	if e.Propose != nil {
		fmt.Fprintf(&b, "-> propose pe=%d isr=%v", e.Propose.PartitionEpoch, members(e.Propose.ISR))
		if e.Propose.Confirms {
			b.WriteString(" confirms")
		}
		if e.Propose.Durability == fsm.DurabilityFsync {
			b.WriteString(" fsync")
		}
		b.WriteString("\n")
	}
	if !e.WakeAt.IsZero() {
		fmt.Fprintf(&b, "-> tick at %v\n", e.WakeAt.Sub(s.start))
	}
	fmt.Fprintf(&b, "%v\n", s.leader)
	heard := func(isr.Member) time.Time { return s.now }
	fmt.Fprintf(&b, "latest-served=%v below-min=%v low=%d whole-isr-answers=%v\n",
		s.leader.Servable(), s.leader.BelowMinISR(), s.leader.LogStartLow(), s.leader.Heard(s.now, heard))
	return b.String()
}

func members(ms []isr.Member) string {
	var words []string
	for _, m := range ms {
		words = append(words, fmt.Sprintf("%d@%d", m.ID, m.Epoch))
	}
	return strings.Join(words, ",")
}

func (s *script) runFollower(a args) string {
	switch a.d.Cmd {
	case "follow-as":
		span := isr.Span{Start: a.offset("start", 0), End: a.offset("end", 0), HW: a.offset("hw", 0)}
		s.follower = isr.NewFollower(batch.Epoch(a.number("epoch", 0)), span)
	case "mark":
		s.follower.Mark(a.offset("hw", 0), a.offset("start", 0), a.offset("end", 0))
	case "truncated":
		if s.follower.Truncated(a.offset("start", 0), a.offset("end", 0)) {
			return "-> cut below the high watermark\n" + s.followerText()
		}
	}
	return s.followerText()
}

func (s *script) followerText() string {
	return fmt.Sprintf("hw=%d start=%d told=%v\n", s.follower.HW(), s.follower.LogStart(), s.follower.Told())
}

// args reads the arguments of a directive.
type args struct {
	t *testing.T
	d *datadriven.TestData
}

func (a args) text(key, otherwise string) string {
	if !a.d.HasArg(key) {
		return otherwise
	}
	var v string
	a.d.ScanArgs(a.t, key, &v)
	return v
}

func (a args) number(key string, otherwise int64) int64 {
	v, err := strconv.ParseInt(a.text(key, strconv.FormatInt(otherwise, 10)), 10, 64)
	if err != nil {
		a.d.Fatalf(a.t, "%s: %v", key, err)
	}
	return v
}

func (a args) offset(key string, otherwise batch.Offset) batch.Offset {
	return batch.Offset(a.number(key, int64(otherwise)))
}

func (a args) duration(s string) time.Duration {
	v, err := time.ParseDuration(s)
	if err != nil {
		a.d.Fatalf(a.t, "%v", err)
	}
	return v
}

// member is the first argument, as broker@epoch.
func (a args) member() isr.Member {
	id, epoch, _ := strings.Cut(a.d.CmdArgs[0].Key, "@")
	i, err := strconv.Atoi(id)
	e, err2 := strconv.Atoi(epoch)
	if err != nil || err2 != nil {
		a.d.Fatalf(a.t, "member %q", a.d.CmdArgs[0].Key)
	}
	return isr.Member{ID: fsm.BrokerID(i), Epoch: fsm.BrokerEpoch(e)}
}

func (a args) position() isr.Position {
	w := a.offset("written", 0)
	return isr.Position{Written: w, Flushed: a.offset("flushed", w), LogStart: a.offset("start", 0)}
}

// TestEveryHazardHasAScript keeps the list of hazards that this package answers for.
func TestEveryHazardHasAScript(t *testing.T) {
	want := map[string]string{
		"h04": "joins only past the epoch start", "h06": "compare and set", "h07": "maximal ISR", "h08": "fenced or stopping",
		"h09": "reboot inside the race", "h13": "zombie leader", "h14": "elected is not servable", "h15": "HW never back",
		"h16": "follower shows no more than its HW", "h17": "ISR shrinks after append", "h18": "slow member", "h19": "own stall",
		"h20": "positions of an older epoch", "h27": "duplicate before commit", "h31": "flushed ends count",
		"h44": "log start", "h10": "the ISR is confirmed", "h24": "replicas change", "h25": "stopping", "h53": "late metadata", "h54": "shrink keeps the epoch",
	}
	have := make(map[string]bool)
	datadriven.Walk(t, "testdata", func(_ *testing.T, path string) {
		base := path[strings.LastIndex(path, "/")+1:]
		have[base[:3]] = true
	})
	for _, h := range slices.Sorted(maps.Keys(want)) {
		if !have[h] {
			t.Errorf("no script for %s: %s", h, want[h])
		}
	}
}
