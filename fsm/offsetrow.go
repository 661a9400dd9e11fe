package fsm

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/weirmq/weir/wire/batch"
)

// Offsets are stored one row for each (group, topic): an entry of a tree costs
// some 350 bytes, a cell 24. A row is divided into blocks of 64 partitions, so
// that a commit of few partitions of a very large topic copies little. Rows and
// blocks are immutable once their edit is over; within an edit each is copied
// once, however many commits it gets.

// offsetRow is what one group has committed for one topic.
type offsetRow struct {
	blocks []offsetBlock // ascending by number; none is empty
	seed   hasher        // after group and topic: the hash of every partition begins here
	open   bool          // made by the edit that is under way
}

// offsetBlock holds the partitions from 64*number on.
type offsetBlock struct {
	number  int32
	open    bool   // cells and notes are the open row's own
	present uint64 // bit i: partition 64*number+i has a cell
	cells   []offsetCell
	notes   []offsetNote // ascending by bit: what few partitions have
}

// offsetCell is a Committed without what is usually not there.
type offsetCell struct {
	offset      batch.Offset
	commitMs    int64
	leaderEpoch batch.Epoch
	noted       bool
}

// offsetNote is the rest of a Committed.
type offsetNote struct {
	bit      uint8
	expireMs int64
	metadata string
}

// offsetKey appends the key of a row to dst: the group's key, the topic id.
func offsetKey(dst []byte, group string, topic TopicID) []byte {
	return append(groupKey(dst, group), topic[:]...)
}

// topicOf reads the topic id in an offsetKey.
func topicOf(key []byte) TopicID { return TopicID(key[len(key)-len(TopicID{}):]) }

// holderKey is an offsetKey with the topic id in front.
func holderKey(offsetKey []byte) []byte {
	split := len(offsetKey) - len(TopicID{})
	return slices.Concat(offsetKey[split:], offsetKey[:split])
}

// find returns the place of a block, or where it would be.
func (r *offsetRow) find(number int32) (int, bool) {
	// Nearly all rows have one block or all of them.
	if i := int(number); i < len(r.blocks) && r.blocks[i].number == number {
		return i, true
	}
	return slices.BinarySearchFunc(r.blocks, number, func(b offsetBlock, n int32) int { return int(b.number) - int(n) })
}

// place returns where in cells the bit's cell is or would be.
func (b *offsetBlock) place(bit int) (int, bool) {
	return bits.OnesCount64(b.present & (1<<bit - 1)), b.present&(1<<bit) != 0
}

// get returns what is committed for one partition.
func (r *offsetRow) get(partition int32) (Committed, bool) {
	if partition < 0 {
		return Committed{}, false
	}
	i, ok := r.find(partition / blockSize)
	if !ok {
		return Committed{}, false
	}
	return r.blocks[i].get(int(partition % blockSize))
}

func (b *offsetBlock) get(bit int) (Committed, bool) {
	i, ok := b.place(bit)
	if !ok {
		return Committed{}, false
	}
	cell := &b.cells[i]
	c := Committed{Offset: cell.offset, LeaderEpoch: cell.leaderEpoch, CommitMs: cell.commitMs, ExpireMs: -1}
	if cell.noted {
		j, _ := b.findNote(bit)
		c.ExpireMs, c.Metadata = b.notes[j].expireMs, b.notes[j].metadata
	}
	return c, true
}

func (b *offsetBlock) findNote(bit int) (int, bool) {
	return slices.BinarySearchFunc(b.notes, bit, func(n offsetNote, bit int) int { return int(n.bit) - bit })
}

// all yields the partitions in order.
func (r *offsetRow) all(yield func(int32, Committed) bool) {
	for i := range r.blocks {
		b := &r.blocks[i]
		for left := b.present; left != 0; left &= left - 1 {
			bit := bits.TrailingZeros64(left)
			c, _ := b.get(bit)
			if !yield(b.number*blockSize+int32(bit), c) {
				return
			}
		}
	}
}

