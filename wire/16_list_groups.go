package wire

import "github.com/weirmq/weir/wire/codec"

// KeyListGroups is the API that lists the groups that a broker coordinates.
//
// Version 1 adds the throttle time, 3 is flexible, 4 adds states and 5 types, each
// with a filter.
const KeyListGroups Key = 16

// ListGroupsRequest asks for groups.
type ListGroupsRequest struct {
	StatesFilter []string // from 4, empty for all
	TypesFilter  []string // from 5, empty for all
}

// ListGroupsResponse answers a ListGroupsRequest.
type ListGroupsResponse struct {
	ThrottleTimeMs int32 // from 1
	ErrorCode      Code
	Groups         []ListedGroup
}

// ListedGroup is one group of a ListGroupsResponse.
type ListedGroup struct {
	GroupID      string
	ProtocolType string
	GroupState   string // from 4
	GroupType    string // from 5: "classic", "consumer", …
}

// Key is KeyListGroups.
func (*ListGroupsRequest) Key() Key { return KeyListGroups }

// Key is KeyListGroups.
func (*ListGroupsResponse) Key() Key { return KeyListGroups }

func (r *ListGroupsRequest) code(c *codec.Coder) {
	v := c.Version()
	if v >= 4 {
		c.Strings(&r.StatesFilter)
	}
	if v >= 5 {
		c.Strings(&r.TypesFilter)
	}
	c.Tags()
}

func (r *ListGroupsResponse) code(c *codec.Coder) {
	if c.Version() >= 1 {
		c.Int32(&r.ThrottleTimeMs)
	}
	codeCode(c, &r.ErrorCode)
	codec.ArrayOf(c, &r.Groups, 64, codeListedGroup)
	c.Tags()
}

func codeListedGroup(c *codec.Coder, g *ListedGroup) {
	v := c.Version()
	c.String(&g.GroupID)
	c.String(&g.ProtocolType)
	if v >= 4 {
		c.String(&g.GroupState)
	}
	if v >= 5 {
		c.String(&g.GroupType)
	}
	c.Tags()
}
