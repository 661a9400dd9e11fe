package fsm_test

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
)

// The large Image of the benchmarks: 1,000,000 partitions in 100,000 topics, RF 3
// on 12 brokers.
const (
	largeTopics      = 100_000
	partsPerTopic    = 10
	largeBrokers     = 12
	largeReplication = 3
)

// buildImage makes an Image through Apply.
func buildImage(tb testing.TB, topics int) *fsm.Image {
	tb.Helper()
	im, index := fsm.NewImage(), uint64(0)
	apply := func(c fsm.Command) {
		index++
		var r fsm.Result
		if im, r = fsm.Apply(im, index, c); r.Err != nil {
			tb.Fatalf("%#v: %v", c, r.Err)
		}
	}
	for id := fsm.BrokerID(1); id <= largeBrokers; id++ {
		apply(fsm.RegisterBroker{ID: id, Folder: [16]byte{byte(id)}, Process: [16]byte{1}, BootID: "b"})
		apply(fsm.UnfenceBroker{ID: id, Epoch: fsm.BrokerEpoch(index)})
	}
	for i := range topics {
		c := fsm.CreateTopic{ID: scattered(i), Name: fmt.Sprintf("topic-%06d", i)}
		lists, err := elect.Place(im, partsPerTopic, largeReplication, uint64(i))
		if err != nil {
			tb.Fatal(err)
		}
		for _, list := range lists {
			np, _ := elect.Initial(im, list)
			c.Partitions = append(c.Partitions, np)
		}
		apply(c)
	}
	return im
}

// scattered is a topic id like a random one, the same each time.
func scattered(i int) (id fsm.TopicID) {
	x := uint64(i)
	for j := range id {
		x = x*6364136223846793005 + 1442695040888963407
		id[j] = byte(x >> 56)
	}
	return id
}

