package storage

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/weirmq/weir/wire/batch"
)

// Compaction says how a log is compacted: of all records of a key only the newest stays.
type Compaction struct {
	// MinRatio is the share of the bytes that may be cleaned which must not have been
	// cleaned before.
	MinRatio float64
	// MinLagMs is how old a segment's newest record must be before it is cleaned.
	MinLagMs int64
	// MaxLagMs is how old a record may become before it is cleaned whatever the share;
	// its segment is closed for it. math.MaxInt64 for any age.
	MaxLagMs int64
	// DeleteRetentionMs is how long a deletion stays after the first cleaning.
	DeleteRetentionMs int64
	// HoldDeletes keeps deletions past that: a replica that has not seen them would
	// otherwise come back with the records that they delete.
	HoldDeletes bool
}

// DefaultCompaction is Kafka's.
func DefaultCompaction() Compaction {
	return Compaction{MinRatio: 0.5, MaxLagMs: math.MaxInt64, DeleteRetentionMs: 24 * 3_600_000}
}

// cleaning is what a log knows of its compaction. One that was never compacted has none.
type cleaning struct {
	policy   atomic.Pointer[Compaction]
	to       atomic.Int64 // below it everything has been cleaned once; the checkpoint
	recorded atomic.Int64 // the checkpoint as the file has it
	horizon  atomic.Int64 // the least of the deletions that were left; NoHorizon when not known
	stuck    atomic.Int64 // a cleaning from here came no further (-1: none)
	cuts     atomic.Int64 // how often the log was cut
	retry    atomic.Int64 // ms of the steady clock: after a failure nothing is done before
}

func newCleaning() *cleaning {
	c := &cleaning{}
	c.reset()
	return c
}

func (c *cleaning) reset() {
	c.horizon.Store(batch.NoHorizon)
	c.stuck.Store(-1)
}

// compaction is how the log is compacted, nil when it is not.
func (c *cleaning) compaction() *Compaction {
	if c == nil {
		return nil
	}
	return c.policy.Load()
}

// SetCompaction has the log compacted from now on, or no longer, with nil.
func (l *Log) SetCompaction(c *Compaction) {
	if l.cleaning.Load() == nil {
		if c == nil {
			return
		}
		l.cleaning.CompareAndSwap(nil, newCleaning())
	}
	l.cleaning.Load().policy.Store(c)
	l.d.cleaner.watch(l, c != nil)
}

// Compacted tells whether the log is compacted, or was once: of what lies below its high
// watermark some records may be gone because of later ones.
func (l *Log) Compacted() bool { return l.cleaning.Load().compaction() != nil || l.CleanedTo() > 0 }

// CleanedTo is the offset below which everything has been cleaned at least once.
func (l *Log) CleanedTo() batch.Offset {
	if c := l.cleaning.Load(); c != nil {
		return batch.Offset(c.to.Load())
	}
	return 0
}

// noteCleaned notes the checkpoint of a log as its file has it.
func (l *Log) noteCleaned(o batch.Offset) {
	if o > 0 && l.cleaning.Load() == nil {
		l.cleaning.CompareAndSwap(nil, newCleaning())
	}
	if c := l.cleaning.Load(); c != nil {
		c.recorded.Store(int64(o))
	}
}

// lowerCleaned lowers the checkpoint to where the log will end, on the disk too.
func (l *Log) lowerCleaned(end batch.Offset) error {
	c := l.cleaning.Load()
	if c == nil {
		return nil
	}
	c.reset()
	c.cuts.Add(1)
	c.to.Store(min(c.to.Load(), int64(end)))
	if c.recorded.Load() <= int64(end) {
		return nil
	}
	return l.d.cleans.write()
}

// cleaner is the compaction of a Dir: the logs to look at, and what became of them.
type cleaner struct {
	mu   sync.Mutex // a leaf
	logs map[*Log]struct{}

	full bool // the disk had no room the last time, which was logged; for who cleans alone

	stats struct {
		runs, read, written, dropped atomic.Int64
		last                         atomic.Int64  // when the last cleaning ended, ms; 0 for never
		ratio                        atomic.Uint64 // the greatest share of dirty bytes at the last look
	}
}

func (c *cleaner) watch(l *Log, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !on {
		delete(c.logs, l)
		return
	}
	if c.logs == nil {
		c.logs = map[*Log]struct{}{}
	}
	c.logs[l] = struct{}{}
}

func (c *cleaner) watched() []*Log {
	c.mu.Lock()
	defer c.mu.Unlock()
	logs := make([]*Log, 0, len(c.logs))
	for l := range c.logs {
		logs = append(logs, l)
	}
	return logs
}

