package controller

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// DamageError says that the file of Raft's log is not what was written, and what to do.
type DamageError struct {
	// Path is the file.
	Path string
	// What is wrong there.
	What error
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("the metadata of this node in %s is damaged (%v): restore a copy of its folder, or go on without this node", e.Path, e.What)
}

// Unwrap is what is wrong.
func (e *DamageError) Unwrap() error { return e.What }

// The layout of bbolt's file, version 2, in the byte order of the machine.
const (
	boltMagic      = 0xED0CDAED
	boltVersion    = 2
	boltNoFreelist = ^uint64(0)
	boltBranch     = 0x01
	boltLeaf       = 0x02
	boltBucket     = 0x01 // flag of a leaf's element
	pageHead       = 16   // id (8), flags (2), count (2), overflow (4)
	pageElement    = 16   // both kinds: position, sizes, page
	metaSum        = 56   // offset of the checksum in a meta page, behind its head
	bucketHead     = 16   // page (8), sequence (8)
	pageSizeMax    = 64 << 10
	// pageRunMax bounds a page with its overflow, against a damaged length.
	pageRunMax = 256 << 20
)

var order = binary.NativeEndian

// boltMeta is what one of the two meta pages says.
type boltMeta struct {
	pageSize              uint32
	root, freelist, pages uint64
	txid                  uint64
}

// checker walks the pages of a bbolt file as bbolt would, and believes nothing.
//
// Both meta pages must be sound: with one that is not, bbolt goes on from the transaction
// before, without what was acknowledged last. That a crash leaves half of one is not to be
// feared, since what counts of it lies in one sector.
type checker struct {
	r    io.ReaderAt
	meta boltMeta
	seen []uint64 // one bit a page
	bufs [][]byte // one a level of the tree
	page uint64   // the one that is looked at
	// found is told of each key with its value in a bucket, in order.
	found func(bucket string, key, value []byte) error
	// nested is the bucket that is walked, "" for the root.
	nested string
}

// checkFile reads all of the file that counts and returns what it holds, and how much of it
// is in use. It must not be open in bbolt.
func checkFile(f *os.File) (logState, int64, error) {
	c := &checker{r: f}
	var state *logState
	var first, last uint64
	c.found = func(bucket string, key, value []byte) error {
		if bucket == bucketState {
			if string(key) != keyState || state != nil {
				return fmt.Errorf("there is an unknown record %q", key)
			}
			s, err := decodeState(value)
			state = &s
			return err
		}
		if len(key) != 8 {
			return fmt.Errorf("there is an entry with a key of %d bytes", len(key))
		}
		index := binary.BigEndian.Uint64(key)
		if first == 0 {
			first, last = index, index-1
		}
		if index != last+1 {
			return fmt.Errorf("entry %d follows entry %d", index, last)
		}
		last = index
		return checkEntry(index, value)
	}
	err := c.walk(f)
	switch {
	case err != nil:
	case state == nil:
		err = errors.New("the record of the log's bounds is missing")
	case state.tx != c.meta.txid:
		err = fmt.Errorf("the record of the log's bounds is of transaction %d instead of %d", state.tx, c.meta.txid)
	case state.first != first || state.last != last:
		err = fmt.Errorf("there are entries %d to %d instead of %d to %d", first, last, state.first, state.last)
	}
	if err != nil {
		return logState{}, 0, &DamageError{Path: f.Name(), What: fmt.Errorf("page %d: %w", c.page, err)}
	}
	return *state, int64(c.meta.pages) * int64(c.meta.pageSize), nil
}

// walk reads the metas and then every page that the newer one leads to.
func (c *checker) walk(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := c.readMetas(); err != nil {
		return err
	}
	size := uint64(c.meta.pageSize)
	if c.meta.pages > uint64(info.Size())/size {
		return fmt.Errorf("the file is %d bytes long and should have %d pages of %d bytes", info.Size(), c.meta.pages, size)
	}
	if c.meta.freelist != boltNoFreelist {
		return errors.New("it has a list of free pages, which Weir never writes")
	}
	c.seen = make([]uint64, c.meta.pages/64+1)
	return c.tree(c.meta.root, 0, nil, nil)
}

