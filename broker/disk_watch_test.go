package broker

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage/vfs"
)

// callGate holds up calls of one kind on segment files.
type callGate struct {
	op   vfs.Op
	held atomic.Pointer[chan struct{}]
}

func (g *callGate) hook(op vfs.Op, name string) error {
	if held := g.held.Load(); held != nil && op == g.op && filepath.Ext(name) == ".log" {
		<-*held
	}
	return nil
}

func (g *callGate) hold() {
	held := make(chan struct{})
	g.held.Store(&held)
}

func (g *callGate) release() {
	if held := g.held.Swap(nil); held != nil {
		close(*held)
	}
}

// fakeSession is a session that counts.
type fakeSession struct{ suspended, resumed int }

func (s *fakeSession) Suspend() { s.suspended++ }
func (s *fakeSession) Resume()  { s.resumed++ }

// TestDiskWatchLooks follows one watch through a short wait, a hang, a pause in which the
// disk hangs again, and calm.
func TestDiskWatchLooks(t *testing.T) {
	gate := &callGate{op: vfs.OpWriteAt}
	entered := make(chan struct{}, 1)
	calls := vfs.NewWatch(vfs.NewFaulty(vfs.NewMem(1), func(op vfs.Op, name string) error {
		if op == vfs.OpWriteAt {
			entered <- struct{}{}
		}
		return gate.hook(op, name)
	}))
	f, err := calls.Open("/f.log", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	session, cuts := &fakeSession{}, 0
	var hung atomic.Bool
	d := &diskWatch{
		calls: calls, limit: time.Second, session: session, hung: &hung, cutOff: func() { cuts++ },
		metrics: &newMetrics().disk, log: hclog.NewNullLogger(),
	}
	returned := make(chan error, 1)
	write := func() {
		gate.hold()
		go func() { _, err := f.WriteAt([]byte("x"), 0); returned <- err }()
		<-entered
	}
	finish := func() {
		gate.release()
		if err := <-returned; err != nil {
			t.Fatal(err)
		}
	}
	look := func(times int, wantHung bool) {
		t.Helper()
		for range times {
			d.look()
		}
		if hung.Load() != wantHung || (d.check() != nil) != wantHung {
			t.Errorf("hung: %v, check: %v; want hung %v", hung.Load(), d.check(), wantHung)
		}
	}
	write()
	look(watchTicks, false) // the first of the ticks may have been over when the call began
	finish()
	look(3, false)
	write()
	look(watchTicks+1, true)
	finish()
	look(calmTicks-2, true)
	write()
	look(3, true)
	finish()
	look(calmTicks-1, true)
	look(1, false)
	if *session != (fakeSession{1, 1}) || cuts != 1 {
		t.Errorf("session %+v, cut off %d times; want each once", *session, cuts)
	}
	if err := d.check(); err != nil {
		t.Error(err)
	}
}

// TestHungDiskCostsTheLeaderships lets one kind of call hang on the leader's disk: others
// lead and take records meanwhile, what had been begun before is not acknowledged at
// acks=1, and the node is in sync again once the disk answers.
func TestHungDiskCostsTheLeaderships(t *testing.T) {
	for _, op := range []vfs.Op{vfs.OpWriteAt, vfs.OpSync} {
		t.Run(string(op), func(t *testing.T) { leaderHangs(t, op) })
	}
}

// hangable is a cluster whose disks may hang.
func hangable(t *testing.T, op vfs.Op) (*cluster, []*callGate) {
	c := prepareCluster(t, 3, func(_ int, cfg *Config) {
		cfg.DiskTimeout = 500 * time.Millisecond
		cfg.FlushInterval = 20 * time.Millisecond
		cfg.ReplicaLagMax = time.Hour // the watch alone helps
	})
	gates := make([]*callGate, 3)
	for i := range gates {
		gates[i] = &callGate{op: op}
		c.disks[i] = vfs.NewFaulty(vfs.OS(), gates[i].hook)
	}
	t.Cleanup(func() { // before the nodes are closed, which waits for their disks
		for _, g := range gates {
			g.release()
		}
	})
	return c, gates
}

func leaderHangs(t *testing.T, op vfs.Op) {
	c, gates := hangable(t, op)
	c.startAll()
	tp := fsm.TopicPartition{Topic: c.topic("t", 1, 3)}
	c.inSync(tp, 3)
	c.produce("t", numbered(0, 10)...)
	old := c.leader(tp)
	p := c.nodes[old].env.replicas.Get(tp)
	gates[old].hold()
	early := make(chan error, 1)
	go func() { _, err := p.Append(testBatch("v10"), 1); early <- err }()
	c.until("others lead", func() bool {
		l := c.partition(tp).Leader
		return l != fsm.NoBroker && int(l) != old+1
	})
	if _, err := p.Append(testBatch("late"), -1); err == nil {
		t.Error("a node whose disk hangs takes records")
	}
	if _, err := p.Read(ReadRequest{MaxBytes: 1, LeaderEpoch: -1, LastFetchedEpoch: -1}); err == nil {
		t.Error("a node whose disk hangs answers as the leader")
	}
	if err := c.nodes[old].disk.check(); err == nil || !strings.Contains(err.Error(), string(op)) {
		t.Errorf("the health check says %v, want it to name %s", err, op)
	}
	c.produce("t", numbered(10, 20)...)
	if op == vfs.OpWriteAt {
		select {
		case err := <-early:
			t.Fatalf("the append has returned (%v) while the disk hangs", err)
		default:
		}
	}
	gates[old].release()
	if err := <-early; op == vfs.OpWriteAt && err == nil {
		t.Error("a write that hung for longer than a session was acknowledged at acks=1")
	}
	c.inSync(tp, 3)
	c.sameLogs(tp)
	if op == vfs.OpWriteAt { // the other hang let v10 through before it began
		if got, want := c.consume("t", 20), numbered(0, 20); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("the log holds %v, want %v", got, want)
		}
	}
}

// TestHungFollowerLeavesTheISR lets writes of a follower hang: it holds the acknowledgement
// of a record up until it is out of the ISR, and comes back.
func TestHungFollowerLeavesTheISR(t *testing.T) {
	c, gates := hangable(t, vfs.OpWriteAt)
	c.startAll()
	tp := fsm.TopicPartition{Topic: c.topic("t", 1, 3)}
	c.inSync(tp, 3)
	c.produce("t", numbered(0, 10)...)
	victim := (c.leader(tp) + 1) % 3
	gates[victim].hold()
	c.produce("t", numbered(10, 20)...)
	c.until("the follower is out of the ISR", func() bool {
		return !slices.Contains(c.partition(tp).ISR, fsm.BrokerID(victim+1))
	})
	gates[victim].release()
	c.inSync(tp, 3)
	c.sameLogs(tp)
}

// TestHungDiskSendsClientsAway has a client wait for an answer that a hung disk holds up:
// its connection ends, long before its own patience does, and it asks elsewhere.
func TestHungDiskSendsClientsAway(t *testing.T) {
	c, gates := hangable(t, vfs.OpWriteAt)
	c.startAll()
	tp := fsm.TopicPartition{Topic: c.topic("t", 1, 3)}
	c.inSync(tp, 3)
	cl := c.client(kgo.DefaultProduceTopic("t"), kgo.RequestTimeoutOverhead(10*time.Minute), kgo.ProduceRequestTimeout(10*time.Minute))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := cl.ProduceSync(ctx, kgo.StringRecord("before")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	gates[c.leader(tp)].hold()
	if err := cl.ProduceSync(ctx, kgo.StringRecord("meanwhile")).FirstErr(); err != nil {
		t.Fatal(err)
	}
}
