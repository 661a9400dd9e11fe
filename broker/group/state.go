package group

import "fmt"

// State is where a group stands, in Kafka's words.
type State uint8

// The states. PreparingRebalance and CompletingRebalance are those of classic
// groups alone, Assigning and Reconciling of the consumer protocol alone. Their
// numbers are stored with a group's history: none is used again.
const (
	Empty               State = iota // no members
	PreparingRebalance               // waiting for the members to join again
	CompletingRebalance              // waiting for the leader's assignments
	Stable                           // every member has what it shall have
	Dead                             // deleted, or of no more use to its coordinator
	Assigning                        // the target assignment is older than the group epoch
	Reconciling                      // members are on their way to the target assignment
)

// String is Kafka's name of the state.
func (s State) String() string {
	names := [...]string{
		Empty: "Empty", PreparingRebalance: "PreparingRebalance", CompletingRebalance: "CompletingRebalance",
		Stable: "Stable", Dead: "Dead", Assigning: "Assigning", Reconciling: "Reconciling",
	}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s)) // of a newer version's history
}
