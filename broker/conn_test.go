package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/integration/seeds"
	"github.com/weirmq/weir/wire"
)

func apiVersionsRequest(version int16) *kmsg.ApiVersionsRequest {
	r := kmsg.NewPtrApiVersionsRequest()
	r.SetVersion(version)
	r.ClientSoftwareName, r.ClientSoftwareVersion = "test", "1.0"
	return r
}

// Nothing that a client may send gets more than a closed connection, one line in
// the log, and nothing held on to.
func TestHostileFrames(t *testing.T) {
	valid := kmsg.NewRequestFormatter().AppendRequest(nil, apiVersionsRequest(3), 1)
	header := func(key, version int16, body ...byte) []byte {
		p := binary.BigEndian.AppendUint16(make([]byte, 4), uint16(key))
		p = binary.BigEndian.AppendUint16(p, uint16(version))
		p = binary.BigEndian.AppendUint32(p, 7)
		p = append(p, 0xff, 0xff) // null client id
		p = append(p, body...)
		binary.BigEndian.PutUint32(p, uint32(len(p)-4))
		return p
	}
	tests := []struct {
		name string
		send []byte
	}{
		{"length -1", []byte{0xff, 0xff, 0xff, 0xff}},
		{"length 0", []byte{0, 0, 0, 0}},
		{"length 3", []byte{0, 0, 0, 3, 0, 0, 0}},
		{"length 2^31-1", []byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 3}},
		{"http", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")},
		{"tls hello", append([]byte{0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc}, make([]byte, 600)...)},
		{"key 32767", header(32767, 0)},
		{"key 7, reserved", header(7, 0)},
		{"key 56, of controllers", header(56, 3)},
		{"version -1", header(3, -1)},
		{"version 32767", header(3, 32767)},
		{"produce version 2", header(0, 2)},
		{"fetch version 3", header(1, 3)},
		{"client id longer than the frame", []byte{0, 0, 0, 10, 0, 3, 0, 1, 0, 0, 0, 1, 0x7f, 0xff}},
		{"54 M topics in 8 bytes", header(3, 1, 0x03, 0x37, 0xf0, 0x00)},
		{"2^31-1 topics", header(3, 9, 0, 0xff, 0xff, 0xff, 0xff, 0x07)},
		{"endless varint", header(3, 9, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)},
		{"tag count 2^31-1", header(3, 9, 0xff, 0xff, 0xff, 0xff, 0x07)},
		{"tag larger than the frame", header(3, 9, 1, 9, 0xff, 0x7f)},
		{"compact string length 0", header(18, 3, 0, 0, 0, 0)},
		{"negative array", header(1, 4, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0xff, 0xff, 0xff, 0xfe)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ts := newTestServer(t, nil)
			bystander := ts.dial()
			w := ts.dial()
			w.raw(tt.send)
			w.closed()
			bystander.raw(valid)
			if _, _, err := bystander.frame(); err != nil {
				t.Fatalf("another client: %v", err)
			}
			eventually(t, func() bool { return strings.Count(ts.logs.String(), "client connection closed") == 1 })
		})
	}
}

