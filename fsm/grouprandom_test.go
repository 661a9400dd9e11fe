package fsm_test

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/integration/seeds"
	"github.com/weirmq/weir/wire/batch"
)

// TestRandomGroups applies random commands about groups between random others,
// and compares the Image with a model after each: plain maps, with the rules of
// commits written down once more.
func TestRandomGroups(t *testing.T) {
	seeds.Alone(t)
	rapid.Check(t, func(t *rapid.T) {
		im := groupStart(t)
		begin, all := im, []fsm.Command(nil)
		m := groupModel{groups: map[string]*fsm.Group{}, offsets: map[string]map[fsm.TopicPartition]fsm.Committed{}}
		steps := rapid.IntRange(1, 60).Draw(t, "steps")
		for range steps {
			var c fsm.Command
			if rapid.IntRange(0, 9).Draw(t, "other") < 8 {
				c = m.draw(t, im)
			} else {
				c = drawCommand(t, im)
			}
			encoded := fsm.EncodeCommand(nil, c)
			decoded, err := fsm.DecodeCommand(encoded)
			if err != nil {
				t.Fatalf("decode %#v: %v", c, err)
			}
			if again := fsm.EncodeCommand(nil, decoded); !bytes.Equal(again, encoded) {
				t.Fatalf("%#v encodes as %x, decoded as %x", c, encoded, again)
			}
			all = append(all, decoded)
			next, r := fsm.Apply(im, im.Index()+1, decoded)
			checkSlotEpochs(t, im, next)
			m.follow(t, im, next, c, r)
			m.compare(t, next)
			verifyQuick(t, im, next)
			if rapid.IntRange(0, 9).Draw(t, "snapshot") == 0 {
				verify(t, im, next)
			}
			im = next
		}
		checkEntries(t, begin, all)
	})
}

// checkEntries: an entry of several commands does what they do one by one, whatever they share.
func checkEntries(t *rapid.T, im *fsm.Image, all []fsm.Command) {
	single := im
	for len(all) > 0 {
		n := rapid.IntRange(1, len(all)).Draw(t, "commands of an entry")
		before, index := im, im.Index()+1
		var results []fsm.Result
		im, results = fsm.ApplyEntry(im, index, all[:n])
		for i, c := range all[:n] {
			next, r := fsm.Apply(single, index, c)
			if single = next; !reflect.DeepEqual(r, results[i]) {
				t.Fatalf("command %d of %d, %#v: %+v in an entry, %+v alone", i, n, c, results[i], r)
			}
		}
		if im.Hash() != single.Hash() {
			t.Fatalf("an entry of %#v makes another Image than its commands", all[:n])
		}
		verifyQuick(t, before, im)
		all = all[n:]
	}
	verify(t, single, im)
}

// groupStart has two brokers, topics of few and of many partitions, and owners
// for all slots.
func groupStart(t *rapid.T) *fsm.Image {
	im := fsm.NewImage()
	apply := func(c fsm.Command) {
		var r fsm.Result
		if im, r = fsm.Apply(im, im.Index()+1, c); r.Err != nil || len(r.Skipped) > 0 {
			t.Fatalf("%#v: %+v", c, r)
		}
	}
	for id := fsm.BrokerID(1); id <= 2; id++ {
		apply(fsm.RegisterBroker{ID: id, Folder: [16]byte{1}, Process: [16]byte{1}, BootID: "x"})
		apply(fsm.UnfenceBroker{ID: id, Epoch: fsm.BrokerEpoch(im.Index())})
	}
	for i, name := range []string{"a", "b"} {
		c := fsm.CreateTopic{ID: topicID(name + "1"), Name: name}
		for range []int{3, 130}[i] {
			c.Partitions = append(c.Partitions, fsm.NewPartition{Replicas: []fsm.BrokerID{1, 2}, ISR: []fsm.BrokerID{1, 2}, Leader: 1})
		}
		apply(c)
	}
	apply(fsm.AssignSlots{Items: elect.Slots(im)})
	return im
}

// checkSlotEpochs: a slot's epoch rises exactly when its owner changes, and its
// sequence never falls within an epoch.
func checkSlotEpochs(t *rapid.T, old, im *fsm.Image) {
	for i := range int32(fsm.Slots) {
		a, b := old.Slot(i), im.Slot(i)
		if (a.Owner != b.Owner) != (a.Epoch != b.Epoch) || b.Epoch < a.Epoch || a.Epoch == b.Epoch && b.Seq < a.Seq || a.Epoch != b.Epoch && b.Seq != 0 {
			t.Fatalf("slot %d: %+v to %+v", i, a, b)
		}
	}
	spread, r := fsm.Apply(im, im.Index()+1, fsm.AssignSlots{Items: elect.Slots(im)})
	if more := elect.Slots(spread); len(r.Skipped) > 0 || len(more) > 0 {
		t.Fatalf("slots assigned with %+v, then %v", r, more)
	}
}

