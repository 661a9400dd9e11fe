package fsm_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
)

// alter builds a change of configs: set=(k:v, …), unset=(k, …), and stale=(k:v)
// for a value that the change wrongly takes for the present one.
func (s *script) alter() fsm.Command {
	c := fsm.AlterTopicConfigs{ID: topicID(s.text("id", ""))}
	present := map[string]string{}
	if t, ok := s.im.Topic(c.ID); ok {
		present = maps.Clone(t.Configs)
	}
	for _, kv := range s.words("stale") {
		k, v, _ := strings.Cut(kv, ":")
		present[k] = v
	}
	was := func(k string) *string {
		if v, ok := present[k]; ok {
			return &v
		}
		return nil
	}
	for _, kv := range s.words("set") {
		k, v, _ := strings.Cut(kv, ":")
		c.Changes = append(c.Changes, fsm.ConfigChange{Name: k, Was: was(k), Now: &v})
	}
	for _, k := range s.words("unset") {
		c.Changes = append(c.Changes, fsm.ConfigChange{Name: k, Was: was(k)})
	}
	return c
}

// grow builds an addition of partitions, one a line.
func (s *script) grow() fsm.Command {
	c := fsm.AddPartitions{ID: topicID(s.text("id", ""))}
	if t, ok := s.im.Topic(c.ID); ok {
		c.From = t.Partitions
	}
	c.From = int32(s.number("from", int64(c.From)))
	for _, line := range s.lines() {
		np, _ := elect.Initial(s.im, ids(line.get("replicas")))
		np.Replicas = ids(line.get("replicas"))
		c.Partitions = append(c.Partitions, np)
	}
	return c
}

func drawAlter(t *rapid.T, im *fsm.Image) fsm.Command {
	c := fsm.AlterTopicConfigs{ID: drawTopic(t, im)}
	topic, _ := im.Topic(c.ID)
	for range rapid.IntRange(0, 2).Draw(t, "changes") {
		ch := fsm.ConfigChange{Name: rapid.SampledFrom([]string{fsm.MinInsyncReplicas, fsm.MinInsyncReplicas, "retention.ms", "brand.new"}).Draw(t, "config")}
		if topic != nil {
			if v, ok := topic.Configs[ch.Name]; ok && drawSlip(t) == 0 {
				ch.Was = &v
			}
		}
		if rapid.Bool().Draw(t, "set") {
			v := fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "value"))
			ch.Now = &v
		}
		c.Changes = append(c.Changes, ch)
	}
	return c
}

func drawGrow(t *rapid.T, im *fsm.Image) fsm.Command {
	c := fsm.AddPartitions{ID: drawTopic(t, im)}
	if topic, ok := im.Topic(c.ID); ok {
		c.From = topic.Partitions + int32(drawSlip(t))
	}
	n := rapid.SampledFrom([]int{0, 1, 3, 63, 64, 65, 130}).Draw(t, "partitions")
	lists, err := elect.Place(im, max(n, 1), rapid.IntRange(1, 4).Draw(t, "replicas"), rapid.Uint64().Draw(t, "seed"))
	if err != nil {
		return c
	}
	for _, list := range lists[:n] {
		np, _ := elect.Initial(im, list)
		c.Partitions = append(c.Partitions, np)
	}
	return c
}

// grown is the sample Image with its topic at n partitions, each with a leader
// epoch of its own.
func grown(t *testing.T, steps ...int) *fsm.Image {
	t.Helper()
	im := fsm.NewImage()
	index := uint64(0)
	apply := func(c fsm.Command) {
		index++
		var r fsm.Result
		if im, r = fsm.Apply(im, index, c); r.Err != nil {
			t.Fatalf("%T: %v", c, r.Err)
		}
	}
	apply(fsm.RegisterBroker{ID: 1, Folder: [16]byte{1}, Process: [16]byte{1}})
	apply(fsm.UnfenceBroker{ID: 1, Epoch: 1})
	np := fsm.NewPartition{Replicas: []fsm.BrokerID{1}, ISR: []fsm.BrokerID{1}, Leader: 1}
	id, have := topicID("t"), int32(0)
	for i, n := range steps {
		var nps []fsm.NewPartition
		for range n {
			nps = append(nps, np)
		}
		if i == 0 {
			apply(fsm.CreateTopic{ID: id, Name: "t", Partitions: nps})
		} else {
			apply(fsm.AddPartitions{ID: id, From: have, Partitions: nps})
		}
		have += int32(n)
	}
	return im
}

// TestGrownEqualsCreated: however many steps a topic's partitions came in, the
// Image has the same content.
func TestGrownEqualsCreated(t *testing.T) {
	for _, steps := range [][]int{{1, 199}, {63, 1, 136}, {64, 136}, {65, 64, 71}, {199, 1}, {1, 1, 1, 62, 134, 1}} {
		want, got := grown(t, 200), grown(t, steps...)
		if got.Hash() != want.Hash() || got.PartitionCount() != 200 {
			t.Errorf("steps %v: hash %x of %d partitions, want %x", steps, got.Hash(), got.PartitionCount(), want.Hash())
		}
		if err := fsm.CheckImage(got); err != nil {
			t.Errorf("steps %v: %v", steps, err)
		}
		topic, _ := got.TopicByName("t")
		if p, ok := got.Partition(fsm.TopicPartition{Topic: topic.ID, Partition: 199}); !ok || p.Leader != 1 || topic.Partitions != 200 {
			t.Errorf("steps %v: partition 199 is %+v of %d", steps, p, topic.Partitions)
		}
	}
}

func TestAlterKeepsAndReplaces(t *testing.T) {
	im := sampleImage(t) // orders: min.insync.replicas 3, max.message.bytes 100
	topic, _ := im.TopicByName("orders")
	before := im.Hash()
	next, r := fsm.Apply(im, 99, fsm.AlterTopicConfigs{ID: topic.ID, Changes: []fsm.ConfigChange{
		{Name: "max.message.bytes", Was: text("100")}, {Name: "segment.bytes", Now: text("2000000")}}})
	got, _ := next.TopicByName("orders")
	want := map[string]string{"min.insync.replicas": "3", "segment.bytes": "2000000"}
	if r.Err != nil || !maps.Equal(got.Configs, want) || got.Config.SegmentBytes != 2_000_000 || got.Config.MinISR != 3 {
		t.Fatalf("%v: configs %v, parsed %+v; want %v", r.Err, got.Configs, got.Config, want)
	}
	if byID, _ := next.Topic(topic.ID); byID != got {
		t.Error("the topic has another row by id than by name")
	}
	if topic.Configs["max.message.bytes"] != "100" || im.Hash() != before {
		t.Error("the Image before was changed")
	}
	back, r := fsm.Apply(next, 100, fsm.AlterTopicConfigs{ID: topic.ID, Changes: []fsm.ConfigChange{
		{Name: "max.message.bytes", Now: text("100")}, {Name: "segment.bytes", Was: text("2000000")}}})
	if r.Err != nil || back.Hash() != before {
		t.Errorf("%v: hash %x after the way back, want %x", r.Err, back.Hash(), before)
	}
	if d := fsm.Diff(im, next); len(d.Topics) != 1 || d.Topics[0] != topic.ID || len(d.Partitions) != 0 {
		t.Errorf("the difference is %+v", d)
	}
}
