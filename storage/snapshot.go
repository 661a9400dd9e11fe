package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// The layout of Kafka's producer snapshot, version 1, all numbers big-endian:
//
//	version int16, CRC32C uint32 of what follows it, count int32, then per entry:
//	producer id int64, epoch int16, last sequence int32, last offset int64,
//	offset delta int32, timestamp int64, coordinator epoch int32,
//	first offset of the open transaction int64 (-1: none)
//
// Kafka writes one entry per producer, its last batch. We write one per
// remembered batch, oldest first: Kafka's loader lets the last entry of a
// producer win, and ours gets the whole window back.
const (
	snapshotVersion = 1
	snapshotHead    = 10
	snapshotCRCFrom = 6
	snapshotEntry   = 46

	noCoordinatorEpoch uint32 = 0xffffffff         // -1
	noTransaction      uint64 = 0xffffffffffffffff // -1
)

var errSnapshot = errors.New("not a producer snapshot")

// encode returns the snapshot of the window.
func (ps *producers) encode() []byte {
	count := 0
	for _, p := range ps.byID {
		count += max(int(p.n), 1)
	}
	out := make([]byte, snapshotCRCFrom, snapshotHead+count*snapshotEntry)
	binary.BigEndian.PutUint16(out, snapshotVersion)
	out = binary.BigEndian.AppendUint32(out, uint32(count))
	for _, id := range slices.Sorted(maps.Keys(ps.byID)) {
		p := ps.byID[id]
		if p.n == 0 {
			out = appendEntry(out, id, p.epoch, producerBatch{lastSeq: batch.NoSequence, lastOffset: -1, timestamp: batch.NoTimestamp})
		}
		for _, b := range p.batches[:p.n] {
			out = appendEntry(out, id, p.epoch, b)
		}
	}
	binary.BigEndian.PutUint32(out[2:], crc32.Checksum(out[snapshotCRCFrom:], castagnoli()))
	return out
}

func appendEntry(out []byte, id int64, epoch int16, b producerBatch) []byte {
	be := binary.BigEndian
	out = be.AppendUint64(out, uint64(id))
	out = be.AppendUint16(out, uint16(epoch))
	out = be.AppendUint32(out, uint32(b.lastSeq))
	out = be.AppendUint64(out, uint64(b.lastOffset))
	out = be.AppendUint32(out, uint32(b.delta))
	out = be.AppendUint64(out, uint64(b.timestamp))
	out = be.AppendUint32(out, noCoordinatorEpoch)
	return be.AppendUint64(out, noTransaction)
}

// decode adds what a snapshot holds to an empty window; now is when its
// producers count as last seen.
func (ps *producers) decode(p []byte, now int64) error {
	if len(p) < snapshotHead || binary.BigEndian.Uint16(p) != snapshotVersion {
		return fmt.Errorf("%w: no version 1 header in %d bytes", errSnapshot, len(p))
	}
	if got, want := crc32.Checksum(p[snapshotCRCFrom:], castagnoli()), binary.BigEndian.Uint32(p[2:]); got != want {
		return fmt.Errorf("%w: CRC32C is %08x, the header says %08x", errSnapshot, got, want)
	}
	count := int64(binary.BigEndian.Uint32(p[snapshotCRCFrom:]))
	p = p[snapshotHead:]
	if int64(len(p)) != count*snapshotEntry {
		return fmt.Errorf("%w: %d entries in %d bytes", errSnapshot, count, len(p))
	}
	for ; len(p) > 0; p = p[snapshotEntry:] {
		ps.decodeEntry(p[:snapshotEntry], now)
	}
	return nil
}

func (ps *producers) decodeEntry(p []byte, now int64) {
	be := binary.BigEndian
	id, epoch := int64(be.Uint64(p)), int16(be.Uint16(p[8:]))
	b := producerBatch{
		lastSeq:    int32(be.Uint32(p[10:])),
		lastOffset: batch.Offset(be.Uint64(p[14:])),
		delta:      int32(be.Uint32(p[22:])),
		timestamp:  int64(be.Uint64(p[26:])),
	}
	if b.lastOffset >= 0 && b.lastSeq >= 0 && b.delta >= 0 {
		ps.note(sequence{id: id, epoch: epoch}, b, now)
		return
	}
	if ps.byID[id] == nil {
		ps.insert(id, epoch).used = now
	}
}

// snapshots are the producer snapshots of a log: those on the disk and those
// that the next flush writes. The log's mu guards it.
type snapshots struct {
	filed   []batch.Offset // on the disk, rising
	pending []pendingSnapshot
	last    batch.Offset // offset of the newest, filed or pending
	since   int64        // bytes appended after the newest
}

