package wire

import "github.com/weirmq/weir/wire/codec"

// KeyRemoveRaftVoter is the API that takes a controller's vote.
//
// Its only version is flexible.
const KeyRemoveRaftVoter Key = 81

// RemoveRaftVoterRequest names the controller, by its id and its folder.
type RemoveRaftVoterRequest struct {
	ClusterID        *string
	VoterID          int32
	VoterDirectoryID [16]byte
}

// RemoveRaftVoterResponse answers a RemoveRaftVoterRequest.
type RemoveRaftVoterResponse struct {
	ThrottleTimeMs int32
	ErrorCode      Code
	ErrorMessage   *string
}

// Key is KeyRemoveRaftVoter.
func (*RemoveRaftVoterRequest) Key() Key { return KeyRemoveRaftVoter }

// Key is KeyRemoveRaftVoter.
func (*RemoveRaftVoterResponse) Key() Key { return KeyRemoveRaftVoter }

func (r *RemoveRaftVoterRequest) code(c *codec.Coder) {
	c.NullableString(&r.ClusterID)
	c.Int32(&r.VoterID)
	c.UUID(&r.VoterDirectoryID)
	c.Tags()
}

func (r *RemoveRaftVoterResponse) code(c *codec.Coder) {
	c.Int32(&r.ThrottleTimeMs)
	codeCode(c, &r.ErrorCode)
	c.NullableString(&r.ErrorMessage)
	c.Tags()
}
