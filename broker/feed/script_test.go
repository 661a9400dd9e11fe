package feed_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/weirmq/weir/broker/feed"
	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// TestScripts runs the scripts of testdata: a leader node and a follower node,
// with a connection between them. "run" carries frames both ways until both
// sides are quiet and prints the transcript, then the state of both.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		p := newPair()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) (out string) {
			defer func() {
				if r := recover(); r != nil {
					out = fmt.Sprintf("%spanic: %v\n", p.out.String(), r)
				}
			}()
			p.out.Reset()
			p.args = args{t, d}
			if at := p.text("at", ""); at != "" {
				span, err := time.ParseDuration(at)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				p.now = p.epoch.Add(span)
			}
			p.run()
			p.state()
			return p.out.String()
		})
	})
}

// pair is both sides. A record is 100 bytes.
type pair struct {
	args
	out        strings.Builder
	epoch, now time.Time
	serial     int
	window     feed.Window

	feeder  *feed.Feeder
	leads   map[string]*leading
	counted map[string]string // what the leader counts for the follower

	follower *feed.Follower
	follows  map[string]*following
	corrupt  bool // the next record arrives with a wrong CRC
	full     bool // the follower's disk takes nothing
}

const recordBytes = 100

type leading struct {
	log   *modelLog
	epoch batch.Epoch
	hw    batch.Offset
	code  feed.Code
	fails feed.Code // what the next read of records ends in
}

type following struct {
	log   *modelLog
	epoch batch.Epoch
	isr   *isr.Follower
}

func newPair() *pair {
	p := &pair{
		epoch: time.Unix(1_000_000, 0), leads: make(map[string]*leading), follows: make(map[string]*following),
		window: feed.Window{ConnBytes: 4000, PartitionBytes: 2000, FeedBytes: 1000, MarkDelay: 5 * time.Millisecond},
	}
	p.now = p.epoch
	p.connect()
	return p
}

func (p *pair) connect() {
	p.feeder = feed.NewFeeder(isr.Member{ID: 2, Epoch: 12}, p.window)
	p.counted = make(map[string]string)
	p.follower = feed.NewFollower()
	for _, name := range slices.Sorted(maps.Keys(p.follows)) {
		f := p.follows[name]
		p.follower.Add(tp(name), f.epoch, f.log.local())
	}
}

// tp is the partition of a one-letter name; a digit after it is the generation
// of the topic, which is another topic id.
func tp(name string) fsm.TopicPartition {
	var id fsm.TopicID
	copy(id[:], name)
	return fsm.TopicPartition{Topic: id}
}

func tpName(tp fsm.TopicPartition) string { return strings.TrimRight(string(tp.Topic[:]), "\x00") }

// run is one directive.
func (p *pair) run() {
	name := ""
	if len(p.d.CmdArgs) > 0 {
		name = p.d.CmdArgs[0].Key
	}
	switch p.d.Cmd {
	case "leader":
		p.leads[name] = &leading{
			log: p.log(), epoch: batch.Epoch(p.number("epoch", 0)), hw: p.offset("hw", 0),
		}
	case "leave": // the leader leaves its epoch: first its view refuses, then all attempts close
		l := p.leads[name]
		l.code = feed.CodeNotLeader
		p.feeder.CloseEpoch(tp(name), l.epoch)
	case "deleted":
		p.leads[name].code = feed.CodeUnknown
	case "append":
		l := p.leads[name]
		for range p.number("n", 1) {
			p.serial++
			l.log.append(record{l.epoch, p.serial})
		}
		p.feeder.Dirty(tp(name))
	case "hw":
		p.leads[name].hw = p.offset("to", 0)
		p.feeder.DirtyMark(tp(name), p.now)
	case "start":
		p.leads[name].log.advanceStart(p.offset("to", 0))
		p.feeder.DirtyMark(tp(name), p.now)
	case "follower":
		f := &following{log: p.log(), epoch: batch.Epoch(p.number("epoch", 0))}
		f.isr = isr.NewFollower(f.epoch, isr.Span{Start: f.log.start, End: f.log.end(), HW: p.offset("hw", f.log.start)})
		p.follows[name] = f
		p.follower.Add(tp(name), f.epoch, f.log.local())
	case "follow": // again, in another epoch
		f := p.follows[name]
		f.epoch = batch.Epoch(p.number("epoch", 0))
		f.isr = isr.NewFollower(f.epoch, isr.Span{Start: f.log.start, End: f.log.end(), HW: f.isr.HW()})
		p.follower.Add(tp(name), f.epoch, f.log.local())
	case "unfollow":
		p.follower.Remove(tp(name))
		delete(p.follows, name)
	default:
		p.runWire(name)
	}
}

