// Package isr is the replication protocol of one partition, without IO: when
// the high watermark moves, who is in sync, and what a follower may show.
//
// # Data flow
//
// Leader is made when a broker begins to lead a partition in one leader epoch
// and is thrown away when that epoch ends: nothing it learnt is carried over,
// so a position reported to one leader epoch can never count in another. The
// shell feeds it events (Appended, Flushed, Follow, Progressed, Behind, Gone,
// Installed, Answered, Tick) and acts on the Effects each returns: it publishes the high
// watermark, proposes the ISR change, and calls Tick at WakeAt. Follower is
// its small counterpart on a replica that follows.
//
// # What always holds
//
//   - The high watermark never goes back, and never passes the counted end of
//     a member of the maximal ISR: the committed one together with every
//     member of a change that may still be applied.
//   - It does not move while the committed ISR is below the effective min ISR.
//   - At most one Change is in flight; it names the partition epoch at which
//     it was decided, so the state machine applies at most one for each.
//   - A change whose outcome is unknown stays in the maximal ISR until the
//     partition epoch moves: no later refusal can prove that the earlier
//     proposal will not still be applied. A refused retry is therefore
//     followed by another proposal (at worst of the committed ISR itself),
//     whose only purpose may be to raise the partition epoch.
//   - A position counts for one leader epoch and one (broker, broker epoch).
//     One that is not known holds the high watermark where it is.
//   - While flushed ends have to count, or may have to (durability.go), only they
//     do: the partition is then recorded, or may be, as one that loses nothing when
//     all machines lose power.
//   - A follower joins only at or past both the high watermark and the start
//     of the leader's own epoch, while its broker lives at the broker epoch at
//     which the position was reported.
//   - A leader that itself stood still for half the lag limit gives everyone a
//     new start before it judges anyone.
//
// A broken invariant panics with "BUG:"; what arrives from other nodes has
// been checked by package feed before it comes here.
//
// # How to drive a Leader
//
// After NewLeader call Tick at once: it moves the high watermark as far as the
// leader alone may move it and says when to tick first. Each Effects.Propose
// must be answered by exactly one call of Answered, with the partition epoch
// that the Change names:
//
//   - Committed: the change was applied. Until Installed brings it, both the
//     old and the new ISR bind.
//   - Refused: it was certainly not applied, and this copy never will be:
//     an ineligible replica, or a proposal that never left this node.
//   - Unknown: everything else: a deadline, a lost controller, a stale
//     partition or leader epoch (which says only that some change was applied,
//     perhaps an earlier copy of this very one). A proposer never resends a
//     change on its own.
//
// Installed is called for each new Image state of the partition and each time
// the registration, fencing or stopping of one of its replicas' brokers
// changes.
//
// # Goroutines, locks, imports
//
// None: the caller's lock guards it. The package reads no clock, time is an
// argument. It imports fsm and wire/batch.
package isr