// groupModel is what groups and offsets should be.
type groupModel struct {
	groups  map[string]*fsm.Group
	offsets map[string]map[fsm.TopicPartition]fsm.Committed
	last    fsm.SlotCommand // the latest one taken
	answer  fsm.Result
}

var groupIDs = []string{"", "a", "b", "billing", "group with a longer name"} // read only

// draw draws a command about groups that has a fair chance to be taken.
func (m *groupModel) draw(t *rapid.T, im *fsm.Image) fsm.Command {
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		items := elect.Slots(im)
		for i := range items {
			items[i].Epoch += int32(drawSlip(t))
		}
		return fsm.AssignSlots{Items: items}
	case 1:
		if m.last.Seq != 0 {
			return m.last
		}
	}
	id := rapid.SampledFrom(groupIDs).Draw(t, "group")
	slot := fsm.SlotOf(id)
	cur := im.Slot(slot)
	c := fsm.SlotCommand{Slot: slot, Epoch: cur.Epoch + int32(drawSlip(t)), Seq: cur.Seq + uint64(1+drawSlip(t))}
	for range rapid.IntRange(0, 5).Draw(t, "changes") {
		if drawSlip(t) < 0 {
			id = rapid.SampledFrom(groupIDs).Draw(t, "other group")
		}
		c.Changes = append(c.Changes, m.drawChange(t, im, id))
	}
	return c
}

func (m *groupModel) drawChange(t *rapid.T, im *fsm.Image, id string) fsm.GroupChange {
	g := m.groups[id]
	if g == nil {
		g = &fsm.Group{ID: id}
	}
	switch rapid.SampledFrom([]string{"put", "delete", "forget", "expire", "commit", "commit", "commit", "commit"}).Draw(t, "change") {
	case "put":
		return fsm.PutGroup{Group: drawGroup(t, g)}
	case "delete":
		return fsm.DeleteGroup{ID: id}
	case "forget":
		return fsm.DeleteOffsets{Group: id, Partitions: drawPartitions(t, im)}
	case "expire":
		c := fsm.ExpireOffsets{Group: id, Epoch: g.Epoch + int32(drawSlip(t))}
		for tp, is := range m.offsets[id] {
			c.Partitions = append(c.Partitions, fsm.ExpiredOffset{TP: tp, CommitMs: is.CommitMs})
		}
		slices.SortFunc(c.Partitions, func(a, b fsm.ExpiredOffset) int { return bytes.Compare(fmt.Append(nil, a.TP), fmt.Append(nil, b.TP)) })
		for i := range c.Partitions {
			c.Partitions[i].CommitMs += int64(drawSlip(t))
		}
		return c
	}
	return drawCommit(t, im, g)
}

func drawGroup(t *rapid.T, old *fsm.Group) *fsm.Group {
	g := &fsm.Group{ID: old.ID, Kind: fsm.GroupKind(rapid.IntRange(1, 2).Draw(t, "group kind")), Epoch: old.Epoch + int32(drawSlip(t)) + 1}
	for _, name := range []string{"m", "n", "o"} {
		if rapid.Bool().Draw(t, "member") {
			m := fsm.GroupMember{ID: name, InstanceID: rapid.SampledFrom([]string{"", "i"}).Draw(t, "instance")}
			if g.Kind == fsm.ConsumerGroup || rapid.IntRange(0, 3).Draw(t, "member epoch") == 0 {
				m.Epoch = g.Epoch + int32(drawSlip(t))
			}
			if g.Kind == fsm.ClassicGroup || rapid.Bool().Draw(t, "member speaks classic") {
				m.Protocols = []fsm.GroupProtocol{{Name: "range"}}
			}
			if rapid.Bool().Draw(t, "member has grants") {
				m.Grants = []fsm.Grant{{Epoch: m.Epoch + int32(drawSlip(t)), Partitions: []fsm.TopicPartitions{{Partitions: []int32{0}}}}}
			}
			g.Members = append(g.Members, m)
		}
	}
	fresh := rapid.IntRange(0, 3).Draw(t, "events")
	g.Noted = old.Noted + uint32(fresh)
	for i := range fresh {
		g.History = g.History.Append(&fsm.GroupEvent{AtMs: int64(old.Noted) + int64(i), Cause: "because"})
	}
	if len(g.Members) == 0 {
		g.EmptySince = rapid.Int64Range(0, 99).Draw(t, "since")
	}
	return g
}

