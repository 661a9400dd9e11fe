package storage

import (
	"sort"

	"github.com/weirmq/weir/wire/batch"
)

// view is the list of a log's segments, oldest first, at one moment. It is
// immutable; appends to its last segment show through that segment's tail, and
// every other change makes another view. Offsets below the log's start may still
// lie in its first segment.
type view struct {
	segs  []*segment
	empty batch.Offset // where a log without segments starts and ends
}

// end is the log end offset.
func (v *view) end() batch.Offset {
	if s := v.last(); s != nil {
		return s.end()
	}
	return v.empty
}

// last is the segment that is appended to, nil when there is none.
func (v *view) last() *segment {
	if len(v.segs) == 0 {
		return nil
	}
	return v.segs[len(v.segs)-1]
}

// find returns the index of the segment to look for an offset in: the last that
// begins at or before it and, where compaction left a hole, does not end before
// it. It returns len(segs) when there is none.
func (v *view) find(o batch.Offset) int {
	i := sort.Search(len(v.segs), func(i int) bool { return v.segs[i].base > o }) - 1
	if i < 0 {
		i = 0
	}
	for i < len(v.segs) && v.segs[i].end() <= o {
		i++
	}
	return i
}

// bytes is the size of all segments.
func (v *view) bytes() int64 {
	n := int64(0)
	for _, s := range v.segs {
		n += s.size()
	}
	return n
}

// holds tells whether the segment belongs to the view.
func (v *view) holds(s *segment) bool {
	for _, have := range v.segs {
		if have == s {
			return true
		}
	}
	return false
}
