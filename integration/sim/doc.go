// Package sim runs whole clusters in one goroutine: the real replication cores
// (broker/isr, broker/feed), the real policy and state machine (controller/elect,
// fsm) and the real storage on a file system in memory that can lose power, under
// a virtual clock and faults drawn from a seed. A seed and a commit reproduce a run.
//
// # Data flow
//
//	PlanFor(seed) → Plan: topics, clients, faults, each with its time
//	Run(Plan) → world: one queue of events in order of virtual time
//	  clients ─produce, read─▶ node ─frames, late, lost with their connection─▶ node
//	  controller (on the Raft leader) ─commands─▶ ideal ordered log ─late─▶ fsm.Apply on each node
//	→ Report, or a Violation with the last events
//	Shrink(Plan) → the smallest plan found that still breaks the same invariant
//
// # What is real and what is not
//
// hashicorp/raft can not be made deterministic, so raft.go stands in for it: an
// ordered log whose leader is lost, deposed and replaced, in which proposals of
// unknown outcome may come back to life, and which reaches each node late. It
// feeds encoded entries to the real fsm.Apply of each node. Sockets are pipes
// that delay, stall and break but keep their order, as TCP does. Faults of one machine
// and of one link are in inflict.go, those of all machines in disaster.go, what users do to topics in topics.go, changes that
// come after their proposer gave up on them in late.go, bits that flip on a disk in rot.go, wall clocks that are set in clock.go,
// replicas that come and go in reassign.go.
//
// The glue between cores, storage and network lives in package broker as
// goroutines and locks. These files do in single steps what it does; where it lets
// go of a lock between two steps, other events may come between them here:
//
//	node.go session.go           boot, shutdown, background work; heartbeats, self-fencing
//	replica.go replica_feed.go   Partition: appends, roles, positions, cuts
//	reconcile.go                 reconciler, folders, keeper, ISR proposals
//	conn.go send.go              feed connections, their leader's end (feeder)
//	source.go                    their follower's end (follower)
//	term.go requests.go call.go  the controller's loop and the calls to it
//	group.go                     the coordinator of one group, in a quarter of the runs
//
// A rule that changes there has to change here.
//
// # Phases
//
// First everything may fail. Then all faults end but one: a random part of the
// cluster, large enough to go on, heals and must come to rest: leaders, full
// ISRs of what is up, equal logs, every produce answered. At the end every
// byte is read back.
//
// # Invariants
//
// check.go lists them. The model beside each log (journal.go) knows what it must
// hold, the model of each partition (part.go) what was committed.
//
// # Goroutines and locks
//
// None: everything runs on the caller's goroutine, and nothing but the seed
// decides its order.
package sim
