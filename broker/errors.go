package broker

import (
	"context"
	"errors"
	"time"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/batch"
)

// What a replica, or the node around it, answers when it cannot do what a client
// asked for. errorCodes says how clients are told.
var (
	// errNotLeader: another node leads the partition, or none does.
	errNotLeader = errors.New("this node does not lead the partition")
	// errStaleSession: this node has not been heard by the controller for so long that another may lead,
	// or its disk hangs.
	errStaleSession = errors.New("this node may have been replaced as leader")
	// errFencedEpoch: the client's leader epoch is older than this node's.
	errFencedEpoch = errors.New("the client's leader epoch is older")
	// errUnknownEpoch: the client's leader epoch is newer than this node's.
	errUnknownEpoch = errors.New("the client's leader epoch is newer")
	// errOutOfRange: the offset is below the log start or past the log end.
	errOutOfRange = errors.New("offset out of range")
	// errOffsetNotAvailable: the high watermark is not known yet in this leader epoch.
	errOffsetNotAvailable = errors.New("the high watermark is not known yet")
	// errStorage: the log cannot be read or written.
	errStorage = errors.New("storage error")
	// errStorageFull: the disk has no room; nothing was written.
	errStorageFull = errors.New("no room on the disk")
	// errNotEnoughReplicas: the ISR is below the effective min ISR; nothing was written.
	errNotEnoughReplicas = errors.New("not enough replicas are in sync")
	// errNotEnoughAfterAppend: it fell below after the batch was written.
	errNotEnoughAfterAppend = errors.New("not enough replicas are in sync, though the batch was written")
	// errUnknownPartition: there is no such topic or partition.
	errUnknownPartition = errors.New("unknown topic or partition")
	// errUnknownTopicID: no topic has this id.
	errUnknownTopicID = errors.New("unknown topic id")
	// errShuttingDown: the node is on its way out.
	errShuttingDown = errors.New("the node is shutting down")
	// errTimedOut: the request's time is over; what it began may still come to pass.
	errTimedOut = errors.New("timed out")
	// errInvalidAcks: a Produce with acks other than 0, 1 and -1.
	errInvalidAcks = errors.New("acks must be 0, 1 or -1")
	// errTransactional: a transaction was asked for.
	errTransactional = errors.New("transactions are not supported by this version of Weir")
	// errNotCoordinator: another node coordinates the group, or this one may have been replaced.
	errNotCoordinator = errors.New("this node does not coordinate the group")
	// errNoCoordinator: nobody coordinates the group at the moment, or what it decided was not stored in time.
	errNoCoordinator = errors.New("the group has no coordinator at the moment")
	// errUnknownGroup: there is no such group.
	errUnknownGroup = errors.New("there is no such group")
	// errNoProducerID: no producer id could be had in time.
	errNoProducerID = errors.New("no producer id is available")
)

// errorCode is one row of the table from errors to codes.
type errorCode struct {
	err  error
	code wire.Code
}

// errorCodes is searched from the top, so that a wrapped error is known by what
// the nearer package made of it.
var errorCodes = [...]errorCode{
	{errNotLeader, wire.NotLeaderOrFollower},
	{errStaleSession, wire.NotLeaderOrFollower},
	{errFencedEpoch, wire.FencedLeaderEpoch},
	{errUnknownEpoch, wire.UnknownLeaderEpoch},
	{errOutOfRange, wire.OffsetOutOfRange},
	{errOffsetNotAvailable, wire.OffsetNotAvailable},
	{errStorageFull, wire.KafkaStorageError},
	{errStorage, wire.KafkaStorageError},
	{errNotEnoughReplicas, wire.NotEnoughReplicas},
	{errNotEnoughAfterAppend, wire.NotEnoughReplicasAfterAppend},
	{errUnknownPartition, wire.UnknownTopicOrPartition},
	{errUnknownTopicID, wire.UnknownTopicID},
	{errShuttingDown, wire.NotLeaderOrFollower},
	{errTimedOut, wire.RequestTimedOut},
	{errInvalidAcks, wire.InvalidRequiredAcks},
	{errTransactional, wire.UnsupportedVersion},
	{errNoProducerID, wire.CoordinatorLoadInProgress},
	{errNotCoordinator, wire.NotCoordinator},
	{errNoCoordinator, wire.CoordinatorNotAvailable},
	{errUnknownGroup, wire.GroupIDNotFound},

	{storage.ErrOutOfOrderSequence, wire.OutOfOrderSequenceNumber},
	{storage.ErrInvalidProducerEpoch, wire.InvalidProducerEpoch},
	{storage.ErrOffsetOutOfRange, wire.OffsetOutOfRange},
	{storage.ErrFull, wire.KafkaStorageError},
	{storage.ErrOffline, wire.KafkaStorageError},
	{storage.ErrClosed, wire.NotLeaderOrFollower},
	{storage.ErrEpoch, wire.NotLeaderOrFollower},
	{storage.ErrGap, wire.NotLeaderOrFollower},
	{storage.ErrBusy, wire.NotLeaderOrFollower},
	{storage.ErrExists, wire.KafkaStorageError},

	{controller.ErrNoController, wire.NotController},
	{controller.ErrUnknown, wire.RequestTimedOut},
	{controller.ErrClosed, wire.NotController},

	{context.DeadlineExceeded, wire.RequestTimedOut},
	{context.Canceled, wire.RequestTimedOut}, // the connection is closing: nobody reads it
}

// reasonCodes are the codes of batch.Validate's refusals.
var reasonCodes = [...]wire.Code{
	batch.InvalidRecord:          wire.InvalidRecord,
	batch.CorruptMessage:         wire.CorruptMessage,
	batch.MessageTooLarge:        wire.MessageTooLarge,
	batch.RecordListTooLarge:     wire.RecordListTooLarge,
	batch.UnsupportedCompression: wire.UnsupportedCompressionType,
	batch.InvalidTimestamp:       wire.InvalidTimestamp,
}

// codeOf is the one place where an error becomes the code that a client is told;
// false means that nobody thought of this one.
func codeOf(err error) (wire.Code, bool) {
	if err == nil {
		return wire.None, true
	}
	var code wire.Code
	if errors.As(err, &code) {
		return code, true
	}
	var invalid *batch.InvalidError
	if errors.As(err, &invalid) && int(invalid.Reason) < len(reasonCodes) {
		return reasonCodes[invalid.Reason], true
	}
	for _, row := range errorCodes {
		if errors.Is(err, row.err) {
			return row.code, true
		}
	}
	var corrupt *storage.CorruptError
	if errors.As(err, &corrupt) {
		return wire.KafkaStorageError, true
	}
	return wire.UnknownServerError, false
}

// code counts err and returns its code. Errors that only an operator can do
// something about, and those nobody thought of, are logged here, since the
// client is told no more than the code.
func (s *server) code(err error) wire.Code {
	code, known := codeOf(err)
	if code != wire.None {
		s.metrics.failed(code)
	}
	if !known || code == wire.KafkaStorageError {
		if skipped, ok := s.logLimit.allow(time.Now()); ok {
			s.log.Error("answer a client", "code", code.Name(), "error", err, "similar_lines_left_out", skipped)
		}
	}
	return code
}
