package controller

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// boltFormat is the version of an entry and of the state record.
const boltFormat = 1

// castagnoli is the polynomial of all checksums in the store.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// entryKey is the key of an entry: its index, so that keys sort as entries do.
func entryKey(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

// An entry is: version, type, term (8), time of the append in nanoseconds (8), length of the
// extensions (4), extensions, data, and a CRC-32C (4) of the key and all of these.
const (
	entryHead = 1 + 1 + 8 + 8 + 4
	entryTail = 4
)

func encodeEntry(l *raft.Log) []byte {
	v := make([]byte, 0, entryHead+len(l.Extensions)+len(l.Data)+entryTail)
	v = append(v, boltFormat, byte(l.Type))
	v = binary.BigEndian.AppendUint64(v, l.Term)
	var at int64
	if !l.AppendedAt.IsZero() {
		at = l.AppendedAt.UnixNano()
	}
	v = binary.BigEndian.AppendUint64(v, uint64(at))
	v = binary.BigEndian.AppendUint32(v, uint32(len(l.Extensions)))
	v = append(v, l.Extensions...)
	v = append(v, l.Data...)
	return binary.BigEndian.AppendUint32(v, entrySum(l.Index, v))
}

func entrySum(index uint64, v []byte) uint32 {
	return crc32.Update(crc32.Checksum(entryKey(index), castagnoli), castagnoli, v)
}

// checkEntry compares an entry with its checksum, and its form.
func checkEntry(index uint64, v []byte) error {
	if len(v) < entryHead+entryTail {
		return fmt.Errorf("entry %d is only %d bytes long", index, len(v))
	}
	body, sum := v[:len(v)-entryTail], binary.BigEndian.Uint32(v[len(v)-entryTail:])
	if entrySum(index, body) != sum {
		return fmt.Errorf("entry %d does not match its checksum", index)
	}
	if body[0] != boltFormat {
		return fmt.Errorf("entry %d has format %d, which this version does not know", index, body[0])
	}
	if uint64(binary.BigEndian.Uint32(body[entryHead-4:])) > uint64(len(body)-entryHead) {
		return fmt.Errorf("entry %d has longer extensions than there are bytes", index)
	}
	return nil
}

// decodeEntry reads an entry into l, which shares nothing with v.
func decodeEntry(index uint64, v []byte, l *raft.Log) error {
	if err := checkEntry(index, v); err != nil {
		return err
	}
	rest := append([]byte(nil), v[entryHead:len(v)-entryTail]...)
	ext := binary.BigEndian.Uint32(v[entryHead-4:])
	*l = raft.Log{Index: index, Type: raft.LogType(v[1]), Term: binary.BigEndian.Uint64(v[2:])}
	if ext > 0 {
		l.Extensions = rest[:ext:ext]
	}
	if len(rest) > int(ext) {
		l.Data = rest[ext:]
	}
	if at := int64(binary.BigEndian.Uint64(v[10:])); at != 0 {
		l.AppendedAt = time.Unix(0, at)
	}
	return nil
}

// logState is what one record of the store names: the log's bounds, and all stable values.
// What a damaged page hides is missed by it.
type logState struct {
	// tx is the transaction that wrote the record, which is the file's last.
	tx          uint64
	first, last uint64 // both 0 for an empty log
	values      map[string][]byte
}

// encode is: version, transaction (8), first (8), last (8), number of values (4), then for each, by name, the
// length of its name (4), the name, its length (4) and the value, and a CRC-32C (4) of it all.
func (s logState) encode() []byte {
	b := []byte{boltFormat}
	b = binary.BigEndian.AppendUint64(b, s.tx)
	b = binary.BigEndian.AppendUint64(b, s.first)
	b = binary.BigEndian.AppendUint64(b, s.last)
	b = binary.BigEndian.AppendUint32(b, uint32(len(s.values)))
	for _, k := range slices.Sorted(maps.Keys(s.values)) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(k)))
		b = append(b, k...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(s.values[k])))
		b = append(b, s.values[k]...)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// stateHead is the length of a state record up to its values.
const stateHead = 1 + 8 + 8 + 8 + 4

// decodeState reads a state record.
func decodeState(b []byte) (logState, error) {
	if len(b) < stateHead+4 || crc32.Checksum(b[:len(b)-4], castagnoli) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		return logState{}, fmt.Errorf("the record of the log's bounds, %d bytes long, does not match its checksum", len(b))
	}
	if b[0] != boltFormat {
		return logState{}, fmt.Errorf("the record of the log's bounds has format %d, which this version does not know", b[0])
	}
	s := logState{tx: binary.BigEndian.Uint64(b[1:]), first: binary.BigEndian.Uint64(b[9:]), last: binary.BigEndian.Uint64(b[17:]), values: make(map[string][]byte)}
	n, rest := binary.BigEndian.Uint32(b[25:]), b[stateHead:len(b)-4]
	for range n {
		var key, value []byte
		var ok, ok2 bool
		key, rest, ok = cutField(rest)
		value, rest, ok2 = cutField(rest)
		if !ok || !ok2 {
			return logState{}, fmt.Errorf("the record of the log's bounds ends before its %d values", n)
		}
		s.values[string(key)] = append([]byte(nil), value...)
	}
	return s, nil
}

func cutField(b []byte) (field, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := uint64(binary.BigEndian.Uint32(b))
	if n > uint64(len(b)-4) {
		return nil, nil, false
	}
	return b[4 : 4+n], b[4+n:], true
}
