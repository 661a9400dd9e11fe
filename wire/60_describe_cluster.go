package wire

import "github.com/weirmq/weir/wire/codec"

// KeyDescribeCluster is the API that lists the brokers of a cluster.
//
// All versions are flexible. Version 1 adds the endpoint type, 2 fenced brokers.
const KeyDescribeCluster Key = 60

// The endpoint types of DescribeCluster.
const (
	EndpointBrokers     int8 = 1
	EndpointControllers int8 = 2
)

// DescribeClusterRequest asks for the brokers.
type DescribeClusterRequest struct {
	IncludeClusterAuthorizedOperations bool
	EndpointType                       int8 // from 1
	IncludeFencedBrokers               bool // from 2
}

// DescribeClusterResponse answers a DescribeClusterRequest.
type DescribeClusterResponse struct {
	ThrottleTimeMs              int32
	ErrorCode                   Code
	EndpointType                int8 // from 1
	ErrorMessage                *string
	ClusterID                   string
	ControllerID                int32 // -1 for none
	ClusterAuthorizedOperations int32 // the least int32 when not asked for
	Brokers                     []DescribeClusterBroker
}

// DescribeClusterBroker is one broker of a DescribeClusterResponse.
type DescribeClusterBroker struct {
	BrokerID int32
	Port     int32
	Host     string
	Rack     *string
	IsFenced bool // from 2
}

// NewDescribeClusterRequest holds the schema's defaults.
func NewDescribeClusterRequest() *DescribeClusterRequest {
	return &DescribeClusterRequest{EndpointType: EndpointBrokers}
}

// NewDescribeClusterResponse holds the schema's defaults.
func NewDescribeClusterResponse() *DescribeClusterResponse {
	return &DescribeClusterResponse{EndpointType: EndpointBrokers, ControllerID: -1, ClusterAuthorizedOperations: noOperations}
}

// Key is KeyDescribeCluster.
func (*DescribeClusterRequest) Key() Key { return KeyDescribeCluster }

// Key is KeyDescribeCluster.
func (*DescribeClusterResponse) Key() Key { return KeyDescribeCluster }

func (r *DescribeClusterRequest) code(c *codec.Coder) {
	v := c.Version()
	c.Bool(&r.IncludeClusterAuthorizedOperations)
	if v >= 1 {
		c.Int8(&r.EndpointType)
	}
	if v >= 2 {
		c.Bool(&r.IncludeFencedBrokers)
	}
	c.Tags()
}

func (r *DescribeClusterResponse) code(c *codec.Coder) {
	c.Int32(&r.ThrottleTimeMs)
	codeCode(c, &r.ErrorCode)
	c.NullableString(&r.ErrorMessage)
	if c.Version() >= 1 {
		c.Int8(&r.EndpointType)
	}
	c.String(&r.ClusterID)
	c.Int32(&r.ControllerID)
	codec.ArrayOf(c, &r.Brokers, 40, codeDescribeClusterBroker)
	c.Int32(&r.ClusterAuthorizedOperations)
	c.Tags()
}

func codeDescribeClusterBroker(c *codec.Coder, b *DescribeClusterBroker) {
	c.Int32(&b.BrokerID)
	c.String(&b.Host)
	c.Int32(&b.Port)
	c.NullableString(&b.Rack)
	if c.Version() >= 2 {
		c.Bool(&b.IsFenced)
	}
	c.Tags()
}
