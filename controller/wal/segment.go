package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/weirmq/weir/storage/vfs"
)

const (
	suffix      = ".wal"
	freshSuffix = ".new" // of a segment that is being made
	// magic begins a segment; its last byte is the version of the format.
	magic = "weirwal\x01"
	// strideBytes of a new segment are filled and synced at a time. An append that comes just then
	// waits for the disk behind them: with a MiB, the slowest hundredth took twice as long.
	strideBytes = 256 << 10
	// segmentMax bounds the size of a segment; places of entries have 32 bits.
	segmentMax = math.MaxUint32
)

// segment is one file of the log.
type segment struct {
	seq  uint64
	path string
	size int64
	sealer
	file vfs.File
}

func segmentPath(dir string, seq uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%016d", seq)+suffix)
}

// sequence is the number in a segment's name.
func sequence(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, ok && err == nil && len(digits) == 16
}

// listSegments returns the numbers of the segments in a folder, in order, and the names of
// those that were not finished.
func listSegments(fsys vfs.FS, dir string) (seqs []uint64, unfinished []string, err error) {
	list, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range list {
		if n, ok := sequence(e.Name()); ok {
			seqs = append(seqs, n)
		} else if strings.HasSuffix(e.Name(), suffix+freshSuffix) {
			unfinished = append(unfinished, filepath.Join(dir, e.Name()))
		}
	}
	return seqs, unfinished, nil
}

// encodeHead is the first page of a segment.
func encodeHead(identity [16]byte, seq uint64, size int64) []byte {
	b := make([]byte, pageBytes)
	copy(b, magic)
	copy(b[8:], identity[:])
	binary.BigEndian.PutUint64(b[24:], seq)
	binary.BigEndian.PutUint64(b[32:], uint64(size))
	newSealer(identity, seq).put(b, 0, roleHead)
	return b
}

// readHead checks the first page of a segment against its name and size, and returns the log's identity.
func readHead(b []byte, seq uint64, size int64) (identity [16]byte, err error) {
	copy(identity[:], b[8:])
	inside := binary.BigEndian.Uint64(b[24:])
	switch {
	case !newSealer(identity, inside).sealed(b, 0, roleHead):
		return identity, errors.New("its head does not match its checksum")
	case string(b[:7]) != magic[:7]:
		return identity, errors.New("its head is not that of a segment")
	case b[7] != magic[7]:
		return identity, fmt.Errorf("it has format %d, which this version does not know", b[7])
	case inside != seq:
		return identity, fmt.Errorf("it is segment %d", inside)
	case binary.BigEndian.Uint64(b[32:]) != uint64(size):
		return identity, fmt.Errorf("it is %d bytes long and was made with %d", size, binary.BigEndian.Uint64(b[32:]))
	case !isZero(b[sectorBytes:pageBytes]):
		return identity, errors.New("something follows its head")
	}
	return identity, nil
}

func isZero(b []byte) bool {
	for len(b) >= 8 {
		if binary.NativeEndian.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// makeSegment makes a segment of zeros with a head, under its own name only when all of it is on the disk.
// pause is called between strides, and ends the work with an error. On any error no file is left.
func makeSegment(fsys vfs.FS, dir string, identity [16]byte, seq uint64, size int64, pause func() error) (_ *segment, err error) {
	s := &segment{seq: seq, path: segmentPath(dir, seq), size: size, sealer: newSealer(identity, seq)}
	fresh := s.path + freshSuffix
	if s.file, err = fsys.Open(fresh, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.file.Close()
			err = errors.Join(err, removeIfThere(fsys, fresh))
		}
	}()
	zeros := make([]byte, min(strideBytes, size))
	for at := int64(0); at < size; at += strideBytes {
		if at > 0 {
			if err := pause(); err != nil {
				return nil, err
			}
		}
		piece := zeros[:min(strideBytes, size-at)]
		if at == 0 {
			copy(piece, encodeHead(identity, seq, size))
		}
		_, err := s.file.WriteAt(piece, at)
		if err == nil {
			err = s.file.Sync()
		}
		if err != nil {
			return nil, err
		}
		clear(zeros[:pageBytes])
	}
	if err := fsys.Rename(fresh, s.path); err != nil {
		return nil, err
	}
	return s, fsys.SyncDir(dir)
}

func removeIfThere(fsys vfs.FS, path string) error {
	if err := fsys.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
