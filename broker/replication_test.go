package broker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/fsm"
)

func TestClusterReplicates(t *testing.T) {
	c := newCluster(t, 3)
	id := c.topic("t", 1, 3)
	tp := fsm.TopicPartition{Topic: id}
	c.inSync(tp, 3)
	want := numbered(0, 50)
	c.produce("t", want...)
	c.sameLogs(tp)
	if got := c.consume("t", len(want)); !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
}

// writer produces numbered values one after the other, with acks=all, until
// stopped, and keeps those that were acknowledged and the longest pause between two.
type writer struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	acked []string
	gap   time.Duration
}

func (c *cluster) write(topic string) *writer { return c.writeFrom(topic, 0) }

// writeFrom is write with values that are numbered from another number.
func (c *cluster) writeFrom(topic string, from int) *writer {
	ctx, cancel := context.WithCancel(context.Background())
	w := &writer{cancel: cancel, done: make(chan struct{})}
	cl := c.client(kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	go func() {
		defer close(w.done)
		last := time.Now()
		for i := from; ctx.Err() == nil; i++ {
			v := fmt.Sprint("w", i)
			if err := cl.ProduceSync(ctx, kgo.StringRecord(v)).FirstErr(); err != nil {
				if ctx.Err() == nil {
					c.Errorf("produce %q: %v", v, err)
				}
				return
			}
			w.mu.Lock()
			w.acked = append(w.acked, v)
			w.gap = max(w.gap, time.Since(last))
			w.mu.Unlock()
			last = time.Now()
		}
	}()
	c.Cleanup(func() { w.stop() })
	return w
}

func (w *writer) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked)
}

// pause is the longest time between two acknowledgements since it was asked last.
func (w *writer) pause() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	gap := w.gap
	w.gap = 0
	return gap
}

// stop ends the writer and returns what was acknowledged.
func (w *writer) stop() []string {
	w.cancel()
	<-w.done
	return w.acked
}

// more waits for n more acknowledgements.
func (c *cluster) more(w *writer, n int) {
	c.Helper()
	have := w.count()
	c.until(fmt.Sprintf("%d more records are acknowledged", n), func() bool { return w.count() >= have+n || c.Failed() })
}

// holds checks that the topic has exactly the acknowledged values, in order; the
// last one may be there without an acknowledgement.
func (c *cluster) holds(topic string, acked []string) {
	c.Helper()
	if got := c.consume(topic, len(acked)); !slices.Equal(got[:len(acked)], acked) {
		for i := range acked {
			if got[i] != acked[i] {
				c.Fatalf("record %d is %q, want %q (of %d)", i, got[i], acked[i], len(acked))
			}
		}
	}
}

func TestLeaderKill(t *testing.T) {
	c := newCluster(t, 3)
	tp := fsm.TopicPartition{Topic: c.topic("t", 1, 3)}
	c.inSync(tp, 3)
	w := c.write("t")
	c.more(w, 50)
	dead := c.leader(tp)
	c.kill(dead)
	c.more(w, 50)
	if got := c.leader(tp); got == dead {
		t.Errorf("node %d leads although it was killed", got+1)
	}
	t.Logf("longest pause between two acknowledgements: %v", w.pause())
	c.start(dead)
	c.inSync(tp, 3)
	c.more(w, 10)
	acked := w.stop()
	c.sameLogs(tp)
	c.holds("t", acked)
}

func TestFollowerCatchesUp(t *testing.T) {
	c := newCluster(t, 3)
	tp := fsm.TopicPartition{Topic: c.topic("t", 1, 3)}
	c.inSync(tp, 3)
	c.produce("t", numbered(0, 10)...)
	away := (c.leader(tp) + 1) % 3
	c.kill(away)
	c.produce("t", numbered(10, 30)...)
	c.inSync(tp, 2)
	c.produce("t", numbered(30, 40)...)
	c.start(away)
	c.inSync(tp, 3)
	c.sameLogs(tp)
	if got, want := c.consume("t", 40), numbered(0, 40); !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
}

func TestBelowMinISRNothingIsAcknowledged(t *testing.T) {
	c := newCluster(t, 3)
	tp := fsm.TopicPartition{Topic: c.topic("t", 1, 3)}
	c.inSync(tp, 3)
	leader := c.leader(tp)
	c.produce("t", "a")
	w := c.write("t")
	c.more(w, 5)
	// Two of three nodes away: no majority of voters either, so the ISR cannot even shrink.
	for i := range c.nodes {
		if i != leader {
			c.kill(i)
		}
	}
	stuck := w.count()
	<-time.After(2 * c.configs[0].Session)
	if got := w.count(); got > stuck+1 {
		t.Errorf("%d records were acknowledged by one replica of three", got-stuck)
	}
	for i := range c.nodes {
		if i != leader {
			c.start(i)
		}
	}
	c.more(w, 5)
	acked := w.stop()
	c.inSync(tp, 3)
	c.holds("t", append([]string{"a"}, acked...))
}

func TestHandOff(t *testing.T) {
	c := newCluster(t, 3)
	tp := fsm.TopicPartition{Topic: c.topic("t", 1, 3)}
	c.inSync(tp, 3)
	w := c.write("t")
	for round := range 3 {
		c.more(w, 30)
		w.pause()
		leader := c.leader(tp)
		began := time.Now()
		c.stop(leader)
		took := time.Since(began)
		c.more(w, 30)
		gap := w.pause()
		t.Logf("round %d: the stop took %v, the longest pause between two acknowledgements was %v", round, took, gap)
		if gap > 2*time.Second { // 0.3 s on a machine that is not busy with other tests
			t.Errorf("producers waited %v during a hand-off", gap)
		}
		c.start(leader)
		c.inSync(tp, 3)
	}
	acked := w.stop()
	c.holds("t", acked)
}

func TestFailoverPingPong(t *testing.T) {
	c := newCluster(t, 3)
	tp := fsm.TopicPartition{Topic: c.topic("t", 1, 3)}
	c.inSync(tp, 3)
	w := c.write("t")
	for range 4 {
		c.more(w, 10)
		leader := c.leader(tp)
		c.kill(leader)
		c.more(w, 1)
		c.start(leader)
		if t.Failed() {
			return
		}
		c.inSync(tp, 3)
	}
	acked := w.stop()
	c.sameLogs(tp)
	c.holds("t", acked)
}

func TestDeleteWhileANodeIsAway(t *testing.T) {
	c := newCluster(t, 3)
	first := c.topic("t", 2, 3)
	c.inSync(fsm.TopicPartition{Topic: first}, 3)
	c.produce("t", "old")
	away := 2
	c.kill(away)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := kadm.NewClient(c.client()).DeleteTopic(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	second := c.topic("t", 1, 3)
	c.produce("t", "new")
	if _, buried := c.any().controller.Image().Tombstone(first); !buried {
		t.Error("the tombstone is gone although a replica is away")
	}
	c.start(away)
	tp := fsm.TopicPartition{Topic: second}
	c.inSync(tp, 3)
	c.sameLogs(tp)
	c.until("all deletions are confirmed", func() bool {
		_, buried := c.any().controller.Image().Tombstone(first)
		return !buried
	})
	if got := c.consume("t", 1); got[0] != "new" {
		t.Errorf("read %q, want only the new record", got)
	}
}
