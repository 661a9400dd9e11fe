package batch

import "iter"

// Record is one record of a batch. Key, Value and the headers alias the payload.
type Record struct {
	Offset    Offset
	Timestamp int64  // ms; the batch's max timestamp where the leader set it
	Key       []byte // nil is null, which is not the same as empty
	Value     []byte // nil is null: in a compacted topic, a deletion

	headers     []byte // already walked once: well formed
	headerCount int32
}

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte // nil is null
}

// HeaderCount is how many headers the record has.
func (r Record) HeaderCount() int { return int(r.headerCount) }

// Headers walks the record's headers in the order in which they were written.
func (r Record) Headers() iter.Seq[Header] {
	return func(yield func(Header) bool) {
		var key, value []byte
		for at, n := 0, r.headerCount; n > 0; n-- {
			key, at = lengthened(r.headers, at)
			value, at = lengthened(r.headers, at)
			if !yield(Header{Key: string(key), Value: value}) {
				return
			}
		}
	}
}

// Records walks the records of payload, the uncompressed record section of b. It
// ends after the first error, which is a *CorruptError, and reports one too when
// payload holds more than the header's count of records.
func (b Batch) Records(payload []byte) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		base, first, appendTime := b.Base(), b.FirstTimestamp(), b.LogAppendTime()
		var r raw
		for i, n := int32(0), b.Count(); i < n; i++ {
			if msg := r.parse(payload); msg != "" {
				yield(Record{}, corrupt(b, "record %d: %s", i, msg))
				return
			}
			payload = payload[r.size:]
			rec := Record{
				Offset:    base + Offset(r.offsetDelta),
				Timestamp: first + r.timeDelta,
				Key:       r.key, Value: r.value,
				headers: r.headers, headerCount: r.headerCount,
			}
			if appendTime {
				rec.Timestamp = b.MaxTimestamp()
			}
			if !yield(rec, nil) {
				return
			}
		}
		if len(payload) > 0 {
			yield(Record{}, corrupt(b, "%d bytes follow the last record", len(payload)))
		}
	}
}

// raw is one record as it stands in the payload.
type raw struct {
	size        int // with its length field
	timeDelta   int64
	offsetDelta int32
	headerCount int32
	key         []byte
	value       []byte
	headers     []byte
}

// What can be wrong with a record. parse returns these instead of errors so that
// the walk over good records allocates nothing.
const (
	faultLength  = "its length runs past the end of the batch"
	faultField   = "a field runs past the end of the record"
	faultHeader  = "a header is malformed"
	faultHeaders = "the count of headers is impossible"
	faultRest    = "its length is more than its fields take"
)

// parse reads the first record of p; it returns "" or what is wrong with it.
func (r *raw) parse(p []byte) string {
	length, at := varint(p, 0)
	if at < 0 || length < 0 || int(length) > len(p)-at {
		return faultLength
	}
	r.size = at + int(length)
	p = p[:r.size:r.size]
	r.timeDelta, at = varlong(p, at+1) // one byte of attributes, all unused
	r.offsetDelta, at = varint(p, at)
	r.key, at = lengthened(p, at)
	r.value, at = lengthened(p, at)
	r.headerCount, at = varint(p, at)
	if at < 0 {
		return faultField
	}
	r.headers = p[at:]
	if r.headerCount == 0 {
		if len(r.headers) > 0 {
			return faultRest
		}
		return ""
	}
	return checkHeaders(r.headers, r.headerCount)
}

// lengthened reads a varint length, -1 for null, and as many bytes.
func lengthened(p []byte, at int) ([]byte, int) {
	n, at := varint(p, at)
	if n == -1 {
		return nil, at
	}
	if at < 0 || n < 0 || int(n) > len(p)-at {
		return nil, -1
	}
	end := at + int(n)
	return p[at:end:end], end
}

func checkHeaders(p []byte, count int32) string {
	if count < 0 || int(count) > len(p)/2 { // a header takes two bytes or more
		return faultHeaders
	}
	at := 0
	for ; count > 0; count-- {
		var key []byte
		key, at = lengthened(p, at)
		if at < 0 || key == nil {
			return faultHeader
		}
		if _, at = lengthened(p, at); at < 0 {
			return faultHeader
		}
	}
	if at != len(p) {
		return faultRest
	}
	return ""
}
