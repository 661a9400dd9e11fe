package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/batch"
)

// fakeCluster records what the controller is asked for.
type fakeCluster struct {
	mu      sync.Mutex
	altered []controller.TopicAlteration // guarded by mu, as all below
	grown   []controller.MorePartitions
	elected []fsm.TopicPartition
	kind    controller.ElectionKind
	answer  controller.TopicResult // for every topic and partition
	quorum  controller.Quorum
	moves   []controller.Move
	resize  bool
	member  controller.Outcome
	changed []string // changes of who is a member, or votes
	err     error
}

func (f *fakeCluster) change(what string, id fsm.BrokerID, folder [16]byte) (controller.Outcome, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed = append(f.changed, fmt.Sprintf("%s %d %x", what, id, folder[:2]))
	return f.member, f.err
}

func (f *fakeCluster) AddVoter(_ context.Context, id fsm.BrokerID, folder [16]byte) (controller.Outcome, error) {
	return f.change("add", id, folder)
}

func (f *fakeCluster) RemoveVoter(_ context.Context, id fsm.BrokerID, folder [16]byte) (controller.Outcome, error) {
	return f.change("remove", id, folder)
}

func (f *fakeCluster) RemoveNode(_ context.Context, id fsm.BrokerID) (controller.Outcome, error) {
	return f.change("leave", id, [16]byte{})
}

func (f *fakeCluster) AlterTopics(_ context.Context, changes []controller.TopicAlteration) ([]controller.TopicResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.altered = append(f.altered, changes...)
	return slices.Repeat([]controller.TopicResult{f.answer}, len(changes)), f.err
}

func (f *fakeCluster) AddPartitions(_ context.Context, topics []controller.MorePartitions) ([]controller.TopicResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.grown = append(f.grown, topics...)
	return slices.Repeat([]controller.TopicResult{f.answer}, len(topics)), f.err
}

func (f *fakeCluster) ElectLeaders(_ context.Context, kind controller.ElectionKind, tps []fsm.TopicPartition) ([]controller.ElectionResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kind = kind
	f.elected = append(f.elected, tps...)
	out := make([]controller.ElectionResult, len(tps))
	for i, tp := range tps {
		out[i] = controller.ElectionResult{TP: tp, Outcome: f.answer.Outcome}
	}
	return out, f.err
}

func (f *fakeCluster) Quorum(context.Context) (controller.Quorum, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.quorum, f.err
}

func (f *fakeCluster) Reassign(_ context.Context, moves []controller.Move, resize bool) ([]controller.Outcome, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moves, f.resize = append(f.moves, moves...), resize
	return slices.Repeat([]controller.Outcome{f.answer.Outcome}, len(moves)), f.err
}

// The rest of a fakeReplica, as the admin handlers see it: its log starts where it was
// trimmed to, at once.

func (f *fakeReplica) Trim(to batch.Offset) (func(context.Context) (batch.Offset, error), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	if to > f.hw {
		return nil, errOutOfRange
	}
	waitErr := f.waitErr
	return func(ctx context.Context) (batch.Offset, error) {
		if waitErr != nil {
			return 77, waitErr
		}
		if to == toHighWatermark {
			return f.hw, nil
		}
		return to, nil
	}, nil
}

func (f *fakeReplica) EpochEnd(current, asked batch.Epoch) (EpochEnd, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if current != batch.NoEpoch && current < f.epoch {
		return EpochEnd{}, errFencedEpoch
	}
	return EpochEnd{Epoch: asked - 1, End: f.end}, f.err
}

func (f *fakeReplica) Producers() ([]storage.Producer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return []storage.Producer{{ID: 9, Epoch: 2, LastSequence: 4, LastTimestamp: 1000}}, f.err
}

