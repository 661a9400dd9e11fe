package fsm

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/weirmq/weir/wire/codec"
)

// A snapshot is the magic, a version byte, and frames: a length of four bytes,
// most significant first, a kind byte that the length counts, and the body. Head
// comes first, then brokers by id, nodes by id, topics by id with all their partitions,
// tombstones by id, slots, groups and their offsets by key, and the end with a
// checksum of all rows and the index.
const (
	snapshotMagic   = "weirimg\n"
	snapshotVersion = 1
	maxFrame        = 256 << 20 // a topic of a million partitions takes some 40 MB
)

const (
	frameHead      byte = 1
	frameBroker    byte = 2
	frameTopic     byte = 3
	frameTombstone byte = 4
	frameEnd       byte = 5
	frameSlots     byte = 6
	frameGroup     byte = 7
	frameOffsets   byte = 8
	frameNode      byte = 12
)

// CorruptSnapshotError says where a snapshot stops making sense.
type CorruptSnapshotError struct {
	Frame int   // number of the frame, the head is 0
	Err   error // what is wrong with it
}

func (e *CorruptSnapshotError) Error() string {
	return fmt.Sprintf("corrupt snapshot at frame %d: %v", e.Frame, e.Err)
}

// Unwrap gives what is wrong.
func (e *CorruptSnapshotError) Unwrap() error { return e.Err }

// snapshotHead and snapshotEnd are the fields that are not rows.
type snapshotHead struct {
	index          int64
	clusterID      string
	nextProducerID int64
}

func (h *snapshotHead) code(x *codec.Coder) {
	x.Int64(&h.index)
	x.String(&h.clusterID)
	x.Int64(&h.nextProducerID)
}

type snapshotEnd struct{ check uint64 }

func (e *snapshotEnd) code(x *codec.Coder) { x.Uint64(&e.check) }

// snapshotCheck is the hash of all rows and the index.
func snapshotCheck(im *Image) uint64 {
	h := hasher(im.hash)
	h.word(im.index)
	return h.sum()
}

// topicRow is a topic with its partitions, as it stands in a snapshot.
type topicRow struct {
	id      TopicID
	name    string
	configs [][2]string
	rows    []Partition
}

func (t *topicRow) code(x *codec.Coder) {
	codeTopicID(x, &t.id)
	x.String(&t.name)
	codec.ArrayOf(x, &t.configs, 2*sizeString, codeConfig)
	codec.ArrayOf(x, &t.rows, sizePartition, func(x *codec.Coder, p *Partition) { p.code(x) })
}

// The bits of Partition.flags; the others are Durability, shifted by one.
const (
	flagRecovering = 1
	flagConfirmed  = 4
)

// flags are Recovering, Durability and Confirmed.
func (p *Partition) flags() uint8 {
	flags := uint8(p.Durability) << 1
	if p.Recovering {
		flags |= flagRecovering
	}
	if p.Confirmed {
		flags |= flagConfirmed
	}
	return flags
}

func (p *Partition) code(x *codec.Coder) {
	codeBroker(x, &p.Leader)
	x.Varint((*int32)(&p.LeaderEpoch))
	x.Varint((*int32)(&p.PartitionEpoch))
	x.Int16(&p.MinISR)
	flags := p.flags()
	x.Uint8(&flags)
	if x.Reading() {
		p.Recovering, p.Confirmed = flags&flagRecovering != 0, flags&flagConfirmed != 0
		p.Durability = Durability(flags &^ (flagRecovering | flagConfirmed) >> 1)
	}
	for _, list := range p.lists() {
		codeBrokers(x, list)
	}
}

func (b *Broker) code(x *codec.Coder) {
	codeBroker(x, &b.ID)
	codeBrokerEpoch(x, &b.Epoch)
	x.UUID(&b.Folder)
	x.UUID(&b.Process)
	x.String(&b.BootID)
	codeEndpoint(x, &b.Client)
	codeEndpoint(x, &b.Peer)
	x.String(&b.Rack)
	x.Bool(&b.Fenced)
	x.Bool(&b.Stopping)
}

func (n *Node) code(x *codec.Coder) {
	codeBroker(x, &n.ID)
	x.UUID(&n.Folder)
	codeEndpoint(x, &n.Peer)
	x.Bool(&n.Removed)
}

func (t *Tombstone) code(x *codec.Coder) {
	codeTopicID(x, &t.ID)
	x.String(&t.Name)
	codeBrokers(x, &t.Pending)
}

