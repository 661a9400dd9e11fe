package fsm

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/bits"
)

// CheckImage returns the first invariant of the package that im breaks. It looks
// at every row, and at every index from scratch.
func CheckImage(im *Image) error {
	if h := recomputedHash(im); h != im.hash {
		return fmt.Errorf("hash %016x, recomputed %016x", im.hash, h)
	}
	for i, b := range im.brokers {
		if b.ID < 1 || i > 0 && im.brokers[i-1].ID >= b.ID {
			return fmt.Errorf("broker %d out of order", b.ID)
		}
	}
	if err := checkNodes(im); err != nil {
		return err
	}
	partitions, orphans := 0, 0
	for b := range im.blocks.all() {
		if err := checkBlock(im, b); err != nil {
			return err
		}
		partitions += len(b.rows)
		orphans += bits.OnesCount64(b.leaderless)
	}
	if partitions != im.partitions || orphans != im.orphans {
		return fmt.Errorf("counts %d partitions, %d leaderless; found %d, %d", im.partitions, im.orphans, partitions, orphans)
	}
	if err := checkIndexes(im); err != nil {
		return err
	}
	if err := checkTopics(im); err != nil {
		return err
	}
	return checkGroups(im)
}

// checkIndexes compares the indexes of blocks with what the blocks hold.
func checkIndexes(im *Image) error {
	leaderless, reassigning := 0, 0
	for b := range im.blocks.all() {
		if b.leaderless != 0 {
			leaderless++
			if at, _ := im.leaderless.Get(b.key[:]); at != b {
				return fmt.Errorf("leaderless index has another block of %x", b.key)
			}
		}
		if b.reassigning != 0 {
			reassigning++
			if at, _ := im.reassigning.Get(b.key[:]); at != b {
				return fmt.Errorf("index of reassignments has another block of %x", b.key)
			}
		}
	}
	if im.leaderless.Len() != leaderless || im.reassigning.Len() != reassigning {
		return fmt.Errorf("indexes hold %d leaderless blocks, want %d, and %d with reassignments, want %d",
			im.leaderless.Len(), leaderless, im.reassigning.Len(), reassigning)
	}
	return nil
}

// checkNodes: an id and a folder belong to each other, and what left is gone.
func checkNodes(im *Image) error {
	folders := map[[16]byte]bool{}
	for i, n := range im.nodes {
		if n.ID < 1 || i > 0 && im.nodes[i-1].ID >= n.ID || folders[n.Folder] {
			return fmt.Errorf("node %d out of order, or in the folder of another", n.ID)
		}
		folders[n.Folder] = true
		b, registered := im.Broker(n.ID)
		if registered && (n.Removed || b.Folder != n.Folder) {
			return fmt.Errorf("node %+v beside broker %+v", n, b)
		}
		if n.Removed && im.hosts(n.ID) {
			return fmt.Errorf("node %d is removed and hosts replicas", n.ID)
		}
	}
	return nil
}

func checkBlock(im *Image, b *block) error {
	t, ok := im.Topic(b.key.topic())
	if !ok {
		return fmt.Errorf("block %x without topic", b.key)
	}
	for i := range b.rows {
		p, tp := b.partition(i), b.key.at(i)
		if fault := p.fault(); fault != "" {
			return fmt.Errorf("%s-%d: %s", t.Name, tp.Partition, fault)
		}
		if tp.Partition >= t.Partitions {
			return fmt.Errorf("%s-%d: the topic has %d partitions", t.Name, tp.Partition, t.Partitions)
		}
		for _, id := range p.ISR {
			if b, known := im.Broker(id); !known || b.Fenced {
				return fmt.Errorf("%s-%d: ISR %v holds unknown or fenced broker %d", t.Name, tp.Partition, p.ISR, id)
			}
		}
		for _, id := range p.Replicas {
			if b.seats&seat(id) == 0 || !b.hosts(i, id) {
				return fmt.Errorf("%s-%d: replica %d is not in the block's filter", t.Name, tp.Partition, id)
			}
		}
		if (p.Leader == NoBroker) != (b.leaderless&(1<<i) != 0) {
			return fmt.Errorf("%s-%d: leader %d, leaderless bits %b", t.Name, tp.Partition, p.Leader, b.leaderless)
		}
		if (len(p.Adding)+len(p.Removing) > 0) != (b.reassigning&(1<<i) != 0) {
			return fmt.Errorf("%s-%d: adding %v, removing %v, bits %b", t.Name, tp.Partition, p.Adding, p.Removing, b.reassigning)
		}
	}
	return nil
}

