package fsm

import (
	"bytes"
	"slices"
)

// Delta is what differs between two Images.
type Delta struct {
	Brokers    []BrokerID       // registered, changed or gone, ascending
	Topics     []TopicID        // created, changed or deleted, ascending
	Partitions []PartitionDelta // created, changed or deleted, ascending by topic id and number
	Buried     []Tombstone      // tombstones that are new or have fewer replicas pending, ascending by id
	Cleared    []TopicID        // tombstones that are gone: every replica has confirmed; ascending
	Slots      []SlotDelta      // slots of another owner or epoch, ascending; a mere sequence is no difference
}

// Empty reports whether nothing differs.
func (d *Delta) Empty() bool {
	return len(d.Brokers)+len(d.Topics)+len(d.Partitions)+len(d.Buried)+len(d.Cleared)+len(d.Slots) == 0
}

// PartitionDelta is one partition before and after.
type PartitionDelta struct {
	TP   TopicPartition
	Name string     // of the topic
	Old  *Partition // nil when it was created
	New  *Partition // nil when it was deleted
}

// SlotDelta is one slot before and after.
type SlotDelta struct {
	Slot     int32
	Old, New Slot
}

// Diff returns what changed from old to new. When new grew out of old by a few
// thousand commands the cost is that of what they changed; otherwise (after a
// restore, or for two unrelated Images) every row is compared.
func Diff(old, new *Image) Delta {
	if old == new {
		return Delta{}
	}
	var d Delta
	d.Brokers = diffBrokers(old.brokers, new.brokers)
	d.Slots = diffSlots(old, new)
	blocks, topics, ok := new.journal.since(old.journal)
	if !ok {
		blocks, topics = everything(old, new)
	}
	for _, id := range topics {
		d.addTopic(old, new, id)
	}
	for _, b := range blocks {
		d.addBlock(old, new, b)
	}
	return d
}

func (d *Delta) addTopic(old, new *Image, id TopicID) {
	a, _ := old.Topic(id)
	b, _ := new.Topic(id)
	if !sameTopic(a, b) {
		d.Topics = append(d.Topics, id)
	}
	was, had := old.Tombstone(id)
	is, has := new.Tombstone(id)
	switch {
	case has && !(had && slices.Equal(was.Pending, is.Pending)):
		d.Buried = append(d.Buried, is)
	case had && !has:
		d.Cleared = append(d.Cleared, id)
	}
}

func (d *Delta) addBlock(old, new *Image, c blockChange) {
	a, _ := old.blocks.get(c.key)
	b, _ := new.blocks.get(c.key)
	if a == b {
		return
	}
	name := topicName(old, new, c.key.topic())
	for i := range blockSize {
		if c.rows&(1<<i) == 0 {
			continue
		}
		was, is := a.row(i), b.row(i)
		if was == nil && is == nil || was != nil && is != nil && was.equal(is) {
			continue
		}
		d.Partitions = append(d.Partitions, PartitionDelta{TP: c.key.at(i), Name: name, Old: was, New: is})
	}
}

// row is partition i, or nil when the block or the row does not exist.
func (b *block) row(i int) *Partition {
	if b == nil || i >= len(b.rows) {
		return nil
	}
	p := b.partition(i)
	return &p
}

func (p *Partition) equal(q *Partition) bool {
	if p.Leader != q.Leader || p.LeaderEpoch != q.LeaderEpoch || p.PartitionEpoch != q.PartitionEpoch ||
		p.MinISR != q.MinISR || p.Durability != q.Durability || p.Recovering != q.Recovering || p.Confirmed != q.Confirmed {
		return false
	}
	a, b := p.lists(), q.lists()
	for i := range a {
		if !slices.Equal(*a[i], *b[i]) {
			return false
		}
	}
	return true
}

func sameTopic(a, b *Topic) bool {
	if a == nil || b == nil || a == b {
		return a == b
	}
	return a.Name == b.Name && a.Partitions == b.Partitions && slices.Equal(a.sortedConfigs(), b.sortedConfigs())
}

// topicName is the name of a topic that exists in one of the Images.
func topicName(old, new *Image, id TopicID) string {
	if t, ok := new.Topic(id); ok {
		return t.Name
	}
	if t, ok := old.Topic(id); ok {
		return t.Name
	}
	return ""
}

// diffBrokers merges two ordered lists.
func diffBrokers(a, b []Broker) []BrokerID {
	if len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) {
		return nil
	}
	var out []BrokerID
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].ID < b[0].ID:
			out, a = append(out, a[0].ID), a[1:]
		case len(a) == 0 || b[0].ID < a[0].ID:
			out, b = append(out, b[0].ID), b[1:]
		default:
			if a[0] != b[0] {
				out = append(out, a[0].ID)
			}
			a, b = a[1:], b[1:]
		}
	}
	return out
}

// everything lists all topics and blocks of both Images, but for blocks that
// they share.
func everything(old, new *Image) ([]blockChange, []TopicID) {
	var blocks []blockChange
	for b := range old.blocks.all() {
		if other, _ := new.blocks.get(b.key); other != b {
			blocks = append(blocks, blockChange{b.key, ^uint64(0)})
		}
	}
	for b := range new.blocks.all() {
		if _, both := old.blocks.get(b.key); !both {
			blocks = append(blocks, blockChange{b.key, ^uint64(0)})
		}
	}
	var topics []TopicID
	for _, im := range []*Image{old, new} {
		for t := range im.Topics() {
			topics = append(topics, t.ID)
		}
		for t := range im.Tombstones() {
			topics = append(topics, t.ID)
		}
	}
	return sortChanges(blocks, topics)
}

// sortChanges orders both lists and joins what is in them twice.
func sortChanges(blocks []blockChange, topics []TopicID) ([]blockChange, []TopicID) {
	slices.SortFunc(blocks, func(a, b blockChange) int { return bytes.Compare(a.key[:], b.key[:]) })
	joined := blocks[:0]
	for _, b := range blocks {
		if n := len(joined); n > 0 && joined[n-1].key == b.key {
			joined[n-1].rows |= b.rows
			continue
		}
		joined = append(joined, b)
	}
	slices.SortFunc(topics, func(a, b TopicID) int { return bytes.Compare(a[:], b[:]) })
	return joined, slices.Compact(topics)
}
