package fsm_test

import (
	"fmt"
	"testing"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/integration/seeds"
)

// TestDiffOverLongHistory changes one partition so often that the journal begins
// new generations, and compares Diff from Images of every age with a comparison
// of all rows.
func TestDiffOverLongHistory(t *testing.T) {
	seeds.Alone(t)
	im := buildImage(t, 3)
	const changes = 50_000
	kept := []*fsm.Image{im}
	for i := range changes {
		leader, item := isrItem(im, fsm.TopicPartition{Topic: scattered(i % 2), Partition: int32(i % partsPerTopic)})
		b, _ := im.Broker(leader)
		next, r := fsm.Apply(im, im.Index()+1, fsm.ChangeISR{Proposer: leader, BrokerEpoch: b.Epoch, Items: []fsm.ISRChange{item}})
		if r.Err != nil || len(r.Skipped) > 0 {
			t.Fatalf("change %d: %+v", i, r)
		}
		if im = next; i%5_003 == 0 || i >= changes-3 {
			kept = append(kept, im)
		}
	}
	var known, unknown int
	for _, old := range kept {
		d := fsm.Diff(old, im)
		checkDiff(t, old, im, d)
		if full := fsm.Diff(fsm.ForgetJournal(old), im); fmt.Sprint(brief(full)) != fmt.Sprint(brief(d)) {
			t.Errorf("from index %d: got %v, want %v", old.Index(), brief(d), brief(full))
		}
		if fsm.JournalKnows(old, im) {
			known++
		} else {
			unknown++
		}
	}
	if known < 4 || unknown < 2 {
		t.Errorf("the journal knew of %d Images and not of %d: the test exercises one path only", known, unknown)
	}
	if n := fsm.JournalLength(im); n > 1<<16 {
		t.Errorf("the journal holds %d changes", n)
	}
}

// brief lists the partitions of a Delta.
func brief(d fsm.Delta) (tps []fsm.TopicPartition) {
	for _, p := range d.Partitions {
		tps = append(tps, p.TP)
	}
	return tps
}

// TestDiffOfUnrelated: two Images with the same content but no common history
// must not be taken for one another, nor for unchanged.
func TestDiffOfUnrelated(t *testing.T) {
	a, b := fsm.NewImage(), buildImage(t, 2)
	checkDiff(t, a, b, fsm.Diff(a, b))
	checkDiff(t, b, a, fsm.Diff(b, a))
	if d := fsm.Diff(b, buildImage(t, 2)); !d.Empty() {
		t.Errorf("equal Images: got %+v, want nothing", d)
	}
	left, _ := fsm.Apply(b, 100, fsm.DeleteTopic{ID: scattered(0)})
	right, _ := fsm.Apply(b, 100, fsm.FenceBroker{ID: 1, Epoch: 1})
	checkDiff(t, left, right, fsm.Diff(left, right))
}
