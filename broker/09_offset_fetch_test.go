package broker

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

// offsetFetchRequest asks for what groups have committed; nil topics ask for all.
func offsetFetchRequest(version int16, group string, topics []kmsg.OffsetFetchRequestGroupTopic) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.RequireStable = version, true
	if version >= fetchGroups {
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.Topics = group, topics
		req.Groups = append(req.Groups, g)
		return req
	}
	req.Group = group
	for _, t := range topics {
		req.Topics = append(req.Topics, kmsg.OffsetFetchRequestTopic{Topic: t.Topic, Partitions: t.Partitions})
	}
	return req
}

// fetchedOffsets is the answer of any version as one shape.
func fetchedOffsets(resp *kmsg.OffsetFetchResponse) (wire.Code, map[string]map[int32]kmsg.OffsetFetchResponseGroupTopicPartition) {
	out := map[string]map[int32]kmsg.OffsetFetchResponseGroupTopicPartition{}
	add := func(topic string, p kmsg.OffsetFetchResponseGroupTopicPartition) {
		if out[topic] == nil {
			out[topic] = map[int32]kmsg.OffsetFetchResponseGroupTopicPartition{}
		}
		out[topic][p.Partition] = p
	}
	if resp.Version >= fetchGroups {
		for _, t := range resp.Groups[0].Topics {
			for _, p := range t.Partitions {
				add(t.Topic+string(t.TopicID[:min(16, 16*int(resp.Version/fetchTopicIDs))]), p)
			}
		}
		return wire.Code(resp.Groups[0].ErrorCode), out
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			add(t.Topic, kmsg.OffsetFetchResponseGroupTopicPartition{Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, ErrorCode: p.ErrorCode})
		}
	}
	return wire.Code(resp.ErrorCode), out
}

func TestOffsetFetch(t *testing.T) {
	ts, id := groupServer(t)
	w := ts.dial()
	commitCodeOf(w, commitRequest(8, "g", "t", id, 1, 42))
	for v := int16(1); v <= 10; v++ {
		name := "t"
		if v >= fetchTopicIDs {
			name = string(id[:])
		}
		ask := []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", TopicID: id, Partitions: []int32{0, 1}}}
		code, got := fetchedOffsets(w.ask(offsetFetchRequest(v, "g", ask)).(*kmsg.OffsetFetchResponse))
		one, none := got[name][1], got[name][0]
		if code != wire.None || one.Offset != 42 || *one.Metadata != "note" || one.ErrorCode != 0 || (v >= 5) != (one.LeaderEpoch == 7) {
			t.Errorf("version %d: %v %+v", v, code, one)
		}
		if none.Offset != -1 || none.ErrorCode != 0 || none.Metadata == nil || *none.Metadata != "" || none.LeaderEpoch != -1 {
			t.Errorf("version %d: nothing committed is %+v", v, none)
		}
		if v < 2 {
			continue
		}
		if code, got := fetchedOffsets(w.ask(offsetFetchRequest(v, "g", nil)).(*kmsg.OffsetFetchResponse)); code != wire.None || len(got) != 1 || len(got[name]) != 1 || got[name][1].Offset != 42 {
			t.Errorf("version %d: all is %v %+v", v, code, got)
		}
	}
}

// What is not there is no error: not the group, not the topic. Only an unknown id is.
func TestOffsetFetchOfNothing(t *testing.T) {
	ts, id := groupServer(t)
	w := ts.dial()
	for v := int16(1); v <= 10; v++ {
		unknown := id
		unknown[0]++
		ask := []kmsg.OffsetFetchRequestGroupTopic{{Topic: "other", TopicID: unknown, Partitions: []int32{0}}}
		name, want := "other", wire.None
		if v >= fetchTopicIDs {
			name, want = string(unknown[:]), wire.UnknownTopicID
		}
		code, got := fetchedOffsets(w.ask(offsetFetchRequest(v, "nobody", ask)).(*kmsg.OffsetFetchResponse))
		if p := got[name][0]; code != wire.None || p.Offset != -1 || wire.Code(p.ErrorCode) != want {
			t.Errorf("version %d: %v %+v", v, code, p)
		}
	}
}