func TestApiVersions(t *testing.T) {
	ts := newTestServer(t, nil)
	for v := int16(0); v <= 4; v++ {
		resp := ts.dial().ask(apiVersionsRequest(v)).(*kmsg.ApiVersionsResponse)
		if resp.ErrorCode != 0 {
			t.Fatalf("version %d: code %d", v, resp.ErrorCode)
		}
		got := make(map[int16][2]int16)
		for _, k := range resp.ApiKeys {
			got[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
		}
		rows := apiRows()
		if len(got) != len(rows) {
			t.Fatalf("version %d: %d keys, want %d", v, len(got), len(rows))
		}
		for _, row := range rows {
			api, _ := wire.Lookup(row.key)
			if want := [2]int16{api.AdvertisedMin, api.Max}; got[int16(row.key)] != want {
				t.Errorf("version %d: %s is advertised as %v, want %v", v, api.Name, got[int16(row.key)], want)
			}
		}
		if got[0] != [2]int16{0, 13} || got[22][1] != 5 {
			t.Errorf("Produce is advertised as %v, InitProducerId as %v", got[0], got[22])
		}
		// A feature whose minimum level is 0 is hidden from version 3.
		if supported, finalized := len(resp.SupportedFeatures), len(resp.FinalizedFeatures); (supported == 1) != (v >= 4) || (finalized == 1) != (v >= 3) {
			t.Errorf("version %d: features %v, %v", v, resp.SupportedFeatures, resp.FinalizedFeatures)
		}
	}
}

// A version that is too new is answered in version 0, and the connection goes on.
func TestApiVersionsTooNew(t *testing.T) {
	ts := newTestServer(t, nil)
	w := ts.dial()
	w.raw([]byte{0, 0, 0, 14, 0, 18, 0, 99, 0, 0, 0, 42, 0xff, 0xff, 1, 2, 3, 4})
	corr, body, err := w.frame()
	if err != nil || corr != 42 {
		t.Fatalf("correlation id %d, %v", corr, err)
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	if err := resp.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	if resp.ErrorCode != 35 || len(resp.ApiKeys) != 1 || resp.ApiKeys[0].ApiKey != 18 || resp.ApiKeys[0].MaxVersion != 5 {
		t.Fatalf("answer %+v, want code 35 and key 18 only", resp)
	}
	if got := w.ask(apiVersionsRequest(3)).(*kmsg.ApiVersionsResponse); got.ErrorCode != 0 {
		t.Fatalf("the second try: code %d", got.ErrorCode)
	}
}

func TestApiVersionsChecksClient(t *testing.T) {
	tests := []struct {
		name, software, version string
		api                     int16
		want                    int16
	}{
		{"plain", "apache-kafka-java", "4.1.0", 3, 0},
		{"one letter", "x", "1", 3, 0},
		{"empty", "", "1", 3, 42},
		{"ends with a dash", "x-", "1", 3, 42},
		{"begins with a dot", ".x", "1", 3, 42},
		{"escape codes", "x\x1b[31m", "1", 3, 42},
		{"not sent", "", "", 2, 0},
	}
	ts := newTestServer(t, nil)
	for _, tt := range tests {
		r := apiVersionsRequest(tt.api)
		r.ClientSoftwareName, r.ClientSoftwareVersion = tt.software, tt.version
		if got := ts.dial().ask(r).(*kmsg.ApiVersionsResponse).ErrorCode; got != tt.want {
			t.Errorf("%s: code %d, want %d", tt.name, got, tt.want)
		}
	}
}

// A client that believes to have reached another cluster or node is sent back to
// where it came from.
func TestApiVersionsMisrouted(t *testing.T) {
	ts := newTestServer(t, nil)
	other, same := "other-cluster", "test-cluster"
	tests := []struct {
		name    string
		cluster *string
		node    int32
		want    wire.Code
	}{
		{"knows nothing", nil, -1, wire.None},
		{"right", &same, 1, wire.None},
		{"wrong cluster", &other, 1, wire.RebootstrapRequired},
		{"wrong node", &same, 2, wire.RebootstrapRequired},
	}
	for _, tt := range tests {
		req := &wire.ApiVersionsRequest{ClientSoftwareName: "t", ClientSoftwareVersion: "1", ClusterID: tt.cluster, NodeID: tt.node}
		if got := ts.srv.checkClient(5, req); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Requests that come one after the other without waiting are answered in order,
// and no more of them are taken than fit, whether or not the answers are read.
func TestPipelining(t *testing.T) {
	ts := newTestServer(t, func(c *serverConfig) { c.MaxInFlight = 4 })
	w := ts.dial()
	const n = 200
	done := make(chan error, 1)
	go func() {
		var p []byte
		for i := range int32(n) {
			p = append(p, w.enc.AppendRequest(nil, apiVersionsRequest(3), 100+i)...)
		}
		_, err := w.c.Write(p)
		done <- err
	}()
	for i := range int32(n) {
		corr, _, err := w.frame()
		if err != nil || corr != 100+i {
			t.Fatalf("answer %d: correlation id %d, %v", i, corr, err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A long poll does not keep the requests behind it from being read, but from
// being answered.
func TestLongPollHoldsOrder(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.topic("orders", nil, selfID)
	w := ts.dial()
	fetch := fetchRequest(4, "orders", 0, 0)
	fetch.MaxWaitMillis = 30_000
	first := w.send(fetch)
	eventually(t, func() bool { return parts[0].watched() == 1 })
	second := w.send(apiVersionsRequest(3))
	parts[0].set(func() { parts[0].err = errNotLeader })
	w.receive(fetch, first)
	w.receive(apiVersionsRequest(3), second)
}

// When the client goes, whoever waits on its behalf stops.
func TestDisconnectEndsLongPoll(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.topic("orders", nil, selfID)
	w := ts.dial()
	fetch := fetchRequest(4, "orders", 0, 0)
	fetch.MaxWaitMillis = 1<<31 - 1
	w.send(fetch)
	eventually(t, func() bool { return parts[0].watched() == 1 })
	_ = w.c.Close()
	eventually(t, func() bool { return parts[0].watched() == 0 })
	eventually(t, func() bool { return ts.connections() == 0 })
}

func (ts *testServer) connections() int {
	ts.srv.limits.mu.Lock()
	defer ts.srv.limits.mu.Unlock()
	return ts.srv.limits.total
}

// Closing the server answers long polls at once and then ends.
func TestCloseDrains(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.topic("orders", nil, selfID)
	w, idle := ts.dial(), ts.dial()
	fetch := fetchRequest(4, "orders", 0, 0)
	fetch.MaxWaitMillis = 60_000
	corr := w.send(fetch)
	eventually(t, func() bool { return parts[0].watched() == 1 && ts.connections() == 2 })
	closed := make(chan error, 1)
	go func() { closed <- ts.srv.Close(t.Context()) }()
	w.receive(fetch, corr)
	w.closed()
	idle.closed()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", ts.addr); err == nil {
		t.Fatal("the listener is open after Close")
	}
}

// A Close whose time is over cuts what still waits.
func TestCloseCuts(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.topic("orders", nil, selfID)
	parts[0].set(func() { parts[0].hold = true })
	w := ts.dial()
	w.send(produceRequest(9, -1, "orders", records(1, 10)))
	eventually(t, func() bool { parts[0].mu.Lock(); defer parts[0].mu.Unlock(); return parts[0].appends == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := ts.srv.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("close = %v, want that the time was over", err)
	}
	w.closed()
}

func TestConnectionCaps(t *testing.T) {
	ts := newTestServer(t, func(c *serverConfig) { c.MaxConnectionsPerIP = 2 })
	first, second := ts.dial(), ts.dial()
	first.ask(apiVersionsRequest(3))
	second.ask(apiVersionsRequest(3))
	ts.dial().closed()
	_ = first.c.Close()
	eventually(t, func() bool { return ts.connections() == 1 })
	ts.dial().ask(apiVersionsRequest(3))
}

// A client that sends and never reads is cut after the write timeout.
// When all connections are taken, those that have never sent a request make room
// for newcomers, the oldest first; those that have stay.
func TestSilenceMakesRoom(t *testing.T) {
	ts := newTestServer(t, func(c *serverConfig) { c.MaxConnections, c.MaxConnectionsPerIP = 3, 3 })
	known := ts.dial()
	known.ask(apiVersionsRequest(3))
	silent := []*wireClient{ts.dial(), ts.dial()}
	eventually(t, func() bool { return ts.connections() == 3 })
	for _, w := range silent {
		ts.dial().ask(apiVersionsRequest(3))
		w.closed()
	}
	eventually(t, func() bool { return ts.connections() == 3 })
	ts.dial().closed() // nobody is silent any more
	known.ask(apiVersionsRequest(3))
	ts.srv.mu.Lock()
	defer ts.srv.mu.Unlock()
	if n := ts.srv.silent.Len(); n != 0 {
		t.Errorf("%d connections count as silent", n)
	}
}

func TestClientThatDoesNotRead(t *testing.T) {
	ts := newTestServer(t, func(c *serverConfig) { c.WriteTimeout = 100 * time.Millisecond })
	for i := range 200 {
		ts.image.topic("a-topic-with-a-long-name-"+strings.Repeat("x", 100)+string(rune('a'+i%26))+string(rune('a'+i/26)), nil, otherID)
	}
	w := ts.dial()
	_ = w.c.(*net.TCPConn).SetReadBuffer(4 << 10)
	meta := kmsg.NewPtrMetadataRequest()
	meta.SetVersion(9)
	go func() {
		for i := range int32(10_000) {
			if _, err := w.c.Write(w.enc.AppendRequest(nil, meta, i)); err != nil {
				return
			}
		}
	}()
	eventually(t, func() bool { return ts.connections() == 0 })
}

// Ten thousand clients that say nothing take some 64 MiB, so one takes about 7 KB,
// of which here a part is the test's own.
func TestSilentConnectionsHoldLittle(t *testing.T) {
	ts := newTestServer(t, nil)
	memory := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) + int64(m.StackInuse)
	}
	before := memory()
	const crowd = 1000
	for range crowd {
		ts.dial()
	}
	eventually(t, func() bool { return ts.connections() == crowd })
	each := (memory() - before) / crowd
	t.Logf("%d bytes each", each)
	if each > 10_000 && !underRace {
		t.Errorf("a silent connection takes %d bytes", each)
	}
}

// A crowd of half-sent large requests holds little memory.
func TestHalfSentRequestsHoldLittle(t *testing.T) {
	ts := newTestServer(t, nil)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const crowd = 200
	for range crowd {
		ts.dial().raw(append([]byte{0x06, 0x40, 0, 0, 0, 0, 0, 9}, 1)) // 100 MiB of Produce
	}
	eventually(t, func() bool { return ts.connections() == crowd })
	eventually(t, func() bool { return ts.srv.config.RequestMemory-ts.srv.budget.unused() >= crowd*bufferFirst })
	if used := ts.srv.config.RequestMemory - ts.srv.budget.unused(); used > crowd*bufferFirst {
		t.Errorf("%d bytes of the budget are taken, want at most %d", used, crowd*bufferFirst)
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 32<<20 && !underRace {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}

// Mutations of good requests never do more than close their connection.
func TestMutatedRequests(t *testing.T) {
	seed := uint64(seeds.For(t))
	ts := newTestServer(t, nil)
	ts.topic("orders", nil, selfID)
	rnd := rand.New(rand.NewPCG(seed, 1))
	requests := requestSeeds()
	for range 300 {
		p := mutate(rnd, requests[rnd.IntN(len(requests))])
		w := ts.dial()
		_, _ = w.c.Write(p) // the server may have closed already
		_ = w.c.(*net.TCPConn).CloseWrite()
		for {
			if _, _, err := w.frame(); err != nil {
				break
			}
		}
		_ = w.c.Close()
	}
	ts.dial().ask(apiVersionsRequest(3))
	eventually(t, func() bool { return ts.connections() <= 1 })
}

// requestSeeds are good requests of every API.
func requestSeeds() [][]byte {
	var out [][]byte
	enc := kmsg.NewRequestFormatter(kmsg.FormatterClientID("seed"))
	for _, api := range wire.APIs() {
		for _, v := range []int16{api.Min, api.Max} {
			r := kmsg.RequestForKey(int16(api.Key))
			r.SetVersion(v)
			out = append(out, enc.AppendRequest(nil, r, 9))
		}
	}
	meta := kmsg.NewPtrMetadataRequest()
	meta.SetVersion(12)
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr("orders")
	meta.Topics = append(meta.Topics, topic)
	return append(out,
		enc.AppendRequest(nil, meta, 1),
		enc.AppendRequest(nil, produceRequest(9, 1, "orders", records(3, 50)), 2),
		enc.AppendRequest(nil, fetchRequest(12, "orders", 0, 0), 3),
		enc.AppendRequest(nil, listOffsetsRequest(7, "orders", 0, -1), 4))
}

// mutate changes a few bytes, and cuts or doubles some.
func mutate(rnd *rand.Rand, p []byte) []byte {
	out := append([]byte(nil), p...)
	for range 1 + rnd.IntN(4) {
		i := rnd.IntN(len(out))
		switch rnd.IntN(4) {
		case 0:
			out[i] ^= 1 << rnd.IntN(8)
		case 1:
			out[i] = byte(rnd.Uint32())
		case 2:
			out = append(out[:i], append([]byte{0xff, 0xff, 0xff, 0x7f}, out[i:]...)...)
		case 3:
			if i > 0 {
				out = out[:i]
			}
		}
	}
	if len(out) >= 4 && rnd.IntN(4) > 0 { // mostly a length that fits
		binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	}
	return out
}

// FuzzConnection runs arbitrary bytes through a connection.
func FuzzConnection(f *testing.F) {
	for _, p := range requestSeeds() {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		ts := newTestServer(t, func(c *serverConfig) { c.FrameTimeout = 50 * time.Millisecond })
		ts.topic("orders", nil, selfID)
		here, there := net.Pipe()
		ts.srv.welcome(here)
		go func() {
			_, _ = there.Write(p)
			_ = there.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			buf := make([]byte, 4096)
			for {
				if _, err := there.Read(buf); err != nil {
					_ = there.Close()
					return
				}
			}
		}()
		eventually(t, func() bool { return ts.connections() == 0 })
	})
}
