package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
)

// The layout of a segment; doc.go describes it.
const (
	sectorBytes = 512
	sealBytes   = 4
	sectorData  = sectorBytes - sealBytes
	pageBytes   = 4096
	headerBytes = 32
)

// kind is what a block is.
type kind byte

const (
	kindEntries kind = 1 + iota
	kindValues
	kindBounds
	kindStart
	kindEnd
	kindClose
)

// role is what a sector is, so that none is taken for another.
type role uint32

const (
	roleFirst   role = iota // of a block
	roleFurther             // of a block
	roleHead                // of a segment
)

// sealer is the checksum of the log's identity and a segment's number, which its seals begin with.
type sealer uint32

func newSealer(identity [16]byte, seq uint64) sealer {
	b := binary.BigEndian.AppendUint64(identity[:], seq)
	return sealer(crc32.Checksum(b, castagnoli))
}

// seal is the seal of a sector's content, never 0.
func (s sealer) seal(content []byte, sector int64, r role) uint32 {
	sum := crc32.Update(uint32(s)^uint32(sector)<<2^uint32(r), castagnoli, content[:sectorData])
	return max(sum, 1)
}

// put seals the sector at at of a segment.
func (s sealer) put(b []byte, at int64, r role) {
	binary.BigEndian.PutUint32(b[sectorData:], s.seal(b, at/sectorBytes, r))
}

// sealed tells whether the sector at at of a segment is what was written there.
func (s sealer) sealed(b []byte, at int64, r role) bool {
	return binary.BigEndian.Uint32(b[sectorData:sectorBytes]) == s.seal(b, at/sectorBytes, r)
}

// bounds are the indexes of a log's first and last entry, both 0 when there is none.
type bounds struct{ first, last uint64 }

// header begins a block.
type header struct {
	kind    kind
	payload uint32 // bytes
	number  uint64
	bounds  bounds
}

func (h header) put(b []byte) {
	clear(b[:headerBytes])
	b[0] = byte(h.kind)
	binary.BigEndian.PutUint32(b[4:], h.payload)
	binary.BigEndian.PutUint64(b[8:], h.number)
	binary.BigEndian.PutUint64(b[16:], h.bounds.first)
	binary.BigEndian.PutUint64(b[24:], h.bounds.last)
}

func readHeader(b []byte) header {
	return header{
		kind: kind(b[0]), payload: binary.BigEndian.Uint32(b[4:]), number: binary.BigEndian.Uint64(b[8:]),
		bounds: bounds{binary.BigEndian.Uint64(b[16:]), binary.BigEndian.Uint64(b[24:])},
	}
}

// sectors is how many the block has.
func (h header) sectors() int64 {
	return (headerBytes + int64(h.payload) + sectorData - 1) / sectorData
}

// blockBytes is how many bytes of a segment a block with this much payload takes.
func blockBytes(payload int) int64 {
	return pages(header{payload: uint32(payload)}.sectors() * sectorBytes)
}

// pages rounds up to whole pages.
func pages(n int64) int64 { return (n + pageBytes - 1) &^ (pageBytes - 1) }

// within is where in a segment the content byte i of the block at at is.
func within(at, i int64) int64 { return at + i/sectorData*sectorBytes + i%sectorData }

// span is how many bytes of a segment hold n bytes of content from at on.
func span(at, n int64) int64 { return n + (at%sectorBytes+n-1)/sectorData*sealBytes }

// appendContent appends the content of a piece of a segment that begins at at; dst may be the
// beginning of piece.
func appendContent(dst, piece []byte, at int64) []byte {
	for len(piece) > 0 {
		n := min(sectorData-int(at%sectorBytes), len(piece))
		dst = append(dst, piece[:n]...)
		piece = piece[min(n+sealBytes, len(piece)):]
		at += int64(n) + sealBytes
	}
	return dst
}

// sealBlock makes the bytes of a block that is to begin at at, in the memory of dst.
func sealBlock(dst []byte, s sealer, at int64, h header, payload []byte) []byte {
	size := blockBytes(len(payload))
	dst = slices.Grow(dst[:0], int(size))[:size]
	h.payload = uint32(len(payload))
	h.put(dst)
	n := copy(dst[headerBytes:sectorData], payload)
	clear(dst[headerBytes+n : sectorData])
	s.put(dst, at, roleFirst)
	i := int64(sectorBytes)
	for rest := payload[n:]; len(rest) > 0; i += sectorBytes {
		n := copy(dst[i:i+sectorData], rest)
		clear(dst[i+int64(n) : i+sectorData])
		s.put(dst[i:], at+i, roleFurther)
		rest = rest[n:]
	}
	clear(dst[i:])
	return dst
}

// appendValues appends all stable values.
func appendValues(b []byte, values map[string][]byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(values)))
	for _, k := range slices.Sorted(maps.Keys(values)) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(k)))
		b = append(b, k...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(values[k])))
		b = append(b, values[k]...)
	}
	return b
}

var errShortPayload = errors.New("it ends before its content")

func readValues(b []byte) (map[string][]byte, error) {
	if len(b) < 4 {
		return nil, errShortPayload
	}
	n, rest := binary.BigEndian.Uint32(b), b[4:]
	values := make(map[string][]byte)
	for range n {
		var key, value []byte
		var err error
		if key, rest, err = cutField(rest); err != nil {
			return nil, err
		}
		if value, rest, err = cutField(rest); err != nil {
			return nil, err
		}
		values[string(key)] = slices.Clone(value)
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%d bytes follow its values", len(rest))
	}
	return values, nil
}

// cutField cuts off a length (4) and as many bytes.
func cutField(b []byte) (field, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, errShortPayload
	}
	n := uint64(binary.BigEndian.Uint32(b))
	if n > uint64(len(b)-4) {
		return nil, nil, errShortPayload
	}
	return b[4 : 4+n : 4+n], b[4+n:], nil
}