// runWire is a directive about the connection.
func (p *pair) runWire(name string) {
	switch p.d.Cmd {
	case "flush":
		f := p.follows[name]
		f.log.flushed = f.log.end()
		p.follower.Flushed(tp(name), f.log.end())
	case "corrupt":
		p.corrupt = true
	case "full":
		p.full = !p.full
	case "unreadable":
		p.leads[name].fails = map[string]feed.Code{"storage": feed.CodeStorage, "out-of-range": feed.CodeOutOfRange}[p.text("code", "storage")]
	case "question":
		p.follower.Ping(p.now)
	case "close":
		for _, v := range p.feeder.Close(nil) {
			p.verdict(v)
		}
	case "reconnect":
		for _, v := range p.feeder.Close(nil) {
			p.verdict(v)
		}
		p.connect()
	case "ping":
		p.feeder.Ping(p.now)
	case "send": // what the follower has to send goes no further than the leader
		p.fromFollower()
	case "run":
		p.exchange()
	case "to-leader":
		for line := range strings.Lines(p.d.Input) {
			if !p.toLeader(parse(p.t, line)) {
				return
			}
		}
	case "to-follower":
		for line := range strings.Lines(p.d.Input) {
			p.toFollower(parse(p.t, line), make([]record, 10))
		}
	default:
		p.d.Fatalf(p.t, "unknown directive %q", p.d.Cmd)
	}
}

// log makes the log that a directive describes, as log=(1:10,2:20). The records
// of an offset and an epoch are the same in every log made so.
func (p *pair) log() *modelLog {
	l := newModelLog()
	for _, a := range p.d.CmdArgs {
		if a.Key != "log" {
			continue
		}
		for _, v := range a.Vals {
			epoch, end, _ := strings.Cut(v, ":")
			e, _ := strconv.Atoi(epoch)
			to, _ := strconv.Atoi(end)
			for l.end() < batch.Offset(to) {
				l.append(record{batch.Epoch(e), -int(l.end())*1000 - e})
			}
		}
	}
	start := p.offset("start", 0)
	if start > l.end() {
		l.reset(start)
	} else {
		l.advanceStart(start)
	}
	l.flushed = l.end()
	return l
}

// exchange carries frames until nobody has any.
func (p *pair) exchange() {
	for range 1000 {
		if !p.fromFollower() && !p.fromLeader() {
			return
		}
	}
	p.d.Fatalf(p.t, "both sides never fall silent:\n%s", p.out.String())
}

func (p *pair) fromFollower() bool {
	frames := p.follower.Pending(nil, 100, p.now)
	for _, f := range frames {
		if !p.toLeader(f) {
			return false
		}
	}
	return len(frames) > 0
}

func (p *pair) toLeader(f feed.Frame) bool {
	fmt.Fprintf(&p.out, "follower: %s\n", show(f, tpName))
	vs, err := p.feeder.Receive(nil, recode(p.t, f), p)
	for _, v := range vs {
		p.verdict(v)
	}
	if err != nil {
		fmt.Fprintf(&p.out, "  error: %v\n", err)
	}
	return err == nil
}

func (p *pair) verdict(v feed.Verdict) {
	name := tpName(v.TP)
	what := ""
	switch v.Kind {
	case feed.VerdictOpened, feed.VerdictProgressed:
		what = "counted " + showPosition(v.Position)
		p.counted[name] = showPosition(v.Position)
	case feed.VerdictGone:
		what = "gone"
		delete(p.counted, name)
	case feed.VerdictBehind:
		what = fmt.Sprintf("behind end=%d", v.Offset)
	case feed.VerdictBad:
		what = fmt.Sprintf("bad offset=%d", v.Offset)
	}
	fmt.Fprintf(&p.out, "  %s@%d %s\n", name, v.Epoch, what)
}

// Leading implements feed.View.
func (p *pair) Leading(tp fsm.TopicPartition) (feed.Leading, feed.Code) {
	l := p.leads[tpName(tp)]
	if l == nil {
		return feed.Leading{}, feed.CodeUnknown
	}
	return feed.Leading{Epoch: l.epoch, Start: l.log.start, End: l.log.end(), HW: l.hw}, l.code
}

// EpochEnd implements feed.View.
func (p *pair) EpochEnd(tp fsm.TopicPartition, e batch.Epoch) (batch.Epoch, batch.Offset) {
	return p.leads[tpName(tp)].log.epochEnd(e)
}

func (p *pair) fromLeader() bool {
	out := p.feeder.Next(p, p.now)
	if out.Gone != nil {
		p.verdict(*out.Gone)
	}
	switch out.Kind {
	case feed.OutFrame:
		p.toFollower(out.Frame, nil)
	case feed.OutSend:
		s := out.Send
		l := p.leads[tpName(s.TP)]
		if l.fails != feed.CodeNone {
			for _, v := range p.feeder.Failed(nil, s, l.fails) {
				p.verdict(v)
			}
			l.fails = feed.CodeNone
			return true
		}
		to := min(s.End, s.From+batch.Offset(max(1, s.MaxBytes/recordBytes)))
		rs := l.log.read(s.From, to)
		f, ok := p.feeder.Sent(s, to, len(rs)*recordBytes)
		if !ok {
			p.d.Fatalf(p.t, "nothing sent for %+v", s)
		}
		p.toFollower(f, rs)
	case feed.OutNone:
		if !out.WakeAt.IsZero() {
			fmt.Fprintf(&p.out, "leader: waits until %v\n", out.WakeAt.Sub(p.epoch))
		}
		return false
	}
	return true
}

