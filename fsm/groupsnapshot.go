package fsm

import (
	"errors"
	"fmt"
	"math"

	"github.com/weirmq/weir/wire/codec"
)

// slotRows are the slots that ever had an owner, as they stand in a snapshot.
type slotRows struct {
	rows []numberedSlot
}

type numberedSlot struct {
	number int32
	row    slotRow
}

// offsetRows is one row of offsets, as it stands in a snapshot.
type offsetRows struct {
	group string
	topic TopicID
	rows  []numberedOffset
}

type numberedOffset struct {
	partition int32
	Committed
}

// Sizes of array elements in memory, for the codec's budget.
const (
	sizeNumberedSlot   = 48
	sizeItemRefusal    = 8
	sizeNumberedOffset = 64
)

func (s *slotRows) code(x *codec.Coder) {
	codec.ArrayOf(x, &s.rows, sizeNumberedSlot, func(x *codec.Coder, s *numberedSlot) {
		x.Varint(&s.number)
		codeBroker(x, &s.row.Owner)
		x.Varint(&s.row.Epoch)
		x.Uvarlong(&s.row.Seq)
		codec.ArrayOf(x, &s.row.refused, sizeItemRefusal, func(x *codec.Coder, no *itemRefusal) {
			x.Varint(&no.item)
			x.Uint8((*uint8)(&no.why))
		})
	})
}

// code takes some eight bytes and the offset's own length for a partition. What
// is alike in neighbours is coded as the difference.
func (o *offsetRows) code(x *codec.Coder) {
	x.String(&o.group)
	codeTopicID(x, &o.topic)
	last := numberedOffset{partition: -1, Committed: Committed{ExpireMs: -1}}
	codec.ArrayOf(x, &o.rows, sizeNumberedOffset, func(x *codec.Coder, p *numberedOffset) {
		codeAfter(x, &p.partition, &last.partition)
		x.Varlong((*int64)(&p.Offset))
		x.Varint((*int32)(&p.LeaderEpoch))
		codeFrom(x, &p.CommitMs, &last.CommitMs)
		codeFrom(x, &p.ExpireMs, &last.ExpireMs)
		x.String(&p.Metadata)
	})
}

// codeFrom codes a number as its distance from the last one.
func codeFrom(x *codec.Coder, v, last *int64) {
	step := *v - *last
	x.Varlong(&step)
	*v = *last + step
	*last = *v
}

// groups writes the frames of slots, groups and offsets.
func (s *frameWriter) groups(im *Image) {
	var slots slotRows
	for i, row := range im.facts.slots {
		if row != nil {
			slots.rows = append(slots.rows, numberedSlot{int32(i), *row})
		}
	}
	if len(slots.rows) > 0 {
		s.frame(frameSlots, slots.code)
	}
	for row := range values(im.facts.groups) {
		s.frame(frameGroup, row.group.code)
	}
	it := im.facts.offsets.Root().Iterator()
	var o offsetRows
	for key, row, ok := it.Next(); ok; key, row, ok = it.Next() {
		o.group, o.topic, o.rows = groupIDOf(key), topicOf(key), o.rows[:0]
		for p, c := range row.all {
			o.rows = append(o.rows, numberedOffset{p, c})
		}
		s.frame(frameOffsets, o.code)
	}
}

func (e *edit) restoreSlots(s slotRows, x *codec.Coder) error {
	if err := x.End(); err != nil {
		return err
	}
	last := int32(-1)
	for i := range s.rows {
		n, row := s.rows[i].number, s.rows[i].row
		if n <= last || n >= Slots {
			return fmt.Errorf("slot %d after slot %d", n, last)
		}
		if err := e.checkSlot(&row); err != nil {
			return fmt.Errorf("slot %d: %w", n, err)
		}
		if e.next.facts.slots[n] != nil {
			return fmt.Errorf("slot %d appears twice", n)
		}
		e.setSlot(n, row)
		last = n
	}
	return nil
}

// checkSlot checks a slot against the invariants.
func (e *edit) checkSlot(s *slotRow) error {
	switch {
	case s.Epoch < 1 || s.Epoch > math.MaxInt32/2:
		return fmt.Errorf("epoch %d", s.Epoch)
	case s.Owner != NoBroker && !e.next.Eligible(s.Owner):
		return fmt.Errorf("owner %d is fenced, stopping or unknown", s.Owner)
	case s.Seq == 0 && len(s.refused) > 0 || s.Seq != 0 && s.Owner == NoBroker:
		return fmt.Errorf("sequence %d of owner %d", s.Seq, s.Owner)
	}
	last := int32(-1)
	for _, no := range s.refused {
		if no.item <= last || no.why == 0 {
			return errors.New("refusals out of order")
		}
		last = no.item
	}
	return nil
}

func (e *edit) restoreGroup(g Group, x *codec.Coder) error {
	if err := x.End(); err != nil {
		return err
	}
	if fault := g.fault(); fault != "" {
		return fmt.Errorf("group %q: %s", g.ID, fault)
	}
	if _, twice := e.group(g.ID); twice {
		return fmt.Errorf("group %q appears twice", g.ID)
	}
	e.putGroup(&g, nil)
	return nil
}

func (e *edit) restoreOffsets(o offsetRows, x *codec.Coder) error {
	if err := x.End(); err != nil {
		return err
	}
	// The trees are still being written: look into the transaction.
	topic, ok := txn(&e.topics, e.next.topics).Get(o.topic[:])
	if _, known := e.group(o.group); !ok || !known || len(o.rows) == 0 {
		return fmt.Errorf("offsets of group %q for topic %x: no group, no topic or no offsets", o.group, o.topic)
	}
	if _, twice := e.offsets(o.group, o.topic); twice {
		return fmt.Errorf("offsets of group %q for topic %q appear twice", o.group, topic.Name)
	}
	row, last := e.openOffsets(o.group, o.topic), int32(-1)
	for i := range o.rows {
		p := &o.rows[i]
		if p.partition <= last || p.partition >= topic.Partitions || p.ExpireMs < -1 {
			return fmt.Errorf("offset of group %q for partition %d of topic %q, expiry %d", o.group, p.partition, topic.Name, p.ExpireMs)
		}
		last = p.partition
		added, change := row.put(&CommitPartition{Partition: p.partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata}, p.CommitMs, p.ExpireMs)
		e.next.facts.count += added
		e.next.hash += change
	}
	return nil
}
