package storage

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/weirmq/weir/wire/batch"
)

// offsetMap says for each key at which offset it was written last. It holds hashes
// instead of keys: two keys with one hash would cost the older one its record, so they
// are 128 bits of SHA-256, which nobody finds a pair for. One slot costs 24 bytes.
//
// It is pure. Slots are probed one after the other from where the hash points to, and
// never freed one by one. It begins small and doubles, so that a few keys in many
// records cost little memory.
type offsetMap struct {
	slots []offsetSlot // a power of two of them
	used  int
	most  int // keys that it takes in all
}

type offsetSlot struct {
	hash [2]uint64
	end  batch.Offset // after the newest record of the key; 0 for a free slot
}

const (
	offsetSlotBytes = 24
	minOffsetSlots  = 64
)

// newOffsetMap makes a map that takes as many keys as fit in so many bytes.
func newOffsetMap(bytes int64) *offsetMap {
	slots := minOffsetSlots
	for int64(2*slots*offsetSlotBytes) <= bytes {
		slots *= 2
	}
	return &offsetMap{slots: make([]offsetSlot, minOffsetSlots), most: loaded(slots)}
}

// loaded is how many of so many slots may be used: beyond, probing becomes slow.
func loaded(slots int) int { return slots / 4 * 3 }

// room tells whether n more keys fit. An empty map takes any number: a batch must fit
// whole, or nothing would ever be cleaned.
func (m *offsetMap) room(n int) bool { return m.used == 0 || m.used+n <= m.most }

// grow doubles the slots.
func (m *offsetMap) grow() {
	old := m.slots
	m.slots = make([]offsetSlot, 2*len(old))
	for _, s := range old {
		if s.end != 0 {
			*m.slot(s.hash) = s
		}
	}
}

// hashOf is what stands for a key.
func hashOf(key []byte) [2]uint64 {
	sum := sha256.Sum256(key)
	return [2]uint64{binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])}
}

// slot finds the slot of a hash, or the free one where it belongs.
func (m *offsetMap) slot(h [2]uint64) *offsetSlot {
	mask := uint64(len(m.slots) - 1)
	for i := h[0] & mask; ; i = (i + 1) & mask {
		if s := &m.slots[i]; s.end == 0 || s.hash == h {
			return s
		}
	}
}

// put notes that a key has a record at o. Offsets come in rising order.
func (m *offsetMap) put(key []byte, o batch.Offset) {
	h := hashOf(key)
	s := m.slot(h)
	if s.end == 0 && m.used == loaded(len(m.slots)) {
		m.grow()
		s = m.slot(h)
	}
	if s.end == 0 {
		m.used++
		s.hash = h
	}
	s.end = o + 1
}

// newer tells whether the key has a record after o.
func (m *offsetMap) newer(key []byte, o batch.Offset) bool { return m.slot(hashOf(key)).end > o+1 }
