package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Reason is why a producer's batch is refused.
type Reason uint8

// The reasons. Each stands for one error code of the protocol.
const (
	InvalidRecord          Reason = iota + 1 // the batch or a record breaks a rule; sending it again cannot help
	CorruptMessage                           // the bytes are not what the producer wrote
	MessageTooLarge                          // the batch is larger than the topic takes
	RecordListTooLarge                       // the batch is larger than a segment
	UnsupportedCompression                   // the codec is unknown, or too new for the request's version
	InvalidTimestamp                         // a timestamp is out of the topic's range
)

// String names the reason.
func (r Reason) String() string {
	switch r {
	case InvalidRecord:
		return "invalid record"
	case CorruptMessage:
		return "corrupt message"
	case MessageTooLarge:
		return "message too large"
	case RecordListTooLarge:
		return "record list too large"
	case UnsupportedCompression:
		return "unsupported compression type"
	case InvalidTimestamp:
		return "invalid timestamp"
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// InvalidError is the refusal of a producer's batch.
type InvalidError struct {
	Reason Reason
	Msg    string
	Record int // index of the record at fault; -1 when it is the batch
}

func (e *InvalidError) Error() string {
	if e.Record >= 0 {
		return fmt.Sprintf("%s: record %d: %s", e.Reason, e.Record, e.Msg)
	}
	return fmt.Sprintf("%s: %s", e.Reason, e.Msg)
}

// Rules are what a topic and a request's version ask of a produced batch.
type Rules struct {
	MaxBatchBytes   int   // max.message.bytes, the batch's prefix included
	MaxSegmentBytes int   // segment.bytes
	Now             int64 // ms
	BeforeMax       int64 // ms by which a timestamp may lie before Now
	AfterMax        int64 // ms by which it may lie after Now
	AppendTime      bool  // the topic's timestamps are the leader's
	ZstdAllowed     bool  // Produce version 7 or later
	CompactedTopic  bool  // every record needs a key

	// MaxInflated bounds the uncompressed record section.
	MaxInflated int
	// Inflate appends to dst what src holds, at most limit bytes. An error with a
	// method TooLarge() bool that answers true means that there was more. Its
	// result is not used after Validate has returned.
	Inflate func(codec int8, dst, src []byte, limit int) ([]byte, error)
}

// Validate checks what a producer sent for one partition: exactly one batch with
// base offset 0. The order of the checks is Kafka's, so that of several faults
// the same one is reported. The error is an *InvalidError.
//
// The batch returned is ready to be assigned and appended. Validate writes to it
// where the topic's rules say so: the max timestamp becomes that of the records,
// or Now where the topic's timestamps are the leader's.
//
// It is stricter than Kafka where that would store what readers cannot trust:
// bytes after the batch, offset deltas other than 0..n-1, negative timestamps
// but -1, an append-time or delete-horizon bit set by the client, a transaction or an epoch without
// its producer are refused.
func Validate(records []byte, r Rules) (Batch, error) {
	b, err := onlyBatch(records, r)
	if err != nil {
		return nil, err
	}
	if err := checkSize(b, r); err != nil {
		return nil, err
	}
	if err := b.CheckCRC(); err != nil {
		return nil, refuse(CorruptMessage, "%v", err)
	}
	if err := checkHeader(b); err != nil {
		return nil, err
	}
	payload, err := inflated(b, r)
	if err != nil {
		return nil, err
	}
	newest, err := checkRecords(b, payload, r)
	if err != nil {
		return nil, err
	}
	if r.AppendTime {
		b.StampAppendTime(r.Now)
	} else if newest != b.MaxTimestamp() {
		b.setMaxTimestamp(newest)
	}
	return b, nil
}

func refuse(reason Reason, format string, args ...any) *InvalidError {
	return &InvalidError{Reason: reason, Msg: fmt.Sprintf(format, args...), Record: -1}
}

// minLength is the least length field of any version of the format.
const minLength = 14

// onlyBatch finds the one batch in p, whose header may still be too short.
func onlyBatch(p []byte, r Rules) (Batch, error) {
	if len(p) <= atMagic {
		return nil, refuse(InvalidRecord, "%d bytes hold no record batch", len(p))
	}
	length, magic := int32(binary.BigEndian.Uint32(p[atLength:])), int8(p[atMagic])
	if length < minLength {
		return nil, refuse(CorruptMessage, "length field %d is below %d", length, minLength)
	}
	if magic < 0 || magic > Magic {
		return nil, refuse(CorruptMessage, "magic %d is unknown", magic)
	}
	size := PrefixSize + int(length)
	if size > len(p) {
		return nil, refuse(InvalidRecord, "%d bytes hold no whole record batch of %d", len(p), size)
	}
	if magic != Magic {
		return nil, refuse(InvalidRecord, "magic %d is no longer accepted, only %d", magic, Magic)
	}
	b := Batch(p[:size:size])
	if b.Codec() == Zstd && !r.ZstdAllowed {
		return nil, refuse(UnsupportedCompression, "zstd needs Produce version 7 or later")
	}
	if size < len(p) {
		return nil, refuse(InvalidRecord, "%d bytes follow the one record batch that is allowed", len(p)-size)
	}
	if b.Base() != 0 {
		return nil, refuse(InvalidRecord, "base offset is %d, not 0", b.Base())
	}
	return b, nil
}

func checkSize(b Batch, r Rules) error {
	if b.Size() > r.MaxBatchBytes {
		return refuse(MessageTooLarge, "the batch has %d bytes, the topic takes %d", b.Size(), r.MaxBatchBytes)
	}
	if b.Size() > r.MaxSegmentBytes {
		return refuse(RecordListTooLarge, "the batch has %d bytes, a segment takes %d", b.Size(), r.MaxSegmentBytes)
	}
	if b.Size() < HeaderSize {
		return refuse(CorruptMessage, "the batch has %d bytes, its header alone takes %d", b.Size(), HeaderSize)
	}
	return nil
}

// checkHeader checks what the header says about records and producer. The CRC is right.
func checkHeader(b Batch) error {
	count, last := b.Count(), b.LastDelta() // that last is not negative follows from both
	switch {
	case count <= 0:
		return refuse(InvalidRecord, "the count of records is %d", count)
	case last != count-1:
		return refuse(InvalidRecord, "last offset delta %d does not fit %d records", last, count)
	case b.Control():
		return refuse(InvalidRecord, "a client may not write control records")
	case b.HasProducer() && b.FirstSequence() < 0:
		return refuse(InvalidRecord, "sequence %d with producer id %d", b.FirstSequence(), b.ProducerID())
	case b.HasProducer() && b.ProducerEpoch() < 0:
		return refuse(InvalidRecord, "producer epoch %d with producer id %d", b.ProducerEpoch(), b.ProducerID())
	case b.Transactional() && !b.HasProducer():
		return refuse(InvalidRecord, "a transactional batch needs a producer id")
	case b.Codec() > Zstd:
		return refuse(UnsupportedCompression, "codec %d is unknown", b.Codec())
	case b.DeleteHorizon() != NoHorizon:
		return refuse(InvalidRecord, "a producer may not set a delete horizon")
	case b.LogAppendTime():
		return refuse(InvalidTimestamp, "a producer may not set the append-time bit")
	}
	return nil
}

// inflated is the uncompressed record section. It is not used after Validate.
func inflated(b Batch, r Rules) ([]byte, error) {
	if b.Codec() == None {
		return b.Payload(), nil
	}
	p, err := r.Inflate(b.Codec(), nil, b.Payload(), r.MaxInflated)
	if err == nil {
		return p, nil
	}
	var over interface{ TooLarge() bool }
	if errors.As(err, &over) && over.TooLarge() {
		return nil, refuse(MessageTooLarge, "the records take more than %d bytes uncompressed", r.MaxInflated)
	}
	return nil, refuse(InvalidRecord, "uncompress the records: %s", err)
}

// checkRecords walks the records and returns the greatest of their timestamps. A
// malformed record ends the walk; of other faults the first is reported, except
// that a timestamp at fault comes before a missing key, as in Kafka.
func checkRecords(b Batch, payload []byte, r Rules) (int64, error) {
	var (
		rec    raw
		noKey  = -1
		newest = NoTimestamp
		first  = b.FirstTimestamp()
		oldest = oldestAllowed(r)
		latest = latestAllowed(r)
		count  = b.Count()
	)
	for i := int32(0); i < count; i++ {
		if msg := rec.parse(payload); msg != "" {
			return 0, &InvalidError{Reason: InvalidRecord, Msg: msg, Record: int(i)}
		}
		payload = payload[rec.size:]
		if rec.offsetDelta != i {
			return 0, &InvalidError{Reason: InvalidRecord, Msg: fmt.Sprintf("offset delta is %d", rec.offsetDelta), Record: int(i)}
		}
		if rec.key == nil && r.CompactedTopic && noKey < 0 {
			noKey = int(i)
		}
		if r.AppendTime {
			continue
		}
		ts := first + rec.timeDelta
		if wraps := (ts < first) != (rec.timeDelta < 0); wraps || ts != NoTimestamp && (ts < oldest || ts > latest) {
			return 0, &InvalidError{Reason: InvalidTimestamp, Msg: fmt.Sprintf("timestamp %d is outside [%d, %d]", ts, oldest, latest), Record: int(i)}
		}
		newest = max(newest, ts)
	}
	if len(payload) > 0 {
		return 0, refuse(InvalidRecord, "%d bytes follow the last of %d records", len(payload), count)
	}
	if noKey >= 0 {
		return 0, &InvalidError{Reason: InvalidRecord, Msg: "a compacted topic needs a key", Record: noKey}
	}
	return newest, nil
}

// oldestAllowed is Now - BeforeMax, never below 0.
func oldestAllowed(r Rules) int64 {
	if r.BeforeMax >= r.Now {
		return 0
	}
	return r.Now - r.BeforeMax
}

// latestAllowed is Now + AfterMax, or the greatest timestamp there is.
func latestAllowed(r Rules) int64 {
	if r.AfterMax > math.MaxInt64-r.Now {
		return math.MaxInt64
	}
	return r.Now + r.AfterMax
}
