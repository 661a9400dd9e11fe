package fsm_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// assign gives slots to brokers: one a line, or what the controller wants when
// there is none. A slot may be named by a group of it.
func (s *script) assign() fsm.Command {
	if strings.TrimSpace(s.d.Input) == "" {
		return fsm.AssignSlots{Items: elect.Slots(s.im)}
	}
	var c fsm.AssignSlots
	for _, line := range s.lines() {
		slot := fsm.SlotOf(line.name)
		if line.has("slot") {
			slot = int32(line.number("slot", 0))
		}
		c.Items = append(c.Items, fsm.SlotChange{Slot: slot, Epoch: int32(line.number("epoch", int64(s.im.Slot(slot).Epoch))), Owner: fsm.BrokerID(line.number("owner", 0))})
	}
	return c
}

// slotCommand has one change a line: its verb, then what it is about.
func (s *script) slotCommand() fsm.Command {
	slot := fsm.SlotOf(s.text("group", ""))
	cur := s.im.Slot(slot)
	c := fsm.SlotCommand{Slot: slot, Epoch: int32(s.number("epoch", int64(cur.Epoch))), Seq: uint64(s.number("seq", int64(cur.Seq)+1))}
	for _, line := range s.lines() {
		c.Changes = append(c.Changes, s.change(line))
	}
	return c
}

func (s *script) change(l line) fsm.GroupChange {
	id := s.text("group", "")
	if l.has("group") {
		id = l.get("group")
	}
	switch l.name {
	case "put":
		return fsm.PutGroup{Group: s.groupOf(id, l)}
	case "delete":
		return fsm.DeleteGroup{ID: id}
	case "commit":
		c := fsm.CommitOffsets{Group: id, Member: l.get("member"), Instance: l.get("instance"), Epoch: int32(l.number("epoch", -1)),
			CommitMs: l.number("at", 0), ExpireMs: l.number("until", -1)}
		for _, f := range strings.Split(l.get("offsets"), ",") {
			name, value, _ := strings.Cut(f, ":")
			offset, metadata, _ := strings.Cut(value, "/")
			tp := s.tp(name)
			if n := len(c.Topics); n == 0 || c.Topics[n-1].Topic != tp.Topic {
				c.Topics = append(c.Topics, fsm.CommitTopic{Topic: tp.Topic})
			}
			t := &c.Topics[len(c.Topics)-1]
			t.Partitions = append(t.Partitions, fsm.CommitPartition{Partition: tp.Partition, Offset: batch.Offset(atoi(s.t, offset)), LeaderEpoch: 1, Metadata: metadata})
		}
		return c
	case "forget":
		c := fsm.DeleteOffsets{Group: id}
		for _, name := range strings.Split(l.get("offsets"), ",") {
			c.Partitions = append(c.Partitions, s.tp(name))
		}
		return c
	case "expire":
		g, _ := s.im.Group(id)
		if g == nil {
			g = &fsm.Group{}
		}
		c := fsm.ExpireOffsets{Group: id, Epoch: int32(l.number("epoch", int64(g.Epoch)))}
		for _, f := range strings.FieldsFunc(l.get("offsets"), func(r rune) bool { return r == ',' }) {
			name, at, _ := strings.Cut(f, ":")
			c.Partitions = append(c.Partitions, fsm.ExpiredOffset{TP: s.tp(name), CommitMs: atoi(s.t, at)})
		}
		return c
	}
	s.t.Fatalf("%s: unknown change %q", s.d.Pos, l.name)
	return nil
}

