package fsm

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/weirmq/weir/wire/batch"
	"github.com/weirmq/weir/wire/codec"
)

// changeKind is the first byte of a change's encoding. Numbers are never reused.
type changeKind uint8

const (
	changePutGroup      changeKind = 1
	changeDeleteGroup   changeKind = 2
	changeCommitOffsets changeKind = 3
	changeDeleteOffsets changeKind = 4
	changeExpireOffsets changeKind = 5
)

// Sizes of array elements in memory, for the codec's budget.
const (
	sizeSlotChange      = 12
	sizeGroupChange     = 16
	sizeGroupMember     = 320
	sizeGrant           = 32
	sizeGroupProtocol   = 40
	sizeTopicPartitions = 40
	sizeCommitTopic     = 40
	sizeCommitPartition = 32
	sizeExpiredOffset   = 32
)

func (c *AssignSlots) code(x *codec.Coder) {
	codec.ArrayOf(x, &c.Items, sizeSlotChange, func(x *codec.Coder, i *SlotChange) {
		x.Varint(&i.Slot)
		x.Varint(&i.Epoch)
		codeBroker(x, &i.Owner)
	})
}

func (c *SlotCommand) code(x *codec.Coder) {
	x.Varint(&c.Slot)
	x.Varint(&c.Epoch)
	x.Uvarlong(&c.Seq)
	codec.ArrayOf(x, &c.Changes, sizeGroupChange, codeGroupChange)
}

func codeGroupChange(x *codec.Coder, c *GroupChange) {
	if !x.Reading() {
		k := uint8((*c).changeKind())
		x.Uint8(&k)
		(*c).encodeChange(x)
		return
	}
	var k uint8
	x.Uint8(&k)
	if x.Err() != nil {
		return
	}
	switch changeKind(k) {
	case changePutGroup:
		*c = read(x, (*PutGroup).code)
	case changeDeleteGroup:
		*c = read(x, (*DeleteGroup).code)
	case changeCommitOffsets:
		*c = read(x, (*CommitOffsets).code)
	case changeDeleteOffsets:
		*c = read(x, (*DeleteOffsets).code)
	case changeExpireOffsets:
		*c = read(x, (*ExpireOffsets).code)
	default:
		x.Fail(fmt.Errorf("group change kind %d", k))
	}
}

func (c *PutGroup) code(x *codec.Coder) {
	if x.Reading() {
		c.Group = new(Group)
	}
	c.Group.code(x)
}

func (c *DeleteGroup) code(x *codec.Coder) { x.String(&c.ID) }

func (g *Group) code(x *codec.Coder) {
	x.String(&g.ID)
	x.Uint8((*uint8)(&g.Kind))
	x.Varint(&g.Epoch)
	x.Varint(&g.AssignmentEpoch)
	x.String(&g.ProtocolType)
	x.String(&g.Protocol)
	x.String(&g.Leader)
	codec.ArrayOf(x, &g.Members, sizeGroupMember, func(x *codec.Coder, m *GroupMember) { m.code(x) })
	x.Varlong(&g.EmptySince)
	x.Uint64(&g.MetadataHash)
	noted := uint64(g.Noted)
	x.Uvarlong(&noted)
	if x.Reading() { // a snapshot is written from an Image that others read
		g.Noted = uint32(noted)
	}
	codeOwnBytes(x, (*[]byte)(&g.History))
}

func (m *GroupMember) code(x *codec.Coder) {
	for _, s := range []*string{&m.ID, &m.InstanceID, &m.ClientID, &m.ClientHost, &m.Rack} {
		x.String(s)
	}
	for _, n := range []*int32{&m.SessionMs, &m.RebalanceMs, &m.Epoch, &m.PreviousEpoch} {
		x.Varint(n)
	}
	codec.ArrayOf(x, &m.Protocols, sizeGroupProtocol, func(x *codec.Coder, p *GroupProtocol) {
		x.String(&p.Name)
		codeOwnBytes(x, &p.Metadata)
	})
	codeOwnBytes(x, &m.Assignment)
	x.Strings(&m.Topics)
	x.String(&m.Regex)
	x.String(&m.Assignor)
	for _, list := range []*[]TopicPartitions{&m.Assigned, &m.Target, &m.Revoking} {
		codec.ArrayOf(x, list, sizeTopicPartitions, codeTopicPartitions)
	}
	codec.ArrayOf(x, &m.Grants, sizeGrant, func(x *codec.Coder, g *Grant) {
		x.Varint(&g.Epoch)
		codec.ArrayOf(x, &g.Partitions, sizeTopicPartitions, codeTopicPartitions)
	})
}

// codeOwnBytes codes bytes that do not alias what was read.
func codeOwnBytes(x *codec.Coder, p *[]byte) {
	x.Bytes32(p)
	if x.Reading() {
		*p = slices.Clone(*p)
	}
}

func codeTopicPartitions(x *codec.Coder, t *TopicPartitions) {
	codeTopicID(x, &t.Topic)
	last := int32(-1)
	codec.ArrayOf(x, &t.Partitions, sizeID, func(x *codec.Coder, p *int32) { codeAfter(x, p, &last) })
}

