package codec

import (
	"encoding/binary"
	"fmt"
	"math"
)

const (
	null   = -1 // the length of a null string, byte field or array
	failed = -2 // what the readers of lengths give beside an error; no bytes can be taken by it
)

// String codes a string that may not be null.
func (c *Coder) String(v *string) {
	if !c.reading {
		c.writeStringLength(len(*v))
		c.buf = append(c.buf, *v...)
		return
	}
	n := c.readStringLength()
	if n == null {
		c.fail(ErrNull)
		return
	}
	c.readString(v, n)
}

// NullableString codes a string that may be null, which is nil.
func (c *Coder) NullableString(v **string) {
	if !c.reading {
		if *v == nil {
			c.writeStringLength(null)
			return
		}
		c.writeStringLength(len(**v))
		c.buf = append(c.buf, **v...)
		return
	}
	n := c.readStringLength()
	if n == null {
		if c.err == nil {
			*v = nil
		}
		return
	}
	if c.charge(16) {
		s := new(string)
		c.readString(s, n)
		if c.err == nil {
			*v = s
		}
	}
}

// PresentString codes a string that may not be null into a variable that other
// versions of the message may leave nil.
func (c *Coder) PresentString(v **string) {
	switch {
	case !c.reading && *v == nil:
		c.fail(ErrNull)
	case !c.reading:
		c.String(*v)
	case c.charge(16):
		s := new(string)
		c.String(s)
		if c.err == nil {
			*v = s
		}
	}
}

func (c *Coder) readString(v *string, n int) {
	p, ok := c.take(n)
	if ok && c.chargeString(n) {
		*v = string(p)
	}
}

// Bytes32 codes bytes that may not be null. What is read aliases the input.
func (c *Coder) Bytes32(v *[]byte) {
	if !c.reading {
		c.writeLength(len(*v), math.MaxInt32)
		c.buf = append(c.buf, *v...)
		return
	}
	n := c.readLength()
	if n == null {
		c.fail(ErrNull)
		return
	}
	if p, ok := c.take(n); ok {
		*v = p
	}
}

// NullableBytes32 codes bytes that may be null, which is nil. What is read
// aliases the input.
func (c *Coder) NullableBytes32(v *[]byte) {
	if !c.reading && *v == nil {
		c.writeLength(null, 0)
		return
	}
	if !c.reading {
		c.Bytes32(v)
		return
	}
	n := c.readLength()
	if n == null {
		if c.err == nil {
			*v = nil
		}
		return
	}
	if p, ok := c.take(n); ok {
		*v = p
	}
}

// Gap writes the length of a byte field of n bytes but not the bytes: a Hole
// stands for them. It may not be used inside a tagged field.
func (c *Coder) Gap(n int) {
	if c.reading {
		panic("BUG: codec: Gap on a reading Coder")
	}
	if n < 0 {
		panic(fmt.Sprintf("BUG: codec: a gap of %d bytes", n))
	}
	c.writeLength(n, math.MaxInt32)
	if n > 0 && c.err == nil {
		c.holes = append(c.holes, Hole{At: len(c.buf), Size: n})
	}
}

// Raw codes len(v) bytes as they are, without a length.
func (c *Coder) Raw(v []byte) {
	if !c.reading {
		c.buf = append(c.buf, v...)
		return
	}
	if p, ok := c.take(len(v)); ok {
		copy(v, p)
	}
}

// Rest codes all bytes to the end, without a length. What is read aliases the input.
func (c *Coder) Rest(v *[]byte) {
	if !c.reading {
		c.buf = append(c.buf, *v...)
		return
	}
	if p, ok := c.take(c.Remaining()); ok && c.err == nil {
		*v = p
	}
}

// readStringLength gives the length of a string, or null.
func (c *Coder) readStringLength() int {
	if c.flexible {
		n := c.readLength()
		if n > maxString {
			c.fail(ErrLength)
			return failed
		}
		return n
	}
	p, ok := c.take(2)
	if !ok {
		return failed
	}
	n := int(int16(binary.BigEndian.Uint16(p)))
	if n < null {
		c.fail(ErrLength)
		return failed
	}
	return n
}

func (c *Coder) writeStringLength(n int) {
	if n > maxString {
		c.fail(ErrLength)
		return
	}
	if c.flexible {
		c.writeLength(n, maxString)
		return
	}
	c.buf = binary.BigEndian.AppendUint16(c.buf, uint16(n))
}

// readLength gives the length of bytes or an array, or null. It is not checked
// against what remains.
func (c *Coder) readLength() int {
	if c.flexible {
		x, ok := c.uvarint(maxVarintLen32, 1<<32-1)
		if !ok {
			return failed
		}
		if x > math.MaxInt32 {
			c.fail(ErrLength)
			return failed
		}
		return int(x) - 1
	}
	p, ok := c.take(4)
	if !ok {
		return failed
	}
	n := int(int32(binary.BigEndian.Uint32(p)))
	if n < null {
		c.fail(ErrLength)
		return failed
	}
	return n
}

func (c *Coder) writeLength(n, most int) {
	if n > most {
		c.fail(ErrLength)
		return
	}
	if c.flexible {
		c.buf = binary.AppendUvarint(c.buf, uint64(n+1))
		return
	}
	c.buf = binary.BigEndian.AppendUint32(c.buf, uint32(n))
}
