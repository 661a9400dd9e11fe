package wire

import "github.com/weirmq/weir/wire/codec"

// KeyDescribeGroups is the API that describes classic groups.
//
// Version 1 adds the throttle time, 3 authorized operations, 4 static members, 5 is
// flexible, 6 answers GROUP_ID_NOT_FOUND, with a message, where earlier versions
// call an unknown group dead.
const KeyDescribeGroups Key = 15

// DescribeGroupsRequest asks about groups.
type DescribeGroupsRequest struct {
	Groups                      []string
	IncludeAuthorizedOperations bool // from 3
	IncludeHistory              bool // from 5, in a tag of our own
}

// DescribeGroupsResponse answers a DescribeGroupsRequest.
type DescribeGroupsResponse struct {
	ThrottleTimeMs int32 // from 1
	Groups         []DescribedGroup
}

// DescribedGroup is one group of a DescribeGroupsResponse.
type DescribedGroup struct {
	ErrorCode            Code
	AuthorizedOperations int32   // from 3, the least int32 when not asked for
	ErrorMessage         *string // from 6
	GroupID              string
	GroupState           string // "Empty", "PreparingRebalance", "CompletingRebalance", "Stable" or "Dead"
	ProtocolType         string
	ProtocolData         string // the name of the protocol, in a stable group only
	Members              []DescribedGroupMember
	History              []byte // from 5, in a tag of our own: JSON, when asked for
}

// tagHistory is a tag that Kafka does not use, in the requests and responses that
// describe groups: a client that knows it asks for a group's flight recorder.
const tagHistory = 31

// DescribedGroupMember is one member of a DescribedGroup.
type DescribedGroupMember struct {
	MemberID         string
	GroupInstanceID  *string // from 4, nil for a dynamic member
	ClientID         string
	ClientHost       string
	MemberMetadata   []byte // in a stable group only
	MemberAssignment []byte // in a stable group only
}

// DefaultDescribedGroup holds the schema's defaults.
func DefaultDescribedGroup() DescribedGroup {
	return DescribedGroup{AuthorizedOperations: noOperations}
}

// Key is KeyDescribeGroups.
func (*DescribeGroupsRequest) Key() Key { return KeyDescribeGroups }

// Key is KeyDescribeGroups.
func (*DescribeGroupsResponse) Key() Key { return KeyDescribeGroups }

func (r *DescribeGroupsRequest) code(c *codec.Coder) {
	c.Strings(&r.Groups)
	if c.Version() >= 3 {
		c.Bool(&r.IncludeAuthorizedOperations)
	}
	codec.Tagged(c, r, codec.TagSet(0).With(tagHistory, r.IncludeHistory), codeDescribeGroupsRequestTag)
}

func codeDescribeGroupsRequestTag(c *codec.Coder, r *DescribeGroupsRequest, tag uint32) bool {
	if tag != tagHistory {
		return false
	}
	c.Bool(&r.IncludeHistory)
	return true
}

func (r *DescribeGroupsResponse) code(c *codec.Coder) {
	if c.Version() >= 1 {
		c.Int32(&r.ThrottleTimeMs)
	}
	codec.ArrayOf(c, &r.Groups, 128, codeDescribedGroup)
	c.Tags()
}

func codeDescribedGroup(c *codec.Coder, g *DescribedGroup) {
	v := c.Version()
	if c.Reading() {
		*g = DefaultDescribedGroup()
	}
	codeCode(c, &g.ErrorCode)
	if v >= 6 {
		c.NullableString(&g.ErrorMessage)
	}
	c.String(&g.GroupID)
	c.String(&g.GroupState)
	c.String(&g.ProtocolType)
	c.String(&g.ProtocolData)
	codec.ArrayOf(c, &g.Members, 104, codeDescribedGroupMember)
	if v >= 3 {
		c.Int32(&g.AuthorizedOperations)
	}
	codec.Tagged(c, g, codec.TagSet(0).With(tagHistory, g.History != nil), codeDescribedGroupTag)
}

func codeDescribedGroupTag(c *codec.Coder, g *DescribedGroup, tag uint32) bool {
	if tag != tagHistory {
		return false
	}
	c.Bytes32(&g.History)
	return true
}

func codeDescribedGroupMember(c *codec.Coder, m *DescribedGroupMember) {
	c.String(&m.MemberID)
	if c.Version() >= 4 {
		c.NullableString(&m.GroupInstanceID)
	}
	c.String(&m.ClientID)
	c.String(&m.ClientHost)
	c.Bytes32(&m.MemberMetadata)
	c.Bytes32(&m.MemberAssignment)
	c.Tags()
}