func (ts *testServer) operations() *operations {
	config := DefaultConfig()
	config.NodeID, config.MessageMaxBytes = 1, 2_000_000
	return &operations{
		cluster: ts.cluster, config: config,
		sync: func(context.Context) error { return ts.cluster.err },
		hosted: func(tp fsm.TopicPartition) administered {
			if r, ok := ts.partition(tp).(administered); ok {
				return r
			}
			return nil
		},
		folder: func() folderState {
			return folderState{path: "/data", total: 800, usable: 500, logs: []logState{{"a", 0, 10, 0}, {"a", 1, 20, 3}, {"b", 0, 30, 0}}}
		},
	}
}

// versions yields every version of an API that both sides know.
func versions(key wire.Key, each func(v int16)) {
	api, _ := wire.Lookup(key)
	for v := api.Min; v <= api.Max; v++ {
		each(v)
	}
}

func TestDeleteRecordsHandler(t *testing.T) {
	versions(wire.KeyDeleteRecords, func(v int16) {
		ts := newTestServer(t, nil)
		_, reps := ts.topic("t", nil, selfID, otherID, selfID)
		reps[0].set(func() { reps[0].end, reps[0].hw = 9, 9 })
		reps[1].set(func() { reps[1].hw, reps[1].waitErr = 9, context.DeadlineExceeded })
		r := kmsg.NewPtrDeleteRecordsRequest()
		r.SetVersion(v)
		r.TimeoutMillis = 1000
		topic := kmsg.NewDeleteRecordsRequestTopic()
		topic.Topic = "t"
		for _, p := range []struct {
			index  int32
			offset int64
		}{{0, 5}, {0, -1}, {0, 10}, {1, 5}, {2, 5}, {7, 5}} {
			part := kmsg.NewDeleteRecordsRequestTopicPartition()
			part.Partition, part.Offset = p.index, p.offset
			topic.Partitions = append(topic.Partitions, part)
		}
		absent := kmsg.NewDeleteRecordsRequestTopic()
		absent.Topic = "absent"
		absent.Partitions = topic.Partitions[:1]
		r.Topics = append(r.Topics, topic, absent)
		resp := ts.dial().ask(r).(*kmsg.DeleteRecordsResponse)
		var got []string
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				got = append(got, fmt.Sprintf("%s-%d %v %d", topic.Topic, p.Partition, wire.Code(p.ErrorCode), p.LowWatermark))
			}
		}
		want := []string{"t-0 NONE 5", "t-0 NONE 9", "t-0 OFFSET_OUT_OF_RANGE -1", "t-1 NOT_LEADER_OR_FOLLOWER -1",
			"t-2 REQUEST_TIMED_OUT -1", "t-7 UNKNOWN_TOPIC_OR_PARTITION -1", "absent-0 UNKNOWN_TOPIC_OR_PARTITION -1"}
		for i := range want {
			if i >= len(got) || !sameWords(got[i], want[i]) {
				t.Errorf("version %d: got %q, want %q", v, got, want)
				break
			}
		}
	})
}

// sameWords compares answers whose codes are written as wire's errors.
func sameWords(got, want string) bool {
	for _, c := range []wire.Code{wire.None, wire.OffsetOutOfRange, wire.NotLeaderOrFollower, wire.RequestTimedOut, wire.UnknownTopicOrPartition,
		wire.FencedLeaderEpoch, wire.InvalidRequest} {
		want = strings.Replace(want, " "+c.Name()+" ", " "+fmt.Sprint(c)+" ", 1)
	}
	return got == want
}

