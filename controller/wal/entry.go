package wal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/hashicorp/raft"
)

// entryFormat is the version of an entry.
const entryFormat = 1

// An entry is: version, type, term (8), time of the append in nanoseconds (8), length of the
// extensions (4), extensions, data, and a CRC-32C (4) of its index and all of these.
const (
	entryHead = 1 + 1 + 8 + 8 + 4
	entryTail = 4
)

// castagnoli is the polynomial of all checksums in the log.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// entrySize is how many bytes an entry takes.
func entrySize(l *raft.Log) int { return entryHead + len(l.Extensions) + len(l.Data) + entryTail }

// appendEntry appends an entry to b.
func appendEntry(b []byte, l *raft.Log) []byte {
	start := len(b)
	b = append(b, entryFormat, byte(l.Type))
	b = binary.BigEndian.AppendUint64(b, l.Term)
	var at int64
	if !l.AppendedAt.IsZero() {
		at = l.AppendedAt.UnixNano()
	}
	b = binary.BigEndian.AppendUint64(b, uint64(at))
	b = binary.BigEndian.AppendUint32(b, uint32(len(l.Extensions)))
	b = append(b, l.Extensions...)
	b = append(b, l.Data...)
	return binary.BigEndian.AppendUint32(b, entrySum(l.Index, b[start:]))
}

func entrySum(index uint64, v []byte) uint32 {
	var key [8]byte
	binary.BigEndian.PutUint64(key[:], index)
	return crc32.Update(crc32.Checksum(key[:], castagnoli), castagnoli, v)
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
	if body[0] != entryFormat {
		return fmt.Errorf("entry %d has format %d, which this version does not know", index, body[0])
	}
	if uint64(binary.BigEndian.Uint32(body[entryHead-4:])) > uint64(len(body)-entryHead) {
		return fmt.Errorf("entry %d has longer extensions than there are bytes", index)
	}
	return nil
}

// decodeEntry reads an entry into l, which keeps v.
func decodeEntry(index uint64, v []byte, l *raft.Log) error {
	if err := checkEntry(index, v); err != nil {
		return err
	}
	rest, ext := v[entryHead:len(v)-entryTail:len(v)-entryTail], binary.BigEndian.Uint32(v[entryHead-4:])
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