// pendingSnapshot is the state of the producers at an offset, to be written.
type pendingSnapshot struct {
	offset batch.Offset
	data   []byte
}

// want asks for a snapshot of the producers as they are, at the log's end.
func (s *snapshots) want(end batch.Offset, ps *producers) {
	if s.last == end && (len(s.filed) > 0 || len(s.pending) > 0) {
		return
	}
	s.pending = append(s.pending, pendingSnapshot{end, ps.encode()})
	s.last, s.since = end, 0
}

// covered tells whether a start that finds these snapshots on the disk, and that recovery
// point, can know the producers of what lies below an offset without it.
func covered(filed []batch.Offset, offset, recovery batch.Offset) bool {
	return slices.ContainsFunc(filed, func(o batch.Offset) bool { return offset <= o && o <= recovery })
}

// wrote notes that a pending snapshot is on the disk.
func (s *snapshots) wrote(offset batch.Offset) {
	if i, found := slices.BinarySearch(s.filed, offset); !found {
		s.filed = slices.Insert(s.filed, i, offset)
	}
}

// drop forgets the snapshots that gone holds for, and returns those on the disk.
func (s *snapshots) drop(gone func(batch.Offset) bool) []batch.Offset {
	var dropped []batch.Offset
	s.filed = slices.DeleteFunc(s.filed, func(o batch.Offset) bool {
		if gone(o) {
			dropped = append(dropped, o)
			return true
		}
		return false
	})
	s.pending = slices.DeleteFunc(s.pending, func(p pendingSnapshot) bool { return gone(p.offset) })
	s.last = 0
	if n := len(s.filed); n > 0 {
		s.last = s.filed[n-1]
	}
	if n := len(s.pending); n > 0 {
		s.last = max(s.last, s.pending[n-1].offset)
	}
	return dropped
}

// keptSnapshots is how many snapshots between segment borders are kept: the
// newest, and one to fall back to.
const keptSnapshots = 2

// surplus returns a rule for drop: snapshots that no segment begins at, but for
// the newest few. They are needed only until the next one.
func (s *snapshots) surplus(v *view) func(batch.Offset) bool {
	at := make(map[batch.Offset]bool, len(v.segs))
	for _, seg := range v.segs {
		at[seg.base] = true
	}
	newest := batch.Offset(0)
	if n := len(s.filed); n > keptSnapshots {
		newest = s.filed[n-keptSnapshots]
	}
	return func(o batch.Offset) bool { return o < newest && !at[o] }
}

// rebuildProducers returns the state of the producers at end: the newest
// snapshot and what the batches after it say, those below the start included.
func (l *Log) rebuildProducers(end batch.Offset) (producers, error) {
	l.mu.Lock()
	filed := slices.Clone(l.snaps.filed)
	l.mu.Unlock()
	segs := l.view.Load().segs
	if len(segs) == 0 {
		return producers{max: l.d.o.MaxProducers}, nil
	}
	ps, from := l.loadSnapshot(filed, segs[0].base, end)
	now := l.d.o.Steady().Milliseconds()
	for _, s := range segs {
		if s.end() <= from {
			continue
		}
		err := l.inGate(func() error {
			return l.walk(s, func(w walker) error {
				return w.heads(max(from, s.base), end, func(h batch.Batch, _, _ int64) { ps.noteBatch(h, now) })
			})
		})
		if err != nil {
			return ps, err
		}
	}
	return ps, nil
}

// loadSnapshot returns the state that the newest readable of the snapshots from
// first to end holds, and its offset; an empty state and first when there is none.
// An older one is of no use: the batches between it and first are gone.
func (l *Log) loadSnapshot(filed []batch.Offset, first, end batch.Offset) (producers, batch.Offset) {
	now := l.d.o.Steady().Milliseconds()
	for i := len(filed) - 1; i >= 0; i-- {
		if filed[i] > end || filed[i] < first {
			continue
		}
		name := l.filePath(fileName(filed[i], snapshotSuffix))
		data, err := vfs.ReadFile(l.d.fs, name)
		if err == nil {
			ps := producers{max: l.d.o.MaxProducers}
			if err = ps.decode(data, now); err == nil {
				return ps, filed[i]
			}
		}
		l.d.o.Logger.Warn("producer snapshot is unreadable; an older one is used", "file", name, "error", err)
	}
	return producers{max: l.d.o.MaxProducers}, first
}
