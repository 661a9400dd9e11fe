package broker

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/integration/allocs"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/batch"
)

// fetchRequest asks for one partition of a topic, without waiting.
func fetchRequest(version int16, topic string, partition int32, offset int64) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.SetVersion(version)
	r.ReplicaID = -1
	r.MaxWaitMillis, r.MinBytes, r.MaxBytes = 0, 1, 50<<20
	r.SessionEpoch = -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	t.Partitions = append(t.Partitions, fetchPartition(partition, offset, 1<<20))
	r.Topics = append(r.Topics, t)
	return r
}

func fetchPartition(partition int32, offset int64, maxBytes int32) kmsg.FetchRequestTopicPartition {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, maxBytes
	p.CurrentLeaderEpoch = -1
	return p
}

// stored is a topic whose replicas here keep what is appended in files.
func (ts *testServer) stored(t testing.TB, name string, partitions int) (fsm.TopicID, []*fakeReplica) {
	t.Helper()
	leaders := make([]fsm.BrokerID, partitions)
	for i := range leaders {
		leaders[i] = selfID
	}
	id, parts := ts.topic(name, nil, leaders...)
	o := storage.DefaultOptions()
	dir, err := storage.OpenDir(vfs.OS(), t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dir.Close(nil); err != nil {
			t.Errorf("close the data folder: %v", err)
		}
	})
	for i, p := range parts {
		if p.log, err = dir.Create(name, int32(i), storage.ID(id)); err != nil {
			t.Fatal(err)
		}
	}
	return id, parts
}

