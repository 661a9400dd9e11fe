package broker

import (
	"bytes"
	"fmt"
	"math"
	"net"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

// sessionClient is one connection with one fetch session.
type sessionClient struct {
	*wireClient
	version int16
	id      int32
	epoch   int32
	wait    int32
}

func (ts *testServer) sessionClient(version int16) *sessionClient {
	return &sessionClient{wireClient: ts.dial(), version: version}
}

// request is the session's next request, for partitions from offset 0.
func (s *sessionClient) request(topic string, id [16]byte, partitions ...int32) *kmsg.FetchRequest {
	r := fetchRequest(s.version, topic, 0, 0)
	r.SessionID, r.SessionEpoch, r.MaxWaitMillis = s.id, s.epoch, s.wait
	r.Topics[0].TopicID, r.Topics[0].Partitions = id, nil
	for _, p := range partitions {
		r.Topics[0].Partitions = append(r.Topics[0].Partitions, fetchPartition(p, 0, 1<<20))
	}
	if len(partitions) == 0 {
		r.Topics = nil
	}
	return r
}

// next asks, and follows the epochs as clients do.
func (s *sessionClient) next(r *kmsg.FetchRequest) *kmsg.FetchResponse {
	s.t.Helper()
	resp := s.ask(r).(*kmsg.FetchResponse)
	s.step(resp)
	return resp
}

func (s *sessionClient) step(resp *kmsg.FetchResponse) {
	s.t.Helper()
	if resp.ErrorCode != 0 {
		s.t.Fatalf("session %d epoch %d: %v", s.id, s.epoch, wire.Code(resp.ErrorCode))
	}
	s.id, s.epoch = resp.SessionID, s.epoch+1
}

// told lists what a response has, as "partition:code:bytes".
func told(resp *kmsg.FetchResponse) string {
	var out []string
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			out = append(out, fmt.Sprintf("%d:%d:%d", p.Partition, p.ErrorCode, len(p.RecordBatches)))
		}
	}
	return fmt.Sprint(out)
}

func wantTold(t *testing.T, what string, resp *kmsg.FetchResponse, want string) {
	t.Helper()
	if got := told(resp); got != want {
		t.Errorf("%s: told %s, want %s", what, got, want)
	}
}

// A high watermark that moves is told, though no records come with it.
func TestFetchSessionTellsTheHighWatermark(t *testing.T) {
	ts := newTestServer(t, nil)
	id, parts := ts.stored(t, "orders", 1)
	parts[0].set(func() { parts[0].hold = true })
	appendTo(t, parts[0], 1, 100)
	s := ts.sessionClient(13)
	first := s.request("orders", id, 0)
	first.Topics[0].Partitions[0].FetchOffset = 1
	wantTold(t, "full", s.next(first), "[0:0:0]")
	wantTold(t, "nothing new", s.next(s.request("orders", id)), "[]")
	parts[0].set(func() { parts[0].raiseLocked(1) })
	got := s.next(s.request("orders", id))
	if told(got) != "[0:0:0]" || got.Topics[0].Partitions[0].HighWatermark != 1 {
		t.Errorf("told %s, %+v", told(got), got.Topics)
	}
	wantTold(t, "nothing new", s.next(s.request("orders", id)), "[]")
}

// A session's requests name only what changes, and its responses too.
func TestFetchSessionIsIncremental(t *testing.T) {
	for _, v := range []int16{7, 12, 13, 18} {
		ts := newTestServer(t, nil)
		id, parts := ts.stored(t, "orders", 3)
		s := ts.sessionClient(v)
		wantTold(t, "full", s.next(s.request("orders", id, 0, 1)), "[0:0:0 1:0:0]")
		if s.id == 0 {
			t.Fatalf("version %d: no session", v)
		}
		wantTold(t, "nothing new", s.next(s.request("orders", id)), "[]")
		n := len(appendTo(t, parts[1], 1, 100))
		wantTold(t, "records", s.next(s.request("orders", id)), fmt.Sprintf("[1:0:%d]", n))
		wantTold(t, "the same records, since the offset is the same", s.next(s.request("orders", id)), fmt.Sprintf("[1:0:%d]", n))

		moved := s.request("orders", id, 1, 2)
		moved.Topics[0].Partitions[0].FetchOffset = 1
		wantTold(t, "one moved, one new", s.next(moved), "[2:0:0]")
		parts[0].set(func() { parts[0].err = errNotLeader })
		wantTold(t, "an error", s.next(s.request("orders", id)), "[0:6:0]")
		wantTold(t, "an error is told each time", s.next(s.request("orders", id)), "[0:6:0]")
		parts[0].set(func() { parts[0].err = nil })
		wantTold(t, "the end of the error", s.next(s.request("orders", id)), "[0:0:0]")
		wantTold(t, "nothing new", s.next(s.request("orders", id)), "[]")

		forget := s.request("orders", id)
		f := kmsg.NewFetchRequestForgottenTopic()
		f.Topic, f.TopicID, f.Partitions = "orders", id, []int32{1, 7}
		forget.ForgottenTopics = append(forget.ForgottenTopics, f)
		s.next(forget)
		appendTo(t, parts[1], 1, 100)
		wantTold(t, "records of a forgotten partition", s.next(s.request("orders", id)), "[]")
		if got := ts.srv.sessions.counts(); got.sessions != 1 || got.slots != 1 {
			t.Errorf("version %d: cache %+v", v, got)
		}
	}
}

