package fsm

// BrokerID is a node's id as clients see it: 1 and up.
type BrokerID int32

// NoBroker stands for "no leader".
const NoBroker BrokerID = -1

// BrokerEpoch numbers one incarnation of a broker: the Raft index of its registration.
type BrokerEpoch int64

// TopicID identifies a topic for ever; a topic re-created under the same name has another.
type TopicID [16]byte

// PartitionEpoch counts the changes of one partition's state (leader, ISR, replicas).
type PartitionEpoch int32

// TopicPartition names one partition by topic id, the only name that survives
// deletion and re-creation.
type TopicPartition struct {
	Topic     TopicID
	Partition int32
}