func (p *pair) toFollower(f feed.Frame, rs []record) {
	fmt.Fprintf(&p.out, "leader: %s\n", show(f, tpName))
	as, err := p.follower.Receive(nil, recode(p.t, f), p.now)
	for _, a := range as {
		p.act(a, rs)
	}
	if err != nil {
		fmt.Fprintf(&p.out, "  error: %v\n", err)
	}
}

// act does what the follower's shell does.
func (p *pair) act(a feed.Action, rs []record) {
	if a.Kind == feed.ActionDrain {
		fmt.Fprintf(&p.out, "  drains %d bytes\n", a.Size)
		return
	}
	name := tpName(a.TP)
	f := p.follows[name]
	switch a.Kind {
	case feed.ActionAppend:
		p.append(a, f, rs)
	case feed.ActionMark:
		f.isr.Mark(a.HW, a.LogStart, f.log.end())
		if start := f.isr.LogStart(); start > f.log.start {
			f.log.advanceStart(start)
			p.follower.Started(a.TP, start)
		}
	case feed.ActionTruncate:
		to := feed.CutTo(a.Epoch, a.End, f.log.epochEnd)
		f.log.cut(to)
		below := f.isr.Truncated(f.log.start, f.log.end())
		fmt.Fprintf(&p.out, "  %s cut to %d, below the high watermark: %v\n", name, to, below)
		p.follower.Truncated(a.Ref, f.log.local())
	case feed.ActionReset:
		f.log.reset(a.LogStart)
		below := f.isr.Truncated(f.log.start, f.log.end())
		fmt.Fprintf(&p.out, "  %s reset to %d, below the high watermark: %v\n", name, a.LogStart, below)
		p.follower.Truncated(a.Ref, f.log.local())
	case feed.ActionRefused:
		fmt.Fprintf(&p.out, "  %s refused, asks again at %v\n", name, p.follower.WakeAt().Sub(p.epoch))
	}
}

func (p *pair) append(a feed.Action, f *following, rs []record) {
	if p.corrupt {
		p.corrupt = false
		f.log.append(rs[0])
		fmt.Fprintf(&p.out, "  %s appends 1 record, the next one is broken\n", tpName(a.TP))
		p.follower.Bad(a.Ref, f.log.end(), f.log.local(), p.now)
		return
	}
	if p.full {
		p.follower.Retry(a.Ref, f.log.local(), p.now)
		fmt.Fprintf(&p.out, "  %s cannot append, asks again at %v\n", tpName(a.TP), p.follower.WakeAt().Sub(p.epoch))
		return
	}
	f.log.append(rs...)
	f.isr.Mark(a.HW, a.LogStart, f.log.end())
	fmt.Fprintf(&p.out, "  %s appends %d records\n", tpName(a.TP), len(rs))
	p.follower.Appended(a.Ref, f.log.local())
}

// state prints both sides.
func (p *pair) state() {
	for _, name := range slices.Sorted(maps.Keys(p.leads)) {
		l := p.leads[name]
		fmt.Fprintf(&p.out, "%s leader   epoch=%d log=%v hw=%d", name, l.epoch, l.log, l.hw)
		if c, ok := p.counted[name]; ok {
			fmt.Fprintf(&p.out, " counts %s", c)
		}
		p.out.WriteByte('\n')
	}
	for _, name := range slices.Sorted(maps.Keys(p.follows)) {
		f := p.follows[name]
		fmt.Fprintf(&p.out, "%s follower epoch=%d log=%v hw=%d\n", name, f.epoch, f.log, f.isr.HW())
	}
	if n := p.feeder.InFlight(); n > 0 {
		fmt.Fprintf(&p.out, "in flight %d bytes\n", n)
	}
	if h := p.feeder.Heard(); !h.IsZero() {
		fmt.Fprintf(&p.out, "heard of a question sent at %v\n", h.Sub(p.epoch))
	}
}

// recode sends a frame through its encoding.
func recode(t *testing.T, f feed.Frame) feed.Frame {
	t.Helper()
	g, rest, err := feed.DecodeFrame(feed.AppendFrame(nil, f))
	if err != nil || len(rest) != 0 {
		t.Fatalf("decode %+v: %v, %d bytes left", f, err, len(rest))
	}
	return g
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

// TestEveryHazardHasAScript keeps the list of hazards that the feed answers for.
func TestEveryHazardHasAScript(t *testing.T) {
	have := make(map[string]bool)
	datadriven.Walk(t, "testdata/scripts", func(_ *testing.T, path string) {
		have[path[strings.LastIndex(path, "/")+1:][:3]] = true
	})
	for _, h := range strings.Fields("h01 h02 h03 h05 h09 h13 h14 h15 h18 h19 h20 h21 h22 h26 h27 h44") {
		if !have[h] {
			t.Errorf("no script for %s", h)
		}
	}
}
