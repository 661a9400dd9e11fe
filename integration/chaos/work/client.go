package work

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/integration/chaos/history"
)

// lifetime draws how long a client lives before it is crashed and replaced.
func lifetime(rnd *rand.Rand) time.Duration {
	return 20*time.Second + time.Duration(rnd.Int64N(int64(25*time.Second)))
}

func baseOptions(brokers []string, id string) []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(brokers...), kgo.ClientID(id), kgo.MetadataMinAge(250 * time.Millisecond), kgo.MetadataMaxAge(5 * time.Second),
		kgo.DialTimeout(2 * time.Second), kgo.RequestTimeoutOverhead(4 * time.Second), kgo.RetryTimeout(20 * time.Second)}
}

// Producing says what a producer does.
type Producing struct {
	Workload string
	Topic    *Topic
	Rate     int // records a second
	Small    int // bytes of a record
	Large    int // and of one in ten; 0 for none
	// Compressed makes batches compressed.
	Compressed bool
	// Recreated tells that the topic has the name of one that was deleted. A node that
	// is cut off may still tell of that one, and a client that has believed it never
	// finds the new one again: so the client is replaced.
	Recreated bool
}

// unknownTries is how often a client looks again for a topic that is made again and again.
const unknownTries = 4

// outstanding bounds a producer's unacknowledged records, so that a fault costs little
// memory; it is so many that partitions without a leader do not keep the others waiting.
const outstanding = 1024

