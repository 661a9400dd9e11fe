package fsm_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// The load that the product is built for: 32 groups that each commit 100
// partitions at a time.
const (
	committers       = 32
	commitPartitions = 100
)

// commitImage has topics of 100 partitions, all slots with one owner, and a group
// of one member for each committer.
func commitImage(tb testing.TB, topics int) *fsm.Image {
	tb.Helper()
	im := fsm.NewImage()
	apply := func(c fsm.Command) {
		var r fsm.Result
		if im, r = fsm.Apply(im, im.Index()+1, c); r.Err != nil || len(r.Skipped) > 0 {
			tb.Fatalf("%#v: %+v", c, r)
		}
	}
	apply(fsm.RegisterBroker{ID: 1, Folder: [16]byte{1}, Process: [16]byte{1}})
	apply(fsm.UnfenceBroker{ID: 1, Epoch: 1})
	np := fsm.NewPartition{Replicas: []fsm.BrokerID{1}, ISR: []fsm.BrokerID{1}, Leader: 1}
	partitions := make([]fsm.NewPartition, commitPartitions)
	for i := range partitions {
		partitions[i] = np
	}
	for i := range topics {
		apply(fsm.CreateTopic{ID: scattered(i), Name: fmt.Sprintf("topic-%06d", i), Partitions: partitions})
	}
	var slots fsm.AssignSlots
	for i := range int32(fsm.Slots) {
		slots.Items = append(slots.Items, fsm.SlotChange{Slot: i, Owner: 1})
	}
	apply(slots)
	for i := range committers {
		id := groupName(i)
		slot := fsm.SlotOf(id)
		apply(fsm.SlotCommand{Slot: slot, Epoch: 1, Seq: im.Slot(slot).Seq + 1, Changes: []fsm.GroupChange{
			fsm.PutGroup{Group: &fsm.Group{ID: id, Kind: fsm.ClassicGroup, Epoch: 1, Members: []fsm.GroupMember{{ID: "member-1"}}}}}})
	}
	return im
}

func groupName(i int) string { return fmt.Sprintf("group-%02d", i) }

// commitOf is the n-th commit of a group to a topic, as the slot's next command.
func commitOf(im *fsm.Image, group string, topic, n, changes int) fsm.SlotCommand {
	slot := fsm.SlotOf(group)
	c := fsm.SlotCommand{Slot: slot, Epoch: 1, Seq: im.Slot(slot).Seq + 1}
	for range changes {
		partitions := make([]fsm.CommitPartition, commitPartitions)
		for i := range partitions {
			partitions[i] = fsm.CommitPartition{Partition: int32(i), Offset: batch.Offset(1e9 + n*1000 + i*7919), LeaderEpoch: 12}
		}
		c.Changes = append(c.Changes, fsm.CommitOffsets{Group: group, Member: "member-1", Epoch: 1, CommitMs: 1_700_000_000_000 + int64(n), ExpireMs: -1,
			Topics: []fsm.CommitTopic{{Topic: scattered(topic), Partitions: partitions}}})
		topic++
	}
	return c
}

// BenchmarkCommit is what every node does with the commits of a slot: decode the
// entry and apply it. One operation is one command of 1 or 10 commits of 100
// partitions each.
func BenchmarkCommit(b *testing.B) {
	for _, changes := range []int{1, 10} {
		im := commitImage(b, 10)
		var entries [][]byte
		var commands []fsm.SlotCommand
		for i := range committers {
			c := commitOf(im, groupName(i), 0, i, changes)
			im, _ = fsm.Apply(im, im.Index()+1, c) // the rows exist
			c.Seq += 1 << 20
			commands = append(commands, c)
			entries = append(entries, fsm.EncodeEntry(nil, []fsm.Command{c}))
		}
		perPartition := func(b *testing.B) {
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*changes*commitPartitions), "ns/partition")
		}
		b.Run(fmt.Sprintf("apply/%dx100", changes), func(b *testing.B) {
			b.ReportAllocs()
			im, n := im, uint64(0)
			for b.Loop() {
				c := commands[n%committers]
				c.Seq += n
				n++
				next, r := fsm.Apply(im, im.Index()+1, c)
				if r.Err != nil || r.Items[0] != nil {
					b.Fatalf("%+v", r)
				}
				im = next
			}
			perPartition(b)
		})
		b.Run(fmt.Sprintf("decode/%dx100", changes), func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if _, err := fsm.DecodeEntry(entries[n%committers]); err != nil {
					b.Fatal(err)
				}
				n++
			}
			perPartition(b)
			b.ReportMetric(float64(len(entries[0]))/float64(changes*commitPartitions), "bytes/partition")
		})
		b.Run(fmt.Sprintf("encode/%dx100", changes), func(b *testing.B) {
			b.ReportAllocs()
			var buf []byte
			n := 0
			for b.Loop() {
				buf = fsm.EncodeEntry(buf[:0], []fsm.Command{commands[n%committers]})
				n++
			}
			perPartition(b)
		})
	}
}

// BenchmarkCommitEntry is an entry of the commits of five slots at a time.
func BenchmarkCommitEntry(b *testing.B) {
	const slots = 5
	im := commitImage(b, 1)
	var entries [][]fsm.Command
	for i := 0; i+slots <= committers; i += slots {
		var cs []fsm.Command
		for j := range slots {
			c := commitOf(im, groupName(i+j), 0, i, 1)
			im, _ = fsm.Apply(im, im.Index()+1, c)
			c.Seq += 1 << 20
			cs = append(cs, c)
		}
		entries = append(entries, cs)
	}
	b.ReportAllocs()
	for n := uint64(0); b.Loop(); n++ {
		cs := entries[n%uint64(len(entries))]
		for i := range cs {
			c := cs[i].(fsm.SlotCommand)
			c.Seq++
			cs[i] = c
		}
		next, r := fsm.ApplyEntry(im, im.Index()+1, cs)
		if r[slots-1].Err != nil || r[0].Items[0] != nil {
			b.Fatalf("%+v", r)
		}
		im = next
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*slots*commitPartitions), "ns/partition")
}

// BenchmarkOffsets measures what a million committed partitions take: 32 groups
// in 313 topics of 100 partitions.
func BenchmarkOffsets(b *testing.B) {
	const topics = 313
	im := commitImage(b, topics)
	before := heap()
	for i := range committers {
		for topic := range topics {
			im, _ = fsm.Apply(im, im.Index()+1, commitOf(im, groupName(i), topic, i, 1))
		}
	}
	if n := im.CommittedCount(); n != committers*topics*commitPartitions {
		b.Fatalf("%d committed", n)
	}
	b.Run("heap", func(b *testing.B) {
		for b.Loop() {
		}
		b.ReportMetric(float64(heap()-before)/float64(im.CommittedCount()), "bytes/partition")
	})
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			if _, ok := im.Committed("group-07", fsm.TopicPartition{Topic: scattered(n % topics), Partition: int32(n % commitPartitions)}); !ok {
				b.Fatal("missing")
			}
			n++
		}
	})
	b.Run("snapshot", func(b *testing.B) { benchmarkRestore(b, im) })
	b.Run("delete-topic", func(b *testing.B) {
		for b.Loop() {
			fsm.Apply(im, im.Index()+1, fsm.DeleteTopic{ID: scattered(0)})
		}
	})
	runtime.KeepAlive(im)
}
