package wire

import (
	"math"
	"slices"
	"strconv"

	"github.com/weirmq/weir/wire/codec"
)

// Key is the number of an API. Each API's constant is in its own file.
type Key int16

// String is the API's name in Kafka's schema, or its number.
func (k Key) String() string {
	if a, ok := Lookup(k); ok {
		return a.Name
	}
	return "key " + strconv.Itoa(int(k))
}

// Message is a request or response body.
type Message interface {
	// code names the fields of the version that the Coder carries, in order.
	code(c *codec.Coder)
}

// Request is the body of a request.
type Request interface {
	Message
	Key() Key
}

// Response is the body of a response.
type Response interface {
	Message
	Key() Key
}

// never is the FlexibleFrom of an API without flexible versions.
const never = math.MaxInt16

// API is one row of the table of APIs.
type API struct {
	Key  Key
	Name string
	// Min and Max are the versions that decode and encode.
	Min, Max int16
	// AdvertisedMin is the least version that an ApiVersions response names. It is
	// below Min where clients draw wrong conclusions from a higher one.
	AdvertisedMin int16
	// FlexibleFrom is the first version with compact forms and tagged fields.
	FlexibleFrom int16
	// NewRequest and NewResponse make bodies that hold the schema's defaults.
	NewRequest  func() Request
	NewResponse func() Response
}

// Supports tells whether version v decodes and encodes.
func (a API) Supports(v int16) bool { return a.Min <= v && v <= a.Max }

// Flexible tells whether version v has compact forms and tagged fields.
func (a API) Flexible(v int16) bool { return v >= a.FlexibleFrom }

// requestHeader is the version of the request header that version v uses.
func (a API) requestHeader(v int16) int16 {
	if a.Flexible(v) {
		return 2
	}
	return 1
}

// responseHeader is the version of the response header that version v uses.
// ApiVersions has version 0 always, since a client must be able to read it
// before it knows what the broker speaks.
func (a API) responseHeader(v int16) int16 {
	if a.Flexible(v) && a.Key != KeyApiVersions {
		return 1
	}
	return 0
}

