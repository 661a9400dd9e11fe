package feed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

const (
	// HeadSize is the size of a frame's head: the kind and the length of the body.
	HeadSize = 5
	// MaxItems bounds the items of one Progress or Mark.
	MaxItems = 1024
	// MaxPayloadBytes bounds the records after one Feed.
	MaxPayloadBytes = 1 << 30

	progressItemSize = 32
	markItemSize     = 24
	maxBodyBytes     = MaxItems * progressItemSize
)

// ErrShort says that the bytes end before the frame does.
var ErrShort = errors.New("feed: frame is incomplete")

// ErrMalformed is wrapped by every other error of decoding.
var ErrMalformed = errors.New("feed: malformed frame")

// AppendFrame appends the encoded frame. The payload of a Feed is not part of
// it: the caller sends it right behind.
func AppendFrame(dst []byte, f Frame) []byte {
	head := len(dst)
	dst = append(dst, byte(f.Kind()), 0, 0, 0, 0)
	switch f := f.(type) {
	case Follow:
		dst = appendFollow(dst, f)
	case Feed:
		dst = appendRef(dst, f.Ref)
		dst = appendOffsets(dst, f.HW, f.LogStart)
		dst = binary.BigEndian.AppendUint32(dst, uint32(f.Size))
	case Progress:
		for _, i := range f.Items {
			dst = appendRef(dst, i.Ref)
			dst = appendOffsets(dst, i.Written, i.Flushed, i.LogStart)
		}
	case Mark:
		for _, i := range f.Items {
			dst = appendRef(dst, i.Ref)
			dst = appendOffsets(dst, i.HW, i.LogStart)
		}
	case Diverged:
		dst = appendRef(dst, f.Ref)
		dst = binary.BigEndian.AppendUint32(dst, uint32(f.Epoch))
		dst = appendOffsets(dst, f.End)
	case Refused:
		dst = append(appendRef(dst, f.Ref), byte(f.Code))
		dst = appendOffsets(dst, f.LogStart, f.End)
	case Bad:
		dst = appendOffsets(appendRef(dst, f.Ref), f.Offset)
	case Unfollow:
		dst = appendRef(dst, f.Ref)
	case Ping:
		dst = binary.BigEndian.AppendUint64(dst, f.Number)
	case Pong:
		dst = binary.BigEndian.AppendUint64(dst, f.Number)
	default:
		panic(fmt.Sprintf("BUG: encoding an unknown frame %T", f))
	}
	binary.BigEndian.PutUint32(dst[head+1:], uint32(len(dst)-head-HeadSize))
	return dst
}

func appendFollow(dst []byte, f Follow) []byte {
	dst = appendRef(dst, f.Ref)
	dst = append(dst, f.TP.Topic[:]...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(f.TP.Partition))
	dst = binary.BigEndian.AppendUint32(dst, uint32(f.LeaderEpoch))
	dst = appendOffsets(dst, f.Written, f.Flushed, f.LogStart)
	return binary.BigEndian.AppendUint32(dst, uint32(f.LastEpoch))
}

func appendRef(dst []byte, r Ref) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.Handle))
	return binary.BigEndian.AppendUint32(dst, uint32(r.Attempt))
}

func appendOffsets(dst []byte, os ...batch.Offset) []byte {
	for _, o := range os {
		dst = binary.BigEndian.AppendUint64(dst, uint64(o))
	}
	return dst
}

// ReadFrame reads one frame, without the payload of a Feed. Scratch is reused
// between calls. A clean end between two frames is io.EOF.
func ReadFrame(r io.Reader, scratch *[]byte) (Frame, error) {
	buf := grow(*scratch, HeadSize)
	*scratch = buf
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, err
	}
	size, err := bodySize(buf)
	if err != nil {
		return nil, err
	}
	buf = grow(buf, HeadSize+size)
	*scratch = buf
	if _, err := io.ReadFull(r, buf[HeadSize:]); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("read the body of a feed frame: %w", err)
	}
	return decodeBody(Kind(buf[0]), buf[HeadSize:])
}

func grow(p []byte, n int) []byte {
	if cap(p) >= n {
		return p[:n]
	}
	q := make([]byte, n, max(n, 256))
	copy(q, p)
	return q
}

// DecodeFrame splits the first frame off p; ErrShort when p ends before it does.
func DecodeFrame(p []byte) (f Frame, rest []byte, err error) {
	if len(p) < HeadSize {
		return nil, p, ErrShort
	}
	size, err := bodySize(p)
	if err != nil {
		return nil, p, err
	}
	if len(p)-HeadSize < size {
		return nil, p, ErrShort
	}
	f, err = decodeBody(Kind(p[0]), p[HeadSize:HeadSize+size])
	return f, p[HeadSize+size:], err
}

// bodySize reads a head and checks the length that it gives against its kind.
func bodySize(head []byte) (int, error) {
	kind := Kind(head[0])
	n := binary.BigEndian.Uint32(head[1:])
	ok := false
	switch kind {
	case KindFollow:
		ok = n == 8+16+4+4+24+4
	case KindFeed:
		ok = n == 8+16+4
	case KindProgress:
		ok = n > 0 && n <= maxBodyBytes && n%progressItemSize == 0
	case KindMark:
		ok = n > 0 && n <= MaxItems*markItemSize && n%markItemSize == 0
	case KindDiverged:
		ok = n == 8+4+8
	case KindRefused:
		ok = n == 8+1+16
	case KindBad:
		ok = n == 8+8
	case KindUnfollow, KindPing, KindPong:
		ok = n == 8
	}
	if !ok {
		return 0, fmt.Errorf("%w: kind %d with a body of %d bytes", ErrMalformed, kind, n)
	}
	return int(n), nil
}

