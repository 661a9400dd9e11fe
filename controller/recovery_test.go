package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/batch"
)

// logs are the ends of logs that the brokers of a test cluster claim to have.
type logs struct {
	mu   sync.Mutex
	ends map[fsm.BrokerID]map[fsm.TopicPartition]elect.LogEnd
	// busy is how many questions are answered with "not yet" first.
	busy  atomic.Int64
	asked atomic.Int64
}

// newLogs makes every open node answer from the same table.
func newLogs(c *testCluster) *logs {
	l := &logs{ends: map[fsm.BrokerID]map[fsm.TopicPartition]elect.LogEnd{}}
	for _, tn := range c.nodes {
		l.serve(tn)
	}
	return l
}

func (l *logs) serve(tn *testNode) {
	id := tn.node.Identity().NodeID
	tn.node.HandleLogEnds(func(index uint64, tps []fsm.TopicPartition) ([]elect.LogEnd, bool) {
		l.asked.Add(1)
		if l.busy.Add(-1) >= 0 {
			return nil, false
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		out := make([]elect.LogEnd, len(tps))
		for i, tp := range tps {
			out[i] = l.ends[id][tp]
		}
		return out, true
	})
}

func (l *logs) set(id fsm.BrokerID, tp fsm.TopicPartition, e elect.LogEnd) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ends[id] == nil {
		l.ends[id] = map[fsm.TopicPartition]elect.LogEnd{}
	}
	l.ends[id][tp] = e
}

// powerCut lets the machines of some nodes crash and return: they register under another boot.
func powerCut(t *testing.T, boot string, nodes ...*testNode) {
	t.Helper()
	for _, tn := range nodes {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		_, err := tn.node.Register(ctx, Registration{Client: fsm.Endpoint{Host: "127.0.0.1", Port: 9092}, BootID: boot})
		cancel()
		if err != nil {
			t.Fatalf("register %s again: %v", tn.addr, err)
		}
	}
}

// with returns the lines that contain all of the words.
func (l *logLines) with(words ...string) []string {
	var out []string
	for line := range strings.Lines(l.String()) {
		found := true
		for _, w := range words {
			found = found && strings.Contains(line, w)
		}
		if found {
			out = append(out, line)
		}
	}
	return out
}

// logTo makes all nodes of a cluster log warnings and errors to one place.
func logTo(c *testCluster) *logLines {
	l := &logLines{}
	for _, tn := range c.nodes {
		tn.cfg.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: l})
	}
	return l
}

func recoveries(c *testCluster) int64 {
	var sum int64
	for _, tn := range c.nodes {
		if tn.node != nil {
			sum += tn.node.Recoveries()
		}
	}
	return sum
}

func TestPowerCutOfAllElectsTheBestLog(t *testing.T) {
	c := newCluster(t, 3)
	logged := logTo(c)
	c.openAll()
	table := newLogs(c)
	table.busy.Store(2)
	c.registerAll()
	a := c.leader().create("a", 1, 2, 3)
	b := c.leader().create("b", 2, 3)
	tpA, tpB := fsm.TopicPartition{Topic: a}, fsm.TopicPartition{Topic: b}
	table.set(1, tpA, elect.LogEnd{Epoch: 2, End: 500})
	table.set(2, tpA, elect.LogEnd{Epoch: 3, End: 90})
	table.set(3, tpA, elect.LogEnd{Epoch: 3, End: 100})
	table.set(2, tpB, elect.LogEnd{Epoch: 0, End: 7})
	table.set(3, tpB, elect.LogEnd{Epoch: 0, End: 7})
	powerCut(t, "boot2", c.nodes...)
	at := c.nodes[0]
	for topic, want := range map[fsm.TopicID]fsm.BrokerID{a: 3, b: 2} {
		// They register one by one, and some lead on paper meanwhile.
		eventually(t, "a leader after the power cut", func() bool { return at.partition(topic).Recovering })
		if p := at.partition(topic); p.Leader != want || len(p.ISR) != 1 || p.ISR[0] != want || len(p.LastMembers) > 0 {
			t.Errorf("after the power cut: %+v, want %d alone, recovering", p, want)
		}
	}
	eventually(t, "two recoveries are counted", func() bool { return recoveries(c) == 2 })
	eventually(t, "the loss is reported", func() bool {
		return len(logged.with("[ERROR]", "may be lost", "a-0 leader 3 of 1:2:500 2:3:90 3:3:100")) == 1
	})
}

