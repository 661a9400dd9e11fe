package storage

import (
	"errors"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/wire/batch"
)

// checkpointer writes one of the four checkpoint files of a Dir: a line per log
// with a value above zero. Writers that wait for each other share a write.
type checkpointer struct {
	d     *Dir
	name  string
	value func(*Log) batch.Offset
	note  func(*Log, batch.Offset) // told what is on the disk now
	lost  func(marks) batch.Offset // what it says of a log that was lost

	busy    token
	started atomic.Uint64 // writes begun
	done    atomic.Uint64 // the newest write that ended well
}

// write makes the present values durable.
func (c *checkpointer) write() error {
	before := c.started.Load()
	c.busy.take()
	defer c.busy.give()
	if c.done.Load() > before {
		return nil // it took its values after we asked
	}
	if c.d.offline.Load() != nil {
		return c.d.Offline()
	}
	n := c.started.Add(1)
	logs := c.d.Logs()
	values := make([]batch.Offset, len(logs))
	lines := make([]string, 0, len(logs))
	for i, l := range logs {
		if values[i] = c.value(l); values[i] > 0 {
			lines = append(lines, checkpointLine(l.p, values[i]))
		}
	}
	lines = append(lines, c.d.lostLines(c.lost)...)
	if err := WriteFileAtomic(c.d.fs, filepath.Join(c.d.path, c.name), encodeLines(lines)); err != nil {
		if e := passing(err); e != nil {
			return e
		}
		return c.d.fail(err)
	}
	for i, l := range logs {
		c.note(l, values[i])
	}
	c.done.Store(n)
	return nil
}

// Tick does the background work of one interval: it makes durable what was
// appended, writes checkpoints when their time has come, looks at the room on
// the disk and at some of the folders, and forgets idle producers. Without goroutines (FlushInterval not
// positive) it removes old and deleted files too. It returns an error when the folder is
// offline; a full disk is no error, and the work is done when it has room.
func (d *Dir) Tick() error {
	d.ticked.take()
	defer d.ticked.give()
	d.look()
	err := d.flushDirty()
	d.lookAround()
	now := d.o.Steady()
	if now-d.checkpoint >= d.o.CheckpointInterval {
		d.checkpoint = now
		err = errors.Join(err, d.writeCheckpoints())
	}
	if now-d.expiry >= d.o.ExpiryInterval {
		d.expiry = now
		d.expireProducers(now)
	}
	if d.o.FlushInterval <= 0 {
		err = errors.Join(err, d.Commit())
		d.trim()
		d.reap()
	}
	if err != nil && d.offline.Load() == nil {
		d.o.Logger.Warn("background work is put off", "folder", d.path, "error", err)
		return nil
	}
	return err
}

// look notes how much room there is.
func (d *Dir) look() {
	total, free, err := d.fs.Space(d.path)
	if err != nil {
		d.o.Logger.Warn("cannot tell how much room is left", "folder", d.path, "error", err)
		return
	}
	d.total.Store(total)
	d.free.Store(free)
	low := d.o.MinFreeBytes > 0 && free < uint64(d.o.MinFreeBytes)
	if d.low.Swap(low) != low {
		d.o.Logger.Warn("room on the disk changed", "free", free, "reserve", d.o.MinFreeBytes, "appends refused", low)
	}
}

// writeCheckpoints writes recovery points and high watermarks if they changed.
func (d *Dir) writeCheckpoints() error {
	var errs []error
	if d.recoveryChanged.Swap(false) {
		if err := d.recoveryPoints.write(); err != nil {
			d.recoveryChanged.Store(true)
			errs = append(errs, err)
		}
	}
	if d.hwChanged.Swap(false) {
		if err := d.hws.write(); err != nil {
			d.hwChanged.Store(true)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (d *Dir) expireProducers(now time.Duration) {
	since := (now - d.o.ProducerExpiry).Milliseconds()
	for _, l := range d.Logs() {
		l.mu.Lock()
		l.producers.expire(since)
		l.mu.Unlock()
	}
}

// wakeFlush asks for a flush before its time.
func (d *Dir) wakeFlush() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// start begins the background work: one goroutine ticks, one flushes durable logs,
// one removes files, one scrubs, one compacts. All end when stop is closed; Close waits for them.
func (d *Dir) start() {
	if d.o.FlushInterval <= 0 {
		return
	}
	d.done.Add(3)
	go d.runTicks()
	go d.runCommits()
	go d.runReaper()
	if d.o.ScrubRate > 0 {
		d.done.Add(1)
		go d.runScrub()
	}
	if d.o.CleanerBackoff > 0 {
		d.done.Add(1)
		go d.runCleaner()
	}
}

// again does some work, first after a while and then each time after what it returns, until
// the Dir is closed or offline.
func (d *Dir) again(first time.Duration, work func() time.Duration) {
	defer d.done.Done()
	t := time.NewTimer(first)
	defer t.Stop()
	for {
		select {
		case <-d.stop:
			return
		case <-t.C:
		}
		wait := work()
		if d.offline.Load() != nil {
			return
		}
		t.Reset(wait)
	}
}

func (d *Dir) runTicks() {
	defer d.done.Done()
	t := time.NewTicker(d.o.FlushInterval)
	defer t.Stop()
	for {
		select {
		case <-d.stop:
			return
		case <-t.C:
		case <-d.wake:
		}
		// An error is the folder going offline, which was logged where it happened
		// and is what every later call answers.
		if d.Tick() != nil {
			return
		}
	}
}

func (d *Dir) runReaper() {
	defer d.done.Done()
	for {
		select {
		case <-d.stop:
			return
		case <-d.reaper.wake:
			d.trim()
			d.reap()
		}
	}
}
