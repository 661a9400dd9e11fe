package wire

import "github.com/weirmq/weir/wire/codec"

// KeyDescribeConfigs is the API that reads configs.
//
// Version 1 adds where each value comes from, 3 documentation and the config's
// type, 4 is flexible.
const KeyDescribeConfigs Key = 32

// The types of resources that have configs.
const (
	ResourceTopic         int8 = 2
	ResourceBroker        int8 = 4
	ResourceBrokerLogger  int8 = 8
	ResourceClientMetrics int8 = 16
	ResourceGroup         int8 = 32
)

// The sources of a config's value.
const (
	ConfigSourceTopic                int8 = 1
	ConfigSourceDynamicBroker        int8 = 2
	ConfigSourceDynamicDefaultBroker int8 = 3
	ConfigSourceStaticBroker         int8 = 4
	ConfigSourceDefault              int8 = 5
	ConfigSourceDynamicBrokerLogger  int8 = 6
	ConfigSourceClientMetrics        int8 = 7
	ConfigSourceGroup                int8 = 8
)

// The types of a config's value.
const (
	ConfigTypeUnknown  int8 = 0
	ConfigTypeBoolean  int8 = 1
	ConfigTypeString   int8 = 2
	ConfigTypeInt      int8 = 3
	ConfigTypeShort    int8 = 4
	ConfigTypeLong     int8 = 5
	ConfigTypeDouble   int8 = 6
	ConfigTypeList     int8 = 7
	ConfigTypeClass    int8 = 8
	ConfigTypePassword int8 = 9
)

// DescribeConfigsRequest asks for the configs of resources.
type DescribeConfigsRequest struct {
	Resources            []DescribeConfigsResource
	IncludeSynonyms      bool
	IncludeDocumentation bool // from 3
}

// DescribeConfigsResource names one resource.
type DescribeConfigsResource struct {
	ResourceType      int8
	ResourceName      string
	ConfigurationKeys []string // nil for all
}

// DescribeConfigsResponse answers a DescribeConfigsRequest.
type DescribeConfigsResponse struct {
	ThrottleTimeMs int32
	Results        []DescribeConfigsResult
}

// DescribeConfigsResult is one resource of a DescribeConfigsResponse.
type DescribeConfigsResult struct {
	ErrorCode    Code
	ResourceType int8
	ErrorMessage *string
	ResourceName string
	Configs      []DescribeConfigsResourceResult
}

// DescribeConfigsResourceResult is one config of a resource.
type DescribeConfigsResourceResult struct {
	Name          string
	Value         *string // nil for a sensitive config
	ReadOnly      bool
	IsSensitive   bool
	ConfigSource  int8                     // -1 when unknown
	ConfigType    int8                     // from 3
	Synonyms      []DescribeConfigsSynonym // where the value would come from, the source first
	Documentation *string                  // from 3
}

// DescribeConfigsSynonym is one of the places that set a config.
type DescribeConfigsSynonym struct {
	Name   string
	Value  *string
	Source int8
}

// Key is KeyDescribeConfigs.
func (*DescribeConfigsRequest) Key() Key { return KeyDescribeConfigs }

// Key is KeyDescribeConfigs.
func (*DescribeConfigsResponse) Key() Key { return KeyDescribeConfigs }

func (r *DescribeConfigsRequest) code(c *codec.Coder) {
	codec.ArrayOf(c, &r.Resources, 48, codeDescribeConfigsResource)
	c.Bool(&r.IncludeSynonyms)
	if c.Version() >= 3 {
		c.Bool(&r.IncludeDocumentation)
	}
	c.Tags()
}

func codeDescribeConfigsResource(c *codec.Coder, r *DescribeConfigsResource) {
	c.Int8(&r.ResourceType)
	c.String(&r.ResourceName)
	codeNullableStrings(c, &r.ConfigurationKeys)
	c.Tags()
}

func (r *DescribeConfigsResponse) code(c *codec.Coder) {
	c.Int32(&r.ThrottleTimeMs)
	codec.ArrayOf(c, &r.Results, 56, codeDescribeConfigsResult)
	c.Tags()
}

func codeDescribeConfigsResult(c *codec.Coder, r *DescribeConfigsResult) {
	codeCode(c, &r.ErrorCode)
	c.NullableString(&r.ErrorMessage)
	c.Int8(&r.ResourceType)
	c.String(&r.ResourceName)
	codec.ArrayOf(c, &r.Configs, 64, codeDescribeConfigsResourceResult)
	c.Tags()
}

func codeDescribeConfigsResourceResult(c *codec.Coder, k *DescribeConfigsResourceResult) {
	c.String(&k.Name)
	c.NullableString(&k.Value)
	c.Bool(&k.ReadOnly)
	c.Int8(&k.ConfigSource)
	c.Bool(&k.IsSensitive)
	codec.ArrayOf(c, &k.Synonyms, 32, codeDescribeConfigsSynonym)
	if c.Version() >= 3 {
		c.Int8(&k.ConfigType)
		c.NullableString(&k.Documentation)
	}
	c.Tags()
}

func codeDescribeConfigsSynonym(c *codec.Coder, s *DescribeConfigsSynonym) {
	c.String(&s.Name)
	c.NullableString(&s.Value)
	c.Int8(&s.Source)
	c.Tags()
}
