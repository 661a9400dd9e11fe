package wire

import "github.com/weirmq/weir/wire/codec"

// KeyAddRaftVoter is the API that gives a controller a vote.
//
// All versions are flexible. Version 1 says whether to wait for the commit.
const KeyAddRaftVoter Key = 80

// AddRaftVoterRequest names the controller, by its id and its folder.
type AddRaftVoterRequest struct {
	ClusterID        *string
	TimeoutMs        int32
	VoterID          int32
	VoterDirectoryID [16]byte
	Listeners        []RaftVoterListener
	AckWhenCommitted bool // from 1; true before
}

// RaftVoterListener is one address of a controller.
type RaftVoterListener struct {
	Name string
	Host string
	Port uint16
}

// AddRaftVoterResponse answers an AddRaftVoterRequest.
type AddRaftVoterResponse struct {
	ThrottleTimeMs int32
	ErrorCode      Code
	ErrorMessage   *string
}

// NewAddRaftVoterRequest holds the schema's defaults.
func NewAddRaftVoterRequest() *AddRaftVoterRequest {
	return &AddRaftVoterRequest{TimeoutMs: 15_000, AckWhenCommitted: true}
}

// Key is KeyAddRaftVoter.
func (*AddRaftVoterRequest) Key() Key { return KeyAddRaftVoter }

// Key is KeyAddRaftVoter.
func (*AddRaftVoterResponse) Key() Key { return KeyAddRaftVoter }

func (r *AddRaftVoterRequest) code(c *codec.Coder) {
	c.NullableString(&r.ClusterID)
	c.Int32(&r.TimeoutMs)
	c.Int32(&r.VoterID)
	c.UUID(&r.VoterDirectoryID)
	codec.ArrayOf(c, &r.Listeners, 40, codeRaftVoterListener)
	if c.Version() >= 1 {
		c.Bool(&r.AckWhenCommitted)
	} else if c.Reading() {
		r.AckWhenCommitted = true
	}
	c.Tags()
}

func codeRaftVoterListener(c *codec.Coder, l *RaftVoterListener) {
	c.String(&l.Name)
	c.String(&l.Host)
	c.Uint16(&l.Port)
	c.Tags()
}

func (r *AddRaftVoterResponse) code(c *codec.Coder) {
	c.Int32(&r.ThrottleTimeMs)
	codeCode(c, &r.ErrorCode)
	c.NullableString(&r.ErrorMessage)
	c.Tags()
}
