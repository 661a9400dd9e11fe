package fsm

import (
	"iter"
	"slices"

	"github.com/weirmq/weir/wire/batch"
)

// Committed is what a group has committed for one partition.
type Committed struct {
	Offset      batch.Offset
	LeaderEpoch batch.Epoch // of the last record consumed, NoEpoch when not given
	Metadata    string
	CommitMs    int64
	ExpireMs    int64 // -1: by retention
}

// CommitOffsets stores offsets that a group's member, or somebody outside it, has
// committed. Apply judges the member: Epoch -1 (nobody's) is taken only for a
// group that has no members or does not exist, which makes it exist.
// The result UnknownTopic or UnknownPartition means that exactly those partitions
// that do not exist were left out, and all others are stored.
type CommitOffsets struct {
	Group    string
	Member   string
	Instance string // "" when not given; of a classic static member
	Epoch    int32  // the generation or the member epoch; -1 when not given
	Topics   []CommitTopic
	CommitMs int64
	ExpireMs int64 // -1: by retention
}

// CommitTopic is the offsets of one topic, ascending by partition for the shortest encoding.
type CommitTopic struct {
	Topic      TopicID
	Partitions []CommitPartition
}

// CommitPartition is the offset of one partition.
type CommitPartition struct {
	Partition   int32
	LeaderEpoch batch.Epoch
	Offset      batch.Offset
	Metadata    string
}

// DeleteOffsets forgets what a group has committed for some partitions. One
// without a commit is no error.
type DeleteOffsets struct {
	Group      string
	Partitions []TopicPartition
}

// ExpireOffsets forgets offsets that the coordinator judged too old, unless the
// group or the commit has changed since. A group that is left with neither
// offsets nor members goes too; Partitions may be empty for that.
type ExpireOffsets struct {
	Group      string
	Epoch      int32 // the group's, when the offsets were judged
	Partitions []ExpiredOffset
}

// ExpiredOffset names one offset by the commit it was judged by.
type ExpiredOffset struct {
	TP       TopicPartition
	CommitMs int64
}

// Committed returns what a group has committed for a partition.
func (im *Image) Committed(group string, tp TopicPartition) (Committed, bool) {
	var buf [96]byte
	row, ok := im.facts.offsets.Get(offsetKey(buf[:0], group, tp.Topic))
	if !ok {
		return Committed{}, false
	}
	return row.get(tp.Partition)
}

// CommittedOf yields all that a group has committed, by topic id and partition.
func (im *Image) CommittedOf(group string) iter.Seq2[TopicPartition, Committed] {
	return func(yield func(TopicPartition, Committed) bool) {
		it := im.facts.offsets.Root().Iterator()
		it.SeekPrefix(groupKey(nil, group))
		for key, row, ok := it.Next(); ok; key, row, ok = it.Next() {
			topic := topicOf(key)
			for p, c := range row.all {
				if !yield(TopicPartition{topic, p}, c) {
					return
				}
			}
		}
	}
}

// CommittedCount is the number of partitions that groups have committed, each
// counted once for each group.
func (im *Image) CommittedCount() int { return im.facts.count }

func (c CommitOffsets) applyChange(e *edit) Refusal {
	row, known := e.group(c.Group)
	var no Refusal
	switch {
	case known:
		no = row.group.admits(&c)
	case c.Epoch >= 0:
		no = UnknownGroup
	}
	if no != 0 {
		return no
	}
	stored := 0
	for i := range c.Topics {
		n, why := e.commitTopic(&c, &c.Topics[i])
		stored += n
		if no == 0 {
			no = why
		}
	}
	if !known && stored > 0 {
		e.putGroup(&Group{ID: c.Group, Kind: ClassicGroup, EmptySince: max(1, c.CommitMs)}, nil)
	}
	return no
}

// admits tells whether a commit comes from a member at the present generation or
// epoch, or at an earlier epoch for what the member has had since then, or from
// nobody while there are no members.
func (g *Group) admits(c *CommitOffsets) Refusal {
	switch {
	case c.Epoch < 0 && len(g.Members) == 0:
		return 0
	case c.Epoch < 0 && c.Member == "" && c.Instance == "":
		return UnknownMember
	}
	m, ok := g.member(c.Member)
	classic := g.Kind == ClassicGroup || ok && m.Classic()
	if classic && c.Instance != "" && (!ok || m.InstanceID != c.Instance) {
		if slices.ContainsFunc(g.Members, func(m GroupMember) bool { return m.InstanceID == c.Instance }) {
			return FencedInstance
		}
		return UnknownMember
	}
	switch {
	case !ok:
		return UnknownMember
	case g.generation(m) == c.Epoch:
		return 0
	case classic:
		return IllegalGeneration
	case c.Epoch < m.Epoch && m.heldSince(c.Epoch, c.Topics):
		return 0
	}
	return StaleMemberEpoch
}

// heldSince says that a member has had all of the partitions since it was at epoch.
func (m *GroupMember) heldSince(epoch int32, topics []CommitTopic) bool {
	for i := range topics {
		for _, p := range topics[i].Partitions {
			if !m.granted(epoch, topics[i].Topic, p.Partition) {
				return false
			}
		}
	}
	return true
}

func (m *GroupMember) granted(epoch int32, topic TopicID, partition int32) bool {
	for i := range m.Grants {
		if m.Grants[i].Epoch > epoch {
			return false
		}
		for _, t := range m.Grants[i].Partitions {
			if _, found := slices.BinarySearch(t.Partitions, partition); found && t.Topic == topic {
				return true
			}
		}
	}
	return false
}

// commitTopic stores the offsets of one topic and returns how many. Partitions
// that do not exist are left out.
func (e *edit) commitTopic(c *CommitOffsets, t *CommitTopic) (stored int, no Refusal) {
	topic, ok := e.next.Topic(t.Topic)
	if !ok {
		return 0, UnknownTopic
	}
	var row *offsetRow
	for i := range t.Partitions {
		p := &t.Partitions[i]
		if p.Partition < 0 || p.Partition >= topic.Partitions {
			no = UnknownPartition
			continue
		}
		if row == nil {
			row = e.openOffsets(c.Group, t.Topic)
		}
		added, change := row.put(p, c.CommitMs, c.ExpireMs)
		e.next.facts.count += added
		e.next.hash += change
		stored++
	}
	return stored, no
}

func (c DeleteOffsets) applyChange(e *edit) Refusal {
	if _, ok := e.group(c.Group); !ok {
		return UnknownGroup
	}
	for _, tp := range c.Partitions {
		e.forget(c.Group, tp)
	}
	return 0
}

func (c ExpireOffsets) applyChange(e *edit) Refusal {
	row, ok := e.group(c.Group)
	switch {
	case !ok:
		return UnknownGroup
	case row.group.Epoch != c.Epoch:
		return StaleGroup
	}
	for _, p := range c.Partitions {
		if is, ok := e.committed(c.Group, p.TP); ok && is.CommitMs == p.CommitMs {
			e.forget(c.Group, p.TP)
		}
	}
	if len(row.group.Members) == 0 && !e.hasOffsets(c.Group) {
		e.dropGroup(row)
	}
	return 0
}
