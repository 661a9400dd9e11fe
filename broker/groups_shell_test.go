package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/broker/group"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

func TestGroupCodesAreExhaustive(t *testing.T) {
	if len(groupCodes) != len(group.Codes()) {
		t.Fatalf("%d codes are mapped, there are %d", len(groupCodes), len(group.Codes()))
	}
	for _, c := range group.Codes() {
		if err := groupError(c); (err == nil) != (c == group.None) {
			t.Errorf("%v is mapped to %v", c, groupCodes[c])
		}
	}
}

// Groups that exist only because somebody was given an id to join with are
// forgotten when many have been made after them, and their timers with them; a
// group that has a member stays.
func TestUnbornGroupsAreBounded(t *testing.T) {
	ts, _ := groupServer(t)
	w := ts.dial()
	join := func(version int16, id, member string) *kmsg.JoinGroupRequest {
		req := joinRequest(version, member)
		req.Group, req.SessionTimeoutMillis = id, 1_800_000
		return req
	}
	ask := func(id, member string) wire.Code {
		return wire.Code(w.ask(join(5, id, member)).(*kmsg.JoinGroupResponse).ErrorCode)
	}
	parked := ts.dial()
	parked.send(join(3, "born", "")) // answered after the initial delay
	slot := fsm.SlotOf("born")
	eventually(t, func() bool {
		s := &ts.srv.backend.groups.shards[slot]
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.tenure != nil && s.tenure.live["born"] != nil
	})
	names := []string(nil)
	for i := 0; len(names) < 3*unbornMax; i++ {
		if name := fmt.Sprintf("never-%d", i); fsm.SlotOf(name) == slot {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if code := ask(name, ""); code != wire.MemberIDRequired {
			t.Fatalf("join %s: %v", name, code)
		}
	}
	if code := ask(names[0], "whoever"); code != wire.UnknownMemberID {
		t.Errorf("somebody comes back to a forgotten group: %v", code)
	}
	g := ts.srv.backend.groups
	s := &g.shards[slot]
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.tenure.live); n > unbornMax+1 || s.tenure.live["born"] == nil {
		t.Errorf("%d groups are live, want at most %d and one of them %v", n, unbornMax+1, s.tenure.live["born"])
	}
	g.timers.mu.Lock()
	defer g.timers.mu.Unlock()
	if n, most := len(g.timers.due), len(s.tenure.live); n > most {
		t.Errorf("%d timers wait for %d groups", n, most)
	}
}

// A command whose answer is lost is proposed again as it was, and taken once.
func TestLostAnswers(t *testing.T) {
	ts, id := groupServer(t)
	ts.log().mu.Lock()
	ts.log().lose, ts.log().fail = 2, 2
	ts.log().mu.Unlock()
	if got := commitCodeOf(ts.dial(), commitRequest(8, "g", "t", id, 0, 5)); got != wire.None {
		t.Fatalf("commit: %v", got)
	}
	seqs := ts.log().sequences()
	if !slices.Equal(seqs, []uint64{1, 1, 1}) {
		t.Errorf("the log took the sequences %v, want one command three times", seqs)
	}
	if slot := ts.image.image().Slot(fsm.SlotOf("g")); slot.Seq != 1 {
		t.Errorf("the slot is %+v", slot)
	}
}

// sequences are those of the commands that arrived in the log.
func (l *testLog) sequences() []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []uint64
	for _, c := range l.taken {
		out = append(out, c.Seq)
	}
	return out
}

// While one command is on its way what comes gathers into the next, in order.
func TestCommitsGather(t *testing.T) {
	ts, id := groupServer(t)
	w := ts.dial()
	release := ts.log().holdUp()
	var corrs []int32
	req := commitRequest(8, "g", "t", id, 0, 0)
	corrs = append(corrs, w.send(req))
	ts.log().awaitProposal(t)
	for i := range 50 {
		corrs = append(corrs, w.send(commitRequest(8, "g", "t", id, 0, int64(i+1))))
	}
	waiting := func() int {
		s := &ts.srv.backend.groups.shards[fsm.SlotOf("g")]
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.tenure.queue.changes)
	}
	for deadline := time.Now().Add(patience); waiting() < 50 && time.Now().Before(deadline); {
		<-time.After(time.Millisecond)
	}
	release()
	for _, corr := range corrs {
		if resp := w.receive(req, corr).(*kmsg.OffsetCommitResponse); resp.Topics[0].Partitions[0].ErrorCode != 0 {
			t.Fatalf("commit: %+v", resp)
		}
	}
	if n := len(ts.log().sequences()); n != 2 {
		t.Errorf("51 commits went in %d commands, want 2", n)
	}
	if got, _ := ts.image.image().Committed("g", fsm.TopicPartition{Topic: id}); got.Offset != 50 {
		t.Errorf("the offset is %d, want the last one", got.Offset)
	}
}

