package broker

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/wire"
)

// consumerRequest joins a group of the consumer protocol that reads "t".
func consumerRequest(group, member string, epoch int32) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.MemberEpoch = 1, group, member, epoch
	if epoch == 0 {
		req.RebalanceTimeoutMillis, req.SubscribedTopicNames = 60_000, []string{"t"}
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	}
	return req
}

// consumerMember makes a stable group of the consumer protocol with one member
// that has the whole topic, and returns its epoch.
func consumerMember(w *wireClient, group string) int32 {
	w.t.Helper()
	joined := w.ask(consumerRequest(group, "m", 0)).(*kmsg.ConsumerGroupHeartbeatResponse)
	if joined.ErrorCode != 0 || joined.MemberEpoch < 1 || joined.Assignment == nil || len(joined.Assignment.Topics) != 1 {
		w.t.Fatalf("the first heartbeat is answered %+v", joined)
	}
	if got := joined.Assignment.Topics[0].Partitions; !slices.Equal(got, []int32{0, 1}) {
		w.t.Fatalf("the sole member is assigned %v", got)
	}
	owned := consumerRequest(group, "m", joined.MemberEpoch)
	owned.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{{TopicID: joined.Assignment.Topics[0].TopicID, Partitions: []int32{0, 1}}}
	if again := w.ask(owned).(*kmsg.ConsumerGroupHeartbeatResponse); again.ErrorCode != 0 || again.MemberEpoch != joined.MemberEpoch {
		w.t.Fatalf("the second heartbeat is answered %+v", again)
	}
	return joined.MemberEpoch
}

func TestConsumerGroupHeartbeat(t *testing.T) {
	ts, id := groupServer(t)
	w := ts.dial()
	epoch := consumerMember(w, "c")
	commit := func(version int16, epoch int32) wire.Code {
		req := commitRequest(version, "c", "t", id, 0, 1)
		req.MemberID, req.Generation = "m", epoch
		return commitCodeOf(w, req)
	}
	for version, want := range map[int16]wire.Code{8: wire.UnsupportedVersion, 9: wire.None, 10: wire.None} {
		if got := commit(version, epoch); got != want {
			t.Errorf("commit in version %d: %v, want %v", version, got, want)
		}
	}
	if got := commit(9, epoch-1); got != wire.StaleMemberEpoch {
		t.Errorf("commit at an older epoch: %v", got)
	}
	if got := commit(8, epoch-1); got != wire.IllegalGeneration {
		t.Errorf("commit at an older epoch in version 8: %v", got)
	}
	fetch := func(member string, epoch int32) wire.Code {
		req := offsetFetchRequest(9, "c", nil)
		req.Groups[0].MemberID, req.Groups[0].MemberEpoch = &member, epoch
		return wire.Code(w.ask(req).(*kmsg.OffsetFetchResponse).Groups[0].ErrorCode)
	}
	if a, b, c := fetch("m", epoch), fetch("m", epoch+1), fetch("who", epoch); a != wire.None || b != wire.StaleMemberEpoch || c != wire.UnknownMemberID {
		t.Errorf("fetches are answered %v, %v and %v", a, b, c)
	}
	left := w.ask(consumerRequest("c", "m", -1)).(*kmsg.ConsumerGroupHeartbeatResponse)
	if left.ErrorCode != 0 || left.MemberEpoch != -1 {
		t.Errorf("leaving is answered %+v", left)
	}
	if row, _ := ts.image.image().Group("c"); row == nil || len(row.Members) != 0 {
		t.Errorf("the group is %+v", row)
	}
}

