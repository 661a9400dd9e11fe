package fsm

import (
	"iter"
	"slices"
	"strings"

	iradix "github.com/hashicorp/go-immutable-radix/v2"
)

// GroupKind is the protocol of a group.
type GroupKind uint8

// The kinds of groups.
const (
	ClassicGroup  GroupKind = 1 // JoinGroup and SyncGroup
	ConsumerGroup GroupKind = 2 // ConsumerGroupHeartbeat
)

// Group is all that its coordinator's successor must know. A group that was only
// ever committed to has a row too: classic, of no protocol type, at epoch 0.
type Group struct {
	ID              string
	Kind            GroupKind
	Epoch           int32         // the generation of a classic group, the group epoch of a consumer group
	AssignmentEpoch int32         // consumer: the group epoch that the targets were computed for
	ProtocolType    string        // classic: "consumer", "connect" …; "" for one that only commits
	Protocol        string        // classic: what the members agreed on; consumer: the assignor
	Leader          string        // classic: the member that assigns
	Members         []GroupMember // ascending by ID, no ID twice
	EmptySince      int64         // ms; 0 while there are members
	MetadataHash    uint64        // consumer: of the subscribed topics' metadata that the targets were computed for
	Noted           uint32        // how many events there were, ever: the number of the last one of History
	History         GroupHistory  // in an Image the last events; in a PutGroup those that may not be stored yet
}

// GroupProtocol is one protocol that a classic member supports.
type GroupProtocol struct {
	Name     string
	Metadata []byte
}

// TopicPartitions names partitions of one topic.
type TopicPartitions struct {
	Topic      TopicID
	Partitions []int32
}

// GroupMember is one member of a group.
type GroupMember struct {
	ID            string
	InstanceID    string // "" for a dynamic member
	ClientID      string
	ClientHost    string
	Rack          string
	SessionMs     int32 // classic: its session timeout
	RebalanceMs   int32
	Epoch         int32             // what it must show; 0 in a classic group for its generation
	PreviousEpoch int32             // consumer: what it may show if the last answer was lost
	Protocols     []GroupProtocol   // of a member that speaks the classic protocol, in a group of either kind
	Assignment    []byte            // classic: what the leader assigned to it
	Topics        []string          // consumer: subscribed by name
	Regex         string            // consumer: subscribed by pattern
	Assignor      string            // consumer: the assignor that it asks for
	Assigned      []TopicPartitions // what it has; classic: what it had before the group was classic
	Target        []TopicPartitions
	Revoking      []TopicPartitions // given back by nobody until the member says so
	Grants        []Grant           // consumer: since when it has what it has, ascending by epoch; a partition is in one at most
}

// Grant is what a member has held without a break since it came to an epoch. A commit
// that shows an older epoch than the member's counts for these partitions from that
// epoch on (KIP-1251): nobody else can have committed them since.
type Grant struct {
	Epoch      int32
	Partitions []TopicPartitions
}

// PutGroup stores the whole new value of a group, and adds the events of its History
// to those that are stored. The value belongs to the Image from then on.
type PutGroup struct {
	Group *Group
}

// DeleteGroup removes a group that has no members, with its offsets.
type DeleteGroup struct {
	ID string
}

// maxGroupID is the longest group id in bytes: what Kafka's strings can hold.
const maxGroupID = 1<<15 - 1

// groupFacts is the part of an Image that belongs to groups.
type groupFacts struct {
	slots   *[Slots]*slotRow         // nil: never had an owner; replaced as a whole
	groups  *iradix.Tree[*groupRow]  // by groupKey
	offsets *iradix.Tree[*offsetRow] // by offsetKey
	holders *iradix.Tree[struct{}]   // the keys of offsets by topic: what a deletion must find
	count   int                      // committed partitions
}

func newGroupFacts() groupFacts {
	return groupFacts{
		slots:   new([Slots]*slotRow),
		groups:  iradix.New[*groupRow](),
		offsets: iradix.New[*offsetRow](),
		holders: iradix.New[struct{}](),
	}
}

// groupRow is a Group with its hash, which takes longer to find than the rest of a change.
type groupRow struct {
	group *Group
	hash  uint64
}

// groupEdit is the part of an edit that belongs to groups.
type groupEdit struct {
	slots   bool // next has its own array of slots
	groups  *iradix.Txn[*groupRow]
	offsets *iradix.Txn[*offsetRow]
	holders *iradix.Txn[struct{}]
	open    []*offsetRow // made by this edit, which may change them
}

// commit puts all pending work into the next Image's facts.
func (e *groupEdit) commit(f *groupFacts) {
	for _, row := range e.open {
		row.close()
	}
	f.groups = closeTxn(e.groups, f.groups)
	f.offsets = closeTxn(e.offsets, f.offsets)
	f.holders = closeTxn(e.holders, f.holders)
}

// groupKey appends a group's key to dst: slot, length, id. It sorts by slot, and
// no key is the beginning of another.
func groupKey(dst []byte, id string) []byte {
	dst = append(dst, byte(SlotOf(id)), byte(len(id)>>8), byte(len(id)))
	return append(dst, id...)
}

// groupIDOf reads the id in a groupKey, or in what begins with one.
func groupIDOf(key []byte) string {
	n := int(key[1])<<8 | int(key[2])
	return string(key[3 : 3+n])
}

// Group returns the group with that id.
func (im *Image) Group(id string) (*Group, bool) {
	var buf [80]byte
	row, ok := im.facts.groups.Get(groupKey(buf[:0], id))
	if !ok {
		return nil, false
	}
	return row.group, true
}

