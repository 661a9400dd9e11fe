package storage

import (
	"time"

	"github.com/weirmq/weir/wire/batch"
)

// Retention says which records a log may let go of, oldest segment first.
type Retention struct {
	// AgeMs is how old a segment's newest record may become, -1 for any age.
	AgeMs int64
	// Bytes is how large the log may be before it lets go of what is beyond, -1 for any size.
	Bytes int64
}

// RetainAll keeps everything.
func RetainAll() Retention { return Retention{AgeMs: -1, Bytes: -1} }

// stretch is a segment as the choice of victims sees it.
type stretch struct {
	end    batch.Offset
	size   int64
	newest int64 // greatest timestamp of its records, NoTimestamp when they have none
}

// start returns where a log may start whose segments are segs, oldest first: past
// the last of those that may go, all of which end at or below a limit (the high
// watermark). written tells when a segment's file was last written, in ms; 0 when
// that is not known.
//
// A timestamp is the producer's word, so two rules keep it honest. A segment is
// no newer than its file: a record from the year 2100 does not keep it for ever.
// And the last segment goes for its age only when its file is that old, too: a
// producer that writes records of 1970 does not see them vanish under its hands.
// They do vanish once their segment is closed, as Kafka has it.
func (r Retention) start(segs []stretch, start, limit batch.Offset, now int64, written func(i int) int64) batch.Offset {
	excess := -r.Bytes
	for _, s := range segs {
		excess += s.size
	}
	for i, s := range segs {
		if s.end > limit || s.size == 0 {
			break
		}
		large := r.Bytes >= 0 && excess >= s.size
		if !large && !r.outlived(s, now, i == len(segs)-1, func() int64 { return written(i) }) {
			break
		}
		excess -= s.size
		start = max(start, s.end)
	}
	return start
}

// outlived tells whether a segment may go for its age.
func (r Retention) outlived(s stretch, now int64, last bool, written func() int64) bool {
	if r.AgeMs < 0 {
		return false
	}
	oldest := now - r.AgeMs // what is older may go
	if s.newest >= 0 && s.newest < oldest && !last {
		return true // whatever the file says
	}
	file := written()
	switch {
	case file == 0:
		return !last && s.newest >= 0 && s.newest < oldest
	case s.newest < 0:
		return file < oldest
	case last:
		return file < oldest
	}
	return min(s.newest, file) < oldest
}

// Expired returns where the log may start by r, never above limit, and whether
// there is anything to let go of, segments that a crash left below the start
// included.
func (l *Log) Expired(r Retention, limit batch.Offset) (batch.Offset, bool) {
	v, start := l.view.Load(), l.Start()
	if v.last() == nil {
		return start, false
	}
	l.d.reads.enter()
	defer l.d.reads.leave()
	segs := make([]stretch, len(v.segs))
	for i, s := range v.segs {
		end, size := s.bounds()
		segs[i] = stretch{end: end, size: size, newest: s.loadNewest().time}
	}
	to := r.start(segs, start, limit, l.d.o.Now().UnixMilli(), func(i int) int64 { return l.writtenAt(v.segs[i]) })
	left := len(v.segs) > 1 && segs[0].end <= start
	return to, to > start || left
}

// writtenAt is when a segment's file was last written, in ms; 0 when that is not known.
func (l *Log) writtenAt(s *segment) int64 {
	l.paths.RLock()
	defer l.paths.RUnlock()
	info, err := l.d.fs.Stat(s.file.path())
	if err != nil || info.ModTime().IsZero() {
		return 0
	}
	return info.ModTime().UnixMilli()
}

// outdated tells whether the first batch of a segment is older, by its time, than
// a batch that is to follow allows.
func (l *Log) outdated(s *segment, next int64) bool {
	age := l.segAge.Load()
	if age <= 0 || next < 0 || s.size() == 0 {
		return false
	}
	first, ok := l.firstTime(s)
	return ok && first >= 0 && next-first > age
}

// firstTime is the time of a segment's first batch. It is read once after a
// restart; a segment whose head cannot be read is closed by its size alone.
func (l *Log) firstTime(s *segment) (int64, bool) {
	s.mu.Lock()
	first, known := s.first, s.begun
	s.mu.Unlock()
	if known {
		return first, true
	}
	var head batch.Batch
	err := l.walk(s, func(w walker) error {
		buf := make([]byte, batch.HeaderSize)
		if _, err := w.f.ReadAt(buf, 0); err != nil {
			return err
		}
		head = buf
		return nil
	})
	if err != nil {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first, s.begun = head.MaxTimestamp(), true
	return s.first, true
}

// SetSegmentAge sets how much later than the first batch of a segment a batch may
// be, by their timestamps, before a new segment is begun; 0 for any time.
func (l *Log) SetSegmentAge(d time.Duration) { l.segAge.Store(d.Milliseconds()) }
