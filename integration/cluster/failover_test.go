package cluster

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	failoverTopic = "failover"
	sendEvery     = 10 * time.Millisecond
	quietBefore   = 50 // acknowledgements before the fault
	quietAfter    = 50 // and after service has come back
)

// TestFailover sends one record each 10 ms to one partition with acks=all,
// removes its leader in three ways, and reports the longest time between two
// acknowledgements. It asserts what may never happen, loss and duplication, and
// reports times without judging them. WEIR_TRIALS sets the trials of each kind.
func TestFailover(t *testing.T) {
	trials := 1
	if s := os.Getenv("WEIR_TRIALS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("WEIR_TRIALS=%q is not a number", s)
		}
		trials = n
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(trials)*2*time.Minute+2*time.Minute)
	defer cancel()
	f := &failover{Cluster: startThree(ctx, t), t: t, ctx: ctx}
	f.open()
	defer f.cl.Close()
	f.run(trials)
	f.stopSending()
	f.verify()
}

// failover is a running producer and the record of its acknowledgements.
type failover struct {
	*Cluster
	t   *testing.T
	ctx context.Context
	cl  *kgo.Client

	sending  sync.Mutex  // held while a record is handed to the producer
	producer *kgo.Client // of the present trial; guarded by sending
	stop     chan struct{}
	stopped  sync.WaitGroup

	mu    sync.Mutex
	acks  []time.Time
	acked map[uint64]bool
	sent  uint64

	failed error // what records were refused with
}

func (f *failover) open() {
	f.t.Helper()
	cl, err := f.Client()
	if err != nil {
		f.t.Fatal(err)
	}
	f.cl, f.acked, f.stop = cl, map[uint64]bool{}, make(chan struct{})
	if _, err := kadm.NewClient(cl).CreateTopic(f.ctx, 1, 3, nil, failoverTopic); err != nil {
		f.t.Fatal(err)
	}
	f.renew()
	f.stopped.Add(1)
	go f.send()
}

// renew gives the trial a producer of its own. One that has lived through the
// trial before holds a dead connection to the node that was restarted then, finds
// out at its first use, and backs off for a quarter of a second.
func (f *failover) renew() {
	f.t.Helper()
	cl, err := f.Client(kgo.DefaultProduceTopic(failoverTopic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	if err != nil {
		f.t.Fatal(err)
	}
	f.sending.Lock()
	old := f.producer
	f.producer = cl
	f.sending.Unlock()
	if old != nil {
		if err := old.Flush(f.ctx); err != nil {
			f.t.Fatal(err)
		}
		old.Close()
	}
}

func (f *failover) send() {
	defer f.stopped.Done()
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	for {
		select {
		case <-f.stop:
			return
		case <-tick.C:
		}
		n := f.sent
		f.sent++
		f.sending.Lock()
		f.producer.Produce(f.ctx, &kgo.Record{Value: binary.BigEndian.AppendUint64(nil, n)}, func(_ *kgo.Record, err error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if err != nil {
				f.failed = errors.Join(f.failed, fmt.Errorf("record %d: %w", n, err))
				return
			}
			f.acks, f.acked[n] = append(f.acks, time.Now()), true
		})
		f.sending.Unlock()
	}
}

func (f *failover) stopSending() {
	close(f.stop)
	f.stopped.Wait()
	cl := f.producer
	if err := cl.Flush(f.ctx); err != nil {
		f.t.Fatal(err)
	}
	cl.Close()
}

func (f *failover) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.acks)
}

// awaitAcks waits for n more acknowledgements.
func (f *failover) awaitAcks(n int) {
	f.t.Helper()
	want := f.count() + n
	if err := poll(f.ctx, "await acknowledgements", func() error {
		if got := f.count(); got < want {
			return fmt.Errorf("%d of %d", got, want)
		}
		return nil
	}); err != nil {
		f.t.Fatal(err)
	}
}

// longestGap returns the longest time between acknowledgements from number from on.
func (f *failover) longestGap(from int) (gap time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := from + 1; i < len(f.acks); i++ {
		gap = max(gap, f.acks[i].Sub(f.acks[i-1]))
	}
	return gap
}

// Kinds of faults.
const (
	killOne  = "kill"
	killBoth = "kill, controller too"
	termOne  = "term"
	shift    = "" // no trial: the controller or the leader is stopped, so that another node becomes it
)

