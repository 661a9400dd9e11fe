package fsm

import (
	"fmt"
	"slices"
)

// checkGroups returns the first invariant of slots, groups and offsets that im breaks.
func checkGroups(im *Image) error {
	for i := range int32(Slots) {
		s := im.Slot(i)
		if s.Owner != NoBroker && !im.Eligible(s.Owner) {
			return fmt.Errorf("slot %d belongs to %d, which is fenced, stopping or unknown", i, s.Owner)
		}
		if s.Epoch < 0 || s.Owner == NoBroker && s.Seq != 0 || s.Owner != NoBroker && s.Epoch == 0 {
			return fmt.Errorf("slot %d: %+v", i, s)
		}
	}
	groups := 0
	for i := range int32(Slots) {
		for g := range im.Groups(i) {
			groups++
			if fault := g.fault(); fault != "" || SlotOf(g.ID) != i {
				return fmt.Errorf("group %q in slot %d: %s", g.ID, i, fault)
			}
			if same, ok := im.Group(g.ID); !ok || same != g {
				return fmt.Errorf("group %q is not what its id leads to", g.ID)
			}
		}
	}
	if groups != im.GroupCount() {
		return fmt.Errorf("%d groups, found %d", im.GroupCount(), groups)
	}
	return checkOffsets(im)
}

func checkOffsets(im *Image) error {
	count := 0
	it := im.facts.offsets.Root().Iterator()
	for key, row, ok := it.Next(); ok; key, row, ok = it.Next() {
		group, id := groupIDOf(key), topicOf(key)
		topic, live := im.Topic(id)
		if _, known := im.Group(group); !known || !live {
			return fmt.Errorf("offsets of group %q (known %v) for topic %x (known %v)", group, known, id, live)
		}
		if _, ok := im.facts.holders.Get(holderKey(key)); !ok {
			return fmt.Errorf("offsets of group %q for topic %s are not in the index by topic", group, topic.Name)
		}
		if err := checkOffsetRow(row, topic); err != nil {
			return fmt.Errorf("offsets of group %q for topic %s: %w", group, topic.Name, err)
		}
		for range row.all {
			count++
		}
	}
	if n := im.facts.holders.Len(); n != im.facts.offsets.Len() {
		return fmt.Errorf("index by topic has %d rows, want %d", n, im.facts.offsets.Len())
	}
	if count != im.facts.count {
		return fmt.Errorf("%d committed partitions, found %d", im.facts.count, count)
	}
	return nil
}

func checkOffsetRow(row *offsetRow, topic *Topic) error {
	if row.open || len(row.blocks) == 0 {
		return fmt.Errorf("open %v, %d blocks", row.open, len(row.blocks))
	}
	last := int32(-1)
	for _, b := range row.blocks {
		noted := 0
		for i := range b.cells {
			if b.cells[i].noted {
				noted++
			}
		}
		sorted := slices.IsSortedFunc(b.notes, func(a, b offsetNote) int { return int(a.bit) - int(b.bit) })
		if b.open || b.number <= last || len(b.cells) == 0 || noted != len(b.notes) || !sorted {
			return fmt.Errorf("block %d: open %v, %d cells, %d noted, %d notes", b.number, b.open, len(b.cells), noted, len(b.notes))
		}
		last = b.number
	}
	cells := 0
	for p := range row.all {
		cells++
		if p >= topic.Partitions {
			return fmt.Errorf("partition %d of %d", p, topic.Partitions)
		}
	}
	for _, b := range row.blocks {
		cells -= len(b.cells)
	}
	if cells != 0 {
		return fmt.Errorf("%d cells too few", cells)
	}
	return nil
}

// hashOfGroups recomputes the part of the hash that belongs to groups.
func hashOfGroups(im *Image) (sum uint64) {
	for i, s := range im.facts.slots {
		if s != nil {
			sum += hashSlot(int32(i), s)
		}
	}
	for row := range values(im.facts.groups) {
		sum += hashGroup(row.group)
	}
	it := im.facts.offsets.Root().Iterator()
	for key, row, ok := it.Next(); ok; key, row, ok = it.Next() {
		fresh := offsetRow{seed: seedOf(groupIDOf(key), topicOf(key))}
		for p, c := range row.all {
			sum += fresh.hash(p, &c)
		}
	}
	return sum
}
