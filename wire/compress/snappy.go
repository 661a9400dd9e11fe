package compress

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/s2"
)

const (
	// xerialMagic begins the framing of the Java library.
	xerialMagic = "\x82SNAPPY\x00"
	// xerialHeader is that magic and two versions of four bytes.
	xerialHeader = len(xerialMagic) + 8
	// snappyRatio is the most that a block can shrink: a copy of 64 bytes takes three.
	snappyRatio = 22
)

var errXerial = errors.New("a block of the framing is cut short")

func unsnap(dst, src []byte, limit int) ([]byte, error) {
	if len(src) < xerialHeader || string(src[:len(xerialMagic)]) != xerialMagic {
		return unsnapBlock(dst, src, limit)
	}
	src = src[xerialHeader:]
	end := len(dst) + limit
	for len(src) > 0 {
		if len(src) < 4 {
			return nil, errXerial
		}
		size := int64(binary.BigEndian.Uint32(src))
		if src = src[4:]; size > int64(len(src)) {
			return nil, errXerial
		}
		var err error
		if dst, err = unsnapBlock(dst, src[:size], end-len(dst)); err != nil {
			return nil, err
		}
		src = src[size:]
	}
	return dst, nil
}

// unsnapBlock appends one raw block. Its declared size is checked before it is allocated.
func unsnapBlock(dst, src []byte, limit int) ([]byte, error) {
	size, err := s2.DecodedLen(src)
	if err != nil {
		return nil, err
	}
	if size > snappyRatio*len(src) {
		return nil, fmt.Errorf("a block of %d bytes cannot hold %d", len(src), size)
	}
	if size > limit {
		return nil, ErrTooLarge
	}
	at := len(dst)
	if cap(dst)-at < size {
		dst = room(dst, max(size, min(at, limit))) // doubles, so that many blocks are not copied each time
	}
	if _, err := s2.Decode(dst[at:at+size:at+size], src); err != nil {
		return nil, err
	}
	return dst[:at+size], nil
}

func snapped(dst, src []byte) []byte {
	at := len(dst)
	dst = room(dst, s2.MaxEncodedLen(len(src)))
	return dst[:at+len(s2.EncodeSnappy(dst[at:cap(dst)], src))]
}
