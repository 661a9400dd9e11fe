package wire

import "github.com/weirmq/weir/wire/codec"

// KeyCreateTopics is the API that creates topics.
//
// Version 4 lets the broker choose the number of partitions and replicas, 5 is
// flexible and returns the topic's configs, 6 may answer
// THROTTLING_QUOTA_EXCEEDED, 7 returns the topic id.
const KeyCreateTopics Key = 19

// CreateTopicsRequest asks for topics to be created.
type CreateTopicsRequest struct {
	Topics       []CreatableTopic
	TimeoutMs    int32
	ValidateOnly bool
}

// CreatableTopic is one topic of a CreateTopicsRequest.
type CreatableTopic struct {
	Name              string
	NumPartitions     int32 // -1 for the default (from 4) or with assignments
	ReplicationFactor int16 // -1 for the default (from 4) or with assignments
	Assignments       []CreatableReplicaAssignment
	Configs           []CreatableTopicConfig
}

// CreatableReplicaAssignment places one partition.
type CreatableReplicaAssignment struct {
	PartitionIndex int32
	BrokerIDs      []int32
}

// CreatableTopicConfig sets one config of a new topic.
type CreatableTopicConfig struct {
	Name  string
	Value *string
}

// CreateTopicsResponse answers a CreateTopicsRequest.
type CreateTopicsResponse struct {
	ThrottleTimeMs int32
	Topics         []CreatableTopicResult
}

// CreatableTopicResult is one topic of a CreateTopicsResponse.
type CreatableTopicResult struct {
	Name                 string
	TopicID              [16]byte // from 7
	ErrorCode            Code
	TopicConfigErrorCode Code // from 5: why Configs is null
	ErrorMessage         *string
	NumPartitions        int32                   // from 5, -1 when unknown
	ReplicationFactor    int16                   // from 5, -1 when unknown
	Configs              []CreatableTopicConfigs // from 5, nil for null
}

// CreatableTopicConfigs is one config of a created topic.
type CreatableTopicConfigs struct {
	Name         string
	Value        *string
	ReadOnly     bool
	IsSensitive  bool
	ConfigSource int8 // -1 when unknown
}

// NewCreateTopicsRequest holds the schema's defaults.
func NewCreateTopicsRequest() *CreateTopicsRequest { return &CreateTopicsRequest{TimeoutMs: 60000} }

// DefaultCreatableTopicResult holds the schema's defaults.
func DefaultCreatableTopicResult() CreatableTopicResult {
	return CreatableTopicResult{NumPartitions: -1, ReplicationFactor: -1}
}

// Key is KeyCreateTopics.
func (*CreateTopicsRequest) Key() Key { return KeyCreateTopics }

// Key is KeyCreateTopics.
func (*CreateTopicsResponse) Key() Key { return KeyCreateTopics }

func (r *CreateTopicsRequest) code(c *codec.Coder) {
	codec.ArrayOf(c, &r.Topics, 72, codeCreatableTopic)
	c.Int32(&r.TimeoutMs)
	c.Bool(&r.ValidateOnly)
	c.Tags()
}

func codeCreatableTopic(c *codec.Coder, t *CreatableTopic) {
	c.String(&t.Name)
	c.Int32(&t.NumPartitions)
	c.Int16(&t.ReplicationFactor)
	codec.ArrayOf(c, &t.Assignments, 32, codeCreatableReplicaAssignment)
	codec.ArrayOf(c, &t.Configs, 24, codeCreatableTopicConfig)
	c.Tags()
}

func codeCreatableReplicaAssignment(c *codec.Coder, a *CreatableReplicaAssignment) {
	c.Int32(&a.PartitionIndex)
	c.Int32s(&a.BrokerIDs)
	c.Tags()
}

func codeCreatableTopicConfig(c *codec.Coder, k *CreatableTopicConfig) {
	c.String(&k.Name)
	c.NullableString(&k.Value)
	c.Tags()
}

func (r *CreateTopicsResponse) code(c *codec.Coder) {
	c.Int32(&r.ThrottleTimeMs)
	codec.ArrayOf(c, &r.Topics, 80, codeCreatableTopicResult)
	c.Tags()
}

func codeCreatableTopicResult(c *codec.Coder, t *CreatableTopicResult) {
	v := c.Version()
	if c.Reading() {
		*t = DefaultCreatableTopicResult()
	}
	c.String(&t.Name)
	if v >= 7 {
		c.UUID(&t.TopicID)
	}
	codeCode(c, &t.ErrorCode)
	c.NullableString(&t.ErrorMessage)
	if v >= 5 {
		c.Int32(&t.NumPartitions)
		c.Int16(&t.ReplicationFactor)
		codec.NullableArrayOf(c, &t.Configs, 32, codeCreatableTopicConfigs)
	}
	present := codec.TagSet(0).With(0, t.TopicConfigErrorCode != 0)
	codec.Tagged(c, t, present, codeCreatableTopicResultTag)
}

func codeCreatableTopicResultTag(c *codec.Coder, t *CreatableTopicResult, tag uint32) bool {
	if tag != 0 {
		return false
	}
	codeCode(c, &t.TopicConfigErrorCode)
	return true
}

func codeCreatableTopicConfigs(c *codec.Coder, k *CreatableTopicConfigs) {
	c.String(&k.Name)
	c.NullableString(&k.Value)
	c.Bool(&k.ReadOnly)
	c.Int8(&k.ConfigSource)
	c.Bool(&k.IsSensitive)
	c.Tags()
}
