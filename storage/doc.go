// Package storage keeps partitions' logs in one data folder on one disk: appends
// in, Ranges of files out. It knows offsets, leader epochs and idempotent
// producers, and nothing of brokers, replicas or Raft. Names and formats are
// Kafka's, so Kafka's dump tool reads the folders and a stopped Kafka's partition
// folders can be opened.
//
// # Data flow
//
// A leader's append (Log.AppendLeader) checks the producer's window, writes base
// offset and epoch into the batch and the batch into the last segment, with one
// write; a follower's (Log.AppendReplica) checks what the leader sent and does
// the same with many batches. A flush makes a group of logs durable and publishes
// their flushed ends. Log.Read returns a Range: whole batches in one segment file,
// which the sender passes to the kernel by descriptor, position and length. Cuts
// (TruncateTo, ResetTo, AdvanceStart) take bytes away. A cleaning of a compacted log
// (SetCompaction, clean.go) makes new segments with less in them and puts them in the
// place of old ones.
//
// # Files
//
// All numbers in binary files are big-endian; text files are Kafka's checkpoint
// form: a line "0", a line with the count, a line per entry. In the data folder:
//
//	.lock                               flock'ed while the folder is open
//	.clean-shutdown                     {"version":0,"brokerEpoch":n}, only after an orderly stop
//	recovery-point-offset-checkpoint    "topic partition offset": durable below, checked above; a log that it names and that has no folder is lost
//	replication-offset-checkpoint       the same with high watermarks, a hint
//	log-start-offset-checkpoint         the same with log starts, durable before files go
//	cleaner-offset-checkpoint           the same with ends of what was cleaned
//	topic-partition/                    a log
//	topic-partition.new/                a log being created; removed at start
//	topic-partition.hex-delete/         a deleted log, to be removed
//	topic-partition.hex-stray/          a log set aside, kept
//
// In a log's folder, %020d being the first offset of a segment:
//
//	partition.metadata         "version: 0", "topic_id: " and the id in base64 for URLs: the identity
//	%020d.log                  record batches, back to back
//	%020d.index                per entry: last offset of a batch less the segment's first (uint32), its position (uint32)
//	%020d.timeindex            per entry: greatest timestamp so far (int64), last offset of the batch that brought it less the first (uint32)
//	%020d.snapshot             the producers before that offset; the layout is in snapshot.go
//	leader-epoch-checkpoint    "epoch offset": where the epochs of the batches begin
//	%020d.log.N.deleted        a dropped segment that a Range may still read
//	%020d.*.cleaned            a file of a cleaned segment, not decided yet; removed at start
//	%020d.*.swap               one that is decided: a start finishes what swap.go describes
//	*.tmp                      a file being written; removed at start
//
// A batch without records, producer and times is a filler: it covers the offsets of batches
// that a cleaning took away, of one leader epoch. Kafka's clients go over it as over a batch
// that they find emptied.
//
// Index entries are made as Kafka makes them, for the first batch after each
// IndexIntervalBytes. A new log has no segment until the first append, except that
// one which was reset or cut to nothing has an empty one, whose name says where
// the log ends.
//
// # Invariants
//
//   - Offsets are contiguous and leader epochs do not fall, from Start to End, cleaned or
//     not: where a cleaning leaves nothing, a filler covers the offsets (thin.go). So a
//     hole is always damage.
//   - A cleaning takes away only what a later record below the high watermark, which is
//     on the disk first, replaces: a log that is not cut below its high watermark holds
//     the newest value of every key. One that is has to be fetched anew (Compacted).
//   - Batches of remembered producers stay, if only as headers.
//   - No byte position of a file that a reader may have seen is written twice: a
//     cut shortens the file, and the next append opens a new segment. A segment
//     that is dropped is renamed before its name is used again. So a Range sees
//     the bytes it was made for, or fewer.
//   - Flushed is durable. The recovery point on the disk is at most Flushed, and
//     passes neither an epoch that is not in the epoch file nor a closed segment
//     whose indexes are not written.
//   - A recovery point is lowered, durably, before a cut takes bytes below it, and
//     appends wait until the cut is durable: a crash leaves one history, never the
//     old tail under a new one.
//   - Above the recovery point every batch is checked when a log is opened, and
//     the log ends before the first bad one. Below it nothing is cut: what is
//     missing there makes the log damaged, and it takes no appends until it is
//     cut below the damage or reset. Where each closed segment ends is looked at.
//   - A log whose folder or files somebody else has removed is damaged, too, whether the
//     folder was open then or not (missing.go).
//   - What Read returns was written by this run, or proven by it: each batch has its
//     checksum, its place after the one before and its epoch (prove.go). A scrub
//     proves what nobody reads (scrub.go).
//   - Indexes, epoch file and snapshots are derived. They can be made again from
//     the batches, and what an index says is checked where it points.
//   - A log that is durable (SetDurable) is never left unsynced: an append lists it
//     for the committer, or whoever has its token does when giving that back.
//   - A write or sync that fails takes the folder offline for good, except that a
//     full disk (or too many open files) refuses the call and changes nothing. Room
//     that is missing for derived files is waited for.
//   - The identity of a log is the topic id in its folder. Creation and removal are
//     atomic renames. Nothing here decides that a log is to be deleted.
//
// # Goroutines and locks
//
// A Dir has five goroutines, whatever the number of logs: one calls Tick, one
// flushes durable logs, one removes files that lie below a raised start or were
// deleted, one scrubs, one compacts. Close ends and awaits them. A flush syncs some files at once on
// goroutines that it waits for. With FlushInterval not positive there are none and
// the owner calls Tick, Commit, Scrub and Clean. A Log has no goroutine, timer or, while it is
// idle, open file.
//
//   - Log.mu guards what appends change; it is held across the page-cache write
//     and, at a roll, the creation of a file, never across a sync. Readers take an
//     immutable view by an atomic load instead; the tail of the last segment is
//     one atomic word (end and size).
//   - The token Log.maint is the right to flush, cut, delete or close a log, held
//     across syncs. A flush takes those of many logs, trying only; so nobody waits
//     for a second one with a first in hand. checkpointer.busy comes after it, and
//     Dir.ticked before it.
//   - A gate lets GateWidth goroutines into blocking file calls, with places of
//     their own for appends; inside, nobody enters again. A Range enters for one
//     call (Range.Hold).
//   - Order: Dir.ticked, Log.maint, checkpointer.busy, gate, Log.mu; Dir.mu is held
//     for the maps alone. Dir.dirtyMu, segment.mu, the committer's, the descriptor
//     caches', the cleaner's and the reaper's locks are leaves; Log.paths is held while a file is opened or
//     renamed, and nothing is locked inside it.
//   - A cleaning reads and writes without lock or token, takes Log.maint to put a segment
//     in its place, and finds out there whether the log was cut meanwhile.
//   - Segment files are counted references: one of the view, one of each Range.
//     The last one to let go has a dropped file removed by the reaper. A descriptor
//     in use is never closed by the caches, and one with unsynced bytes stays open
//     until its flush, so that no error of it is lost.
//
// Package storage imports storage/vfs, wire/batch and wire/compress.
package storage