func (c *checker) readMetas() error {
	a, err := c.readMeta(0, 0)
	if err != nil {
		return err
	}
	c.page = 1
	b, err := c.readMeta(1, int64(a.pageSize))
	if err != nil {
		return err
	}
	if a.pageSize != b.pageSize {
		return fmt.Errorf("pages have %d bytes or %d bytes", a.pageSize, b.pageSize)
	}
	c.meta = a
	if b.txid > a.txid {
		c.meta = b
	}
	return nil
}

func (c *checker) readMeta(page uint64, at int64) (boltMeta, error) {
	b := make([]byte, pageHead+metaSum+8)
	if _, err := c.r.ReadAt(b, at); err != nil {
		return boltMeta{}, err
	}
	b = b[pageHead:]
	h := fnv.New64a()
	_, _ = h.Write(b[:metaSum])
	m := boltMeta{pageSize: order.Uint32(b[8:]), root: order.Uint64(b[16:]), freelist: order.Uint64(b[32:]),
		pages: order.Uint64(b[40:]), txid: order.Uint64(b[48:])}
	switch {
	case order.Uint64(b[metaSum:]) != h.Sum64():
		return m, errors.New("the head of the file does not match its checksum")
	case order.Uint32(b) != boltMagic || order.Uint32(b[4:]) != boltVersion:
		return m, errors.New("the head of the file is not that of a bbolt file of version 2")
	case m.pageSize < 512 || m.pageSize > pageSizeMax || m.pageSize&(m.pageSize-1) != 0:
		return m, fmt.Errorf("a page of %d bytes is not possible", m.pageSize)
	case m.txid%2 != page:
		return m, fmt.Errorf("it belongs to transaction %d, which the other head is for", m.txid)
	}
	return m, nil
}

// tree checks the page id and what is below it; all keys must be in [from, to), nil for no
// bound.
func (c *checker) tree(id uint64, depth int, from, to []byte) error {
	p, err := c.read(id, depth)
	if err != nil {
		return err
	}
	flags, count := order.Uint16(p[8:]), int(order.Uint16(p[10:]))
	if pageHead+count*pageElement > len(p) {
		return fmt.Errorf("%d elements do not fit", count)
	}
	switch flags {
	case boltLeaf:
		return c.leaf(p, depth, from, to)
	case boltBranch:
		return c.branch(p, depth, from, to)
	}
	return fmt.Errorf("it is of an unknown kind %x", flags)
}

// read reads a page with its overflow. It is good until the next page of the same depth.
func (c *checker) read(id uint64, depth int) ([]byte, error) {
	c.page = id
	size := int64(c.meta.pageSize)
	if id < 2 || id >= c.meta.pages {
		return nil, fmt.Errorf("it is not among the %d pages", c.meta.pages)
	}
	var head [pageHead]byte
	if _, err := c.r.ReadAt(head[:], int64(id)*size); err != nil {
		return nil, err
	}
	overflow := uint64(order.Uint32(head[12:]))
	run := (int64(overflow) + 1) * size
	switch {
	case order.Uint64(head[:]) != id:
		return nil, fmt.Errorf("it says that it is page %d", order.Uint64(head[:]))
	case overflow >= c.meta.pages-id || run > pageRunMax:
		return nil, fmt.Errorf("%d pages more than there are belong to it", overflow)
	}
	for i := id; i <= id+overflow; i++ {
		if c.seen[i/64]&(1<<(i%64)) != 0 {
			return nil, fmt.Errorf("page %d belongs to two others", i)
		}
		c.seen[i/64] |= 1 << (i % 64)
	}
	for len(c.bufs) <= depth {
		c.bufs = append(c.bufs, nil)
	}
	if int64(cap(c.bufs[depth])) < run {
		c.bufs[depth] = make([]byte, run)
	}
	p := c.bufs[depth][:run]
	_, err := c.r.ReadAt(p, int64(id)*size)
	return p, err
}