func TestDamagedLogsWaitForAnOperator(t *testing.T) {
	c := newCluster(t, 3)
	logged := logTo(c)
	c.openAll()
	table := newLogs(c)
	c.registerAll()
	sole := c.leader().create("sole", 2)
	pair := c.leader().create("pair", 1, 2)
	table.set(2, fsm.TopicPartition{Topic: sole}, elect.LogEnd{Epoch: 1, End: 10, Damaged: true})
	table.set(1, fsm.TopicPartition{Topic: pair}, elect.LogEnd{Epoch: 1, End: 10, Damaged: true})
	table.set(2, fsm.TopicPartition{Topic: pair}, elect.LogEnd{Epoch: 0, End: 3})
	powerCut(t, "boot2", c.nodes...)
	at := c.nodes[0]
	eventually(t, "the intact log leads", func() bool { return at.partition(pair).Leader == 2 })
	eventually(t, "the damage is reported", func() bool { return len(logged.with("[ERROR]", "every copy", "sole-0")) > 0 })
	if p := at.partition(sole); p.Leader != fsm.NoBroker {
		t.Fatalf("a damaged log leads by itself: %+v", p)
	}
	tp := fsm.TopicPartition{Topic: sole}
	res, err := at.node.ElectLeaders(context.Background(), UncleanElection, []fsm.TopicPartition{tp})
	if err != nil || res[0].Err != 0 {
		t.Fatalf("elect on request: %v %+v", err, res)
	}
	if p := at.partition(sole); p.Leader != 2 || !p.Recovering {
		t.Errorf("elected on request: %+v", p)
	}
	if got := logged.with("[ERROR]", "on request", "sole-0 leader 2 of 2:1:10 (damaged)"); len(got) != 1 {
		t.Errorf("the election was reported %d times", len(got))
	}
	if got := logged.with("[ERROR]", "every copy", "sole-0"); len(got) != 1 {
		t.Errorf("the damage was reported %d times", len(got))
	}
}

// TestLastMembersAreAwaited keeps one of three away: nobody leads until it is back.
func TestLastMembersAreAwaited(t *testing.T) {
	c := newCluster(t, 3)
	c.openAll()
	table := newLogs(c)
	c.registerAll()
	topic := c.leader().create("t", 1, 2, 3)
	tp := fsm.TopicPartition{Topic: topic}
	for id := fsm.BrokerID(1); id <= 3; id++ {
		table.set(id, tp, elect.LogEnd{Epoch: 0, End: 10})
	}
	away := c.follower()
	id := away.node.Identity().NodeID
	table.set(id, tp, elect.LogEnd{Epoch: 0, End: 11})
	away.node.Session().WantUnfenced(false)
	powerCut(t, "boot2", c.nodes...)
	at := c.survivor(away)
	eventually(t, "the others are back", func() bool {
		for b := range at.node.Image().Brokers() {
			if b.Fenced != (b.ID == id) {
				return false
			}
		}
		return true
	})
	if p := at.partition(topic); p.Leader != fsm.NoBroker || table.asked.Load() > 0 {
		t.Fatalf("without broker %d: %+v, %d questions", id, p, table.asked.Load())
	}
	away.node.Session().WantUnfenced(true)
	eventually(t, "the best log leads", func() bool { return at.partition(topic).Leader == id })
}

// TestUncleanElectionTakesTheBestLog asks for an election while one of three last members is
// away: the better log of the two others leads, and the loss is reported.
func TestUncleanElectionTakesTheBestLog(t *testing.T) {
	c := newCluster(t, 3)
	logged := logTo(c)
	c.openAll()
	table := newLogs(c)
	c.registerAll()
	topic := c.leader().create("t", 1, 2, 3)
	tp := fsm.TopicPartition{Topic: topic}
	away := c.follower()
	id := away.node.Identity().NodeID
	best := fsm.NoBroker
	for b := fsm.BrokerID(1); b <= 3; b++ {
		table.set(b, tp, elect.LogEnd{Epoch: 0, End: batch.Offset(10 + b)})
		if b != id {
			best = b
		}
	}
	away.node.Session().WantUnfenced(false)
	powerCut(t, "boot2", c.nodes...)
	at := c.leader()
	eventually(t, "the others are back", func() bool {
		back := 0
		for b := range at.node.Image().Brokers() {
			if b.Eligible() {
				back++
			}
		}
		return back == 2 && len(at.partition(topic).LastMembers) == 3
	})
	table.busy.Store(1) // one of them has yet to act on the metadata
	for _, tn := range c.nodes {
		table.serve(tn)
	}
	res, err := at.node.ElectLeaders(context.Background(), UncleanElection, []fsm.TopicPartition{tp})
	if err != nil || res[0].Err != wire.None {
		t.Fatalf("elect on request: %v %+v", err, res)
	}
	if p := at.partition(topic); p.Leader != best || !p.Recovering || len(p.ISR) != 1 {
		t.Errorf("elected on request: %+v, want %d", p, best)
	}
	eventually(t, "the loss is reported", func() bool {
		return len(logged.with("[ERROR]", "on request", fmt.Sprintf("t-0 leader %d", best))) == 1
	})
}

