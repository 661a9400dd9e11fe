// Package elect holds the controller's policy: where replicas are placed, who
// leads, who is alive, which ISR changes are worth proposing.
//
// # Responsibility
//
// The functions look at an Image and return facts (or parts of them) for the
// controller to put in the Raft log. Apply checks the guards of every one, so a
// decision made at an Image that has moved on is refused, never harmful. Policy
// may change with any release.
//
// # Data flow
//
//	heartbeats, refused dials → Liveness → FenceBroker
//	Image with leaderless partitions → Leaders → ChangeLeaders
//	Image with undecided partitions → Recovery → questions; answers → Recovery → ChangeLeaders
//	operator's wish → Contenders → questions; answers → Unclean → ChangeLeaders
//	Image, stopping broker → HandOff → ChangeLeaders
//	Image with slots without owner, or unevenly spread → Slots → AssignSlots
//	Image, request → Place, Initial → CreateTopic
//	Image, request → Reassign → ChangeReplicas
//	Image with reassignments that run → FinishReassignment → ChangeReplicas
//	Image, leader's wish → CheckISR → ChangeISR
//
// # Invariants
//
//   - A leader is taken from ISR ∩ eligible, else from ELR ∩ eligible. Only Recover
//     goes outside by itself, when both are empty, all last members are back, and they and
//     whoever else lives have been asked for their logs, and marks it. Unclean does so
//     when an operator says so, and asks whom it can.
//   - A damaged log leads nothing by itself.
//   - Nobody is fenced for a time in which the controller itself did not run, nor
//     before a new controller has waited a full session: half of one for the controller
//     before it, when that is known to have been silent for as long as it takes.
//   - The same arguments give the same answer: nothing depends on the order of a map.
//
// # Goroutines and locks
//
// None. Liveness and Recovery belong to the controller's goroutine; the rest are functions.
//
// # Imports
//
// fsm and wire/batch of ours. The package is pure: the time and seeds are arguments.
package elect
