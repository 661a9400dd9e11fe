package elect

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// TestRecovery runs the scripts of testdata/recovery. Times are in milliseconds
// from the start of the script; a broker that did not answer is left alone for
// 100 ms. Partitions are those of one topic. Each step prints what it returns and
// when to come back.
func TestRecovery(t *testing.T) {
	datadriven.Walk(t, "testdata/recovery", func(t *testing.T, path string) {
		s := &recoveryScript{r: NewRecovery(100 * time.Millisecond), im: fsm.NewImage(), questions: map[string]Question{}}
		datadriven.RunTest(t, path, s.step)
	})
}

type recoveryScript struct {
	r         *Recovery
	im        *fsm.Image
	now       time.Time
	questions map[string]Question // by the name that they were printed with
	next      int
}

var recoveryTopic = fsm.TopicID{'t'}

func (s *recoveryScript) step(t *testing.T, d *datadriven.TestData) string {
	var at int
	if d.MaybeScanArgs(t, "at", &at); d.HasArg("at") {
		s.now = time.UnixMilli(1_000_000 + int64(at))
	}
	out := ""
	switch d.Cmd {
	case "brokers":
		var n int
		d.ScanArgs(t, "n", &n)
		s.registerAll(t, n)
	case "create":
		s.create(t, d)
	case "crash": // all at once, and back: another boot each
		for _, id := range intArgs(t, d, "ids") {
			s.apply(t, registration(s.im, fsm.BrokerID(id), fmt.Sprint("boot", s.im.Index())))
		}
		for _, id := range intArgs(t, d, "ids") {
			b, _ := s.im.Broker(fsm.BrokerID(id))
			s.apply(t, fsm.UnfenceBroker{ID: b.ID, Epoch: b.Epoch})
		}
	case "fence":
		b, _ := s.im.Broker(fsm.BrokerID(intArgs(t, d, "ids")[0]))
		s.apply(t, fsm.FenceBroker{ID: b.ID, Epoch: b.Epoch})
	case "unfence":
		b, _ := s.im.Broker(fsm.BrokerID(intArgs(t, d, "ids")[0]))
		s.apply(t, fsm.UnfenceBroker{ID: b.ID, Epoch: b.Epoch})
	case "join": // partition 0 has these in sync, and has confirmed it
		p, _ := s.im.Partition(fsm.TopicPartition{Topic: recoveryTopic})
		leader, _ := s.im.Broker(p.Leader)
		item := fsm.ISRChange{TP: fsm.TopicPartition{Topic: recoveryTopic}, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Confirms: true}
		for _, id := range intArgs(t, d, "ids") {
			b, _ := s.im.Broker(fsm.BrokerID(id))
			item.ISR = append(item.ISR, fsm.Member{ID: b.ID, Epoch: b.Epoch})
		}
		s.apply(t, fsm.ChangeISR{Proposer: leader.ID, BrokerEpoch: leader.Epoch, Items: []fsm.ISRChange{item}})
	case "update":
		s.r.Update(s.im)
	case "questions":
		out = s.ask()
	case "answer":
		s.answer(t, d)
	case "failed":
		var name string
		d.ScanArgs(t, "question", &name)
		s.r.Failed(s.questions[name], s.now)
	case "decide":
		out = s.decide(t)
	default:
		t.Fatalf("%s: unknown step %q", d.Pos, d.Cmd)
	}
	if at, more := s.r.WakeAt(); !more {
		out += "wake never\n"
	} else {
		out += fmt.Sprintf("wake in %dms\n", max(0, at.Sub(s.now).Milliseconds()))
	}
	return out
}

func (s *recoveryScript) apply(t *testing.T, c fsm.Command) {
	t.Helper()
	var r fsm.Result
	if s.im, r = fsm.Apply(s.im, s.im.Index()+1, c); r.Err != nil || len(r.Skipped) > 0 {
		t.Fatalf("%#v: %v, skipped %v", c, r.Err, r.Why)
	}
}

// registration is that of a process which just started.
func registration(im *fsm.Image, id fsm.BrokerID, boot string) fsm.RegisterBroker {
	cur, _ := im.Broker(id)
	return fsm.RegisterBroker{ID: id, Folder: [16]byte{byte(id)}, Process: [16]byte{1, byte(cur.Epoch >> 8), byte(cur.Epoch)}, BootID: boot, Replaces: cur.Epoch}
}