func TestOffsetForLeaderEpochHandler(t *testing.T) {
	versions(wire.KeyOffsetForLeaderEpoch, func(v int16) {
		ts := newTestServer(t, nil)
		_, reps := ts.topic("t", nil, selfID, otherID)
		reps[0].set(func() { reps[0].end = 9 })
		r := kmsg.NewPtrOffsetForLeaderEpochRequest()
		r.SetVersion(v)
		topic := kmsg.NewOffsetForLeaderEpochRequestTopic()
		topic.Topic = "t"
		for _, p := range []struct{ index, current, asked int32 }{{0, -1, 3}, {0, 4, 3}, {1, -1, 3}, {9, -1, 3}} {
			part := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			part.Partition, part.CurrentLeaderEpoch, part.LeaderEpoch = p.index, p.current, p.asked
			topic.Partitions = append(topic.Partitions, part)
		}
		r.Topics = append(r.Topics, topic)
		r.ReplicaID = -1
		resp := ts.dial().ask(r).(*kmsg.OffsetForLeaderEpochResponse)
		want := []string{"0 NONE 2 9", "0 FENCED_LEADER_EPOCH -1 -1", "1 NOT_LEADER_OR_FOLLOWER -1 -1", "9 UNKNOWN_TOPIC_OR_PARTITION -1 -1"}
		for i, p := range resp.Topics[0].Partitions {
			if got := fmt.Sprintf("%d %v %d %d", p.Partition, wire.Code(p.ErrorCode), p.LeaderEpoch, p.EndOffset); !sameWords(got, want[i]) {
				t.Errorf("version %d: got %q, want %q", v, got, want[i])
			}
		}
		if v >= 3 {
			r.ReplicaID = 2
			if p := ts.dial().ask(r).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]; wire.Code(p.ErrorCode) != wire.InvalidRequest {
				t.Errorf("version %d: a follower is answered with %v", v, wire.Code(p.ErrorCode))
			}
		}
	})
}

func TestDescribeProducersHandler(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.topic("t", nil, selfID, otherID)
	r := kmsg.NewPtrDescribeProducersRequest()
	topic := kmsg.NewDescribeProducersRequestTopic()
	topic.Topic, topic.Partitions = "t", []int32{0, 1, 5}
	r.Topics = append(r.Topics, topic)
	got := ts.dial().ask(r).(*kmsg.DescribeProducersResponse).Topics[0].Partitions
	if p := got[0].ActiveProducers; len(p) != 1 || p[0].ProducerID != 9 || p[0].ProducerEpoch != 2 || p[0].LastSequence != 4 ||
		p[0].LastTimestamp != 1000 || p[0].CurrentTxnStartOffset != -1 || p[0].CoordinatorEpoch != -1 || got[0].ErrorMessage != nil {
		t.Errorf("producers %+v", got[0])
	}
	if wire.Code(got[1].ErrorCode) != wire.NotLeaderOrFollower || wire.Code(got[2].ErrorCode) != wire.UnknownTopicOrPartition || got[1].ErrorMessage == nil {
		t.Errorf("got %+v", got[1:])
	}
}

func TestDescribeLogDirsHandler(t *testing.T) {
	versions(wire.KeyDescribeLogDirs, func(v int16) {
		if v > kmsg.NewPtrDescribeLogDirsRequest().MaxVersion() {
			return
		}
		ts := newTestServer(t, nil)
		ask := func(topics ...kmsg.DescribeLogDirsRequestTopic) string {
			r := kmsg.NewPtrDescribeLogDirsRequest()
			r.SetVersion(v)
			r.Topics = topics
			resp := ts.dial().ask(r).(*kmsg.DescribeLogDirsResponse)
			var out []string
			for _, d := range resp.Dirs {
				out = append(out, fmt.Sprint(d.Dir, d.ErrorCode))
				if v >= 4 && (d.UsableBytes != 500 || d.TotalBytes != 800) {
					t.Errorf("version %d: %d of %d bytes", v, d.UsableBytes, d.TotalBytes)
				}
				for _, topic := range d.Topics {
					for _, p := range topic.Partitions {
						out = append(out, fmt.Sprintf("%s-%d %d %d %v", topic.Topic, p.Partition, p.Size, p.OffsetLag, p.IsFuture))
					}
				}
			}
			return strings.Join(out, ", ")
		}
		if got := ask(); got != "/data0, a-0 10 0 false, a-1 20 3 false, b-0 30 0 false" {
			t.Errorf("version %d: %s", v, got)
		}
		topic := kmsg.NewDescribeLogDirsRequestTopic()
		topic.Topic, topic.Partitions = "a", []int32{1, 7}
		if got := ask(topic); got != "/data0, a-1 20 3 false" {
			t.Errorf("version %d: one partition: %s", v, got)
		}
		ts.srv.backend.ops.folder = func() folderState {
			return folderState{path: "/data", err: storage.ErrOffline, total: 800, usable: 500}
		}
		if got := ask(); got != fmt.Sprint("/data", int16(wire.KafkaStorageError)) {
			t.Errorf("version %d: offline: %s", v, got)
		}
	})
}

