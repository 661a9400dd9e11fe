package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

func deleteGroups(w *wireClient, groups ...string) []wire.Code {
	w.t.Helper()
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Version, req.Groups = 2, groups
	var out []wire.Code
	for _, g := range w.ask(req).(*kmsg.DeleteGroupsResponse).Groups {
		out = append(out, wire.Code(g.ErrorCode))
	}
	return out
}

func TestDeleteGroups(t *testing.T) {
	ts, id := groupServer(t)
	w := ts.dial()
	joined := stableMember(w)
	commitCodeOf(w, commitRequest(8, "simple", "t", id, 0, 1))
	got := deleteGroups(w, "simple", "g", "nobody", "")
	want := []wire.Code{wire.None, wire.NonEmptyGroup, wire.GroupIDNotFound, wire.InvalidGroupID}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("answer %d is %v, want %v", i, got[i], want[i])
		}
	}
	im := ts.image.image()
	if _, ok := im.Group("simple"); ok || im.CommittedCount() != 0 {
		t.Errorf("the group is there: %v, and %d offsets", ok, im.CommittedCount())
	}
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Version, leave.Group, leave.Members = 5, "g", []kmsg.LeaveGroupRequestMember{{MemberID: joined.MemberID}}
	w.ask(leave)
	if got := deleteGroups(w, "g"); got[0] != wire.None {
		t.Errorf("delete after the last member left: %v", got)
	}
	if got := deleteGroups(w, "g"); got[0] != wire.GroupIDNotFound {
		t.Errorf("delete again: %v", got)
	}
	stableMember(w) // the id can be used again
}

func TestOffsetDelete(t *testing.T) {
	ts, id := groupServer(t)
	other, _ := ts.topic("other", nil, selfID)
	w := ts.dial()
	joined := stableMember(w)
	for _, c := range []*kmsg.OffsetCommitRequest{commitRequest(8, "g", "t", id, 0, 1), commitRequest(8, "g", "other", other, 0, 1)} {
		c.MemberID, c.Generation = joined.MemberID, joined.Generation
		if code := commitCodeOf(w, c); code != wire.None {
			t.Fatal(code)
		}
	}
	ask := func(group string) *kmsg.OffsetDeleteResponse {
		req := kmsg.NewPtrOffsetDeleteRequest()
		req.Group = group
		for _, topic := range []string{"t", "other", "missing"} {
			req.Topics = append(req.Topics, kmsg.OffsetDeleteRequestTopic{Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}})
		}
		return w.ask(req).(*kmsg.OffsetDeleteResponse)
	}
	resp := ask("g")
	for i, want := range []wire.Code{wire.GroupSubscribedToTopic, wire.None, wire.UnknownTopicOrPartition} {
		if got := wire.Code(resp.Topics[i].Partitions[0].ErrorCode); got != want {
			t.Errorf("%s: %v, want %v", resp.Topics[i].Topic, got, want)
		}
	}
	im := ts.image.image()
	if _, ok := im.Committed("g", fsm.TopicPartition{Topic: id}); !ok {
		t.Error("the offset of a subscribed topic is gone")
	}
	if _, ok := im.Committed("g", fsm.TopicPartition{Topic: other}); ok {
		t.Error("the other offset is there")
	}
	if got := wire.Code(ask("nobody").ErrorCode); got != wire.GroupIDNotFound {
		t.Errorf("group that is not there: %v", got)
	}
	if got := wire.Code(ask("").ErrorCode); got != wire.InvalidGroupID {
		t.Errorf("no group: %v", got)
	}
}

// Offsets of a group that is no consumer's cannot be judged while it has members.
func TestOffsetDeleteOfOtherProtocol(t *testing.T) {
	ts, _ := groupServer(t)
	w := ts.dial()
	req := joinRequest(3, "")
	req.ProtocolType = "connect"
	w.ask(req)
	del := kmsg.NewPtrOffsetDeleteRequest()
	del.Group = "g"
	if got := wire.Code(w.ask(del).(*kmsg.OffsetDeleteResponse).ErrorCode); got != wire.NonEmptyGroup {
		t.Errorf("%v, want %v", got, wire.NonEmptyGroup)
	}
}
