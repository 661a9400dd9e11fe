package fsm

import (
	"bytes"
	"iter"

	"github.com/tidwall/btree"
)

// blockTree is the blocks in the order of their keys. Versions share what they have in
// common; one that is in an Image does not change. It is a B-tree, where the others are radix
// trees: ids are random, so that a change in a radix tree copies two nodes of 256 children.
type blockTree struct{ tree *btree.BTreeG[blockEntry] }

// blockEntry has the beginning of the key beside the block: it tells random ids apart, so that
// a search looks at few blocks, and a node, which each change copies, is small. One without a
// block stands before all of its prefix, to look for them.
type blockEntry struct {
	prefix uint64
	b      *block
}

func entryOf(b *block) blockEntry { return blockEntry{b.key.prefix(), b} }

func (e blockEntry) less(than blockEntry) bool {
	switch {
	case e.prefix != than.prefix:
		return e.prefix < than.prefix
	case e.b == nil || than.b == nil:
		return than.b != nil
	}
	return bytes.Compare(e.b.key[:], than.b.key[:]) < 0
}

const blockTreeDegree = 16 // half of the most entries of a node, which is half a kilobyte then

func newBlockTree() *blockTree {
	return &blockTree{tree: btree.NewBTreeGOptions(blockEntry.less, btree.Options{NoLocks: true, Degree: blockTreeDegree})}
}

// version returns a tree that may be changed, and leaves t as it is: the library's Copy notes
// in both trees that they share their nodes, so it is given another head than t's to note it
// in, and t is only read. Nobody may change t from then on.
func (t *blockTree) version() *blockTree {
	head := *t.tree
	return &blockTree{tree: head.Copy()}
}

// get returns the block of a key. It allocates nothing for the first of a prefix, which is all
// that most topics have: a block to look for would be on the heap, since the library calls a
// function that compares.
func (t *blockTree) get(k blockKey) (*block, bool) {
	var first *block
	t.tree.Ascend(blockEntry{prefix: k.prefix()}, func(e blockEntry) bool {
		first = e.b
		return false
	})
	if first == nil || first.key == k {
		return first, first != nil
	}
	e, ok := t.tree.Get(entryOf(&block{key: k}))
	return e.b, ok
}

func (t *blockTree) put(b *block) { t.tree.Set(entryOf(b)) }

func (t *blockTree) remove(k blockKey) { t.tree.Delete(entryOf(&block{key: k})) }

// all yields the blocks in order.
func (t *blockTree) all() iter.Seq[*block] {
	return func(yield func(*block) bool) {
		t.tree.Scan(func(e blockEntry) bool { return yield(e.b) })
	}
}

// of yields the blocks of a topic in order.
func (t *blockTree) of(id TopicID) iter.Seq[*block] {
	return func(yield func(*block) bool) {
		first := &block{key: keyOf(TopicPartition{Topic: id})}
		t.tree.Ascend(entryOf(first), func(e blockEntry) bool {
			return e.b.key.topic() == id && yield(e.b)
		})
	}
}
