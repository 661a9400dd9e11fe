package storage

import (
	"errors"
	"fmt"
	"io"

	"github.com/weirmq/weir/wire/batch"
)

// Problem: a disk changes bytes that nobody looks at. Records go from the file to
// the socket unread, and a batch's base offset, length and leader epoch are covered
// by no checksum, so what was changed would reach clients, who cannot tell.
//
// Invariant: what Read returns was written or proven by this run. A segment has two
// marks: below old lies what an earlier run wrote, and, after a while, what is
// believed no longer; below sound lies what has been proven since. Where sound has
// reached old, reads look at nothing.
//
// Steps: a proof goes from batch to batch, from a place that is known otherwise (the
// segment's first byte, whose offset is in the file's name; sound; the end of what
// was served; or a batch that the index names with its last offset), and each must begin where the one before
// ended, be of the epoch that the log knows for that offset, have its checksum and
// end within the segment. A read of what is not proven proves what it returns. A
// scrub (scrub.go) proves the rest, slowly.
//
// Rejected: proving a whole segment before the first read of it, which makes one
// consumer wait for a gigabyte; a checksum of our own over each segment, which Kafka
// would not write and which says nothing of where.

// proofWindow is the window of a proof, which reads all it passes.
const proofWindow = 64 << 10

// proof walks the batches of a segment and believes none.
type proof struct {
	s      *segment
	sc     scanner
	from   int64        // where it began
	next   batch.Offset // the offset that comes next
	epochs epochs
	end    batch.Offset // of the segment
	sound  int64        // below this, and from old on, checksums are known to hold
	old    int64

	// Of the batch that peek looked at:
	head batch.Batch // its header, until take
	size int64
	crc  uint32
	pass batch.Offset // what comes after it
}

// proven tells whether all of the segment is.
func (s *segment) proven() bool {
	_, sound := s.unpack(s.sound.Load())
	_, old := s.unpack(s.old.Load())
	return sound >= old
}

// unproven is how many bytes are not.
func (s *segment) unproven() int64 {
	_, sound := s.unpack(s.sound.Load())
	_, old := s.unpack(s.old.Load())
	return max(0, old-sound)
}

// doubt says that nothing in the segment is proven.
func (s *segment) doubt() {
	s.old.Store(s.tail.Load())
	s.sound.Store(0)
}

// ours tells whether a batch that begins with the offset, or later, was written by this
// run.
func (s *segment) ours(o batch.Offset) bool {
	old, _ := s.unpack(s.old.Load())
	return o >= old
}

// proveAt begins a proof at a batch whose offset is known.
func (w walker) proveAt(pos int64, next batch.Offset) proof {
	_, sound := w.s.unpack(w.s.sound.Load())
	_, old := w.s.unpack(w.s.old.Load())
	end, size := w.s.bounds() // the log knew the epochs of all below before
	return proof{
		s: w.s, sc: newScanner(w.f, pos, size, w.buf), from: pos, next: next,
		epochs: w.l.knownEpochs(), end: end, sound: sound, old: old,
	}
}

// proveAnew begins a proof of the whole segment that believes nothing.
func (w walker) proveAnew() proof {
	p := w.proveAt(0, w.s.base)
	p.sound, p.old = 0, p.sc.size
	return p
}

// proveFrom begins a proof at the nearest place before the batch that holds o.
func (w walker) proveFrom(o batch.Offset) (proof, error) {
	if pos, ok := w.s.hinted(o); ok {
		return w.proveAt(pos, o), nil // what came before it was served
	}
	return w.proveNear(o)
}

// proveNear is proveFrom without what was served: a hint may come from a header that lies.
func (w walker) proveNear(o batch.Offset) (proof, error) {
	at, sound := w.s.unpack(w.s.sound.Load())
	if at > o {
		at, sound = w.s.base, 0
	}
	rel := int64(o - w.s.base)
	e, ok := w.s.floor(offsetIndex, func(e entry) bool { return e.key > rel })
	if !ok || int64(e.val) <= sound {
		return w.proveAt(sound, at), nil
	}
	p := w.proveAt(int64(e.val), 0)
	h, _, err := p.sc.head()
	if err == nil && int64(h.Last()-w.s.base) == e.key {
		p.next = h.Base()
		return p, nil
	}
	if !misled(err) {
		return proof{}, err
	}
	return w.proveAt(sound, at), nil
}

// knownEpochs are the leader epochs of the log's batches.
func (l *Log) knownEpochs() epochs {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epochs
}

// peek looks at the header of the next batch: io.EOF when the segment ends where it
// should, a *badBatch when it is not what must be there.
func (p *proof) peek() (spot, error) {
	h, n, err := p.sc.head()
	switch {
	case errors.Is(err, io.EOF) && p.next != p.end:
		return spot{}, &badBatch{p.sc.pos, endsEarly(p.next, p.end)}
	case err != nil:
		return spot{}, err
	}
	if wrong := misfit(h, p.next, p.end, p.epochs); wrong != "" {
		return spot{}, &badBatch{p.sc.pos, wrong}
	}
	p.head, p.size, p.crc, p.pass = h, n, h.CRC(), h.End()
	return spot{p.sc.pos, n, h.Base(), h.End(), h.MaxTimestamp()}, nil
}

