package wire

import "strings"

// Code is an error code of the protocol. It is an error, but None is one too:
// use Err where an error that may be absent is meant.
type Code int16

// The error codes, with the names that Kafka has for them.
const (
	UnknownServerError                     Code = -1
	None                                   Code = 0
	OffsetOutOfRange                       Code = 1
	CorruptMessage                         Code = 2
	UnknownTopicOrPartition                Code = 3
	InvalidFetchSize                       Code = 4
	LeaderNotAvailable                     Code = 5
	NotLeaderOrFollower                    Code = 6
	RequestTimedOut                        Code = 7
	BrokerNotAvailable                     Code = 8
	ReplicaNotAvailable                    Code = 9
	MessageTooLarge                        Code = 10
	StaleControllerEpoch                   Code = 11
	OffsetMetadataTooLarge                 Code = 12
	NetworkException                       Code = 13
	CoordinatorLoadInProgress              Code = 14
	CoordinatorNotAvailable                Code = 15
	NotCoordinator                         Code = 16
	InvalidTopic                           Code = 17
	RecordListTooLarge                     Code = 18
	NotEnoughReplicas                      Code = 19
	NotEnoughReplicasAfterAppend           Code = 20
	InvalidRequiredAcks                    Code = 21
	IllegalGeneration                      Code = 22
	InconsistentGroupProtocol              Code = 23
	InvalidGroupID                         Code = 24
	UnknownMemberID                        Code = 25
	InvalidSessionTimeout                  Code = 26
	RebalanceInProgress                    Code = 27
	InvalidCommitOffsetSize                Code = 28
	TopicAuthorizationFailed               Code = 29
	GroupAuthorizationFailed               Code = 30
	ClusterAuthorizationFailed             Code = 31
	InvalidTimestamp                       Code = 32
	UnsupportedSASLMechanism               Code = 33
	IllegalSASLState                       Code = 34
	UnsupportedVersion                     Code = 35
	TopicAlreadyExists                     Code = 36
	InvalidPartitions                      Code = 37
	InvalidReplicationFactor               Code = 38
	InvalidReplicaAssignment               Code = 39
	InvalidConfig                          Code = 40
	NotController                          Code = 41
	InvalidRequest                         Code = 42
	UnsupportedForMessageFormat            Code = 43
	PolicyViolation                        Code = 44
	OutOfOrderSequenceNumber               Code = 45
	DuplicateSequenceNumber                Code = 46
	InvalidProducerEpoch                   Code = 47
	InvalidTxnState                        Code = 48
	InvalidProducerIDMapping               Code = 49
	InvalidTransactionTimeout              Code = 50
	ConcurrentTransactions                 Code = 51
	TransactionCoordinatorFenced           Code = 52
	TransactionalIDAuthorizationFailed     Code = 53
	SecurityDisabled                       Code = 54
	OperationNotAttempted                  Code = 55
	KafkaStorageError                      Code = 56
	LogDirNotFound                         Code = 57
	SASLAuthenticationFailed               Code = 58
	UnknownProducerID                      Code = 59
	ReassignmentInProgress                 Code = 60
	DelegationTokenAuthDisabled            Code = 61
	DelegationTokenNotFound                Code = 62
	DelegationTokenOwnerMismatch           Code = 63
	DelegationTokenRequestNotAllowed       Code = 64
	DelegationTokenAuthorizationFailed     Code = 65
	DelegationTokenExpired                 Code = 66
	InvalidPrincipalType                   Code = 67
	NonEmptyGroup                          Code = 68
	GroupIDNotFound                        Code = 69
	FetchSessionIDNotFound                 Code = 70
	InvalidFetchSessionEpoch               Code = 71
	ListenerNotFound                       Code = 72
	TopicDeletionDisabled                  Code = 73
	FencedLeaderEpoch                      Code = 74
	UnknownLeaderEpoch                     Code = 75
	UnsupportedCompressionType             Code = 76
	StaleBrokerEpoch                       Code = 77
	OffsetNotAvailable                     Code = 78
	MemberIDRequired                       Code = 79
	PreferredLeaderNotAvailable            Code = 80
	GroupMaxSizeReached                    Code = 81
	FencedInstanceID                       Code = 82
	EligibleLeadersNotAvailable            Code = 83
	ElectionNotNeeded                      Code = 84
	NoReassignmentInProgress               Code = 85
	GroupSubscribedToTopic                 Code = 86
	InvalidRecord                          Code = 87
	UnstableOffsetCommit                   Code = 88
	ThrottlingQuotaExceeded                Code = 89
	ProducerFenced                         Code = 90
	ResourceNotFound                       Code = 91
	DuplicateResource                      Code = 92
	UnacceptableCredential                 Code = 93
	InconsistentVoterSet                   Code = 94
	InvalidUpdateVersion                   Code = 95
	FeatureUpdateFailed                    Code = 96
	PrincipalDeserializationFailure        Code = 97
	SnapshotNotFound                       Code = 98
	PositionOutOfRange                     Code = 99
	UnknownTopicID                         Code = 100
	DuplicateBrokerRegistration            Code = 101
	BrokerIDNotRegistered                  Code = 102
	InconsistentTopicID                    Code = 103
	InconsistentClusterID                  Code = 104
	TransactionalIDNotFound                Code = 105
	FetchSessionTopicIDError               Code = 106
	IneligibleReplica                      Code = 107
	NewLeaderElected                       Code = 108
	OffsetMovedToTieredStorage             Code = 109
	FencedMemberEpoch                      Code = 110
	UnreleasedInstanceID                   Code = 111
	UnsupportedAssignor                    Code = 112
	StaleMemberEpoch                       Code = 113
	MismatchedEndpointType                 Code = 114
	UnsupportedEndpointType                Code = 115
	UnknownControllerID                    Code = 116
	UnknownSubscriptionID                  Code = 117
	TelemetryTooLarge                      Code = 118
	InvalidRegistration                    Code = 119
	TransactionAbortable                   Code = 120
	InvalidRecordState                     Code = 121
	ShareSessionNotFound                   Code = 122
	InvalidShareSessionEpoch               Code = 123
	FencedStateEpoch                       Code = 124
	InvalidVoterKey                        Code = 125
	DuplicateVoter                         Code = 126
	VoterNotFound                          Code = 127
	InvalidRegularExpression               Code = 128
	RebootstrapRequired                    Code = 129
	StreamsInvalidTopology                 Code = 130
	StreamsInvalidTopologyEpoch            Code = 131
	StreamsTopologyFenced                  Code = 132
	ShareSessionLimitReached               Code = 133
	GroupDeletionFailed                    Code = 134
	StreamsTopologyDescriptionUpdateFailed Code = 135
	ControllerIDNotRegistered              Code = 136
)

