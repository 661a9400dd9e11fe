// Package fsm is the replicated truth: what the cluster has agreed on.
//
// # Responsibility
//
// An Image is one version of all metadata: brokers, nodes, topics, partitions,
// tombstones of deleted topics, producer id blocks, slots, groups and what they
// have committed. A Command is one guarded fact from the Raft log. Apply makes
// the next Image from both. Nothing is decided here: the controller (for groups
// the owner of their slot) decides, a command states the result and the epochs it
// was decided at, and Apply checks those guards and stores or refuses.
// So policy may change without changing what old entries mean. What must never
// lag behind a fact is Apply's own work: fencing or registering a broker takes it
// out of every ISR in the same step, and ELR, effective minimum ISR, epochs and
// hash are kept by it.
//
// # Data flow
//
//	controller decides → Command → EncodeEntry → Raft → DecodeEntry
//	    → Apply(Image, index, Command) → next Image, Result
//	        → published by the machine; Diff(old, new) tells each node what to do
//
// WriteSnapshot and ReadSnapshot carry an Image to disk and to new nodes.
//
// # Invariants
//
//   - Apply and all it calls are pure: no clock, no randomness, no order of a map.
//     The same log gives the same Image, and the same Hash, on every node.
//   - No decoded command makes Apply panic. A guard that fails is a Refusal in the
//     Result; a command or version from a later release is an
//     UnknownCommandError, at which a node must halt.
//   - A broker's epoch is that of its last process. A registration of that process
//     which comes again changes nothing, one of another that has been replaced since
//     is refused.
//   - A node id and a data folder that were admitted belong to each other for good: no other
//     folder registers under the id, and once removed neither comes back.
//   - A partition's leader is in its ISR or is NoBroker; its ISR is a subset of its
//     replicas and holds no fenced broker; ISR, ELR and last members are disjoint;
//     the ELR is empty while the ISR has its minimum.
//   - A leader epoch rises when, and only when, the leader changes or a replica
//     leaves. A partition epoch rises with every change of the partition.
//   - A replica comes and goes by way of Adding and Removing only, and takes nothing
//     with it that those that stay are not known to have (ChangeReplicas).
//   - A topic id is never reused while anything of its topic is left: a deleted
//     topic is a Tombstone until every replica has confirmed.
//   - A slot's owner may serve: fencing, registering or stopping it leaves the slot
//     without one in the same step. A slot's epoch rises when, and only when, its
//     owner changes; a command of another epoch, or of a sequence that was taken,
//     changes nothing.
//   - What has committed offsets is a group of the Image, what they are for is a
//     partition of a living topic.
//   - Image.Hash is the sum of the hashes of all rows.
//   - An Image is never modified once Apply has returned it. Rows it hands out
//     share memory with it.
//
// # Layout
//
// Partitions lie in blocks of 64 by (topic id, block), with all replica ids of a
// block in one slice, and the blocks in a B-tree (blockTree); all other trees are
// go-immutable-radix. An index holds the blocks that have a leaderless partition,
// so that an election looks at nothing else, and another one those whose reassignment
// runs. There is no index of partitions by
// broker: each block has a filter of the brokers in it, and what needs all
// partitions of a broker passes over the blocks. A million partitions in 100,000
// topics take some 155 MB.
//
// Committed offsets are one row for each (group, topic id), divided into blocks of
// 64 partitions too: some 40 bytes a partition, 8 in a command or a snapshot.
//
// # Goroutines and locks
//
// None. An Image may be read by any number of goroutines.
//
// # Imports
//
// wire/codec and wire/batch of ours. The package is pure: no net, os, sync,
// context, logger or metrics.
package fsm
