package storage

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// Log is one partition's log: the batches from Start to End.
//
// Start, End, Flushed, HW, LastEpoch and Size are atomic loads. Reads take a
// view and need no lock. Appends take mu; what waits for the disk to be sure of
// something (flush, cut, reset) takes the token maint and holds mu only between
// those waits.
type Log struct {
	d  *Dir
	p  partition
	id ID

	path      atomic.Pointer[string]
	view      atomic.Pointer[view]
	start     atomic.Int64
	end       atomic.Int64
	flushed   atomic.Int64 // end of what is sure to survive a crash
	recovery  atomic.Int64 // the recovery point to be written down: flushed, unless damaged
	hw        atomic.Int64
	size      atomic.Int64
	segBytes  atomic.Int64
	segAge    atomic.Int64 // ms; 0 for any
	lastEpoch atomic.Int32
	files     atomic.Int32 // segment files that somebody has a claim on, and 1 while open
	reap      atomic.Bool  // the folder is to be removed when files is 0
	damage    atomic.Pointer[CorruptError]
	onDamage  atomic.Pointer[func()]
	durable   atomic.Pointer[func()] // set: each append is flushed at once, and this called
	waits     atomic.Bool            // something was appended to a durable log since its last flush began
	// unsyncedAt is when the oldest unsynced bytes were appended, at the latest, in ns; 0 for none.
	unsyncedAt atomic.Int64
	// recorded and startRecorded are recovery point and start as the checkpoint
	// files have them.
	recorded, startRecorded atomic.Int64
	hwRecorded              atomic.Int64 // the same of hw
	asideCount              atomic.Int64 // files renamed to be removed, to name the next

	cleaning atomic.Pointer[cleaning] // nil while the log was never compacted

	maint  token          // the right to flush, cut, reset, close or delete the log
	beyond []batch.Offset // guarded by maint: segments of a damaged log past its end

	listed bool // guarded by the dir's commits.mu: it is among them

	paths sync.RWMutex // held while a file of the log is opened or renamed; a leaf

	mu     sync.Mutex
	closed bool // guarded by mu, as all below
	busy   bool // being cut: appends are refused
	queued bool // on the dir's list of dirty logs
	// w is the descriptor of the last segment while it has unsynced bytes; it
	// is held in the cache then, and the segment is the last of dirty.
	w          vfs.File
	dirty      []dirtySegment // oldest first
	unsynced   int64          // bytes appended since the last flush
	dirChanged bool           // names in the folder changed since the last flush
	since      int            // bytes since the last index entry of the last segment
	epochs     epochs
	epochsOld  bool // the epoch file does not hold all of epochs
	producers  producers
	snaps      snapshots
}

func newLog(d *Dir, p partition, id ID, path string) *Log {
	l := &Log{d: d, p: p, id: id, maint: newToken()}
	l.path.Store(&path)
	l.view.Store(&view{})
	l.lastEpoch.Store(int32(batch.NoEpoch))
	l.producers.max = d.o.MaxProducers
	l.files.Store(1)
	return l
}

// Topic is the topic's name.
func (l *Log) Topic() string { return l.p.topic }

// Partition is the partition's number.
func (l *Log) Partition() int32 { return l.p.id }

// ID is the topic's id, zero when the folder holds none.
func (l *Log) ID() ID { return l.id }

// Dir is the partition's folder.
func (l *Log) Dir() string { return *l.path.Load() }

// Start is the log start offset: the first that can be read.
func (l *Log) Start() batch.Offset { return batch.Offset(l.start.Load()) }

// End is the log end offset: the one the next record gets.
func (l *Log) End() batch.Offset { return batch.Offset(l.end.Load()) }

// Flushed is the end of what survives a crash of the machine.
func (l *Log) Flushed() batch.Offset { return batch.Offset(l.flushed.Load()) }

// HW is the high watermark last given to SetHW, or found when the log was opened.
func (l *Log) HW() batch.Offset { return batch.Offset(l.hw.Load()) }

// SetHW notes the high watermark, which is written down every few seconds. It is
// a hint: after a crash an older one is found, clipped to the log's end.
func (l *Log) SetHW(hw batch.Offset) {
	if l.hw.Swap(int64(hw)) != int64(hw) {
		l.d.hwChanged.Store(true)
	}
}

// LastEpoch is the leader epoch of the last batch, NoEpoch when there is none.
func (l *Log) LastEpoch() batch.Epoch { return batch.Epoch(l.lastEpoch.Load()) }

// Size is the length of all segments in bytes.
func (l *Log) Size() int64 { return l.size.Load() }

// SetSegmentBytes sets the size at which the log's segments are closed.
func (l *Log) SetSegmentBytes(n int64) { l.segBytes.Store(n) }

// Damaged returns a *CorruptError when bytes that were flushed are gone or
// changed. The log serves what lies before them and refuses appends until it is
// cut below them or reset.
func (l *Log) Damaged() error {
	if e := l.damage.Load(); e != nil {
		return e
	}
	return nil
}

// OnDamage has f called each time the log is found damaged from now on, by whoever
// comes upon it, perhaps in the middle of a cut: f must not wait, and not call the log.
// Damaged tells what was found before.
func (l *Log) OnDamage(f func()) { l.onDamage.Store(&f) }

// markDamaged notes damage below what was flushed; of several the first in the log.
func (l *Log) markDamaged(e *CorruptError) {
	for {
		was := l.damage.Load()
		if was != nil && was.Offset <= e.Offset {
			return
		}
		if l.damage.CompareAndSwap(was, e) {
			break
		}
	}
	l.d.scrub.found.Add(1)
	l.d.o.Logger.Error("replica is damaged", "partition", l.p.String(), "error", e)
	if f := l.onDamage.Load(); f != nil {
		(*f)()
	}
}

// EpochEnd returns the largest leader epoch at or below e that has batches here,
// with the offset after its last one: the log's end for the latest epoch. When
// there is none it returns NoEpoch and the log's start.
func (l *Log) EpochEnd(e batch.Epoch) (batch.Epoch, batch.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epochs.end(e, l.Start(), l.End())
}

// EarlierEpochs calls yield with the leader epochs that have batches here before that of the
// last one, the newest first, and the offset after the last batch of each, until it returns false.
func (l *Log) EarlierEpochs(yield func(batch.Epoch, batch.Offset) bool) {
	l.mu.Lock()
	es := l.epochs
	l.mu.Unlock()
	for i := len(es) - 2; i >= 0 && yield(es[i].epoch, es[i+1].start); i-- {
	}
}

// Flush makes everything appended so far durable and returns when it is.
func (l *Log) Flush() error { return l.d.flushOne(l) }

// wrap says which log could not do what.
func (l *Log) wrap(doing string, err error) error {
	return fmt.Errorf("%s %s: %w", doing, l.p, err)
}

func (l *Log) filePath(name string) string { return filepath.Join(l.Dir(), name) }

// limit is the size at which a segment of this log is closed.
func (l *Log) limit() int64 {
	if n := l.segBytes.Load(); n > 0 {
		return n
	}
	return l.d.o.SegmentBytes
}

// setEpochs replaces the leader epochs; mu is held.
func (l *Log) setEpochs(es epochs) {
	l.epochs, l.epochsOld = es, true
	l.lastEpoch.Store(int32(es.last()))
}

// publish replaces the view and what follows from it; mu is held.
func (l *Log) publish(v *view) {
	l.view.Store(v)
	l.end.Store(int64(v.end()))
	l.size.Store(v.bytes())
}
