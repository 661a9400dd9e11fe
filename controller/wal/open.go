package wal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/weirmq/weir/storage/vfs"
)

const (
	lockFile = "wal.lock"
	// lockWait bounds the wait for the lock of another process, lockPause is that between two tries.
	lockWait  = time.Second
	lockPause = 20 * time.Millisecond
)

// Exists tells whether there is a log in a folder.
func Exists(fsys vfs.FS, dir string) (bool, error) {
	seqs, _, err := listSegments(fsys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return len(seqs) > 0, err
}

// Open opens the log in a folder, or makes it. Damage is a *DamageError. segmentBytes is how large
// segments become, a multiple of 4096: SegmentBytes.
func Open(fsys vfs.FS, dir string, segmentBytes int64) (*Log, error) {
	l, err := open(fsys, dir, segmentBytes)
	if err != nil {
		return nil, err
	}
	l.keeper.Go(l.keep)
	l.wakeKeeper()
	return l, nil
}

// open is Open without a keeper: what is needed is made by whoever needs it.
func open(fsys vfs.FS, dir string, segmentBytes int64) (*Log, error) {
	l := &Log{
		fsys: fsys, dir: dir, segmentBytes: segmentBytes,
		turn: make(chan struct{}, 1), making: make(chan struct{}, 1),
		hurry: make(chan struct{}, 1), wake: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	var err error
	if l.lock, err = lockWithin(fsys, filepath.Join(dir, lockFile), lockWait); err != nil {
		return nil, err
	}
	if err := l.load(); err != nil {
		return nil, errors.Join(err, l.release())
	}
	return l, nil
}

// lockWithin takes the lock on a file, and waits for it for a while.
func lockWithin(fsys vfs.FS, path string, wait time.Duration) (io.Closer, error) {
	for until := time.Now().Add(wait); ; {
		c, err := fsys.Lock(path)
		if err == nil || !errors.Is(err, vfs.ErrLocked) {
			return c, err
		}
		if time.Now().After(until) {
			return nil, fmt.Errorf("lock %s: another process holds it: %w", path, err)
		}
		<-time.After(lockPause)
	}
}

func (l *Log) load() error {
	seqs, unfinished, err := listSegments(l.fsys, l.dir)
	if err != nil {
		return err
	}
	for _, path := range unfinished {
		if err := removeIfThere(l.fsys, path); err != nil {
			return err
		}
	}
	if len(seqs) == 0 {
		return l.create()
	}
	// Of dead segments a crash may have left some, before a gap. That nothing is missing is seen in the rest.
	first := len(seqs) - 1
	for first > 0 && seqs[first-1] == seqs[first]-1 {
		first--
	}
	r := replay{state: state{values: map[string][]byte{}}}
	if err := l.readAll(&r, seqs[first:]); err != nil {
		return err
	}
	for _, seq := range seqs[:first] {
		if err := l.fsys.Remove(segmentPath(l.dir, seq)); err != nil {
			return err
		}
	}
	return l.goOn(&r)
}

// create makes the first segment.
func (l *Log) create() error {
	_, _ = rand.Read(l.identity[:]) // never fails
	s, err := makeSegment(l.fsys, l.dir, l.identity, 1, min(firstBytes, l.segmentBytes), func() error { return nil })
	if err != nil {
		return fmt.Errorf("make the first segment: %w", err)
	}
	l.segments, l.state.values = []*segment{s}, map[string][]byte{}
	return l.begin(s)
}

// readAll reads segments that follow one another.
func (l *Log) readAll(r *replay, seqs []uint64) error {
	var b []byte
	for i, seq := range seqs {
		s := &segment{seq: seq, path: segmentPath(l.dir, seq)}
		var err error
		if s.file, err = l.fsys.Open(s.path, os.O_RDWR, 0); err != nil {
			return err
		}
		if l.spare != nil {
			err = fmt.Errorf("segment %d is not in use and can not be followed by another", l.spare.seq)
			return errors.Join(&DamageError{s.path, err}, s.file.Close())
		}
		l.segments = append(l.segments, s)
		if b, err = s.readWhole(b); err != nil {
			return err
		}
		spare, err := l.readSegment(r, s, b, i == 0)
		if err != nil {
			return &DamageError{s.path, err}
		}
		if spare {
			l.spare, l.segments = s, l.segments[:i]
		}
	}
	in := l.segments[len(l.segments)-1]
	if err := r.finish(in.seq); err != nil {
		return &DamageError{l.segments[0].path, err}
	}
	return nil
}

// readWhole reads all bytes of a segment into the memory of b.
func (s *segment) readWhole(b []byte) ([]byte, error) {
	var err error
	if s.size, err = s.file.Size(); err != nil {
		return nil, err
	}
	if s.size < 2*pageBytes || s.size%pageBytes != 0 || s.size > segmentMax {
		return nil, &DamageError{s.path, fmt.Errorf("it is %d bytes long", s.size)}
	}
	b = slices.Grow(b[:0], int(s.size))[:s.size]
	_, err = s.file.ReadAt(b, 0)
	return b, err
}

// readSegment checks a segment's head and takes its blocks.
func (l *Log) readSegment(r *replay, s *segment, b []byte, first bool) (spare bool, err error) {
	identity, err := readHead(b, s.seq, s.size)
	if err != nil {
		return false, err
	}
	if first {
		l.identity = identity
	}
	if identity != l.identity {
		return false, errors.New("it belongs to another log")
	}
	s.sealer = newSealer(identity, s.seq)
	return r.read(s, b)
}

// goOn makes what was read durable, which a process that was killed may not have done, removes
// what is left of a torn block, and begins a segment that has not begun.
func (l *Log) goOn(r *replay) error {
	in := l.segments[len(l.segments)-1]
	if r.torn > r.at {
		if _, err := in.file.WriteAt(make([]byte, pages(r.torn)-r.at), r.at); err != nil {
			return err
		}
	}
	if err := errors.Join(in.file.Sync(), l.fsys.SyncDir(l.dir)); err != nil {
		return err
	}
	l.state, l.number, l.end, l.last = r.state, r.number, r.at, r.last
	if r.last == 0 {
		return l.begin(in)
	}
	return nil
}
