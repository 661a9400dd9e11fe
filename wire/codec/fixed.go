package codec

import (
	"encoding/binary"
	"math"
)

// Int8 codes one byte.
func (c *Coder) Int8(v *int8) {
	if !c.reading {
		c.buf = append(c.buf, byte(*v))
		return
	}
	if p, ok := c.take(1); ok {
		*v = int8(p[0])
	}
}

// Uint8 codes one byte.
func (c *Coder) Uint8(v *uint8) {
	if !c.reading {
		c.buf = append(c.buf, *v)
		return
	}
	if p, ok := c.take(1); ok {
		*v = p[0]
	}
}

// Bool codes one byte; any but zero is true, as in Kafka.
func (c *Coder) Bool(v *bool) {
	if !c.reading {
		var b byte
		if *v {
			b = 1
		}
		c.buf = append(c.buf, b)
		return
	}
	if p, ok := c.take(1); ok {
		*v = p[0] != 0
	}
}

// Int16 codes two bytes.
func (c *Coder) Int16(v *int16) {
	if !c.reading {
		c.buf = binary.BigEndian.AppendUint16(c.buf, uint16(*v))
		return
	}
	if p, ok := c.take(2); ok {
		*v = int16(binary.BigEndian.Uint16(p))
	}
}

// Uint16 codes two bytes.
func (c *Coder) Uint16(v *uint16) {
	if !c.reading {
		c.buf = binary.BigEndian.AppendUint16(c.buf, *v)
		return
	}
	if p, ok := c.take(2); ok {
		*v = binary.BigEndian.Uint16(p)
	}
}

// Int32 codes four bytes.
func (c *Coder) Int32(v *int32) {
	if !c.reading {
		c.buf = binary.BigEndian.AppendUint32(c.buf, uint32(*v))
		return
	}
	if p, ok := c.take(4); ok {
		*v = int32(binary.BigEndian.Uint32(p))
	}
}

// Uint32 codes four bytes.
func (c *Coder) Uint32(v *uint32) {
	if !c.reading {
		c.buf = binary.BigEndian.AppendUint32(c.buf, *v)
		return
	}
	if p, ok := c.take(4); ok {
		*v = binary.BigEndian.Uint32(p)
	}
}

// Int64 codes eight bytes.
func (c *Coder) Int64(v *int64) {
	if !c.reading {
		c.buf = binary.BigEndian.AppendUint64(c.buf, uint64(*v))
		return
	}
	if p, ok := c.take(8); ok {
		*v = int64(binary.BigEndian.Uint64(p))
	}
}

// Uint64 codes eight bytes.
func (c *Coder) Uint64(v *uint64) {
	if !c.reading {
		c.buf = binary.BigEndian.AppendUint64(c.buf, *v)
		return
	}
	if p, ok := c.take(8); ok {
		*v = binary.BigEndian.Uint64(p)
	}
}

// Float64 codes the eight bytes of an IEEE 754 number.
func (c *Coder) Float64(v *float64) {
	bits := math.Float64bits(*v)
	c.Uint64(&bits)
	if c.reading {
		*v = math.Float64frombits(bits)
	}
}

// UUID codes sixteen bytes as they are.
func (c *Coder) UUID(v *[16]byte) {
	if !c.reading {
		c.buf = append(c.buf, v[:]...)
		return
	}
	if p, ok := c.take(16); ok {
		copy(v[:], p)
	}
}
