package hostile

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/integration/cluster"
)

const (
	witnessTopic = "witness"
	witnessEvery = 5 * time.Millisecond
)

// witnessKey marks the records of the well-behaved client: inputs may write to its
// partition, too.
var witnessKey = []byte("witness")

// witness is the well-behaved client: an idempotent producer with acks=all that
// sends a record every few milliseconds, and a consumer group of one that must
// read them all, once and in order.
type witness struct {
	producer, consumer *kgo.Client
	stop               context.CancelFunc
	stopRead           context.CancelFunc
	sender, reader     sync.WaitGroup

	mu     sync.Mutex
	failed error
	sent   uint64
	acks   []ack       // in the order of acknowledgement
	reads  []time.Time // of each record, in order
	next   int64       // offset after the last that was read
}

// ack is one acknowledgement.
type ack struct {
	at   time.Time
	took time.Duration
}

// moment is how far the witness had got at a time.
type moment struct {
	at          time.Time
	acks, reads int
}

func newWitness(t *testing.T, c *cluster.Cluster) *witness {
	t.Helper()
	w := &witness{}
	var err error
	if w.producer, err = c.Client(kgo.DefaultProduceTopic(witnessTopic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0)); err != nil {
		t.Fatal(err)
	}
	if w.consumer, err = c.Client(kgo.ConsumeTopics(witnessTopic), kgo.ConsumerGroup("witness"), kgo.AutoCommitInterval(time.Second),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(time.Second)); err != nil {
		t.Fatal(err)
	}
	var ctx, readCtx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	readCtx, w.stopRead = context.WithCancel(context.Background())
	w.sender.Go(func() { w.send(ctx) })     // ends with ctx
	w.reader.Go(func() { w.read(readCtx) }) // ends with readCtx
	t.Cleanup(w.close)
	return w
}

// close ends what finish did not.
func (w *witness) close() {
	w.stop()
	w.stopRead()
	w.producer.Close()
	w.consumer.Close()
	w.sender.Wait()
	w.reader.Wait()
}

func (w *witness) send(ctx context.Context) {
	tick := time.NewTicker(witnessEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w.mu.Lock()
		n := w.sent
		w.sent++
		w.mu.Unlock()
		began := time.Now()
		w.producer.Produce(context.Background(), &kgo.Record{Key: witnessKey, Value: binary.BigEndian.AppendUint64(nil, n)}, func(_ *kgo.Record, err error) {
			now := time.Now()
			w.mu.Lock()
			defer w.mu.Unlock()
			if err != nil {
				w.failed = errors.Join(w.failed, fmt.Errorf("record %d was not acknowledged: %w", n, err))
				return
			}
			w.acks = append(w.acks, ack{now, now.Sub(began)})
		})
	}
}

func (w *witness) read(ctx context.Context) {
	for ctx.Err() == nil {
		fetches := w.consumer.PollFetches(ctx)
		now := time.Now()
		w.mu.Lock()
		fetches.EachError(func(_ string, _ int32, err error) {
			if ctx.Err() == nil && !errors.Is(err, kgo.ErrClientClosed) {
				w.failed = errors.Join(w.failed, fmt.Errorf("read: %w", err))
			}
		})
		fetches.EachRecord(func(r *kgo.Record) { w.take(r, now) })
		w.mu.Unlock()
	}
}

// take checks one record. A group whose member was dropped begins again at its
// last commit: what lies below the last offset that was read is skipped.
func (w *witness) take(r *kgo.Record, now time.Time) {
	if r.Offset < w.next || !bytes.Equal(r.Key, witnessKey) {
		return
	}
	w.next = r.Offset + 1
	if n := binary.BigEndian.Uint64(r.Value); n != uint64(len(w.reads)) {
		w.failed = errors.Join(w.failed, fmt.Errorf("record %d was read at offset %d, after %d records", n, r.Offset, len(w.reads)))
	}
	w.reads = append(w.reads, now)
}

// mark is how far the witness is now.
func (w *witness) mark() moment {
	w.mu.Lock()
	defer w.mu.Unlock()
	return moment{at: time.Now(), acks: len(w.acks), reads: len(w.reads)}
}

// passed tells whether n records have been acknowledged, and n read, since then.
func (w *witness) passed(since moment, n int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		return nil // getOn reports it
	}
	if acks, reads := len(w.acks)-since.acks, len(w.reads)-since.reads; acks < n || reads < n {
		return fmt.Errorf("the well-behaved client got %d records acknowledged and read %d, of %d", acks, reads, n)
	}
	return nil
}

// getOn waits until the witness has got n records further.
func (w *witness) getOn(t *testing.T, n int) {
	t.Helper()
	since := w.mark()
	eventually(t, func() error { return w.passed(since, n) })
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		t.Fatalf("the well-behaved client: %v", w.failed)
	}
}

// finish stops sending, and waits until all that was sent has been read.
func (w *witness) finish(t *testing.T) {
	t.Helper()
	w.stop()
	w.sender.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := w.producer.Flush(ctx); err != nil {
		t.Errorf("flush the well-behaved producer: %v", err)
	}
	eventually(t, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.failed == nil && uint64(len(w.reads)) < w.sent {
			return fmt.Errorf("%d records were sent, %d acknowledged, %d read", w.sent, len(w.acks), len(w.reads))
		}
		return nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil || uint64(len(w.acks)) != w.sent || uint64(len(w.reads)) != w.sent {
		t.Errorf("the well-behaved client: sent %d, acknowledged %d, read %d: %v", w.sent, len(w.acks), len(w.reads), w.failed)
	}
}

// latencies are those of acknowledgements.
type latencies struct{ p50, p99, max time.Duration }

// between sums up the acknowledgements from one moment to another.
func (w *witness) between(from, to moment) latencies {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]time.Duration, 0, to.acks-from.acks)
	for _, a := range w.acks[from.acks:to.acks] {
		all = append(all, a.took)
	}
	if len(all) == 0 {
		return latencies{}
	}
	slices.Sort(all)
	return latencies{all[len(all)/2], all[(len(all)-1)*99/100], all[len(all)-1]}
}

// longestGap is the longest time within which nothing was acknowledged, or nothing read.
func (w *witness) longestGap(from, to moment) (gap time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := from.at
	for _, a := range w.acks[from.acks:to.acks] {
		gap, last = max(gap, a.at.Sub(last)), a.at
	}
	gap, last = max(gap, to.at.Sub(last)), from.at
	for _, at := range w.reads[from.reads:to.reads] {
		gap, last = max(gap, at.Sub(last)), at
	}
	return max(gap, to.at.Sub(last))
}