// WriteSnapshot writes im to w. It reads an immutable Image and so may run
// beside Apply.
func WriteSnapshot(w io.Writer, im *Image) error {
	s := frameWriter{w: bufio.NewWriterSize(w, 1<<16)}
	s.raw(append([]byte(snapshotMagic), snapshotVersion))
	head := snapshotHead{int64(im.index), im.clusterID, im.nextProducerID}
	s.frame(frameHead, head.code)
	for b := range im.Brokers() {
		s.frame(frameBroker, b.code)
	}
	for n := range im.Nodes() {
		s.frame(frameNode, n.code)
	}
	var rows []Partition // of the latest topic, reused
	for t := range values(im.topics) {
		row := topicRow{id: t.ID, name: t.Name, configs: t.sortedConfigs(), rows: rows[:0]}
		for _, p := range im.Partitions(t.ID) {
			row.rows = append(row.rows, p)
		}
		s.frame(frameTopic, row.code)
		rows = row.rows
	}
	for t := range im.Tombstones() {
		s.frame(frameTombstone, t.code)
	}
	s.groups(im)
	end := snapshotEnd{snapshotCheck(im)}
	s.frame(frameEnd, end.code)
	if s.err != nil {
		return fmt.Errorf("write snapshot at index %d: %w", im.index, s.err)
	}
	if err := s.w.Flush(); err != nil {
		return fmt.Errorf("write snapshot at index %d: %w", im.index, err)
	}
	return nil
}

// frameWriter writes frames until the first error.
type frameWriter struct {
	w   *bufio.Writer
	buf []byte // of the latest frame, reused
	err error
}

func (s *frameWriter) raw(p []byte) {
	if s.err == nil {
		_, s.err = s.w.Write(p)
	}
}

func (s *frameWriter) frame(kind byte, code func(*codec.Coder)) {
	x := codec.NewWriter(append(s.buf[:0], 0, 0, 0, 0, kind)).Flexible(true)
	code(x)
	if err := x.Err(); err != nil && s.err == nil {
		s.err = err
	}
	s.buf = x.Bytes()
	binary.BigEndian.PutUint32(s.buf, uint32(len(s.buf)-4))
	s.raw(s.buf)
}

// ReadSnapshot reads what WriteSnapshot wrote. It checks every row against the
// invariants of the Image, and the hash of all of them. It may read past the end
// of the snapshot. An error from r is returned as it is; anything wrong with the
// content is a *CorruptSnapshotError, a later version an UnknownCommandError.
func ReadSnapshot(r io.Reader) (*Image, error) {
	s := frameReader{r: bufio.NewReaderSize(r, 1<<16)}
	start := make([]byte, len(snapshotMagic)+1)
	if _, err := io.ReadFull(s.r, start); err != nil {
		return nil, s.broken(err)
	}
	if string(start[:len(snapshotMagic)]) != snapshotMagic {
		return nil, &CorruptSnapshotError{Err: errors.New("not a snapshot of Weir")}
	}
	if v := start[len(snapshotMagic)]; v != snapshotVersion {
		return nil, &UnknownCommandError{Version: v}
	}
	im := NewImage()
	e := edit{next: im}
	for done := false; !done; s.frame++ {
		kind, body, err := s.next()
		if err != nil {
			return nil, err
		}
		if done, err = e.restore(s.frame, kind, body); err != nil {
			return nil, &CorruptSnapshotError{Frame: s.frame, Err: err}
		}
	}
	return im, nil
}

// frameReader reads frames.
type frameReader struct {
	r     *bufio.Reader
	buf   bytes.Buffer
	frame int
}

// next reads a frame. Its body is valid until the next call, and grows only as
// bytes arrive.
func (s *frameReader) next() (byte, []byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(s.r, length[:]); err != nil {
		return 0, nil, s.broken(err)
	}
	n := binary.BigEndian.Uint32(length[:])
	if n == 0 || n > maxFrame {
		return 0, nil, &CorruptSnapshotError{Frame: s.frame, Err: fmt.Errorf("length %d", n)}
	}
	s.buf.Reset()
	if _, err := io.CopyN(&s.buf, s.r, int64(n)); err != nil {
		return 0, nil, s.broken(err)
	}
	return s.buf.Bytes()[0], s.buf.Bytes()[1:], nil
}

// broken tells a snapshot that is cut short from a reader that failed.
func (s *frameReader) broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &CorruptSnapshotError{Frame: s.frame, Err: io.ErrUnexpectedEOF}
	}
	return fmt.Errorf("read snapshot: %w", err)
}
