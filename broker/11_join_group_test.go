package broker

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

// joinRequest asks to join group "g" as a new member.
func joinRequest(version int16, member string) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID = version, "g", member
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = 10_000, 20_000, "consumer"
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Topics = []string{"t"}
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: meta.AppendTo(nil)}}
	return req
}

func syncRequest(version int16, joined *kmsg.JoinGroupResponse, assignments ...kmsg.SyncGroupRequestGroupAssignment) *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.Generation = version, "g", joined.MemberID, joined.Generation
	req.ProtocolType, req.Protocol, req.GroupAssignment = kmsg.StringPtr("consumer"), kmsg.StringPtr("range"), assignments
	return req
}

// stableMember makes group "g" stable with one member and returns its join.
func stableMember(w *wireClient) *kmsg.JoinGroupResponse {
	w.t.Helper()
	first := w.ask(joinRequest(9, "")).(*kmsg.JoinGroupResponse)
	if wire.Code(first.ErrorCode) != wire.MemberIDRequired || !strings.HasPrefix(first.MemberID, "test-") {
		w.t.Fatalf("the first join is answered %+v", first)
	}
	joined := w.ask(joinRequest(9, first.MemberID)).(*kmsg.JoinGroupResponse)
	if joined.ErrorCode != 0 || joined.LeaderID != first.MemberID || len(joined.Members) != 1 || *joined.Protocol != "range" {
		w.t.Fatalf("the join is answered %+v", joined)
	}
	synced := w.ask(syncRequest(5, joined, kmsg.SyncGroupRequestGroupAssignment{MemberID: joined.MemberID, MemberAssignment: []byte("all")})).(*kmsg.SyncGroupResponse)
	if synced.ErrorCode != 0 || string(synced.MemberAssignment) != "all" {
		w.t.Fatalf("the sync is answered %+v", synced)
	}
	return joined
}

// Each version of the four calls takes a member through its life.
func TestClassicMemberInEachVersion(t *testing.T) {
	ts, _ := groupServer(t)
	w := ts.dial()
	for v := int16(0); v <= 9; v++ {
		joined := w.ask(joinRequest(v, "")).(*kmsg.JoinGroupResponse)
		if required := wire.Code(joined.ErrorCode) == wire.MemberIDRequired; required != (v >= joinKnownID) {
			t.Fatalf("join %d: %+v", v, joined)
		} else if required {
			joined = w.ask(joinRequest(v, joined.MemberID)).(*kmsg.JoinGroupResponse)
		}
		if joined.ErrorCode != 0 || joined.LeaderID != joined.MemberID || len(joined.Members) != 1 {
			t.Fatalf("join %d: %+v", v, joined)
		}
		sync := syncRequest(min(v, 5), joined, kmsg.SyncGroupRequestGroupAssignment{MemberID: joined.MemberID, MemberAssignment: []byte{1, 2}})
		if synced := w.ask(sync).(*kmsg.SyncGroupResponse); synced.ErrorCode != 0 || string(synced.MemberAssignment) != "\x01\x02" {
			t.Fatalf("sync %d: %+v", v, synced)
		}
		beat := kmsg.NewPtrHeartbeatRequest()
		beat.Version, beat.Group, beat.MemberID, beat.Generation = min(v, 4), "g", joined.MemberID, joined.Generation
		if resp := w.ask(beat).(*kmsg.HeartbeatResponse); resp.ErrorCode != 0 {
			t.Fatalf("heartbeat %d: %+v", v, resp)
		}
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Version, leave.Group, leave.MemberID = min(v, 5), "g", joined.MemberID
		leave.Members = []kmsg.LeaveGroupRequestMember{{MemberID: joined.MemberID}, {MemberID: "nobody"}}
		left := w.ask(leave).(*kmsg.LeaveGroupResponse)
		if left.ErrorCode != 0 {
			t.Fatalf("leave %d: %+v", v, left)
		}
		if v >= leaveMany && (len(left.Members) != 2 || left.Members[0].ErrorCode != 0 || wire.Code(left.Members[1].ErrorCode) != wire.UnknownMemberID) {
			t.Fatalf("leave %d: %+v", v, left)
		}
	}
}

