package storage

import (
	"cmp"
	"errors"
	"io"
	"math"
	"slices"
	"time"

	"github.com/weirmq/weir/wire/batch"
)

// Cleaning a log goes twice over its bytes. The first pass reads what was never cleaned
// and notes for each key where it was written last, as far as the memory for that goes.
// The second reads everything from the log's first segment up to there, oldest first, and
// writes what is left into new segments, each in place of as many old ones as fit in one
// (swap.go). Oldest first, because a deletion may only get its horizon, and go after it,
// once what it deletes is gone. Both passes take no lock and no token; the new files go
// unused when the log was cut meanwhile.
//
// Every batch is proven on both passes: a key that was read wrong would cost others their
// records.

// cleanWindow is how much is read, and gathered to be written, at once.
const cleanWindow = 1 << 20

// cleanFirst is how long after its start a Dir looks at its logs first, at most: their high
// watermarks are known again by then.
const cleanFirst = 5 * time.Second

// cleanRetry is how long a log is left alone that could not be cleaned.
const cleanRetry = time.Minute

// errUncleanable says that a whole batch does not hold what its header says.
var errUncleanable = errors.New("a batch cannot be cleaned")

// errSuperseded says that the log was cut, or is going, while it was cleaned.
var errSuperseded = errors.New("the log changed while it was cleaned")

// Clean cleans the log that needs it most, and returns whether there was one to try. One
// goroutine
// at a time calls it; a Dir with goroutines has its own. An error is one of the disk.
func (d *Dir) Clean() (bool, error) {
	if d.offline.Load() != nil {
		return false, d.Offline()
	}
	p, ok, err := d.filthiest()
	if !ok || err != nil {
		return false, err
	}
	err = p.l.clean(p)
	switch {
	case err == nil:
		d.cleaner.full = false
		return true, nil
	case errors.Is(err, errSuperseded), errors.Is(err, ErrClosed):
		return false, nil
	}
	p.state.retry.Store((d.o.Steady() + cleanRetry).Milliseconds())
	if errors.Is(err, ErrFull) {
		if !d.cleaner.full {
			d.o.Logger.Warn("no room to compact a log; it is tried again", "partition", p.l.p.String(), "error", err)
		}
		d.cleaner.full = true
		return true, nil
	}
	if bad := (*CorruptError)(nil); errors.As(err, &bad) {
		return true, nil // it is noted
	}
	return true, p.l.wrap("compact", err)
}

// filthiest returns the log whose turn it is.
func (d *Dir) filthiest() (best dirtyPart, found bool, err error) {
	now, worst := d.o.Now().UnixMilli(), 0.0
	for _, l := range d.cleaner.watched() {
		if d.stopping() {
			return best, false, nil
		}
		if d.cleaner.dropped(l) {
			continue
		}
		if err := l.closeOverdue(now); err != nil && d.offline.Load() != nil {
			return best, false, err
		}
		p, ok := l.dirtyPart(now)
		if !ok {
			continue
		}
		worst = max(worst, p.ratio())
		if p.due() && (!found || p.before(best)) {
			best, found = p, true
		}
	}
	d.cleaner.stats.ratio.Store(math.Float64bits(worst))
	return best, found, nil
}

// before tells whether a log comes before another one: what is overdue first, then what
// has the greater share of bytes never cleaned.
func (p dirtyPart) before(o dirtyPart) bool {
	if p.overdue() != o.overdue() {
		return p.overdue()
	}
	if c := cmp.Compare(p.ratio(), o.ratio()); c != 0 {
		return c > 0
	}
	return byName(p.l, o.l) < 0
}

// dropped forgets a log that is gone.
func (c *cleaner) dropped(l *Log) bool {
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	if closed {
		c.watch(l, false)
	}
	return closed
}

// pass is one cleaning of one log.
type pass struct {
	d      *Dir
	l      *Log
	p      dirtyPart
	thin   *thinner
	epochs epochs
	in     []byte // the window
}

