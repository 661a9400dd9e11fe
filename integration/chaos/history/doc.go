// Package history is the record of what clients did to a cluster and what faults
// it was under, in the form that package check judges.
//
// # Data flow
//
//	client goroutines ─Op─▶ Writer ─frames─▶ file ─▶ Reader ─Entry─▶ check
//	fault injector ─Window─▶ Writer
//
// # Model
//
// An Op is one completed operation of a process: what it asked, when, and what it
// learned. A key stands for one incarnation of one topic-partition: a topic that is
// deleted and made again gets new keys. The method rests on values: each is sent at
// most once by the workload (what a producer's library retries is one Send), so a
// value that is read names the Send that wrote it. A Value holds its process and
// that process's counter, and a process sends its values in rising order; Sends
// of one process may overlap in time, its other operations may not.
//
// The outcome decides what is an anomaly, so it has to be right: Fail is only for
// what certainly did not happen, Info for what may have happened or may yet
// happen. A timeout or a lost connection is Info.
//
// # File
//
// The magic "WEIRHIS" and a version byte, then frames: a uvarint length, a kind byte
// and a body of varints, strings by length. Lists of records are runs of one key with differences
// of offsets and values, about four bytes a record. Frames are in order of
// completion. A file whose end is missing, as after a crash of its writer, reads
// as ErrTruncated after its last whole frame.
//
// # Goroutines and locks
//
// Writer is safe for many goroutines: Writer.mu guards its buffer and is held
// while the buffer is written. Reader belongs to one goroutine. The package starts
// none, reads no clock and knows no files: it is given an io.Writer or io.Reader.
//
// It imports nothing of ours.
package history
