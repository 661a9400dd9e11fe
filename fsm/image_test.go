package fsm_test

import (
	"iter"
	"slices"
	"testing"

	"github.com/weirmq/weir/fsm"
)

// TestLookups compares what the Image finds by index or filter with a pass over
// everything.
func TestLookups(t *testing.T) {
	im := buildImage(t, 40)
	im, _ = fsm.Apply(im, 1000, fsm.FenceBroker{ID: 5, Epoch: 9})
	im, _ = fsm.Apply(im, 1001, fsm.FenceBroker{ID: 6, Epoch: 11})
	hosted := map[fsm.BrokerID][]fsm.TopicPartition{}
	var leaderless []fsm.TopicPartition
	topics, partitions := 0, 0
	for topic := range im.Topics() {
		topics++
		if got, ok := im.Topic(topic.ID); !ok || got != topic {
			t.Errorf("topic %s by id: got %v", topic.Name, got)
		}
		if got, ok := im.TopicByName(topic.Name); !ok || got != topic {
			t.Errorf("topic %s by name: got %v", topic.Name, got)
		}
		for i, p := range im.Partitions(topic.ID) {
			partitions++
			tp := fsm.TopicPartition{Topic: topic.ID, Partition: i}
			for _, id := range p.Replicas {
				hosted[id] = append(hosted[id], tp)
			}
			if p.Leader == fsm.NoBroker {
				leaderless = append(leaderless, tp)
			}
		}
	}
	for id := fsm.BrokerID(1); id <= largeBrokers+1; id++ {
		if got, want := sorted(keys(im.Hosted(id))), sorted(hosted[id]); !slices.Equal(got, want) {
			t.Errorf("hosted by %d: got %d partitions, want %d", id, len(got), len(want))
		}
	}
	if got, want := sorted(keys(im.Leaderless())), sorted(leaderless); !slices.Equal(got, want) || len(want) == 0 {
		t.Errorf("leaderless: got %d partitions, want %d (not 0)", len(got), len(want))
	}
	if im.TopicCount() != topics || im.PartitionCount() != partitions || im.LeaderlessCount() != len(leaderless) || topics != 40 {
		t.Errorf("counts %d, %d, %d; want %d (40), %d, %d", im.TopicCount(), im.PartitionCount(), im.LeaderlessCount(), topics, partitions, len(leaderless))
	}
}

func keys(all iter.Seq2[fsm.TopicPartition, fsm.Partition]) (out []fsm.TopicPartition) {
	for tp := range all {
		out = append(out, tp)
	}
	return out
}

func sorted(tps []fsm.TopicPartition) []fsm.TopicPartition {
	slices.SortFunc(tps, func(a, b fsm.TopicPartition) int {
		return slices.Compare(append(a.Topic[:], byte(a.Partition)), append(b.Topic[:], byte(b.Partition)))
	})
	return tps
}

// TestIterationsStop: each iteration ends when its loop does.
func TestIterationsStop(t *testing.T) {
	im := buildImage(t, 3)
	im, _ = fsm.Apply(im, 1000, fsm.DeleteTopic{ID: scattered(0)})
	im, _ = fsm.Apply(im, 1001, fsm.DeleteTopic{ID: scattered(1)})
	for id := range im.Brokers() {
		im, _ = fsm.Apply(im, 1002, fsm.FenceBroker{ID: id.ID, Epoch: id.Epoch})
	}
	rounds := 0
	for range im.Brokers() {
		rounds++
		break
	}
	for range im.Topics() {
		rounds++
		break
	}
	for range im.Tombstones() {
		rounds++
		break
	}
	for range im.Partitions(scattered(2)) {
		rounds++
		break
	}
	for tp := range im.Leaderless() {
		p, _ := im.Partition(tp)
		for range im.Hosted(p.Replicas[0]) {
			rounds++
			break
		}
		break
	}
	if rounds != 5 {
		t.Errorf("%d rounds, want 5", rounds)
	}
}

func TestMissing(t *testing.T) {
	im := buildImage(t, 1)
	for _, tp := range []fsm.TopicPartition{{Topic: scattered(0), Partition: -1}, {Topic: scattered(0), Partition: partsPerTopic},
		{Topic: scattered(0), Partition: 64}, {Topic: scattered(0), Partition: -1 << 31}, {Topic: scattered(9)}} {
		if p, ok := im.Partition(tp); ok {
			t.Errorf("partition %v: got %+v", tp, p)
		}
	}
	if _, ok := im.TopicByName("topic-00000"); ok {
		t.Error("a prefix of a name leads to a topic")
	}
	if _, ok := im.TopicByName(""); ok {
		t.Error("the empty name leads to a topic")
	}
	if _, ok := im.Tombstone(scattered(0)); ok {
		t.Error("a live topic has a tombstone")
	}
	if im.Eligible(99) || im.Eligible(fsm.NoBroker) {
		t.Error("an unknown broker is eligible")
	}
	if _, ok := fsm.NewImage().Broker(1); ok {
		t.Error("the first Image has a broker")
	}
}

// TestReadsDoNotAllocate holds the cost of what every request does.
func TestReadsDoNotAllocate(t *testing.T) {
	im := buildImage(t, 100)
	name := "topic-000042"
	for what, read := range map[string]func(){
		"Partition":   func() { im.Partition(fsm.TopicPartition{Topic: scattered(42), Partition: 7}) },
		"TopicByName": func() { im.TopicByName(name) },
		"Broker":      func() { im.Broker(3) },
	} {
		if n := testing.AllocsPerRun(100, read); n != 0 {
			t.Errorf("%s allocates %v times", what, n)
		}
	}
}
