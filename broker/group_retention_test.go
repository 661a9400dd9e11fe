package broker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/fsm"
)

// remaining are the offsets of a group, as topic ids' first distinct byte and partition.
func remaining(im *fsm.Image, group string) []string {
	out := []string{}
	for tp, c := range im.CommittedOf(group) {
		t, _ := im.Topic(tp.Topic)
		out = append(out, fmt.Sprintf("%s-%d@%d", t.Name, tp.Partition, c.Offset))
	}
	return out
}

// sweepAt looks for expired offsets as if it were so much later, and waits until
// what was proposed has been taken.
func sweepAt(t *testing.T, ts *testServer, later time.Duration) {
	t.Helper()
	g := ts.srv.backend.groups
	g.expireOffsets(time.Now().Add(later), 0)
	idle := func() bool {
		for i := range g.shards {
			s := &g.shards[i]
			s.mu.Lock()
			busy := s.tenure != nil && s.tenure.queue.working
			s.mu.Unlock()
			if busy {
				return false
			}
		}
		return true
	}
	for deadline := time.Now().Add(patience); !idle(); {
		if time.Now().After(deadline) {
			t.Fatal("proposals are not taken")
		}
		<-time.After(time.Millisecond)
	}
}

// Offsets are not judged by a clock that has just leapt forward.
func TestExpiryWaitsAfterALeap(t *testing.T) {
	ts, id := groupServer(t)
	w := ts.dial()
	commitCodeOf(w, commitRequest(8, "g", "t", id, 0, 1))
	g := ts.srv.backend.groups
	g.expireOffsets(time.Now().Add(2*week), clockLeap+time.Second)
	sweepAt(t, ts, 0) // waits until what was proposed has been taken
	if got := remaining(ts.srv.backend.image(), "g"); len(got) != 1 {
		t.Errorf("%v is left after a leap of the clock", got)
	}
	g.expireOffsets(time.Now().Add(2*week), clockLeap)
	sweepAt(t, ts, 0)
	if got := remaining(ts.srv.backend.image(), "g"); len(got) != 0 {
		t.Errorf("%v is left two weeks later", got)
	}
}

const week = 7 * 24 * time.Hour

// Offsets of a group that never had members go by the time of their commit, or at
// the time that the commit names; the group goes with the last.
func TestExpiryOfCommitsFromOutside(t *testing.T) {
	ts, id := groupServer(t)
	w := ts.dial()
	commitCodeOf(w, commitRequest(8, "g", "t", id, 0, 1))
	brief := commitRequest(3, "g", "t", id, 1, 2)
	brief.RetentionTimeMillis = time.Hour.Milliseconds()
	commitCodeOf(w, brief)
	for _, step := range []struct {
		later time.Duration
		want  []string
	}{
		{59 * time.Minute, []string{"t-0@1", "t-1@2"}},
		{61 * time.Minute, []string{"t-0@1"}},
		{week - time.Minute, []string{"t-0@1"}},
		{week + time.Minute, []string{}},
	} {
		sweepAt(t, ts, step.later)
		if got := remaining(ts.image.image(), "g"); !slices.Equal(got, step.want) {
			t.Errorf("after %v: %q, want %q", step.later, got, step.want)
		}
	}
	if _, ok := ts.image.image().Group("g"); ok {
		t.Error("the group is left with nothing")
	}
}

// A live group loses nothing that it subscribes to, however quiet; what it has
// ceased to subscribe to goes. Once empty it keeps its offsets for a week from then.
func TestExpiryOfLiveGroup(t *testing.T) {
	ts, id := groupServer(t)
	other, _ := ts.topic("other", nil, selfID)
	w := ts.dial()
	joined := stableMember(w)
	for _, c := range []*kmsg.OffsetCommitRequest{commitRequest(8, "g", "t", id, 0, 1), commitRequest(8, "g", "other", other, 0, 2)} {
		c.MemberID, c.Generation = joined.MemberID, joined.Generation
		commitCodeOf(w, c)
	}
	sweepAt(t, ts, 2*week)
	if got, want := remaining(ts.image.image(), "g"), []string{"t-0@1"}; !slices.Equal(got, want) {
		t.Errorf("a live group has %q, want %q", got, want)
	}
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Version, leave.Group, leave.Members = 5, "g", []kmsg.LeaveGroupRequestMember{{MemberID: joined.MemberID}}
	w.ask(leave)
	sweepAt(t, ts, week-time.Minute)
	if got := remaining(ts.image.image(), "g"); len(got) != 1 {
		t.Errorf("the offsets went before their time: %q", got)
	}
	sweepAt(t, ts, week+time.Minute)
	if _, ok := ts.image.image().Group("g"); ok || len(remaining(ts.image.image(), "g")) != 0 {
		t.Error("the empty group is there")
	}
}

// A group whose subscriptions cannot be read loses nothing while it has members.
func TestExpiryLeavesUnknownSubscriptions(t *testing.T) {
	ts, id := groupServer(t)
	w := ts.dial()
	req := joinRequest(3, "")
	req.ProtocolType = "connect"
	joined := w.ask(req).(*kmsg.JoinGroupResponse)
	commit := commitRequest(8, "g", "t", id, 0, 1)
	commit.MemberID, commit.Generation = joined.MemberID, joined.Generation
	sync := syncRequest(3, joined)
	w.ask(sync)
	if code := commitCodeOf(w, commit); code != 0 {
		t.Fatal(code)
	}
	sweepAt(t, ts, 2*week)
	if got := remaining(ts.image.image(), "g"); len(got) != 1 {
		t.Errorf("left: %q", got)
	}
}

// Without a session nothing is judged: another node may know better.
func TestExpiryNeedsSession(t *testing.T) {
	ts, id := groupServer(t)
	commitCodeOf(ts.dial(), commitRequest(8, "g", "t", id, 0, 1))
	ts.log().fresh.Store(false)
	sweepAt(t, ts, 2*week)
	if got := remaining(ts.image.image(), "g"); len(got) != 1 {
		t.Errorf("left: %q", got)
	}
}
