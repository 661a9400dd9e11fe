package wire

import "github.com/weirmq/weir/wire/codec"

// KeyIncrementalAlterConfigs is the API that changes single configs of a resource.
//
// Version 1 is flexible.
const KeyIncrementalAlterConfigs Key = 44

// The operations on a config.
const (
	ConfigSet      int8 = 0
	ConfigDelete   int8 = 1 // back to the default
	ConfigAppend   int8 = 2 // to a list
	ConfigSubtract int8 = 3 // from a list
)

// IncrementalAlterConfigsRequest asks for configs to be changed.
type IncrementalAlterConfigsRequest struct {
	Resources    []IncrementalAlterConfigsResource
	ValidateOnly bool
}

// IncrementalAlterConfigsResource holds the changes to one resource.
type IncrementalAlterConfigsResource struct {
	ResourceType int8
	ResourceName string
	Configs      []IncrementalAlterableConfig
}

// IncrementalAlterableConfig changes one config.
type IncrementalAlterableConfig struct {
	Name            string
	Value           *string
	ConfigOperation int8
}

// IncrementalAlterConfigsResponse answers an IncrementalAlterConfigsRequest.
type IncrementalAlterConfigsResponse struct {
	ThrottleTimeMs int32
	Responses      []AlterConfigsResourceResponse
}

// Key is KeyIncrementalAlterConfigs.
func (*IncrementalAlterConfigsRequest) Key() Key { return KeyIncrementalAlterConfigs }

// Key is KeyIncrementalAlterConfigs.
func (*IncrementalAlterConfigsResponse) Key() Key { return KeyIncrementalAlterConfigs }

func (r *IncrementalAlterConfigsRequest) code(c *codec.Coder) {
	codec.ArrayOf(c, &r.Resources, 48, codeIncrementalAlterConfigsResource)
	c.Bool(&r.ValidateOnly)
	c.Tags()
}

func codeIncrementalAlterConfigsResource(c *codec.Coder, r *IncrementalAlterConfigsResource) {
	c.Int8(&r.ResourceType)
	c.String(&r.ResourceName)
	codec.ArrayOf(c, &r.Configs, 32, codeIncrementalAlterableConfig)
	c.Tags()
}

func codeIncrementalAlterableConfig(c *codec.Coder, k *IncrementalAlterableConfig) {
	c.String(&k.Name)
	c.Int8(&k.ConfigOperation)
	c.NullableString(&k.Value)
	c.Tags()
}

func (r *IncrementalAlterConfigsResponse) code(c *codec.Coder) {
	c.Int32(&r.ThrottleTimeMs)
	codec.ArrayOf(c, &r.Responses, 32, codeAlterConfigsResourceResponse)
	c.Tags()
}
