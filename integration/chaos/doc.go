// Package chaos hurts a cluster of real weir processes while clients work, and judges
// what the clients saw.
//
// # Data flow
//
//	seed ─ Draw ─▶ Plan of Steps ─ Run ─▶ host (processes, links, disks, clocks)
//	                                │
//	work (producers, readers, groups) ─ operations ─▶ history ─ check ─▶ verdict, report
//	                                                    ▲
//	                       fault windows ───────────────┘
//
// A run starts a cluster, lets the clients work, carries out the plan or a named
// scenario, heals everything, waits until the cluster is whole, reads everything back
// with fresh clients, compares the replicas' bytes, and hands the history to check.
//
// # Plans
//
// A plan is a value that follows from the seed alone: which fault, at whom ("leader",
// "minority"), when and for how long. Whom that names is found out when the step
// begins, by asking the cluster, and ties are broken by a generator that the seed
// starts; what the machine's scheduler does is not repeated.
//
// # Rules for faults
//
//   - A fault undoes itself; what it leaves running is ended by the host package.
//   - A Step says whether a majority stays up and connected: then the history demands
//     that acknowledgements go on.
//   - What the documentation says may lose data is never part of a plan; a power cut
//     waits until all replicas are in sync, and hits a minority.
//   - A host that has lost its identity (wiped, or its Raft store damaged) stays away,
//     and that is the last fault of a plan.
//
// # Goroutines and locks
//
// Run is one goroutine; the clients' belong to work, processes and proxies to host.
// There is no lock here.
//
// It imports integration/chaos/{host,work,history,check,report} and wire/batch.
package chaos