// fields takes fixed-size fields off a body whose length bodySize has checked.
type fields []byte

func (p *fields) u32() uint32 {
	v := binary.BigEndian.Uint32(*p)
	*p = (*p)[4:]
	return v
}

func (p *fields) offset() batch.Offset {
	v := binary.BigEndian.Uint64(*p)
	*p = (*p)[8:]
	return batch.Offset(v)
}

func (p *fields) ref() Ref {
	return Ref{Handle: Handle(p.u32()), Attempt: Attempt(p.u32())}
}

func decodeBody(kind Kind, body []byte) (Frame, error) {
	p := fields(body)
	switch kind {
	case KindFollow:
		return decodeFollow(p)
	case KindFeed:
		f := Feed{Ref: p.ref(), HW: p.offset(), LogStart: p.offset()}
		size := p.u32()
		if size == 0 || size > MaxPayloadBytes {
			return nil, fmt.Errorf("%w: %d bytes of records", ErrMalformed, size)
		}
		f.Size = int(size)
		return f, checkWatermarks(f.HW, f.LogStart)
	case KindProgress:
		return decodeProgress(p)
	case KindMark:
		return decodeMark(p)
	case KindDiverged:
		f := Diverged{Ref: p.ref(), Epoch: batch.Epoch(p.u32()), End: p.offset()}
		return f, checkEnds(f.Epoch, f.End)
	case KindRefused:
		return decodeRefused(p)
	case KindBad:
		f := Bad{Ref: p.ref(), Offset: p.offset()}
		return f, checkEnds(0, f.Offset)
	case KindUnfollow:
		return Unfollow{Ref: p.ref()}, nil
	case KindPing:
		return Ping{Number: uint64(p.offset())}, nil
	default:
		return Pong{Number: uint64(p.offset())}, nil
	}
}

func decodeFollow(p fields) (Frame, error) {
	f := Follow{Ref: p.ref()}
	f.TP.Topic = fsm.TopicID(p[:16])
	p = p[16:]
	f.TP.Partition = int32(p.u32())
	f.LeaderEpoch = batch.Epoch(p.u32())
	f.Written, f.Flushed, f.LogStart = p.offset(), p.offset(), p.offset()
	f.LastEpoch = batch.Epoch(p.u32())
	if f.TP.Partition < 0 || f.LeaderEpoch < 0 || f.LastEpoch < batch.NoEpoch {
		return nil, fmt.Errorf("%w: follow %+v", ErrMalformed, f)
	}
	return f, checkLog(f.Written, f.Flushed, f.LogStart)
}

func decodeProgress(p fields) (Frame, error) {
	f := Progress{Items: make([]ProgressItem, 0, len(p)/progressItemSize)}
	for len(p) > 0 {
		i := ProgressItem{Ref: p.ref(), Written: p.offset(), Flushed: p.offset(), LogStart: p.offset()}
		if err := checkLog(i.Written, i.Flushed, i.LogStart); err != nil {
			return nil, err
		}
		f.Items = append(f.Items, i)
	}
	return f, nil
}

func decodeMark(p fields) (Frame, error) {
	f := Mark{Items: make([]MarkItem, 0, len(p)/markItemSize)}
	for len(p) > 0 {
		i := MarkItem{Ref: p.ref(), HW: p.offset(), LogStart: p.offset()}
		if err := checkWatermarks(i.HW, i.LogStart); err != nil {
			return nil, err
		}
		f.Items = append(f.Items, i)
	}
	return f, nil
}

func decodeRefused(p fields) (Frame, error) {
	f := Refused{Ref: p.ref(), Code: Code(p[0])}
	p = p[1:]
	f.LogStart, f.End = p.offset(), p.offset()
	if f.Code == CodeNone || f.Code > CodeStorage || f.LogStart < 0 || f.End < f.LogStart {
		return nil, fmt.Errorf("%w: refused %+v", ErrMalformed, f)
	}
	return f, nil
}

// checkLog checks the order of the offsets of a follower's log. Flushed may lie
// below the log start after a reset that has not reached the disk.
func checkLog(written, flushed, logStart batch.Offset) error {
	if flushed < 0 || flushed > written || logStart < 0 || logStart > written {
		return fmt.Errorf("%w: log from %d to %d, on disk to %d", ErrMalformed, logStart, written, flushed)
	}
	return nil
}

func checkWatermarks(hw, logStart batch.Offset) error {
	if logStart < 0 || hw < logStart {
		return fmt.Errorf("%w: high watermark %d, log start %d", ErrMalformed, hw, logStart)
	}
	return nil
}

func checkEnds(e batch.Epoch, end batch.Offset) error {
	if e < batch.NoEpoch || end < 0 {
		return fmt.Errorf("%w: end %d of epoch %d", ErrMalformed, end, e)
	}
	return nil
}