// put stores one partition. It returns how many partitions there are more, and
// what to add to the Image's hash.
func (r *offsetRow) put(p *CommitPartition, commitMs, expireMs int64) (added int, change uint64) {
	next := Committed{Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, CommitMs: commitMs, ExpireMs: max(-1, expireMs)}
	b, bit := r.block(p.Partition/blockSize), int(p.Partition%blockSize)
	i, ok := b.place(bit)
	if ok && !b.cells[i].noted && !next.noted() { // nearly always
		cell := &b.cells[i]
		change = r.hashCell(p.Partition, &offsetCell{next.Offset, commitMs, next.LeaderEpoch, false}) - r.hashCell(p.Partition, cell)
		cell.offset, cell.commitMs, cell.leaderEpoch = next.Offset, commitMs, next.LeaderEpoch
		return 0, change
	}
	if ok {
		old, _ := b.get(bit)
		change -= r.hash(p.Partition, &old)
	} else {
		added = 1
	}
	b.set(bit, &next)
	return added, change + r.hash(p.Partition, &next)
}

// noted tells whether there is more of it than a cell has.
func (c *Committed) noted() bool { return c.Metadata != "" || c.ExpireMs >= 0 }

// block returns a block of an open row, made or copied so that it may be changed.
func (r *offsetRow) block(number int32) *offsetBlock {
	i, ok := r.find(number)
	if !ok {
		r.blocks = slices.Insert(r.blocks, i, offsetBlock{number: number, open: true})
	}
	b := &r.blocks[i]
	if !b.open {
		b.cells, b.notes, b.open = slices.Clone(b.cells), slices.Clone(b.notes), true
	}
	return b
}

func (b *offsetBlock) set(bit int, c *Committed) {
	cell := offsetCell{offset: c.Offset, commitMs: c.CommitMs, leaderEpoch: c.LeaderEpoch, noted: c.noted()}
	i, ok := b.place(bit)
	if ok && b.cells[i].noted {
		b.dropNote(bit)
	}
	if ok {
		b.cells[i] = cell
	} else {
		b.cells = slices.Insert(b.cells, i, cell)
		b.present |= 1 << bit
	}
	if cell.noted {
		j, _ := b.findNote(bit)
		b.notes = slices.Insert(b.notes, j, offsetNote{bit: uint8(bit), expireMs: c.ExpireMs, metadata: c.Metadata})
	}
}

func (b *offsetBlock) dropNote(bit int) {
	j, _ := b.findNote(bit)
	b.notes = slices.Delete(b.notes, j, j+1)
}

// drop removes one partition that is there.
func (r *offsetRow) drop(partition int32) {
	number, bit := partition/blockSize, int(partition%blockSize)
	b := r.block(number)
	i, _ := b.place(bit)
	if b.cells[i].noted {
		b.dropNote(bit)
	}
	b.cells = slices.Delete(b.cells, i, i+1)
	if b.present &^= 1 << bit; b.present == 0 {
		j, _ := r.find(number)
		r.blocks = slices.Delete(r.blocks, j, j+1)
	}
}

// close ends the time in which the row may be changed.
func (r *offsetRow) close() {
	r.open = false
	for i := range r.blocks {
		r.blocks[i].open = false
	}
}

// seedOf begins the hash of all partitions of a row.
func seedOf(group string, topic TopicID) hasher {
	h := rowOffset
	h.text(group)
	h.word(binary.LittleEndian.Uint64(topic[:8]))
	h.word(binary.LittleEndian.Uint64(topic[8:]))
	return h
}

// hash is the hash of one partition.
func (r *offsetRow) hash(partition int32, c *Committed) uint64 {
	cell := offsetCell{offset: c.Offset, commitMs: c.CommitMs, leaderEpoch: c.LeaderEpoch}
	h := r.hasher(partition, &cell, c.ExpireMs)
	if c.Metadata != "" {
		h.text(c.Metadata)
	}
	return h.sum()
}

// hashCell is hash of a partition that has no note.
func (r *offsetRow) hashCell(partition int32, c *offsetCell) uint64 {
	h := r.hasher(partition, c, -1)
	return h.sum()
}

