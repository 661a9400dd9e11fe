package wire

import (
	"fmt"
	"math"
	"reflect"
	"testing"

	"github.com/weirmq/weir/integration/seeds"
)

// TestRoundTrip: decode(encode(x)) == x, for x filled at random. Fields that the
// version lacks come back with their defaults, so x is first put through once.
func TestRoundTrip(t *testing.T) {
	f := newFiller(uint64(seeds.For(t)))
	eachVersion(t, func(t *testing.T, a API, v int16) {
		for range oracleRounds {
			for _, fresh := range []func() Message{
				func() Message { return a.NewRequest() },
				func() Message { return a.NewResponse() },
			} {
				filled, x, y := fresh(), fresh(), fresh()
				f.message(filled)
				nameEverything(reflect.ValueOf(filled).Elem())
				decodeBody(t, a, v, x, encodeBody(t, a, v, filled))
				decodeBody(t, a, v, y, encodeBody(t, a, v, x))
				if !reflect.DeepEqual(x, y) {
					t.Fatalf("%T\n got %+v\nwant %+v", x, y, x)
				}
			}
		}
	})
}

// TestEveryFieldIsCoded: each field of each message survives the round trip in
// some version, so that none is forgotten in the code methods.
func TestEveryFieldIsCoded(t *testing.T) {
	f := newFiller(uint64(seeds.For(t)))
	survived := map[string]bool{}
	all := map[string]bool{}
	for _, a := range APIs() {
		for v := a.Min; v <= a.Max; v++ {
			for range oracleRounds {
				for _, pair := range [][2]Message{{a.NewRequest(), a.NewRequest()}, {a.NewResponse(), a.NewResponse()}} {
					f.message(pair[0])
					nameEverything(reflect.ValueOf(pair[0]).Elem())
					decodeBody(t, a, v, pair[1], encodeBody(t, a, v, pair[0]))
					note(reflect.ValueOf(pair[0]).Elem(), reflect.ValueOf(pair[1]).Elem(), all, survived)
				}
			}
		}
	}
	if len(all) < 100 {
		t.Fatalf("found only %d fields", len(all))
	}
	for name := range all {
		if !survived[name] {
			t.Errorf("%s never comes back", name)
		}
	}
}

func note(before, after reflect.Value, all, survived map[string]bool) {
	switch before.Kind() {
	case reflect.Struct:
		for i := range before.NumField() {
			name := before.Type().Name() + "." + before.Type().Field(i).Name
			if before.Type().Field(i).Name == "RecordsSize" {
				continue
			}
			all[name] = true
			b, a := before.Field(i), after.Field(i)
			if !b.IsZero() && reflect.DeepEqual(b.Interface(), a.Interface()) {
				survived[name] = true
			}
			note(b, a, all, survived)
		}
	case reflect.Slice:
		for i := range min(before.Len(), after.Len()) {
			note(before.Index(i), after.Index(i), all, survived)
		}
	case reflect.Pointer:
		if !before.IsNil() && !after.IsNil() {
			note(before.Elem(), after.Elem(), all, survived)
		}
	}
}