// Whoever waits for a slot that goes to another node is told so, and what this
// node still proposes is refused.
func TestSlotIsLost(t *testing.T) {
	ts, id := groupServer(t)
	w := ts.dial()
	stableMember(w)
	second := ts.dial()
	named := second.ask(joinRequest(9, "")).(*kmsg.JoinGroupResponse)
	join := joinRequest(9, named.MemberID)
	corr := second.send(join) // waits for the first member to join again
	for deadline := time.Now().Add(patience); describeOne(w, 5, "g").State != "PreparingRebalance"; {
		if time.Now().After(deadline) {
			t.Fatal("the second member does not wait")
		}
	}
	release := ts.log().holdUp()
	commit := commitRequest(8, "other", "t", id, 0, 1)
	for fsm.SlotOf(commit.Group) == fsm.SlotOf("g") {
		commit.Group += "x"
	}
	third := ts.dial()
	commitCorr := third.send(commit)
	ts.log().awaitProposal(t)
	before := ts.image.image()
	ts.image.own(otherID)
	ts.srv.backend.groups.slotsChanged(fsm.Diff(before, ts.image.image()).Slots)
	if got := second.receive(join, corr).(*kmsg.JoinGroupResponse); wire.Code(got.ErrorCode) != wire.NotCoordinator {
		t.Errorf("the join is answered %+v", got)
	}
	release()
	if got := third.receive(commit, commitCorr).(*kmsg.OffsetCommitResponse); wire.Code(got.Topics[0].Partitions[0].ErrorCode) != wire.NotCoordinator {
		t.Errorf("the commit is answered %+v", got)
	}
	if _, ok := ts.image.image().Group(commit.Group); ok {
		t.Error("a deposed coordinator's commit was taken")
	}
	if got := commitCodeOf(w, commitRequest(8, "g", "t", id, 0, 1)); got != wire.NotCoordinator {
		t.Errorf("a commit after it: %v", got)
	}
}

// The end of the node answers whoever waits.
func TestGroupsEnd(t *testing.T) {
	ti := newTestImage(t)
	ti.own(selfID)
	log := newTestLog(ti)
	release := log.holdUp()
	defer release()
	m := newMetrics()
	g := newGroups(groupsEnv{self: selfID, epoch: func() fsm.BrokerEpoch { return ti.epochOf(selfID) }, image: ti.image,
		fresh: func() bool { return true }, now: time.Now, propose: log, metrics: &m.groups, log: hclog.NewNullLogger()}, testGroupConfig())
	ctx, cancel := context.WithCancel(t.Context())
	go g.run(ctx)
	join := func(id string) (<-chan groupAnswer, error) {
		return g.askAny(id, func(c *group.Group, now time.Time, tk group.Ticket) group.Out {
			return c.Join(now, tk, group.JoinRequest{NewID: "m", SessionTimeout: 10 * time.Second, RebalanceTimeout: 10 * time.Second,
				ProtocolType: "consumer", Protocols: []fsm.GroupProtocol{{Name: "range"}}}, g.topicsNow())
		})
	}
	ch, err := join("g")
	if err != nil {
		t.Fatal(err)
	}
	log.awaitProposal(t)
	cancel()
	<-g.done
	if a := <-ch; !errors.Is(a.err, errNotCoordinator) {
		t.Errorf("the join is answered %+v", a)
	}
	if _, err := join("g"); !errors.Is(err, errNotCoordinator) {
		t.Errorf("a join after the end: %v", err)
	}
}

// A new coordinator knows the members as they were, and gives each a full session.
func TestTakeover(t *testing.T) {
	ts, _ := groupServer(t)
	w := ts.dial()
	joined := stableMember(w)
	ts.image.own(otherID)
	ts.image.own(selfID) // a later epoch: nothing but the Image is left
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Version, beat.Group, beat.MemberID, beat.Generation = 4, "g", joined.MemberID, joined.Generation
	if got := w.ask(beat).(*kmsg.HeartbeatResponse); got.ErrorCode != 0 {
		t.Errorf("heartbeat: %v", wire.Code(got.ErrorCode))
	}
	if got := describeOne(w, 5, "g"); got.State != "Stable" || string(got.Members[0].MemberAssignment) != "all" {
		t.Errorf("the group is %+v", got)
	}
}