// Groups yields the groups of one slot, in an order that is the same everywhere.
func (im *Image) Groups(slot int32) iter.Seq[*Group] {
	return func(yield func(*Group) bool) {
		if slot < 0 || slot >= Slots {
			return
		}
		it := im.facts.groups.Root().Iterator()
		it.SeekPrefix([]byte{byte(slot)})
		for _, row, ok := it.Next(); ok; _, row, ok = it.Next() {
			if !yield(row.group) {
				return
			}
		}
	}
}

// GroupCount is the number of groups.
func (im *Image) GroupCount() int { return im.facts.groups.Len() }

// member returns the member with that id.
func (g *Group) member(id string) (*GroupMember, bool) {
	i, ok := slices.BinarySearchFunc(g.Members, id, func(m GroupMember, id string) int { return strings.Compare(m.ID, id) })
	if !ok {
		return nil, false
	}
	return &g.Members[i], true
}

// Classic tells whether the member speaks the classic protocol.
func (m *GroupMember) Classic() bool { return len(m.Protocols) > 0 }

// generation is what a member must show to commit.
func (g *Group) generation(m *GroupMember) int32 {
	if g.Kind == ClassicGroup && m.Epoch == 0 {
		return g.Epoch
	}
	return m.Epoch
}

// fault names the first thing that no group may be.
func (g *Group) fault() string {
	switch {
	case g.ID == "" && len(g.Members) > 0 || len(g.ID) > maxGroupID:
		return "id"
	case g.Kind != ClassicGroup && g.Kind != ConsumerGroup:
		return "kind"
	case g.Epoch < 0 || g.AssignmentEpoch < 0:
		return "epoch below zero"
	case len(g.Members) > 0 && g.EmptySince != 0:
		return "empty with members"
	case !g.History.fits():
		return "history"
	}
	for i := range g.Members {
		if g.Members[i].ID == "" || i > 0 && g.Members[i-1].ID >= g.Members[i].ID {
			return "members out of order"
		}
	}
	return ""
}

// group returns a group as this edit has left it.
func (e *edit) group(id string) (*groupRow, bool) {
	var buf [80]byte
	key := groupKey(buf[:0], id)
	if e.facts.groups != nil {
		return e.facts.groups.Get(key)
	}
	return e.next.facts.groups.Get(key)
}

// putGroup stores a group in place of old, which may be nil.
func (e *edit) putGroup(g *Group, old *groupRow) {
	if old != nil {
		e.next.hash -= old.hash
	}
	row := &groupRow{group: g, hash: hashGroup(g)}
	e.next.hash += row.hash
	txn(&e.facts.groups, e.next.facts.groups).Insert(groupKey(nil, g.ID), row)
}

// dropGroup removes a group that has no offsets.
func (e *edit) dropGroup(row *groupRow) {
	e.next.hash -= row.hash
	var buf [80]byte
	txn(&e.facts.groups, e.next.facts.groups).Delete(groupKey(buf[:0], row.group.ID))
}

func (c PutGroup) applyChange(e *edit) Refusal {
	if c.Group == nil || c.Group.fault() != "" {
		return BadCommand
	}
	row, known := e.group(c.Group.ID)
	var old *Group
	if known {
		old = row.group
	}
	e.putGroup(c.Over(old), row)
	return 0
}

func (c DeleteGroup) applyChange(e *edit) Refusal {
	row, ok := e.group(c.ID)
	switch {
	case !ok:
		return UnknownGroup
	case len(row.group.Members) > 0:
		return GroupNotEmpty
	}
	e.dropOffsetsOf(c.ID)
	e.dropGroup(row)
	return 0
}

func hashGroup(g *Group) uint64 {
	h := rowGroup
	h.text(g.ID)
	h.word(uint64(g.Kind))
	h.int(int64(g.Epoch))
	h.int(int64(g.AssignmentEpoch))
	h.text(g.ProtocolType)
	h.text(g.Protocol)
	h.text(g.Leader)
	h.int(g.EmptySince)
	h.word(g.MetadataHash)
	h.word(uint64(g.Noted))
	h.bytes(g.History)
	h.word(uint64(len(g.Members)))
	for i := range g.Members {
		h.member(&g.Members[i])
	}
	return h.sum()
}

func (h *hasher) member(m *GroupMember) {
	for _, s := range [...]string{m.ID, m.InstanceID, m.ClientID, m.ClientHost, m.Rack, m.Regex, m.Assignor} {
		h.text(s)
	}
	for _, n := range [...]int32{m.SessionMs, m.RebalanceMs, m.Epoch, m.PreviousEpoch} {
		h.int(int64(n))
	}
	h.word(uint64(len(m.Protocols)))
	for _, p := range m.Protocols {
		h.text(p.Name)
		h.bytes(p.Metadata)
	}
	h.bytes(m.Assignment)
	h.word(uint64(len(m.Topics)))
	for _, s := range m.Topics {
		h.text(s)
	}
	for _, list := range [...][]TopicPartitions{m.Assigned, m.Target, m.Revoking} {
		h.partitions(list)
	}
	h.word(uint64(len(m.Grants)))
	for _, g := range m.Grants {
		h.int(int64(g.Epoch))
		h.partitions(g.Partitions)
	}
}

func (h *hasher) partitions(list []TopicPartitions) {
	h.word(uint64(len(list)))
	for _, t := range list {
		h.bytes(t.Topic[:])
		h.word(uint64(len(t.Partitions)))
		for _, p := range t.Partitions {
			h.int(int64(p))
		}
	}
}

// text is bytes for a string.
func (h *hasher) text(s string) {
	h.word(uint64(len(s)))
	for len(s) > 0 {
		n := min(8, len(s))
		var v uint64
		for i := range n {
			v |= uint64(s[i]) << (8 * i)
		}
		h.word(v)
		s = s[n:]
	}
}