// hasher begins the hash of one partition.
func (r *offsetRow) hasher(partition int32, c *offsetCell, expireMs int64) hasher {
	h := r.seed
	h.word(uint64(uint32(partition))<<32 | uint64(uint32(c.leaderEpoch)))
	h.int(int64(c.offset))
	h.int(c.commitMs)
	h.int(expireMs)
	return h
}

// offsets returns a row as this edit has left it.
func (e *edit) offsets(group string, topic TopicID) (*offsetRow, bool) {
	var buf [96]byte
	key := offsetKey(buf[:0], group, topic)
	if e.facts.offsets != nil {
		return e.facts.offsets.Get(key)
	}
	return e.next.facts.offsets.Get(key)
}

// openOffsets returns a row that this edit may change.
func (e *edit) openOffsets(group string, topic TopicID) *offsetRow {
	old, ok := e.offsets(group, topic)
	if ok && old.open {
		return old
	}
	row, key := &offsetRow{open: true}, offsetKey(nil, group, topic)
	if ok {
		row.blocks, row.seed = slices.Clone(old.blocks), old.seed
	} else {
		row.seed = seedOf(group, topic)
		txn(&e.facts.holders, e.next.facts.holders).Insert(holderKey(key), struct{}{})
	}
	txn(&e.facts.offsets, e.next.facts.offsets).Insert(key, row)
	e.facts.open = append(e.facts.open, row)
	return row
}

// committed returns what is committed as this edit has left it.
func (e *edit) committed(group string, tp TopicPartition) (Committed, bool) {
	row, ok := e.offsets(group, tp.Topic)
	if !ok {
		return Committed{}, false
	}
	return row.get(tp.Partition)
}

// forget removes one committed offset if there is one.
func (e *edit) forget(group string, tp TopicPartition) {
	old, ok := e.committed(group, tp)
	if !ok {
		return
	}
	row := e.openOffsets(group, tp.Topic)
	e.next.hash -= row.hash(tp.Partition, &old)
	e.next.facts.count--
	if row.drop(tp.Partition); len(row.blocks) == 0 {
		e.deleteRow(offsetKey(nil, group, tp.Topic))
	}
}

// hasOffsets reports whether the group has any committed offset.
func (e *edit) hasOffsets(group string) bool {
	for range e.rowsOf(groupKey(nil, group)) {
		return true
	}
	return false
}

// rowsOf yields the rows whose keys begin with prefix, as this edit has left them.
func (e *edit) rowsOf(prefix []byte) func(func([]byte, *offsetRow) bool) {
	return func(yield func([]byte, *offsetRow) bool) {
		it := txn(&e.facts.offsets, e.next.facts.offsets).Root().Iterator()
		it.SeekPrefix(prefix)
		for key, row, ok := it.Next(); ok; key, row, ok = it.Next() {
			if !yield(key, row) {
				return
			}
		}
	}
}

// dropOffsetsOf removes all that a group has committed.
func (e *edit) dropOffsetsOf(group string) {
	var keys [][]byte
	for key := range e.rowsOf(groupKey(nil, group)) {
		keys = append(keys, key)
	}
	for _, key := range keys {
		e.dropRow(key)
	}
}

// dropOffsetsIn removes all that was committed for a topic.
func (e *edit) dropOffsetsIn(topic TopicID) {
	it := e.next.facts.holders.Root().Iterator()
	it.SeekPrefix(topic[:])
	for key, _, ok := it.Next(); ok; key, _, ok = it.Next() {
		e.dropRow(slices.Concat(key[len(topic):], topic[:]))
	}
}

// dropRow removes a row with what is in it.
func (e *edit) dropRow(key []byte) {
	row, ok := txn(&e.facts.offsets, e.next.facts.offsets).Get(key)
	if !ok {
		panic(fmt.Sprintf("BUG: no offsets under the key %x", key))
	}
	for p, c := range row.all {
		e.next.hash -= row.hash(p, &c)
		e.next.facts.count--
	}
	e.deleteRow(key)
}

// deleteRow takes a row out of both trees.
func (e *edit) deleteRow(key []byte) {
	txn(&e.facts.offsets, e.next.facts.offsets).Delete(key)
	txn(&e.facts.holders, e.next.facts.holders).Delete(holderKey(key))
}
