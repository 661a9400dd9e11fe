// Package send moves a response to its socket: an encoded head whose holes are
// filled with bytes of log segments. On Linux, to a plain TCP connection, those
// bytes go from the page cache to the socket by sendfile and never enter this
// process; everywhere else (TLS, in-memory connections, files without a
// descriptor) they pass through one pooled buffer.
//
// # Data flow
//
// A head without holes is written as it is. Otherwise pieces of it, and ranges so
// small that a copy is cheaper, gather in the buffer. A larger range flushes it and
// is then sent from its file, without a buffer held meanwhile, at explicit offsets: many responses send from one open file at once, so its own position
// must never be used.
//
// # Invariants
//
//   - Response owns the ranges from the call on, and releases each exactly once,
//     whatever happens.
//   - A descriptor is held for one call of sendfile that does not wait for the
//     peer. When the socket is full the hold is given up before the wait.
//   - After an error an unknown part of the response has been written: the caller
//     must close the connection. A file that is shorter than its range is such an
//     error, since the head has promised the bytes.
//   - The write deadline moves on only while bytes do: a peer that takes nothing
//     for the stall time ends the response.
//
// # Goroutines and locks
//
// None. Response runs on the caller's goroutine; the connection's own write lock
// is held during sendfile, as in any write. The package imports storage alone.
package send
