package wire

import "github.com/weirmq/weir/wire/codec"

// KeyAlterConfigs is the API that replaces all configs of a resource. It is the
// older form of IncrementalAlterConfigs, which changes single ones.
//
// Version 1 is as 0, 2 is flexible.
const KeyAlterConfigs Key = 33

// AlterConfigsRequest asks for configs to be replaced.
type AlterConfigsRequest struct {
	Resources    []AlterConfigsResource
	ValidateOnly bool
}

// AlterConfigsResource holds all configs that one resource is to have.
type AlterConfigsResource struct {
	ResourceType int8
	ResourceName string
	Configs      []AlterableConfig
}

// AlterableConfig sets one config.
type AlterableConfig struct {
	Name  string
	Value *string
}

// AlterConfigsResponse answers an AlterConfigsRequest.
type AlterConfigsResponse struct {
	ThrottleTimeMs int32
	Responses      []AlterConfigsResourceResponse
}

// AlterConfigsResourceResponse is one resource of an AlterConfigsResponse or an
// IncrementalAlterConfigsResponse.
type AlterConfigsResourceResponse struct {
	ErrorCode    Code
	ResourceType int8
	ErrorMessage *string
	ResourceName string
}

// Key is KeyAlterConfigs.
func (*AlterConfigsRequest) Key() Key { return KeyAlterConfigs }

// Key is KeyAlterConfigs.
func (*AlterConfigsResponse) Key() Key { return KeyAlterConfigs }

func (r *AlterConfigsRequest) code(c *codec.Coder) {
	codec.ArrayOf(c, &r.Resources, 48, codeAlterConfigsResource)
	c.Bool(&r.ValidateOnly)
	c.Tags()
}

func codeAlterConfigsResource(c *codec.Coder, r *AlterConfigsResource) {
	c.Int8(&r.ResourceType)
	c.String(&r.ResourceName)
	codec.ArrayOf(c, &r.Configs, 24, codeAlterableConfig)
	c.Tags()
}

func codeAlterableConfig(c *codec.Coder, k *AlterableConfig) {
	c.String(&k.Name)
	c.NullableString(&k.Value)
	c.Tags()
}

func (r *AlterConfigsResponse) code(c *codec.Coder) {
	c.Int32(&r.ThrottleTimeMs)
	codec.ArrayOf(c, &r.Responses, 32, codeAlterConfigsResourceResponse)
	c.Tags()
}

func codeAlterConfigsResourceResponse(c *codec.Coder, r *AlterConfigsResourceResponse) {
	codeCode(c, &r.ErrorCode)
	c.NullableString(&r.ErrorMessage)
	c.Int8(&r.ResourceType)
	c.String(&r.ResourceName)
	c.Tags()
}
