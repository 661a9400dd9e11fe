package storage

import (
	"errors"
	"fmt"

	"github.com/weirmq/weir/wire/batch"
)

// What a log or folder answers when it cannot do what was asked. All are
// returned wrapped, with the partition and what was attempted.
var (
	// ErrOutOfOrderSequence: an idempotent batch does not follow its producer's last one.
	ErrOutOfOrderSequence = errors.New("out of order sequence number")
	// ErrInvalidProducerEpoch: an idempotent batch of an epoch below the producer's current one.
	ErrInvalidProducerEpoch = errors.New("invalid producer epoch")
	// ErrOffsetOutOfRange: an offset below the log's start or past its end.
	ErrOffsetOutOfRange = errors.New("offset out of range")
	// ErrFull: the disk has no room. The log is unchanged and healthy; the call can be made again.
	ErrFull = errors.New("disk full")
	// ErrOffline: a write or fsync of the folder went wrong before; nothing is read or written any more.
	ErrOffline = errors.New("data folder is offline")
	// ErrClosed: the log was closed, deleted or set aside.
	ErrClosed = errors.New("log is closed")
	// ErrEpoch: an append under a leader epoch below the log's last one, or a batch of an epoch above the attempt's.
	ErrEpoch = errors.New("leader epoch out of order")
	// ErrGap: a replicated batch that does not begin where the log ends.
	ErrGap = errors.New("batch does not start at the end of the log")
	// ErrBusy: the log is being cut, or the process is out of descriptors; the call can be made again.
	ErrBusy = errors.New("log is busy")
	// ErrExists: a folder for this topic and partition exists already.
	ErrExists = errors.New("partition folder exists")
)

// CorruptError says where a log holds bytes that are not what was written there.
type CorruptError struct {
	Path   string       // the file
	Pos    int64        // where in it
	Offset batch.Offset // the offset that was expected there
	Err    error        // what was found; nil when Msg says it
	Msg    string
}

func (e *CorruptError) Error() string {
	s := fmt.Sprintf("%s is corrupt at byte %d (offset %d): %s", e.Path, e.Pos, e.Offset, e.Msg)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns what was found.
func (e *CorruptError) Unwrap() error { return e.Err }