func (s *recoveryScript) registerAll(t *testing.T, n int) {
	for id := fsm.BrokerID(1); id <= fsm.BrokerID(n); id++ {
		s.apply(t, registration(s.im, id, "boot"))
		b, _ := s.im.Broker(id)
		s.apply(t, fsm.UnfenceBroker{ID: id, Epoch: b.Epoch})
	}
}

// create takes the replicas of a partition from each line.
func (s *recoveryScript) create(t *testing.T, d *datadriven.TestData) {
	c := fsm.CreateTopic{ID: recoveryTopic, Name: "t", Configs: uncleanConfigs(d.HasArg("unclean"))}
	for line := range strings.Lines(d.Input) {
		var replicas []fsm.BrokerID
		for _, f := range strings.Fields(line) {
			replicas = append(replicas, fsm.BrokerID(atoi(t, f)))
		}
		np, _ := Initial(s.im, replicas)
		c.Partitions = append(c.Partitions, np)
	}
	s.apply(t, c)
}

// uncleanConfigs are those of a topic that allows an unclean election, or of one that does not.
func uncleanConfigs(allowed bool) [][2]string {
	if !allowed {
		return nil
	}
	return [][2]string{{"unclean.leader.election.enable", "true"}}
}

func (s *recoveryScript) ask() string {
	var out strings.Builder
	for _, q := range s.r.Questions(s.now) {
		s.next++
		name := fmt.Sprint("q", s.next)
		s.questions[name] = q
		fmt.Fprintf(&out, "%s: broker %d@%d at index %d about", name, q.Broker, q.Epoch, q.Index)
		for _, tp := range q.Partitions {
			fmt.Fprintf(&out, " %d", tp.Partition)
		}
		out.WriteString("\n")
	}
	return out.String()
}

// answer takes lines "partition epoch end [damaged] [earlier epoch:end …]".
func (s *recoveryScript) answer(t *testing.T, d *datadriven.TestData) {
	var name, topic string
	d.ScanArgs(t, "question", &name)
	d.MaybeScanArgs(t, "topic", &topic)
	q, ok := s.questions[name]
	if !ok {
		t.Fatalf("%s: there is no question %s", d.Pos, name)
	}
	epoch, broker := int(q.Epoch), int(q.Broker)
	d.MaybeScanArgs(t, "epoch", &epoch)
	d.MaybeScanArgs(t, "broker", &broker)
	var answers []Answer
	for line := range strings.Lines(d.Input) {
		f := strings.Fields(line)
		a := Answer{
			TP: fsm.TopicPartition{Topic: recoveryTopic, Partition: int32(atoi(t, f[0]))}, Epoch: fsm.BrokerEpoch(epoch),
			End: LogEnd{Broker: fsm.BrokerID(broker), Epoch: batch.Epoch(atoi(t, f[1])), End: batch.Offset(atoi(t, f[2]))},
		}
		n := 0
		for _, more := range f[3:] {
			if before, end, ok := strings.Cut(more, ":"); ok {
				a.End.Earlier[n] = EpochEnd{batch.Epoch(atoi(t, before)), batch.Offset(atoi(t, end))}
				n++
				continue
			}
			a.End.Damaged = true
		}
		if topic != "" {
			a.TP.Topic = fsm.TopicID{topic[0]}
		}
		answers = append(answers, a)
	}
	s.r.Answered(q, answers, s.now)
}

// decide prints the decisions and applies them.
func (s *recoveryScript) decide(t *testing.T) string {
	var out strings.Builder
	for _, d := range s.r.Decide(s.im) {
		c := d.Change
		fmt.Fprintf(&out, "%d: leader %d isr %v recovering %v of", c.TP.Partition, c.Leader, c.ISR, c.Recovering)
		for _, e := range d.Ends {
			fmt.Fprintf(&out, " %d:%d:%d", e.Broker, e.Epoch, e.End)
		}
		out.WriteString("\n")
		s.apply(t, fsm.ChangeLeaders{Items: []fsm.LeaderChange{c}})
	}
	for _, tp := range s.r.Damaged() {
		fmt.Fprintf(&out, "%d: all are damaged\n", tp.Partition)
	}
	return out.String()
}