// clean cleans a log.
func (l *Log) clean(p dirtyPart) error {
	for i, s := range p.segs {
		if !s.file.pin() {
			unpinAll(p.segs[:i])
			return errSuperseded
		}
	}
	defer unpinAll(p.segs)
	if err := l.finishStages(p.segs); err != nil {
		return err
	}
	c := pass{d: l.d, l: l, p: p, epochs: l.knownEpochs(), in: make([]byte, cleanWindow)}
	keys := newOffsetMap(l.d.o.CleanerBytes)
	c.thin = newThinner(keys, p.from)
	c.thin.now, c.thin.retain, c.thin.hold = l.d.o.Now().UnixMilli(), p.policy.DeleteRetentionMs, p.policy.HoldDeletes
	end, err := c.index(keys)
	if err != nil {
		return err
	}
	if end == p.from && !p.expired {
		p.state.stuck.Store(int64(p.from))
		return nil
	}
	c.thin.end = end
	l.mu.Lock()
	c.thin.windows = l.producers.windowsBelow(end)
	l.mu.Unlock()
	slices.Sort(c.thin.windows)
	if err := c.recordHW(); err != nil {
		return err
	}
	if err := c.groups(); err != nil {
		return err
	}
	return c.done(end)
}

func unpinAll(segs []*segment) {
	for _, s := range segs {
		s.file.unpin()
	}
}

// recordHW has the high watermark on the disk that the cleaning relies on: a node that
// starts anew must know that what lies below may lack what came before.
func (c *pass) recordHW() error {
	if c.l.hwRecorded.Load() >= int64(c.thin.end) {
		return nil
	}
	return c.d.hws.write()
}

// done notes that everything below end was cleaned, unless the log was cut meanwhile.
func (c *pass) done(end batch.Offset) error {
	l, stats := c.l, &c.d.cleaner.stats
	l.maint.take()
	if c.p.state.cuts.Load() == c.p.cuts && l.damage.Load() == nil {
		c.p.state.to.Store(max(c.p.state.to.Load(), int64(end)))
		c.p.state.horizon.Store(c.thin.horizon)
		if end == c.p.from && c.p.dirty > 0 {
			c.p.state.stuck.Store(int64(end))
		}
	}
	l.giveMaint()
	stats.runs.Add(1)
	stats.dropped.Add(c.thin.dropped)
	stats.last.Store(c.d.o.Now().UnixMilli())
	return c.d.cleans.write()
}

// index fills the map from the part that was never cleaned, and returns where that ends: at
// a batch that does not fit, or whose transaction nobody here knows the end of.
func (c *pass) index(keys *offsetMap) (batch.Offset, error) {
	end := c.p.from
	put := func(o batch.Offset, key []byte, _ bool) bool {
		if key != nil {
			keys.put(key, o)
		}
		return false
	}
	for _, s := range c.p.segs {
		if s.end() <= c.p.from {
			continue
		}
		more := true
		err := c.each(s, func(b batch.Batch) error {
			switch {
			case b.End() <= c.p.from:
				return nil
			case b.Control(), b.Transactional(), !keys.room(int(b.Count())):
				more = false
				return io.EOF
			}
			payload, err := c.thin.inflate(b)
			if err == nil {
				err = uncleanable(b.Thin(nil, payload, put))
			}
			if err == nil {
				end = b.End()
			}
			return err
		})
		if errors.Is(err, errUncleanable) {
			c.d.o.Logger.Warn("a log is not compacted past a batch that cannot be read", "partition", c.l.p.String(), "offset", int64(end), "error", err)
			return end, nil
		}
		if err != nil || !more {
			return end, err
		}
	}
	return end, nil
}

// groups rewrites the segments, as many into one as fit.
func (c *pass) groups() error {
	segs := c.p.segs
	for len(segs) > 0 && segs[0].base < c.thin.end {
		n, size := 0, int64(0)
		for n < len(segs) && segs[n].base < c.thin.end && segs[n].end()-1-segs[0].base <= maxRelative {
			if size += segs[n].size(); n > 0 && size > c.p.limit {
				break
			}
			n++
		}
		if err := c.rewrite(segs[:n]); err != nil {
			return err
		}
		segs = segs[n:]
	}
	return nil
}

