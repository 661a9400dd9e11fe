package broker

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
)

// applier is a metadata log of one node: every proposal is applied at once.
type applier struct {
	mu    sync.Mutex
	image *fsm.Image
	fail  func(fsm.Command) error // an error instead of the outcome
	count int
}

func (a *applier) Propose(_ context.Context, c fsm.Command) (fsm.Result, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count++
	if a.fail != nil {
		if err := a.fail(c); err != nil {
			return fsm.Result{}, err
		}
	}
	next, res := fsm.Apply(a.image, a.image.Index()+1, c)
	a.image = next
	return res, nil
}

func (a *applier) Image() *fsm.Image {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.image
}

// must applies a command that is not refused.
func (a *applier) must(t testing.TB, c fsm.Command) fsm.Result {
	t.Helper()
	res, err := a.Propose(t.Context(), c)
	if err != nil || res.Err != nil {
		t.Fatalf("%T was refused: %v, %v", c, err, res.Err)
	}
	return res
}

// process is the nonce of the process that replaces the registration at that epoch.
func process(replaces fsm.BrokerEpoch) [16]byte {
	return [16]byte{1, byte(replaces >> 8), byte(replaces)}
}

// broker registers and unfences one broker and returns its epoch.
func (a *applier) broker(t testing.TB, id fsm.BrokerID) fsm.BrokerEpoch {
	t.Helper()
	old, _ := a.Image().Broker(id)
	reg := fsm.RegisterBroker{ID: id, Folder: [16]byte{byte(id)}, Process: process(old.Epoch), BootID: "boot", Replaces: old.Epoch}
	epoch := fsm.BrokerEpoch(a.must(t, reg).Epoch)
	a.must(t, fsm.UnfenceBroker{ID: id, Epoch: epoch})
	return epoch
}

func newApplier(t testing.TB) *applier {
	a := &applier{image: fsm.NewImage()}
	a.must(t, fsm.InitCluster{ClusterID: "c"})
	return a
}

func TestProducerIDsAreUnique(t *testing.T) {
	a := newApplier(t)
	epochs := []fsm.BrokerEpoch{a.broker(t, 1), a.broker(t, 2)}
	var mu sync.Mutex
	seen := map[int64]bool{}
	var wg sync.WaitGroup
	for n := range epochs {
		ids := newProducerIDs(a, a.Image, func() (fsm.BrokerID, fsm.BrokerEpoch) { return fsm.BrokerID(n + 1), epochs[n] })
		for range 4 {
			wg.Go(func() {
				for range 600 {
					id, err := ids.next(context.Background())
					mu.Lock()
					if err != nil || seen[id] {
						t.Errorf("node %d got id %d, seen before: %v, error %v", n+1, id, seen[id], err)
					}
					seen[id] = true
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	if got, want := a.Image().NextProducerID(), int64(6000); got > want {
		t.Errorf("4800 ids took the blocks up to %d, want at most %d", got, want)
	}
}

func TestProducerIDsReportRefusal(t *testing.T) {
	a := newApplier(t)
	ids := newProducerIDs(a, a.Image, func() (fsm.BrokerID, fsm.BrokerEpoch) { return 1, 5 })
	if _, err := ids.next(t.Context()); !errors.Is(err, fsm.UnknownBroker) {
		t.Errorf("an unregistered node got %v, want %v", err, fsm.UnknownBroker)
	}
	a.fail = func(fsm.Command) error { return controller.ErrNoController }
	if _, err := ids.next(t.Context()); !errors.Is(err, controller.ErrNoController) {
		t.Errorf("without a controller: %v, want %v", err, controller.ErrNoController)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	<-ids.block // another call is asking
	if _, err := ids.next(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v, want %v", err, context.Canceled)
	}
}

func TestChangeOutcome(t *testing.T) {
	cases := map[string]struct {
		err  error
		want isr.Outcome
	}{
		"applied":         {nil, isr.Committed},
		"never sent":      {controller.ErrNoController, isr.Refused},
		"ineligible":      {fsm.IneligibleReplica, isr.Refused},
		"stale partition": {fsm.StalePartitionEpoch, isr.Unknown},
		"stale leader":    {fsm.StaleLeaderEpoch, isr.Unknown},
		"unknown":         {controller.ErrUnknown, isr.Unknown},
		"deadline":        {context.DeadlineExceeded, isr.Unknown},
	}
	for name, tc := range cases {
		if got := changeOutcome(tc.err); got != tc.want {
			t.Errorf("%s: outcome %d, want %d", name, got, tc.want)
		}
	}
}

func TestKeeperConfirmsAndRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newApplier(t)
		env := &environment{self: 1}
		epoch := a.broker(t, 1)
		env.epoch = func() fsm.BrokerEpoch { return epoch }
		id := fsm.TopicID{7}
		a.must(t, fsm.CreateTopic{ID: id, Name: "t", Partitions: []fsm.NewPartition{
			{Replicas: []fsm.BrokerID{1}, ISR: []fsm.BrokerID{1}, Leader: 1}}})
		a.must(t, fsm.DeleteTopic{ID: id})
		fails := 2
		a.fail = func(fsm.Command) error {
			if fails--; fails >= 0 {
				return controller.ErrUnknown
			}
			return nil
		}
		recorded := make(chan uint64, 10)
		k := newKeeper(env, a, func(i uint64) error { recorded <- i; return nil }, hclog.NewNullLogger())
		ctx, cancel := context.WithCancel(t.Context())
		go k.run(ctx)
		k.confirm(id)
		k.reconciled(9)
		k.reconciled(12)
		if got := <-recorded; got != 12 {
			t.Errorf("recorded index %d, want 12", got)
		}
		for !k.idle() {
			<-time.After(keeperPause)
			synctest.Wait()
		}
		if _, buried := a.Image().Tombstone(id); buried || fails >= 0 {
			t.Errorf("the keeper is idle and the deletion is not confirmed (%d failures left)", fails)
		}
		cancel()
		<-k.done
	})
}

func (k *keeper) idle() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.deleted) == 0
}
