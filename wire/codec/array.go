package codec

// elementBytes is what Array and NullableArray charge for each element: enough
// for elements of up to 64 bytes. Larger ones, and messages whose budget is
// tight, name their size with ArrayOf.
const elementBytes = 64

// Array codes an array that may not be null; elem codes one element. What is
// read is never nil. Each element is charged as 64 bytes.
func Array[T any](c *Coder, v *[]T, elem func(*Coder, *T)) { ArrayOf(c, v, elementBytes, elem) }

// NullableArray codes an array that may be null, which is nil. Each element is
// charged as 64 bytes.
func NullableArray[T any](c *Coder, v *[]T, elem func(*Coder, *T)) {
	NullableArrayOf(c, v, elementBytes, elem)
}

// ArrayOf codes an array that may not be null. size is the size of T in memory,
// which is what the budget is charged for each element.
func ArrayOf[T any](c *Coder, v *[]T, size int, elem func(*Coder, *T)) {
	if !c.reading {
		c.writeCount(len(*v))
		writeElements(c, *v, elem)
		return
	}
	n := c.readCount()
	if n == null {
		c.fail(ErrNull)
		return
	}
	readElements(c, v, n, size, elem)
}

// NullableArrayOf codes an array that may be null, which is nil. size is as in ArrayOf.
func NullableArrayOf[T any](c *Coder, v *[]T, size int, elem func(*Coder, *T)) {
	if !c.reading && *v == nil {
		c.writeLength(null, 0)
		return
	}
	if !c.reading {
		c.writeCount(len(*v))
		writeElements(c, *v, elem)
		return
	}
	n := c.readCount()
	if n != null {
		readElements(c, v, n, size, elem)
	} else if c.err == nil {
		*v = nil
	}
}

// Int32s codes an array of int32 that may not be null.
func (c *Coder) Int32s(v *[]int32) { ArrayOf(c, v, 4, (*Coder).Int32) }

// NullableInt32s codes an array of int32 that may be null, which is nil.
func (c *Coder) NullableInt32s(v *[]int32) { NullableArrayOf(c, v, 4, (*Coder).Int32) }

// Int64s codes an array of int64 that may not be null.
func (c *Coder) Int64s(v *[]int64) { ArrayOf(c, v, 8, (*Coder).Int64) }

// Strings codes an array of strings that may not be null.
func (c *Coder) Strings(v *[]string) { ArrayOf(c, v, 16, (*Coder).String) }

// UUIDs codes an array of UUIDs that may not be null.
func (c *Coder) UUIDs(v *[][16]byte) { ArrayOf(c, v, 16, (*Coder).UUID) }

// NullableStruct codes a struct that may be null, which is nil: a byte that is
// -1 for null and 1 otherwise, then the struct. size is the size of T in memory.
func NullableStruct[T any](c *Coder, v **T, size int, code func(*Coder, *T)) {
	present := int8(1)
	if *v == nil {
		present = null
	}
	c.Int8(&present)
	switch {
	case c.err != nil:
	case present < 0:
		*v = nil
	default:
		Struct(c, v, size, code)
	}
}

// Struct codes a struct that is present, as the field of a tag is, into a
// variable that is nil where the tag is absent. size is the size of T in memory.
func Struct[T any](c *Coder, v **T, size int, code func(*Coder, *T)) {
	switch {
	case !c.reading && *v == nil:
		c.fail(ErrNull)
	case !c.reading:
		code(c, *v)
	case c.charge(size):
		s := new(T)
		code(c, s)
		if c.err == nil {
			*v = s
		}
	}
}

func (c *Coder) writeCount(n int) { c.writeLength(n, maxArray) }

// readCount gives the number of elements, or null. No element takes less than a
// byte, so a count above what remains is a lie.
func (c *Coder) readCount() int {
	n := c.readLength()
	if n > maxArray {
		c.fail(ErrLength)
		return failed
	}
	if n > c.Remaining() {
		c.fail(ErrShort)
		return failed
	}
	return n
}

func writeElements[T any](c *Coder, v []T, elem func(*Coder, *T)) {
	for i := range v {
		if c.err != nil {
			return
		}
		elem(c, &v[i])
	}
}

// readElements reads n elements of size bytes. Only the first few are allocated
// on the word of the count; once they have been read, room is taken for all.
func readElements[T any](c *Coder, v *[]T, n, size int, elem func(*Coder, *T)) {
	first := min(n, preallocate)
	if c.err != nil || !c.charge(first*size) {
		return
	}
	out := make([]T, first)
	for i := range n {
		if i == len(out) {
			if !c.charge(n * size) {
				return
			}
			all := make([]T, n)
			copy(all, out)
			out = all
		}
		elem(c, &out[i])
		if c.err != nil {
			return
		}
	}
	*v = out
}
