package controller

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/integration/seeds"
)

// faultRounds is how many nodes TestRandomFaults takes down, one after the other.
const faultRounds = 8

// TestRandomFaults crashes, closes and reopens nodes while every node allocates producer ids.
// No id may be granted twice, none of what was granted may be lost, and at the end all nodes
// must have the same Raft log and the same Image.
func TestRandomFaults(t *testing.T) {
	seed := uint64(seeds.For(t))
	rng := rand.New(rand.NewPCG(seed, 0))
	c := newCluster(t, 3)
	c.openAll()
	c.registerAll()
	w := newAllocators(c)
	for range faultRounds {
		w.progress(t, 20)
		victim := rng.IntN(3)
		tn := c.nodes[victim]
		w.nodes[victim].Store(nil)
		if rng.IntN(2) == 0 {
			tn.crash()
		} else {
			tn.close()
		}
		w.progress(t, 20)
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		err := tn.open(ctx)
		cancel()
		if err != nil {
			t.Fatalf("reopen node %d: %v", victim, err)
		}
		tn.register()
		w.nodes[victim].Store(tn.node)
	}
	w.stop()
	sameEverywhere(t, c)
	w.check(t, c.nodes[0].node.Image().NextProducerID())
}

// allocators take producer ids through every open node, one at a time each.
type allocators struct {
	nodes   [3]atomic.Pointer[Node]
	done    chan struct{}
	wg      sync.WaitGroup
	granted [3][]int64
	total   atomic.Int64
	unknown atomic.Int64
}

func newAllocators(c *testCluster) *allocators {
	w := &allocators{done: make(chan struct{})}
	for i, tn := range c.nodes {
		w.nodes[i].Store(tn.node)
		w.wg.Go(func() { w.run(i) })
	}
	return w
}

func (w *allocators) run(i int) {
	for {
		select {
		case <-w.done:
			return
		default:
		}
		n := w.nodes[i].Load()
		if n == nil {
			<-time.After(time.Millisecond)
			continue
		}
		im := n.Image()
		b, _ := im.Broker(n.Identity().NodeID)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		r, err := n.Propose(ctx, fsm.AllocateProducerIDs{Broker: b.ID, BrokerEpoch: b.Epoch, First: im.NextProducerID(), Count: 1})
		cancel()
		switch {
		case err == nil && r.Err == nil:
			w.granted[i] = append(w.granted[i], r.Epoch)
			w.total.Add(1)
		case errors.Is(err, ErrUnknown):
			w.unknown.Add(1)
		}
	}
}

// progress waits until more ids have been granted.
func (w *allocators) progress(t *testing.T, more int64) {
	t.Helper()
	from := w.total.Load()
	eventually(t, "producer ids go on being granted", func() bool { return w.total.Load() >= from+more })
}

func (w *allocators) stop() {
	close(w.done)
	w.wg.Wait()
}

// check looks for ids granted twice and for grants that the cluster has forgotten.
func (w *allocators) check(t *testing.T, next int64) {
	t.Helper()
	seen := map[int64]bool{}
	for _, ids := range w.granted {
		for _, id := range ids {
			if seen[id] {
				t.Errorf("producer id %d was granted twice", id)
			}
			if id >= next {
				t.Errorf("producer id %d was granted, but %d is the next free one", id, next)
			}
			seen[id] = true
		}
	}
	t.Logf("%d ids granted, %d outcomes unknown", len(seen), w.unknown.Load())
}

// sameEverywhere waits until all nodes are at one index and compares Images and logs.
func sameEverywhere(t *testing.T, c *testCluster) {
	t.Helper()
	eventually(t, "all nodes at one index", func() bool {
		a, b, d := c.nodes[0].node.Image(), c.nodes[1].node.Image(), c.nodes[2].node.Image()
		return a.Index() == b.Index() && b.Index() == d.Index()
	})
	index := c.nodes[0].node.Image().Index()
	for _, tn := range c.nodes[1:] {
		if a, b := c.nodes[0].node.Image().Hash(), tn.node.Image().Hash(); a != b {
			t.Errorf("at index %d two Images hash to %x and %x", index, a, b)
		}
		for i := uint64(1); i <= index; i++ {
			var x, y raft.Log
			if err := errors.Join(c.nodes[0].node.store.GetLog(i, &x), tn.node.store.GetLog(i, &y)); err != nil {
				t.Fatalf("read entry %d: %v", i, err)
			}
			if x.Term != y.Term || x.Type != y.Type || !bytes.Equal(x.Data, y.Data) {
				t.Fatalf("entry %d differs: %+v and %+v", i, x, y)
			}
		}
	}
}