// CleanerStats is what cleaning has done since the folder was opened.
type CleanerStats struct {
	Runs, ReadBytes, WrittenBytes, DroppedRecords int64
	// LastMs is when the last one ended, 0 for never.
	LastMs int64
	// MaxDirtyRatio is the greatest share of bytes that were never cleaned, of one log's
	// that may be, as of the last look.
	MaxDirtyRatio float64
}

// CleanerStats tells what cleaning has done.
func (d *Dir) CleanerStats() CleanerStats {
	s := &d.cleaner.stats
	return CleanerStats{
		Runs: s.runs.Load(), ReadBytes: s.read.Load(), WrittenBytes: s.written.Load(), DroppedRecords: s.dropped.Load(),
		LastMs: s.last.Load(), MaxDirtyRatio: math.Float64frombits(s.ratio.Load()),
	}
}

// dirtyPart is what may be cleaned of a log, as of one moment.
type dirtyPart struct {
	l       *Log
	policy  Compaction
	segs    []*segment   // from the log's first on
	from    batch.Offset // where what was never cleaned begins
	end     batch.Offset // the end of segs
	clean   int64        // bytes below from, by segments
	dirty   int64        // bytes above
	late    bool         // a record there has waited too long
	expired bool         // a deletion may go
	limit   int64        // the size of a segment
	state   *cleaning
	cuts    int64 // how often the log had been cut
}

// ratio is the share of bytes that were never cleaned.
func (p dirtyPart) ratio() float64 {
	if p.dirty == 0 {
		return 0
	}
	return float64(p.dirty) / float64(p.clean+p.dirty)
}

// due tells whether it is time.
func (p dirtyPart) due() bool { return p.overdue() || p.ratio() > p.policy.MinRatio }

// overdue tells whether something must go whatever the share.
func (p dirtyPart) overdue() bool { return p.expired || p.late && p.dirty > 0 }

// dirtyPart finds what may be cleaned: closed segments that are flushed, with their
// indexes, and lie below the high watermark. Nothing that could still be cut lies there.
func (l *Log) dirtyPart(now int64) (dirtyPart, bool) {
	c := l.cleaning.Load()
	policy := c.compaction()
	if policy == nil || l.damage.Load() != nil || l.d.o.Steady().Milliseconds() < c.retry.Load() {
		return dirtyPart{}, false
	}
	p := dirtyPart{l: l, policy: *policy, limit: l.limit(), state: c, cuts: c.cuts.Load()}
	end := min(l.HW(), l.Flushed())
	l.mu.Lock()
	v, closed := l.view.Load(), l.closed
	if len(l.dirty) > 0 {
		end = min(end, l.dirty[0].base)
	}
	l.mu.Unlock()
	if closed || len(v.segs) == 0 {
		return dirtyPart{}, false
	}
	p.from = max(l.CleanedTo(), l.Start())
	l.d.reads.enter()
	defer l.d.reads.leave()
	for _, s := range v.segs[:len(v.segs)-1] {
		if s.end() > end || policy.MinLagMs > 0 && s.loadNewest().time > now-policy.MinLagMs {
			break
		}
		p.take(s, now)
	}
	if h := c.horizon.Load(); h != batch.NoHorizon && now >= h && !policy.HoldDeletes {
		p.expired = true
	}
	if batch.Offset(c.stuck.Load()) == p.from {
		p.clean, p.dirty = p.clean+p.dirty, 0
	}
	return p, len(p.segs) > 0 && (p.dirty > 0 || p.expired)
}

// take adds a segment.
func (p *dirtyPart) take(s *segment, now int64) {
	p.segs, p.end = append(p.segs, s), s.end()
	if s.end() <= p.from {
		p.clean += s.size()
		return
	}
	p.dirty += s.size()
	if p.policy.MaxLagMs < math.MaxInt64 {
		first, ok := p.l.firstTime(s)
		if first < 0 {
			first = s.loadNewest().time
		}
		p.late = p.late || ok && first >= 0 && first < now-p.policy.MaxLagMs
	}
}

// closeOverdue closes the last segment of a log whose first record is older than its
// compaction allows, so that it can be cleaned: without further records it would never be.
func (l *Log) closeOverdue(now int64) error {
	policy := l.cleaning.Load().compaction()
	if policy == nil || policy.MaxLagMs == math.MaxInt64 {
		return nil
	}
	s := l.view.Load().last()
	if s == nil || s.size() == 0 || l.damage.Load() != nil {
		return nil
	}
	l.d.writes.enter()
	defer l.d.writes.leave()
	first, ok := l.firstTime(s)
	if !ok || first < 0 || first >= now-policy.MaxLagMs {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.appendable() != nil || l.view.Load().last() != s {
		return nil //nolint:nilerr // another time
	}
	_, err := l.roll(s.end())
	return err
}