func checkTopics(im *Image) error {
	rows := 0
	for t := range values(im.topics) {
		if named, _ := im.TopicByName(t.Name); named != t {
			return fmt.Errorf("topic %s is not what its name leads to", t.Name)
		}
		if _, buried := im.Tombstone(t.ID); buried {
			return fmt.Errorf("topic %s is alive and buried", t.Name)
		}
		n := int32(0)
		for i := range im.Partitions(t.ID) {
			if i != n {
				return fmt.Errorf("topic %s: partition %d where %d should be", t.Name, i, n)
			}
			n++
		}
		if n != t.Partitions {
			return fmt.Errorf("topic %s: %d partitions, want %d", t.Name, n, t.Partitions)
		}
		rows++
	}
	if rows != im.names.Len() {
		return fmt.Errorf("%d topics, %d names", rows, im.names.Len())
	}
	for t := range im.Tombstones() {
		if len(t.Pending) == 0 {
			return fmt.Errorf("tombstone of %s waits for nobody", t.Name)
		}
	}
	return nil
}

func recomputedHash(im *Image) uint64 {
	sum := hashCluster(im.clusterID) + hashProducerID(im.nextProducerID) + hashOfGroups(im)
	for b := range im.Brokers() {
		sum += hashBroker(b)
	}
	for n := range im.Nodes() {
		sum += hashNode(n)
	}
	for t := range im.Topics() {
		sum += hashTopic(t)
		for i, p := range im.Partitions(t.ID) {
			sum += hashPartition(TopicPartition{t.ID, i}, &p)
		}
	}
	for t := range im.Tombstones() {
		sum += hashTombstone(&t)
	}
	return sum
}

// CheckMinISR returns an error when a partition's minimum is not the one that
// its topic's config gives.
func CheckMinISR(im *Image) error {
	for t := range im.Topics() {
		for i, p := range im.Partitions(t.ID) {
			if want := EffectiveMinISR(t.Config.MinISR, p.Replicas, p.Adding); p.MinISR != want {
				return fmt.Errorf("%s-%d: min ISR %d, want %d", t.Name, i, p.MinISR, want)
			}
		}
	}
	return nil
}

// ReadSnapshotUnchecked restores a snapshot as if its checksum were right.
func ReadSnapshotUnchecked(p []byte) (*Image, error) {
	if len(p) < len(snapshotMagic)+1 {
		return nil, io.ErrUnexpectedEOF
	}
	s := frameReader{r: bufio.NewReader(bytes.NewReader(p[len(snapshotMagic)+1:]))}
	e := edit{next: NewImage()}
	for ; ; s.frame++ {
		kind, body, err := s.next()
		if err == nil && kind != frameEnd {
			_, err = e.restore(s.frame, kind, body)
		}
		if err != nil {
			return nil, err
		}
		if kind == frameEnd {
			e.commit()
			return e.next, nil
		}
	}
}

// ForgetJournal makes Diff compare every row.
func ForgetJournal(im *Image) *Image {
	forgetful := *im
	forgetful.journal = newJournal()
	return &forgetful
}

// JournalKnows reports whether Diff from old to new can do without a full comparison.
func JournalKnows(old, new *Image) bool {
	_, _, ok := new.journal.since(old.journal)
	return ok
}

// JournalLength is how many changes an Image carries.
func JournalLength(im *Image) int {
	n := 0
	for _, c := range []*change{im.journal.head, im.journal.before} {
		for ; c != nil; c = c.prev {
			n++
		}
	}
	return n
}
