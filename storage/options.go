package storage

import (
	"errors"
	"fmt"
	"math"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Options are the settings of a Dir. The zero value of a field stands for its
// default, except FlushInterval.
type Options struct {
	// SegmentBytes: a segment is closed before it grows past this size.
	SegmentBytes int64
	// IndexIntervalBytes: bytes of log between two index entries.
	IndexIntervalBytes int
	// GateWidth: how many blocking file calls may run at once, a quarter of them
	// kept for writers. Each costs an OS thread while it blocks.
	GateWidth int
	// MaxOpenFiles: how many descriptors of segments stay open, one half for
	// readers and one for writers. Descriptors in use are never closed, so more
	// can be open for a moment.
	MaxOpenFiles int
	// FlushInterval bounds how long written bytes stay unsynced. Zero or less:
	// the Dir starts no goroutine and the owner calls Tick.
	FlushInterval time.Duration
	// FlushBytes: a flush begins before its time when so many bytes are unsynced.
	// Negative: for no number of them.
	FlushBytes int64
	// CheckpointInterval: how often recovery points and high watermarks are
	// written down, when they changed.
	CheckpointInterval time.Duration
	// SnapshotBytes: bytes of log after which the state of the producers is
	// written down, which bounds what a restart must read for it.
	SnapshotBytes int64
	// ProducerExpiry: how long an idle idempotent producer is remembered.
	ProducerExpiry time.Duration
	// ExpiryInterval: how often idle producers are looked for.
	ExpiryInterval time.Duration
	// MaxProducers bounds the producers remembered for one partition; beyond it
	// those idle longest are forgotten.
	MaxProducers int
	// MinFreeBytes: below this much room appends are refused with ErrFull, so
	// that metadata and checkpoints can still be written. Negative: no reserve.
	MinFreeBytes int64
	// ScrubRate: how many bytes a second a scrub reads to prove what nobody has read
	// since the folder was opened. Negative: there is none, unless the owner calls Scrub.
	ScrubRate int64
	// ScrubInterval: how long proven bytes are believed. Negative: always.
	ScrubInterval time.Duration
	// CleanerBytes is the memory for the keys of one cleaning: with more of them it
	// goes only so far.
	CleanerBytes int64
	// CleanerRate is how many bytes a second a cleaning reads and writes. Zero or less:
	// as many as it can.
	CleanerRate int64
	// CleanerBackoff lies between two looks for a log to clean. Negative: nothing is
	// cleaned, unless the owner calls Clean.
	CleanerBackoff time.Duration
	// Now is the wall clock, by which records age. It may be set, forward or back.
	Now func() time.Time
	// Steady is the time that has passed, whatever the wall clock shows: it times
	// checkpoints, scrubs and idle producers. Nil: since the folder was opened, by Now's
	// monotonic reading.
	Steady func() time.Duration
	// Logger gets what an operator should know.
	Logger hclog.Logger
}

// DefaultOptions returns Kafka's defaults where Kafka has them.
func DefaultOptions() Options {
	return Options{
		SegmentBytes:       1 << 30,
		IndexIntervalBytes: 4096,
		GateWidth:          64,
		MaxOpenFiles:       4096,
		FlushInterval:      time.Second,
		FlushBytes:         64 << 20,
		CheckpointInterval: 5 * time.Second,
		SnapshotBytes:      16 << 20,
		ProducerExpiry:     24 * time.Hour,
		ExpiryInterval:     10 * time.Minute,
		MaxProducers:       16384,
		MinFreeBytes:       64 << 20,
		ScrubRate:          8 << 20,
		ScrubInterval:      7 * 24 * time.Hour,
		CleanerBytes:       128 << 20,
		CleanerBackoff:     15 * time.Second,
		Now:                time.Now,
		Logger:             hclog.NewNullLogger(),
	}
}

// minGateWidth leaves one place for writers and three for readers.
const minGateWidth = 4

// withDefaults fills in what the caller left zero and bounds what Kafka's
// formats bound: positions in an index are 31 bits.
func (o Options) withDefaults() Options {
	d := DefaultOptions()
	setDefault(&o.SegmentBytes, d.SegmentBytes)
	o.SegmentBytes = min(o.SegmentBytes, math.MaxInt32)
	setDefault(&o.IndexIntervalBytes, d.IndexIntervalBytes)
	setDefault(&o.GateWidth, d.GateWidth)
	o.GateWidth = max(o.GateWidth, minGateWidth)
	setDefault(&o.MaxOpenFiles, d.MaxOpenFiles)
	setDefault(&o.FlushBytes, d.FlushBytes)
	setDefault(&o.CheckpointInterval, d.CheckpointInterval)
	setDefault(&o.SnapshotBytes, d.SnapshotBytes)
	setDefault(&o.ProducerExpiry, d.ProducerExpiry)
	setDefault(&o.ExpiryInterval, d.ExpiryInterval)
	setDefault(&o.MaxProducers, d.MaxProducers)
	setDefault(&o.MinFreeBytes, d.MinFreeBytes)
	setDefault(&o.ScrubRate, d.ScrubRate)
	setDefault(&o.ScrubInterval, d.ScrubInterval)
	setDefault(&o.CleanerBytes, d.CleanerBytes)
	setDefault(&o.CleanerBackoff, d.CleanerBackoff)
	if o.Now == nil {
		o.Now = d.Now
	}
	if o.Steady == nil {
		now := o.Now
		began := now()
		o.Steady = func() time.Duration { return now().Sub(began) }
	}
	if o.Logger == nil {
		o.Logger = d.Logger
	}
	return o
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// isFull tells whether a write was refused for want of room.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// isCrowded tells whether a file could not be opened because too many are.
func isCrowded(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// passing returns the error to answer with when one of the disk will pass (no
// room, no descriptors), and nil when nothing can be sure after it.
func passing(err error) error {
	switch {
	case isFull(err):
		return fmt.Errorf("%w: %w", ErrFull, err)
	case isCrowded(err):
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return nil
}