// largeImage builds the Image once for all benchmarks of one run.
func largeImage(b *testing.B) *fsm.Image {
	b.Helper()
	if testing.Short() {
		b.Skip("the large Image takes seconds to build")
	}
	return buildImage(b, largeTopics)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// isrItem is a change of one partition's ISR: out and in in turn.
func isrItem(im *fsm.Image, tp fsm.TopicPartition) (fsm.BrokerID, fsm.ISRChange) {
	p, _ := im.Partition(tp)
	c := fsm.ISRChange{TP: tp, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
	for _, id := range p.Replicas {
		if len(p.ISR) == len(p.Replicas) && id != p.Leader && len(c.ISR) == len(p.ISR)-1 {
			continue
		}
		b, _ := im.Broker(id)
		c.ISR = append(c.ISR, fsm.Member{ID: id, Epoch: b.Epoch})
	}
	return p.Leader, c
}

// changesOf makes n ISR changes of one leader, one each in n topics from first on.
func changesOf(im *fsm.Image, leader fsm.BrokerID, first, n, topics int) fsm.ChangeISR {
	b, _ := im.Broker(leader)
	c := fsm.ChangeISR{Proposer: leader, BrokerEpoch: b.Epoch}
	for i := 0; len(c.Items) < n; i++ {
		id := scattered((first + i*7919) % topics)
		for j := range int32(partsPerTopic) {
			tp := fsm.TopicPartition{Topic: id, Partition: j}
			if by, item := isrItem(im, tp); by == leader {
				c.Items = append(c.Items, item)
				break
			}
		}
	}
	return c
}

func BenchmarkLarge(b *testing.B) {
	before := heap()
	im := largeImage(b)
	b.Run("heap", func(b *testing.B) {
		for b.Loop() {
		}
		b.ReportMetric(float64(heap()-before)/(1<<20), "MB")
	})
	for _, n := range []int{1, 500} {
		b.Run(fmt.Sprintf("isr/%d", n), func(b *testing.B) { benchmarkISR(b, im, n, largeTopics) })
	}
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			im.Partition(fsm.TopicPartition{Topic: scattered(i % largeTopics), Partition: 3})
			i++
		}
	})
	b.Run("fence", func(b *testing.B) {
		for b.Loop() {
			fsm.Apply(im, im.Index()+1, fsm.FenceBroker{ID: 3, Epoch: 5})
		}
	})
	b.Run("fence-and-elect", func(b *testing.B) {
		for b.Loop() {
			next, _ := fsm.Apply(im, im.Index()+1, fsm.FenceBroker{ID: 3, Epoch: 5})
			fsm.Apply(next, im.Index()+1, fsm.ChangeLeaders{Items: elect.Leaders(next)})
		}
	})
	b.Run("diff/1", func(b *testing.B) {
		next, _ := fsm.Apply(im, im.Index()+1, changesOf(im, 1, 0, 1, largeTopics))
		for b.Loop() {
			fsm.Diff(im, next)
		}
	})
	b.Run("diff/unrelated", func(b *testing.B) {
		next, _ := fsm.Apply(im, im.Index()+1, changesOf(im, 1, 0, 1, largeTopics))
		next = fsm.ForgetJournal(next)
		for b.Loop() {
			fsm.Diff(im, next)
		}
	})
	b.Run("hosted", func(b *testing.B) {
		for b.Loop() {
			for range im.Hosted(3) {
			}
		}
	})
	b.Run("snapshot", func(b *testing.B) {
		for b.Loop() {
			if err := fsm.WriteSnapshot(io.Discard, im); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("snapshot-beside", func(b *testing.B) { benchmarkBesideSnapshot(b, im) })
	b.Run("restore", func(b *testing.B) { benchmarkRestore(b, im) })
	b.Run("gc", func(b *testing.B) {
		for b.Loop() {
			runtime.GC()
		}
	})
	runtime.KeepAlive(im)
}

// benchmarkISR reports the time of one item, in commands of n. They are made ahead, many at
// a time: the timer's own look at the memory costs more than a command.
func benchmarkISR(b *testing.B, im *fsm.Image, n, topics int) {
	b.ReportAllocs()
	const ahead = 10_000
	items := 0
	var made []fsm.ChangeISR
	for b.Loop() {
		if len(made) == 0 {
			b.StopTimer()
			all := changesOf(im, 1, items, ahead, topics)
			for part := range slices.Chunk(all.Items, n) {
				made = append(made, fsm.ChangeISR{Proposer: all.Proposer, BrokerEpoch: all.BrokerEpoch, Items: part})
			}
			b.StartTimer()
		}
		next, r := fsm.Apply(im, im.Index()+1, made[0])
		if r.Err != nil || len(r.Skipped) > 0 {
			b.Fatalf("%+v", r)
		}
		im, made = next, made[1:]
		items += n
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(items), "ns/item")
}

// benchmarkBesideSnapshot reports how long one of a thousand changes a second takes at
// most while a snapshot is written, which holds Apply up by nothing but the memory and the
// processors that they share.
func benchmarkBesideSnapshot(b *testing.B, im *fsm.Image) {
	made := changesOf(im, 1, 0, 10_000, largeTopics)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var longest time.Duration
	n := 0
	for b.Loop() {
		written := make(chan error, 1)
		go func() { written <- fsm.WriteSnapshot(io.Discard, im) }()
		next := im
		for i := 0; len(written) == 0; i++ {
			<-tick.C
			c := fsm.ChangeISR{Proposer: made.Proposer, BrokerEpoch: made.BrokerEpoch, Items: made.Items[i : i+1]}
			began := time.Now()
			var r fsm.Result
			if next, r = fsm.Apply(next, next.Index()+1, c); r.Err != nil || len(r.Skipped) > 0 {
				b.Fatalf("%+v", r)
			}
			longest, n = max(longest, time.Since(began)), n+1
		}
		if err := <-written; err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(longest.Microseconds())/1000, "ms/longest")
	b.ReportMetric(float64(n)/float64(b.N), "changes/op")
}

func benchmarkRestore(b *testing.B, im *fsm.Image) {
	var snapshot bytes.Buffer
	if err := fsm.WriteSnapshot(&snapshot, im); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(snapshot.Len())/(1<<20), "MB")
	for b.Loop() {
		if _, err := fsm.ReadSnapshot(bytes.NewReader(snapshot.Bytes())); err != nil {
			b.Fatal(err)
		}
	}
}
