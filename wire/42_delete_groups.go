package wire

import "github.com/weirmq/weir/wire/codec"

// KeyDeleteGroups is the API that deletes groups and their offsets.
//
// Version 1 is as 0, 2 is flexible, 3 adds an error message.
const KeyDeleteGroups Key = 42

// DeleteGroupsRequest asks for groups to be deleted.
type DeleteGroupsRequest struct {
	GroupsNames []string
}

// DeleteGroupsResponse answers a DeleteGroupsRequest.
type DeleteGroupsResponse struct {
	ThrottleTimeMs int32
	Results        []DeletableGroupResult
}

// DeletableGroupResult is one group of a DeleteGroupsResponse.
type DeletableGroupResult struct {
	GroupID      string
	ErrorMessage *string // from 3
	ErrorCode    Code
}

// Key is KeyDeleteGroups.
func (*DeleteGroupsRequest) Key() Key { return KeyDeleteGroups }

// Key is KeyDeleteGroups.
func (*DeleteGroupsResponse) Key() Key { return KeyDeleteGroups }

func (r *DeleteGroupsRequest) code(c *codec.Coder) {
	c.Strings(&r.GroupsNames)
	c.Tags()
}

func (r *DeleteGroupsResponse) code(c *codec.Coder) {
	c.Int32(&r.ThrottleTimeMs)
	codec.ArrayOf(c, &r.Results, 32, codeDeletableGroupResult)
	c.Tags()
}

func codeDeletableGroupResult(c *codec.Coder, g *DeletableGroupResult) {
	c.String(&g.GroupID)
	codeCode(c, &g.ErrorCode)
	if c.Version() >= 3 {
		c.NullableString(&g.ErrorMessage)
	}
	c.Tags()
}