// apis is the table of APIs by rising key. It is never written.
var apis = [...]API{
	// Old librdkafka takes a minimum above 0 to mean that compression is not
	// supported, so Produce is advertised from 0 though refused below 3.
	{Key: KeyProduce, Name: "Produce", Min: 3, Max: 13, AdvertisedMin: 0, FlexibleFrom: 9,
		NewRequest:  func() Request { return new(ProduceRequest) },
		NewResponse: func() Response { return new(ProduceResponse) }},
	{Key: KeyFetch, Name: "Fetch", Min: 4, Max: 18, AdvertisedMin: 4, FlexibleFrom: 12,
		NewRequest:  func() Request { return NewFetchRequest() },
		NewResponse: func() Response { return new(FetchResponse) }},
	{Key: KeyListOffsets, Name: "ListOffsets", Min: 1, Max: 11, AdvertisedMin: 1, FlexibleFrom: 6,
		NewRequest:  func() Request { return NewListOffsetsRequest() },
		NewResponse: func() Response { return new(ListOffsetsResponse) }},
	{Key: KeyMetadata, Name: "Metadata", Min: 0, Max: 13, AdvertisedMin: 0, FlexibleFrom: 9,
		NewRequest:  func() Request { return NewMetadataRequest() },
		NewResponse: func() Response { return NewMetadataResponse() }},
	{Key: KeyOffsetCommit, Name: "OffsetCommit", Min: 2, Max: 10, AdvertisedMin: 2, FlexibleFrom: 8,
		NewRequest:  func() Request { return NewOffsetCommitRequest() },
		NewResponse: func() Response { return new(OffsetCommitResponse) }},
	{Key: KeyOffsetFetch, Name: "OffsetFetch", Min: 1, Max: 10, AdvertisedMin: 1, FlexibleFrom: 6,
		NewRequest:  func() Request { return new(OffsetFetchRequest) },
		NewResponse: func() Response { return new(OffsetFetchResponse) }},
	{Key: KeyFindCoordinator, Name: "FindCoordinator", Min: 0, Max: 6, AdvertisedMin: 0, FlexibleFrom: 3,
		NewRequest:  func() Request { return new(FindCoordinatorRequest) },
		NewResponse: func() Response { return new(FindCoordinatorResponse) }},
	{Key: KeyJoinGroup, Name: "JoinGroup", Min: 0, Max: 9, AdvertisedMin: 0, FlexibleFrom: 6,
		NewRequest:  func() Request { return NewJoinGroupRequest() },
		NewResponse: func() Response { return NewJoinGroupResponse() }},
	{Key: KeyHeartbeat, Name: "Heartbeat", Min: 0, Max: 4, AdvertisedMin: 0, FlexibleFrom: 4,
		NewRequest:  func() Request { return new(HeartbeatRequest) },
		NewResponse: func() Response { return new(HeartbeatResponse) }},
	{Key: KeyLeaveGroup, Name: "LeaveGroup", Min: 0, Max: 5, AdvertisedMin: 0, FlexibleFrom: 4,
		NewRequest:  func() Request { return new(LeaveGroupRequest) },
		NewResponse: func() Response { return new(LeaveGroupResponse) }},
	{Key: KeySyncGroup, Name: "SyncGroup", Min: 0, Max: 5, AdvertisedMin: 0, FlexibleFrom: 4,
		NewRequest:  func() Request { return new(SyncGroupRequest) },
		NewResponse: func() Response { return new(SyncGroupResponse) }},
	{Key: KeyDescribeGroups, Name: "DescribeGroups", Min: 0, Max: 6, AdvertisedMin: 0, FlexibleFrom: 5,
		NewRequest:  func() Request { return new(DescribeGroupsRequest) },
		NewResponse: func() Response { return new(DescribeGroupsResponse) }},
	{Key: KeyListGroups, Name: "ListGroups", Min: 0, Max: 5, AdvertisedMin: 0, FlexibleFrom: 3,
		NewRequest:  func() Request { return new(ListGroupsRequest) },
		NewResponse: func() Response { return new(ListGroupsResponse) }},
	{Key: KeyApiVersions, Name: "ApiVersions", Min: 0, Max: 5, AdvertisedMin: 0, FlexibleFrom: 3,
		NewRequest:  func() Request { return NewApiVersionsRequest() },
		NewResponse: func() Response { return NewApiVersionsResponse() }},
	{Key: KeyCreateTopics, Name: "CreateTopics", Min: 2, Max: 7, AdvertisedMin: 2, FlexibleFrom: 5,
		NewRequest:  func() Request { return NewCreateTopicsRequest() },
		NewResponse: func() Response { return new(CreateTopicsResponse) }},
	{Key: KeyDeleteTopics, Name: "DeleteTopics", Min: 1, Max: 6, AdvertisedMin: 1, FlexibleFrom: 4,
		NewRequest:  func() Request { return new(DeleteTopicsRequest) },
		NewResponse: func() Response { return new(DeleteTopicsResponse) }},
	{Key: KeyDeleteRecords, Name: "DeleteRecords", Min: 0, Max: 2, AdvertisedMin: 0, FlexibleFrom: 2,
		NewRequest:  func() Request { return new(DeleteRecordsRequest) },
		NewResponse: func() Response { return new(DeleteRecordsResponse) }},
	// Version 6 (two-phase commit) is unstable in Kafka and not spoken here.
	{Key: KeyInitProducerID, Name: "InitProducerId", Min: 0, Max: 5, AdvertisedMin: 0, FlexibleFrom: 2,
		NewRequest:  func() Request { return NewInitProducerIDRequest() },
		NewResponse: func() Response { return NewInitProducerIDResponse() }},
	{Key: KeyOffsetForLeaderEpoch, Name: "OffsetForLeaderEpoch", Min: 2, Max: 4, AdvertisedMin: 2, FlexibleFrom: 4,
		NewRequest:  func() Request { return NewOffsetForLeaderEpochRequest() },
		NewResponse: func() Response { return new(OffsetForLeaderEpochResponse) }},
	{Key: KeyDescribeConfigs, Name: "DescribeConfigs", Min: 1, Max: 4, AdvertisedMin: 1, FlexibleFrom: 4,
		NewRequest:  func() Request { return new(DescribeConfigsRequest) },
		NewResponse: func() Response { return new(DescribeConfigsResponse) }},
	{Key: KeyAlterConfigs, Name: "AlterConfigs", Min: 0, Max: 2, AdvertisedMin: 0, FlexibleFrom: 2,
		NewRequest:  func() Request { return new(AlterConfigsRequest) },
		NewResponse: func() Response { return new(AlterConfigsResponse) }},
	{Key: KeyDescribeLogDirs, Name: "DescribeLogDirs", Min: 1, Max: 5, AdvertisedMin: 1, FlexibleFrom: 2,
		NewRequest:  func() Request { return new(DescribeLogDirsRequest) },
		NewResponse: func() Response { return new(DescribeLogDirsResponse) }},
	{Key: KeyCreatePartitions, Name: "CreatePartitions", Min: 0, Max: 3, AdvertisedMin: 0, FlexibleFrom: 2,
		NewRequest:  func() Request { return new(CreatePartitionsRequest) },
		NewResponse: func() Response { return new(CreatePartitionsResponse) }},
	{Key: KeyDeleteGroups, Name: "DeleteGroups", Min: 0, Max: 3, AdvertisedMin: 0, FlexibleFrom: 2,
		NewRequest:  func() Request { return new(DeleteGroupsRequest) },
		NewResponse: func() Response { return new(DeleteGroupsResponse) }},
	{Key: KeyElectLeaders, Name: "ElectLeaders", Min: 0, Max: 2, AdvertisedMin: 0, FlexibleFrom: 2,
		NewRequest:  func() Request { return NewElectLeadersRequest() },
		NewResponse: func() Response { return new(ElectLeadersResponse) }},
	{Key: KeyIncrementalAlterConfigs, Name: "IncrementalAlterConfigs", Min: 0, Max: 1, AdvertisedMin: 0, FlexibleFrom: 1,
		NewRequest:  func() Request { return new(IncrementalAlterConfigsRequest) },
		NewResponse: func() Response { return new(IncrementalAlterConfigsResponse) }},
	{Key: KeyAlterPartitionReassignments, Name: "AlterPartitionReassignments", Min: 0, Max: 1, AdvertisedMin: 0, FlexibleFrom: 0,
		NewRequest:  func() Request { return NewAlterPartitionReassignmentsRequest() },
		NewResponse: func() Response { return NewAlterPartitionReassignmentsResponse() }},
	{Key: KeyListPartitionReassignments, Name: "ListPartitionReassignments", Min: 0, Max: 0, AdvertisedMin: 0, FlexibleFrom: 0,
		NewRequest:  func() Request { return NewListPartitionReassignmentsRequest() },
		NewResponse: func() Response { return new(ListPartitionReassignmentsResponse) }},
	{Key: KeyOffsetDelete, Name: "OffsetDelete", Min: 0, Max: 0, AdvertisedMin: 0, FlexibleFrom: never,
		NewRequest:  func() Request { return new(OffsetDeleteRequest) },
		NewResponse: func() Response { return new(OffsetDeleteResponse) }},
	{Key: KeyDescribeQuorum, Name: "DescribeQuorum", Min: 0, Max: 2, AdvertisedMin: 0, FlexibleFrom: 0,
		NewRequest:  func() Request { return new(DescribeQuorumRequest) },
		NewResponse: func() Response { return new(DescribeQuorumResponse) }},
	{Key: KeyDescribeCluster, Name: "DescribeCluster", Min: 0, Max: 2, AdvertisedMin: 0, FlexibleFrom: 0,
		NewRequest:  func() Request { return NewDescribeClusterRequest() },
		NewResponse: func() Response { return NewDescribeClusterResponse() }},
	{Key: KeyDescribeProducers, Name: "DescribeProducers", Min: 0, Max: 0, AdvertisedMin: 0, FlexibleFrom: 0,
		NewRequest:  func() Request { return new(DescribeProducersRequest) },
		NewResponse: func() Response { return new(DescribeProducersResponse) }},
	{Key: KeyUnregisterBroker, Name: "UnregisterBroker", Min: 0, Max: 0, AdvertisedMin: 0, FlexibleFrom: 0,
		NewRequest:  func() Request { return new(UnregisterBrokerRequest) },
		NewResponse: func() Response { return new(UnregisterBrokerResponse) }},
	{Key: KeyConsumerGroupHeartbeat, Name: "ConsumerGroupHeartbeat", Min: 0, Max: 1, AdvertisedMin: 0, FlexibleFrom: 0,
		NewRequest:  func() Request { return NewConsumerGroupHeartbeatRequest() },
		NewResponse: func() Response { return new(ConsumerGroupHeartbeatResponse) }},
	{Key: KeyConsumerGroupDescribe, Name: "ConsumerGroupDescribe", Min: 0, Max: 1, AdvertisedMin: 0, FlexibleFrom: 0,
		NewRequest:  func() Request { return new(ConsumerGroupDescribeRequest) },
		NewResponse: func() Response { return new(ConsumerGroupDescribeResponse) }},
	{Key: KeyListConfigResources, Name: "ListConfigResources", Min: 0, Max: 1, AdvertisedMin: 0, FlexibleFrom: 0,
		NewRequest:  func() Request { return new(ListConfigResourcesRequest) },
		NewResponse: func() Response { return new(ListConfigResourcesResponse) }},
	{Key: KeyDescribeTopicPartitions, Name: "DescribeTopicPartitions", Min: 0, Max: 0, AdvertisedMin: 0, FlexibleFrom: 0,
		NewRequest:  func() Request { return NewDescribeTopicPartitionsRequest() },
		NewResponse: func() Response { return new(DescribeTopicPartitionsResponse) }},
	{Key: KeyAddRaftVoter, Name: "AddRaftVoter", Min: 0, Max: 1, AdvertisedMin: 0, FlexibleFrom: 0,
		NewRequest:  func() Request { return NewAddRaftVoterRequest() },
		NewResponse: func() Response { return new(AddRaftVoterResponse) }},
	{Key: KeyRemoveRaftVoter, Name: "RemoveRaftVoter", Min: 0, Max: 0, AdvertisedMin: 0, FlexibleFrom: 0,
		NewRequest:  func() Request { return new(RemoveRaftVoterRequest) },
		NewResponse: func() Response { return new(RemoveRaftVoterResponse) }},
}

// APIs gives the table of APIs by rising key.
func APIs() []API { return slices.Clone(apis[:]) }

// Lookup gives the row of k.
func Lookup(k Key) (API, bool) {
	i, ok := slices.BinarySearchFunc(apis[:], k, func(a API, k Key) int { return int(a.Key) - int(k) })
	if !ok {
		return API{}, false
	}
	return apis[i], true
}
