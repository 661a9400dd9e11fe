package fsm_test

import (
	"io"
	"sync"
	"testing"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// TestCommitCost holds the budgets of committed offsets: 12 bytes a partition in
// the log, whatever the offset, and no allocation for each partition.
func TestCommitCost(t *testing.T) {
	im := commitImage(t, 1)
	c := commitOf(im, groupName(3), 0, 1, 1)
	commit := c.Changes[0].(fsm.CommitOffsets)
	size := func() int { return len(fsm.EncodeCommand(nil, c)) }
	partitions := commit.Topics[0].Partitions
	for _, offset := range []batch.Offset{0, 1e9, 1 << 40, 1<<63 - 1} {
		for i := range partitions {
			partitions[i].Offset = offset
		}
		full := size()
		commit.Topics[0].Partitions = partitions[:0]
		c.Changes[0] = commit
		if per := float64(full-size()) / commitPartitions; per > 12.01 { // the count takes a byte more
			t.Errorf("offset %d: %v bytes a partition, want at most 12", offset, per)
		}
		commit.Topics[0].Partitions = partitions
		c.Changes[0] = commit
	}
	next, r := fsm.Apply(im, im.Index()+1, c)
	if r.Err != nil || r.Items[0] != nil {
		t.Fatalf("%+v", r)
	}
	c.Seq++
	if n := testing.AllocsPerRun(100, func() { fsm.Apply(next, next.Index()+1, c) }); n > commitPartitions/2 {
		t.Errorf("a commit of %d partitions allocates %v times", commitPartitions, n)
	}
	name := groupName(3)
	for what, read := range map[string]func(){
		"Committed": func() { next.Committed(name, fsm.TopicPartition{Topic: scattered(0), Partition: 7}) },
		"Group":     func() { next.Group(name) },
		"Slot":      func() { next.Slot(9) },
	} {
		if n := testing.AllocsPerRun(100, read); n != 0 {
			t.Errorf("%s allocates %v times", what, n)
		}
	}
}

// TestSnapshotsAtOnce writes one Image from two goroutines: with the race
// detector it shows that writing a row does not touch it.
func TestSnapshotsAtOnce(t *testing.T) {
	im := groupImage(t)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if err := fsm.WriteSnapshot(io.Discard, im); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestIterationsOfGroupsStop: each iteration ends when its loop does, and is
// empty for what does not exist.
func TestIterationsOfGroupsStop(t *testing.T) {
	im := groupImage(t)
	rounds := 0
	for range im.Groups(fsm.SlotOf("billing")) {
		rounds++
		break
	}
	for range im.CommittedOf("billing") {
		rounds++
		break
	}
	if rounds != 2 {
		t.Errorf("%d rounds, want 2", rounds)
	}
	for _, slot := range []int32{-1, fsm.Slots, fsm.Slots + 256} {
		if s := im.Slot(slot); s.Owner != fsm.NoBroker || s.Epoch != 0 {
			t.Errorf("slot %d: %+v", slot, s)
		}
		for g := range im.Groups(slot) {
			t.Errorf("slot %d has group %q", slot, g.ID)
		}
	}
	for _, tp := range []fsm.TopicPartition{{Topic: topicID("id of orders"), Partition: -1}, {Topic: topicID("id of orders"), Partition: 64}, {}} {
		if c, ok := im.Committed("billing", tp); ok {
			t.Errorf("%v: %+v", tp, c)
		}
	}
	if _, ok := im.Committed("billin", fsm.TopicPartition{Topic: topicID("id of orders")}); ok {
		t.Error("the beginning of an id leads to a group's offsets")
	}
}