// A member that is silent for its session is dropped, by the one timer of all groups.
func TestSessionsEnd(t *testing.T) {
	c := testGroupConfig()
	c.MinSession = time.Millisecond
	ts := newTestServerOf(t, nil, c)
	ts.image.own(selfID)
	w := ts.dial()
	for i := range 20 {
		req := joinRequest(3, "")
		req.Group, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = fmt.Sprint("g", i), 30, 30
		if got := w.ask(req).(*kmsg.JoinGroupResponse); got.ErrorCode != 0 {
			t.Fatalf("join: %+v", got)
		}
	}
	for deadline := time.Now().Add(patience); len(listGroups(w, 5, []string{"Empty"}, nil)) != 20; {
		if time.Now().After(deadline) {
			t.Fatalf("the groups are %q", listGroups(w, 5, nil, nil))
		}
		<-time.After(time.Millisecond)
	}
	for i := range 20 {
		if row, ok := ts.image.image().Group(fmt.Sprint("g", i)); !ok || len(row.Members) != 0 {
			t.Errorf("group %d is %+v", i, row)
		}
	}
}

// While this node has no session it refuses heartbeats, so it drops nobody; nor at
// once when it has one again.
func TestSessionsOutliveStaleness(t *testing.T) {
	ti := newTestImage(t)
	ti.own(selfID)
	log := newTestLog(ti)
	m := newMetrics()
	var clock atomic.Int64
	now := func() time.Time { return time.Unix(1000, clock.Load()) }
	g := newGroups(groupsEnv{self: selfID, epoch: func() fsm.BrokerEpoch { return ti.epochOf(selfID) }, image: ti.image,
		fresh: log.fresh.Load, now: now, propose: log, metrics: &m.groups, log: hclog.NewNullLogger()}, testGroupConfig())
	if got := g.held(now()); got != 0 {
		t.Errorf("groups are held for %v from the start", got)
	}
	log.fresh.Store(false)
	if _, _, err := g.enter("g"); !errors.Is(err, errNotCoordinator) {
		t.Fatalf("enter = %v", err)
	}
	if got := g.held(now()); got != 3*time.Second {
		t.Errorf("without a session groups are held for %v, want half the least session timeout", got)
	}
	log.fresh.Store(true)
	clock.Add(int64(time.Second))
	if got := g.held(now()); got != 2*time.Second {
		t.Errorf("a second later they are held for %v", got)
	}
	clock.Add(int64(2 * time.Second))
	if got := g.held(now()); got != 0 {
		t.Errorf("after the grace they are held for %v", got)
	}
}

// The admin listener shows what the protocol has no room for.
func TestGroupsOverHTTP(t *testing.T) {
	ts, _ := groupServer(t)
	w := ts.dial()
	joined := stableMember(w)
	g := ts.srv.backend.groups
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/groups", g.serveGroups)
	mux.HandleFunc("GET /v1/groups/{name...}", g.serveGroup)
	get := func(path string, into any) int {
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
		if err := json.Unmarshal(rec.Body.Bytes(), into); err != nil {
			t.Fatalf("GET %s: %v in %s", path, err, rec.Body)
		}
		return rec.Code
	}
	var got groupJSON
	if code := get("/v1/groups/g", &got); code != 200 || got.State != "Stable" || got.Type != "classic" || len(got.Members) != 1 || got.Members[0].ID != joined.MemberID || got.Why == "" {
		t.Errorf("%d %+v", code, got)
	}
	if len(got.History) < 3 || got.History[0].Cause == "" || got.History[len(got.History)-1].To != "Stable" {
		t.Errorf("history %+v", got.History)
	}
	var list []map[string]string
	if code := get("/v1/groups", &list); code != 200 || len(list) != 1 || list[0]["group"] != "g" {
		t.Errorf("%d %+v", code, list)
	}
	var fail groupErrorJSON
	if code := get("/v1/groups/no/body", &fail); code != 404 || fail.Coordinator != int32(selfID) {
		t.Errorf("%d %+v", code, fail)
	}
	ts.image.own(otherID)
	if code := get("/v1/groups/g", &fail); code != 421 || fail.Coordinator != int32(otherID) {
		t.Errorf("%d %+v", code, fail)
	}
	ts.log().fresh.Store(false)
	if code := get("/v1/groups", &fail); code != 503 {
		t.Errorf("%d %+v", code, fail)
	}
}