func TestCreatePartitionsHandler(t *testing.T) {
	versions(wire.KeyCreatePartitions, func(v int16) {
		ts := newTestServer(t, nil)
		id, _ := ts.topic("t", nil, selfID)
		ts.topic("twice", nil, selfID)
		r := kmsg.NewPtrCreatePartitionsRequest()
		r.SetVersion(v)
		r.TimeoutMillis, r.ValidateOnly = 1000, true
		for _, name := range []string{"t", "absent", "twice", "twice"} {
			topic := kmsg.NewCreatePartitionsRequestTopic()
			topic.Topic, topic.Count = name, 2
			if name == "t" {
				topic.Assignment = []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: []int32{2, 1}}}
			}
			r.Topics = append(r.Topics, topic)
		}
		got := ts.dial().ask(r).(*kmsg.CreatePartitionsResponse).Topics
		for i, want := range []wire.Code{wire.None, wire.UnknownTopicOrPartition, wire.InvalidRequest, wire.InvalidRequest} {
			if wire.Code(got[i].ErrorCode) != want || (got[i].ErrorMessage == nil) != (want == wire.None) {
				t.Errorf("version %d: %s: %v, want %v", v, got[i].Topic, wire.Code(got[i].ErrorCode), want)
			}
		}
		if w := ts.cluster.grown; len(w) != 1 || w[0].ID != id || w[0].Count != 2 || !w[0].ValidateOnly || !slices.Equal(w[0].Assignment[0], []fsm.BrokerID{2, 1}) {
			t.Errorf("version %d: the controller was asked for %+v", v, w)
		}
		ts.cluster.answer = controller.TopicResult{Outcome: controller.Outcome{Err: wire.InvalidPartitions, Msg: "no"}}
		if got := ts.dial().ask(r).(*kmsg.CreatePartitionsResponse).Topics[0]; wire.Code(got.ErrorCode) != wire.InvalidPartitions || *got.ErrorMessage != "no" {
			t.Errorf("version %d: refused: %+v", v, got)
		}
		ts.cluster.err = controller.ErrNoController
		if got := ts.dial().ask(r).(*kmsg.CreatePartitionsResponse).Topics[0]; wire.Code(got.ErrorCode) != wire.NotController {
			t.Errorf("version %d: without a controller: %+v", v, got)
		}
	})
}

