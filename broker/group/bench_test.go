package group_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirmq/weir/broker/group"
	"github.com/weirmq/weir/fsm"
)

const benchMembers = 500

// benchTopics are 1,000 partitions in ten topics.
func benchTopics() (topicSet, []string) {
	topics, names := topicSet{}, []string{}
	for i := range 10 {
		name := fmt.Sprintf("topic-%d", i)
		topics[name] = group.Topic{ID: topicID(name), Name: name, Partitions: 100}
		names = append(names, name)
	}
	return topics, names
}

// fixed is a set of topics whose version is free to ask for.
type fixed struct{ topicSet }

func (fixed) Version() uint64 { return 1 }

// benchGroup is a consumer group in the hands of a benchmark.
type benchGroup struct {
	g      *group.Group
	now    time.Time
	topics group.Topics
	names  []string
	ids    []string
	epochs map[string]int32
	puts   int
	calls  int
	last   *fsm.Group // row
}

func (b *benchGroup) call(r group.ConsumerRequest) group.ConsumerReply {
	b.calls++
	r.ClientID, r.ClientHost = "client", "10.0.0.1"
	out := b.g.ConsumerHeartbeat(b.now, group.Ticket(b.calls), r, b.topics)
	if out.Put != nil {
		b.puts++
		b.last = out.Put
		out = b.g.Committed(b.now, out.Seq)
	}
	a := out.Replies[0].Answer.(group.ConsumerReply)
	if a.Code != group.None {
		panic(a.Message)
	}
	b.epochs[r.MemberID] = a.Epoch
	return a
}

func (b *benchGroup) join(id string) {
	b.call(group.ConsumerRequest{MemberID: id, RebalanceTimeout: time.Minute, Topics: b.names, Owned: []fsm.TopicPartitions{}})
	b.ids = append(b.ids, id)
}

// settle lets everybody send heartbeats until the group is stable.
func (b *benchGroup) settle() {
	for b.g.State() != group.Stable {
		for _, id := range b.ids {
			a := b.call(group.ConsumerRequest{MemberID: id, Epoch: b.epochs[id], RebalanceTimeout: -1})
			if a.HasAssignment {
				b.call(group.ConsumerRequest{MemberID: id, Epoch: b.epochs[id], RebalanceTimeout: -1, Owned: a.Assignment})
			}
		}
	}
}

func newBenchGroup() *benchGroup {
	topics, names := benchTopics()
	c := group.DefaultConfig()
	b := &benchGroup{g: group.New("g", c), now: noon, topics: fixed{topics}, names: names, epochs: map[string]int32{}}
	for i := range benchMembers {
		b.join(fmt.Sprintf("member-%04d", i))
	}
	b.now = b.now.Add(2 * time.Second)
	b.settle()
	return b
}

// BenchmarkConsumerRebalance: one member leaves and another joins a group of 500
// members with 1,000 partitions, until everybody has its target again.
func BenchmarkConsumerRebalance(b *testing.B) {
	g := newBenchGroup()
	g.puts, g.calls = 0, 0
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		id := g.ids[0]
		g.ids = g.ids[1:]
		g.call(group.ConsumerRequest{MemberID: id, Epoch: group.EpochLeave, RebalanceTimeout: -1})
		g.now = g.now.Add(2 * time.Second)
		g.join(fmt.Sprintf("late-%d", i))
		g.settle()
	}
	row := fsm.EncodeCommand(nil, fsm.SlotCommand{Changes: []fsm.GroupChange{fsm.PutGroup{Group: g.last}}})
	b.ReportMetric(float64(len(row)), "bytes/put")
	b.ReportMetric(float64(g.puts)/float64(b.N), "puts/op")
	b.ReportMetric(float64(g.calls)/float64(b.N), "calls/op")
}

// BenchmarkConsumerHeartbeat is the steady state.
func BenchmarkConsumerHeartbeat(b *testing.B) {
	g := newBenchGroup()
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		id := g.ids[i%len(g.ids)]
		g.call(group.ConsumerRequest{MemberID: id, Epoch: g.epochs[id], RebalanceTimeout: -1})
	}
}

// BenchmarkClassicRebalance: 500 members join and sync anew.
func BenchmarkClassicRebalance(b *testing.B) {
	_, names := benchTopics()
	c := group.DefaultConfig()
	c.InitialDelay = 0
	g := group.New("g", c)
	r := group.JoinRequest{ClientID: "client", ClientHost: "10.0.0.1", SessionTimeout: 45 * time.Second, RebalanceTimeout: 5 * time.Minute,
		ProtocolType: "consumer", Protocols: []fsm.GroupProtocol{{Name: "cooperative-sticky", Metadata: subscriptionOf(names, "")}, {Name: "range", Metadata: subscriptionOf(names, "")}}}
	ids := make([]string, benchMembers)
	assignments := make([]group.MemberAssignment, benchMembers)
	for i := range ids {
		ids[i] = fmt.Sprintf("member-%04d", i)
		assignments[i] = group.MemberAssignment{MemberID: ids[i], Assignment: make([]byte, 40)}
		r.NewID = ids[i]
		if out := g.Join(noon, 0, r, nil); out.Put != nil {
			g.Committed(noon, out.Seq)
		}
	}
	round := func() {
		for _, id := range ids {
			r.MemberID = id
			if out := g.Join(noon, 0, r, nil); out.Put != nil {
				g.Committed(noon, out.Seq)
			}
		}
		d := g.Describe()
		for _, id := range ids {
			s := group.SyncRequest{MemberID: id, Generation: d.Epoch}
			if id == d.Leader {
				s.Assignments = assignments
			}
			if out := g.Sync(noon, 0, s, nil); out.Put != nil {
				g.Committed(noon, out.Seq)
			}
		}
		if g.State() != group.Stable {
			b.Fatal(g.Why())
		}
	}
	round()
	b.ReportAllocs()
	for b.Loop() {
		round()
	}
}

// BenchmarkClassicHeartbeat is the steady state.
func BenchmarkClassicHeartbeat(b *testing.B) {
	c := group.DefaultConfig()
	c.InitialDelay = 0
	g := group.New("g", c)
	out := g.Join(noon, 0, group.JoinRequest{NewID: "m", SessionTimeout: 45 * time.Second, RebalanceTimeout: time.Minute, ProtocolType: "consumer", Protocols: []fsm.GroupProtocol{{Name: "range"}}}, nil)
	g.Committed(noon, out.Seq)
	out = g.Sync(noon, 0, group.SyncRequest{MemberID: "m", Generation: 1}, nil)
	g.Committed(noon, out.Seq)
	b.ReportAllocs()
	for b.Loop() {
		g.Heartbeat(noon, 0, group.HeartbeatRequest{MemberID: "m", Generation: 1}, nil)
	}
}