// groupOf reads a group: members are written id, id:epoch or id/instance, and with
// a ~ after the id or the instance when they speak the classic protocol; grants, by
// ascending epoch, member:epoch:partition.
func (s *script) groupOf(id string, l line) *fsm.Group {
	g := &fsm.Group{ID: id, Kind: fsm.ClassicGroup, Epoch: int32(l.number("epoch", 0)), EmptySince: l.number("empty", 0)}
	if l.has("consumer") {
		g.Kind = fsm.ConsumerGroup
	} else {
		g.ProtocolType = "consumer"
	}
	for _, m := range strings.FieldsFunc(l.get("members"), func(r rune) bool { return r == ',' }) {
		name, epoch, _ := strings.Cut(m, ":")
		name, classic := strings.CutSuffix(name, "~")
		name, instance, _ := strings.Cut(name, "/")
		member := fsm.GroupMember{ID: name, InstanceID: instance, SessionMs: 45_000}
		if classic {
			member.Protocols = []fsm.GroupProtocol{{Name: "range"}}
		}
		if epoch != "" {
			member.Epoch = int32(atoi(s.t, epoch))
		}
		s.grant(&member, l)
		g.Members = append(g.Members, member)
	}
	return g
}

// grant gives a member the grants that the line has for it.
func (s *script) grant(m *fsm.GroupMember, l line) {
	for _, f := range strings.FieldsFunc(l.get("grants"), func(r rune) bool { return r == ',' }) {
		words := strings.Split(f, ":")
		if words[0] != m.ID {
			continue
		}
		epoch, tp := int32(atoi(s.t, words[1])), s.tp(words[2])
		m.Grants = append(m.Grants, fsm.Grant{Epoch: epoch, Partitions: []fsm.TopicPartitions{{Topic: tp.Topic, Partitions: []int32{tp.Partition}}}})
	}
}

// showGroups prints slots (how many each broker has, and those in use), groups
// and offsets.
func showGroups(im *fsm.Image) string {
	var out strings.Builder
	owners := map[fsm.BrokerID]int{}
	for i := range int32(fsm.Slots) {
		owners[im.Slot(i).Owner]++
	}
	if owners[fsm.NoBroker] < fsm.Slots {
		out.WriteString("slots")
		for b := range im.Brokers() {
			fmt.Fprintf(&out, " %d:%d", b.ID, owners[b.ID])
		}
		fmt.Fprintf(&out, " free:%d\n", owners[fsm.NoBroker])
	}
	for i := range int32(fsm.Slots) {
		s, groups := im.Slot(i), slices.Collect(im.Groups(i))
		if s.Seq != 0 || len(groups) > 0 {
			fmt.Fprintf(&out, "slot %d owner %d epoch %d seq %d\n", i, s.Owner, s.Epoch, s.Seq)
		}
		for _, g := range groups {
			out.WriteString(showGroup(im, g))
		}
	}
	return out.String()
}

func showGroup(im *fsm.Image, g *fsm.Group) string {
	var out strings.Builder
	kind := map[fsm.GroupKind]string{fsm.ClassicGroup: "classic", fsm.ConsumerGroup: "consumer"}[g.Kind]
	fmt.Fprintf(&out, "group %s %s %q epoch %d", g.ID, kind, g.ProtocolType, g.Epoch)
	for _, m := range g.Members {
		fmt.Fprintf(&out, " %s%s", m.ID, flag("/"+m.InstanceID, m.InstanceID != ""))
		if g.Kind == fsm.ConsumerGroup {
			fmt.Fprintf(&out, ":%d", m.Epoch)
		}
	}
	if g.EmptySince != 0 {
		fmt.Fprintf(&out, " empty since %d", g.EmptySince)
	}
	out.WriteString("\n")
	for tp, c := range im.CommittedOf(g.ID) {
		t, _ := im.Topic(tp.Topic)
		fmt.Fprintf(&out, "  %s-%d offset %d le %d at %d", t.Name, tp.Partition, c.Offset, c.LeaderEpoch, c.CommitMs)
		if c.ExpireMs >= 0 {
			fmt.Fprintf(&out, " until %d", c.ExpireMs)
		}
		fmt.Fprintf(&out, "%s\n", flag(fmt.Sprintf(" %q", c.Metadata), c.Metadata != ""))
	}
	return out.String()
}