// roles tells who leads the partition, who would by its replicas' order, and who is
// the controller.
func (f *failover) roles() (leader, preferred, controller int32) {
	f.t.Helper()
	m, err := Metadata(f.ctx, f.cl, failoverTopic)
	if err != nil {
		f.t.Fatal(err)
	}
	p := m.Topics[0].Partitions[0]
	return p.Leader, p.Replicas[0], m.ControllerID
}

// elect gives the leadership to the preferred replica.
func (f *failover) elect() {
	f.t.Helper()
	res, err := kadm.NewClient(f.cl).ElectLeaders(f.ctx, kadm.ElectPreferredReplica, kadm.TopicsSet{failoverTopic: {0: {}}})
	if err != nil {
		f.t.Fatal(err)
	}
	if err := res[failoverTopic][0].Err; err != nil && !errors.Is(err, kerr.ElectionNotNeeded) {
		f.t.Logf("the preferred replica is not elected: %v", err)
	}
}

// run makes faults until each kind has its trials. Whether the leader is the
// controller too is as it falls; when a kind is missing that the moment does
// not offer, the roles are shifted.
func (f *failover) run(trials int) {
	gaps := map[string][]time.Duration{}
	for round := 0; len(gaps[killOne]) < trials || len(gaps[killBoth]) < trials || len(gaps[termOne]) < trials; round++ {
		if round > trials*20+20 {
			f.t.Fatalf("after %d rounds still %d, %d and %d trials", round, len(gaps[killOne]), len(gaps[killBoth]), len(gaps[termOne]))
		}
		if err := f.AwaitISR(f.ctx, f.cl, failoverTopic, 3); err != nil {
			f.t.Fatal(err)
		}
		f.renew()
		f.awaitAcks(quietBefore)
		leader, preferred, controller := f.roles()
		kind, victim := killOne, f.Node(leader)
		if leader == controller {
			kind = killBoth
		}
		if len(gaps[kind]) >= trials {
			kind = termOne
		}
		fault := victim.Kill
		if kind == termOne {
			fault = victim.Stop
		}
		if len(gaps[kind]) >= trials {
			if leader == controller && preferred != controller {
				f.elect() // parts the two
				continue
			}
			kind, victim = shift, f.Node(controller)
			if round%2 == 0 {
				victim = f.Node(leader)
			}
			fault = victim.Stop
		}
		from := f.count() - 1
		if err := fault(); err != nil {
			f.t.Fatal(err)
		}
		f.awaitAcks(quietAfter)
		gap := f.longestGap(from)
		if kind != shift {
			gaps[kind] = append(gaps[kind], gap)
		}
		f.t.Logf("round %d: %s of node %d: %d ms", round, cmp.Or(kind, "shift"), victim.ID, gap.Milliseconds())
		if err := f.StartNode(victim); err != nil {
			f.t.Fatal(err)
		}
	}
	for kind, all := range gaps {
		slices.Sort(all)
		f.t.Logf("%-22s trials %d p50 %d ms max %d ms", kind, len(all), all[len(all)/2].Milliseconds(), all[len(all)-1].Milliseconds())
	}
}

// verify reads the partition back: every acknowledged record once, none twice.
func (f *failover) verify() {
	if f.failed != nil {
		f.t.Errorf("refused: %v", f.failed)
	}
	cl, err := f.Client(kgo.ConsumeTopics(failoverTopic))
	if err != nil {
		f.t.Fatal(err)
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(f.ctx, failoverTopic)
	if err != nil {
		f.t.Fatal(err)
	}
	end, _ := ends.Lookup(failoverTopic, 0)
	seen := map[uint64]bool{}
	for next := int64(0); next < end.Offset; {
		fs := cl.PollFetches(f.ctx)
		if f.ctx.Err() != nil {
			f.t.Fatalf("read up to offset %d of %d: %v", next, end.Offset, f.ctx.Err())
		}
		for it := fs.RecordIter(); !it.Done(); {
			r := it.Next()
			n := binary.BigEndian.Uint64(r.Value)
			if seen[n] {
				f.t.Errorf("record %d is there twice", n)
			}
			seen[n], next = true, r.Offset+1
		}
	}
	for n := range f.acked {
		if !seen[n] {
			f.t.Errorf("record %d was acknowledged and is lost", n)
		}
	}
	f.t.Logf("%d records acknowledged, %d read back", len(f.acked), len(seen))
}
