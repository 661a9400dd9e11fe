package group

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirmq/weir/fsm"
)

// drawMembers makes members with subscriptions and with targets that are left
// from an earlier assignment, as far as given out once each.
func drawMembers(t *rapid.T, alike bool) []assignee {
	topics := make([]Topic, rapid.IntRange(1, 6).Draw(t, "topics"))
	for i := range topics {
		topics[i] = Topic{ID: fsm.TopicID{byte(i)}, Name: fmt.Sprint(i), Partitions: int32(rapid.IntRange(1, 12).Draw(t, "partitions"))}
	}
	members := make([]assignee, rapid.IntRange(1, 9).Draw(t, "members"))
	targets := make([]builder, len(members))
	for i := range topics {
		// The topic had another size when the targets were made.
		for p := range rapid.IntRange(0, 14).Draw(t, "earlier") {
			if m := rapid.IntRange(-1, len(members)-1).Draw(t, "earlier owner"); m >= 0 {
				targets[m].add(topics[i].ID, int32(p))
			}
		}
	}
	for m := range members {
		members[m] = assignee{id: fmt.Sprintf("m%d", m), target: targets[m].set(), topics: topics}
		if rapid.Bool().Draw(t, "static") {
			members[m].instance = fmt.Sprintf("i%d", rapid.IntRange(0, 1000).Draw(t, "instance")*16+m)
		}
		if !alike {
			members[m].topics = nil
			for _, topic := range topics {
				if rapid.Bool().Draw(t, "subscribes") {
					members[m].topics = append(members[m].topics, topic)
				}
			}
		}
	}
	return members
}

// checkComplete fails unless each partition of each subscribed topic has one owner
// that subscribes to it.
func checkComplete(t *rapid.T, members []assignee, got [][]fsm.TopicPartitions) {
	owner := map[fsm.TopicPartition]int{}
	wanted := map[fsm.TopicPartition]bool{}
	for m, a := range members {
		for _, topic := range a.topics {
			for p := range topic.Partitions {
				wanted[fsm.TopicPartition{Topic: topic.ID, Partition: p}] = true
			}
		}
		if !equal(got[m], normal(got[m])) {
			t.Fatalf("the assignment of %s is not a set: %v", a.id, got[m])
		}
		for _, set := range got[m] {
			if !slices.ContainsFunc(a.topics, func(x Topic) bool { return x.ID == set.Topic }) {
				t.Fatalf("%s has topic %x without a subscription", a.id, set.Topic)
			}
			for _, p := range set.Partitions {
				tp := fsm.TopicPartition{Topic: set.Topic, Partition: p}
				if o, taken := owner[tp]; taken {
					t.Fatalf("partition %v has two owners, %d and %d", tp, o, m)
				}
				owner[tp] = m
			}
		}
	}
	for tp := range owner {
		if !wanted[tp] {
			t.Fatalf("partition %v does not exist", tp)
		}
	}
	if len(owner) != len(wanted) {
		t.Fatalf("%d of %d partitions have an owner", len(owner), len(wanted))
	}
}

// again runs the assignor on its own result.
func again(name string, members []assignee, got [][]fsm.TopicPartitions) [][]fsm.TopicPartitions {
	members = slices.Clone(members)
	for m := range members {
		members[m].target = got[m]
	}
	return assign(name, members)
}

func checkStable(t *rapid.T, name string, members []assignee, got [][]fsm.TopicPartitions) {
	for m, set := range again(name, members, got) {
		if !equal(set, got[m]) {
			t.Fatalf("assigned again, member %d has %v instead of %v", m, set, got[m])
		}
	}
}

// TestUniformAlike: with the same subscriptions the loads differ by one at most,
// and no balanced assignment could keep more.
func TestUniformAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := drawMembers(t, true)
		got := assign(Uniform, members)
		checkComplete(t, members, got)
		checkStable(t, Uniform, members, got)
		total, kept := 0, 0
		least, most := 1<<30, 0
		for m := range members {
			n := count(got[m])
			total += n
			least, most = min(least, n), max(most, n)
			kept += count(intersect(got[m], members[m].target))
		}
		if most-least > 1 {
			t.Fatalf("the loads are from %d to %d", least, most)
		}
		quota, larger, best := total/len(members), total%len(members), 0
		for _, m := range members {
			valid := 0
			for _, topic := range m.topics {
				for _, p := range of(m.target, topic.ID) {
					if p < topic.Partitions {
						valid++
					}
				}
			}
			best += min(valid, quota)
			if valid > quota && larger > 0 {
				larger--
				best++
			}
		}
		if kept != best {
			t.Fatalf("%d partitions stay where they were to be, %d could", kept, best)
		}
	})
}

// TestUniformUnlike: with different subscriptions no single move makes the loads
// more equal, and an assignment that is balanced already stays.
func TestUniformUnlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := drawMembers(t, false)
		got := assign(Uniform, members)
		checkComplete(t, members, got)
		checkStable(t, Uniform, members, got)
		for m := range members {
			for _, set := range got[m] {
				for o := range members {
					subscribes := slices.ContainsFunc(members[o].topics, func(x Topic) bool { return x.ID == set.Topic })
					if subscribes && count(got[m]) > count(got[o])+1 {
						t.Fatalf("a partition of %x would be better at %s (%d) than at %s (%d)",
							set.Topic, members[o].id, count(got[o]), members[m].id, count(got[m]))
					}
				}
			}
		}
	})
}

