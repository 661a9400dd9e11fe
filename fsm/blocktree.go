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

// blockEntry has the key beside the block, so that a search looks at no block.
type blockEntry struct {
	key blockKey
	b   *block
}

const blockTreeDegree = 16 // half of the most entries of a node, which is a kilobyte then

func newBlockTree() *blockTree {
	less := func(a, b blockEntry) bool { return bytes.Compare(a.key[:], b.key[:]) < 0 }
	return &blockTree{tree: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true, Degree: blockTreeDegree})}
}

// version returns a tree that may be changed, and leaves t as it is: the library's Copy notes
// in both trees that they share their nodes, so it is given another head than t's to note it
// in, and t is only read. Nobody may change t from then on.
func (t *blockTree) version() *blockTree {
	head := *t.tree
	return &blockTree{tree: head.Copy()}
}

func (t *blockTree) get(k blockKey) (*block, bool) {
	e, ok := t.tree.Get(blockEntry{key: k})
	return e.b, ok
}

func (t *blockTree) put(b *block) { t.tree.Set(blockEntry{*b.key, b}) }

func (t *blockTree) remove(k blockKey) { t.tree.Delete(blockEntry{key: k}) }

// all yields the blocks in order.
func (t *blockTree) all() iter.Seq[*block] {
	return func(yield func(*block) bool) {
		t.tree.Scan(func(e blockEntry) bool { return yield(e.b) })
	}
}

// of yields the blocks of a topic in order.
func (t *blockTree) of(id TopicID) iter.Seq[*block] {
	return func(yield func(*block) bool) {
		t.tree.Ascend(blockEntry{key: keyOf(TopicPartition{Topic: id})}, func(e blockEntry) bool {
			return e.key.topic() == id && yield(e.b)
		})
	}
}