func drawCommit(t *rapid.T, im *fsm.Image, g *fsm.Group) fsm.GroupChange {
	c := fsm.CommitOffsets{Group: g.ID, Epoch: -1, CommitMs: rapid.Int64Range(0, 5).Draw(t, "ms"), ExpireMs: rapid.Int64Range(-2, 2).Draw(t, "expire")}
	if len(g.Members) > 0 && drawSlip(t) == 0 {
		m := rapid.SampledFrom(g.Members).Draw(t, "committer")
		c.Member, c.Epoch = m.ID, g.Epoch+int32(drawSlip(t))
		if g.Kind == fsm.ConsumerGroup || m.Epoch != 0 {
			c.Epoch = m.Epoch + int32(drawSlip(t))
		}
		c.Instance = rapid.SampledFrom([]string{"", "", m.InstanceID, "i", "x"}).Draw(t, "shown instance")
	} else if drawSlip(t) != 0 {
		c.Member, c.Epoch = "m", g.Epoch
	}
	for _, tp := range drawPartitions(t, im) {
		tp.Partition += int32(drawSlip(t))
		if n := len(c.Topics); n == 0 || c.Topics[n-1].Topic != tp.Topic {
			c.Topics = append(c.Topics, fsm.CommitTopic{Topic: tp.Topic})
		}
		last := &c.Topics[len(c.Topics)-1]
		last.Partitions = append(last.Partitions, fsm.CommitPartition{Partition: tp.Partition, LeaderEpoch: batch.Epoch(rapid.Int32Range(-1, 3).Draw(t, "leader epoch")),
			Offset: batch.Offset(rapid.Int64().Draw(t, "offset")), Metadata: rapid.SampledFrom([]string{"", "", "x"}).Draw(t, "metadata")})
	}
	return c
}

// follow does to the model what c should do, and checks the answer.
func (m *groupModel) follow(t *rapid.T, old, im *fsm.Image, c fsm.Command, r fsm.Result) {
	for _, offsets := range m.offsets {
		maps.DeleteFunc(offsets, func(tp fsm.TopicPartition, _ fsm.Committed) bool {
			_, live := im.Topic(tp.Topic)
			return !live
		})
	}
	sc, ok := c.(fsm.SlotCommand)
	if !ok {
		return
	}
	cur := old.Slot(sc.Slot)
	current := cur.Owner != fsm.NoBroker && cur.Epoch == sc.Epoch
	switch {
	case sc.Seq > 0 && current && sc.Seq == cur.Seq:
		want := m.answer
		want.Repeated = true
		if same := reflect.DeepEqual(sc, m.last); !r.Repeated || same && !reflect.DeepEqual(r, want) {
			t.Fatalf("repeated %#v: got %+v, want %+v", sc, r, want)
		}
	case !current || sc.Seq <= cur.Seq:
		if r.Err == nil {
			t.Fatalf("%#v was taken in slot %+v", sc, cur)
		}
	default:
		want := fsm.Result{Items: make([]error, len(sc.Changes))}
		for i, change := range sc.Changes {
			if no := m.take(im, sc.Slot, change); no != 0 {
				want.Items[i] = no
			}
		}
		if !reflect.DeepEqual(r, want) {
			t.Fatalf("%#v: got %+v, want %+v", sc, r, want)
		}
		m.last, m.answer = sc, want
	}
}

// take is one change in the model.
func (m *groupModel) take(im *fsm.Image, slot int32, c fsm.GroupChange) fsm.Refusal {
	switch c := c.(type) {
	case fsm.PutGroup:
		if fsm.SlotOf(c.Group.ID) != slot || c.Group.ID == "" && len(c.Group.Members) > 0 || c.Group.Epoch < 0 {
			return fsm.BadCommand
		}
		m.groups[c.Group.ID] = c.Over(m.groups[c.Group.ID])
	case fsm.DeleteGroup:
		g, ok := m.groups[c.ID]
		switch {
		case fsm.SlotOf(c.ID) != slot:
			return fsm.BadCommand
		case !ok:
			return fsm.UnknownGroup
		case len(g.Members) > 0:
			return fsm.GroupNotEmpty
		}
		delete(m.groups, c.ID)
		delete(m.offsets, c.ID)
	case fsm.DeleteOffsets:
		switch {
		case fsm.SlotOf(c.Group) != slot:
			return fsm.BadCommand
		case m.groups[c.Group] == nil:
			return fsm.UnknownGroup
		}
		for _, tp := range c.Partitions {
			delete(m.offsets[c.Group], tp)
		}
	case fsm.ExpireOffsets:
		return m.expire(slot, c)
	case fsm.CommitOffsets:
		if fsm.SlotOf(c.Group) != slot {
			return fsm.BadCommand
		}
		return m.commit(im, c)
	}
	return 0
}

