package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/batch"
)

// modelPart is a part in the simplest form: a list of these in reading order.
type modelPart struct {
	name string
	p    int32
	at   batch.Offset
}

// TestFetchSetModel: after any updates and rounds of reading a set holds what a
// plain list does, in the same order.
func TestFetchSetModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := fetchSet{ids: rapid.Bool().Draw(t, "by id")}
		var model []modelPart
		for step := range rapid.IntRange(1, 12).Draw(t, "steps") {
			topics, forgotten := drawUpdate(t, batch.Offset(step))
			s.update(topics, forgotten)
			model = updateModel(model, topics, forgotten)
			if len(model) > 0 && rapid.Bool().Draw(t, "records came") {
				n := rapid.IntRange(0, len(model)-1).Draw(t, "last")
				s.first = s.at(n+1) % len(s.parts)
				model = append(slices.Clone(model[n+1:]), model[:n+1]...)
			}
			if got, want := s.print(), printModel(model); got != want {
				t.Fatalf("step %d:\n got %s\nwant %s", step, got, want)
			}
			for i, topic := range s.topics {
				if !slices.ContainsFunc(s.parts, func(p fetchPart) bool { return int(p.topic) == i }) {
					t.Fatalf("step %d: topic %v is kept without parts", step, topic.ref)
				}
			}
			// The model turns as a list, the set as a ring: a new part comes last in
			// the model, before the turn in the set. Both start over from here.
			model = modelOf(&s)
		}
	})
}

func (s *fetchSet) print() string { return printModel(inOrder(s, s.at)) }

func inOrder(s *fetchSet, at func(int) int) []modelPart {
	var out []modelPart
	for n := range s.parts {
		p := &s.parts[at(n)]
		ref := s.topics[p.topic].ref
		out = append(out, modelPart{ref.name + strings.Trim(string(ref.id[:]), "\x00"), p.partition, p.offset})
	}
	return out
}

// modelOf starts the ring at its turn, so that set and model are alike again.
func modelOf(s *fetchSet) []modelPart {
	parts := make([]fetchPart, 0, len(s.parts))
	for n := range s.parts {
		parts = append(parts, s.parts[s.at(n)])
	}
	s.parts, s.first = parts, 0
	return inOrder(s, s.at)
}

func printModel(m []modelPart) string { return fmt.Sprint(m) }

func drawUpdate(t *rapid.T, at batch.Offset) ([]wire.FetchTopic, []wire.ForgottenTopic) {
	name := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	partitions := rapid.SliceOfN(rapid.Int32Range(0, 5), 0, 6)
	var topics []wire.FetchTopic
	for range rapid.IntRange(0, 3).Draw(t, "topics") {
		n := name.Draw(t, "topic")
		topic := wire.FetchTopic{Topic: n, TopicID: idOf(n)}
		for _, p := range partitions.Draw(t, "partitions") {
			topic.Partitions = append(topic.Partitions, wire.FetchPartition{Partition: p, FetchOffset: at})
		}
		topics = append(topics, topic)
	}
	var forgotten []wire.ForgottenTopic
	for range rapid.IntRange(0, 3).Draw(t, "forgotten topics") {
		n := name.Draw(t, "forgotten topic")
		forgotten = append(forgotten, wire.ForgottenTopic{Topic: n, TopicID: idOf(n), Partitions: partitions.Draw(t, "forgotten")})
	}
	return topics, forgotten
}

func idOf(name string) (id fsm.TopicID) {
	copy(id[:], name)
	return id
}

func updateModel(m []modelPart, topics []wire.FetchTopic, forgotten []wire.ForgottenTopic) []modelPart {
	gone := func(name string, p int32) bool {
		return slices.ContainsFunc(forgotten, func(f wire.ForgottenTopic) bool { return f.Topic == name && slices.Contains(f.Partitions, p) })
	}
	for _, t := range topics {
		for _, p := range t.Partitions {
			i := slices.IndexFunc(m, func(x modelPart) bool { return x.name == t.Topic && x.p == p.Partition })
			if i >= 0 {
				m[i].at = p.FetchOffset
			} else if !gone(t.Topic, p.Partition) {
				m = append(m, modelPart{t.Topic, p.Partition, p.FetchOffset})
			}
		}
	}
	return slices.DeleteFunc(m, func(x modelPart) bool { return gone(x.name, x.p) })
}
