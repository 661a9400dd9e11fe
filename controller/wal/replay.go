package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/hashicorp/raft"
)

// DamageError says that a file of the log is not what was written, and what to do.
type DamageError struct {
	// Path is the file.
	Path string
	// What is wrong there.
	What error
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("the metadata of this node in %s is damaged (%v): restore a copy of its folder, or go on without this node", e.Path, e.What)
}

// Unwrap is what is wrong.
func (e *DamageError) Unwrap() error { return e.What }

// place is where an entry is: in which segment, where there, and how many bytes of content.
type place struct{ seq, at, size uint32 }

// state is what the blocks up to one of them say.
type state struct {
	bounds
	// values are all stable values. The map is replaced, never changed.
	values map[string][]byte
	// places are those of the entries up to the last one. While segments are read the oldest
	// entries may be missing, whose segments were removed.
	places []place
}

// place is where an entry is; false when it is not there.
func (s *state) place(index uint64) (place, bool) {
	if index == 0 || index < s.first || index > s.last || s.last-index >= uint64(len(s.places)) {
		return place{}, false
	}
	return s.places[uint64(len(s.places))-1-(s.last-index)], true
}

// replaced is the state after entries with these places from index on; the places are kept.
func (s state) replaced(index uint64, places []place) state {
	if s.last == 0 {
		s.first, s.places = index, nil
	} else {
		s.places = s.places[:uint64(len(s.places))-min(s.last+1-index, uint64(len(s.places)))]
	}
	s.places = append(s.places, places...)
	s.last = index + uint64(len(places)) - 1
	return s
}

// cutTo is the state after all entries outside of b, which are the oldest, are deleted.
func (s state) cutTo(b bounds) state {
	keep := 0
	if b.last != 0 {
		keep = int(min(b.last-b.first+1, uint64(len(s.places))))
	}
	s.bounds, s.places = b, s.places[len(s.places)-keep:]
	return s
}

// replay reads segments one after another.
//
// Problem: tell what a crash leaves of the last block from what a disk has changed.
//
// Invariants: as in doc.go. A sector is sealed, empty or damaged. The only sectors that may be
// empty in the middle are those of the last block of all, which then never was synced.
//
// Steps: blocks are taken in order while they are whole and continue the one before. Where one is
// not, everything to the end of the file is looked at: it must be empty but for further sectors
// of that block. The same holds for segments behind one that does not end with an end block.
type replay struct {
	state
	number uint64
	last   kind // of the last block, 0 for none
	// at is where the next block goes in the segment read last.
	at int64
	// torn is up to where something is left there of a block that was torn; at when there is none.
	torn int64

	scratch []byte
}

// read goes on with the next segment, whose bytes are given, and tells whether it is a spare one, without any block.
func (r *replay) read(s *segment, b []byte) (spare bool, err error) {
	before := *r
	r.at, r.torn, r.last = pageBytes, pageBytes, 0
	// The first one begins the log, others go on where one before ended.
	goesOn := before.number == 0 || before.last == kindEnd
	for {
		h, size, err := r.next(s, b)
		if err == nil && size > 0 {
			err = r.take(s, h, goesOn)
		}
		if err != nil {
			return false, fmt.Errorf("block %d at byte %d: %w", r.number+1, r.at, err)
		}
		if size == 0 {
			break
		}
		r.number, r.last = h.number, h.kind
		r.at += size
		r.torn = r.at
	}
	switch {
	case r.last != 0:
		return false, nil
	case before.number == 0 && s.seq > 1:
		return false, errors.New("it has no block, and what was before it is missing")
	case goesOn:
		return false, nil
	case r.torn > r.at:
		return false, errors.New("it has a block, though the segment before has no end")
	}
	r.at, r.torn, r.last = before.at, before.torn, before.last
	return true, nil
}

// take takes a block in its turn.
func (r *replay) take(s *segment, h header, goesOn bool) error {
	switch {
	case r.last == 0 && !goesOn:
		return errors.New("the segment before has no end")
	case (r.last == 0) != (h.kind == kindStart):
		return errors.New("it is out of place in its segment")
	case r.last == kindEnd:
		return errors.New("it follows the segment's end")
	}
	return r.apply(s, h)
}

// next looks at the block at r.at. Its size is 0 when there is none, or one that was torn.
func (r *replay) next(s *segment, b []byte) (header, int64, error) {
	if r.at >= int64(len(b)) {
		return header{}, 0, nil
	}
	first := b[r.at : r.at+sectorBytes]
	if isZero(first) {
		return header{}, 0, r.rest(s, b, r.at, int64(len(b)))
	}
	if !s.sealed(first, r.at, roleFirst) {
		return header{}, 0, errors.New("its first sector does not match its checksum")
	}
	h := readHeader(first)
	end := r.at + h.sectors()*sectorBytes
	switch {
	case r.number != 0 && h.number != r.number+1 || h.number == 0:
		return h, 0, fmt.Errorf("there is block %d instead", h.number)
	case pages(end) > int64(len(b)):
		return h, 0, errors.New("it is longer than its segment")
	}
	for at := r.at + sectorBytes; at < end; at += sectorBytes {
		if sector := b[at : at+sectorBytes]; isZero(sector) {
			r.torn = r.at + sectorBytes
			return h, 0, r.rest(s, b, at, end)
		} else if !s.sealed(sector, at, roleFurther) {
			return h, 0, fmt.Errorf("its sector at byte %d does not match its checksum", at)
		}
	}
	if !isZero(b[end:pages(end)]) {
		return h, 0, errors.New("something follows it")
	}
	r.scratch = appendContent(r.scratch[:0], b[r.at:end], r.at)
	return h, pages(end) - r.at, nil
}

