package broker

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/wire"
)

func describeOne(w *wireClient, version int16, group string) kmsg.DescribeGroupsResponseGroup {
	w.t.Helper()
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Version, req.Groups, req.IncludeAuthorizedOperations = version, []string{group}, true
	return w.ask(req).(*kmsg.DescribeGroupsResponse).Groups[0]
}

func TestDescribeGroups(t *testing.T) {
	ts, id := groupServer(t)
	w := ts.dial()
	joined := stableMember(w)
	commitCodeOf(w, commitRequest(8, "simple", "t", id, 0, 1))
	for v := int16(0); v <= 6; v++ {
		got := describeOne(w, v, "g")
		if got.ErrorCode != 0 || got.State != "Stable" || got.ProtocolType != "consumer" || got.Protocol != "range" || len(got.Members) != 1 {
			t.Fatalf("version %d: %+v", v, got)
		}
		m := got.Members[0]
		if m.MemberID != joined.MemberID || m.ClientID != "test" || !strings.HasPrefix(m.ClientHost, "/127.0.0.1") || string(m.MemberAssignment) != "all" || len(m.ProtocolMetadata) == 0 {
			t.Errorf("version %d: member %+v", v, m)
		}
		if want := int32(groupOperations); v >= 3 && got.AuthorizedOperations != want {
			t.Errorf("version %d: operations %b, want %b", v, got.AuthorizedOperations, want)
		}
		if got := describeOne(w, v, "simple"); got.State != "Empty" || got.ProtocolType != "" {
			t.Errorf("version %d: %+v", v, got)
		}
		gone := describeOne(w, v, "nobody")
		if gone.State != "Dead" || (wire.Code(gone.ErrorCode) == wire.GroupIDNotFound) != (v >= describeMissing) {
			t.Errorf("version %d: a group that is not there is %+v", v, gone)
		}
	}
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Version, req.Groups = 5, []string{"g"}
	if got := w.ask(req).(*kmsg.DescribeGroupsResponse).Groups[0].AuthorizedOperations; got != math.MinInt32 {
		t.Errorf("operations that nobody asked for: %d", got)
	}
}

// The reason why a group is not stable goes out where the protocol has room for it.
func TestDescribeGroupsSaysWhy(t *testing.T) {
	ts, _ := groupServer(t)
	w := ts.dial()
	first := w.ask(joinRequest(9, "")).(*kmsg.JoinGroupResponse)
	joined := w.ask(joinRequest(9, first.MemberID)).(*kmsg.JoinGroupResponse)
	got := describeOne(w, 6, "g")
	if got.ErrorCode != 0 || got.State != "CompletingRebalance" || got.ErrorMessage == nil || !strings.Contains(*got.ErrorMessage, joined.MemberID) {
		t.Errorf("%+v, want a reason that names %s", got, joined.MemberID)
	}
	if m := got.Members[0]; len(m.MemberAssignment)+len(m.ProtocolMetadata) != 0 {
		t.Errorf("member of a group that is not stable: %+v", m)
	}
}

func listGroups(w *wireClient, version int16, states, types []string) []string {
	w.t.Helper()
	req := kmsg.NewPtrListGroupsRequest()
	req.Version, req.StatesFilter, req.TypesFilter = version, states, types
	resp := w.ask(req).(*kmsg.ListGroupsResponse)
	if resp.ErrorCode != 0 {
		w.t.Fatalf("list groups: %v", wire.Code(resp.ErrorCode))
	}
	out := []string{}
	for _, g := range resp.Groups {
		out = append(out, strings.Join([]string{g.Group, g.ProtocolType, g.GroupState, g.GroupType}, "/"))
	}
	slices.Sort(out)
	return out
}

func TestListGroups(t *testing.T) {
	ts, id := groupServer(t)
	w := ts.dial()
	stableMember(w)
	commitCodeOf(w, commitRequest(8, "simple", "t", id, 0, 1))
	consumerMember(w, "c")
	stable, simple, consumer := "g/consumer/Stable/classic", "simple//Empty/classic", "c/consumer/Stable/consumer"
	cases := []struct {
		version       int16
		states, types []string
		want          []string
	}{
		{5, nil, nil, []string{consumer, stable, simple}},
		{5, []string{"stable"}, nil, []string{consumer, stable}},
		{5, []string{"Empty", "Dead"}, nil, []string{simple}},
		{5, nil, []string{"Consumer"}, []string{consumer}},
		{5, []string{"Stable"}, []string{"classic"}, []string{stable}},
		{5, nil, []string{"share"}, []string{}},
		{4, nil, nil, []string{"c/consumer/Stable/", "g/consumer/Stable/", "simple//Empty/"}},
		{0, nil, nil, []string{"c/consumer//", "g/consumer//", "simple///"}},
	}
	for _, tc := range cases {
		if got := listGroups(w, tc.version, tc.states, tc.types); !slices.Equal(got, tc.want) {
			t.Errorf("version %d, states %v, types %v: %q, want %q", tc.version, tc.states, tc.types, got, tc.want)
		}
	}
	ts.log().fresh.Store(false)
	resp := w.ask(kmsg.NewPtrListGroupsRequest()).(*kmsg.ListGroupsResponse)
	if wire.Code(resp.ErrorCode) != wire.CoordinatorNotAvailable {
		t.Errorf("without a session: %+v", resp)
	}
}
