package group

import "fmt"

// Code is the outcome of a request, in this package's own small numbering. The
// shell maps each to the error code of the protocol that Kafka uses for it.
type Code uint8

// The outcomes. The comment names Kafka's error code.
const (
	None                    Code = iota // NONE (0)
	CoordinatorNotAvailable             // COORDINATOR_NOT_AVAILABLE (15): the group could not be stored, or is being loaded anew
	NotCoordinator                      // NOT_COORDINATOR (16): another node took the slot over
	IllegalGeneration                   // ILLEGAL_GENERATION (22)
	InconsistentProtocol                // INCONSISTENT_GROUP_PROTOCOL (23): no protocol in common, or a group of the other kind
	UnknownMember                       // UNKNOWN_MEMBER_ID (25)
	InvalidSessionTimeout               // INVALID_SESSION_TIMEOUT (26)
	RebalanceInProgress                 // REBALANCE_IN_PROGRESS (27)
	InvalidRequest                      // INVALID_REQUEST (42)
	NonEmptyGroup                       // NON_EMPTY_GROUP (68)
	GroupNotFound                       // GROUP_ID_NOT_FOUND (69): also a group of the other kind that has members
	MemberIDRequired                    // MEMBER_ID_REQUIRED (79): ask again with the id in the reply
	GroupMaxSizeReached                 // GROUP_MAX_SIZE_REACHED (81)
	FencedInstance                      // FENCED_INSTANCE_ID (82): another member has taken the instance id over
	FencedMemberEpoch                   // FENCED_MEMBER_EPOCH (110): give everything up and join again
	UnreleasedInstance                  // UNRELEASED_INSTANCE_ID (111): the member that has the instance id has not left
	UnsupportedAssignor                 // UNSUPPORTED_ASSIGNOR (112)
	StaleMemberEpoch                    // STALE_MEMBER_EPOCH (113): heartbeat first, then try again
	InvalidRegex                        // INVALID_REGULAR_EXPRESSION (128)
	codeEnd                             // one past the last
)

// Codes lists all outcomes, for tests that each is mapped.
func Codes() []Code {
	var all []Code
	for c := None; c < codeEnd; c++ {
		all = append(all, c)
	}
	return all
}

// String is the name in this package.
func (c Code) String() string {
	names := [...]string{
		None: "None", CoordinatorNotAvailable: "CoordinatorNotAvailable", NotCoordinator: "NotCoordinator",
		IllegalGeneration: "IllegalGeneration", InconsistentProtocol: "InconsistentProtocol", UnknownMember: "UnknownMember",
		InvalidSessionTimeout: "InvalidSessionTimeout", RebalanceInProgress: "RebalanceInProgress", InvalidRequest: "InvalidRequest",
		NonEmptyGroup: "NonEmptyGroup", GroupNotFound: "GroupNotFound", MemberIDRequired: "MemberIDRequired",
		GroupMaxSizeReached: "GroupMaxSizeReached", FencedInstance: "FencedInstance", FencedMemberEpoch: "FencedMemberEpoch",
		UnreleasedInstance: "UnreleasedInstance", UnsupportedAssignor: "UnsupportedAssignor", StaleMemberEpoch: "StaleMemberEpoch",
		InvalidRegex: "InvalidRegex",
	}
	if int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("Code(%d)", uint8(c))
}