// TestDefaults: a field that a version lacks has the schema's default after
// decoding, although the message encoded held zeros.
func TestDefaults(t *testing.T) {
	for _, tc := range []struct {
		key   Key
		from  int16  // the first version that has the field
		field string // struct and field
		want  int64
	}{
		{KeyProduce, 5, "ProducePartitionResponse.LogStartOffset", -1},
		{KeyFetch, 7, "FetchRequest.SessionEpoch", -1},
		{KeyFetch, 9, "FetchPartition.CurrentLeaderEpoch", -1},
		{KeyFetch, 12, "FetchPartition.LastFetchedEpoch", -1},
		{KeyFetch, 5, "FetchPartition.LogStartOffset", -1},
		{KeyFetch, 18, "FetchPartition.HighWatermark", math.MaxInt64},
		{KeyFetch, 15, "FetchReplicaState.ReplicaID", -1},
		{KeyFetch, 15, "FetchReplicaState.ReplicaEpoch", -1},
		{KeyFetch, 5, "FetchPartitionResponse.LogStartOffset", -1},
		{KeyFetch, 11, "FetchPartitionResponse.PreferredReadReplica", -1},
		{KeyListOffsets, 4, "ListOffsetsPartition.CurrentLeaderEpoch", -1},
		{KeyListOffsets, 4, "ListOffsetsPartitionResponse.LeaderEpoch", -1},
		{KeyMetadata, 1, "MetadataResponse.ControllerID", -1},
		{KeyMetadata, 8, "MetadataResponse.ClusterAuthorizedOperations", math.MinInt32},
		{KeyMetadata, 8, "MetadataTopic.TopicAuthorizedOperations", math.MinInt32},
		{KeyMetadata, 7, "MetadataPartition.LeaderEpoch", -1},
		{KeyApiVersions, 5, "ApiVersionsRequest.NodeID", -1},
		{KeyApiVersions, 3, "ApiVersionsResponse.FinalizedFeaturesEpoch", -1},
		{KeyCreateTopics, 5, "CreatableTopicResult.NumPartitions", -1},
		{KeyCreateTopics, 5, "CreatableTopicResult.ReplicationFactor", -1},
		{KeyInitProducerID, 3, "InitProducerIDRequest.ProducerID", -1},
		{KeyInitProducerID, 3, "InitProducerIDRequest.ProducerEpoch", -1},
		{KeyDescribeCluster, 1, "DescribeClusterRequest.EndpointType", 1},
		{KeyDescribeCluster, 1, "DescribeClusterResponse.EndpointType", 1},
		{KeyOffsetCommit, 6, "OffsetCommitPartition.CommittedLeaderEpoch", -1},
		{KeyOffsetFetch, 5, "OffsetFetchResponsePartition.CommittedLeaderEpoch", -1},
		{KeyJoinGroup, 1, "JoinGroupRequest.RebalanceTimeoutMs", -1},
		{KeyDescribeGroups, 3, "DescribedGroup.AuthorizedOperations", math.MinInt32},
		{KeyOffsetForLeaderEpoch, 3, "OffsetForLeaderEpochRequest.ReplicaID", -2},
		{KeyDescribeLogDirs, 4, "DescribeLogDirsResult.TotalBytes", -1},
		{KeyDescribeLogDirs, 4, "DescribeLogDirsResult.UsableBytes", -1},
		{KeyDescribeQuorum, 1, "QuorumReplicaState.LastFetchTimestamp", -1},
		{KeyDescribeQuorum, 1, "QuorumReplicaState.LastCaughtUpTimestamp", -1},
		{KeyConsumerGroupDescribe, 1, "ConsumerGroupMember.MemberType", -1},
		{KeyListConfigResources, 1, "ConfigResource.ResourceType", 16},
	} {
		a, _ := Lookup(tc.key)
		checkDefault(t, a, a.Min, tc.from-1, tc.field, tc.want)
	}
}

// TestDefaultsBetween is the same for fields that later versions lack, or whose
// struct earlier versions lack.
func TestDefaultsBetween(t *testing.T) {
	for _, tc := range []struct {
		key         Key
		first, last int16 // the versions that lack the field, but have its struct
		field       string
		want        int64
	}{
		{KeyOffsetCommit, 5, 10, "OffsetCommitRequest.RetentionTimeMs", -1},
		{KeyOffsetFetch, 8, 8, "OffsetFetchRequestGroup.MemberEpoch", -1},
	} {
		a, _ := Lookup(tc.key)
		checkDefault(t, a, tc.first, tc.last, tc.field, tc.want)
	}
}

func checkDefault(t *testing.T, a API, first, last int16, field string, want int64) {
	for v := first; v <= last; v++ {
		t.Run(fmt.Sprintf("%s/%d", field, v), func(t *testing.T) {
			if got := fieldAfter(t, a, v, field); got != want {
				t.Errorf("got %d, want %d", got, want)
			}
		})
	}
}

// fieldAfter puts a request and a response whose arrays have one zero element
// each through the version, and gives the value of the field that comes back.
func fieldAfter(t *testing.T, a API, v int16, field string) int64 {
	for _, pair := range [][2]Message{{a.NewRequest(), a.NewRequest()}, {a.NewResponse(), a.NewResponse()}} {
		oneOfEach(reflect.ValueOf(pair[0]).Elem())
		decodeBody(t, a, v, pair[1], encodeBody(t, a, v, pair[0]))
		if got, ok := find(reflect.ValueOf(pair[1]).Elem(), field); ok {
			return got
		}
	}
	t.Fatalf("no message of %s holds %s", a.Name, field)
	return 0
}

// oneOfEach makes v zero, but with one such element in each slice.
func oneOfEach(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			oneOfEach(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		oneOfEach(v.Index(0))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		oneOfEach(v.Elem())
	default:
		v.SetZero()
	}
}

// find gives the number in the first field of that struct and name.
func find(v reflect.Value, field string) (int64, bool) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Name()+"."+v.Type().Field(i).Name == field {
				return v.Field(i).Int(), true
			}
			if n, ok := find(v.Field(i), field); ok {
				return n, true
			}
		}
	case reflect.Slice:
		if v.Len() > 0 {
			return find(v.Index(0), field)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return find(v.Elem(), field)
		}
	}
	return 0, false
}