// appendTo appends one batch of n records of size bytes, and returns it as it was stored.
func appendTo(t testing.TB, r *fakeReplica, n, size int) []byte {
	t.Helper()
	b := batch.Batch(records(n, size))
	if _, err := r.Append(b, 1); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFetchAllVersions(t *testing.T) {
	ts := newTestServer(t, nil)
	id, parts := ts.stored(t, "orders", 1)
	var want []byte
	for range 3 {
		want = append(want, appendTo(t, parts[0], 2, 100)...)
	}
	for v := int16(4); v <= 18; v++ {
		req := fetchRequest(v, "orders", 0, 0)
		req.Topics[0].TopicID = id
		resp := ts.dial().ask(req).(*kmsg.FetchResponse)
		if resp.ErrorCode != 0 || resp.SessionID != 0 || len(resp.Topics) != 1 {
			t.Fatalf("version %d: %+v", v, resp)
		}
		topic := resp.Topics[0]
		if v < 13 && topic.Topic != "orders" || v >= 13 && topic.TopicID != id {
			t.Errorf("version %d: topic %q %x", v, topic.Topic, topic.TopicID)
		}
		p := topic.Partitions[0]
		if p.ErrorCode != 0 || p.HighWatermark != 6 || p.LastStableOffset != 6 || !bytes.Equal(p.RecordBatches, want) {
			t.Errorf("version %d: code %d, HW %d, LSO %d, %d bytes of %d", v, p.ErrorCode, p.HighWatermark, p.LastStableOffset, len(p.RecordBatches), len(want))
		}
		if v >= 5 && p.LogStartOffset != 0 || v >= 11 && p.PreferredReadReplica != -1 {
			t.Errorf("version %d: log start %d, preferred replica %d", v, p.LogStartOffset, p.PreferredReadReplica)
		}
	}
	// From the middle, the batch that holds the offset is the first.
	if got := ts.dial().ask(fetchRequest(11, "orders", 0, 3)).(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches; !bytes.Equal(got, want[len(want)/3:]) {
		t.Errorf("from offset 3: %d bytes, want the last two batches", len(got))
	}
	// At the end there is nothing, which is not null.
	got := ts.dial().ask(fetchRequest(11, "orders", 0, 6)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if got.ErrorCode != 0 || got.RecordBatches == nil || len(got.RecordBatches) != 0 {
		t.Errorf("at the end: %+v", got)
	}
}

// Until something was read a batch comes whole whatever the limits; after that
// one that does not fit is left out, and never cut.
func TestFetchProgress(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.stored(t, "orders", 4)
	large := appendTo(t, parts[1], 1, 5000)
	appendTo(t, parts[2], 1, 5000)
	small := appendTo(t, parts[3], 1, 10)
	ask := func(responseMax, partitionMax int32, order ...int32) []int {
		t.Helper()
		r := fetchRequest(11, "orders", 0, 0)
		r.MaxBytes = responseMax
		r.Topics[0].Partitions = nil
		for _, p := range order {
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, fetchPartition(p, 0, partitionMax))
		}
		var sizes []int
		for _, p := range ts.dial().ask(r).(*kmsg.FetchResponse).Topics[0].Partitions {
			if p.ErrorCode != 0 || p.RecordBatches == nil {
				t.Errorf("partition %d: code %d, records %v", p.Partition, p.ErrorCode, p.RecordBatches)
			}
			sizes = append(sizes, len(p.RecordBatches))
		}
		return sizes
	}
	l, s := len(large), len(small)
	tests := []struct {
		name                      string
		responseMax, partitionMax int32
		order                     []int32
		want                      []int
	}{
		{"plenty", 1 << 20, 1 << 20, []int32{0, 1, 2, 3}, []int{0, l, l, s}},
		{"partition limit too small for any", 1 << 20, 1, []int32{0, 1, 2, 3}, []int{0, l, 0, 0}},
		{"partition limit too small for the large", 1 << 20, 1000, []int32{0, 1, 2, 3}, []int{0, l, 0, s}},
		{"response limit too small for any", 1, 1 << 20, []int32{0, 1, 2, 3}, []int{0, l, 0, 0}},
		{"response limit that leaves room for the small", int32(l + s), 1 << 20, []int32{1, 2, 3}, []int{l, 0, s}},
		{"the small one first", int32(l), 1 << 20, []int32{3, 1, 2}, []int{s, 0, 0}},
		{"limits of 0", 0, 0, []int32{0, 1, 2}, []int{0, l, 0}},
		{"negative limits", -5, -5, []int32{1, 2}, []int{l, 0}},
		{"one partition twice", 1 << 20, 1 << 20, []int32{1, 1}, []int{l, l}},
	}
	for _, tt := range tests {
		if got := ask(tt.responseMax, tt.partitionMax, tt.order...); fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%s: sizes %v, want %v", tt.name, got, tt.want)
		}
	}
}

// The broker's own bound holds whatever the client asks for.
func TestFetchMaxBytes(t *testing.T) {
	ts := newTestServer(t, func(c *serverConfig) { c.FetchMaxBytes = 12_000 })
	_, parts := ts.stored(t, "orders", 1)
	size := 0
	for range 5 {
		size = len(appendTo(t, parts[0], 1, 5000))
	}
	r := fetchRequest(11, "orders", 0, 0)
	r.MaxBytes = math.MaxInt32
	r.Topics[0].Partitions[0].PartitionMaxBytes = math.MaxInt32
	if got := ts.dial().ask(r).(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches; len(got) != 2*size {
		t.Errorf("%d bytes, want two batches of %d", len(got), size)
	}
}

// Errors are per partition, are answered at once, and leave the others alone.
func TestFetchPartitionErrors(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.stored(t, "orders", 1)
	want := appendTo(t, parts[0], 1, 100)
	ts.topic("elsewhere", nil, otherID)
	tests := []struct {
		name   string
		topic  string
		change func(p *kmsg.FetchRequestTopicPartition)
		want   wire.Code
	}{
		{"unknown topic", "missing", nil, wire.UnknownTopicOrPartition},
		{"unknown partition", "orders", func(p *kmsg.FetchRequestTopicPartition) { p.Partition = 7 }, wire.UnknownTopicOrPartition},
		{"negative partition", "orders", func(p *kmsg.FetchRequestTopicPartition) { p.Partition = -1 }, wire.UnknownTopicOrPartition},
		{"led elsewhere", "elsewhere", nil, wire.NotLeaderOrFollower},
		{"old leader epoch", "orders", func(p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = 4 }, wire.FencedLeaderEpoch},
		{"new leader epoch", "orders", func(p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = 6 }, wire.UnknownLeaderEpoch},
		{"offset past the end", "orders", func(p *kmsg.FetchRequestTopicPartition) { p.FetchOffset = 2 }, wire.OffsetOutOfRange},
		{"offset below the start", "orders", func(p *kmsg.FetchRequestTopicPartition) { p.FetchOffset = -1 }, wire.OffsetOutOfRange},
	}
	for _, tt := range tests {
		r := fetchRequest(12, "orders", 0, 0)
		r.MaxWaitMillis, r.MinBytes = 60_000, 1<<20
		bad := kmsg.NewFetchRequestTopic()
		bad.Topic = tt.topic
		p := fetchPartition(0, 0, 1<<20)
		if tt.change != nil {
			tt.change(&p)
		}
		bad.Partitions = append(bad.Partitions, p)
		r.Topics = append([]kmsg.FetchRequestTopic{bad}, r.Topics...)
		got := ts.dial().ask(r).(*kmsg.FetchResponse).Topics
		e := got[0].Partitions[0]
		if wire.Code(e.ErrorCode) != tt.want || e.RecordBatches == nil || len(e.RecordBatches) != 0 || e.HighWatermark != -1 || e.LogStartOffset != -1 {
			t.Errorf("%s: %+v, want %v", tt.name, e, tt.want)
		}
		if !bytes.Equal(got[1].Partitions[0].RecordBatches, want) {
			t.Errorf("%s: the other partition: %d bytes", tt.name, len(got[1].Partitions[0].RecordBatches))
		}
	}
}

// An offset past the end is out of range only where nobody else has led since: it may be one of a
// successor's.
func TestFetchOutOfRangeIsJudgedByThePresentLeader(t *testing.T) {
	for name, tt := range map[string]struct {
		meanwhile func(*testServer, fsm.TopicPartition) error
		offset    int64
		want      wire.Code
		asked     int
	}{
		"it leads":                    {leadBy(), 2, wire.OffsetOutOfRange, 1},
		"no controller tells":         {func(*testServer, fsm.TopicPartition) error { return errors.New("no controller") }, 2, wire.NotLeaderOrFollower, 1},
		"another leads":               {leadBy(otherID), 2, wire.NotLeaderOrFollower, 1},
		"it leads again, another led": {leadBy(otherID, selfID), 2, wire.NotLeaderOrFollower, 1},
		"below the start":             {leadBy(otherID), -1, wire.OffsetOutOfRange, 0},
	} {
		t.Run(name, func(t *testing.T) {
			ts := newTestServer(t, nil)
			id, parts := ts.stored(t, "orders", 1)
			appendTo(t, parts[0], 1, 100)
			ts.during(func() error { return tt.meanwhile(ts, fsm.TopicPartition{Topic: id}) })
			r := fetchRequest(11, "orders", 0, tt.offset)
			got := ts.dial().ask(r).(*kmsg.FetchResponse).Topics[0].Partitions[0]
			if wire.Code(got.ErrorCode) != tt.want || ts.asked() != tt.asked {
				t.Errorf("code %v, the controller was asked %d times; want %v, %d", wire.Code(got.ErrorCode), ts.asked(), tt.want, tt.asked)
			}
		})
	}
}

func TestFetchUnknownTopicID(t *testing.T) {
	ts := newTestServer(t, nil)
	r := fetchRequest(13, "", 0, 0)
	r.Topics[0].TopicID = [16]byte{5}
	got := ts.dial().ask(r).(*kmsg.FetchResponse)
	if p := got.Topics[0].Partitions[0]; got.ErrorCode != 0 || p.ErrorCode != 100 || p.RecordBatches == nil {
		t.Errorf("answer %+v", got)
	}
}

func TestFetchLeaderHint(t *testing.T) {
	ts := newTestServer(t, nil)
	id, _ := ts.topic("orders", nil, otherID)
	for v := int16(13); v <= 18; v++ {
		r := fetchRequest(v, "orders", 0, 0)
		r.Topics[0].TopicID = id
		resp := ts.dial().ask(r).(*kmsg.FetchResponse)
		p := resp.Topics[0].Partitions[0]
		if p.ErrorCode != 6 {
			t.Fatalf("version %d: code %d", v, p.ErrorCode)
		}
		if v >= 16 && (p.CurrentLeader.LeaderID != 2 || len(resp.Brokers) != 1 || resp.Brokers[0].Host != "host2") {
			t.Errorf("version %d: leader %+v, endpoints %+v", v, p.CurrentLeader, resp.Brokers)
		}
		if v < 16 && len(resp.Brokers) != 0 {
			t.Errorf("version %d: endpoints %+v", v, resp.Brokers)
		}
	}
}

// A follower's Fetch is refused on this listener: nobody may pretend to be a replica.
func TestFetchRefusesReplicas(t *testing.T) {
	ts := newTestServer(t, nil)
	id, parts := ts.stored(t, "orders", 1)
	appendTo(t, parts[0], 1, 100)
	for v := int16(4); v <= 18; v++ {
		r := fetchRequest(v, "orders", 0, 0)
		r.Topics[0].TopicID = id
		r.ReplicaID = 2
		r.ReplicaState.ID, r.ReplicaState.Epoch = 2, 1
		got := ts.dial().ask(r).(*kmsg.FetchResponse)
		code := got.ErrorCode
		if v < 7 {
			code = got.Topics[0].Partitions[0].ErrorCode
		}
		if wire.Code(code) != wire.InvalidRequest {
			t.Errorf("version %d: %v, want %v", v, wire.Code(code), wire.InvalidRequest)
		}
		for _, topic := range got.Topics {
			if len(topic.Partitions[0].RecordBatches) > 0 {
				t.Errorf("version %d: records were sent", v)
			}
		}
	}
}

func TestFetchIsolation(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.stored(t, "orders", 1)
	appendTo(t, parts[0], 1, 100)
	for _, v := range []int16{4, 11, 12} {
		r := fetchRequest(v, "orders", 0, 0)
		if got := ts.dial().ask(r).(*kmsg.FetchResponse).Topics[0].Partitions[0]; got.AbortedTransactions != nil {
			t.Errorf("version %d, uncommitted: aborted %v, want null", v, got.AbortedTransactions)
		}
		r.IsolationLevel = 1
		if got := ts.dial().ask(r).(*kmsg.FetchResponse).Topics[0].Partitions[0]; got.AbortedTransactions == nil || len(got.RecordBatches) == 0 {
			t.Errorf("version %d, committed: aborted %v, want an empty list", v, got.AbortedTransactions)
		}
	}
}

func TestFetchDiverging(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.stored(t, "orders", 1)
	appendTo(t, parts[0], 1, 100)
	parts[0].diverged = &EpochEnd{Epoch: 3, End: 1}
	r := fetchRequest(12, "orders", 0, 0)
	r.MaxWaitMillis, r.MinBytes = 60_000, 1000
	got := ts.dial().ask(r).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if got.ErrorCode != 0 || got.DivergingEpoch.Epoch != 3 || got.DivergingEpoch.EndOffset != 1 || len(got.RecordBatches) != 0 {
		t.Errorf("answer %+v", got)
	}
}

// A Fetch with nothing to give waits, and is woken by what comes.
func TestFetchWaits(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.stored(t, "orders", 2)
	w := ts.dial()
	r := fetchRequest(11, "orders", 0, 0)
	r.MaxWaitMillis = 60_000
	r.Topics[0].Partitions = append(r.Topics[0].Partitions, fetchPartition(1, 0, 1<<20))
	corr := w.send(r)
	eventually(t, func() bool { return parts[0].watched() == 1 && parts[1].watched() == 1 })
	want := appendTo(t, parts[1], 1, 100)
	got := w.receive(r, corr).(*kmsg.FetchResponse).Topics[0].Partitions
	if len(got[0].RecordBatches) != 0 || !bytes.Equal(got[1].RecordBatches, want) {
		t.Errorf("%d and %d bytes, want 0 and %d", len(got[0].RecordBatches), len(got[1].RecordBatches), len(want))
	}
	if parts[0].watched()+parts[1].watched() != 0 {
		t.Error("the partitions are still watched")
	}
}

// It waits until there are min_bytes, and no longer than max_wait.
func TestFetchMinBytes(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.stored(t, "orders", 1)
	w := ts.dial()
	r := fetchRequest(11, "orders", 0, 0)
	size := len(records(1, 100))
	r.MaxWaitMillis, r.MinBytes = 60_000, int32(3*size)
	corr := w.send(r)
	eventually(t, func() bool { return parts[0].watched() == 1 })
	for range 3 {
		appendTo(t, parts[0], 1, 100)
	}
	if got := w.receive(r, corr).(*kmsg.FetchResponse).Topics[0].Partitions[0]; len(got.RecordBatches) != 3*size {
		t.Errorf("%d bytes, want %d", len(got.RecordBatches), 3*size)
	}
	r.MaxWaitMillis, r.MinBytes = 50, 1<<20
	began := time.Now()
	if got := w.ask(r).(*kmsg.FetchResponse).Topics[0].Partitions[0]; len(got.RecordBatches) != 3*size {
		t.Errorf("when the time is over: %d bytes, want %d", len(got.RecordBatches), 3*size)
	}
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("answered after %v, want the whole wait", took)
	}
}

// min_bytes above what a response may hold does not wait for the impossible.
func TestFetchMinBytesCapped(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.stored(t, "orders", 1)
	for range 3 {
		appendTo(t, parts[0], 1, 1000)
	}
	r := fetchRequest(11, "orders", 0, 0)
	r.MaxWaitMillis, r.MinBytes, r.MaxBytes = math.MaxInt32, math.MaxInt32, 2500
	if got := ts.dial().ask(r).(*kmsg.FetchResponse).Topics[0].Partitions[0]; len(got.RecordBatches) == 0 {
		t.Error("no records")
	}
}

// No partitions: nothing to wait for.
func TestFetchNothing(t *testing.T) {
	ts := newTestServer(t, nil)
	r := fetchRequest(11, "orders", 0, 0)
	r.Topics, r.MaxWaitMillis = nil, math.MaxInt32
	if got := ts.dial().ask(r).(*kmsg.FetchResponse); got.ErrorCode != 0 || len(got.Topics) != 0 {
		t.Errorf("answer %+v", got)
	}
}

// The leader of a partition changes while a Fetch waits.
func TestFetchDeposedWhileWaiting(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.stored(t, "orders", 1)
	w := ts.dial()
	r := fetchRequest(11, "orders", 0, 0)
	r.MaxWaitMillis = 60_000
	corr := w.send(r)
	eventually(t, func() bool { return parts[0].watched() == 1 })
	parts[0].set(func() { parts[0].err = errNotLeader })
	if got := w.receive(r, corr).(*kmsg.FetchResponse).Topics[0].Partitions[0].ErrorCode; got != 6 {
		t.Errorf("code %d, want 6", got)
	}
}

// Many consumers read one file at once and each gets the right bytes.
func TestFetchConcurrently(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.stored(t, "orders", 1)
	var batches [][]byte
	for i := range 40 {
		batches = append(batches, appendTo(t, parts[0], 1, 1000+i*977))
	}
	var wg sync.WaitGroup
	for i := range 16 {
		w := ts.dial()
		wg.Go(func() {
			for round := range 20 {
				at := (i*7 + round*3) % len(batches)
				r := fetchRequest(11, "orders", 0, int64(at))
				r.Topics[0].Partitions[0].PartitionMaxBytes = 100_000
				got := w.ask(r).(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches
				var want []byte
				for j := at; j < len(batches) && len(want) < len(got); j++ {
					want = append(want, batches[j]...)
				}
				if !bytes.Equal(got, want) {
					t.Errorf("from offset %d: %d bytes differ", at, len(got))
				}
			}
		})
	}
	wg.Wait()
}

// What a Fetch allocates does not depend on the bytes in it.
func TestFetchAllocations(t *testing.T) {
	counts := make(map[int]float64)
	for _, n := range []int{1, 1024} {
		ts := newTestServer(t, nil)
		id, parts := ts.stored(t, "orders", 1)
		appendTo(t, parts[0], n, 1000)
		c := &Conn{srv: ts.srv}
		req := &wire.FetchRequest{ReplicaID: -1, ReplicaState: wire.NewFetchRequest().ReplicaState, MaxBytes: 50 << 20, SessionEpoch: -1,
			Topics: []wire.FetchTopic{{TopicID: id, Partitions: []wire.FetchPartition{
				{CurrentLeaderEpoch: -1, LastFetchedEpoch: -1, PartitionMaxBytes: 1 << 20}}}}}
		counts[n] = allocs.Least(func() {
			reply := handleFetch(t.Context(), c, wire.RequestHeader{Version: 13}, req)(t.Context())
			if len(reply.Ranges) != 1 {
				t.Fatal("no records")
			}
			releaseAll(reply.Ranges)
		})
	}
	t.Logf("allocations by number of records: %v", counts)
	if counts[1] != counts[1024] && !underRace {
		t.Errorf("allocations depend on the size: %v", counts)
	}
}

// BenchmarkFetch is a whole request over loopback, records by sendfile.
func BenchmarkFetch(b *testing.B) {
	for _, size := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("%dKiB", size), func(b *testing.B) {
			ts := newBenchServer(b)
			_, parts := ts.stored(b, "orders", 1)
			p := appendTo(b, parts[0], size, 1015)
			w := ts.dial()
			req := w.enc.AppendRequest(nil, fetchRequest(11, "orders", 0, 0), 1)
			b.SetBytes(int64(len(p)))
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				w.raw(req)
				if _, _, err := w.frame(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// From version 11 on a client may name its rack, and is sent to a replica there.
func TestFetchPreferredReplica(t *testing.T) {
	ts := newTestServer(t, nil)
	id, parts := ts.stored(t, "orders", 2)
	appendTo(t, parts[0], 1, 100)
	other := otherID
	parts[0].prefers = &other
	for v := int16(4); v <= 18; v++ {
		r := fetchRequest(v, "orders", 0, 0)
		r.Topics[0].TopicID, r.Rack = id, "r2"
		r.Topics[0].Partitions = append(r.Topics[0].Partitions, fetchPartition(1, 0, 1<<20))
		r.MaxWaitMillis, r.MinBytes = 60_000, 1<<20
		if v < fetchRacks {
			r.MaxWaitMillis = 0
		}
		got := ts.dial().ask(r).(*kmsg.FetchResponse).Topics[0].Partitions
		if v >= fetchRacks {
			if p := got[0]; p.ErrorCode != 0 || p.PreferredReadReplica != 2 || p.RecordBatches == nil || len(p.RecordBatches) != 0 || p.HighWatermark != 1 {
				t.Errorf("version %d: %+v", v, p)
			}
			if got[1].PreferredReadReplica != -1 {
				t.Errorf("version %d: the other partition %+v", v, got[1])
			}
		} else if len(got[0].RecordBatches) == 0 {
			t.Errorf("version %d: no records", v)
		}
		parts[1].mu.Lock()
		asked := parts[1].asked
		parts[1].mu.Unlock()
		if asked.AnyReplica != (v >= fetchRacks) || (asked.Rack == "r2") != (v >= fetchRacks) {
			t.Errorf("version %d: the replica was asked %+v", v, asked)
		}
	}
}

// A follower that has not heard yet of what is committed is worth waiting for.
func TestFetchOffsetNotAvailable(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.stored(t, "orders", 1)
	parts[0].set(func() { parts[0].err = errOffsetNotAvailable })
	r := fetchRequest(11, "orders", 0, 0)
	r.MaxWaitMillis = 30
	began := time.Now()
	if got := ts.dial().ask(r).(*kmsg.FetchResponse).Topics[0].Partitions[0].ErrorCode; got != 78 || time.Since(began) < 30*time.Millisecond {
		t.Errorf("code %d after %v, want 78 after the whole wait", got, time.Since(began))
	}
	w := ts.dial()
	r.MaxWaitMillis = 60_000
	corr := w.send(r)
	eventually(t, func() bool { return parts[0].watched() == 1 })
	parts[0].set(func() { parts[0].err = nil })
	want := appendTo(t, parts[0], 1, 100)
	if got := w.receive(r, corr).(*kmsg.FetchResponse).Topics[0].Partitions[0]; got.ErrorCode != 0 || !bytes.Equal(got.RecordBatches, want) {
		t.Errorf("code %d, %d bytes", got.ErrorCode, len(got.RecordBatches))
	}
}

// Hostile: as many partitions as fit, limits as large as they go, the longest
// wait. What such a Fetch keeps while it waits is no more than it was asked.
func TestFetchOfManyPartitions(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.stored(t, "orders", 4)
	want := appendTo(t, parts[2], 1, 1000)
	r := fetchRequest(11, "orders", 0, 0)
	r.MaxBytes, r.MinBytes = math.MaxInt32, math.MaxInt32
	r.Topics[0].Partitions = nil
	for i := range int32(10_000) {
		r.Topics[0].Partitions = append(r.Topics[0].Partitions, fetchPartition(i%4, 0, math.MaxInt32))
	}
	r.MaxWaitMillis = 200
	for range 2 {
		size := 0
		for _, p := range ts.dial().ask(r).(*kmsg.FetchResponse).Topics[0].Partitions {
			if p.ErrorCode != 0 || len(p.RecordBatches) > 0 && !bytes.Equal(p.RecordBatches, want) {
				t.Fatalf("partition %d: code %d, %d bytes", p.Partition, p.ErrorCode, len(p.RecordBatches))
			}
			size += len(p.RecordBatches)
		}
		if size != 2500*len(want) {
			t.Errorf("%d bytes, want all of %d", size, 2500*len(want))
		}
		r.MaxWaitMillis = 0
	}
	r.MaxWaitMillis = math.MaxInt32
	w := ts.dial()
	w.send(r)
	eventually(t, func() bool { return parts[2].watched() == 1 })
}
