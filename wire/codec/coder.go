package codec

import (
	"errors"
	"fmt"
)

// The limits of Kafka's own protocol readers.
const (
	maxArray  = 1_000_000
	maxTags   = 10_000
	maxString = 1<<15 - 1

	// preallocate is how many elements are allocated on the mere word of a count.
	// Kafka's readers say 1,000; what is allocated here is thrown away when the
	// array turns out longer, so it is less.
	preallocate = 128
)

// What may be wrong with a message. An Error wraps one of them.
var (
	// ErrShort: the input ends inside a field.
	ErrShort = errors.New("the input ends inside a field")
	// ErrLength: a length or count is negative or above what the protocol allows.
	ErrLength = errors.New("a length is out of range")
	// ErrNull: a field that must be present is null.
	ErrNull = errors.New("a field that may not be null is null")
	// ErrVarint: a variable-length integer does not end, or does not fit its type.
	ErrVarint = errors.New("a varint is too long")
	// ErrTags: tagged fields are out of order, repeated, or not of their stated size.
	ErrTags = errors.New("a section of tagged fields is malformed")
	// ErrBudget: decoding would allocate more than it was allowed to.
	ErrBudget = errors.New("the message would take more memory than allowed")
	// ErrTrailing: bytes are left after the last field.
	ErrTrailing = errors.New("bytes follow the last field")
)

// Error tells what was wrong with a message and where.
type Error struct {
	// Offset is the index in the input, or in the output when writing, of the
	// field at fault.
	Offset int
	// Err is one of the sentinels of this package.
	Err error
}

func (e *Error) Error() string { return fmt.Sprintf("%v (at byte %d)", e.Err, e.Offset) }

// Unwrap gives the sentinel.
func (e *Error) Unwrap() error { return e.Err }

// Hole is a gap in encoded bytes that its reader fills from elsewhere, as a
// Fetch response's record sections are sent from files.
type Hole struct {
	// At is the index in the encoded bytes before which the gap lies.
	At int
	// Size is the number of bytes missing there.
	Size int
}

// Coder reads or writes the fields of one message, in the order in which the
// message names them. The zero Coder is not usable.
type Coder struct {
	buf      []byte // reading: the input; writing: the output so far
	off      int    // reading: index of the next byte
	limit    int    // reading: end of the input or of the tagged field being read
	budget   int    // reading: bytes that may yet be allocated
	holes    []Hole // writing
	err      error
	version  int16
	reading  bool
	flexible bool
}

// NewReader gives a Coder that reads p and may allocate budget bytes for what it
// reads. Byte fields will alias p.
func NewReader(p []byte, budget int) *Coder {
	return &Coder{buf: p, limit: len(p), budget: budget, reading: true}
}

// NewWriter gives a Coder that appends to dst.
func NewWriter(dst []byte) *Coder { return &Coder{buf: dst} }

// Budget is the usual allocation budget for an input of n bytes. The 4 KiB that
// it leaves under the promised bound are for what is allocated beside the fields.
// Honest messages fit it unless they hold thousands of elements that are tiny on
// the wire, such as names of less than a dozen letters without anything beside.
func Budget(n int) int { return 4*n + 60<<10 }

// Flexible chooses the compact forms and tagged fields of Kafka's flexible
// versions (true) or the older forms, and gives c back.
func (c *Coder) Flexible(on bool) *Coder {
	c.flexible = on
	return c
}

// SetVersion notes the version of the message for Version, and gives c back.
func (c *Coder) SetVersion(v int16) *Coder {
	c.version = v
	return c
}

// Version is what SetVersion noted.
func (c *Coder) Version() int16 { return c.version }

// Reading tells whether c reads.
func (c *Coder) Reading() bool { return c.reading }

// IsFlexible tells whether c uses the compact forms.
func (c *Coder) IsFlexible() bool { return c.flexible }

// Err is the first error, an *Error, or nil.
func (c *Coder) Err() error { return c.err }

// Bytes is what has been written so far, after what dst held.
func (c *Coder) Bytes() []byte { return c.buf }

// Holes lists the gaps that Gap left in Bytes, in order.
func (c *Coder) Holes() []Hole { return c.holes }

// Remaining is the number of bytes not read yet.
func (c *Coder) Remaining() int { return c.limit - c.off }

// Offset is the index of the next byte to read or write.
func (c *Coder) Offset() int {
	if c.reading {
		return c.off
	}
	return len(c.buf)
}

// End reports ErrTrailing when bytes are left to read, and gives Err.
func (c *Coder) End() error {
	if c.reading && c.err == nil && c.off != c.limit {
		c.fail(ErrTrailing)
	}
	return c.err
}

// Fail makes err the outcome unless there is an error already. It is for
// messages that find a value to be impossible.
func (c *Coder) Fail(err error) { c.fail(err) }

func (c *Coder) fail(err error) {
	if c.err == nil {
		c.err = &Error{Offset: c.Offset(), Err: err}
	}
	c.limit = c.off // nothing is left to read
}

// take gives the next n bytes.
func (c *Coder) take(n int) ([]byte, bool) {
	if n < 0 || n > c.limit-c.off {
		c.fail(ErrShort)
		return nil, false
	}
	p := c.buf[c.off : c.off+n : c.off+n]
	c.off += n
	return p, true
}

// charge takes from the budget what an allocation of n bytes costs, and tells
// whether the budget allowed it. It must come before the allocation.
func (c *Coder) charge(n int) bool { return c.spend(allocated(n)) }

func (c *Coder) spend(n int) bool {
	if n > c.budget {
		c.fail(ErrBudget)
		return false
	}
	c.budget -= n
	return true
}

// chargeString is charge for the bytes of a string. The runtime packs such small
// objects into blocks of 16 bytes.
func (c *Coder) chargeString(n int) bool {
	if n > 8 {
		return c.charge(n)
	}
	return c.spend((n + 3) &^ 3)
}

// allocated is an upper bound of what the runtime takes for an allocation of n
// bytes: it rounds up to a size class (less than an eighth away above 256 bytes)
// or to whole pages, and heads larger objects with pointers by a word.
func allocated(n int) int {
	switch {
	case n <= 256:
		return (n + 15) &^ 15
	case n <= 32<<10:
		return n + n/8 + 8
	default:
		return n + 8<<10
	}
}
