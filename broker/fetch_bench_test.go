package broker

import (
	"context"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/integration/allocs"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire"
)

// idleSession is a session of n idle partitions, real ones, and returns what
// makes its next request.
func idleSession(t testing.TB, n int32) func(waitMs int32) {
	st := newStand(t)
	id := fsm.TopicID{1}
	create := fsm.CreateTopic{ID: id, Name: "idle"}
	for range n {
		create.Partitions = append(create.Partitions, fsm.NewPartition{Replicas: []fsm.BrokerID{1}, ISR: []fsm.BrokerID{1}, Leader: 1})
	}
	st.applier.must(t, create)
	for i := range n {
		l, err := st.dir.Create("idle", i, storage.ID(id))
		if err != nil {
			t.Fatal(err)
		}
		tp := fsm.TopicPartition{Topic: id, Partition: i}
		part, _ := st.applier.Image().Partition(tp)
		p := newPartition(tp, l, st.env)
		st.env.replicas.put(p)
		p.becomeLeader(stateOf(part))
	}
	srv, err := newServer(defaultServerConfig(), &backend{self: 1, image: st.applier.Image, metrics: newMetrics(), log: hclog.NewNullLogger(),
		partition: func(tp fsm.TopicPartition) replica { return st.env.replicas.Get(tp) }})
	if err != nil {
		t.Fatal(err)
	}
	conn := &Conn{srv: srv}
	request := func(session, epoch, waitMs int32) *wire.FetchRequest {
		r := wire.NewFetchRequest()
		r.SessionID, r.SessionEpoch, r.MaxWaitMs, r.MinBytes = session, epoch, waitMs, 1
		return r
	}
	ask := func(r *wire.FetchRequest) *wire.FetchResponse {
		got := handleFetch(context.Background(), conn, wire.RequestHeader{Version: 13}, r)(context.Background())
		return got.Body.(*wire.FetchResponse)
	}
	full := request(0, 0, 0)
	topic := wire.FetchTopic{TopicID: id}
	for i := range n {
		p := wire.DefaultFetchPartition()
		p.Partition, p.PartitionMaxBytes = i, 1<<20
		topic.Partitions = append(topic.Partitions, p)
	}
	full.Topics = append(full.Topics, topic)
	first := ask(full)
	if first.SessionID == 0 || len(first.Responses) != 1 || len(first.Responses[0].Partitions) != int(n) {
		t.Fatalf("full fetch: session %d, %d topics", first.SessionID, len(first.Responses))
	}
	epoch := int32(0)
	return func(waitMs int32) {
		epoch++
		got := ask(request(first.SessionID, epoch, waitMs))
		if got.ErrorCode != wire.None || len(got.Responses) != 0 {
			t.Fatalf("incremental fetch: code %v, %d topics", got.ErrorCode, len(got.Responses))
		}
	}
}

// An incremental fetch of idle partitions allocates for none of them, whether it
// waits or not.
func TestIdleSessionAllocations(t *testing.T) {
	const few, many = 10, 1000
	var counts [2][2]float64
	for i, n := range []int32{few, many} {
		next := idleSession(t, n)
		for j, wait := range []int32{0, 1} {
			counts[i][j] = allocs.Least(func() { next(wait) })
		}
	}
	t.Logf("allocations of a request, without and with waiting: %d partitions %v, %d partitions %v", few, counts[0], many, counts[1])
	for j := range counts[0] {
		if counts[1][j] > counts[0][j]+5 && !underRace {
			t.Errorf("allocations depend on the number of partitions: %v", counts)
		}
	}
}

// BenchmarkFetchIdleSession is an incremental fetch of 1,000 idle partitions.
func BenchmarkFetchIdleSession(b *testing.B) {
	next := idleSession(b, 1000)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		next(0)
	}
}
