package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// laneSet is a producer that sends a small record to each of many partitions at one
// interval and notes when they are acknowledged. The values of a partition count
// from 0, so that what is read back shows loss, duplicates and order.
//
// The client retries fast and gives up on a silent broker soon.
type laneSet struct {
	cl    *kgo.Client
	every time.Duration
	stop  chan struct{}
	done  sync.WaitGroup // the sender, which ends by stop

	mu     sync.Mutex // guards what follows
	lanes  map[lane]*laneState
	order  []*laneState // as they are sent to
	failed error        // what records were refused with
}

// lane is one partition.
type lane struct {
	topic     string
	partition int32
}

// laneState is what is known of one partition's records.
type laneState struct {
	lane
	sent  uint64        // also the next value
	acked uint64        // acknowledged; in order, so these are the values below it
	last  time.Time     // of the latest acknowledgement
	gap   time.Duration // the longest between two of them since mark
}

// produceTo starts a producer to the given partitions. close ends it.
func (c *Cluster) produceTo(every time.Duration, partitions []lane, opts ...kgo.Opt) (*laneSet, error) {
	base := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(1 << 20),
		kgo.MetadataMinAge(50 * time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.ProduceRequestTimeout(400 * time.Millisecond), kgo.RequestTimeoutOverhead(400 * time.Millisecond),
		kgo.UnknownTopicRetries(-1),
	}
	cl, err := c.Client(append(base, opts...)...)
	if err != nil {
		return nil, err
	}
	ls := &laneSet{cl: cl, every: every, stop: make(chan struct{}), lanes: map[lane]*laneState{}}
	for _, l := range partitions {
		s := &laneState{lane: l}
		ls.lanes[l], ls.order = s, append(ls.order, s)
	}
	ls.done.Go(ls.send)
	return ls, nil
}

// send hands one record of each lane to the client at each tick.
func (ls *laneSet) send() {
	tick := time.NewTicker(ls.every)
	defer tick.Stop()
	for {
		select {
		case <-ls.stop:
			return
		case <-tick.C:
		}
		for _, s := range ls.order {
			n := s.sent // of this goroutine alone
			s.sent++
			r := &kgo.Record{Topic: s.topic, Partition: s.partition, Value: binary.BigEndian.AppendUint64(nil, n)}
			ls.cl.Produce(context.Background(), r, func(_ *kgo.Record, err error) { ls.acknowledged(s, n, err) })
		}
	}
}

func (ls *laneSet) acknowledged(s *laneState, n uint64, err error) {
	now := time.Now()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch {
	case err != nil:
		ls.failed = errors.Join(ls.failed, fmt.Errorf("record %d of %s-%d: %w", n, s.topic, s.partition, err))
		return
	case n != s.acked:
		ls.failed = errors.Join(ls.failed, fmt.Errorf("record %d of %s-%d was acknowledged after %d others", n, s.topic, s.partition, s.acked))
	}
	if s.acked++; s.acked > 1 {
		s.gap = max(s.gap, now.Sub(s.last))
	}
	s.last = now
}

// mark forgets the gaps up to now.
func (ls *laneSet) mark() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, s := range ls.order {
		s.gap = 0
	}
}

// await waits until each lane has n more acknowledgements.
func (ls *laneSet) await(ctx context.Context, n uint64) error {
	ls.mu.Lock()
	want := make([]uint64, len(ls.order))
	for i, s := range ls.order {
		want[i] = s.acked + n
	}
	ls.mu.Unlock()
	return poll(ctx, "await acknowledgements", func() error {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		for i, s := range ls.order {
			if s.acked < want[i] {
				return fmt.Errorf("%s-%d has %d of %d", s.topic, s.partition, s.acked, want[i])
			}
		}
		return nil
	})
}

// gaps returns the longest time between two acknowledgements since mark, of each
// lane that is chosen.
func (ls *laneSet) gaps(choose func(lane) bool) []time.Duration {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	var out []time.Duration
	for _, s := range ls.order {
		if choose(s.lane) {
			out = append(out, s.gap)
		}
	}
	return out
}

// close stops sending, waits for what was sent, and returns how many records of
// each lane were acknowledged.
func (ls *laneSet) close(ctx context.Context) (map[lane]uint64, error) {
	close(ls.stop)
	ls.done.Wait()
	err := ls.cl.Flush(ctx)
	ls.cl.Close()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	acked := map[lane]uint64{}
	for l, s := range ls.lanes {
		acked[l] = s.acked
	}
	return acked, errors.Join(err, ls.failed)
}
