// Package check judges a history: whether what clients were told and shown can have
// come from one append-only log a partition, and whether the cluster went on.
//
// # Data flow
//
//	history ──first pass──▶ analysis: logs, values, positions, registers, series
//	        analysis.finish ──▶ anomalies, cycles ──▶ the worst of each kind
//	history ──second pass, only if something was found──▶ their neighbourhoods
//	                                     ──▶ Report: verdict, anomalies, series, faults
//
// # Method
//
// Each value is sent once, so whoever reads it names its writer. From all reads, and
// from sends that were acknowledged, the log of each key is put together: which
// value is at which offset. It must be a function both ways (inconsistent-offsets,
// duplicate), everyone must read along it without step back or omission (polls),
// producers must find their order in it (sends), what was acknowledged must be
// there (lost-write, unseen), what certainly failed must not (G1a). Offsets without
// a record are legal: control batches take them. Whether a reader's gap holds a
// record is known only at the end, so gaps are kept, once each.
//
// A send of unknown outcome counts as having happened once its value is read, or, in
// a transaction, once any value of that transaction is read.
//
// Cycles are looked for only where there are transactions: operations that only
// send or only read can not form one that the checks of single keys miss. Edges are
// not stored but found when asked for: a read keeps the ranges it read, a value its
// writer. Real time is a chain of one node for each completion. One search for
// strongly connected components with all edges; inside what it finds, one for each
// kind from the strictest on, and then the shortest cycle.
//
// A committed offset is a register: an answer is legal if some commit of that
// offset may have been the last to take effect.
//
// # What a history must not do
//
// Topics keep everything: no compaction, no retention, no DeleteRecords. A key that
// is deleted is judged except for lost and unseen values and progress. Readers that
// should see everything are new processes that read from the start after Final.
//
// # Memory
//
// About 32 bytes a value and as much an operation, 16 a range read, and while cycles
// are looked for some 20 more an operation. Series have a bounded number of buckets,
// which grow wider with the run.
//
// # Goroutines and locks
//
// None. The package reads no clock and knows no files.
//
// It imports integration/chaos/history.
package check