// produce is one producer from its creation to its end.
func (c *Crew) produce(ctx context.Context, p Producing, rnd *rand.Rand) {
	me := c.book.Process()
	codec, tries := kgo.NoCompression(), -1
	if p.Compressed {
		codec = kgo.Lz4Compression()
	}
	if p.Recreated {
		tries = unknownTries
	}
	cl, err := kgo.NewClient(append(baseOptions(c.brokers(), p.Workload+"-producer"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.UnknownTopicRetries(tries), kgo.StopProducerOnDataLossDetected(), kgo.ProducerBatchCompression(codec), kgo.ProduceRequestTimeout(5*time.Second))...)
	if err != nil {
		c.book.Problem("%s: make a producer: %v", p.Workload, err)
		return
	}
	life := time.NewTimer(lifetime(rnd))
	defer life.Stop()
	tick := time.NewTicker(time.Second / time.Duration(p.Rate))
	defer tick.Stop()
	slots, done := make(chan struct{}, outstanding), make(chan struct{}, 1)
	for n := uint64(0); ; n++ {
		select {
		case slots <- struct{}{}: // given back when the outcome is known
		case <-ctx.Done():
			c.endProducer(cl, me)
			return
		case <-done:
			c.crash(cl, me)
			return
		case <-life.C:
			c.crash(cl, me)
			return
		}
		size := p.Small
		if p.Large > 0 && rnd.IntN(10) == 0 {
			size = p.Large/2 + rnd.IntN(p.Large/2)
		}
		part := int32(rnd.IntN(p.Topic.Partitions))
		v := history.NewValue(me, n)
		c.send(cl, p, &kgo.Record{Topic: p.Topic.Name, Partition: part, Value: payload(p.Topic.Key(part), v, size)}, v, func(err error) {
			if useless(err) {
				select {
				case done <- struct{}{}:
				default: // it knows
				}
			}
			<-slots
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// useless tells whether a producer gets nowhere any more after an error: the topic that
// it knows is gone, or records are.
func useless(err error) bool {
	var loss *kgo.ErrDataLoss
	return errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.UnknownTopicOrPartition) || errors.As(err, &loss) || goneOfProducer(err)
}

// goneOfProducer tells whether a broker does not know what it has acknowledged to a producer.
func goneOfProducer(err error) bool {
	return errors.Is(err, kerr.OutOfOrderSequenceNumber) || errors.Is(err, kerr.UnknownProducerID)
}

// send sends one record, whose outcome over is told.
func (c *Crew) send(cl *kgo.Client, p Producing, r *kgo.Record, v history.Value, over func(error)) {
	k := p.Topic.Key(r.Partition)
	invoked := c.book.Now()
	// The record is not bound to a context: a canceled one may be lost or not, which
	// is what the crash of a client is for.
	cl.Produce(context.Background(), r, func(r *kgo.Record, err error) {
		op := history.Op{Process: v.Process(), Func: history.Send, Outcome: history.OK, Invoke: invoked, Sends: []history.Record{{Key: k, Offset: r.Offset, Value: v}}}
		if err != nil {
			op.Outcome, op.Sends[0].Offset = history.Info, history.NoOffset
			c.unexpected(p.Workload+" producer", err)
		} else {
			c.book.acknowledged(p.Workload, k, r.Offset)
		}
		c.book.add(&op)
		over(err)
	})
}

// unexpected notes errors that no fault of ours explains.
func (c *Crew) unexpected(who string, err error) {
	var loss *kgo.ErrDataLoss
	switch {
	case errors.As(err, &loss):
		c.book.loss("%s: the client found that data of %s is gone", who, loss.Topic)
	case goneOfProducer(err), errors.Is(err, kerr.OffsetOutOfRange):
		c.book.loss("%s: %v", who, err)
	case errors.Is(err, kerr.CorruptMessage), errors.Is(err, kerr.InvalidProducerEpoch), errors.Is(err, kerr.UnknownServerError):
		c.book.Problem("%s: %v", who, err)
	}
}

// endProducer lets a producer get the answers to what it has sent, as far as the crew is patient.
func (c *Crew) endProducer(cl *kgo.Client, me history.Process) {
	if c.patience == 0 {
		c.crash(cl, me)
		return
	}
	wait, cancel := context.WithTimeout(context.Background(), c.patience)
	defer cancel()
	if err := cl.Flush(wait); err != nil {
		c.book.Problem("a producer has had no answer for %s after all faults were healed", c.patience)
	}
	c.crash(cl, me)
}

// crash ends a client as it stands: records without an answer are unknown.
func (c *Crew) crash(cl *kgo.Client, me history.Process) {
	invoked := c.book.Now()
	cl.Close()
	c.book.add(&history.Op{Process: me, Func: history.Crash, Outcome: history.OK, Invoke: invoked})
}

// pollRecords bounds one poll, so that an operation of the history stays readable.
const pollRecords = 500

// pollWait is how long a poll waits for records.
const pollWait = 500 * time.Millisecond

// poll is one poll as an operation.
func (c *Crew) poll(ctx context.Context, cl *kgo.Client, op *history.Op, who string, keys func(topic string, partition int32) (history.Key, bool)) kgo.Fetches {
	wait, cancel := context.WithTimeout(ctx, pollWait)
	defer cancel()
	op.Func, op.Outcome, op.Invoke = history.Poll, history.OK, c.book.Now()
	fetches := cl.PollRecords(wait, pollRecords)
	fetches.EachError(func(_ string, _ int32, err error) {
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) && !errors.Is(err, kgo.ErrClientClosed) {
			c.unexpected(who, err)
		}
	})
	fetches.EachRecord(func(r *kgo.Record) {
		k, ok := keys(r.Topic, r.Partition)
		if !ok {
			c.book.Problem("%s: a record of %s-%d, which it does not read", who, r.Topic, r.Partition)
			return
		}
		v, err := parsePayload(k, r.Value)
		if err != nil {
			c.book.Problem("%s: %s-%d at %d: %v", who, r.Topic, r.Partition, r.Offset, err)
			return
		}
		op.Polls = append(op.Polls, history.Record{Key: k, Offset: r.Offset, Value: v})
	})
	return fetches
}

// Reading says what an assigned reader reads.
type Reading struct {
	Topics []*Topic
	// Rack makes it read from followers there.
	Rack string
}

// keysOf maps partitions to keys, and lists the keys.
func keysOf(topics []*Topic) (func(string, int32) (history.Key, bool), []history.Key) {
	byName := map[string]*Topic{}
	var keys []history.Key
	for _, t := range topics {
		byName[t.Name] = t
		for p := range t.Partitions {
			keys = append(keys, t.Key(int32(p)))
		}
	}
	return func(topic string, partition int32) (history.Key, bool) {
		t := byName[topic]
		if t == nil || int(partition) >= t.Partitions {
			return 0, false
		}
		return t.Key(partition), true
	}, keys
}

// read is one assigned reader from its creation to its end.
func (c *Crew) read(ctx context.Context, r Reading, rnd *rand.Rand) {
	me := c.book.Process()
	start := map[string]map[int32]kgo.Offset{}
	for _, t := range r.Topics {
		start[t.Name] = map[int32]kgo.Offset{}
		for p := range t.Partitions {
			// A reader that starts at a known place reads no more than a while's records.
			at := max(0, c.book.end(t.Key(int32(p)))-rnd.Int64N(400))
			start[t.Name][int32(p)] = kgo.NewOffset().At(at)
		}
	}
	opts := append(baseOptions(c.brokers(), "reader"), kgo.ConsumePartitions(start), kgo.FetchMaxWait(500*time.Millisecond))
	if r.Rack != "" {
		opts = append(opts, kgo.Rack(r.Rack))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		c.book.Problem("make a reader: %v", err)
		return
	}
	keyOf, keys := keysOf(r.Topics)
	c.book.add(&history.Op{Process: me, Func: history.Assign, Outcome: history.OK, Invoke: c.book.Now(), Keys: keys})
	end := time.Now().Add(lifetime(rnd))
	who := strings.TrimSpace("reader " + r.Rack)
	for ctx.Err() == nil && time.Now().Before(end) {
		op := history.Op{Process: me}
		c.poll(ctx, cl, &op, who, keyOf)
		c.book.add(&op)
	}
	c.crash(cl, me)
}
