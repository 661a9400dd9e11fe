package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/codec"
)

// TestProposalsArePackedAndAnsweredAlone sends many commands at once from a follower. Each
// takes the next free producer id as it was at the start, so exactly one is granted.
func TestProposalsArePackedAndAnsweredAlone(t *testing.T) {
	c := newCluster(t, 3)
	c.openAll()
	c.registerAll()
	at := c.follower()
	id := at.node.Identity().NodeID
	b, _ := at.node.Image().Broker(id)
	before := c.leader().node.raft.LastIndex()
	const many = 2000
	var wg sync.WaitGroup
	results := make([]fsm.Result, many)
	for i := range many {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
			defer cancel()
			var err error
			results[i], err = at.node.Propose(ctx, fsm.AllocateProducerIDs{Broker: id, BrokerEpoch: b.Epoch, First: 0, Count: 5})
			if err != nil {
				t.Errorf("proposal %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	granted := 0
	for i, r := range results {
		switch {
		case r.Err == nil:
			granted++
		case !errors.Is(r.Err, fsm.StaleBlock):
			t.Fatalf("proposal %d: %v", i, r.Err)
		}
	}
	entries := c.leader().node.raft.LastIndex() - before
	t.Logf("%d commands in %d entries", many, entries)
	if granted != 1 || entries > many/4 {
		t.Errorf("granted %d of %d in %d entries; want 1, in far fewer entries", granted, many, entries)
	}
}

func TestPackRespectsTheEntrySize(t *testing.T) {
	ps := newProposer(nil)
	var all []*proposal
	for i := range 10 {
		p := &proposal{encoded: make([]byte, entrySizeMax/4), done: make(chan outcome, 1)}
		if i == 5 {
			p.encoded = make([]byte, 2*entrySizeMax) // goes alone
		}
		all = append(all, p)
		ps.add(p)
	}
	if !ps.abandon(all[1]) {
		t.Fatal("a waiting proposal can not be abandoned")
	}
	var got []int
	for packed := ps.pack(); len(packed) > 0; packed = ps.pack() {
		got = append(got, len(packed))
	}
	if fmt.Sprint(got) != "[4 1 4]" {
		t.Fatalf("packed %v, want [4 1 4]", got)
	}
	if ps.abandon(all[0]) {
		t.Fatal("a sent proposal was abandoned as if it had not been done")
	}
	ps.fail()
	late := &proposal{done: make(chan outcome, 1)}
	ps.add(late)
	if o := <-late.done; !errors.Is(o.err, ErrClosed) {
		t.Fatalf("a proposal after the end: %v", o.err)
	}
}

func TestCallsRoundTrip(t *testing.T) {
	e := fsm.Endpoint{Host: "h", Port: 1}
	for _, tc := range []struct {
		op  op
		req request
		rep reply
	}{
		{opRegister, &registerRequest{id: 1, folder: [16]byte{2}, process: [16]byte{3}, bootID: "b", client: e, peer: e, rack: "r", prevClean: 3, replaces: 4}, &registerReply{epoch: 1, index: 2, refusal: fsm.FolderInUse}},
		{opHeartbeat, &heartbeatRequest{id: 1, epoch: 2, applied: 3, ready: true}, &heartbeatReply{stale: true, fenced: true}},
		{opPropose, &proposeRequest{entry: []byte("entry")}, &proposeReply{index: 1, results: []fsm.Result{{Epoch: 5}, {Err: fsm.StaleBlock}, {Skipped: []int{1, 300}, Why: []fsm.Refusal{fsm.NotLeader, fsm.UnknownTopic}},
			{Items: []error{nil, fsm.UnknownMember}, Repeated: true}}}},
		{opCreateTopics, &createTopicsRequest{topics: []NewTopic{{ID: fsm.TopicID{1}, Name: "t", Partitions: -1, RF: 3, Assignment: [][]fsm.BrokerID{{1, 2}}, Configs: [][2]string{{"a", "b"}}, ValidateOnly: true}, {Name: "u"}}}, &topicsReply{index: 1, results: []TopicResult{{ID: fsm.TopicID{1}, Outcome: Outcome{Err: 36, Msg: "m"}, Partitions: 1, RF: 2}}}},
		{opDeleteTopics, &deleteTopicsRequest{ids: []fsm.TopicID{{1}, {2}}}, &topicsReply{index: 1}},
		{opStop, &stopRequest{id: 1, epoch: 2}, &indexReply{index: 1 << 40}},
		{opRefused, &refusedRequest{id: 1}, &indexReply{}},
		{opSync, &syncRequest{}, &indexReply{index: 9}},
		{opReassign, &reassignRequest{moves: []Move{{TP: fsm.TopicPartition{Topic: fsm.TopicID{1}, Partition: 4}, To: []fsm.BrokerID{2, 3}}, {Cancel: true}}, resize: true},
			&reassignReply{index: 7, results: []Outcome{{Err: wire.NoReassignmentInProgress, Msg: "m"}, {}}}},
		{opLogEnds, &logEndsRequest{id: 1, epoch: 2, index: 3, tps: []fsm.TopicPartition{{Topic: fsm.TopicID{1}, Partition: 4}}},
			&logEndsReply{answers: []elect.Answer{{TP: fsm.TopicPartition{Topic: fsm.TopicID{1}, Partition: 4}, End: elect.LogEnd{Broker: 1, Epoch: -1, End: 5, Damaged: true}, Epoch: 2}}}},
	} {
		if tc.req.op() != tc.op {
			t.Errorf("%T is op %d, want %d", tc.req, tc.req.op(), tc.op)
		}
		req, rep := newRequest(tc.op), newReply(tc.op)
		if err := errors.Join(decodeBody(encodeBody(tc.req), req), decodeBody(encodeBody(tc.rep), rep)); err != nil {
			t.Errorf("op %d: %v", tc.op, err)
		}
		for _, pair := range [][2]any{{tc.req, req}, {tc.rep, rep}} {
			if want, got := fmt.Sprintf("%+v", pair[0]), fmt.Sprintf("%+v", pair[1]); normal(got) != normal(want) {
				t.Errorf("op %d: %s came back as %s", tc.op, want, got)
			}
		}
	}
}

// TestLongTextsFit: what was asked for is quoted, whatever its length, and the answer goes to
// another node.
func TestLongTextsFit(t *testing.T) {
	for name, o := range map[string]Outcome{
		"replicas": moveRefused(&elect.InvalidTargetError{Target: make([]fsm.BrokerID, 100_000), Reason: "no"}),
		"a config": failed(wire.InvalidConfig, "%q", strings.Repeat("\x01", 30_000)).Outcome,
	} {
		var got reassignReply
		if err := decodeBody(encodeBody(&reassignReply{results: []Outcome{o}}), &got); err != nil || got.results[0] != o || o.Msg == "" {
			t.Errorf("%s: %.100q came back as %+.100v: %v", name, o.Msg, got.results, err)
		}
	}
}

func encodeBody(m interface{ code(*codec.Coder) }) []byte {
	c := codec.NewWriter(nil).Flexible(true)
	m.code(c)
	return c.Bytes()
}

// normal is the text of a message; empty and nil lists print alike with %+v.
func normal(s string) string { return s }

func FuzzCalls(f *testing.F) {
	for _, req := range []request{&registerRequest{}, &createTopicsRequest{topics: []NewTopic{{Name: "t"}}}, &logEndsRequest{tps: []fsm.TopicPartition{{Partition: 1}}}} {
		f.Add(uint8(req.op()), encodeBody(req))
	}
	f.Fuzz(func(t *testing.T, o uint8, p []byte) {
		req := newRequest(op(o))
		if req == nil || decodeBody(p, req) != nil {
			return
		}
		again := newRequest(op(o))
		if err := decodeBody(encodeBody(req), again); err != nil || fmt.Sprintf("%+v", req) != fmt.Sprintf("%+v", again) {
			t.Fatalf("op %d, %x: %+v, then %+v (%v)", o, p, req, again, err)
		}
	})
}

// BenchmarkSoleVoterOpen measures from Open to a usable controller, with an existing log.
func BenchmarkSoleVoterOpen(b *testing.B) {
	dir := b.TempDir()
	var id *Identity
	cfg := DefaultConfig()
	cfg.Listen, cfg.RaftDir = "127.0.0.1:0", dir
	cfg.SaveIdentity = func(i Identity) error { id = &i; return nil }
	cfg.Exit = func(err error) { b.Errorf("exit: %v", err) }
	open := func() *Node {
		cfg.Identity = id
		n, err := Open(context.Background(), cfg)
		if err != nil {
			b.Fatal(err)
		}
		return n
	}
	if err := open().Close(); err != nil {
		b.Fatal(err)
	}
	var spent time.Duration
	for b.Loop() {
		began := time.Now()
		n := open()
		spent += time.Since(began)
		if err := n.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(spent.Microseconds())/float64(b.N)/1000, "ms/open")
}

// stuckFuture is an answer of Raft that does not come.
type stuckFuture chan struct{}

func (f stuckFuture) Error() error { <-f; return nil }

// TestWedgedLeaderEndsTheProcess: Raft leads, so it reaches a majority, and answers nothing.
// A node that does not lead only waits for who does.
func TestWedgedLeaderEndsTheProcess(t *testing.T) {
	for _, leads := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			exited := make(chan error, 1)
			cfg := DefaultConfig()
			cfg.Exit = func(err error) { exited <- err }
			n := newNode(cfg)
			n.lead.update(func(t *tenure) { t.leading = leads })
			stuck := make(stuckFuture)
			began := time.Now()
			err := n.awaitRaft(context.Background(), func() raft.Future { return stuck }, "commit")
			if !errors.Is(err, ErrUnknown) || time.Since(began) != wedgeTimeout {
				t.Errorf("leads %v: %v after %v", leads, err, time.Since(began))
			}
			if got := len(exited) == 1; got != leads {
				t.Errorf("leads %v: the process ends %v", leads, got)
			}
			close(stuck)
			n.raftWaits.Wait()
			n.cancel()
		})
	}
}