func intArgs(t *testing.T, d *datadriven.TestData, key string) []int {
	var out []int
	for _, a := range d.CmdArgs {
		if a.Key == key {
			for _, v := range a.Vals {
				out = append(out, atoi(t, v))
			}
		}
	}
	return out
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRecoveryProperties lets brokers crash, answer late or never, and checks every
// election: it is made from answers of present incarnations, by the best of them
// that is not damaged, and in the end every partition that can has a leader.
func TestRecoveryProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &recoveryWorld{t: t, r: NewRecovery(10 * time.Millisecond), im: brokers(t, "llll", noRack), now: time.UnixMilli(1), ends: map[fsm.BrokerID]map[int32]LogEnd{}}
		w.unclean = rapid.Bool().Draw(t, "unclean")
		w.create(rapid.IntRange(1, 6).Draw(t, "partitions"))
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			w.step()
		}
		w.settle()
	})
}

type recoveryWorld struct {
	t       *rapid.T
	r       *Recovery
	im      *fsm.Image
	now     time.Time
	ends    map[fsm.BrokerID]map[int32]LogEnd // as they are on the disks
	waiting []Question
	boots   int
	unclean bool // the topic allows it
}

func (w *recoveryWorld) apply(c fsm.Command) {
	var r fsm.Result
	if w.im, r = fsm.Apply(w.im, w.im.Index()+1, c); r.Err != nil || len(r.Skipped) > 0 {
		w.t.Fatalf("%#v: %v, skipped %v", c, r.Err, r.Why)
	}
	w.r.Update(w.im)
}

func (w *recoveryWorld) create(n int) {
	lists, err := Place(w.im, n, 3, rapid.Uint64().Draw(w.t, "seed"))
	if err != nil {
		w.t.Fatal(err)
	}
	c := fsm.CreateTopic{ID: recoveryTopic, Name: "t", Configs: uncleanConfigs(w.unclean)}
	for _, list := range lists {
		np, _ := Initial(w.im, list)
		c.Partitions = append(c.Partitions, np)
	}
	w.apply(c)
}

func (w *recoveryWorld) step() {
	w.now = w.now.Add(time.Duration(rapid.IntRange(0, 20).Draw(w.t, "ms")) * time.Millisecond)
	switch rapid.SampledFrom([]string{"crash", "unfence", "ask", "answer", "answer", "lose", "decide", "elect"}).Draw(w.t, "step") {
	case "crash":
		w.crash(w.broker())
	case "unfence":
		b, _ := w.im.Broker(w.broker())
		w.apply(fsm.UnfenceBroker{ID: b.ID, Epoch: b.Epoch})
	case "ask":
		w.ask()
	case "answer":
		if q, ok := w.takeQuestion(); ok {
			w.answer(q)
		}
	case "lose":
		if q, ok := w.takeQuestion(); ok {
			w.r.Failed(q, w.now)
		}
	case "decide":
		w.decide()
	case "elect":
		w.apply(fsm.ChangeLeaders{Items: Leaders(w.im)})
	}
}

func (w *recoveryWorld) broker() fsm.BrokerID {
	return fsm.BrokerID(rapid.IntRange(1, 4).Draw(w.t, "broker"))
}

// crash restarts a broker under another boot, with whatever is left of its logs.
func (w *recoveryWorld) crash(id fsm.BrokerID) {
	w.boots++
	w.ends[id] = map[int32]LogEnd{}
	for i := range w.im.Partitions(recoveryTopic) {
		e := LogEnd{
			Broker: id, Epoch: batch.Epoch(rapid.IntRange(-1, 3).Draw(w.t, "epoch")), End: batch.Offset(rapid.IntRange(0, 4).Draw(w.t, "end")),
			Damaged: rapid.IntRange(0, 3).Draw(w.t, "damage") == 0,
		}
		if e.Epoch > 0 && rapid.Bool().Draw(w.t, "has an earlier epoch") {
			e.Earlier[0] = EpochEnd{batch.Epoch(rapid.IntRange(0, int(e.Epoch)-1).Draw(w.t, "earlier")), batch.Offset(rapid.IntRange(0, int(e.End)).Draw(w.t, "its end"))}
		}
		w.ends[id][i] = e
	}
	w.apply(registration(w.im, id, fmt.Sprint("boot", w.boots)))
}

