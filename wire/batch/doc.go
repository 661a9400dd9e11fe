// Package batch is the record batch, version 2, as a view over its bytes: the
// one form in which records travel, are stored and are sent again. Nothing is
// decoded into structs and nothing is encoded again on the way from a producer
// to the disk to a consumer.
//
// # Layout
//
// A batch is a header of HeaderSize bytes and the record section. All numbers
// are big-endian.
//
//	at  size  field
//	 0     8  base offset              outside the CRC: Assign writes it
//	 8     4  length                   bytes that follow this field
//	12     4  partition leader epoch   outside the CRC: Assign writes it
//	16     1  magic                    always 2
//	17     4  CRC32C                   of everything from attributes on
//	21     2  attributes               bits 0-2 codec, 3 append time, 4 transactional, 5 control, 6 delete horizon
//	23     4  last offset delta
//	27     8  first timestamp          the delete horizon where that bit is set
//	35     8  max timestamp
//	43     8  producer id
//	51     2  producer epoch
//	53     4  first sequence
//	57     4  record count
//	61     -  records, compressed as one piece when a codec is named
//
// A record is a varint length and then: attributes (1 byte), timestamp delta
// (varlong), offset delta (varint), key, value (varint length, -1 for null) and
// a varint count of headers, each a key and a value of the same form.
//
// # Data flow
//
// A producer's bytes go through Validate, which is the only door: what it
// returns is a Batch that holds exactly the records its header claims. The log
// calls Assign and writes it. What comes from a disk or from another node goes
// through Next and CheckCRC instead. Records walks the record section, which the
// caller has uncompressed. Thin and what follows it take records out of a stored batch;
// one without any covers its offsets still (thin.go).
//
// # Invariants
//
//   - A Batch made by Next or Validate is as long as its length field says, has
//     magic 2, and base, last and end offsets that are not negative. The accessors
//     rely on that; on any other slice they may panic.
//   - No input makes Next, SizeOf, Validate or Records panic, run for longer than
//     its length allows, or allocate more than one error. What a codec inflates is
//     bounded by the caller.
//   - Views alias the bytes given. Whoever owns those bytes owns the views.
//
// The package is pure: no goroutine, lock, clock, file or socket, and it imports
// none of our packages. Time and decompression are arguments.
package batch
