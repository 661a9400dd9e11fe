package fsm

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/weirmq/weir/wire/batch"
)

// blockSize is how many partitions of a topic share a row of the Image. A
// change copies one block, and one costs some 150 bytes beside its rows: 64 makes
// both small beside a partition's 48 bytes.
const blockSize = 64

// blockKey is (topic id, block number) in an order that sorts by both.
type blockKey [20]byte

func keyOf(tp TopicPartition) blockKey {
	var k blockKey
	copy(k[:16], tp.Topic[:])
	binary.BigEndian.PutUint32(k[16:], uint32(tp.Partition)/blockSize)
	return k
}

func (k *blockKey) topic() TopicID { return TopicID(k[:16]) }

// prefix is the beginning of the key, in the same order.
func (k *blockKey) prefix() uint64 { return binary.BigEndian.Uint64(k[:]) }

// at names the i-th partition of the block.
func (k *blockKey) at(i int) TopicPartition {
	return TopicPartition{Topic: k.topic(), Partition: int32(binary.BigEndian.Uint32(k[16:]))*blockSize + int32(i)}
}

// block holds up to blockSize consecutive partitions of one topic; immutable.
type block struct {
	key        blockKey
	rows       []row
	ids        []BrokerID // the rows' lists, back to back
	seats      uint64     // bit (id mod 64) is set for every replica id: a filter, not a proof
	leaderless uint64     // bit i is set when row i has no leader
	// bit i is set when a reassignment of row i runs
	reassigning uint64
}

// row is a Partition with its lists moved to the block's ids.
type row struct {
	leader         BrokerID
	leaderEpoch    batch.Epoch
	partitionEpoch PartitionEpoch
	start          uint16 // of the row's lists in ids
	minISR         uint8
	durability     Durability
	recovering     bool
	confirmed      bool
	lengths        [6]uint8 // of Replicas, ISR, ELR, LastMembers, Adding, Removing
}

// ids is how many ids the row's lists hold.
func (r *row) ids() int {
	n := 0
	for _, l := range r.lengths {
		n += int(l)
	}
	return n
}

// The places of some lists in row.lengths.
const (
	listReplicas = 0
	listAdding   = 4
	listRemoving = 5
)

// lists returns p's lists in the order of row.lengths.
func (p *Partition) lists() [6]*[]BrokerID {
	return [6]*[]BrokerID{&p.Replicas, &p.ISR, &p.ELR, &p.LastMembers, &p.Adding, &p.Removing}
}

// newBlock packs n partitions, taken from at.
func newBlock(key blockKey, n int, at func(int) Partition) *block {
	b := &block{key: key, rows: make([]row, n)}
	var stack [blockSize * 6]BrokerID
	ids := stack[:0]
	for i := range n {
		p := at(i)
		ids = b.pack(i, &p, ids)
	}
	b.ids = make([]BrokerID, len(ids))
	copy(b.ids, ids)
	return b
}

// pack makes p row i, with its lists at the end of ids.
func (b *block) pack(i int, p *Partition, ids []BrokerID) []BrokerID {
	r := &b.rows[i]
	*r = row{
		leader: p.Leader, leaderEpoch: p.LeaderEpoch, partitionEpoch: p.PartitionEpoch,
		start: uint16(len(ids)), minISR: uint8(p.MinISR), durability: p.Durability, recovering: p.Recovering, confirmed: p.Confirmed,
	}
	for j, list := range p.lists() {
		ids = append(ids, *list...)
		r.lengths[j] = uint8(len(*list))
	}
	b.index(i, p.Replicas)
	return ids
}

// index notes row i in what is kept of all rows.
func (b *block) index(i int, replicas []BrokerID) {
	for _, id := range replicas {
		b.seats |= seat(id)
	}
	if b.rows[i].leader == NoBroker {
		b.leaderless |= 1 << i
	}
	if b.rows[i].lengths[listAdding]+b.rows[i].lengths[listRemoving] > 0 {
		b.reassigning |= 1 << i
	}
}

// seat is the bit of a broker in block.seats.
func seat(id BrokerID) uint64 { return 1 << (uint32(id) % 64) }

// partition unpacks row i. Its lists alias the block.
func (b *block) partition(i int) Partition {
	r := &b.rows[i]
	p := Partition{
		Leader: r.leader, LeaderEpoch: r.leaderEpoch, PartitionEpoch: r.partitionEpoch,
		MinISR: int16(r.minISR), Durability: r.durability, Recovering: r.recovering, Confirmed: r.confirmed,
	}
	ids := b.ids[r.start:]
	take := func(n uint8) []BrokerID {
		if n == 0 {
			return nil
		}
		list := ids[:n:n]
		ids = ids[n:]
		return list
	}
	p.Replicas = take(r.lengths[0])
	p.ISR = take(r.lengths[1])
	p.ELR = take(r.lengths[2])
	p.LastMembers = take(r.lengths[3])
	p.Adding = take(r.lengths[4])
	p.Removing = take(r.lengths[5])
	return p
}

// seated reports, without unpacking the row, whether id is in one of row i's lists
// that a broker which leaves so may be in: the ISR, unless it left whole the ELR,
// without its log the last members.
func (b *block) seated(i int, id BrokerID, how departure) bool {
	r := &b.rows[i]
	from := int(r.start) + int(r.lengths[0])
	to := from + int(r.lengths[1])
	if how != leftWhole {
		to += int(r.lengths[2])
	}
	if how == leftEmpty {
		to += int(r.lengths[3])
	}
	for _, m := range b.ids[from:to] {
		if m == id {
			return true
		}
	}
	return false
}

// hosts reports whether id is a replica of row i.
func (b *block) hosts(i int, id BrokerID) bool {
	r := &b.rows[i]
	for _, m := range b.ids[r.start : int(r.start)+int(r.lengths[0])] {
		if m == id {
			return true
		}
	}
	return false
}

// openBlock collects changes to one block, so that many changes copy it once.
type openBlock struct {
	base    *block
	key     blockKey         // base's
	changed uint64           // bit i: row i is replaced
	place   [blockSize]uint8 // where in rows, for changed ones
	rows    []Partition
}

func (o *openBlock) partition(i int) Partition {
	if o.changed&(1<<i) != 0 {
		return o.rows[o.place[i]]
	}
	return o.base.partition(i)
}

func (o *openBlock) set(i int, p Partition) {
	if o.changed&(1<<i) != 0 {
		o.rows[o.place[i]] = p
		return
	}
	o.changed |= 1 << i
	o.place[i] = uint8(len(o.rows))
	o.rows = append(o.rows, p)
}

// reset starts over with another block, keeping the memory.
func (o *openBlock) reset(key blockKey, base *block) {
	o.base, o.key, o.changed, o.rows = base, key, 0, o.rows[:0]
}

// close returns the changed block. Rows that stay are copied as they are packed.
func (o *openBlock) close() *block {
	old := o.base
	b := &block{key: old.key, rows: slices.Clone(old.rows)}
	var stack [blockSize * 6]BrokerID
	ids := stack[:0]
	for i := range b.rows {
		if o.changed&(1<<i) != 0 {
			ids = b.pack(i, &o.rows[o.place[i]], ids)
			continue
		}
		r := &b.rows[i]
		lists := old.ids[r.start:][:r.ids()]
		r.start = uint16(len(ids))
		ids = append(ids, lists...)
		b.index(i, lists[:r.lengths[0]])
	}
	b.ids = slices.Clone(ids)
	return b
}

// leaderlessCount is how many rows have no leader.
func (b *block) leaderlessCount() int { return bits.OnesCount64(b.leaderless) }