func (w *recoveryWorld) ask() {
	asked := map[fsm.BrokerID]bool{}
	for _, q := range w.r.Questions(w.now) {
		b, _ := w.im.Broker(q.Broker)
		if asked[q.Broker] || b.Epoch != q.Epoch || len(q.Partitions) == 0 || len(q.Partitions) > QuestionSize {
			w.t.Fatalf("question %+v", q)
		}
		asked[q.Broker] = true
		for _, old := range w.waiting {
			if old.Broker == q.Broker && old.Epoch == q.Epoch {
				w.t.Fatalf("question %+v while %+v is outstanding", q, old)
			}
		}
		w.waiting = append(w.waiting, q)
	}
}

func (w *recoveryWorld) takeQuestion() (Question, bool) {
	if len(w.waiting) == 0 {
		return Question{}, false
	}
	i := rapid.IntRange(0, len(w.waiting)-1).Draw(w.t, "question")
	q := w.waiting[i]
	w.waiting = slices.Delete(w.waiting, i, i+1)
	return q, true
}

// answer is given by the incarnation that is there now, whoever was asked.
func (w *recoveryWorld) answer(q Question) {
	b, _ := w.im.Broker(q.Broker)
	var out []Answer
	for _, tp := range q.Partitions {
		out = append(out, Answer{TP: tp, End: w.ends[b.ID][tp.Partition], Epoch: b.Epoch})
	}
	w.r.Answered(q, out, w.now)
}

func (w *recoveryWorld) decide() {
	for _, d := range w.r.Decide(w.im) {
		p, _ := w.im.Partition(d.Change.TP)
		var real []LogEnd
		asked, _ := Asked(w.im, d.Change.TP, p)
		for _, id := range asked {
			real = append(real, w.ends[id][d.Change.TP.Partition])
		}
		if !slices.Equal(real, d.Ends) {
			w.t.Fatalf("decided on %v, the logs end at %v", d.Ends, real)
		}
		real = slices.DeleteFunc(real, func(e LogEnd) bool { return e.Damaged })
		if want := wantedLog(p, real); d.Change.Leader != want.Broker || !d.Change.Recovering {
			w.t.Fatalf("%+v of %v, want %d: %+v", d.Change, d.Ends, want.Broker, p)
		}
		w.apply(fsm.ChangeLeaders{Items: []fsm.LeaderChange{d.Change}})
	}
}

// wantedLog is the greatest of the members' logs, or of those that have it whole; of all where
// there is no member.
func wantedLog(p fsm.Partition, ends []LogEnd) LogEnd {
	greatest := func(of []LogEnd) LogEnd {
		return slices.MaxFunc(of, func(a, b LogEnd) int { return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.End, b.End)) })
	}
	members := slices.DeleteFunc(slices.Clone(ends), func(e LogEnd) bool {
		return len(p.ISR)+len(p.ELR) > 0 || !slices.Contains(p.LastMembers, e.Broker)
	})
	if len(members) == 0 {
		return greatest(ends)
	}
	m := greatest(members)
	return greatest(append([]LogEnd{m}, slices.DeleteFunc(slices.Clone(ends), func(e LogEnd) bool {
		same := e.Epoch == m.Epoch || m.Epoch == batch.NoEpoch
		for _, x := range e.Earlier {
			same = same || x.Epoch == m.Epoch && x.End >= m.End && e.Epoch > m.Epoch
		}
		return !same
	})...))
}

// settle brings everybody back and answers everything.
func (w *recoveryWorld) settle() {
	for b := range w.im.Brokers() {
		w.apply(fsm.UnfenceBroker{ID: b.ID, Epoch: b.Epoch})
	}
	w.apply(fsm.ChangeLeaders{Items: Leaders(w.im)})
	for range 3 {
		w.now = w.now.Add(time.Second)
		w.ask()
		for len(w.waiting) > 0 {
			w.answer(w.waiting[0])
			w.waiting = w.waiting[1:]
		}
		w.decide()
	}
	for tp, p := range w.im.Leaderless() {
		intact := false
		for _, id := range p.LastMembers {
			intact = intact || !w.ends[id][tp.Partition].Damaged
		}
		if intact {
			w.t.Fatalf("partition %d has no leader: %+v, logs %v", tp.Partition, p, w.ends)
		}
	}
	if at, more := w.r.WakeAt(); more {
		w.t.Fatalf("there is nothing to ask, and yet it wants to wake at %v", at)
	}
}
