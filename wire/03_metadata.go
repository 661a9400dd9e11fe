package wire

import (
	"github.com/weirmq/weir/wire/batch"
	"github.com/weirmq/weir/wire/codec"
)

// KeyMetadata is the API that tells clients about brokers, topics and leaders.
//
// Version 1 adds racks and the controller, 2 the cluster id, 4 lets the client
// forbid topic creation, 5 adds offline replicas, 7 leader epochs, 8 authorized
// operations, 9 is flexible, 10 adds topic ids, 11 leaves out the cluster's
// authorized operations, 12 asks by topic id, 13 adds a top-level error.
const KeyMetadata Key = 3

// MetadataRequest asks about topics.
type MetadataRequest struct {
	// Topics is nil for all topics and empty for none, in every version: version 0
	// sends an empty array for all, which decodes as nil.
	Topics                             []MetadataRequestTopic
	AllowAutoTopicCreation             bool // from 4, true before
	IncludeClusterAuthorizedOperations bool // 8 to 10
	IncludeTopicAuthorizedOperations   bool // from 8
}

// MetadataRequestTopic names one topic.
type MetadataRequestTopic struct {
	TopicID [16]byte // from 10, zero when asked by name
	Name    *string  // nil, from 10, when asked by id
}

// MetadataResponse answers a MetadataRequest.
type MetadataResponse struct {
	ThrottleTimeMs              int32 // from 3
	Brokers                     []MetadataBroker
	ClusterID                   *string // from 2
	ControllerID                int32   // from 1, -1 for none
	Topics                      []MetadataTopic
	ClusterAuthorizedOperations int32 // 8 to 10, the least int32 when not asked for
	ErrorCode                   Code  // from 13
}

// MetadataBroker is one broker of a MetadataResponse.
type MetadataBroker struct {
	NodeID int32
	Port   int32
	Host   string
	Rack   *string // from 1
}

// MetadataTopic is one topic of a MetadataResponse.
type MetadataTopic struct {
	ErrorCode                 Code
	IsInternal                bool     // from 1
	TopicAuthorizedOperations int32    // from 8, the least int32 when not asked for
	Name                      *string  // nil, from 12 only, for an unknown id
	TopicID                   [16]byte // from 10
	Partitions                []MetadataPartition
}

// MetadataPartition is one partition of a MetadataTopic.
type MetadataPartition struct {
	ErrorCode       Code
	PartitionIndex  int32
	LeaderID        int32       // -1 for none
	LeaderEpoch     batch.Epoch // from 7
	ReplicaNodes    []int32
	IsrNodes        []int32
	OfflineReplicas []int32 // from 5
}

// NewMetadataRequest holds the schema's defaults: it asks for all topics.
func NewMetadataRequest() *MetadataRequest { return &MetadataRequest{AllowAutoTopicCreation: true} }

// NewMetadataResponse holds the schema's defaults.
func NewMetadataResponse() *MetadataResponse {
	return &MetadataResponse{ControllerID: -1, ClusterAuthorizedOperations: noOperations}
}

// DefaultMetadataTopic holds the schema's defaults.
func DefaultMetadataTopic() MetadataTopic {
	return MetadataTopic{TopicAuthorizedOperations: noOperations}
}

// DefaultMetadataPartition holds the schema's defaults.
func DefaultMetadataPartition() MetadataPartition { return MetadataPartition{LeaderEpoch: -1} }

// Key is KeyMetadata.
func (*MetadataRequest) Key() Key { return KeyMetadata }

// Key is KeyMetadata.
func (*MetadataResponse) Key() Key { return KeyMetadata }

func (r *MetadataRequest) code(c *codec.Coder) {
	v := c.Version()
	if v == 0 {
		codec.ArrayOf(c, &r.Topics, 24, codeMetadataRequestTopic)
		if c.Reading() && len(r.Topics) == 0 {
			r.Topics = nil
		}
	} else {
		codec.NullableArrayOf(c, &r.Topics, 24, codeMetadataRequestTopic)
	}
	if v >= 4 {
		c.Bool(&r.AllowAutoTopicCreation)
	}
	if v >= 8 && v <= 10 {
		c.Bool(&r.IncludeClusterAuthorizedOperations)
	}
	if v >= 8 {
		c.Bool(&r.IncludeTopicAuthorizedOperations)
	}
	c.Tags()
}

func codeMetadataRequestTopic(c *codec.Coder, t *MetadataRequestTopic) {
	if c.Version() >= 10 {
		c.UUID(&t.TopicID)
	}
	codeNameFrom(c, &t.Name, 10)
	c.Tags()
}

func (r *MetadataResponse) code(c *codec.Coder) {
	v := c.Version()
	if v >= 3 {
		c.Int32(&r.ThrottleTimeMs)
	}
	codec.ArrayOf(c, &r.Brokers, 32, codeMetadataBroker)
	if v >= 2 {
		c.NullableString(&r.ClusterID)
	}
	if v >= 1 {
		c.Int32(&r.ControllerID)
	}
	codec.ArrayOf(c, &r.Topics, 56, codeMetadataTopic)
	if v >= 8 && v <= 10 {
		c.Int32(&r.ClusterAuthorizedOperations)
	}
	if v >= 13 {
		codeCode(c, &r.ErrorCode)
	}
	c.Tags()
}

func codeMetadataBroker(c *codec.Coder, b *MetadataBroker) {
	c.Int32(&b.NodeID)
	c.String(&b.Host)
	c.Int32(&b.Port)
	if c.Version() >= 1 {
		c.NullableString(&b.Rack)
	}
	c.Tags()
}

func codeMetadataTopic(c *codec.Coder, t *MetadataTopic) {
	v := c.Version()
	if c.Reading() {
		*t = DefaultMetadataTopic()
	}
	codeCode(c, &t.ErrorCode)
	codeNameFrom(c, &t.Name, 12)
	if v >= 10 {
		c.UUID(&t.TopicID)
	}
	if v >= 1 {
		c.Bool(&t.IsInternal)
	}
	codec.ArrayOf(c, &t.Partitions, 88, codeMetadataPartition)
	if v >= 8 {
		c.Int32(&t.TopicAuthorizedOperations)
	}
	c.Tags()
}

func codeMetadataPartition(c *codec.Coder, p *MetadataPartition) {
	v := c.Version()
	if c.Reading() {
		*p = DefaultMetadataPartition()
	}
	codeCode(c, &p.ErrorCode)
	c.Int32(&p.PartitionIndex)
	c.Int32(&p.LeaderID)
	if v >= 7 {
		codeEpoch(c, &p.LeaderEpoch)
	}
	c.Int32s(&p.ReplicaNodes)
	c.Int32s(&p.IsrNodes)
	if v >= 5 {
		c.Int32s(&p.OfflineReplicas)
	}
	c.Tags()
}