func TestElectLeadersHandler(t *testing.T) {
	versions(wire.KeyElectLeaders, func(v int16) {
		ts := newTestServer(t, nil)
		id, _ := ts.topic("t", nil, selfID, otherID)
		ts.topic("u", nil, selfID, selfID)
		r := kmsg.NewPtrElectLeadersRequest()
		r.SetVersion(v)
		r.TimeoutMillis = 1000
		r.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "t", Partitions: []int32{1, 0}}, {Topic: "absent", Partitions: []int32{0}}}
		got := ts.dial().ask(r).(*kmsg.ElectLeadersResponse)
		if len(got.Topics) != 2 || got.Topics[0].Partitions[0].Partition != 1 || got.Topics[0].Partitions[0].ErrorCode != 0 ||
			wire.Code(got.Topics[1].Partitions[0].ErrorCode) != wire.UnknownTopicOrPartition {
			t.Errorf("version %d: %+v", v, got)
		}
		if want := []fsm.TopicPartition{{Topic: id, Partition: 1}, {Topic: id}}; !slices.Equal(ts.cluster.elected, want) || ts.cluster.kind != controller.PreferredElection {
			t.Errorf("version %d: elected %v by %d", v, ts.cluster.elected, ts.cluster.kind)
		}
		ts.cluster.elected = nil
		r.Topics = nil
		got = ts.dial().ask(r).(*kmsg.ElectLeadersResponse)
		if want := []fsm.TopicPartition{{Topic: id, Partition: 1}}; !slices.Equal(ts.cluster.elected, want) || len(got.Topics) != 1 || got.Topics[0].Topic != "t" {
			t.Errorf("version %d: of all: elected %v, answer %+v", v, ts.cluster.elected, got)
		}
		if v < 1 {
			return
		}
		ts.cluster.elected = nil
		r.ElectionType = 1
		ts.dial().ask(r)
		if len(ts.cluster.elected) != 0 {
			t.Errorf("version %d: unclean elections of partitions with leaders: %v", v, ts.cluster.elected)
		}
		r.ElectionType = 5
		if got := ts.dial().ask(r).(*kmsg.ElectLeadersResponse); wire.Code(got.ErrorCode) != wire.InvalidRequest {
			t.Errorf("version %d: election type 5: %v", v, wire.Code(got.ErrorCode))
		}
	})
}

func TestDescribeQuorumHandler(t *testing.T) {
	versions(wire.KeyDescribeQuorum, func(v int16) {
		ts := newTestServer(t, nil)
		ts.cluster.quorum = controller.Quorum{Leader: 1, Term: 4, Commit: 9, Voters: []controller.QuorumServer{
			{ID: 1, Folder: [16]byte{1}, Last: 9, Answered: 70, CaughtUp: 71}, {ID: 2, Folder: [16]byte{2}, Last: 8, Answered: 72, CaughtUp: 73}},
			Observers: []controller.QuorumServer{{ID: 9, Last: -1, Answered: -1, CaughtUp: -1}}}
		r := kmsg.NewPtrDescribeQuorumRequest()
		r.SetVersion(v)
		for _, name := range []string{"__cluster_metadata", "t"} {
			topic := kmsg.NewDescribeQuorumRequestTopic()
			topic.Topic, topic.Partitions = name, []kmsg.DescribeQuorumRequestTopicPartition{{}}
			r.Topics = append(r.Topics, topic)
		}
		got := ts.dial().ask(r).(*kmsg.DescribeQuorumResponse)
		p := got.Topics[0].Partitions[0]
		if p.ErrorCode != 0 || p.LeaderID != 1 || p.LeaderEpoch != 4 || p.HighWatermark != 10 || len(p.CurrentVoters) != 2 || len(p.Observers) != 1 {
			t.Errorf("version %d: %+v", v, p)
		}
		follower, observer := p.CurrentVoters[1], p.Observers[0]
		if follower.ReplicaID != 2 || follower.LogEndOffset != 9 || observer.LogEndOffset != -1 || p.CurrentVoters[0].LogEndOffset != 10 {
			t.Errorf("version %d: voters %+v, observers %+v", v, p.CurrentVoters, p.Observers)
		}
		if v >= 1 && (follower.LastFetchTimestamp != 72 || follower.LastCaughtUpTimestamp != 73 || p.CurrentVoters[0].LastFetchTimestamp != -1) {
			t.Errorf("version %d: times %+v", v, p.CurrentVoters)
		}
		if v >= 2 && (follower.ReplicaDirectoryID != [16]byte{2} || len(got.Nodes) != 2 || got.Nodes[1].NodeID != 2) {
			t.Errorf("version %d: directory %x, nodes %+v", v, follower.ReplicaDirectoryID, got.Nodes)
		}
		if other := got.Topics[1].Partitions[0]; wire.Code(other.ErrorCode) != wire.UnknownTopicOrPartition {
			t.Errorf("version %d: another topic: %+v", v, other)
		}
		ts.cluster.err = controller.ErrNoController
		if got := ts.dial().ask(r).(*kmsg.DescribeQuorumResponse); wire.Code(got.ErrorCode) != wire.NotController {
			t.Errorf("version %d: without a controller: %v", v, wire.Code(got.ErrorCode))
		}
	})
}

