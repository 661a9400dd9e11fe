// Package wire turns Kafka's protocol frames into Go structs and back.
//
// # Responsibility
//
// Frames, request and response headers, the table of APIs with their versions,
// one file for each API key, and Kafka's error codes. It holds no policy and
// opens no socket: which APIs a broker answers, and how, is the broker's matter.
//
// # Data flow
//
// A broker reads four bytes, asks FrameSize how much follows, and gives that to
// DecodeRequest. EncodeResponse appends a whole frame, its length included. Where
// a Fetch response holds records that are sent from files, the encoder leaves a
// Hole: the lengths in the frame already count the missing bytes, and the sender
// puts them in at the hole's place. DecodeResponse and EncodeRequest are the
// client's side of the same codecs, for tests and tools.
//
// Every message has one method that names its fields against a codec.Coder, which
// either reads or writes, with `if v >= n` where a version added a field. So the
// two directions cannot differ. Nested structs have a function codeX of the same
// kind. Fields have the names of Kafka's schema, with Go's ID for Id.
//
// # Adding an API
//
// One file, NN_name.go, with the key's constant, the structs and their code
// functions, and one row in api.go. The tests find the row by themselves and fail
// until the oracle, the golden files and the fuzz targets cover it.
//
// # Invariants
//
//   - No bytes make a decoder panic or allocate more than its budget (package codec).
//   - A field that a version lacks has its schema's default after decoding. For
//     responses built by hand, the New and Default functions give the defaults;
//     structs without one have only zero defaults.
//   - Byte fields alias the frame they were decoded from; strings do not.
//   - An unknown key or unsupported version is an *UnsupportedError, and of such a
//     request nothing past the fixed part of the header is parsed: an ApiVersions
//     request of any version can so be answered, in version 0.
//   - The response header of ApiVersions is version 0 in all its versions.
//   - The records of a Fetch response are never null on the wire.
//   - Bytes after the last field of a request are ignored, as Kafka does.
//
// # Goroutines and locks
//
// None. Messages are plain values.
//
// # Imports
//
// wire/codec and wire/batch (for Offset and Epoch). The package is pure.
package wire