func (c *checker) branch(p []byte, depth int, from, to []byte) error {
	id, count := c.page, int(order.Uint16(p[10:]))
	if count == 0 {
		return errors.New("it leads nowhere")
	}
	type child struct {
		key []byte
		id  uint64
	}
	children := make([]child, count)
	for i := range children {
		at := pageHead + i*pageElement
		key, err := part(p, at, order.Uint32(p[at:]), order.Uint32(p[at+4:]))
		if err != nil {
			return err
		}
		if i > 0 && bytes.Compare(key, children[i-1].key) <= 0 || !within(key, from, to) {
			return errors.New("its keys are out of order")
		}
		children[i] = child{key, order.Uint64(p[at+8:])}
	}
	for i, ch := range children {
		end := to
		if i+1 < count {
			end = children[i+1].key
		}
		if err := c.tree(ch.id, depth+1, ch.key, end); err != nil {
			return err
		}
		c.page = id
	}
	return nil
}

func within(key, from, to []byte) bool {
	return (from == nil || bytes.Compare(key, from) >= 0) && (to == nil || bytes.Compare(key, to) < 0)
}

// part is the piece of a page that an element names, counted from that element.
func part(p []byte, element int, pos, size uint32) ([]byte, error) {
	start := uint64(element) + uint64(pos)
	end := start + uint64(size)
	if end > uint64(len(p)) {
		return nil, errors.New("an element of it lies outside")
	}
	return p[start:end:end], nil
}

func (c *checker) leaf(p []byte, depth int, from, to []byte) error {
	id, count := c.page, int(order.Uint16(p[10:]))
	var before []byte
	for i := range count {
		at := pageHead + i*pageElement
		flags, pos, ksize, vsize := order.Uint32(p[at:]), order.Uint32(p[at+4:]), order.Uint32(p[at+8:]), order.Uint32(p[at+12:])
		key, err := part(p, at, pos, ksize)
		if err != nil {
			return err
		}
		value, err := part(p, at, pos+ksize, vsize)
		if err != nil || uint64(pos)+uint64(ksize) > 1<<31 {
			return errors.New("an element of it lies outside")
		}
		if i > 0 && bytes.Compare(key, before) <= 0 || !within(key, from, to) {
			return errors.New("its keys are out of order")
		}
		before = key
		switch {
		case flags&boltBucket != 0:
			err = c.bucket(key, value, depth)
		case c.nested == "":
			err = fmt.Errorf("the record %q is in no bucket", key)
		default:
			err = c.found(c.nested, key, value)
		}
		if err != nil {
			return err
		}
		c.page = id
	}
	return nil
}

// bucket looks at a bucket, which must be one of the root's.
func (c *checker) bucket(key, value []byte, depth int) error {
	name := string(key)
	if c.nested != "" || name != bucketLogs && name != bucketState {
		return fmt.Errorf("there is an unknown bucket %q", key)
	}
	if len(value) < bucketHead {
		return fmt.Errorf("the bucket %q has no head", key)
	}
	c.nested = name
	defer func() { c.nested = "" }()
	if root := order.Uint64(value); root != 0 {
		return c.tree(root, depth+1, nil, nil)
	}
	inline := value[bucketHead:]
	if len(inline) < pageHead || order.Uint16(inline[8:]) != boltLeaf || pageHead+int(order.Uint16(inline[10:]))*pageElement > len(inline) {
		return fmt.Errorf("the bucket %q has no leaf", key)
	}
	return c.leaf(inline, depth+1, nil, nil)
}
