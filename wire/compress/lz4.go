package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/pierrec/lz4/v4"
)

// lz4Magic begins a frame. The library also takes a legacy format and leading
// frames to skip, which no client of the protocol reads.
const lz4Magic = 0x184D2204

var errLZ4Magic = errors.New("no lz4 frame begins here")

type unlz4er struct {
	in bytes.Reader
	z  *lz4.Reader
}

var unlz4ers = sync.Pool{New: func() any { return &unlz4er{z: lz4.NewReader(nil)} }}

func unlz4(dst, src []byte, limit int) ([]byte, error) {
	if len(src) < 4 || binary.LittleEndian.Uint32(src) != lz4Magic {
		return nil, errLZ4Magic
	}
	u := unlz4ers.Get().(*unlz4er)
	defer func() {
		u.in.Reset(nil)
		u.z.Reset(nil)
		unlz4ers.Put(u)
	}()
	u.in.Reset(src)
	u.z.Reset(&u.in)
	return drain(dst, u.z, guessRatio*len(src), limit)
}

// lz4ers holds writers of the default level.
var lz4ers = sync.Pool{New: func() any { return lz4.NewWriter(nil) }}

func lz4ed(dst, src []byte, level int) ([]byte, error) {
	if level < 0 || level > 9 {
		return nil, fmt.Errorf("compress with lz4: level %d is outside 0 to 9", level)
	}
	out := sink{p: dst}
	w := lz4ers.Get().(*lz4.Writer)
	w.Reset(&out)
	defer func() {
		w.Reset(nil)
		lz4ers.Put(w)
	}()
	speed := lz4.Fast
	if level > 0 {
		speed = lz4.Level1 << (level - 1)
	}
	// Blocks of 64 KiB without a checksum are what Kafka's own clients write.
	if err := w.Apply(lz4.CompressionLevelOption(speed), lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false)); err != nil {
		return nil, fmt.Errorf("compress with lz4: %w", err)
	}
	if _, err := w.Write(src); err != nil {
		return nil, fmt.Errorf("compress with lz4: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress with lz4: %w", err)
	}
	return out.p, nil
}
