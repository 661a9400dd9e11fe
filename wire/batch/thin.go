package batch

import "encoding/binary"

// Compaction takes records out of batches. What is left keeps its offsets, its
// producer's numbers and its timestamps: a batch covers the same offsets as before,
// with fewer records. Where whole batches go, one filler takes their place, so that
// offsets stay contiguous and a hole in a log is always damage.

// bitDeleteHorizon says that the first timestamp of the batch is the time until which
// its deletions are kept (KIP-534).
const bitDeleteHorizon = 0x40

// NoHorizon is the delete horizon of a batch that was not cleaned with a deletion in it.
const NoHorizon int64 = -1

// DeleteHorizon is the time in ms until which the batch's deletions are kept, NoHorizon
// when no cleaning has seen them yet.
func (b Batch) DeleteHorizon() int64 {
	if b[atAttributes+1]&bitDeleteHorizon == 0 {
		return NoHorizon
	}
	return b.FirstTimestamp()
}

// Filler tells whether the batch says nothing but that all the records of its offsets
// are gone.
func (b Batch) Filler() bool { return b.Count() == 0 && !b.HasProducer() && !b.Control() }

// NewestTimestamp is the greatest timestamp among the records, NoTimestamp when the
// batch has none left.
func (b Batch) NewestTimestamp() int64 {
	if b.Count() == 0 {
		return NoTimestamp
	}
	return b.MaxTimestamp()
}

// AppendFiller appends a batch without records for the offsets from base to last.
func AppendFiller(dst []byte, base, last Offset, e Epoch) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	b := Batch(dst[at:])
	b.Assign(base, e)
	be := binary.BigEndian
	be.PutUint32(b[atLength:], HeaderSize-PrefixSize)
	b[atMagic] = byte(Magic)
	be.PutUint32(b[atLastDelta:], uint32(last-base))
	for i := atFirstTime; i < atCount; i++ {
		b[i] = 0xff // no timestamps, producer, epoch or sequence: all of them -1
	}
	b.setCRC()
	return dst
}

// TrimFront makes a filler begin at base, which lies within it.
func (b Batch) TrimFront(base Offset) {
	last := b.Last()
	b.Assign(base, b.Epoch())
	binary.BigEndian.PutUint32(b[atLastDelta:], uint32(last-base))
	b.setCRC()
}

// Thinned is what is left of a batch's records.
type Thinned struct {
	Count   int32
	Deletes int32 // how many of them are deletions
	Newest  int64 // their greatest timestamp, NoTimestamp when there are none
}

// Thin appends to dst the records of payload, the uncompressed record section, that keep
// holds for, byte for byte.
func (b Batch) Thin(dst, payload []byte, keep func(offset Offset, key []byte, deletes bool) bool) ([]byte, Thinned, error) {
	base, first := b.Base(), b.FirstTimestamp()
	t := Thinned{Newest: NoTimestamp}
	var r raw
	for i, n := int32(0), b.Count(); i < n; i++ {
		if msg := r.parse(payload); msg != "" {
			return dst, t, corrupt(b, "record %d: %s", i, msg)
		}
		if keep(base+Offset(r.offsetDelta), r.key, r.value == nil) {
			dst = append(dst, payload[:r.size]...)
			t.Count++
			if r.value == nil {
				t.Deletes++
			}
			t.Newest = max(t.Newest, first+r.timeDelta)
		}
		payload = payload[r.size:]
	}
	if len(payload) > 0 {
		return dst, t, corrupt(b, "%d bytes follow the last record", len(payload))
	}
	if b.LogAppendTime() {
		t.Newest = b.MaxTimestamp()
	}
	return dst, t, nil
}

// Retime appends to dst the records of b, with their timestamps told relative to first
// instead of b's first timestamp.
func (b Batch) Retime(dst, records []byte, first int64) ([]byte, error) {
	shift := b.FirstTimestamp() - first
	var r raw
	for len(records) > 0 {
		if msg := r.parse(records); msg != "" {
			return dst, corrupt(b, "%s", msg)
		}
		_, at := varint(records, 0)
		_, rest := varlong(records, at+1)
		dst = appendVarint(dst, int32(1+varlongSize(r.timeDelta+shift)+r.size-rest))
		dst = append(dst, records[at])
		dst = appendVarlong(dst, r.timeDelta+shift)
		dst = append(dst, records[rest:r.size]...)
		records = records[r.size:]
	}
	return dst, nil
}

// AppendRebuilt appends b with another record section, compressed by b's codec as b's
// own is. horizon is the delete horizon that the section was retimed to, NoHorizon to
// leave the first timestamp as it is.
func (b Batch) AppendRebuilt(dst, section []byte, t Thinned, horizon int64) []byte {
	at := len(dst)
	dst = append(dst, b[:HeaderSize]...)
	dst = append(dst, section...)
	n := Batch(dst[at:])
	be := binary.BigEndian
	be.PutUint32(n[atLength:], uint32(len(n)-PrefixSize))
	be.PutUint32(n[atCount:], uint32(t.Count))
	if horizon != NoHorizon {
		n[atAttributes+1] |= bitDeleteHorizon
		be.PutUint64(n[atFirstTime:], uint64(horizon))
	}
	if t.Count > 0 {
		be.PutUint64(n[atMaxTime:], uint64(t.Newest))
	}
	n.setCRC()
	return dst
}

// AppendEmptied appends b without its records: what is left is that its producer sent it.
func (b Batch) AppendEmptied(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, b[:HeaderSize]...)
	n := Batch(dst[at:])
	be := binary.BigEndian
	be.PutUint32(n[atLength:], HeaderSize-PrefixSize)
	be.PutUint32(n[atCount:], 0)
	n[atAttributes+1] &^= codecMask | bitDeleteHorizon
	be.PutUint64(n[atFirstTime:], uint64(b.MaxTimestamp()))
	n.setCRC()
	return dst
}
