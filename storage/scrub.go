package storage

import (
	"errors"
	"sync/atomic"
	"time"
)

// A scrub reads what nobody reads: it proves, a little at a time, all that is not
// proven, from the oldest segment of the first log to the last of the last, so that
// damage is found while another replica is whole. When a round has begun long enough
// ago, the next one begins, and everything is in doubt again.

const (
	// scrubParts is into how many steps a second of scrubbing is cut.
	scrubParts = 8
	// scrubPause lies between two looks for something to do.
	scrubPause = 5 * time.Second
)

// scrubber is how far a Dir's scrub has come. Its owner is who calls Scrub.
type scrubber struct {
	round time.Duration // when the present round began
	queue []*Log        // what is left of the present pass

	read  atomic.Int64 // bytes proven by scrubs
	found atomic.Int64 // logs found damaged by whomever
}

// Scrub proves about limit bytes that are not proven, and returns how many it did: 0
// when there is nothing to do. One goroutine at a time calls it; a Dir with goroutines
// has its own. An error is one of the disk; what could not be read is tried again.
func (d *Dir) Scrub(limit int64) (int64, error) {
	if d.offline.Load() != nil {
		return 0, d.Offline()
	}
	sc := &d.scrub
	if now := d.o.Steady(); d.o.ScrubInterval > 0 && now-sc.round >= d.o.ScrubInterval {
		sc.round = now
		d.doubtAll()
	}
	if len(sc.queue) == 0 {
		sc.queue = d.unscrubbed()
	}
	done := int64(0)
	for done < limit && len(sc.queue) > 0 && !d.stopping() {
		n, err := sc.queue[0].scrub(limit - done)
		done += n
		sc.read.Add(n)
		if n == 0 || err != nil {
			sc.queue = sc.queue[1:]
		}
		if err != nil && !errors.Is(err, ErrClosed) {
			return done, err
		}
	}
	return done, nil
}

// unscrubbed lists the logs that a scrub has something to do in.
func (d *Dir) unscrubbed() []*Log {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var logs []*Log
	for _, l := range d.sorted {
		if l.damage.Load() == nil && l.unproven() > 0 {
			logs = append(logs, l)
		}
	}
	return logs
}

// doubtAll begins a round.
func (d *Dir) doubtAll() {
	for _, l := range d.Logs() {
		for _, s := range l.view.Load().segs {
			s.doubt()
		}
	}
}

func (l *Log) unproven() int64 {
	n := int64(0)
	for _, s := range l.view.Load().segs {
		n += s.unproven()
	}
	return n
}

// scrub proves about limit bytes of the log's first segment that is not proven, and
// returns how many; 0 when there is none, or the log is damaged.
func (l *Log) scrub(limit int64) (int64, error) {
	if l.damage.Load() != nil {
		return 0, nil
	}
	for _, s := range l.view.Load().segs {
		if s.proven() {
			continue
		}
		n := int64(0)
		err := l.inGate(func() error {
			return l.walk(s, func(w walker) error {
				var err error
				n, err = w.scrub(limit)
				return err
			})
		})
		if bad := (*CorruptError)(nil); errors.As(err, &bad) {
			err = nil // it is noted
		}
		if err != nil {
			err = l.wrap("scrub", err)
		}
		return n, err
	}
	return 0, nil
}

// scrub goes on where the last one ended.
func (w walker) scrub(limit int64) (int64, error) {
	buf := w.l.d.windows.Get().(*[proofWindow]byte)
	defer w.l.d.windows.Put(buf)
	w.buf = buf[:]
	next, pos := w.s.unpack(w.s.sound.Load())
	p := w.proveAt(pos, next)
	defer p.note()
	for p.sc.pos < p.old && p.sc.pos-pos < limit {
		_, err := p.peek()
		if err == nil {
			err = p.take()
		}
		if err != nil {
			return p.sc.pos - pos, w.disproven(&p, err)
		}
	}
	return p.sc.pos - pos, nil
}

// Unproven is how many bytes of the logs were not written by this run and have not
// been proven to be what was written, or not for a long time. Reads prove what they
// return, and a scrub the rest.
func (d *Dir) Unproven() int64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	n := int64(0)
	for _, l := range d.sorted {
		n += l.unproven()
	}
	return n
}

// Scrubbed is how many bytes scrubs have proven since the folder was opened.
func (d *Dir) Scrubbed() int64 { return d.scrub.read.Load() }

// DamageFound is how many times a log was found damaged since the folder was opened.
func (d *Dir) DamageFound() int64 { return d.scrub.found.Load() }

// runScrub scrubs at a steady rate.
func (d *Dir) runScrub() {
	d.again(0, func() time.Duration {
		n, err := d.Scrub(max(d.o.ScrubRate/scrubParts, 1))
		if err != nil && d.offline.Load() == nil {
			d.o.Logger.Warn("a part of a log cannot be scrubbed; it is tried again", "folder", d.path, "error", err)
		}
		if err != nil || n == 0 {
			return scrubPause
		}
		return time.Duration(float64(n) / float64(d.o.ScrubRate) * float64(time.Second))
	})
}
