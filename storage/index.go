package storage

import (
	"encoding/binary"
	"fmt"
	"io"
	"sort"
	"sync/atomic"
)

// indexKind is one of Kafka's two sparse indexes.
type indexKind uint8

const (
	// offsetIndex maps the last offset of a batch, relative to the segment's
	// base, to the position of that batch: two uint32.
	offsetIndex indexKind = iota
	// timeIndex maps the greatest timestamp up to and including a batch to the
	// last offset, relative, of the batch that brought it: int64 and uint32.
	timeIndex
)

func (k indexKind) suffix() string {
	if k == offsetIndex {
		return indexSuffix
	}
	return timeSuffix
}

// size is the length of one entry in the file.
func (k indexKind) size() int {
	if k == offsetIndex {
		return 8
	}
	return 12
}

// entry is one entry of an index. Both numbers rise from entry to entry, the
// key strictly.
type entry struct {
	key int64  // relative offset, or timestamp
	val uint32 // position, or relative offset
}

func (k indexKind) append(dst []byte, e entry) []byte {
	if k == offsetIndex {
		dst = binary.BigEndian.AppendUint32(dst, uint32(e.key))
	} else {
		dst = binary.BigEndian.AppendUint64(dst, uint64(e.key))
	}
	return binary.BigEndian.AppendUint32(dst, e.val)
}

func (k indexKind) decode(p []byte) entry {
	if k == offsetIndex {
		return entry{int64(binary.BigEndian.Uint32(p)), binary.BigEndian.Uint32(p[4:])}
	}
	return entry{int64(binary.BigEndian.Uint64(p)), binary.BigEndian.Uint32(p[8:])}
}

// index is one sparse index of a segment. Its first entries are in the file only,
// the newest in memory, where they wait for the next flush and where readers of
// the log's tail find them afterwards. So an active segment costs memory only for
// its tail. It is a hint: whoever follows an entry checks what lies there.
//
// One writer at a time, the holder of the log's lock; readers need no lock. A
// reader that loaded tail sees the entries of that tail for ever.
type index struct {
	tail atomic.Pointer[indexTail]
}

// indexTail is the part of an index that is in memory. Entries below n never
// change; when the buffer is full or was written out, another tail replaces it.
type indexTail struct {
	first   int   // entries before those in buf
	filed   int   // entries in the file; first or more
	lastKey int64 // key of the last entry before buf; -1 when there is none
	n       atomic.Int32
	buf     []entry
}

const (
	firstIndexBuf = 16  // enough for 64 KiB of log
	keptEntries   = 32  // how many stay in memory when they are in the file
	indexBlock    = 512 // entries that a search in the file reads at once
)

// tailAfter is the tail of an index with that many entries in the file, the last
// of which has the given key, and the given ones in memory.
func tailAfter(filed int, lastKey int64, mem []entry) *indexTail {
	t := &indexTail{first: filed, filed: filed, lastKey: lastKey}
	if len(mem) > 0 {
		t.buf = make([]entry, max(firstIndexBuf, len(mem)))
		t.n.Store(int32(copy(t.buf, mem)))
	}
	return t
}

// entries are those in memory.
func (t *indexTail) entries() []entry { return t.buf[:t.n.Load()] }

// unfiled are those that are not in the file.
func (t *indexTail) unfiled() []entry { return t.entries()[t.filed-t.first:] }

// last is the key of the last entry, -1 when there is none.
func (t *indexTail) last() int64 {
	if mem := t.entries(); len(mem) > 0 {
		return mem[len(mem)-1].key
	}
	return t.lastKey
}

// count is how many entries there are.
func (t *indexTail) count() int { return t.first + int(t.n.Load()) }

// load returns the present tail.
func (ix *index) load() *indexTail {
	if t := ix.tail.Load(); t != nil {
		return t
	}
	return tailAfter(0, -1, nil)
}

// add appends an entry.
func (ix *index) add(e entry) {
	t := ix.load()
	if mem := t.entries(); len(mem) == len(t.buf) {
		next := &indexTail{first: t.first, filed: t.filed, lastKey: t.lastKey}
		next.buf = make([]entry, max(firstIndexBuf, 2*len(mem)))
		next.n.Store(int32(copy(next.buf, mem)))
		ix.tail.Store(next)
		t = next
	}
	n := t.n.Load()
	t.buf[n] = e
	t.n.Store(n + 1)
}

// filed notes that the first n entries are in the file now.
func (ix *index) filed(n int) {
	t := ix.load()
	if n == t.filed {
		return
	}
	drop := max(n-keptEntries-t.first, 0)
	mem, lastKey := t.entries(), t.lastKey
	if drop > 0 {
		lastKey = mem[drop-1].key
	}
	next := tailAfter(t.first+drop, lastKey, mem[drop:])
	next.filed = n
	ix.tail.Store(next)
}

// floorFile returns the last of the first n entries of the file for which above
// does not hold. buf has room for a block.
func (k indexKind) floorFile(f io.ReaderAt, n int, buf []byte, above func(entry) bool) (entry, bool, error) {
	lo, hi := 0, n // all entries before lo are not above, all from hi on are
	for hi-lo > indexBlock {
		mid := (lo + hi) / 2
		e, err := k.readEntries(f, mid, 1, buf)
		if err != nil {
			return entry{}, false, err
		}
		if above(k.decode(e)) {
			hi = mid
		} else {
			lo = mid
		}
	}
	p, err := k.readEntries(f, lo, hi-lo, buf)
	if err != nil {
		return entry{}, false, err
	}
	i := sort.Search(hi-lo, func(i int) bool { return above(k.decode(p[i*k.size():])) })
	if i == 0 {
		return entry{}, false, nil
	}
	return k.decode(p[(i-1)*k.size():]), true, nil
}

// readEntries reads n entries from the i-th on into buf.
func (k indexKind) readEntries(f io.ReaderAt, i, n int, buf []byte) ([]byte, error) {
	p := buf[:n*k.size()]
	if got, err := f.ReadAt(p, int64(i)*int64(k.size())); got < len(p) {
		return nil, fmt.Errorf("read entry %d of %s: %w", i, k.suffix(), err)
	}
	return p, nil
}

// readAll returns the entries of an index file that can be trusted as to their
// form: both numbers rise, and ok holds. It stops at the first that does not fit.
func (k indexKind) readAll(f io.ReaderAt, size int64, ok func(entry) bool) ([]entry, error) {
	p := make([]byte, size-size%int64(k.size()))
	n, err := f.ReadAt(p, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	out := make([]entry, 0, n/k.size())
	for ; n >= k.size(); n -= k.size() {
		e := k.decode(p)
		if i := len(out); !ok(e) || i > 0 && (e.key <= out[i-1].key || e.val < out[i-1].val) {
			break
		}
		out, p = append(out, e), p[k.size():]
	}
	return out, nil
}