// each calls f with every batch of a segment, proven, until f returns io.EOF.
func (c *pass) each(s *segment, f func(batch.Batch) error) error {
	end, size := s.bounds()
	next, pos := s.base, int64(0)
	for have := []byte(nil); pos < size; {
		b, rest, err := batch.Next(have)
		if errors.Is(err, batch.ErrShort) {
			if have, err = c.read(s, pos, size, have); err == nil {
				continue
			}
		}
		if err == nil {
			err = c.prove(b, next, end)
		}
		if err == nil {
			err = f(b)
		}
		switch bad := (*batch.CorruptError)(nil); {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errUncleanable):
			return err
		case errors.As(err, &bad):
			return c.l.rotten(s, pos, next, bad.Msg)
		case err != nil:
			return err
		}
		next, pos, have = b.End(), pos+int64(len(b)), rest
	}
	if next != end {
		return c.l.rotten(s, pos, next, endsEarly(next, end))
	}
	return nil
}

// prove checks a batch where next comes next.
func (c *pass) prove(b batch.Batch, next, end batch.Offset) error {
	if wrong := misfit(b, next, end, c.epochs); wrong != "" {
		return &batch.CorruptError{Base: b.Base(), Msg: wrong}
	}
	return b.CheckCRC()
}

// rotten notes damage that a cleaning came upon.
func (l *Log) rotten(s *segment, pos int64, o batch.Offset, msg string) error {
	w := walker{l: l, s: s}
	return w.damaged(&CorruptError{Path: s.file.path(), Pos: pos, Offset: o, Msg: msg})
}

// read returns the bytes of a segment from pos on, which begin with what is known of
// them: the whole batch there and, with it, about a window.
func (c *pass) read(s *segment, pos, size int64, known []byte) ([]byte, error) {
	want := int64(cleanWindow)
	if n, err := batch.SizeOf(known); err == nil {
		want = max(want, int64(n))
	}
	if want = min(want, size-pos); want <= int64(len(known)) {
		return nil, &batch.CorruptError{Msg: "the segment ends within a batch"}
	}
	if int64(len(c.in)) < want {
		c.in = make([]byte, want)
	}
	err := c.spend(want)
	if err == nil {
		err = c.l.inGate(func() error {
			f, err := c.d.readers.acquire(&s.file.r, (*reading)(s.file))
			if err != nil {
				return err
			}
			defer c.d.readers.release(&s.file.r)
			n, err := f.ReadAt(c.in[:want], pos)
			if int64(n) == want {
				return nil
			}
			if err == nil || errors.Is(err, io.EOF) {
				err = &batch.CorruptError{Msg: "the file ends early"}
			}
			return err
		})
	}
	if err != nil && !c.l.view.Load().holds(s) {
		return nil, errSuperseded
	}
	c.d.cleaner.stats.read.Add(want)
	return c.in[:want], err
}

// spend waits until so many bytes may be read or written, and ends the pass when the Dir
// is closed.
func (c *pass) spend(n int64) error {
	if c.d.stopping() || c.d.offline.Load() != nil {
		return errSuperseded
	}
	rate := c.d.o.CleanerRate
	if rate <= 0 || c.d.o.FlushInterval <= 0 {
		return nil
	}
	t := time.NewTimer(time.Duration(float64(n) / float64(rate) * float64(time.Second)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-c.d.stop:
		return errSuperseded
	}
}

// runCleaner compacts logs.
func (d *Dir) runCleaner() {
	d.again(min(d.o.CleanerBackoff, cleanFirst), func() time.Duration {
		for more := true; more && !d.stopping() && d.offline.Load() == nil; {
			var err error
			more, err = d.Clean()
			if err != nil && d.offline.Load() == nil {
				d.o.Logger.Warn("a log cannot be compacted; it is tried again", "folder", d.path, "error", err)
			}
		}
		return d.o.CleanerBackoff
	})
}
