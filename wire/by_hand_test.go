package wire

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"

	"github.com/weirmq/weir/wire/codec"
)

// The frames of this file are written byte by byte from the protocol's
// definition, as those of TestByHand.

func TestOffsetsByHand(t *testing.T) {
	for name, tc := range map[string]struct {
		frame string
		want  Request
	}{
		"OffsetCommit 2, as kafka-go commits": {
			"0008 0002 00000001 0000 0001 67 ffffffff 0000 ffffffffffffffff 00000001 0001 74 00000001 00000003 000000000000002a 0000",
			&OffsetCommitRequest{GroupID: "g", GenerationIDOrMemberEpoch: -1, RetentionTimeMs: -1, Topics: []OffsetCommitTopic{{Name: "t",
				Partitions: []OffsetCommitPartition{{PartitionIndex: 3, CommittedLeaderEpoch: -1, CommittedOffset: 42, CommittedMetadata: pointer("")}}}}}},
		"OffsetCommit 10, by a member of the consumer protocol": {
			`0008 000a 00000002 0000 00 02 67 00000005 02 6d 00
			 02 000102030405060708090a0b0c0d0e0f 02 00000003 000000000000002a 00000007 00 00 00 00`,
			&OffsetCommitRequest{GroupID: "g", GenerationIDOrMemberEpoch: 5, MemberID: "m", RetentionTimeMs: -1, Topics: []OffsetCommitTopic{{
				TopicID:    [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
				Partitions: []OffsetCommitPartition{{PartitionIndex: 3, CommittedLeaderEpoch: 7, CommittedOffset: 42}}}}}},
		"OffsetFetch 1, as kafka-go asks": {
			"0009 0001 00000003 0000 0001 67 00000001 0001 74 00000002 00000000 00000001",
			&OffsetFetchRequest{GroupID: "g", Topics: []OffsetFetchRequestTopic{{Name: "t", PartitionIndexes: []int32{0, 1}}}}},
		"OffsetFetch 2, all topics": {
			"0009 0002 00000004 0000 0001 67 ffffffff",
			&OffsetFetchRequest{GroupID: "g"}},
		"OffsetFetch 8, all topics, stable": {
			"0009 0008 00000005 0000 00 02 02 67 00 00 01 00",
			&OffsetFetchRequest{RequireStable: true, Groups: []OffsetFetchRequestGroup{{GroupID: "g", MemberEpoch: -1}}}},
		"OffsetDelete 0": {
			"002f 0000 00000006 0000 0001 67 00000001 0001 74 00000001 00000003",
			&OffsetDeleteRequest{GroupID: "g", Topics: []OffsetDeleteTopic{{Name: "t", Partitions: []OffsetDeletePartition{{PartitionIndex: 3}}}}}},
		"OffsetForLeaderEpoch 4, by a consumer": {
			"0017 0004 00000007 0000 00 ffffffff 02 02 74 02 00000001 00000005 00000004 00 00 00",
			&OffsetForLeaderEpochRequest{ReplicaID: -1, Topics: []OffsetForLeaderTopic{{Topic: "t",
				Partitions: []OffsetForLeaderPartition{{Partition: 1, CurrentLeaderEpoch: 5, LeaderEpoch: 4}}}}}},
	} {
		t.Run(name, func(t *testing.T) { checkByHand(t, tc.frame, tc.want) })
	}
}

func TestGroupsByHand(t *testing.T) {
	for name, tc := range map[string]struct {
		frame string
		want  Request
	}{
		"FindCoordinator 0":      {"000a 0000 00000001 0000 0001 67", &FindCoordinatorRequest{CoordinatorKey: "g"}},
		"FindCoordinator 6":      {"000a 0006 00000002 0000 00 00 02 02 67 00", &FindCoordinatorRequest{CoordinatorKeys: []string{"g"}}},
		"FindCoordinator 2, txn": {"000a 0002 00000003 0000 0001 78 01", &FindCoordinatorRequest{CoordinatorKey: "x", KeyType: CoordinatorTransaction}},
		"JoinGroup 0, without a rebalance timeout": {
			"000b 0000 00000004 0000 0001 67 00007530 0000 0008 636f6e73756d6572 00000001 0005 72616e6765 00000002 0001",
			&JoinGroupRequest{GroupID: "g", SessionTimeoutMs: 30000, RebalanceTimeoutMs: -1, ProtocolType: "consumer",
				Protocols: []JoinGroupProtocol{{Name: "range", Metadata: []byte{0, 1}}}}},
		"JoinGroup 9, static": {
			"000b 0009 00000005 0000 00 02 67 00007530 0000ea60 01 02 69 09 636f6e73756d6572 02 06 72616e6765 03 0001 00 02 72 00",
			&JoinGroupRequest{GroupID: "g", SessionTimeoutMs: 30000, RebalanceTimeoutMs: 60000, GroupInstanceID: pointer("i"), ProtocolType: "consumer",
				Protocols: []JoinGroupProtocol{{Name: "range", Metadata: []byte{0, 1}}}, Reason: pointer("r")}},
		"SyncGroup 0, from the leader": {
			"000e 0000 00000006 0000 0001 67 00000001 0001 6d 00000001 0001 6d 00000001 07",
			&SyncGroupRequest{GroupID: "g", GenerationID: 1, MemberID: "m", Assignments: []SyncGroupAssignment{{MemberID: "m", Assignment: []byte{7}}}}},
		"Heartbeat 0":  {"000c 0000 00000007 0000 0001 67 00000001 0001 6d", &HeartbeatRequest{GroupID: "g", GenerationID: 1, MemberID: "m"}},
		"LeaveGroup 0": {"000d 0000 00000008 0000 0001 67 0001 6d", &LeaveGroupRequest{GroupID: "g", MemberID: "m"}},
		"LeaveGroup 5": {
			"000d 0005 00000009 0000 00 02 67 02 02 6d 00 02 72 00 00",
			&LeaveGroupRequest{GroupID: "g", Members: []MemberIdentity{{MemberID: "m", Reason: pointer("r")}}}},
		"ConsumerGroupHeartbeat 1, joining": {
			"0044 0001 0000000a 0000 00 02 67 02 6d 00000000 00 00 0000ea60 02 02 74 00 00 01 00",
			&ConsumerGroupHeartbeatRequest{GroupID: "g", MemberID: "m", RebalanceTimeoutMs: 60000,
				SubscribedTopicNames: []string{"t"}, TopicPartitions: []ConsumerGroupHeartbeatTopicPartitions{}}},
		"ConsumerGroupHeartbeat 0, nothing new": {
			"0044 0000 0000000b 0000 00 02 67 02 6d 00000005 00 00 ffffffff 00 00 00 00",
			&ConsumerGroupHeartbeatRequest{GroupID: "g", MemberID: "m", MemberEpoch: 5, RebalanceTimeoutMs: -1}},
		"ListGroups 5": {
			"0010 0005 0000000c 0000 00 02 07 537461626c65 01 00",
			&ListGroupsRequest{StatesFilter: []string{"Stable"}, TypesFilter: []string{}}},
	} {
		t.Run(name, func(t *testing.T) { checkByHand(t, tc.frame, tc.want) })
	}
}

func TestAdminByHand(t *testing.T) {
	for name, tc := range map[string]struct {
		frame string
		want  Request
	}{
		"DescribeConfigs 4, all of a topic": {
			"0020 0004 00000001 0000 00 02 02 02 74 00 00 01 00 00",
			&DescribeConfigsRequest{IncludeSynonyms: true, Resources: []DescribeConfigsResource{{ResourceType: ResourceTopic, ResourceName: "t"}}}},
		"AlterConfigs 0": {
			"0021 0000 00000002 0000 00000001 02 0001 74 00000001 0001 6b ffff 01",
			&AlterConfigsRequest{ValidateOnly: true, Resources: []AlterConfigsResource{{ResourceType: ResourceTopic, ResourceName: "t",
				Configs: []AlterableConfig{{Name: "k"}}}}}},
		"IncrementalAlterConfigs 1": {
			"002c 0001 00000003 0000 00 02 02 02 74 02 02 6b 02 02 76 00 00 00 00",
			&IncrementalAlterConfigsRequest{Resources: []IncrementalAlterConfigsResource{{ResourceType: ResourceTopic, ResourceName: "t",
				Configs: []IncrementalAlterableConfig{{Name: "k", ConfigOperation: ConfigAppend, Value: pointer("v")}}}}}},
		"CreatePartitions 0, placed by the broker": {
			"0025 0000 00000004 0000 00000001 0001 74 00000006 ffffffff 00007530 00",
			&CreatePartitionsRequest{TimeoutMs: 30000, Topics: []CreatePartitionsTopic{{Name: "t", Count: 6}}}},
		"DeleteRecords 2, to the high watermark": {
			"0015 0002 00000005 0000 00 02 02 74 02 00000001 ffffffffffffffff 00 00 00007530 00",
			&DeleteRecordsRequest{TimeoutMs: 30000, Topics: []DeleteRecordsTopic{{Name: "t", Partitions: []DeleteRecordsPartition{{PartitionIndex: 1, Offset: -1}}}}}},
		"ElectLeaders 2, all": {
			"002b 0002 00000006 0000 00 01 00 0000ea60 00",
			&ElectLeadersRequest{ElectionType: ElectionUnclean, TimeoutMs: 60000}},
		"AlterPartitionReassignments 1, one moves and one is cancelled": {
			"002d 0001 0000000b 0000 00 0000ea60 00 02 02 74 03 00000000 03 00000002 00000003 00 00000001 00 00 00 00",
			&AlterPartitionReassignmentsRequest{TimeoutMs: 60000, Topics: []ReassignableTopic{{Name: "t",
				Partitions: []ReassignablePartition{{Replicas: []int32{2, 3}}, {PartitionIndex: 1}}}}}},
		"ListPartitionReassignments 0, all": {
			"002e 0000 0000000c 0000 00 0000ea60 00 00",
			&ListPartitionReassignmentsRequest{TimeoutMs: 60000}},
		"DescribeLogDirs 1, all": {"0023 0001 00000007 0000 ffffffff", new(DescribeLogDirsRequest)},
		"DescribeQuorum 2": {
			"0037 0002 00000008 0000 00 02 02 74 02 00000000 00 00 00",
			&DescribeQuorumRequest{Topics: []DescribeQuorumTopic{{TopicName: "t", Partitions: []DescribeQuorumPartition{{}}}}}},
		"ListConfigResources 0": {"004a 0000 00000009 0000 00 00", new(ListConfigResourcesRequest)},
		"ListConfigResources 1": {
			"004a 0001 0000000a 0000 00 03 02 20 00",
			&ListConfigResourcesRequest{ResourceTypes: []int8{ResourceTopic, ResourceGroup}}},
	} {
		t.Run(name, func(t *testing.T) { checkByHand(t, tc.frame, tc.want) })
	}
}

func TestResponsesByHand(t *testing.T) {
	refused := NewJoinGroupResponse()
	refused.ErrorCode, refused.MemberID = MemberIDRequired, "m"
	for name, tc := range map[string]struct {
		version int16
		body    string // what follows the length
		from    Response
	}{
		"FindCoordinator 0": {0, "00000001 0000 00000003 0001 68 00002384", &FindCoordinatorResponse{NodeID: 3, Host: "h", Port: 9092}},
		"FindCoordinator 4": {4, "00000001 00 00000000 02 02 67 00000003 02 68 00002384 0000 00 00 00",
			&FindCoordinatorResponse{Coordinators: []Coordinator{{Key: "g", NodeID: 3, Host: "h", Port: 9092}}}},
		"OffsetFetch 1, none stored": {1, "00000001 00000001 0001 74 00000001 00000003 ffffffffffffffff 0000 0000",
			&OffsetFetchResponse{Topics: []OffsetFetchResponseTopic{{Name: "t",
				Partitions: []OffsetFetchResponsePartition{{PartitionIndex: 3, CommittedOffset: -1, Metadata: pointer("")}}}}}},
		"JoinGroup 4, refused":       {4, "00000001 00000000 004f ffffffff 0000 0000 0001 6d 00000000", refused},
		"JoinGroup 6, refused":       {6, "00000001 00 00000000 004f ffffffff 01 01 02 6d 01 00", refused},
		"JoinGroup 7, refused":       {7, "00000001 00 00000000 004f ffffffff 00 00 01 02 6d 01 00", refused},
		"SyncGroup 0, no assignment": {0, "00000001 001b 00000000", &SyncGroupResponse{ErrorCode: RebalanceInProgress}},
		"ConsumerGroupHeartbeat 0, nothing new": {0, "00000001 00 00000000 0000 00 02 6d 00000005 00001388 ff 00",
			&ConsumerGroupHeartbeatResponse{MemberID: pointer("m"), MemberEpoch: 5, HeartbeatIntervalMs: 5000}},
	} {
		t.Run(name, func(t *testing.T) {
			want := unhex(t, tc.body)
			head := ResponseHead{Key: tc.from.Key(), Version: tc.version, CorrelationID: 1}
			got, _, err := EncodeResponse(nil, head, tc.from)
			if err != nil || !bytes.Equal(got, append(binary.BigEndian.AppendUint32(nil, uint32(len(want))), want...)) {
				t.Fatalf("got %x, %v\nwant %x", got, err, want)
			}
			if _, _, err := DecodeResponse(want, head.Key, head.Version, codec.Budget(len(want))); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestJoinGroupWithoutProtocol: a response that names no protocol can be sent in
// every version, and is read as naming none.
func TestJoinGroupWithoutProtocol(t *testing.T) {
	a, _ := Lookup(KeyJoinGroup)
	for v := a.Min; v <= a.Max; v++ {
		got, want := NewJoinGroupResponse(), NewJoinGroupResponse()
		decodeBody(t, a, v, got, encodeBody(t, a, v, want))
		if want.Members = []JoinGroupMember{}; v < 7 {
			want.ProtocolName = pointer("")
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("version %d: got %+v, want %+v", v, got, want)
		}
	}
}
