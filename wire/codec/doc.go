// Package codec turns structs into Kafka's byte forms and back.
//
// # Responsibility
//
// A message lists its fields once, against a Coder that either reads or writes:
//
//	func (m *Member) code(c *codec.Coder) {
//		c.String(&m.ID)
//		c.Int32(&m.Generation)
//		codec.Array(c, &m.Topics, (*codec.Coder).String)
//		c.Tags()
//	}
//
// so its encoding and its decoding cannot drift apart. Kafka's messages (package
// wire) use it with their version and flexibility; our private formats (commands,
// feed frames, control calls) use it with Flexible(true).
//
// # Data flow
//
// NewReader(bytes, budget) and NewWriter(dst) make a Coder; the message's method
// runs; Err tells whether it went well, and Bytes gives what was written. Byte
// fields that were read alias the input, so the input must stay unchanged for as
// long as they are used. Strings are copies.
//
// # Invariants
//
//   - No input makes a Coder panic, loop, or allocate more than its budget: a
//     count is believed only as far as the remaining bytes could hold it, and all
//     that decoding allocates is taken from the budget before it is allocated.
//     Budget gives the usual one: four times the input and 60 KiB, which with what
//     a caller allocates beside it stays under four times the input and 64 KiB.
//   - The first error sticks. After it a reading Coder finds no more bytes and
//     changes nothing, so that a message checks Err once, at its end.
//   - Arrays hold at most 1,000,000 elements, a section of tagged fields at most
//     10,000 fields, a string at most 32,767 bytes, a varint at most 5 bytes (10
//     for 64 bits), as in Kafka's own readers. Of an array at most 128 elements are
//     allocated before that many have been read.
//   - A null where none may be is an error in both directions.
//
// # Goroutines and locks
//
// None. A Coder belongs to one goroutine.
//
// # Imports
//
// Nothing of ours; the package is pure.
package codec