// codeRow is what is known of one error code.
type codeRow struct {
	name, message string
	retriable     bool
}

// unexpected is the row of UnknownServerError, and of codes that are not known.
var unexpected = codeRow{name: "UNKNOWN_SERVER_ERROR", message: "the server met an error it did not expect"}

// codes holds the rows of the codes from 0 on. It is never written.
var codes = [...]codeRow{
	None:                                   {"NONE", "no error", false},
	OffsetOutOfRange:                       {"OFFSET_OUT_OF_RANGE", "the offset lies outside the log", false},
	CorruptMessage:                         {"CORRUPT_MESSAGE", "a record batch is damaged or malformed", true},
	UnknownTopicOrPartition:                {"UNKNOWN_TOPIC_OR_PARTITION", "the topic or partition is not known here", true},
	InvalidFetchSize:                       {"INVALID_FETCH_SIZE", "the fetch size is not valid", false},
	LeaderNotAvailable:                     {"LEADER_NOT_AVAILABLE", "the partition has no leader at the moment", true},
	NotLeaderOrFollower:                    {"NOT_LEADER_OR_FOLLOWER", "this broker does not lead the partition, or holds no replica of it", true},
	RequestTimedOut:                        {"REQUEST_TIMED_OUT", "the request was not finished in time", true},
	BrokerNotAvailable:                     {"BROKER_NOT_AVAILABLE", "the broker is not available", false},
	ReplicaNotAvailable:                    {"REPLICA_NOT_AVAILABLE", "the replica is not available", true},
	MessageTooLarge:                        {"MESSAGE_TOO_LARGE", "a record batch is larger than the broker accepts", false},
	StaleControllerEpoch:                   {"STALE_CONTROLLER_EPOCH", "another controller has taken over", false},
	OffsetMetadataTooLarge:                 {"OFFSET_METADATA_TOO_LARGE", "the metadata of a committed offset is too large", false},
	NetworkException:                       {"NETWORK_EXCEPTION", "the connection ended before the response", true},
	CoordinatorLoadInProgress:              {"COORDINATOR_LOAD_IN_PROGRESS", "the coordinator is still loading its state", true},
	CoordinatorNotAvailable:                {"COORDINATOR_NOT_AVAILABLE", "there is no coordinator at the moment", true},
	NotCoordinator:                         {"NOT_COORDINATOR", "this broker is not the coordinator", true},
	InvalidTopic:                           {"INVALID_TOPIC_EXCEPTION", "the topic's name, or what is done to the topic, is not valid", false},
	RecordListTooLarge:                     {"RECORD_LIST_TOO_LARGE", "a record batch is larger than a segment", false},
	NotEnoughReplicas:                      {"NOT_ENOUGH_REPLICAS", "fewer replicas are in sync than the topic requires; nothing was written", true},
	NotEnoughReplicasAfterAppend:           {"NOT_ENOUGH_REPLICAS_AFTER_APPEND", "the records were written, but to fewer in-sync replicas than the topic requires", true},
	InvalidRequiredAcks:                    {"INVALID_REQUIRED_ACKS", "acks must be -1, 0 or 1", false},
	IllegalGeneration:                      {"ILLEGAL_GENERATION", "the group's generation is another", false},
	InconsistentGroupProtocol:              {"INCONSISTENT_GROUP_PROTOCOL", "the member shares no protocol with the group, or names none", false},
	InvalidGroupID:                         {"INVALID_GROUP_ID", "the group id is not valid", false},
	UnknownMemberID:                        {"UNKNOWN_MEMBER_ID", "the group has no such member", false},
	InvalidSessionTimeout:                  {"INVALID_SESSION_TIMEOUT", "the session timeout is outside the broker's bounds", false},
	RebalanceInProgress:                    {"REBALANCE_IN_PROGRESS", "the group is rebalancing; join again", false},
	InvalidCommitOffsetSize:                {"INVALID_COMMIT_OFFSET_SIZE", "the committed offset data is too large", false},
	TopicAuthorizationFailed:               {"TOPIC_AUTHORIZATION_FAILED", "not authorized for the topic", false},
	GroupAuthorizationFailed:               {"GROUP_AUTHORIZATION_FAILED", "not authorized for the group", false},
	ClusterAuthorizationFailed:             {"CLUSTER_AUTHORIZATION_FAILED", "not authorized for the cluster", false},
	InvalidTimestamp:                       {"INVALID_TIMESTAMP", "a record's timestamp is outside the topic's bounds", false},
	UnsupportedSASLMechanism:               {"UNSUPPORTED_SASL_MECHANISM", "the SASL mechanism is not supported", false},
	IllegalSASLState:                       {"ILLEGAL_SASL_STATE", "the request does not fit the state of authentication", false},
	UnsupportedVersion:                     {"UNSUPPORTED_VERSION", "the version of the API is not supported", false},
	TopicAlreadyExists:                     {"TOPIC_ALREADY_EXISTS", "a topic of that name exists", false},
	InvalidPartitions:                      {"INVALID_PARTITIONS", "the number of partitions is not valid", false},
	InvalidReplicationFactor:               {"INVALID_REPLICATION_FACTOR", "the replication factor is below 1 or above the number of brokers", false},
	InvalidReplicaAssignment:               {"INVALID_REPLICA_ASSIGNMENT", "the replica assignment is not valid", false},
	InvalidConfig:                          {"INVALID_CONFIG", "a config is not valid", false},
	NotController:                          {"NOT_CONTROLLER", "this broker is not the controller", true},
	InvalidRequest:                         {"INVALID_REQUEST", "the request contradicts itself or the protocol", false},
	UnsupportedForMessageFormat:            {"UNSUPPORTED_FOR_MESSAGE_FORMAT", "the log's message format does not allow the request", false},
	PolicyViolation:                        {"POLICY_VIOLATION", "a policy of the cluster forbids the request", false},
	OutOfOrderSequenceNumber:               {"OUT_OF_ORDER_SEQUENCE_NUMBER", "a producer's sequence number does not follow the one before", false},
	DuplicateSequenceNumber:                {"DUPLICATE_SEQUENCE_NUMBER", "a producer's sequence number came twice", false},
	InvalidProducerEpoch:                   {"INVALID_PRODUCER_EPOCH", "the producer's epoch is an old one", false},
	InvalidTxnState:                        {"INVALID_TXN_STATE", "the state of the transaction does not allow the request", false},
	InvalidProducerIDMapping:               {"INVALID_PRODUCER_ID_MAPPING", "the transactional id belongs to another producer id", false},
	InvalidTransactionTimeout:              {"INVALID_TRANSACTION_TIMEOUT", "the transaction timeout is above the broker's maximum", false},
	ConcurrentTransactions:                 {"CONCURRENT_TRANSACTIONS", "another operation on the transaction is under way", true},
	TransactionCoordinatorFenced:           {"TRANSACTION_COORDINATOR_FENCED", "another transaction coordinator has taken over", false},
	TransactionalIDAuthorizationFailed:     {"TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "not authorized for the transactional id", false},
	SecurityDisabled:                       {"SECURITY_DISABLED", "security is not enabled", false},
	OperationNotAttempted:                  {"OPERATION_NOT_ATTEMPTED", "the operation was left out because another of the request did not succeed", false},
	KafkaStorageError:                      {"KAFKA_STORAGE_ERROR", "the disk that holds the log has an error", true},
	LogDirNotFound:                         {"LOG_DIR_NOT_FOUND", "the log directory is not one of the broker's", false},
	SASLAuthenticationFailed:               {"SASL_AUTHENTICATION_FAILED", "authentication did not succeed", false},
	UnknownProducerID:                      {"UNKNOWN_PRODUCER_ID", "nothing is known of the producer id", false},
	ReassignmentInProgress:                 {"REASSIGNMENT_IN_PROGRESS", "the partition is being reassigned", false},
	DelegationTokenAuthDisabled:            {"DELEGATION_TOKEN_AUTH_DISABLED", "delegation tokens are not enabled", false},
	DelegationTokenNotFound:                {"DELEGATION_TOKEN_NOT_FOUND", "there is no such delegation token", false},
	DelegationTokenOwnerMismatch:           {"DELEGATION_TOKEN_OWNER_MISMATCH", "the principal neither owns nor may renew the delegation token", false},
	DelegationTokenRequestNotAllowed:       {"DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", "the connection may not ask for delegation tokens", false},
	DelegationTokenAuthorizationFailed:     {"DELEGATION_TOKEN_AUTHORIZATION_FAILED", "not authorized for the delegation token", false},
	DelegationTokenExpired:                 {"DELEGATION_TOKEN_EXPIRED", "the delegation token has expired", false},
	InvalidPrincipalType:                   {"INVALID_PRINCIPAL_TYPE", "the type of principal is not supported", false},
	NonEmptyGroup:                          {"NON_EMPTY_GROUP", "the group has members", false},
	GroupIDNotFound:                        {"GROUP_ID_NOT_FOUND", "there is no such group", false},
	FetchSessionIDNotFound:                 {"FETCH_SESSION_ID_NOT_FOUND", "there is no such fetch session", true},
	InvalidFetchSessionEpoch:               {"INVALID_FETCH_SESSION_EPOCH", "the fetch session is at another epoch", true},
	ListenerNotFound:                       {"LISTENER_NOT_FOUND", "the leader has no listener like the one the request came through", true},
	TopicDeletionDisabled:                  {"TOPIC_DELETION_DISABLED", "topics may not be deleted", false},
	FencedLeaderEpoch:                      {"FENCED_LEADER_EPOCH", "the request's leader epoch is older than the broker's", true},
	UnknownLeaderEpoch:                     {"UNKNOWN_LEADER_EPOCH", "the request's leader epoch is newer than the broker's", true},
	UnsupportedCompressionType:             {"UNSUPPORTED_COMPRESSION_TYPE", "the client's version does not allow the compression type", false},
	StaleBrokerEpoch:                       {"STALE_BROKER_EPOCH", "the broker's epoch is an old one", false},
	OffsetNotAvailable:                     {"OFFSET_NOT_AVAILABLE", "the new leader's high watermark has not passed the start of its epoch", true},
	MemberIDRequired:                       {"MEMBER_ID_REQUIRED", "join again with the member id given", false},
	PreferredLeaderNotAvailable:            {"PREFERRED_LEADER_NOT_AVAILABLE", "the preferred leader is not available", true},
	GroupMaxSizeReached:                    {"GROUP_MAX_SIZE_REACHED", "the group is full", false},
	FencedInstanceID:                       {"FENCED_INSTANCE_ID", "another member has taken the group instance id", false},
	EligibleLeadersNotAvailable:            {"ELIGIBLE_LEADERS_NOT_AVAILABLE", "no eligible leader is available", true},
	ElectionNotNeeded:                      {"ELECTION_NOT_NEEDED", "the partition needs no election", true},
	NoReassignmentInProgress:               {"NO_REASSIGNMENT_IN_PROGRESS", "the partition is not being reassigned", false},
	GroupSubscribedToTopic:                 {"GROUP_SUBSCRIBED_TO_TOPIC", "the group is subscribed to the topic", false},
	InvalidRecord:                          {"INVALID_RECORD", "a record was refused by the broker's checks", false},
	UnstableOffsetCommit:                   {"UNSTABLE_OFFSET_COMMIT", "a transaction that commits offsets is still open", true},
	ThrottlingQuotaExceeded:                {"THROTTLING_QUOTA_EXCEEDED", "a quota is used up", true},
	ProducerFenced:                         {"PRODUCER_FENCED", "a newer producer has the same transactional id", false},
	ResourceNotFound:                       {"RESOURCE_NOT_FOUND", "there is no such resource", false},
	DuplicateResource:                      {"DUPLICATE_RESOURCE", "the request names a resource twice", false},
	UnacceptableCredential:                 {"UNACCEPTABLE_CREDENTIAL", "the credential does not meet the requirements", false},
	InconsistentVoterSet:                   {"INCONSISTENT_VOTER_SET", "sender or recipient is not one of the voters", false},
	InvalidUpdateVersion:                   {"INVALID_UPDATE_VERSION", "the version to update to is not valid", false},
	FeatureUpdateFailed:                    {"FEATURE_UPDATE_FAILED", "the features could not be updated", false},
	PrincipalDeserializationFailure:        {"PRINCIPAL_DESERIALIZATION_FAILURE", "a forwarded request's principal could not be read", false},
	SnapshotNotFound:                       {"SNAPSHOT_NOT_FOUND", "there is no such snapshot", false},
	PositionOutOfRange:                     {"POSITION_OUT_OF_RANGE", "the position lies outside the snapshot", false},
	UnknownTopicID:                         {"UNKNOWN_TOPIC_ID", "the topic id is not known here", true},
	DuplicateBrokerRegistration:            {"DUPLICATE_BROKER_REGISTRATION", "the broker id is in use", false},
	BrokerIDNotRegistered:                  {"BROKER_ID_NOT_REGISTERED", "the broker id is not registered", false},
	InconsistentTopicID:                    {"INCONSISTENT_TOPIC_ID", "the log has another topic id than the request", true},
	InconsistentClusterID:                  {"INCONSISTENT_CLUSTER_ID", "the request is meant for another cluster", false},
	TransactionalIDNotFound:                {"TRANSACTIONAL_ID_NOT_FOUND", "there is no such transactional id", false},
	FetchSessionTopicIDError:               {"FETCH_SESSION_TOPIC_ID_ERROR", "the fetch session mixes topic names and topic ids", true},
	IneligibleReplica:                      {"INELIGIBLE_REPLICA", "the new ISR holds a replica that may not be in it", false},
	NewLeaderElected:                       {"NEW_LEADER_ELECTED", "the change is made, and gave the partition another leader", false},
	OffsetMovedToTieredStorage:             {"OFFSET_MOVED_TO_TIERED_STORAGE", "the offset is in tiered storage", false},
	FencedMemberEpoch:                      {"FENCED_MEMBER_EPOCH", "the member's epoch is fenced; give up all partitions and join again", false},
	UnreleasedInstanceID:                   {"UNRELEASED_INSTANCE_ID", "another member still has the group instance id", false},
	UnsupportedAssignor:                    {"UNSUPPORTED_ASSIGNOR", "the group does not support the assignor", false},
	StaleMemberEpoch:                       {"STALE_MEMBER_EPOCH", "the member's epoch is an old one; heartbeat for the new one and try again", false},
	MismatchedEndpointType:                 {"MISMATCHED_ENDPOINT_TYPE", "the endpoint is not of the type asked for", false},
	UnsupportedEndpointType:                {"UNSUPPORTED_ENDPOINT_TYPE", "the type of endpoint is not supported", false},
	UnknownControllerID:                    {"UNKNOWN_CONTROLLER_ID", "there is no such controller", false},
	UnknownSubscriptionID:                  {"UNKNOWN_SUBSCRIPTION_ID", "the telemetry subscription id is unknown or old", false},
	TelemetryTooLarge:                      {"TELEMETRY_TOO_LARGE", "the telemetry is larger than the broker accepts", false},
	InvalidRegistration:                    {"INVALID_REGISTRATION", "the controller refuses the broker's registration", false},
	TransactionAbortable:                   {"TRANSACTION_ABORTABLE", "the transaction met an error; abort it to go on", false},
	InvalidRecordState:                     {"INVALID_RECORD_STATE", "the state of the records does not allow the acknowledgement", false},
	ShareSessionNotFound:                   {"SHARE_SESSION_NOT_FOUND", "there is no such share session", true},
	InvalidShareSessionEpoch:               {"INVALID_SHARE_SESSION_EPOCH", "the share session is at another epoch", true},
	FencedStateEpoch:                       {"FENCED_STATE_EPOCH", "the share group's state epoch is another", false},
	InvalidVoterKey:                        {"INVALID_VOTER_KEY", "the voter's key is another than the replica's", false},
	DuplicateVoter:                         {"DUPLICATE_VOTER", "the voter is in the set already", false},
	VoterNotFound:                          {"VOTER_NOT_FOUND", "the voter is not in the set", false},
	InvalidRegularExpression:               {"INVALID_REGULAR_EXPRESSION", "the regular expression is not valid", false},
	RebootstrapRequired:                    {"REBOOTSTRAP_REQUIRED", "the client's metadata is stale; it should bootstrap again", false},
	StreamsInvalidTopology:                 {"STREAMS_INVALID_TOPOLOGY", "the streams topology is not valid", false},
	StreamsInvalidTopologyEpoch:            {"STREAMS_INVALID_TOPOLOGY_EPOCH", "the streams topology epoch is not valid", false},
	StreamsTopologyFenced:                  {"STREAMS_TOPOLOGY_FENCED", "the streams topology epoch is an old one", false},
	ShareSessionLimitReached:               {"SHARE_SESSION_LIMIT_REACHED", "there are as many share sessions as the broker allows", true},
	GroupDeletionFailed:                    {"GROUP_DELETION_FAILED", "the group could not be deleted", false},
	StreamsTopologyDescriptionUpdateFailed: {"STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED", "the topology description could not be taken", false},
	ControllerIDNotRegistered:              {"CONTROLLER_ID_NOT_REGISTERED", "the controller id is not registered", false},
}

func (c Code) row() codeRow {
	if c < 0 || int(c) >= len(codes) {
		return unexpected
	}
	return codes[c]
}

// Name is Kafka's name of the code, UNKNOWN_SERVER_ERROR for one that is not known.
func (c Code) Name() string { return c.row().name }

// Message says in a few words what the code means.
func (c Code) Message() string { return c.row().message }

// Retriable tells whether clients are to try again by themselves.
func (c Code) Retriable() bool { return c.row().retriable }

// Error is the name and the message.
func (c Code) Error() string {
	r := c.row()
	return r.name + ": " + r.message
}

// Err is nil for None, and otherwise c.
func (c Code) Err() error {
	if c == None {
		return nil
	}
	return c
}

// maxMessage is how much of an error's text an answer carries. What a client sent may be
// quoted in it, and a string of the protocol has 32,767 bytes at most.
const maxMessage = 2_000

// ErrorText is the text of an error for an answer, cut where it is too long for one.
func ErrorText(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "") + "…"
}