func (m *groupModel) expire(slot int32, c fsm.ExpireOffsets) fsm.Refusal {
	g := m.groups[c.Group]
	switch {
	case fsm.SlotOf(c.Group) != slot:
		return fsm.BadCommand
	case g == nil:
		return fsm.UnknownGroup
	case g.Epoch != c.Epoch:
		return fsm.StaleGroup
	}
	for _, p := range c.Partitions {
		if m.offsets[c.Group][p.TP].CommitMs == p.CommitMs {
			delete(m.offsets[c.Group], p.TP)
		}
	}
	if len(g.Members)+len(m.offsets[c.Group]) == 0 {
		delete(m.groups, c.Group)
	}
	return 0
}

func (m *groupModel) commit(im *fsm.Image, c fsm.CommitOffsets) (no fsm.Refusal) {
	g, known := m.groups[c.Group]
	if no := refusalOfCommit(g, c); no != 0 {
		return no
	}
	offsets := m.offsets[c.Group]
	if offsets == nil {
		offsets = map[fsm.TopicPartition]fsm.Committed{}
	}
	stored := false
	for _, topic := range c.Topics {
		for _, p := range topic.Partitions {
			tp := fsm.TopicPartition{Topic: topic.Topic, Partition: p.Partition}
			_, live := im.Topic(topic.Topic)
			_, exists := im.Partition(tp)
			switch {
			case exists:
				stored = true
				offsets[tp] = fsm.Committed{Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, CommitMs: c.CommitMs, ExpireMs: max(-1, c.ExpireMs)}
			case no == 0 && live:
				no = fsm.UnknownPartition
			case no == 0:
				no = fsm.UnknownTopic
			}
		}
	}
	if stored {
		m.offsets[c.Group] = offsets
		if !known {
			m.groups[c.Group] = &fsm.Group{ID: c.Group, Kind: fsm.ClassicGroup, EmptySince: max(1, c.CommitMs)}
		}
	}
	return no
}

// refusalOfCommit states Kafka's rules in the order of its documentation.
func refusalOfCommit(g *fsm.Group, c fsm.CommitOffsets) fsm.Refusal {
	if g == nil && c.Epoch >= 0 {
		return fsm.UnknownGroup
	}
	if c.Epoch < 0 && (g == nil || len(g.Members) == 0) {
		return 0
	}
	var shown, named *fsm.GroupMember
	for i := range g.Members {
		if m := &g.Members[i]; m.ID == c.Member {
			named = m
			if m.InstanceID == c.Instance {
				shown = m
			}
		}
	}
	classic := g.Kind == fsm.ClassicGroup || named != nil && len(named.Protocols) > 0
	if classic && c.Instance != "" && shown == nil {
		for _, m := range g.Members {
			if m.InstanceID == c.Instance {
				return fsm.FencedInstance
			}
		}
		return fsm.UnknownMember
	}
	if named == nil {
		return fsm.UnknownMember
	}
	epoch := named.Epoch
	if g.Kind == fsm.ClassicGroup && epoch == 0 {
		epoch = g.Epoch
	}
	switch {
	case epoch == c.Epoch:
		return 0
	case classic:
		return fsm.IllegalGeneration
	}
	return fsm.StaleMemberEpoch
}

// compare checks that the Image holds what the model holds.
func (m *groupModel) compare(t *rapid.T, im *fsm.Image) {
	if n := im.GroupCount(); n != len(m.groups) {
		t.Fatalf("%d groups, want %d", n, len(m.groups))
	}
	count := 0
	for _, id := range groupIDs {
		g, ok := im.Group(id)
		if want := m.groups[id]; ok != (want != nil) || ok && fmt.Sprintf("%+v", *g) != fmt.Sprintf("%+v", *want) {
			t.Fatalf("group %q: got %+v, want %+v", id, g, want)
		}
		got := maps.Collect(im.CommittedOf(id))
		if !maps.Equal(got, m.offsets[id]) {
			t.Fatalf("offsets of %q: got %v, want %v", id, got, m.offsets[id])
		}
		for tp, want := range got {
			if c, ok := im.Committed(id, tp); !ok || c != want {
				t.Fatalf("offset of %q for %v: got %+v, want %+v", id, tp, c, want)
			}
		}
		count += len(got)
	}
	if im.CommittedCount() != count {
		t.Fatalf("%d committed, want %d", im.CommittedCount(), count)
	}
}
