package check

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weirmq/weir/integration/chaos/history"
)

// entry is one value.
type entry struct {
	value  history.Value
	offset int64  // where it was first seen, or history.NoOffset
	writer uint32 // operation that sent it, from 1; 0: none yet
	pos    uint32 // in keyLog.order, from 1; 0: not in the log
	key    uint32 // index of its keyLog
	flags  entryFlags
}

type entryFlags uint16

const (
	flagOK entryFlags = 1 << iota // its send was acknowledged
	flagInfo
	flagFail
	flagTxn
	flagRead   // by an operation that is ok
	flagPolled // by any
)

func (f entryFlags) has(x entryFlags) bool { return f&x != 0 }

const (
	pageBits = 8
	pageLen  = 1 << pageBits
)

// gap is two offsets that a reader got one after the other.
type gap struct {
	from, to int64
	kind     Kind
}

// gapSeen is the first operation with a gap, and how many there were.
type gapSeen struct {
	op uint32
	n  int64
}

// keyLog is the log of one key as the history shows it.
type keyLog struct {
	key   history.Key
	index uint32

	table  valueTable
	pages  map[int64]*[pageLen]uint32 // first entry seen at an offset, from 1
	others map[int64][]uint32         // further entries seen at an offset
	moved  map[uint32][]int64         // further offsets of an entry
	order  []uint32                   // entries by offset, made by sort

	maxRead   int64 // the greatest offset that an ok operation read
	end       int64 // the greatest end known to anyone
	deletedAt int64 // when its deletion began; 0: never
	deleted   bool

	gaps map[gap]gapSeen

	// Of the operation being read: which, and where it is in this key.
	opMark uint32
	opLast int64

	silence   silence
	supersede stairs
	committed committedMax
}

func newKeyLog(k history.Key, index uint32) *keyLog {
	return &keyLog{
		key: k, index: index,
		pages: map[int64]*[pageLen]uint32{}, gaps: map[gap]gapSeen{},
		maxRead: history.NoOffset,
	}
}

func keyText(k history.Key) string { return fmt.Sprintf("key %d", k) }

// at is the first entry seen at an offset, from 1, or 0.
func (k *keyLog) at(offset int64) uint32 {
	p := k.pages[offset>>pageBits]
	if p == nil {
		return 0
	}
	return p[offset&(pageLen-1)]
}

// place notes that an entry was seen at an offset.
func (k *keyLog) place(es *list[entry], i uint32, offset int64) {
	e := es.at(i)
	switch {
	case e.offset == history.NoOffset:
		e.offset = offset
	case e.offset != offset && !slices.Contains(k.moved[i], offset):
		if k.moved == nil {
			k.moved = map[uint32][]int64{}
		}
		k.moved[i] = append(k.moved[i], offset)
	}
	k.end = max(k.end, offset+1)
	p := k.pages[offset>>pageBits]
	if p == nil {
		p = new([pageLen]uint32)
		k.pages[offset>>pageBits] = p
	}
	slot := &p[offset&(pageLen-1)]
	switch {
	case *slot == 0:
		*slot = i + 1
	case *slot != i+1 && !slices.Contains(k.others[offset], i):
		if k.others == nil {
			k.others = map[int64][]uint32{}
		}
		k.others[offset] = append(k.others[offset], i)
	}
}

// sort makes the dense order.
func (k *keyLog) sort(es *list[entry]) {
	k.order = k.order[:0]
	for _, p := range slices.Sorted(maps.Keys(k.pages)) {
		for _, i := range k.pages[p] {
			if i == 0 {
				continue
			}
			k.order = append(k.order, i-1)
			if e := es.at(i - 1); e.pos == 0 {
				e.pos = uint32(len(k.order))
			}
		}
	}
}

// between is how many records lie strictly between two offsets, and the offset of
// the first.
func (k *keyLog) between(from, to int64) (n, first int64) {
	first = history.NoOffset
	for o := from + 1; o < to; o++ {
		if o&(pageLen-1) == 0 && k.pages[o>>pageBits] == nil {
			o += pageLen - 1
			continue
		}
		if k.at(o) != 0 {
			if n == 0 {
				first = o
			}
			n++
		}
	}
	return n, first
}

// valueTable finds the entry of a value: open addressing over entry indexes.
type valueTable struct {
	slots []uint32 // entry, from 1
	n     int
}

func slotOf(v history.Value, size int) int {
	h := uint64(v) * 0x9e3779b97f4a7c15
	return int((h >> 20) & uint64(size-1))
}

// find is the entry of a value, made if there is none.
func (t *valueTable) find(es *list[entry], key uint32, v history.Value) uint32 {
	if 4*t.n >= 3*len(t.slots) {
		t.grow(es)
	}
	s := slotOf(v, len(t.slots))
	for ; t.slots[s] != 0; s = (s + 1) & (len(t.slots) - 1) {
		if es.at(t.slots[s]-1).value == v {
			return t.slots[s] - 1
		}
	}
	i := es.add(entry{value: v, offset: history.NoOffset, key: key})
	t.slots[s] = i + 1
	t.n++
	return i
}

func (t *valueTable) grow(es *list[entry]) {
	old := t.slots
	t.slots = make([]uint32, max(64, 2*len(old)))
	for _, i := range old {
		if i == 0 {
			continue
		}
		s := slotOf(es.at(i-1).value, len(t.slots))
		for t.slots[s] != 0 {
			s = (s + 1) & (len(t.slots) - 1)
		}
		t.slots[s] = i
	}
}
