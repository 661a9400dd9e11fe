// Package compress turns a batch's record section into its compressed form and
// back, for the four codecs of the protocol: gzip, snappy, lz4 and zstd.
//
// # What it promises
//
// Inflate is fed by strangers. It never panics, and it never holds more than the
// caller's limit of output plus a fixed working set of the codec (at most two
// lz4 blocks of 4 MiB), whatever sizes and windows the input declares: a size is
// checked against the limit, and against what its input could possibly hold,
// before it is allocated. Time is bounded by the input's length and the limit.
//
// # Formats
//
//   - gzip: one or more members.
//   - snappy: one raw block, or the framing of the Java library ("xerial": a magic
//     of 8 bytes, two versions, then blocks with a 4-byte length). Deflate writes
//     the raw form, which every client reads.
//   - lz4: one or more frames, the first with the magic of the current version.
//   - zstd: one or more frames, windows up to 128 MiB, which is what the reference
//     implementation takes.
//
// # State
//
// Coders are expensive to make and are kept in pools; a coder is used by one call
// at a time and is returned empty. No goroutine outlives a call. The package
// imports none of ours.
package compress
