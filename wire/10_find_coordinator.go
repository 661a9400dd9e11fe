package wire

import "github.com/weirmq/weir/wire/codec"

// KeyFindCoordinator is the API that names the broker that coordinates a group or
// a transactional id.
//
// Version 1 adds the type of the key, the throttle time and an error message, 3 is
// flexible, 4 asks for many keys at once, 5 may answer TRANSACTION_ABORTABLE, 6
// knows share groups.
const KeyFindCoordinator Key = 10

// The types of a coordinator's key.
const (
	CoordinatorGroup       int8 = 0
	CoordinatorTransaction int8 = 1
	CoordinatorShare       int8 = 2 // from 6: group, topic id and partition, joined by colons
)

// FindCoordinatorRequest asks for coordinators.
type FindCoordinatorRequest struct {
	CoordinatorKey  string   // before 4; the schema's Key
	KeyType         int8     // from 1, CoordinatorGroup before
	CoordinatorKeys []string // from 4
}

// FindCoordinatorResponse answers a FindCoordinatorRequest.
type FindCoordinatorResponse struct {
	ThrottleTimeMs int32         // from 1
	NodeID         int32         // before 4, -1 with an error
	Port           int32         // before 4, -1 with an error
	ErrorCode      Code          // before 4
	ErrorMessage   *string       // 1 to 3
	Host           string        // before 4
	Coordinators   []Coordinator // from 4
}

// Coordinator is the answer for one key.
type Coordinator struct {
	Key          string
	NodeID       int32 // -1 with an error
	Port         int32 // -1 with an error
	Host         string
	ErrorMessage *string
	ErrorCode    Code
}

// Key is KeyFindCoordinator.
func (*FindCoordinatorRequest) Key() Key { return KeyFindCoordinator }

// Key is KeyFindCoordinator.
func (*FindCoordinatorResponse) Key() Key { return KeyFindCoordinator }

func (r *FindCoordinatorRequest) code(c *codec.Coder) {
	v := c.Version()
	if v <= 3 {
		c.String(&r.CoordinatorKey)
	}
	if v >= 1 {
		c.Int8(&r.KeyType)
	}
	if v >= 4 {
		c.Strings(&r.CoordinatorKeys)
	}
	c.Tags()
}

func (r *FindCoordinatorResponse) code(c *codec.Coder) {
	v := c.Version()
	if v >= 1 {
		c.Int32(&r.ThrottleTimeMs)
	}
	if v >= 4 {
		codec.ArrayOf(c, &r.Coordinators, 56, codeCoordinator)
	} else {
		r.codeOne(c)
	}
	c.Tags()
}

// codeOne codes the one coordinator that versions before 4 have.
func (r *FindCoordinatorResponse) codeOne(c *codec.Coder) {
	codeCode(c, &r.ErrorCode)
	if c.Version() >= 1 {
		c.NullableString(&r.ErrorMessage)
	}
	c.Int32(&r.NodeID)
	c.String(&r.Host)
	c.Int32(&r.Port)
}

func codeCoordinator(c *codec.Coder, k *Coordinator) {
	c.String(&k.Key)
	c.Int32(&k.NodeID)
	c.String(&k.Host)
	c.Int32(&k.Port)
	codeCode(c, &k.ErrorCode)
	c.NullableString(&k.ErrorMessage)
	c.Tags()
}