// rest makes sure that from at on there is nothing but further sectors of one torn block, which
// ends at end or before.
func (r *replay) rest(s *segment, b []byte, at, end int64) error {
	for ; at < int64(len(b)); at += sectorBytes {
		sector := b[at : at+sectorBytes]
		switch {
		case isZero(sector):
		case s.sealed(sector, at, roleFirst):
			return fmt.Errorf("a part of it is lost, though block %d follows it", readHeader(sector).number)
		case at >= end || !s.sealed(sector, at, roleFurther):
			return fmt.Errorf("something is at byte %d, where nothing was written", at)
		default:
			r.torn = at + sectorBytes
		}
	}
	return nil
}

// apply takes a block, whose content is in scratch.
func (r *replay) apply(s *segment, h header) error {
	payload := r.scratch[headerBytes : headerBytes+h.payload]
	next := r.state
	switch h.kind {
	case kindEntries:
		places, index, err := readEntries(payload, s, r.at, h.bounds.last)
		if err != nil {
			return err
		}
		if index == 0 || r.state.last != 0 && (index <= r.first || index > r.state.last+1) {
			return fmt.Errorf("it begins with entry %d, and there are entries %d to %d", index, r.first, r.state.last)
		}
		next = next.replaced(index, places)
	case kindValues, kindStart:
		values, err := readValues(payload)
		if err != nil {
			return err
		}
		switch {
		case h.kind == kindValues || r.number == 0:
			next.values = values
		case !maps.EqualFunc(values, r.values, slices.Equal):
			return errors.New("its values differ from those before")
		}
		if h.kind == kindStart && r.number == 0 {
			next.bounds = h.bounds
		}
	case kindBounds:
		if h.bounds != (bounds{}) && (h.bounds.last != r.state.last || h.bounds.first < r.first) {
			return fmt.Errorf("it leaves entries %d to %d of %d to %d", h.bounds.first, h.bounds.last, r.first, r.state.last)
		}
		next = next.cutTo(h.bounds)
	case kindEnd, kindClose:
	default:
		return fmt.Errorf("it is of an unknown kind %d", h.kind)
	}
	if next.bounds != h.bounds || h.bounds.first > h.bounds.last || (h.bounds.first == 0) != (h.bounds.last == 0) {
		return fmt.Errorf("it says that there are entries %d to %d, and there are %d to %d", h.bounds.first, h.bounds.last, next.first, next.last)
	}
	r.state = next
	return nil
}

// readEntries checks the entries of the block at at, of which last is the last one.
func readEntries(payload []byte, s *segment, at int64, last uint64) (places []place, index uint64, err error) {
	if len(payload) < 4 {
		return nil, 0, errShortPayload
	}
	count, rest := uint64(binary.BigEndian.Uint32(payload)), payload[4:]
	if count == 0 || count > last || count > uint64(len(rest))/4 {
		return nil, 0, fmt.Errorf("it has %d entries up to entry %d in %d bytes", count, last, len(payload))
	}
	index = last + 1 - count
	places = make([]place, 0, count)
	for i := index; i <= last; i++ {
		pos := int64(headerBytes+4) + int64(len(payload)-len(rest))
		var v []byte
		if v, rest, err = cutField(rest); err != nil {
			return nil, 0, err
		}
		if err := checkEntry(i, v); err != nil {
			return nil, 0, err
		}
		places = append(places, place{uint32(s.seq), uint32(within(at, pos)), uint32(len(v))})
	}
	if len(rest) > 0 {
		return nil, 0, fmt.Errorf("%d bytes follow its entries", len(rest))
	}
	return places, index, nil
}

// finish looks at the whole of what was read.
func (r *replay) finish(seq uint64) error {
	if r.last == kindEnd {
		return fmt.Errorf("it ends with block %d, and segment %d is missing", r.number, seq+1)
	}
	if n := uint64(len(r.places)); r.state.last != 0 && r.state.last-r.first+1 != n {
		return fmt.Errorf("entries %d to %d are missing", r.first, r.state.last-n)
	}
	return nil
}

// decodeAt reads the entry at p of a segment.
func (s *segment) decodeAt(p place, index uint64, l *raft.Log) error {
	piece := make([]byte, span(int64(p.at), int64(p.size)))
	_, err := s.file.ReadAt(piece, int64(p.at))
	if errors.Is(err, io.EOF) {
		return &DamageError{s.path, fmt.Errorf("it ends before entry %d", index)}
	}
	if err != nil {
		return err
	}
	if err := decodeEntry(index, appendContent(piece[:0], piece, int64(p.at)), l); err != nil {
		return &DamageError{s.path, err}
	}
	return nil
}
