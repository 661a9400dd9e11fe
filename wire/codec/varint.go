package codec

import "encoding/binary"

// Longest encodings of 32 and 64 bits, seven to a byte.
const (
	maxVarintLen32 = 5
	maxVarintLen64 = 10
)

// Uvarint codes an unsigned integer seven bits a byte, the least significant first.
func (c *Coder) Uvarint(v *uint32) {
	if !c.reading {
		c.buf = binary.AppendUvarint(c.buf, uint64(*v))
		return
	}
	if x, ok := c.uvarint(maxVarintLen32, 1<<32-1); ok {
		*v = uint32(x)
	}
}

// Uvarlong codes an unsigned 64-bit integer seven bits a byte.
func (c *Coder) Uvarlong(v *uint64) {
	if !c.reading {
		c.buf = binary.AppendUvarint(c.buf, *v)
		return
	}
	if x, ok := c.uvarint(maxVarintLen64, 1<<64-1); ok {
		*v = x
	}
}

// Varint codes a signed integer in zigzag form, so that small negative numbers
// are short too.
func (c *Coder) Varint(v *int32) {
	u := uint32(*v)<<1 ^ uint32(*v>>31)
	c.Uvarint(&u)
	if c.reading { // what is written may be shared
		*v = int32(u>>1) ^ -int32(u&1)
	}
}

// Varlong codes a signed 64-bit integer in zigzag form.
func (c *Coder) Varlong(v *int64) {
	u := uint64(*v)<<1 ^ uint64(*v>>63)
	c.Uvarlong(&u)
	if c.reading {
		*v = int64(u>>1) ^ -int64(u&1)
	}
}

// uvarint reads a varint of at most n bytes and at most the value most.
func (c *Coder) uvarint(n int, most uint64) (uint64, bool) {
	if c.off < c.limit && c.buf[c.off] < 0x80 { // nearly all lengths and counts
		c.off++
		return uint64(c.buf[c.off-1]), true
	}
	return c.longUvarint(n, most)
}

// longUvarint is uvarint for one that is longer than a byte, or is not there.
func (c *Coder) longUvarint(n int, most uint64) (uint64, bool) {
	p := c.buf[c.off:c.limit]
	cut := len(p) > n
	if cut {
		p = p[:n]
	}
	x, size := binary.Uvarint(p)
	switch {
	case size == 0 && !cut && len(p) < n:
		c.fail(ErrShort)
		return 0, false
	case size <= 0 || x > most:
		c.fail(ErrVarint)
		return 0, false
	}
	c.off += size
	return x, true
}