// TestRange: neighbouring partitions, shares of each topic that differ by one at
// most, the same numbers of topics of the same size, and nothing that depends on
// what was before.
func TestRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alike := rapid.Bool().Draw(t, "alike")
		members := drawMembers(t, alike)
		got := assign(Range, members)
		checkComplete(t, members, got)
		checkStable(t, Range, members, got)
		for m, a := range members {
			for _, topic := range a.topics {
				mine := of(got[m], topic.ID)
				if len(mine) > 0 && int(mine[len(mine)-1]-mine[0])+1 != len(mine) {
					t.Fatalf("%s has %v of topic %s", a.id, mine, topic.Name)
				}
				for o, b := range members {
					subscribes := slices.ContainsFunc(b.topics, func(x Topic) bool { return x.ID == topic.ID })
					if subscribes && len(mine) > len(of(got[o], topic.ID))+1 {
						t.Fatalf("of topic %s %s has %d, %s %d", topic.Name, a.id, len(mine), b.id, len(of(got[o], topic.ID)))
					}
				}
				for _, other := range a.topics {
					if alike && other.Partitions == topic.Partitions && !slices.Equal(mine, of(got[m], other.ID)) {
						t.Fatalf("%s has %v of topic %s but %v of topic %s", a.id, mine, topic.Name, of(got[m], other.ID), other.Name)
					}
				}
			}
		}
	})
}

// TestRangeStatic: static members that were restarted, under other member ids,
// have what they had.
func TestRangeStatic(t *testing.T) {
	topics := []Topic{{ID: fsm.TopicID{1}, Name: "t", Partitions: 7}}
	before := assign(Range, []assignee{{id: "a", instance: "i2", topics: topics}, {id: "b", instance: "i1", topics: topics}, {id: "0", topics: topics}})
	after := assign(Range, []assignee{{id: "0", topics: topics}, {id: "y", instance: "i1", topics: topics}, {id: "z", instance: "i2", topics: topics}})
	for i, want := range []int{2, 1, 0} {
		if !equal(after[i], before[want]) {
			t.Errorf("member %d has %v, want %v", i, after[i], before[want])
		}
	}
	if len(assign(Range, nil)) != 0 || len(assign(Uniform, nil)) != 0 {
		t.Error("an assignment without members is not empty")
	}
}

// TestSets checks the operations on sets against maps.
func TestSets(t *testing.T) {
	type tp = fsm.TopicPartition
	draw := func(t *rapid.T, name string) ([]fsm.TopicPartitions, map[tp]bool) {
		var list []fsm.TopicPartitions
		all := map[tp]bool{}
		for range rapid.IntRange(0, 8).Draw(t, name) {
			x := tp{Topic: fsm.TopicID{byte(rapid.IntRange(0, 3).Draw(t, "topic"))}, Partition: int32(rapid.IntRange(0, 4).Draw(t, "partition"))}
			list = append(list, fsm.TopicPartitions{Topic: x.Topic, Partitions: []int32{x.Partition}})
			all[x] = true
		}
		return normal(list), all
	}
	rapid.Check(t, func(t *rapid.T) {
		a, inA := draw(t, "a")
		b, inB := draw(t, "b")
		check := func(name string, got []fsm.TopicPartitions, want func(x tp) bool) {
			n := 0
			for topic := range 4 {
				for p := range int32(5) {
					x := tp{Topic: fsm.TopicID{byte(topic)}, Partition: p}
					if want(x) {
						n++
					}
					if contains(got, x.Topic, p) != want(x) {
						t.Fatalf("%s of %v and %v is %v", name, a, b, got)
					}
				}
			}
			if count(got) != n || !equal(got, normal(got)) {
				t.Fatalf("%s is not a set of %d: %v", name, n, got)
			}
		}
		check("intersect", intersect(a, b), func(x tp) bool { return inA[x] && inB[x] })
		check("subtract", subtract(a, b), func(x tp) bool { return inA[x] && !inB[x] })
		check("union", union(a, b), func(x tp) bool { return inA[x] || inB[x] })
		if overlaps(a, b) != (count(intersect(a, b)) > 0) {
			t.Fatalf("overlaps(%v, %v) is %v", a, b, overlaps(a, b))
		}
	})
}

// TestSubscription reads what clients send, and refuses what is cut short.
func TestSubscription(t *testing.T) {
	good := []byte("\x00\x03\x00\x00\x00\x02\x00\x01t\x00\x02uv\x00\x00\x00\x00")
	if got, ok := subscription(good); !ok || !slices.Equal(got, []string{"t", "uv"}) {
		t.Errorf("subscription is %v, %v", got, ok)
	}
	for n := range 13 {
		if got, ok := subscription(good[:n]); ok {
			t.Errorf("the first %d bytes give %v", n, got)
		}
	}
	if _, ok := subscription([]byte("\x00\x00\x7f\xff\xff\xff")); ok {
		t.Error("2^31-1 topics in no bytes are accepted")
	}
}
