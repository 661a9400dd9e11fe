package broker

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Producers whose requests together are many times the memory for requests all
// get through, one after the other if need be.
func TestProduceBeyondMemory(t *testing.T) {
	ts := newTestServer(t, func(c *serverConfig) { c.RequestMemory = 512 << 10 })
	_, parts := ts.topic("orders", nil, selfID)
	const clients, rounds = 16, 5
	var wg sync.WaitGroup
	for range clients {
		w := ts.dial()
		wg.Go(func() {
			req := produceRequest(9, -1, "orders", records(900, 1000))
			for range rounds {
				if got := w.ask(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode; got != 0 {
					t.Errorf("code %d", got)
				}
			}
		})
	}
	wg.Wait()
	if parts[0].appends != clients*rounds {
		t.Errorf("%d appends, want %d", parts[0].appends, clients*rounds)
	}
}

// Half-sent requests that hold the memory lose it when their time is over, and
// others go on.
func TestProduceBesideHalfSentRequests(t *testing.T) {
	ts := newTestServer(t, func(c *serverConfig) { c.RequestMemory, c.FrameTimeout = 256<<10, 200*time.Millisecond })
	ts.topic("orders", nil, selfID)
	for range 32 {
		ts.dial().raw(append([]byte{0x06, 0x40, 0, 0, 0, 0, 0, 9}, make([]byte, 1000)...))
	}
	eventually(t, func() bool { return ts.srv.budget.unused() <= 0 })
	got := ts.dial().ask(produceRequest(9, -1, "orders", records(90, 1000))).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if got.ErrorCode != 0 {
		t.Errorf("code %d", got.ErrorCode)
	}
}

// Consumers that go away in the middle of a response leave nothing behind.
func TestFetchClientGoesAway(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.stored(t, "orders", 1)
	for range 8 {
		appendTo(t, parts[0], 900, 1000)
	}
	for i := range 40 {
		w := ts.dial()
		r := fetchRequest(11, "orders", 0, 0)
		r.Topics[0].Partitions[0].PartitionMaxBytes = 50 << 20
		w.send(r)
		_ = w.c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if i%2 == 0 { // a part of the answer has come
			if _, err := w.c.Read(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
		}
		_ = w.c.(*net.TCPConn).SetLinger(0) // reset
		_ = w.c.Close()
	}
	eventually(t, func() bool { return ts.connections() == 0 })
	got := ts.dial().ask(fetchRequest(11, "orders", 0, 0)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if got.ErrorCode != 0 || len(got.RecordBatches) == 0 {
		t.Errorf("a later consumer: code %d, %d bytes", got.ErrorCode, len(got.RecordBatches))
	}
}

// Many parked consumers cost nobody else anything, and all wake.
func TestFetchCrowdWaits(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.stored(t, "orders", 1)
	const crowd = 200
	clients, corrs := make([]*wireClient, crowd), make([]int32, crowd)
	r := fetchRequest(11, "orders", 0, 0)
	r.MaxWaitMillis = 1<<31 - 1
	for i := range clients {
		clients[i] = ts.dial()
		corrs[i] = clients[i].send(r)
	}
	eventually(t, func() bool { return parts[0].watched() == crowd })
	ts.dial().ask(apiVersionsRequest(3))
	want := len(appendTo(t, parts[0], 1, 100))
	for i, w := range clients {
		if got := w.receive(r, corrs[i]).(*kmsg.FetchResponse).Topics[0].Partitions[0]; len(got.RecordBatches) != want {
			t.Errorf("client %d: %d bytes, want %d", i, len(got.RecordBatches), want)
		}
	}
}
