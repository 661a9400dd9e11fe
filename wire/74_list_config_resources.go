package wire

import "github.com/weirmq/weir/wire/codec"

// KeyListConfigResources is the API that lists the resources that have configs.
//
// All versions are flexible. Version 0 lists resources of client metrics only; 1
// adds the types.
const KeyListConfigResources Key = 74

// ListConfigResourcesRequest asks for resources.
type ListConfigResourcesRequest struct {
	ResourceTypes []int8 // from 1, empty for all
}

// ListConfigResourcesResponse answers a ListConfigResourcesRequest.
type ListConfigResourcesResponse struct {
	ThrottleTimeMs  int32
	ErrorCode       Code
	ConfigResources []ConfigResource
}

// ConfigResource is one resource of a ListConfigResourcesResponse.
type ConfigResource struct {
	ResourceName string
	ResourceType int8 // from 1, ResourceClientMetrics before
}

// DefaultConfigResource holds the schema's defaults.
func DefaultConfigResource() ConfigResource {
	return ConfigResource{ResourceType: ResourceClientMetrics}
}

// Key is KeyListConfigResources.
func (*ListConfigResourcesRequest) Key() Key { return KeyListConfigResources }

// Key is KeyListConfigResources.
func (*ListConfigResourcesResponse) Key() Key { return KeyListConfigResources }

func (r *ListConfigResourcesRequest) code(c *codec.Coder) {
	if c.Version() >= 1 {
		codeInt8s(c, &r.ResourceTypes)
	}
	c.Tags()
}

func (r *ListConfigResourcesResponse) code(c *codec.Coder) {
	c.Int32(&r.ThrottleTimeMs)
	codeCode(c, &r.ErrorCode)
	codec.ArrayOf(c, &r.ConfigResources, 24, codeConfigResource)
	c.Tags()
}

func codeConfigResource(c *codec.Coder, k *ConfigResource) {
	if c.Reading() {
		*k = DefaultConfigResource()
	}
	c.String(&k.ResourceName)
	if c.Version() >= 1 {
		c.Int8(&k.ResourceType)
	}
	c.Tags()
}
