package fsm

import "github.com/weirmq/weir/wire/codec"

// Slots is how many shares the group and transactional ids are divided into. It
// is part of what SlotOf means and never changes.
const Slots = 64

// SlotOf is the slot of a group or transactional id: FNV-1a of its bytes.
func SlotOf(id string) int32 {
	h := uint32(2166136261)
	for i := range len(id) {
		h = (h ^ uint32(id[i])) * 16777619
	}
	return int32(h % Slots)
}

// Slot says who coordinates one share of the ids. The zero epoch has no owner.
type Slot struct {
	Owner BrokerID // NoBroker while nobody coordinates it
	Epoch int32    // rises with each change of owner: a deposed owner's commands are refused
	Seq   uint64   // of the last SlotCommand taken in this epoch, 0 when there was none
}

// slotRow is a Slot with what the last command's repetition must be answered.
type slotRow struct {
	Slot
	refused []itemRefusal // of the command Seq, ascending
}

// itemRefusal is the refusal of one change of a SlotCommand.
type itemRefusal struct {
	item int32
	why  Refusal
}

// SlotChange gives one slot to a broker.
type SlotChange struct {
	Slot  int32
	Epoch int32 // the slot's, as the controller saw it
	Owner BrokerID
}

// AssignSlots gives slots to brokers. Each item is guarded alone.
type AssignSlots struct {
	Items []SlotChange
}

// SlotCommand is what the owner of a slot has decided about groups and offsets of
// that slot since its last one. It is taken once: repeated with the sequence that
// was taken last it changes nothing and is answered as it was the first time
// (Result.Repeated). Its changes are judged one after the other, each alone.
type SlotCommand struct {
	Slot    int32
	Epoch   int32  // the epoch in which the proposer owns the slot
	Seq     uint64 // above that of the owner's last command in this epoch; 1 and up
	Changes []GroupChange
}

// GroupChange is one item of a SlotCommand: PutGroup, DeleteGroup, CommitOffsets,
// DeleteOffsets or ExpireOffsets. A new kind of change is a new version of SlotCommand.
type GroupChange interface {
	group() string
	changeKind() changeKind
	encodeChange(w *codec.Coder)
	applyChange(e *edit) Refusal
}

// Slot returns the state of one slot.
func (im *Image) Slot(i int32) Slot { return im.facts.slot(i).Slot }

// noSlot is the row of a slot that never had an owner; it is not stored.
func noSlot() slotRow { return slotRow{Slot: Slot{Owner: NoBroker}} }

func (f *groupFacts) slot(i int32) slotRow {
	if i < 0 || i >= Slots || f.slots[i] == nil {
		return noSlot()
	}
	return *f.slots[i]
}

// setSlot stores the row of a slot.
func (e *edit) setSlot(i int32, row slotRow) {
	f := &e.next.facts
	if !e.facts.slots {
		slots := *f.slots
		f.slots, e.facts.slots = &slots, true
	}
	if old := f.slots[i]; old != nil {
		e.next.hash -= hashSlot(i, old)
	}
	f.slots[i] = &row
	e.next.hash += hashSlot(i, &row)
}

// freeSlots takes its slots from a broker.
func (e *edit) freeSlots(id BrokerID) {
	for i := range int32(Slots) {
		if s := e.next.facts.slot(i); s.Owner == id {
			e.setSlot(i, slotRow{Slot: Slot{Owner: NoBroker, Epoch: s.Epoch + 1}})
		}
	}
}

func (c AssignSlots) apply(e *edit) Result {
	var r Result
	for i, item := range c.Items {
		cur := e.next.facts.slot(item.Slot)
		switch {
		case item.Slot < 0 || item.Slot >= Slots || item.Owner == cur.Owner:
			r.skip(i, BadCommand)
		case item.Epoch != cur.Epoch:
			r.skip(i, StaleSlotEpoch)
		case !e.next.Eligible(item.Owner):
			r.skip(i, IneligibleReplica)
		default:
			e.setSlot(item.Slot, slotRow{Slot: Slot{Owner: item.Owner, Epoch: cur.Epoch + 1}})
		}
	}
	return r
}

func (c SlotCommand) apply(e *edit) Result {
	cur := e.next.facts.slot(c.Slot)
	switch {
	case c.Slot < 0 || c.Slot >= Slots || c.Seq == 0:
		return refused(BadCommand)
	case cur.Owner == NoBroker || cur.Epoch != c.Epoch:
		return refused(StaleSlotEpoch)
	case c.Seq < cur.Seq:
		return refused(StaleSequence)
	case c.Seq == cur.Seq:
		return cur.repeat(len(c.Changes))
	}
	r := Result{Items: make([]error, len(c.Changes))}
	next := slotRow{Slot: Slot{Owner: cur.Owner, Epoch: cur.Epoch, Seq: c.Seq}}
	for i, change := range c.Changes {
		if no := e.applyChange(c.Slot, change); no != 0 {
			r.Items[i] = no
			next.refused = append(next.refused, itemRefusal{int32(i), no})
		}
	}
	e.setSlot(c.Slot, next)
	return r
}

// repeat answers the last command once more.
func (s *slotRow) repeat(changes int) Result {
	r := Result{Items: make([]error, changes), Repeated: true}
	for _, no := range s.refused {
		if int(no.item) < changes {
			r.Items[no.item] = no.why
		}
	}
	return r
}

// applyChange takes one change if its group belongs to the slot.
func (e *edit) applyChange(slot int32, c GroupChange) Refusal {
	if id := c.group(); SlotOf(id) != slot || len(id) > maxGroupID {
		return BadCommand
	}
	return c.applyChange(e)
}

func hashSlot(i int32, s *slotRow) uint64 {
	h := rowSlot
	h.int(int64(i))
	h.int(int64(s.Owner))
	h.int(int64(s.Epoch))
	h.word(s.Seq)
	for _, no := range s.refused {
		h.word(uint64(no.item)<<8 | uint64(no.why))
	}
	return h.sum()
}

// diffSlots lists the slots whose owner or epoch differs.
func diffSlots(old, new *Image) []SlotDelta {
	if old.facts.slots == new.facts.slots {
		return nil
	}
	var out []SlotDelta
	for i := range int32(Slots) {
		a, b := old.Slot(i), new.Slot(i)
		if a.Owner != b.Owner || a.Epoch != b.Epoch {
			out = append(out, SlotDelta{Slot: i, Old: a, New: b})
		}
	}
	return out
}