func TestConsumerGroupHeartbeatRefuses(t *testing.T) {
	ts, _ := groupServer(t)
	w := ts.dial()
	cases := map[string]struct {
		change func(*kmsg.ConsumerGroupHeartbeatRequest)
		want   wire.Code
		text   string
	}{
		"no group":          {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = "" }, wire.InvalidRequest, "GroupId"},
		"no member":         {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = "" }, wire.InvalidRequest, "MemberId"},
		"empty instance":    {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = kmsg.StringPtr("") }, wire.InvalidRequest, "InstanceId"},
		"empty rack":        {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RackID = kmsg.StringPtr("") }, wire.InvalidRequest, "RackId"},
		"epoch":             {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -3 }, wire.InvalidRequest, "MemberEpoch"},
		"static leave":      {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -2 }, wire.InvalidRequest, "InstanceId"},
		"no rebalance time": {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = -1 }, wire.InvalidRequest, "RebalanceTimeoutMs"},
		"owns":              {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Topics = nil }, wire.InvalidRequest, "TopicPartitions"},
		"no subscription":   {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames = nil }, wire.InvalidRequest, "SubscribedTopic"},
		"assignor":          {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = kmsg.StringPtr("best") }, wire.UnsupportedAssignor, ""},
		"regex":             {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicRegex = kmsg.StringPtr("(") }, wire.InvalidRegularExpression, ""},
		"not a member":      {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = 5 }, wire.UnknownMemberID, ""},
	}
	for name, tc := range cases {
		req := consumerRequest("c", "m", 0)
		tc.change(req)
		got := w.ask(req).(*kmsg.ConsumerGroupHeartbeatResponse)
		if wire.Code(got.ErrorCode) != tc.want || got.ErrorMessage == nil || !strings.Contains(*got.ErrorMessage, tc.text) {
			t.Errorf("%s: %+v (%v), want %v", name, got, wire.Code(got.ErrorCode), tc.want)
		}
	}
}

func TestConsumerGroupDescribe(t *testing.T) {
	ts, id := groupServer(t)
	w := ts.dial()
	epoch := consumerMember(w, "c")
	stableMember(w)
	ask := func(version int16, group string) kmsg.ConsumerGroupDescribeResponseGroup {
		req := kmsg.NewPtrConsumerGroupDescribeRequest()
		req.Version, req.Groups, req.IncludeAuthorizedOperations = version, []string{group}, true
		return w.ask(req).(*kmsg.ConsumerGroupDescribeResponse).Groups[0]
	}
	for v := int16(0); v <= 1; v++ {
		g := ask(v, "c")
		if g.ErrorCode != 0 || g.State != "Stable" || g.Epoch != epoch || g.AssignmentEpoch != epoch || g.AssignorName != "uniform" ||
			g.AuthorizedOperations != groupOperations || len(g.Members) != 1 {
			t.Fatalf("version %d: %+v", v, g)
		}
		m := g.Members[0]
		if m.MemberID != "m" || m.MemberEpoch != epoch || m.ClientID != "test" || !slices.Equal(m.SubscribedTopics, []string{"t"}) {
			t.Errorf("version %d: member %+v", v, m)
		}
		if a := m.Assignment.TopicPartitions; len(a) != 1 || a[0].Topic != "t" || a[0].TopicID != id || !slices.Equal(a[0].Partitions, []int32{0, 1}) {
			t.Errorf("version %d: assignment %+v", v, a)
		}
		if want := wire.MemberTypeUnknown + v2(v); m.MemberType != want {
			t.Errorf("version %d: member type %d, want %d", v, m.MemberType, want)
		}
	}
	for group, want := range map[string]wire.Code{"g": wire.GroupIDNotFound, "nobody": wire.GroupIDNotFound, "": wire.InvalidGroupID} {
		if got := wire.Code(ask(1, group).ErrorCode); got != want {
			t.Errorf("group %q: %v, want %v", group, got, want)
		}
	}
	if got := describeOne(w, 6, "c"); wire.Code(got.ErrorCode) != wire.GroupIDNotFound || !strings.Contains(*got.ErrorMessage, "not a classic group") {
		t.Errorf("the classic description of a consumer group: %+v", got)
	}
}

// v2 is what MemberTypeConsumer is above MemberTypeUnknown in versions that have it.
func v2(version int16) int8 {
	return int8(version) * (wire.MemberTypeConsumer - wire.MemberTypeUnknown)
}
