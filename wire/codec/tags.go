package codec

import (
	"encoding/binary"
	"math/bits"
)

// TagSet is a set of tags 0–31.
type TagSet uint32

// With gives s and, if present, tag.
func (s TagSet) With(tag uint32, present bool) TagSet {
	if present && tag < 32 {
		s |= 1 << tag
	}
	return s
}

// Tags codes the tagged fields of a struct that has none of its own: it writes
// none and skips all. In versions that are not flexible it does nothing.
func (c *Coder) Tags() {
	if !c.flexible {
		return
	}
	if !c.reading {
		c.buf = append(c.buf, 0)
		return
	}
	if c.off < c.limit && c.buf[c.off] == 0 { // nearly always
		c.off++
		return
	}
	c.eachTag(func(uint32) bool { return false })
}

// Tagged codes the tagged fields of v. field codes the field of one tag, or
// tells that it knows none by it at this version, and then it is skipped.
// present is the set of tags to write; reading ignores it.
func Tagged[T any](c *Coder, v *T, present TagSet, field func(c *Coder, v *T, tag uint32) bool) {
	if !c.flexible {
		return
	}
	if !c.reading {
		writeTagged(c, v, present, field)
		return
	}
	if c.off < c.limit && c.buf[c.off] == 0 {
		c.off++
		return
	}
	c.eachTag(func(tag uint32) bool { return field(c, v, tag) })
}

func writeTagged[T any](c *Coder, v *T, present TagSet, field func(c *Coder, v *T, tag uint32) bool) {
	c.buf = append(c.buf, byte(bits.OnesCount32(uint32(present))))
	for rest := uint32(present); rest != 0; rest &= rest - 1 {
		tag := uint32(bits.TrailingZeros32(rest))
		c.buf = append(c.buf, byte(tag))
		at := len(c.buf)
		if !field(c, v, tag) {
			panic("BUG: codec: a tag is present that its message does not know")
		}
		c.insertSize(at)
	}
}

// insertSize writes the number of bytes from at to the end in front of them.
func (c *Coder) insertSize(at int) {
	n := len(c.buf) - at
	var size [maxVarintLen32]byte
	w := binary.PutUvarint(size[:], uint64(n))
	c.buf = append(c.buf, size[:w]...)
	copy(c.buf[at+w:], c.buf[at:at+n])
	copy(c.buf[at:], size[:w])
}

// eachTag reads a section of tagged fields. Their tags must rise; a known field
// must fill the size stated for it.
func (c *Coder) eachTag(field func(tag uint32) bool) {
	count, ok := c.uvarint(maxVarintLen32, 1<<32-1)
	if !ok {
		return
	}
	if count > maxTags {
		c.fail(ErrTags)
		return
	}
	next := uint64(0) // the least tag that may follow
	for range count {
		tag, _ := c.uvarint(maxVarintLen32, 1<<32-1)
		size, ok := c.uvarint(maxVarintLen32, 1<<32-1)
		if !ok {
			return
		}
		if tag < next {
			c.fail(ErrTags)
			return
		}
		next = tag + 1
		if size > uint64(c.Remaining()) {
			c.fail(ErrShort)
			return
		}
		if !c.taggedField(uint32(tag), int(size), field) {
			return
		}
	}
}

func (c *Coder) taggedField(tag uint32, size int, field func(tag uint32) bool) bool {
	limit := c.limit
	end := c.off + size
	c.limit = end
	if !field(tag) {
		c.off = end // unknown
	}
	if c.err == nil && c.off != end {
		c.fail(ErrTags)
	}
	if c.err != nil {
		return false
	}
	c.limit = limit
	return true
}
