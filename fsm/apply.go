package fsm

import (
	"fmt"

	iradix "github.com/hashicorp/go-immutable-radix/v2"
)

// Apply makes the Image that follows im when command c stands at index in the
// Raft log, and c's answer. It checks c's guards and decides nothing. It is pure:
// the same arguments give the same results on every node and in every version
// of this package that knows the command. Commands packed in one entry are
// applied one after the other at the same index.
func Apply(im *Image, index uint64, c Command) (*Image, Result) {
	next := *im
	next.index = index
	e := edit{next: &next}
	r := c.apply(&e)
	e.commit()
	return &next, r
}

// ApplyEntry is Apply for all commands of one entry. The work of SlotCommands that follow one
// another is one edit: a path in a tree is copied once for all of them. They read groups, slots
// and offsets only as the edit has left them, and topics, which they do not change.
func ApplyEntry(im *Image, index uint64, cs []Command) (*Image, []Result) {
	results := make([]Result, len(cs))
	for i := 0; i < len(cs); {
		next := *im
		next.index = index
		e := edit{next: &next}
		for first := i; i < len(cs) && (i == first || cs[i].kind() == kindSlotCommand && cs[first].kind() == kindSlotCommand); i++ {
			results[i] = cs[i].apply(&e)
		}
		e.commit()
		im = &next
	}
	return im, results
}

// edit is the work of one command, or of several SlotCommands, on the next Image. Trees are opened when first
// written, and changes to neighbouring partitions are gathered in open.
type edit struct {
	next        *Image // under construction; trees and journal lag until commit
	topics      *iradix.Txn[*Topic]
	names       *iradix.Txn[*Topic]
	blocks      *blockTree // nil until one is changed
	leaderless  *iradix.Txn[*block]
	reassigning *iradix.Txn[*block]
	tombstones  *iradix.Txn[*Tombstone]
	open        *openBlock // nil until a partition is asked for
	facts       groupEdit
	change      change // what Diff will look at
}

// txn opens a tree for writing once.
func txn[T any](t **iradix.Txn[T], tree *iradix.Tree[T]) *iradix.Txn[T] {
	if *t == nil {
		*t = tree.Txn()
	}
	return *t
}

// close ends a tree's writing and returns what it became.
func closeTxn[T any](t *iradix.Txn[T], tree *iradix.Tree[T]) *iradix.Tree[T] {
	if t == nil {
		return tree
	}
	return t.CommitOnly()
}

// commit puts all pending work into next.
func (e *edit) commit() {
	e.flush()
	im := e.next
	im.topics = closeTxn(e.topics, im.topics)
	im.names = closeTxn(e.names, im.names)
	if e.blocks != nil {
		im.blocks = e.blocks
	}
	im.leaderless = closeTxn(e.leaderless, im.leaderless)
	im.reassigning = closeTxn(e.reassigning, im.reassigning)
	im.tombstones = closeTxn(e.tombstones, im.tombstones)
	e.facts.commit(&im.facts)
	im.journal = im.journal.with(&e.change)
}

// load makes the block of tp the open one and returns tp's place in it; it
// reports whether the partition exists.
func (e *edit) load(tp TopicPartition) (int, bool) {
	if tp.Partition < 0 {
		return 0, false
	}
	i, k := int(tp.Partition%blockSize), keyOf(tp)
	if e.open != nil && e.open.base != nil && e.open.key == k {
		return i, i < len(e.open.base.rows)
	}
	b, ok := e.block(k)
	if !ok || i >= len(b.rows) {
		return 0, false
	}
	if e.open == nil {
		e.open = &openBlock{}
	}
	e.flush()
	e.open.reset(k, b)
	return i, true
}

// block returns the block as this edit has left it, without the open changes.
func (e *edit) block(k blockKey) (*block, bool) {
	if e.blocks != nil {
		return e.blocks.get(k)
	}
	return e.next.blocks.get(k)
}

// partition returns a partition as this edit has left it.
func (e *edit) partition(tp TopicPartition) (Partition, bool) {
	i, ok := e.load(tp)
	if !ok {
		return Partition{}, false
	}
	return e.open.partition(i), true
}

// setPartition replaces a partition that exists.
func (e *edit) setPartition(tp TopicPartition, p Partition) {
	i, ok := e.load(tp)
	if !ok {
		panic(fmt.Sprintf("BUG: set of missing partition %x-%d", tp.Topic, tp.Partition))
	}
	if fault := p.fault(); fault != "" {
		panic(fmt.Sprintf("BUG: partition %x-%d: %s", tp.Topic, tp.Partition, fault))
	}
	old := e.open.partition(i)
	e.next.hash += hashPartition(tp, &p) - hashPartition(tp, &old)
	e.open.set(i, p)
}

// flush writes the open block's changes to the tree.
func (e *edit) flush() {
	if e.open == nil || e.open.changed == 0 {
		return
	}
	e.putBlock(e.open.close(), e.open.base, e.open.changed)
	e.open.reset(blockKey{}, nil)
}

// writeBlocks is the tree of blocks that this edit may change.
func (e *edit) writeBlocks() *blockTree {
	if e.blocks == nil {
		e.blocks = e.next.blocks.version()
	}
	return e.blocks
}

// putBlock stores b in place of old, which may be nil.
func (e *edit) putBlock(b, old *block, changed uint64) {
	e.writeBlocks().put(b)
	e.change.addBlock(b.key, changed)
	if old == nil {
		old = &block{}
	}
	e.next.orphans += b.leaderlessCount() - old.leaderlessCount()
	reindex(&e.leaderless, e.next.leaderless, b, b.leaderless, old.leaderless)
	reindex(&e.reassigning, e.next.reassigning, b, b.reassigning, old.reassigning)
}

// reindex brings an index of blocks up to date with b, of whose rows those in is belong
// to it and those in was did.
func reindex(t **iradix.Txn[*block], tree *iradix.Tree[*block], b *block, is, was uint64) {
	switch {
	case is != 0:
		txn(t, tree).Insert(b.key[:], b)
	case was != 0:
		txn(t, tree).Delete(b.key[:])
	}
}

// dropBlock removes a block with all its partitions.
func (e *edit) dropBlock(b *block) {
	for i := range b.rows {
		p := b.partition(i)
		e.next.hash -= hashPartition(b.key.at(i), &p)
	}
	e.writeBlocks().remove(b.key)
	e.change.addBlock(b.key, ^uint64(0))
	e.next.partitions -= len(b.rows)
	e.next.orphans -= b.leaderlessCount()
	reindex(&e.leaderless, e.next.leaderless, b, 0, b.leaderless)
	reindex(&e.reassigning, e.next.reassigning, b, 0, b.reassigning)
}