// codeAfter codes a number as its distance from the one that would come next.
func codeAfter(x *codec.Coder, v, last *int32) {
	step := *v - *last - 1
	x.Varint(&step)
	*last += 1 + step
	if x.Reading() {
		*v = *last
	}
}

func (c *CommitOffsets) code(x *codec.Coder) {
	x.String(&c.Group)
	x.String(&c.Member)
	x.String(&c.Instance)
	x.Varint(&c.Epoch)
	x.Varlong(&c.CommitMs)
	x.Varlong(&c.ExpireMs)
	codec.ArrayOf(x, &c.Topics, sizeCommitTopic, codeCommitTopic)
}

// codeCommitTopic takes two bytes and the offset's own length for a partition
// that follows the one before it, of the same leader epoch, without metadata.
func codeCommitTopic(x *codec.Coder, t *CommitTopic) {
	codeTopicID(x, &t.Topic)
	last := CommitPartition{Partition: -1}
	codec.ArrayOf(x, &t.Partitions, sizeCommitPartition, func(x *codec.Coder, p *CommitPartition) {
		codeCommitPartition(x, p, &last)
	})
}

// codeCommitPartition codes the distance from the partition expected next,
// doubled to make room for a bit that tells of metadata, then the offset, the
// distance of the leader epochs, and the metadata if there is any.
func codeCommitPartition(x *codec.Coder, p, last *CommitPartition) {
	if x.Reading() {
		readCommitPartition(x, p, last)
	} else {
		writeCommitPartition(x, p, last)
	}
}

// writeCommitPartition writes in one piece what readCommitPartition reads: there is no
// command whose elements are as many.
func writeCommitPartition(x *codec.Coder, p, last *CommitPartition) {
	step := uint64(uint32(p.Partition-last.Partition-1)) << 1
	if p.Metadata != "" {
		step |= 1
	}
	var buf [3 * binary.MaxVarintLen64]byte
	b := binary.AppendUvarint(buf[:0], step)
	b = binary.AppendVarint(b, int64(p.Offset))
	b = binary.AppendVarint(b, int64(int32(p.LeaderEpoch-last.LeaderEpoch)))
	x.Raw(b)
	if step&1 != 0 {
		x.String(&p.Metadata)
	}
	last.Partition, last.LeaderEpoch = p.Partition, p.LeaderEpoch
}

func readCommitPartition(x *codec.Coder, p, last *CommitPartition) {
	var step uint64
	var epoch int32
	x.Uvarlong(&step)
	x.Varlong((*int64)(&p.Offset))
	x.Varint(&epoch)
	if step&1 != 0 {
		x.String(&p.Metadata)
	}
	last.Partition += 1 + int32(uint32(step>>1))
	last.LeaderEpoch += batch.Epoch(epoch)
	p.Partition, p.LeaderEpoch = last.Partition, last.LeaderEpoch
}

// encodedSize is about what a SlotCommand takes, and not less but for long texts.
func (c SlotCommand) encodedSize() int {
	size := 64
	for _, change := range c.Changes {
		size += 128
		if co, ok := change.(CommitOffsets); ok {
			for i := range co.Topics {
				size += 24 + 10*len(co.Topics[i].Partitions)
			}
		}
	}
	return size
}

func (c *DeleteOffsets) code(x *codec.Coder) {
	x.String(&c.Group)
	codec.ArrayOf(x, &c.Partitions, sizeTopicPartition, codeTP)
}

func (c *ExpireOffsets) code(x *codec.Coder) {
	x.String(&c.Group)
	x.Varint(&c.Epoch)
	codec.ArrayOf(x, &c.Partitions, sizeExpiredOffset, func(x *codec.Coder, p *ExpiredOffset) {
		codeTP(x, &p.TP)
		x.Varlong(&p.CommitMs)
	})
}

func (AssignSlots) kind() kind              { return kindAssignSlots }
func (c AssignSlots) encode(w *codec.Coder) { c.code(w) }

func (SlotCommand) kind() kind              { return kindSlotCommand }
func (c SlotCommand) encode(w *codec.Coder) { c.code(w) }

func (c PutGroup) group() string               { return c.Group.ID }
func (PutGroup) changeKind() changeKind        { return changePutGroup }
func (c PutGroup) encodeChange(w *codec.Coder) { c.code(w) }

func (c DeleteGroup) group() string               { return c.ID }
func (DeleteGroup) changeKind() changeKind        { return changeDeleteGroup }
func (c DeleteGroup) encodeChange(w *codec.Coder) { c.code(w) }

func (c CommitOffsets) group() string               { return c.Group }
func (CommitOffsets) changeKind() changeKind        { return changeCommitOffsets }
func (c CommitOffsets) encodeChange(w *codec.Coder) { c.code(w) }

func (c DeleteOffsets) group() string               { return c.Group }
func (DeleteOffsets) changeKind() changeKind        { return changeDeleteOffsets }
func (c DeleteOffsets) encodeChange(w *codec.Coder) { c.code(w) }

func (c ExpireOffsets) group() string               { return c.Group }
func (ExpireOffsets) changeKind() changeKind        { return changeExpireOffsets }
func (c ExpireOffsets) encodeChange(w *codec.Coder) { c.code(w) }