func TestJoinGroupRefuses(t *testing.T) {
	ts, _ := groupServer(t)
	w := ts.dial()
	cases := map[string]struct {
		change func(*kmsg.JoinGroupRequest)
		want   wire.Code
	}{
		"no group":       {func(r *kmsg.JoinGroupRequest) { r.Group = "" }, wire.InvalidGroupID},
		"session short":  {func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 5999 }, wire.InvalidSessionTimeout},
		"session long":   {func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 30*60_000 + 1 }, wire.InvalidSessionTimeout},
		"no protocol":    {func(r *kmsg.JoinGroupRequest) { r.Protocols = nil }, wire.InconsistentGroupProtocol},
		"unknown member": {func(r *kmsg.JoinGroupRequest) { r.MemberID = "who" }, wire.UnknownMemberID},
	}
	for name, tc := range cases {
		req := joinRequest(5, "")
		tc.change(req)
		if got := w.ask(req).(*kmsg.JoinGroupResponse); wire.Code(got.ErrorCode) != tc.want || got.Generation != -1 || got.MemberID != req.MemberID {
			t.Errorf("%s: %+v, want %v", name, got, tc.want)
		}
	}
	if listed := w.ask(kmsg.NewPtrListGroupsRequest()).(*kmsg.ListGroupsResponse); len(listed.Groups) != 0 {
		t.Errorf("joins that were refused left %+v", listed.Groups)
	}
	for i := range ts.srv.backend.groups.shards {
		s := &ts.srv.backend.groups.shards[i]
		s.mu.Lock()
		if s.tenure != nil && len(s.tenure.live) > 0 {
			t.Errorf("joins that were refused left %d cores in slot %d", len(s.tenure.live), i)
		}
		s.mu.Unlock()
	}
}

// A group that has outgrown an entry of the metadata log is not stored; what it was is kept.
func TestGroupTooLarge(t *testing.T) {
	ts, _ := groupServer(t)
	w := ts.dial()
	joined := stableMember(w)
	slot := &ts.srv.backend.groups.shards[fsm.SlotOf("g")]
	slot.mu.Lock()
	slot.groups.rowMax = 1 << 10
	slot.mu.Unlock()
	named := w.ask(joinRequest(9, "")).(*kmsg.JoinGroupResponse)
	big := joinRequest(9, named.MemberID)
	big.Protocols[0].Metadata = make([]byte, 1<<10)
	second := ts.dial()
	corr := second.send(big)
	for describeOne(w, 5, "g").State != "PreparingRebalance" {
		<-time.After(time.Millisecond)
	}
	if got := w.ask(joinRequest(9, joined.MemberID)).(*kmsg.JoinGroupResponse); wire.Code(got.ErrorCode) != wire.CoordinatorNotAvailable {
		t.Errorf("the member that was there is answered %+v", got)
	}
	if got := second.receive(big, corr).(*kmsg.JoinGroupResponse); wire.Code(got.ErrorCode) != wire.CoordinatorNotAvailable {
		t.Errorf("the new member is answered %+v", got)
	}
	if got := describeOne(w, 5, "g"); got.State != "Stable" || len(got.Members) != 1 {
		t.Errorf("the group is %+v, want it as it was", got)
	}
}

// A group that is not there has no members: whoever claims to be one joins again.
func TestMembersOfNoGroup(t *testing.T) {
	ts, _ := groupServer(t)
	w := ts.dial()
	ghost := &kmsg.JoinGroupResponse{MemberID: "m", Generation: 1}
	if got := w.ask(syncRequest(5, ghost)).(*kmsg.SyncGroupResponse); wire.Code(got.ErrorCode) != wire.UnknownMemberID {
		t.Errorf("sync: %+v", got)
	}
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Version, beat.Group, beat.MemberID = 4, "g", "m"
	if got := w.ask(beat).(*kmsg.HeartbeatResponse); wire.Code(got.ErrorCode) != wire.UnknownMemberID {
		t.Errorf("heartbeat: %+v", got)
	}
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Version, leave.Group, leave.MemberID = 2, "g", "m"
	if got := w.ask(leave).(*kmsg.LeaveGroupResponse); wire.Code(got.ErrorCode) != wire.UnknownMemberID {
		t.Errorf("leave 2: %+v", got)
	}
	leave.Version, leave.Members = 5, []kmsg.LeaveGroupRequestMember{{MemberID: "m"}}
	if got := w.ask(leave).(*kmsg.LeaveGroupResponse); got.ErrorCode != 0 || wire.Code(got.Members[0].ErrorCode) != wire.UnknownMemberID {
		t.Errorf("leave 5: %+v", got)
	}
	unnamed := syncRequest(5, ghost)
	unnamed.Protocol = nil
	if got := w.ask(unnamed).(*kmsg.SyncGroupResponse); wire.Code(got.ErrorCode) != wire.InconsistentGroupProtocol {
		t.Errorf("sync without a protocol: %+v", got)
	}
}

// A member's commits are taken at its generation alone, and its heartbeats.
func TestMemberCommits(t *testing.T) {
	ts, id := groupServer(t)
	w := ts.dial()
	joined := stableMember(w)
	commit := func(member string, generation int32) wire.Code {
		req := commitRequest(9, "g", "t", id, 0, 1)
		req.MemberID, req.Generation = member, generation
		return commitCodeOf(w, req)
	}
	if got := commit(joined.MemberID, joined.Generation); got != wire.None {
		t.Errorf("commit: %v", got)
	}
	if got := commit(joined.MemberID, joined.Generation+1); got != wire.IllegalGeneration {
		t.Errorf("commit of another generation: %v", got)
	}
	if got := commit("who", joined.Generation); got != wire.UnknownMemberID {
		t.Errorf("commit of another member: %v", got)
	}
	if got := commit("", -1); got != wire.UnknownMemberID {
		t.Errorf("commit from outside: %v", got)
	}
}
