// Package group is the coordinator of one group, without IO: who is a member,
// who has which partitions, and what each request is answered.
//
// # Data flow
//
// A Group is one group of either protocol: classic (Join, Sync, Heartbeat, Leave)
// or consumer (ConsumerHeartbeat, KIP-848). The shell calls a method for each
// request, with a Ticket that names it, and acts on the Out that comes back: it
// sends the Replies, proposes Put as the group's new row, and calls Expire at
// WakeAt. When the proposal is applied it calls Committed, which lets go of the
// replies that were held for it.
//
//	request ─▶ Group ─▶ Out ─▶ Replies ─▶ client
//	             ▲        └──▶ Put ─▶ Raft ─▶ Committed ─▶ more Replies
//	             └──────── Expire(now) at WakeAt
//
// # What always holds
//
//   - A reply that promises something (a generation, an assignment, an epoch) is
//     not seen before the row that says so is applied. So a successor that loads
//     the row knows of every promise, and rebalances nobody. Refusals, and a
//     classic heartbeat, promise nothing and go out at once.
//   - Each ticket is answered exactly once. A promise that was held back while its
//     member was dropped or replaced goes out as a refusal.
//   - The generation, or group epoch, never goes back under one row, whichever
//     protocol the group moves to.
//   - In a consumer group no partition is in Assigned or Revoking of two members,
//     in any row.
//   - A session does not run while the coordinator owes its member an answer, and
//     starts again when the coordinator was the one that stood still.
//
// A Group may be ahead of its row: each Put holds all that was decided before it,
// and a newer one makes an older one that still waits needless. When a Put is
// refused, all that was decided since the row is void: the Group answers everyone
// and is Dead, and the shell loads it again. The outcome of a proposal that timed
// out is unknown, not refused; it is repeated until it is known.
//
// What is soft, and lost on failover: sessions and other deadlines, the ids given
// out to members that have not joined yet, and joins and syncs that wait. The flight
// recorder is in the row; a note waits for the next Put. A member that was told to rebalance before a failover finds its
// old generation still valid after it.
//
// # Where what is
//
// group.go drives a call; classic*.go and consumer.go, target.go hold the two
// protocols; migrate.go moves a group from one to the other, and mixed.go serves
// classic members of a consumer group, whose embedded format embedded.go knows;
// assign.go has the assignors; offsets.go judges commits; recorder.go and
// describe.go say what happened and why.
//
// # Two protocols in one group
//
// A group without members is of either kind. One with members moves, if the policy
// lets it, when the first member of the consumer protocol joins, and back when the
// last one is gone. Between the two it is a consumer group, in which classic members
// have epochs, targets and partitions as all others; a member is classic when it
// has told protocols.
//
// # Goroutines, locks, imports
//
// None: the caller's lock guards a Group. The package reads no clock and makes no
// ids: both are arguments. It imports fsm and wire/batch.
package group
