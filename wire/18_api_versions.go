package wire

import "github.com/weirmq/weir/wire/codec"

// KeyApiVersions is the API by which a client learns what the broker speaks.
//
// Version 1 adds the throttle time, 3 is flexible (in the body; the response
// header stays as it was) and adds the client's name and features, 4 allows
// features with minimum level 0, 5 lets the client say which cluster and node it
// believes to have reached. A request of any higher version is answered in
// version 0 with UNSUPPORTED_VERSION.
const KeyApiVersions Key = 18

// ApiVersionsRequest asks for the table of APIs.
type ApiVersionsRequest struct {
	ClientSoftwareName    string  // from 3
	ClientSoftwareVersion string  // from 3
	ClusterID             *string // from 5, nil when the client does not know
	NodeID                int32   // from 5, -1 when the client does not know
}

// ApiVersionsResponse answers an ApiVersionsRequest.
type ApiVersionsResponse struct {
	ErrorCode              Code
	ApiKeys                []ApiVersion
	ThrottleTimeMs         int32              // from 1
	SupportedFeatures      []SupportedFeature // from 3
	FinalizedFeaturesEpoch int64              // from 3, -1 when unknown
	FinalizedFeatures      []FinalizedFeature // from 3
	ZkMigrationReady       bool               // from 3
}

// ApiVersion is the range of versions of one API.
type ApiVersion struct {
	ApiKey     Key
	MinVersion int16
	MaxVersion int16
}

// SupportedFeature is the range of levels that the broker supports.
type SupportedFeature struct {
	Name       string
	MinVersion int16
	MaxVersion int16
}

// FinalizedFeature is the range of levels that the cluster has agreed on.
type FinalizedFeature struct {
	Name            string
	MaxVersionLevel int16
	MinVersionLevel int16
}

// NewApiVersionsRequest holds the schema's defaults.
func NewApiVersionsRequest() *ApiVersionsRequest { return &ApiVersionsRequest{NodeID: -1} }

// NewApiVersionsResponse holds the schema's defaults.
func NewApiVersionsResponse() *ApiVersionsResponse {
	return &ApiVersionsResponse{FinalizedFeaturesEpoch: -1}
}

// Key is KeyApiVersions.
func (*ApiVersionsRequest) Key() Key { return KeyApiVersions }

// Key is KeyApiVersions.
func (*ApiVersionsResponse) Key() Key { return KeyApiVersions }

func (r *ApiVersionsRequest) code(c *codec.Coder) {
	v := c.Version()
	if v >= 3 {
		c.String(&r.ClientSoftwareName)
		c.String(&r.ClientSoftwareVersion)
	}
	if v >= 5 {
		c.NullableString(&r.ClusterID)
		c.Int32(&r.NodeID)
	}
	c.Tags()
}

func (r *ApiVersionsResponse) code(c *codec.Coder) {
	codeCode(c, &r.ErrorCode)
	codec.ArrayOf(c, &r.ApiKeys, 6, codeApiVersion)
	if c.Version() >= 1 {
		c.Int32(&r.ThrottleTimeMs)
	}
	present := codec.TagSet(0).
		With(0, len(r.SupportedFeatures) > 0).
		With(1, r.FinalizedFeaturesEpoch != -1).
		With(2, len(r.FinalizedFeatures) > 0).
		With(3, r.ZkMigrationReady)
	codec.Tagged(c, r, present, codeApiVersionsResponseTag)
}

func codeApiVersionsResponseTag(c *codec.Coder, r *ApiVersionsResponse, tag uint32) bool {
	switch tag {
	case 0:
		codec.ArrayOf(c, &r.SupportedFeatures, 24, codeSupportedFeature)
	case 1:
		c.Int64(&r.FinalizedFeaturesEpoch)
	case 2:
		codec.ArrayOf(c, &r.FinalizedFeatures, 24, codeFinalizedFeature)
	case 3:
		c.Bool(&r.ZkMigrationReady)
	default:
		return false
	}
	return true
}

func codeApiVersion(c *codec.Coder, a *ApiVersion) {
	codeKey(c, &a.ApiKey)
	c.Int16(&a.MinVersion)
	c.Int16(&a.MaxVersion)
	c.Tags()
}

func codeSupportedFeature(c *codec.Coder, f *SupportedFeature) {
	c.String(&f.Name)
	c.Int16(&f.MinVersion)
	c.Int16(&f.MaxVersion)
	c.Tags()
}

func codeFinalizedFeature(c *codec.Coder, f *FinalizedFeature) {
	c.String(&f.Name)
	c.Int16(&f.MaxVersionLevel)
	c.Int16(&f.MinVersionLevel)
	c.Tags()
}