func TestFetchSessionErrors(t *testing.T) {
	ts := newTestServer(t, nil)
	id, _ := ts.stored(t, "orders", 1)
	s := ts.sessionClient(12)
	s.next(s.request("orders", id, 0))
	ask := func(version int16, session, epoch int32) wire.Code {
		t.Helper()
		r := s.request("orders", id)
		r.SetVersion(version)
		r.SessionID, r.SessionEpoch = session, epoch
		got := ts.dial().ask(r).(*kmsg.FetchResponse)
		if got.ErrorCode != 0 && (got.SessionID != 0 || len(got.Topics) != 0) {
			t.Errorf("session %d epoch %d: %+v", session, epoch, got)
		}
		return wire.Code(got.ErrorCode)
	}
	for _, tt := range []struct {
		name      string
		version   int16
		id, epoch int32
		want      wire.Code
	}{
		{"another id", 12, s.id ^ 1, 1, wire.FetchSessionIDNotFound},
		{"no id", 12, 0, 1, wire.FetchSessionIDNotFound},
		{"negative id", 12, -1, math.MaxInt32, wire.FetchSessionIDNotFound},
		{"negative epoch", 12, 0, -2, wire.FetchSessionIDNotFound},
		{"later epoch", 12, s.id, 2, wire.InvalidFetchSessionEpoch},
		{"last epoch", 12, s.id, math.MaxInt32, wire.InvalidFetchSessionEpoch},
		{"by id in a session by name", 13, s.id, 1, wire.FetchSessionTopicIDError},
		{"the next epoch", 12, s.id, 1, wire.None},
		{"the same epoch again", 12, s.id, 1, wire.InvalidFetchSessionEpoch},
		{"closing it", 12, s.id, -1, wire.None},
		{"it is closed", 12, s.id, 2, wire.FetchSessionIDNotFound},
	} {
		if got := ask(tt.version, tt.id, tt.epoch); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	if got := ts.srv.sessions.counts(); got.sessions != 0 || got.slots != 0 {
		t.Errorf("cache %+v, want it empty", got)
	}
}

// A full request that names a session ends it, and may ask for another.
func TestFetchSessionReplaced(t *testing.T) {
	ts := newTestServer(t, nil)
	id, _ := ts.stored(t, "orders", 1)
	s := ts.sessionClient(13)
	s.next(s.request("orders", id, 0))
	old := s.id
	s.epoch = 0
	wantTold(t, "full", s.next(s.request("orders", id, 0)), "[0:0:0]")
	if s.id == old || s.id == 0 {
		t.Errorf("session %d after %d", s.id, old)
	}
	if got := ts.srv.sessions.counts(); got.sessions != 1 {
		t.Errorf("cache %+v, want one session", got)
	}
}

// No session is made of nothing, nor kept when nothing is left in it.
func TestFetchSessionOfNothing(t *testing.T) {
	ts := newTestServer(t, nil)
	id, _ := ts.stored(t, "orders", 1)
	s := ts.sessionClient(13)
	if got := s.ask(s.request("orders", id)).(*kmsg.FetchResponse); got.SessionID != 0 || got.ErrorCode != 0 {
		t.Errorf("answer %+v", got)
	}
	s.next(s.request("orders", id, 0))
	r := s.request("orders", id)
	f := kmsg.NewFetchRequestForgottenTopic()
	f.TopicID, f.Partitions = id, []int32{0}
	r.ForgottenTopics = append(r.ForgottenTopics, f)
	r.MaxWaitMillis = math.MaxInt32
	if got := s.ask(r).(*kmsg.FetchResponse); got.SessionID != 0 || got.ErrorCode != 0 || len(got.Topics) != 0 {
		t.Errorf("answer %+v", got)
	}
	if got := ts.srv.sessions.counts(); got.sessions != 0 {
		t.Errorf("cache %+v, want it empty", got)
	}
}

// Requests that a client sends without waiting for the answers see what those
// before them did to the session.
func TestFetchSessionPipelined(t *testing.T) {
	ts := newTestServer(t, nil)
	id, parts := ts.stored(t, "orders", 2)
	n := len(appendTo(t, parts[1], 1, 100))
	s := ts.sessionClient(13)
	s.next(s.request("orders", id, 0))
	var reqs []*kmsg.FetchRequest
	var corrs []int32
	for range 5 {
		reqs = append(reqs, s.request("orders", id, 1))
		corrs = append(corrs, s.send(reqs[len(reqs)-1]))
		s.epoch++
	}
	for i, r := range reqs {
		got := s.receive(r, corrs[i]).(*kmsg.FetchResponse)
		if got.ErrorCode != 0 || told(got) != fmt.Sprintf("[1:0:%d]", n) {
			t.Errorf("request %d: code %d, told %s", i, got.ErrorCode, told(got))
		}
	}
}

// The session waits, and a partition that changes wakes it.
func TestFetchSessionWaits(t *testing.T) {
	ts := newTestServer(t, nil)
	id, parts := ts.stored(t, "orders", 3)
	s := ts.sessionClient(13)
	s.next(s.request("orders", id, 0, 1, 2))
	s.wait = 60_000
	r := s.request("orders", id)
	corr := s.send(r)
	eventually(t, func() bool { return parts[2].watched() == 1 })
	want := appendTo(t, parts[2], 1, 100)
	got := s.receive(r, corr).(*kmsg.FetchResponse)
	if len(got.Topics) != 1 || !bytes.Equal(got.Topics[0].Partitions[0].RecordBatches, want) {
		t.Errorf("told %s", told(got))
	}
	if parts[0].watched()+parts[1].watched()+parts[2].watched() != 0 {
		t.Error("the partitions are still watched")
	}
}

// A session that is ended while its request waits answers at once: what it holds
// is no longer accounted for. Another request must not have it meanwhile.
func TestFetchSessionEndedWhileWaiting(t *testing.T) {
	ts := newTestServer(t, nil)
	id, parts := ts.stored(t, "orders", 1)
	s := ts.sessionClient(13)
	s.next(s.request("orders", id, 0))
	s.wait = 600_000
	r := s.request("orders", id)
	corr := s.send(r)
	eventually(t, func() bool { return parts[0].watched() == 1 })
	other := ts.sessionClient(13)
	other.id, other.epoch = s.id, s.epoch+1
	if got := other.ask(other.request("orders", id)).(*kmsg.FetchResponse); wire.Code(got.ErrorCode) != wire.InvalidFetchSessionEpoch {
		t.Errorf("a session in use: %v", wire.Code(got.ErrorCode))
	}
	other.epoch = -1
	other.ask(other.request("orders", id))
	if got := s.receive(r, corr).(*kmsg.FetchResponse); got.ErrorCode != 0 || told(got) != "[]" {
		t.Errorf("code %d, told %s", got.ErrorCode, told(got))
	}
}

// Partitions that fill the response have to let others have their turn.
func TestFetchSessionTakesTurns(t *testing.T) {
	ts := newTestServer(t, nil)
	id, parts := ts.stored(t, "orders", 4)
	for _, p := range parts {
		appendTo(t, p, 1, 1000)
	}
	s := ts.sessionClient(13)
	var order []int32
	for i := range 6 {
		r := s.request("orders", id)
		if i == 0 {
			r = s.request("orders", id, 0, 1, 2, 3)
		}
		r.MaxBytes = 1000 // one batch
		for _, topic := range s.next(r).Topics {
			for _, p := range topic.Partitions {
				if len(p.RecordBatches) > 0 {
					order = append(order, p.Partition)
				}
			}
		}
	}
	if want := []int32{0, 1, 2, 3, 0, 1}; !slices.Equal(order, want) {
		t.Errorf("records came from %v, want %v", order, want)
	}
}

// A session by name whose topic was deleted and made again says so once.
func TestFetchSessionTopicMadeAgain(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.stored(t, "orders", 1)
	s := ts.sessionClient(12)
	s.next(s.request("orders", [16]byte{}, 0))
	im := ts.image.image()
	old, _ := im.TopicByName("orders")
	ts.image.apply(fsm.DeleteTopic{ID: old.ID})
	_, parts := ts.stored(t, "orders", 1)
	n := len(appendTo(t, parts[0], 1, 100))
	wantTold(t, "the first time", s.next(s.request("orders", [16]byte{})), "[0:3:0]")
	wantTold(t, "the second time", s.next(s.request("orders", [16]byte{})), fmt.Sprintf("[0:0:%d]", n))
}

// Hostile: a hundred thousand new sessions, on one connection and on many, do not
// take those of another client, and what is kept of them is bounded.
func TestFetchSessionFlood(t *testing.T) {
	ts := newTestServer(t, func(c *serverConfig) { c.FetchSessions = 100 })
	id, _ := ts.stored(t, "orders", 1)
	s := ts.sessionClient(13)
	s.wireClient = ts.dialFrom("127.0.0.2")
	s.next(s.request("orders", id, 0))
	flood := func(conns, each int) {
		for range conns {
			f := ts.sessionClient(13)
			req := f.request("orders", id, 0)
			for range each {
				f.ask(req)
			}
			_ = f.c.Close()
		}
	}
	flood(1, 2000)
	if got := ts.srv.sessions.counts(); got.sessions != 1+fetchConnSessions {
		t.Errorf("after one connection: %+v", got)
	}
	flood(200, 10)
	var held []*sessionClient
	for range 150 {
		f := ts.sessionClient(13)
		f.next(f.request("orders", id, 0))
		held = append(held, f)
	}
	if got := ts.srv.sessions.counts(); got.sessions != 100 || got.slots != 100 {
		t.Errorf("cache %+v, want it full", got)
	}
	wantTold(t, "the other client", s.next(s.request("orders", id)), "[]")
	// One more of the small client has room, at the cost of the large one.
	two := ts.sessionClient(13)
	two.wireClient = ts.dialFrom("127.0.0.2")
	if two.next(two.request("orders", id, 0)); two.id == 0 {
		t.Error("no session for a client with one, though another has a hundred")
	}
	if n := len(held); n != 150 {
		t.Error(n)
	}
}

func (ts *testServer) dialFrom(address string) *wireClient {
	ts.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	c, err := d.Dial("tcp", ts.addr)
	if err != nil {
		ts.t.Fatal(err)
	}
	ts.t.Cleanup(func() { _ = c.Close() })
	return &wireClient{t: ts.t, c: c, enc: kmsg.NewRequestFormatter(kmsg.FormatterClientID("test"))}
}

// Hostile: random ids and epochs, and a session that grows past what one may have.
func TestFetchSessionTooLarge(t *testing.T) {
	ts := newTestServer(t, func(c *serverConfig) { c.FetchSessions = 8 }) // 2 slots for one
	id, _ := ts.stored(t, "orders", 1)
	many := func(from, to int32) []int32 {
		var ps []int32
		for p := from; p < to; p++ {
			ps = append(ps, p)
		}
		return ps
	}
	s := ts.sessionClient(13)
	if got := s.ask(s.request("orders", id, many(0, 10_000)...)).(*kmsg.FetchResponse); got.SessionID != 0 || got.ErrorCode != 0 {
		t.Errorf("10,000 partitions: session %d, code %d", got.SessionID, got.ErrorCode)
	}
	s.next(s.request("orders", id, many(0, 3000)...))
	if got := ts.srv.sessions.counts(); s.id == 0 || got.slots < 2 {
		t.Errorf("3,000 partitions: session %d, cache %+v", s.id, got)
	}
	if got := s.ask(s.request("orders", id, many(3000, 10_000)...)).(*kmsg.FetchResponse); wire.Code(got.ErrorCode) != wire.FetchSessionIDNotFound {
		t.Errorf("grown to 10,000: %v", wire.Code(got.ErrorCode))
	}
	if got := ts.srv.sessions.counts(); got.sessions != 0 || got.slots != 0 {
		t.Errorf("cache %+v, want it empty", got)
	}
}

// Hostile: requests that wait as long as they can do not keep their connections
// when those close, nor the server from closing.
func TestFetchParked(t *testing.T) {
	ts := newTestServer(t, nil)
	id, parts := ts.stored(t, "orders", 1)
	for i := range 200 {
		s := ts.sessionClient(13)
		s.next(s.request("orders", id, 0))
		r := s.request("orders", id)
		r.MinBytes, r.MaxWaitMillis, r.MaxBytes = math.MaxInt32, math.MaxInt32, math.MaxInt32
		s.send(r)
		if i%2 == 0 {
			t.Cleanup(func() { _ = s.c.Close() })
		}
	}
	eventually(t, func() bool { return parts[0].watched() == 200 })
}