// TestManyPartitionsAreAskedInParts has more undecided partitions than fit a question.
func TestManyPartitionsAreAskedInParts(t *testing.T) {
	c := newCluster(t, 1)
	c.openAll()
	tn := c.nodes[0]
	table := newLogs(c)
	tn.register()
	const partitions = 5000
	assignment := make([][]fsm.BrokerID, partitions)
	for i := range assignment {
		assignment[i] = []fsm.BrokerID{1}
	}
	res, err := tn.node.CreateTopics(context.Background(), []NewTopic{{Name: "t", Partitions: -1, RF: -1, Assignment: assignment}})
	if err != nil || res[0].Err != 0 {
		t.Fatalf("%v %+v", err, res)
	}
	began := time.Now()
	powerCut(t, "boot2", tn)
	eventually(t, "all have a leader", func() bool {
		return tn.node.Image().LeaderlessCount() == 0 && tn.node.Recoveries() == partitions
	})
	t.Logf("%d partitions have a leader after %v and %d questions", partitions, time.Since(began), table.asked.Load())
	if got := table.asked.Load(); got != 3 {
		t.Errorf("%d questions, want 3", got)
	}
}

// TestLogEndsOfAnotherIncarnation asks a broker about an epoch that is not its own.
func TestLogEndsOfAnotherIncarnation(t *testing.T) {
	c := newCluster(t, 3)
	c.openAll()
	newLogs(c)
	c.registerAll()
	at, other := c.leader(), c.follower()
	id := other.node.Identity().NodeID
	eventually(t, "the other is known", func() bool { b, ok := at.node.Image().Broker(id); return ok && !b.Fenced })
	b, _ := at.node.Image().Broker(id)
	q := elect.Question{Broker: id, Epoch: b.Epoch, Index: at.node.Image().Index(), Partitions: []fsm.TopicPartition{{Partition: 7}}}
	eventually(t, "it answers", func() bool {
		answers, err := at.node.question(context.Background(), q)
		return err == nil && len(answers) == 1 && answers[0].TP == q.Partitions[0] && answers[0].Epoch == b.Epoch && answers[0].End.Broker == id
	})
	for name, change := range map[string]func(*elect.Question){
		"an older epoch":       func(q *elect.Question) { q.Epoch-- },
		"a newer epoch":        func(q *elect.Question) { q.Epoch++ },
		"an Image yet to come": func(q *elect.Question) { q.Index += 1000 },
	} {
		wrong := q
		change(&wrong)
		if answers, err := at.node.question(context.Background(), wrong); err == nil {
			t.Errorf("asked about %s it answered %+v", name, answers)
		}
		self := &logEndsRequest{id: at.node.Identity().NodeID, epoch: wrong.Epoch, index: wrong.Index, tps: q.Partitions}
		if _, err := at.node.answerLogEnds(self); err == nil {
			t.Errorf("asked about %s the controller itself answered", name)
		}
	}
	// Nor does a node answer that can not know its logs yet.
	other.node.logEnds.Store(nil)
	if _, err := at.node.question(context.Background(), q); err == nil {
		t.Error("a node without logs answered")
	}
	if _, err := other.node.answerLogEnds(&logEndsRequest{id: id, epoch: b.Epoch}); !errors.Is(err, errNotActed) {
		t.Errorf("got %v, want %v", err, errNotActed)
	}
}

func TestEndsText(t *testing.T) {
	got := endsText([]elect.LogEnd{{Broker: 1, Epoch: 2, End: 3}, {Broker: 4, Epoch: -1, Damaged: true}})
	if want := "1:2:3 4:-1:0 (damaged)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