func TestFindAdministered(t *testing.T) {
	ts := newTestServer(t, nil)
	id, _ := ts.topic("t", nil, selfID, otherID)
	for index, want := range []error{nil, errNotLeader, errUnknownPartition} {
		_, err := ts.srv.backend.ops.find(ts.image.image(), fsm.TopicPartition{Topic: id, Partition: int32(index)})
		if !errors.Is(err, want) {
			t.Errorf("partition %d: %v, want %v", index, err, want)
		}
	}
}

// TestMemberHandlers: who is to vote, or to leave, reaches the controller by id and folder, and its
// answer the client; what is meant for another cluster goes nowhere.
func TestMemberHandlers(t *testing.T) {
	other := "another"
	ask := func(ts *testServer, key wire.Key, v int16, cluster *string) (int16, *string) {
		switch key {
		case wire.KeyAddRaftVoter:
			r := kmsg.NewPtrAddRaftVoterRequest()
			r.SetVersion(v)
			r.ClusterID, r.VoterID, r.VoterDirectoryID, r.TimeoutMillis = cluster, 4, [16]byte{4}, 1000
			r.Listeners = []kmsg.AddRaftVoterRequestListener{{Name: "CONTROLLER", Host: "h", Port: 9093}}
			got := ts.dial().ask(r).(*kmsg.AddRaftVoterResponse)
			return got.ErrorCode, got.ErrorMessage
		case wire.KeyRemoveRaftVoter:
			r := kmsg.NewPtrRemoveRaftVoterRequest()
			r.ClusterID, r.VoterID, r.VoterDirectoryID = cluster, 4, [16]byte{4}
			got := ts.dial().ask(r).(*kmsg.RemoveRaftVoterResponse)
			return got.ErrorCode, got.ErrorMessage
		}
		r := kmsg.NewPtrUnregisterBrokerRequest()
		r.BrokerID = 4
		got := ts.dial().ask(r).(*kmsg.UnregisterBrokerResponse)
		return got.ErrorCode, got.ErrorMessage
	}
	for key, want := range map[wire.Key]string{wire.KeyAddRaftVoter: "add 4 0400", wire.KeyRemoveRaftVoter: "remove 4 0400", wire.KeyUnregisterBroker: "leave 4 0000"} {
		versions(key, func(v int16) {
			ts := newTestServer(t, nil)
			own := ts.image.image().ClusterID()
			if code, msg := ask(ts, key, v, &own); code != 0 || msg != nil || !slices.Equal(ts.cluster.changed, []string{want}) {
				t.Errorf("key %d version %d: %v %v, asked for %q", key, v, wire.Code(code), msg, ts.cluster.changed)
			}
			ts.cluster.member = controller.Outcome{Err: wire.DuplicateVoter, Msg: "it is so"}
			if code, msg := ask(ts, key, v, nil); wire.Code(code) != wire.DuplicateVoter || msg == nil || *msg != "it is so" {
				t.Errorf("key %d version %d: %v %v", key, v, wire.Code(code), msg)
			}
			ts.cluster.err = controller.ErrNoController
			if code, _ := ask(ts, key, v, nil); wire.Code(code) != wire.NotController {
				t.Errorf("key %d version %d: without a controller %v", key, v, wire.Code(code))
			}
			if key == wire.KeyUnregisterBroker {
				return
			}
			ts.cluster.changed = nil
			if code, _ := ask(ts, key, v, &other); wire.Code(code) != wire.InconsistentClusterID || len(ts.cluster.changed) != 0 {
				t.Errorf("key %d version %d: for another cluster %v, asked for %q", key, v, wire.Code(code), ts.cluster.changed)
			}
		})
	}
}
