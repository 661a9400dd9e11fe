package broker

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
)

// testLog is a metadata log that applies to a testImage, and whose answers a test
// may lose.
type testLog struct {
	image   *testImage
	arrived chan struct{} // capacity 1: a proposal waits
	fresh   atomic.Bool   // whether this node has a session

	mu    sync.Mutex
	hold  chan struct{}     // guarded by mu; when set, proposals wait for it to close
	lose  int               // guarded by mu; how many answers are lost after the command was taken
	fail  int               // guarded by mu; how many commands are not taken
	taken []fsm.SlotCommand // guarded by mu
}

func newTestLog(ti *testImage) *testLog {
	l := &testLog{image: ti, arrived: make(chan struct{}, 1)}
	l.fresh.Store(true)
	return l
}

// log is the metadata log of the server's groups.
func (ts *testServer) log() *testLog { return ts.srv.backend.groups.propose.(*testLog) }

// Propose implements proposer.
func (l *testLog) Propose(ctx context.Context, c fsm.Command) (fsm.Result, error) {
	l.mu.Lock()
	hold := l.hold
	fail := l.fail > 0
	if fail {
		l.fail--
	}
	l.mu.Unlock()
	if hold != nil {
		select {
		case l.arrived <- struct{}{}:
		default:
		}
		select {
		case <-hold:
		case <-ctx.Done():
			return fsm.Result{}, controller.ErrUnknown
		}
	}
	if fail {
		return fsm.Result{}, controller.ErrNoController
	}
	res := l.image.propose(c)
	l.mu.Lock()
	defer l.mu.Unlock()
	if cmd, ok := c.(fsm.SlotCommand); ok {
		l.taken = append(l.taken, cmd)
	}
	if l.lose > 0 {
		l.lose--
		return fsm.Result{}, controller.ErrUnknown
	}
	return res, nil
}

// holdUp makes proposals wait until the function returned is called.
func (l *testLog) holdUp() (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	hold := make(chan struct{})
	l.hold = hold
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.hold = nil
		close(hold)
	}
}

// awaitProposal waits until a proposal has arrived that waits.
func (l *testLog) awaitProposal(t testing.TB) {
	t.Helper()
	select {
	case <-l.arrived:
	case <-time.After(patience):
		t.Fatal("nothing was proposed")
	}
}

// propose is apply for commands that may be refused.
func (ti *testImage) propose(c fsm.Command) fsm.Result {
	ti.mu.Lock()
	defer ti.mu.Unlock()
	im, r := fsm.Apply(ti.im, ti.im.Index()+1, c)
	ti.im = im
	return r
}

// own gives all slots to a broker.
func (ti *testImage) own(id fsm.BrokerID) {
	var c fsm.AssignSlots
	for i := range int32(fsm.Slots) {
		c.Items = append(c.Items, fsm.SlotChange{Slot: i, Epoch: ti.image().Slot(i).Epoch, Owner: id})
	}
	ti.apply(c)
	for _, g := range ti.owners {
		g.eachTenure(func(*tenure, *fsm.Image) {}) // as when the Image has changed
	}
}

// epochOf is the broker epoch of this node in the Image.
func (ti *testImage) epochOf(id fsm.BrokerID) fsm.BrokerEpoch {
	b, _ := ti.image().Broker(id)
	return b.Epoch
}

// testGroupConfig is the default but for the time that an empty group waits.
func testGroupConfig() GroupConfig {
	c := DefaultGroupConfig()
	c.InitialDelay = 0
	return c
}

// newTestGroups runs groups over an Image in which this node owns no slot yet.
func newTestGroups(t testing.TB, ti *testImage, config GroupConfig) *groups {
	log := newTestLog(ti)
	m := newMetrics()
	g := newGroups(groupsEnv{
		self: selfID, epoch: func() fsm.BrokerEpoch { return ti.epochOf(selfID) }, image: ti.image, fresh: log.fresh.Load,
		now: time.Now, propose: log, metrics: &m.groups, log: hclog.NewNullLogger(),
	}, config)
	ti.owners = append(ti.owners, g)
	runGroups(t, g)
	return g
}

// runGroups runs g until the test ends.
func runGroups(t testing.TB, g *groups) {
	ctx, cancel := context.WithCancel(context.Background())
	go g.run(ctx)
	t.Cleanup(func() {
		cancel()
		<-g.done
	})
}
