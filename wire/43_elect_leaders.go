package wire

import "github.com/weirmq/weir/wire/codec"

// KeyElectLeaders is the API that has leaders elected anew.
//
// Version 1 adds the type of election and the top-level error code, 2 is flexible.
const KeyElectLeaders Key = 43

// The types of elections.
const (
	ElectionPreferred int8 = 0 // the first of the replicas, if it is in sync
	ElectionUnclean   int8 = 1 // any live replica, if none in sync is
)

// ElectLeadersRequest asks for elections.
type ElectLeadersRequest struct {
	TopicPartitions []ElectLeadersTopic // nil for all
	TimeoutMs       int32
	ElectionType    int8 // from 1, ElectionPreferred before
}

// ElectLeadersTopic names partitions of one topic.
type ElectLeadersTopic struct {
	Topic      string
	Partitions []int32
}

// ElectLeadersResponse answers an ElectLeadersRequest.
type ElectLeadersResponse struct {
	ThrottleTimeMs         int32
	ErrorCode              Code // from 1
	ReplicaElectionResults []ReplicaElectionResult
}

// ReplicaElectionResult is one topic of an ElectLeadersResponse.
type ReplicaElectionResult struct {
	Topic           string
	PartitionResult []PartitionElectionResult
}

// PartitionElectionResult is one partition of a ReplicaElectionResult.
type PartitionElectionResult struct {
	PartitionID  int32
	ErrorCode    Code
	ErrorMessage *string
}

// NewElectLeadersRequest holds the schema's defaults.
func NewElectLeadersRequest() *ElectLeadersRequest { return &ElectLeadersRequest{TimeoutMs: 60000} }

// Key is KeyElectLeaders.
func (*ElectLeadersRequest) Key() Key { return KeyElectLeaders }

// Key is KeyElectLeaders.
func (*ElectLeadersResponse) Key() Key { return KeyElectLeaders }

func (r *ElectLeadersRequest) code(c *codec.Coder) {
	if c.Version() >= 1 {
		c.Int8(&r.ElectionType)
	}
	codec.NullableArrayOf(c, &r.TopicPartitions, 40, codeElectLeadersTopic)
	c.Int32(&r.TimeoutMs)
	c.Tags()
}

func codeElectLeadersTopic(c *codec.Coder, t *ElectLeadersTopic) {
	c.String(&t.Topic)
	c.Int32s(&t.Partitions)
	c.Tags()
}

func (r *ElectLeadersResponse) code(c *codec.Coder) {
	c.Int32(&r.ThrottleTimeMs)
	if c.Version() >= 1 {
		codeCode(c, &r.ErrorCode)
	}
	codec.ArrayOf(c, &r.ReplicaElectionResults, 40, codeReplicaElectionResult)
	c.Tags()
}

func codeReplicaElectionResult(c *codec.Coder, t *ReplicaElectionResult) {
	c.String(&t.Topic)
	codec.ArrayOf(c, &t.PartitionResult, 16, codePartitionElectionResult)
	c.Tags()
}

func codePartitionElectionResult(c *codec.Coder, p *PartitionElectionResult) {
	c.Int32(&p.PartitionID)
	codeCode(c, &p.ErrorCode)
	c.NullableString(&p.ErrorMessage)
	c.Tags()
}
