package fsm

import "fmt"

// Refusal says which guard of a command did not hold. A refused command, or a
// refused item of one, changed nothing. The zero Refusal means none.
type Refusal uint8

// The refusals. Their numbers are part of the result encoding: append only.
const (
	_                   Refusal = iota
	BadCommand                  // the command contradicts itself; retrying it is pointless
	UnknownBroker               // no broker is registered under that id
	StaleBrokerEpoch            // the broker has registered again since
	FolderInUse                 // another data folder serves under that id, and its session lives
	BrokerStopping              // the broker is in controlled shutdown
	UnknownTopic                // no topic has that id
	UnknownPartition            // the topic has no such partition
	TopicExists                 // the name or the id is taken
	NotLeader                   // the proposer does not lead the partition
	StaleLeaderEpoch            // the partition is in another leader epoch
	StalePartitionEpoch         // the partition has changed since
	IneligibleReplica           // a member is no replica, fenced, stopping, or of another broker epoch
	StaleBlock                  // the producer id block has been given out already
	OtherCluster                // the cluster has another id
	StaleConfig                 // a topic config has another value than the change was made from
	StalePartitionCount         // the topic has another number of partitions by now
	StaleSlotEpoch              // the slot has another owner since
	StaleSequence               // a later command of the slot's owner has been taken
	UnknownGroup                // there is no such group
	GroupNotEmpty               // the group has members
	StaleGroup                  // the group has changed since
	UnknownMember               // the group has no such member
	IllegalGeneration           // the classic group is at another generation
	StaleMemberEpoch            // the member is at another epoch
	FencedInstance              // another member has taken over the group instance id
	NotInSync                   // a replica that is being added is not in the ISR, or the ISR is too small
	ReplicaNeeded               // a replica that would leave may hold what too few others are known to have
	NodeIDTaken                 // the node id is that of another data folder
	NodeRemoved                 // the node has been taken out of the cluster
	FolderKnown                 // the data folder has another node id
	HostsReplicas               // the node hosts replicas
)

// Error names the refusal in words.
func (r Refusal) Error() string {
	names := [...]string{
		BadCommand:          "malformed command",
		UnknownBroker:       "unknown broker",
		StaleBrokerEpoch:    "stale broker epoch",
		FolderInUse:         "another data folder is registered under this broker id and its session lives",
		BrokerStopping:      "broker is in controlled shutdown",
		UnknownTopic:        "unknown topic",
		UnknownPartition:    "unknown partition",
		TopicExists:         "topic exists",
		NotLeader:           "proposer does not lead the partition",
		StaleLeaderEpoch:    "stale leader epoch",
		StalePartitionEpoch: "stale partition epoch",
		IneligibleReplica:   "ineligible replica",
		StaleBlock:          "producer id block already allocated",
		OtherCluster:        "cluster has another id",
		StaleConfig:         "stale topic config",
		StalePartitionCount: "stale number of partitions",
		StaleSlotEpoch:      "stale slot epoch",
		StaleSequence:       "stale sequence of the slot's owner",
		UnknownGroup:        "unknown group",
		GroupNotEmpty:       "group has members",
		StaleGroup:          "the group has changed",
		UnknownMember:       "unknown group member",
		IllegalGeneration:   "illegal generation",
		StaleMemberEpoch:    "stale member epoch",
		FencedInstance:      "fenced group instance id",
		NotInSync:           "added replicas are not in sync",
		ReplicaNeeded:       "a replica that would leave is still needed",
		NodeIDTaken:         "node id is that of another data folder",
		NodeRemoved:         "node has been removed from the cluster",
		FolderKnown:         "data folder has another node id",
		HostsReplicas:       "node hosts replicas",
	}
	if int(r) < len(names) && names[r] != "" {
		return names[r]
	}
	return fmt.Sprintf("refusal %d", uint8(r))
}

// Result is the answer to one command.
type Result struct {
	Err     error     // a Refusal when the whole command was refused, else nil
	Epoch   int64     // the broker epoch (RegisterBroker) or the first producer id (AllocateProducerIDs) granted
	Skipped []int     // indexes of refused items in a command of many items, ascending
	Why     []Refusal // the refusal of each item in Skipped
	// Items is the answer to each change of a SlotCommand: a Refusal, or nil.
	Items []error
	// Repeated says that a SlotCommand had been taken before; Items is what it was answered then.
	Repeated bool
}

func refused(r Refusal) Result { return Result{Err: r} }

// skip notes that item i was refused.
func (r *Result) skip(i int, why Refusal) {
	r.Skipped = append(r.Skipped, i)
	r.Why = append(r.Why, why)
}
