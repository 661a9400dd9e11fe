package fsm

import (
	"iter"
	"slices"

	iradix "github.com/hashicorp/go-immutable-radix/v2"
)

// Image is one version of everything the cluster has agreed on. It is immutable
// and safe for concurrent use; Apply makes the next version, which shares all
// that did not change. What its methods return belongs to it and must not be
// modified.
type Image struct {
	index          uint64
	clusterID      string
	nextProducerID int64
	hash           uint64 // sum of the hashes of all rows; the index is not a row

	brokers     []Broker                 // ascending id; replaced as a whole
	nodes       []Node                   // ascending id; replaced as a whole
	topics      *iradix.Tree[*Topic]     // by id
	names       *iradix.Tree[*Topic]     // the same topics by name
	blocks      *blockTree               // by blockKey
	leaderless  *iradix.Tree[*block]     // the blocks with a partition that has no leader
	reassigning *iradix.Tree[*block]     // the blocks with a partition whose reassignment runs
	tombstones  *iradix.Tree[*Tombstone] // by id

	partitions int // in all blocks
	orphans    int // those of them that have no leader
	facts      groupFacts
	journal    journal
}

// NewImage returns the Image before the first command.
func NewImage() *Image {
	return &Image{
		topics:      iradix.New[*Topic](),
		names:       iradix.New[*Topic](),
		blocks:      newBlockTree(),
		leaderless:  iradix.New[*block](),
		reassigning: iradix.New[*block](),
		tombstones:  iradix.New[*Tombstone](),
		facts:       newGroupFacts(),
		journal:     newJournal(),
	}
}

// Index is the Raft index of the last command applied, refused ones included.
func (im *Image) Index() uint64 { return im.index }

// ClusterID is the cluster's id, "" before InitCluster.
func (im *Image) ClusterID() string { return im.clusterID }

// Hash is a checksum of the content. Two nodes whose Images have the same index
// must have the same hash.
func (im *Image) Hash() uint64 { return im.hash }

// NextProducerID is the first producer id that no block has been given out for.
func (im *Image) NextProducerID() int64 { return im.nextProducerID }

// PartitionCount is the number of partitions of all topics.
func (im *Image) PartitionCount() int { return im.partitions }

// LeaderlessCount is the number of partitions that have no leader.
func (im *Image) LeaderlessCount() int { return im.orphans }

// Broker returns the broker registered under id.
func (im *Image) Broker(id BrokerID) (Broker, bool) {
	i, ok := findBroker(im.brokers, id)
	if !ok {
		return Broker{}, false
	}
	return im.brokers[i], true
}

// Node returns what is for good of a node id; see the type for those that have a row.
func (im *Image) Node(id BrokerID) (Node, bool) {
	i, ok := findNode(im.nodes, id)
	if !ok {
		return Node{}, false
	}
	return im.nodes[i], true
}

// Nodes yields all that is for good of node ids, by ascending id, removed nodes included.
func (im *Image) Nodes() iter.Seq[Node] { return slices.Values(im.nodes) }

// Removed tells whether a node in a folder has been taken out of the cluster.
func (im *Image) Removed(id BrokerID, folder [16]byte) bool {
	n, ok := im.Node(id)
	return ok && n.Removed && n.Folder == folder
}

// Eligible reports whether id is a registered broker that may enter an ISR and lead.
func (im *Image) Eligible(id BrokerID) bool {
	b, ok := im.Broker(id)
	return ok && b.Eligible()
}

// Brokers yields all registered brokers by ascending id.
func (im *Image) Brokers() iter.Seq[Broker] {
	return func(yield func(Broker) bool) {
		for i := range im.brokers {
			if !yield(im.brokers[i]) {
				return
			}
		}
	}
}

// Topic returns the topic with that id.
func (im *Image) Topic(id TopicID) (*Topic, bool) { return im.topics.Get(id[:]) }

// TopicByName returns the topic that has the name now.
func (im *Image) TopicByName(name string) (*Topic, bool) { return im.names.Get([]byte(name)) }

// Topics yields all topics by ascending name.
func (im *Image) Topics() iter.Seq[*Topic] { return values(im.names) }

// TopicCount is the number of topics.
func (im *Image) TopicCount() int { return im.topics.Len() }

// Tombstone returns what is left of the deleted topic with that id.
func (im *Image) Tombstone(id TopicID) (Tombstone, bool) {
	t, ok := im.tombstones.Get(id[:])
	if !ok {
		return Tombstone{}, false
	}
	return *t, true
}

// Tombstones yields all tombstones by ascending topic id.
func (im *Image) Tombstones() iter.Seq[Tombstone] {
	return func(yield func(Tombstone) bool) {
		for t := range values(im.tombstones) {
			if !yield(*t) {
				return
			}
		}
	}
}

// Partition returns the state of one partition.
func (im *Image) Partition(tp TopicPartition) (Partition, bool) {
	if tp.Partition < 0 {
		return Partition{}, false
	}
	b, ok := im.blocks.get(keyOf(tp))
	i := int(tp.Partition % blockSize)
	if !ok || i >= len(b.rows) {
		return Partition{}, false
	}
	return b.partition(i), true
}

// Partitions yields the partitions of one topic by ascending number.
func (im *Image) Partitions(id TopicID) iter.Seq2[int32, Partition] {
	return func(yield func(int32, Partition) bool) {
		for b := range im.blocks.of(id) {
			for i := range b.rows {
				if !yield(b.key.at(i).Partition, b.partition(i)) {
					return
				}
			}
		}
	}
}

// Hosted yields the partitions that have a replica on broker id, in order of
// topic id and number. It passes over every block of the Image (some 10 ms for
// 100,000 topics).
func (im *Image) Hosted(id BrokerID) iter.Seq2[TopicPartition, Partition] {
	return func(yield func(TopicPartition, Partition) bool) {
		for b := range im.blocksOf(id) {
			for i := range b.rows {
				if b.hosts(i, id) && !yield(b.key.at(i), b.partition(i)) {
					return
				}
			}
		}
	}
}

// Leaderless yields the partitions that have no leader, in order of topic id
// and number, in time proportional to their number.
func (im *Image) Leaderless() iter.Seq2[TopicPartition, Partition] {
	return func(yield func(TopicPartition, Partition) bool) {
		for b := range values(im.leaderless) {
			for i := range b.rows {
				if b.leaderless&(1<<i) != 0 && !yield(b.key.at(i), b.partition(i)) {
					return
				}
			}
		}
	}
}

// blocksOf yields the blocks that may have a replica on id, in order of key.
// There is no index by broker: it would need an entry for every broker of every
// block, while a pass over the blocks costs little beside rewriting those found.
func (im *Image) blocksOf(id BrokerID) iter.Seq[*block] {
	return func(yield func(*block) bool) {
		for b := range im.blocks.all() {
			if b.seats&seat(id) != 0 && !yield(b) {
				return
			}
		}
	}
}

// values yields a tree's values in order of key.
func values[T any](t *iradix.Tree[T]) iter.Seq[T] {
	return func(yield func(T) bool) {
		t.Root().Walk(func(_ []byte, v T) bool { return !yield(v) })
	}
}
