package fsm

// The hash of a row is part of what nodes compare: it must not change between
// versions that run in one cluster. The hash of an Image is the sum of its rows'
// hashes, so that Apply keeps it by subtracting the old row and adding the new.

// hasher mixes 64-bit words: multiply by an odd constant, fold the high half down.
type hasher uint64

// Row kinds, so that equal content in rows of different kinds hashes apart.
const (
	rowCluster hasher = iota + 1
	rowProducerID
	rowBroker
	rowTopic
	rowPartition
	rowTombstone
	rowSlot
	rowGroup
	rowOffset
	rowNode
)

func (h *hasher) word(v uint64) {
	x := (uint64(*h) ^ v) * 0x9e3779b97f4a7c15
	*h = hasher(x ^ x>>32)
}

func (h *hasher) int(v int64) { h.word(uint64(v)) }

func (h *hasher) flag(v bool) {
	if v {
		h.word(1)
	} else {
		h.word(0)
	}
}

// bytes mixes the length and eight bytes at a time, the last ones padded with zeros.
func (h *hasher) bytes(p []byte) {
	h.word(uint64(len(p)))
	for len(p) > 0 {
		n := min(8, len(p))
		var v uint64
		for i, c := range p[:n] {
			v |= uint64(c) << (8 * i)
		}
		h.word(v)
		p = p[n:]
	}
}

func (h *hasher) ids(list []BrokerID) {
	h.word(uint64(len(list)))
	for _, id := range list {
		h.int(int64(id))
	}
}

// sum finishes, so that rows that differ in the last word differ in all bits.
func (h *hasher) sum() uint64 {
	h.word(0)
	h.word(0)
	return uint64(*h)
}

func hashCluster(id string) uint64 {
	if id == "" {
		return 0
	}
	h := rowCluster
	h.bytes([]byte(id))
	return h.sum()
}

func hashProducerID(next int64) uint64 {
	if next == 0 {
		return 0
	}
	h := rowProducerID
	h.int(next)
	return h.sum()
}

func hashBroker(b Broker) uint64 {
	h := rowBroker
	h.int(int64(b.ID))
	h.int(int64(b.Epoch))
	h.bytes(b.Folder[:])
	h.bytes(b.Process[:])
	for _, s := range []string{b.BootID, b.Client.Host, b.Peer.Host, b.Rack} {
		h.bytes([]byte(s))
	}
	h.int(int64(b.Client.Port))
	h.int(int64(b.Peer.Port))
	h.flag(b.Fenced)
	h.flag(b.Stopping)
	return h.sum()
}

func hashNode(n Node) uint64 {
	h := rowNode
	h.int(int64(n.ID))
	h.bytes(n.Folder[:])
	h.bytes([]byte(n.Peer.Host))
	h.int(int64(n.Peer.Port))
	h.flag(n.Removed)
	return h.sum()
}

func hashTopic(t *Topic) uint64 {
	h := rowTopic
	h.bytes(t.ID[:])
	h.bytes([]byte(t.Name))
	h.int(int64(t.Partitions))
	for _, kv := range t.sortedConfigs() {
		h.bytes([]byte(kv[0]))
		h.bytes([]byte(kv[1]))
	}
	return h.sum()
}

func hashPartition(tp TopicPartition, p *Partition) uint64 {
	h := rowPartition
	h.bytes(tp.Topic[:])
	h.int(int64(tp.Partition))
	h.int(int64(p.Leader))
	h.int(int64(p.LeaderEpoch))
	h.int(int64(p.PartitionEpoch))
	h.int(int64(p.MinISR))
	h.word(uint64(p.flags()))
	for _, list := range p.lists() {
		h.ids(*list)
	}
	return h.sum()
}

func hashTombstone(t *Tombstone) uint64 {
	h := rowTombstone
	h.bytes(t.ID[:])
	h.bytes([]byte(t.Name))
	h.ids(t.Pending)
	return h.sum()
}
