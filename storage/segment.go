package storage

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// segFile is the .log file of a segment and the claim on it. It lives as long as
// the log's view or a Range refers to it; then, when it was set aside, it is
// removed.
type segFile struct {
	log   *Log
	base  batch.Offset
	refs  atomic.Int32 // 1 for the view, 1 for each Range
	aside atomic.Int64 // 0, else the number it was renamed with to be removed
	stage atomic.Int32 // a stage, of a cleaned segment
	r, w  handle       // for readers and for the appender
}

func newSegFile(l *Log, base batch.Offset) *segFile {
	f := &segFile{log: l, base: base}
	f.refs.Store(1)
	l.files.Add(1)
	return f
}

// path is where the file is now.
func (f *segFile) path() string { return filepath.Join(f.log.Dir(), f.name()) }

func (f *segFile) name() string {
	name := fileName(f.base, logSuffix)
	if n := f.aside.Load(); n > 0 {
		return name + "." + strconv.FormatInt(n, 10) + deletedSuffix
	}
	return name + stage(f.stage.Load()).suffix()
}

// pin makes a claim on the file; false when the last one was given up already,
// and the caller must load the view again.
func (f *segFile) pin() bool {
	for {
		n := f.refs.Load()
		if n == 0 {
			return false
		}
		if f.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// unpin gives up a claim. The file goes with the last one.
func (f *segFile) unpin() {
	n := f.refs.Add(-1)
	if n < 0 {
		panic(fmt.Sprintf("BUG: %s released %d times too often", f.path(), -n))
	}
	if n == 0 {
		f.log.d.unused(f)
	}
}

// reading and appending open the two descriptors of a segFile.
type (
	reading   segFile
	appending segFile
)

func (f *reading) open() (vfs.File, error) { return (*segFile)(f).openAs(os.O_RDONLY) }

func (f *appending) open() (vfs.File, error) { return (*segFile)(f).openAs(os.O_RDWR) }

// openAs opens the file under the name it has now.
func (f *segFile) openAs(flag int) (vfs.File, error) {
	f.log.paths.RLock()
	file, err := f.log.d.fs.Open(f.path(), flag, 0)
	f.log.paths.RUnlock()
	if err != nil {
		return nil, f.openFailed(err)
	}
	return file, nil
}

// segment is one stretch of the log: a file, how much of it counts, and two
// indexes. Appends move the tail; a cut makes another segment with a smaller
// tail on the same file, which is never appended to.
type segment struct {
	file  *segFile
	base  batch.Offset
	tail  atomic.Uint64 // end relative to base << 32 | size in bytes
	offs  index
	times index
	cut   bool             // never appended to again; fixed
	hints [4]atomic.Uint64 // see hint
	// What lies below old was not written by this run, or not lately, and has to be
	// proven before it is served; what lies below sound has been. Both are packed as
	// tail is. See prove.go.
	old, sound atomic.Uint64
	// sealed: the index files must be whole after the next flush. Guarded by the
	// log's mu.
	sealed bool

	mu     sync.Mutex // a leaf
	newest stamp      // guarded by mu
	timed  bool       // guarded by mu: newest is known
	first  int64      // guarded by mu: time of the first batch
	begun  bool       // guarded by mu: first is known
}

// stamp is the greatest timestamp so far and the last offset of the batch that
// brought it.
type stamp struct {
	time   int64
	offset batch.Offset
}

// maxRelative is the greatest offset relative to the base that an index can hold.
const maxRelative = math.MaxInt32

func newSegment(f *segFile) *segment {
	s := &segment{file: f, base: f.base, newest: stamp{batch.NoTimestamp, f.base}, timed: true}
	return s
}

// bounds returns end and size of one moment.
func (s *segment) bounds() (batch.Offset, int64) { return s.unpack(s.tail.Load()) }

// unpack returns the offset and the position that a word holds.
func (s *segment) unpack(t uint64) (batch.Offset, int64) {
	return s.base + batch.Offset(t>>32), int64(t & math.MaxUint32)
}

func (s *segment) pack(o batch.Offset, pos int64) uint64 { return uint64(o-s.base)<<32 | uint64(pos) }

func (s *segment) end() batch.Offset {
	end, _ := s.bounds()
	return end
}

func (s *segment) size() int64 {
	_, size := s.bounds()
	return size
}

func (s *segment) setTail(end batch.Offset, size int64) {
	if end < s.base || end-s.base > maxRelative+1 || size < 0 || size > math.MaxUint32 {
		panic(fmt.Sprintf("BUG: segment %d cannot end at %d with %d bytes", s.base, end, size))
	}
	s.tail.Store(s.pack(end, size))
}

// hint notes that a batch begins at pos with offset o, because a Range ended
// there: a reader that goes on there needs no index. Each slot packs relative
// offset and position; a hint is checked like an index entry.
func (s *segment) hint(o batch.Offset, pos int64) {
	rel := uint64(o - s.base)
	s.hints[rel%uint64(len(s.hints))].Store(rel<<32 | uint64(pos))
}

// hinted returns the position of the batch that begins at o, if it is known.
func (s *segment) hinted(o batch.Offset) (int64, bool) {
	rel := uint64(o - s.base)
	h := s.hints[rel%uint64(len(s.hints))].Load()
	return int64(h & math.MaxUint32), h>>32 == rel && h&math.MaxUint32 > 0
}

// fits tells whether a run of n bytes that ends with offset last can be appended
// under a limit of size. A segment takes its first batch whatever its size.
func (s *segment) fits(n int, last batch.Offset, limit int64) bool {
	_, size := s.bounds()
	if last-s.base > maxRelative || size+int64(n) > math.MaxInt32 && size > 0 {
		return false
	}
	return size == 0 || size+int64(n) <= limit
}

// note brings newest and the indexes up to date with a batch at pos, as Kafka
// does: an entry for the first batch after each interval of bytes. It returns
// the bytes since the last entry, the batch's included.
func (s *segment) note(b batch.Batch, pos, size int64, since, interval int) int {
	s.mu.Lock()
	s.newest = stampMax(s.newest, b)
	if pos == 0 {
		s.first, s.begun = b.MaxTimestamp(), true
	}
	newest := s.newest
	s.mu.Unlock()
	if since > interval {
		s.offs.add(entry{int64(b.Last() - s.base), uint32(pos)})
		s.addTime(newest)
		since = 0
	}
	return since + int(size)
}

// addTime adds a time index entry unless the last one says as much.
func (s *segment) addTime(t stamp) {
	if t.time > s.times.load().last() {
		s.times.add(entry{t.time, uint32(t.offset - s.base)})
	}
}

// knownNewest returns newest if it is known.
func (s *segment) knownNewest() (stamp, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest, s.timed
}

// unfiled tells whether the index files lack something that those of a closed
// segment have; the log's mu is held.
func (s *segment) unfiled() bool {
	t, ok := s.knownNewest()
	if !ok || s.size() == 0 {
		return false
	}
	times := s.times.load()
	return len(s.offs.load().unfiled()) > 0 || len(times.unfiled()) > 0 || times.filed == 0 || t.time > times.last()
}

// loadNewest returns newest, from the last entry of the time index if it is not
// known: a closed segment's index always ends with it.
func (s *segment) loadNewest() stamp {
	if t, ok := s.knownNewest(); ok {
		return t
	}
	t := stamp{batch.NoTimestamp, s.base}
	e, ok := s.floor(timeIndex, func(entry) bool { return false })
	if ok {
		t = stamp{e.key, s.base + batch.Offset(e.val)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest, s.timed = t, true
	return t
}

// indexPath is where an index of the segment is.
func (s *segment) indexPath(k indexKind) string {
	return filepath.Join(s.file.log.Dir(), fileName(s.base, k.suffix())+stage(s.file.stage.Load()).suffix())
}

func (s *segment) index(k indexKind) *index {
	if k == offsetIndex {
		return &s.offs
	}
	return &s.times
}

// floor returns the last entry of an index for which above does not hold; above
// must hold for a suffix of the entries. An index that cannot be read gives no
// entry: it is a hint, and without one the segment is walked from its beginning.
func (s *segment) floor(k indexKind, above func(entry) bool) (entry, bool) {
	t := s.index(k).load()
	mem := t.entries()
	if n := sort.Search(len(mem), func(i int) bool { return above(mem[i]) }); n > 0 {
		return mem[n-1], true
	}
	if t.first == 0 {
		return entry{}, false
	}
	d := s.file.log.d
	f, err := d.fs.Open(s.indexPath(k), os.O_RDONLY, 0)
	if err != nil {
		return entry{}, false
	}
	defer f.Close()
	buf := d.buffers.Get().(*[readWindow]byte)
	defer d.buffers.Put(buf)
	e, ok, err := k.floorFile(f, t.first, buf[:], above)
	return e, ok && err == nil
}

// indexBelow returns the first part of an index, for which below holds.
func (s *segment) indexBelow(k indexKind, below func(entry) bool) *indexTail {
	t := s.index(k).load()
	mem := t.entries()
	if n := sort.Search(len(mem), func(i int) bool { return !below(mem[i]) }); n > 0 || t.first == 0 {
		cut := tailAfter(t.first, t.lastKey, mem[:n])
		cut.filed = min(t.filed, t.first+n)
		return cut
	}
	f, err := s.file.log.d.fs.Open(s.indexPath(k), os.O_RDONLY, 0)
	if err != nil {
		return tailAfter(0, -1, nil)
	}
	defer f.Close()
	filed, err := k.readAll(f, int64(t.first*k.size()), below)
	if err != nil || len(filed) == 0 {
		return tailAfter(0, -1, nil)
	}
	return tailAfter(len(filed), filed[len(filed)-1].key, nil)
}
