package wire

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/weirmq/weir/wire/codec"
)

const (
	// FramePrefix is the number of bytes in front of a frame that hold its length.
	FramePrefix = 4
	// minRequest is the fixed part of the request header: key, version, correlation id.
	minRequest = 8
)

// Hole is a gap in an encoded response that the sender fills: Size bytes belong
// at index At.
type Hole = codec.Hole

// FrameError says that the length in front of a frame is impossible or too large.
type FrameError struct {
	Size int32
	Max  int
}

func (e *FrameError) Error() string {
	if e.Size < minRequest {
		return fmt.Sprintf("a frame of %d bytes is no request", e.Size)
	}
	return fmt.Sprintf("a frame of %d bytes exceeds the limit of %d", e.Size, e.Max)
}

// FrameSize gives the length of the request frame whose first four bytes are
// prefix. A length below the least header or above most is a *FrameError.
func FrameSize(prefix [FramePrefix]byte, most int) (int, error) {
	n := int32(binary.BigEndian.Uint32(prefix[:]))
	if n < minRequest || int64(n) > int64(most) {
		return 0, &FrameError{Size: n, Max: most}
	}
	return int(n), nil
}

// RequestHeader is what precedes the body of a request.
type RequestHeader struct {
	Key           Key
	Version       int16
	CorrelationID int32
	ClientID      *string
}

// ResponseHead is what an encoder must know of the request that a response answers.
type ResponseHead struct {
	Key           Key
	Version       int16
	CorrelationID int32
}

// Head is the head of the response to the request.
func (h RequestHeader) Head() ResponseHead {
	return ResponseHead{Key: h.Key, Version: h.Version, CorrelationID: h.CorrelationID}
}

// UnsupportedError says that a request's key is unknown or its version not
// supported. Of such a request only the fields here have been read.
type UnsupportedError struct {
	Key           Key
	Version       int16
	CorrelationID int32
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s version %d is not supported", e.Key, e.Version)
}

// MalformedError says that a frame is not what its header says, or not a frame at
// all. It wraps a *codec.Error.
type MalformedError struct {
	Key     Key
	Version int16
	Err     error
}

func (e *MalformedError) Error() string {
	return fmt.Sprintf("%s version %d: %v", e.Key, e.Version, e.Err)
}

// Unwrap gives the cause.
func (e *MalformedError) Unwrap() error { return e.Err }

// DecodeRequest reads a request from a frame without its length prefix. Byte
// fields of the request alias frame. Decoding allocates no more than budget,
// for which codec.Budget(len(frame)) is the usual choice, and little beside it.
//
// The error is an *UnsupportedError, with a header that holds the same, or a
// *MalformedError.
func DecodeRequest(frame []byte, budget int) (RequestHeader, Request, error) {
	var h RequestHeader
	c := codec.NewReader(frame, budget)
	h.codeFixed(c)
	if err := c.Err(); err != nil {
		return h, nil, &MalformedError{Key: h.Key, Version: h.Version, Err: err}
	}
	a, ok := Lookup(h.Key)
	if !ok || !a.Supports(h.Version) {
		return h, nil, &UnsupportedError{Key: h.Key, Version: h.Version, CorrelationID: h.CorrelationID}
	}
	h.codeRest(c, a.requestHeader(h.Version))
	req := a.NewRequest()
	req.code(c.SetVersion(h.Version).Flexible(a.Flexible(h.Version)))
	if err := c.Err(); err != nil {
		return h, nil, &MalformedError{Key: h.Key, Version: h.Version, Err: err}
	}
	return h, req, nil
}

// codeFixed codes the part that all header versions have.
func (h *RequestHeader) codeFixed(c *codec.Coder) {
	codeKey(c, &h.Key)
	c.Int16(&h.Version)
	c.Int32(&h.CorrelationID)
}

// codeRest codes what header version v has beside. The client id keeps its old
// form even in the flexible version 2.
func (h *RequestHeader) codeRest(c *codec.Coder, v int16) {
	if v >= 1 {
		c.Flexible(false).NullableString(&h.ClientID)
	}
	if v >= 2 {
		c.Flexible(true).Tags()
	}
}

// EncodeResponse appends a whole response frame to dst: length, header, body. The
// length counts the bytes that belong in the holes, whose indexes are into the
// bytes returned. Only Fetch responses have holes.
func EncodeResponse(dst []byte, h ResponseHead, r Response) ([]byte, []Hole, error) {
	a, ok := Lookup(h.Key)
	if !ok || !a.Supports(h.Version) || r.Key() != h.Key {
		return dst, nil, fmt.Errorf("encode response: %w", &UnsupportedError{Key: h.Key, Version: h.Version, CorrelationID: h.CorrelationID})
	}
	start := len(dst)
	c := codec.NewWriter(append(dst, 0, 0, 0, 0)).SetVersion(h.Version)
	c.Int32(&h.CorrelationID)
	if a.responseHeader(h.Version) >= 1 {
		c.Flexible(true).Tags()
	}
	r.code(c.Flexible(a.Flexible(h.Version)))
	out, err := finish(c, start)
	if err != nil {
		return dst, nil, fmt.Errorf("encode %s response, version %d: %w", h.Key, h.Version, err)
	}
	return out, c.Holes(), nil
}

// finish puts the length of the frame that starts at start into its first bytes.
func finish(c *codec.Coder, start int) ([]byte, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	out := c.Bytes()
	size := len(out) - start - FramePrefix
	for _, hole := range c.Holes() {
		size += hole.Size
	}
	if size > math.MaxInt32 {
		return nil, &FrameError{Size: math.MaxInt32, Max: math.MaxInt32}
	}
	binary.BigEndian.PutUint32(out[start:], uint32(size))
	return out, nil
}

// EncodeRequest appends a whole request frame to dst: length, header, body.
func EncodeRequest(dst []byte, h RequestHeader, r Request) ([]byte, error) {
	a, ok := Lookup(h.Key)
	if !ok || !a.Supports(h.Version) || r.Key() != h.Key {
		return dst, fmt.Errorf("encode request: %w", &UnsupportedError{Key: h.Key, Version: h.Version, CorrelationID: h.CorrelationID})
	}
	start := len(dst)
	c := codec.NewWriter(append(dst, 0, 0, 0, 0)).SetVersion(h.Version)
	h.codeFixed(c)
	h.codeRest(c, a.requestHeader(h.Version))
	r.code(c.Flexible(a.Flexible(h.Version)))
	out, err := finish(c, start)
	if err != nil {
		return dst, fmt.Errorf("encode %s request, version %d: %w", h.Key, h.Version, err)
	}
	return out, nil
}

// DecodeResponse reads a response from a frame without its length prefix; the
// caller knows the key and version that it asked with. Byte fields alias frame.
// Bytes after the last field are an error.
func DecodeResponse(frame []byte, key Key, version int16, budget int) (ResponseHead, Response, error) {
	h := ResponseHead{Key: key, Version: version}
	a, ok := Lookup(key)
	if !ok || !a.Supports(version) {
		return h, nil, &UnsupportedError{Key: key, Version: version}
	}
	c := codec.NewReader(frame, budget).SetVersion(version)
	c.Int32(&h.CorrelationID)
	if a.responseHeader(version) >= 1 {
		c.Flexible(true).Tags()
	}
	r := a.NewResponse()
	r.code(c.Flexible(a.Flexible(version)))
	if err := c.End(); err != nil {
		return h, nil, &MalformedError{Key: key, Version: version, Err: err}
	}
	return h, r, nil
}