// misfit tells why a batch can not be the one that comes next in a segment, by what it says
// of itself; "" when it can.
func misfit(h batch.Batch, next, end batch.Offset, known epochs) string {
	switch e := known.at(next); {
	case h.Base() != next:
		return fmt.Sprintf("the batch begins at offset %d, not %d", h.Base(), next)
	case h.End() > end:
		return fmt.Sprintf("the batch ends at %d and the segment at %d", h.End(), end)
	case e != batch.NoEpoch && e != h.Epoch():
		return fmt.Sprintf("epoch %d where the log had %d", h.Epoch(), e)
	}
	return ""
}

func endsEarly(next, end batch.Offset) string {
	return fmt.Sprintf("the segment ends with offset %d and not %d", next, end)
}

// take reads the batch that peek looked at, unless it is proven, and goes on to the
// next one.
func (p *proof) take() error {
	if p.sc.pos < p.old && p.sc.pos >= p.sound {
		if err := p.sc.checkCRC(p.crc, p.size); err != nil {
			return err
		}
	}
	p.next = p.pass
	p.sc.skip(p.size)
	return nil
}

// skim goes on over headers alone to the segment's end, with each to f, and returns
// what is wrong before it.
func (p *proof) skim(f func(h batch.Batch, pos, size int64)) (*badBatch, error) {
	for {
		at, err := p.peek()
		if bad := (*badBatch)(nil); errors.As(err, &bad) {
			return bad, nil
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return nil, err
		}
		f(p.head, at.pos, at.size)
		p.next = p.pass
		p.sc.skip(p.size)
	}
}

// note makes what was proven known, if it joins what was known before.
func (p *proof) note() {
	for p.sound <= p.from { // else it took for known what may be in doubt again
		was := p.s.sound.Load()
		_, pos := p.s.unpack(was)
		if p.from > pos || p.sc.pos <= pos || p.s.sound.CompareAndSwap(was, p.s.pack(p.next, p.sc.pos)) {
			return
		}
	}
}

// proveRange finds a Range as readIn does, and proves it. Where damage comes after
// whole batches it returns those: who reads on is told.
func (w walker) proveRange(from, end batch.Offset, maxBytes int64) (first spot, stop int64, stopEnd batch.Offset, err error) {
	p, err := w.proveFrom(from)
	if err != nil {
		return spot{}, 0, 0, err
	}
	defer p.note()
	for {
		at, err := p.peek()
		enough := first.size > 0 && err == nil && at.pos+at.size-first.pos > maxBytes
		if errors.Is(err, io.EOF) || enough || err == nil && at.end > end {
			return first, p.sc.pos, p.next, nil
		}
		if err == nil {
			err = p.take()
		}
		if err != nil {
			err = w.disproven(&p, err)
			if first.size > 0 {
				return first, p.sc.pos, p.next, nil
			}
			return spot{}, 0, 0, err
		}
		if first.size == 0 && at.end > from {
			first = at
		}
	}
}

// provenAt returns the batch that holds o, up to which all is sound, or a CorruptError
// that names where batches cease to be. A batch that begins before o is checked itself: it
// may only say that it holds o. Where something is wrong nothing is believed any more, not
// even what this run wrote: a length that has changed shows only behind its batch.
func (w walker) provenAt(o batch.Offset) (spot, error) {
	p, err := w.proveNear(o)
	if err != nil {
		return spot{}, err
	}
	at, err := p.wholeUpTo(o)
	if err == nil && at.size > 0 {
		p.note()
		return at, nil
	}
	if err == nil {
		p = w.proveAnew()
		at, err = p.wholeUpTo(o)
	}
	if err != nil || at.size > 0 || at.base == o {
		return at, err
	}
	return spot{}, &CorruptError{Path: w.s.file.path(), Pos: at.pos, Offset: at.base, Msg: "sound batches end before the one that is to go"}
}

// wholeUpTo is upTo, but for a batch that begins before o and is not whole.
func (p *proof) wholeUpTo(o batch.Offset) (spot, error) {
	at, err := p.upTo(o)
	if err != nil || at.size == 0 || at.base == o {
		return at, err
	}
	if err = p.sc.checkCRC(p.crc, p.size); err != nil && misled(err) {
		return spot{pos: at.pos, base: at.base, end: at.base}, nil
	}
	return at, err
}

// upTo goes on to the batch that holds o.
func (p *proof) upTo(o batch.Offset) (spot, error) {
	for {
		at, err := p.peek()
		if err == nil && at.end > o {
			return at, nil // whether the batch itself is whole is not asked
		}
		if err == nil {
			err = p.take()
		}
		if err != nil && !misled(err) {
			return spot{}, err
		}
		if err != nil {
			return spot{pos: p.sc.pos, base: p.next, end: p.next}, nil
		}
	}
}

// disproven turns what ended a proof into a CorruptError, and notes that the replica
// is damaged. Errors of the disk pass through.
func (w walker) disproven(p *proof, err error) error {
	bad := (*badBatch)(nil)
	if !errors.As(err, &bad) {
		return err
	}
	return w.damaged(&CorruptError{Path: w.s.file.path(), Pos: bad.pos, Offset: p.next, Msg: bad.msg})
}

// damaged notes that the replica is damaged, if what is missing was flushed.
func (w walker) damaged(c *CorruptError) error {
	if c.Offset < w.l.Flushed() && w.l.view.Load().holds(w.s) {
		w.l.markDamaged(c)
	}
	return c
}