// Several groups in one request are answered each for itself.
func TestOffsetFetchGroups(t *testing.T) {
	ts, id := groupServer(t)
	w := ts.dial()
	commitCodeOf(w, commitRequest(8, "a", "t", id, 0, 1))
	commitCodeOf(w, commitRequest(8, "b", "t", id, 0, 2))
	req := offsetFetchRequest(8, "a", nil)
	req.Groups = append(req.Groups, offsetFetchRequest(8, "b", nil).Groups...)
	asked := ts.asked()
	resp := w.ask(req).(*kmsg.OffsetFetchResponse)
	if len(resp.Groups) != 2 || resp.Groups[0].Topics[0].Partitions[0].Offset != 1 || resp.Groups[1].Topics[0].Partitions[0].Offset != 2 {
		t.Errorf("the answer is %+v", resp.Groups)
	}
	if asked = ts.asked() - asked; asked != 1 {
		t.Errorf("the controller was asked %d times for one request", asked)
	}
}

// Every version can say that another node coordinates.
func TestOffsetFetchNotCoordinator(t *testing.T) {
	ts, id := groupServer(t)
	ts.image.own(otherID)
	w := ts.dial()
	for v := int16(1); v <= 10; v++ {
		ask := []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", TopicID: id, Partitions: []int32{0}}}
		code, got := fetchedOffsets(w.ask(offsetFetchRequest(v, "g", ask)).(*kmsg.OffsetFetchResponse))
		if v < fetchGroupError {
			code = wire.Code(got["t"][0].ErrorCode)
		}
		if code != wire.NotCoordinator {
			t.Errorf("version %d: %v", v, code)
		}
	}
}

// A coordinator whose session lasts may have been replaced, and its Image may lack what its
// successors took: it tells nothing before its Image is as new as the question.
func TestOffsetFetchIsNotOlderThanTheQuestion(t *testing.T) {
	ts, id := groupServer(t)
	w := ts.dial()
	commitCodeOf(w, commitRequest(8, "g", "t", id, 0, 1))
	slot := fsm.SlotOf("g")
	others := func() error { // another node has the slot, and takes a commit
		ts.image.own(otherID)
		commit := fsm.CommitOffsets{Group: "g", Epoch: -1, ExpireMs: -1, Topics: []fsm.CommitTopic{{Topic: id, Partitions: []fsm.CommitPartition{{Offset: 2}}}}}
		cmd := fsm.SlotCommand{Slot: slot, Epoch: ts.image.image().Slot(slot).Epoch, Seq: 1, Changes: []fsm.GroupChange{commit}}
		if res := ts.image.propose(cmd); res.Err != nil || len(res.Items) > 0 && res.Items[0] != nil {
			t.Errorf("the other node's commit: %+v", res)
		}
		return nil
	}
	ask := func(meanwhile func() error) (wire.Code, int64) {
		ts.during(meanwhile)
		code, got := fetchedOffsets(w.ask(offsetFetchRequest(8, "g", nil)).(*kmsg.OffsetFetchResponse))
		return code, got["t"][0].Offset
	}
	if code, _ := ask(func() error { return errors.New("no controller answers") }); code != wire.NotCoordinator {
		t.Errorf("without a controller: %v", code)
	}
	if code, _ := ask(others); code != wire.NotCoordinator {
		t.Errorf("while another node has the slot: %v", code)
	}
	if asked := ts.asked(); asked != 2 {
		t.Errorf("the controller was asked %d times for two requests", asked)
	}
	if code, _ := ask(others); code != wire.NotCoordinator || ts.asked() != 2 {
		t.Errorf("known not to coordinate: %v, and the controller was asked %d times", code, ts.asked())
	}
	ts.image.own(selfID)
	if code, offset := ask(func() error { _ = others(); ts.image.own(selfID); return nil }); code != wire.None || offset != 2 {
		t.Errorf("after the slot came back: %v, offset %d", code, offset)
	}
}
