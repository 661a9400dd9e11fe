package group_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weirmq/weir/broker/group"
	"github.com/weirmq/weir/fsm"
)

// joinRequest: join <client or member id> [new] [known] [skip] instance= protocols=(name:metadata,…) topics=(…).
// A first word with "new" is a client without a member id. One with owned=(topic:0-3,…) and gen= is a cooperative
// consumer; speaks=(…) names its protocols when all have the same metadata.
func (s *script) joinRequest() group.JoinRequest {
	who := s.name()
	client, _, _ := strings.Cut(who, "-")
	r := group.JoinRequest{
		ClientID: client, ClientHost: "10.0.0.1", InstanceID: s.text("instance", ""), ProtocolType: s.text("type", "consumer"),
		SessionTimeout: s.span(s.text("session", "10s")), RebalanceTimeout: s.span(s.text("rebalance", "1m")), Reason: s.text("reason", ""),
		KnownIDRequired: s.d.HasArg("known"), MaySkipAssignment: s.d.HasArg("skip"),
	}
	if s.d.HasArg("new") || s.d.HasArg("known") {
		r.NewID = s.newID(client)
	} else {
		r.MemberID = who
	}
	for _, p := range s.list("protocols") {
		name, metadata, _ := strings.Cut(p, ":")
		r.Protocols = append(r.Protocols, fsm.GroupProtocol{Name: name, Metadata: []byte(metadata)})
	}
	if r.Protocols == nil {
		metadata := subscriptionOf(s.list("topics"), s.text("extra", ""))
		if owned := s.list("owned"); owned != nil {
			c := embeddedClient{version: 2, topics: s.list("topics"), gen: s.number("gen", -1), owned: partitionMap(s.topics.parse(owned))}
			metadata = c.metadata()
		}
		for _, name := range strings.Split(s.text("speaks", "range"), ",") {
			r.Protocols = append(r.Protocols, fsm.GroupProtocol{Name: name, Metadata: metadata})
		}
	}
	return r
}

// subscriptionOf is a consumer's metadata: version 1, the topics, some bytes more.
func subscriptionOf(topics []string, extra string) []byte {
	p := binary.BigEndian.AppendUint16(nil, 1)
	p = binary.BigEndian.AppendUint32(p, uint32(len(topics)))
	for _, t := range topics {
		p = binary.BigEndian.AppendUint16(p, uint16(len(t)))
		p = append(p, t...)
	}
	return append(p, extra...)
}

// printMetadata writes what subscriptionOf made, or the bytes.
func printMetadata(p []byte) string {
	if len(p) > 6 && p[0] == 0 && p[1] == 2 {
		w := (&embeddedClient{}).wishOf(group.JoinMember{Metadata: p})
		return fmt.Sprintf("wants %s has %s", strings.Join(w.topics, ","), topicSet{}.print(partitionSet(w.owned)))
	}
	if len(p) < 6 || p[0] != 0 || p[1] != 1 {
		return fmt.Sprintf("%q", p)
	}
	var topics []string
	rest := p[6:]
	for range binary.BigEndian.Uint32(p[2:]) {
		n := 2 + int(binary.BigEndian.Uint16(rest))
		topics = append(topics, string(rest[2:n]))
		rest = rest[n:]
	}
	return "wants " + strings.Join(topics, ",") + string(rest)
}

// printAssignment writes what a leader or the group assigned as consumers write it,
// or the bytes.
func printAssignment(p []byte) string {
	if len(p) < 10 || p[0] != 0 {
		return fmt.Sprintf("%q", p)
	}
	return topicSet{}.print(partitionSet(assignedOf(p)))
}

// partitionSet sorts partitions by topic id and number.
func partitionSet(all map[fsm.TopicPartition]bool) []fsm.TopicPartitions {
	byTopic := map[fsm.TopicID][]int32{}
	for tp := range all {
		byTopic[tp.Topic] = append(byTopic[tp.Topic], tp.Partition)
	}
	var set []fsm.TopicPartitions
	for _, id := range slices.SortedFunc(maps.Keys(byTopic), func(a, b fsm.TopicID) int { return bytes.Compare(a[:], b[:]) }) {
		slices.Sort(byTopic[id])
		set = append(set, fsm.TopicPartitions{Topic: id, Partitions: byTopic[id]})
	}
	return set
}

func (s *script) newID(client string) string {
	s.ids[client]++
	return fmt.Sprintf("%s-%d", client, s.ids[client])
}

// syncRequest: sync <id> gen= assign=(id:bytes,…) or given=(id:topic:0-1+other:2,…),
// the latter as consumers write it.
func (s *script) syncRequest() group.SyncRequest {
	r := group.SyncRequest{MemberID: s.name(), InstanceID: s.text("instance", ""), Generation: s.number("gen", 0),
		ProtocolType: s.text("type", ""), Protocol: s.text("protocol", "")}
	for _, a := range s.list("assign") {
		id, what, _ := strings.Cut(a, ":")
		r.Assignments = append(r.Assignments, group.MemberAssignment{MemberID: id, Assignment: []byte(what)})
	}
	for _, a := range s.list("given") {
		id, what, _ := strings.Cut(a, ":")
		p := appendNamed([]byte{0, 1}, partitionMap(s.topics.parse(strings.Split(what, "+"))))
		userData := s.text("userdata", "")
		p = binary.BigEndian.AppendUint32(p, uint32(len(userData)))
		r.Assignments = append(r.Assignments, group.MemberAssignment{MemberID: id, Assignment: append(p, userData...)})
	}
	return r
}

// leaveRequest: leave [id] [instance=] or leave members=(id,/instance,…).
func (s *script) leaveRequest() group.LeaveRequest {
	all := s.list("members")
	if all == nil {
		all = []string{s.name() + "/" + s.text("instance", "")}
	}
	var r group.LeaveRequest
	for _, m := range all {
		id, instance, _ := strings.Cut(m, "/")
		r.Members = append(r.Members, group.LeaveMember{MemberID: id, InstanceID: instance, Reason: s.text("reason", "")})
	}
	return r
}

// consumerRequest: consumer <id> epoch= topics=(…) regex= owned=(topic:0-3,…) [full].
// A join says by itself that it owns nothing, and full means that all is told.
func (s *script) consumerRequest() group.ConsumerRequest {
	who := s.name()
	client, _, _ := strings.Cut(who, "-")
	r := group.ConsumerRequest{MemberID: who, InstanceID: s.text("instance", ""), NewID: "made-up", ClientID: client, ClientHost: "10.0.0.1",
		Epoch: s.number("epoch", 0), RebalanceTimeout: -1, Topics: s.list("topics")}
	if s.d.HasArg("rebalance") || r.Epoch == 0 || s.d.HasArg("full") {
		r.RebalanceTimeout = s.span(s.text("rebalance", "1m"))
	}
	for key, field := range map[string]**string{"regex": &r.Regex, "assignor": &r.Assignor, "rack": &r.Rack} {
		if s.d.HasArg(key) {
			text := s.text(key, "")
			*field = &text
		}
	}
	if owned := s.list("owned"); owned != nil {
		r.Owned = s.topics.parse(owned)
	} else if r.Epoch == 0 && !s.d.HasArg("ownedunknown") {
		r.Owned = []fsm.TopicPartitions{}
	}
	return r
}

// topicSet is the topics of a script or a test.
type topicSet map[string]group.Topic

func (ts topicSet) Version() uint64 {
	v := uint64(len(ts))
	for _, name := range slices.Sorted(maps.Keys(ts)) {
		t := ts[name]
		v = v*31 + uint64(t.Partitions)
		for _, b := range t.ID {
			v += uint64(b) << 20
		}
	}
	return v
}

func (ts topicSet) Topic(name string) (group.Topic, bool) {
	t, ok := ts[name]
	return t, ok
}

func (ts topicSet) TopicByID(id fsm.TopicID) (group.Topic, bool) {
	for _, t := range ts {
		if t.ID == id {
			return t, true
		}
	}
	return group.Topic{}, false
}

func (ts topicSet) All(yield func(group.Topic) bool) {
	for _, name := range slices.Sorted(maps.Keys(ts)) {
		if !yield(ts[name]) {
			return
		}
	}
}

func topicID(name string) (id fsm.TopicID) {
	copy(id[:], name)
	return id
}

// setTopics: topics a=4 b=2: these and no others.
func (s *script) setTopics() {
	clear(s.topics)
	for _, a := range s.d.CmdArgs {
		n, err := strconv.Atoi(a.Vals[0])
		if err != nil {
			s.d.Fatalf(s.t, "%v", err)
		}
		name, id, again := strings.Cut(a.Key, "#")
		if !again {
			id = name
		}
		s.topics[name] = group.Topic{ID: topicID(id), Name: name, Partitions: int32(n)}
	}
}

// parse reads a:0-3 and the like.
func (ts topicSet) parse(words []string) []fsm.TopicPartitions {
	all := []fsm.TopicPartitions{}
	for _, w := range words {
		name, span, _ := strings.Cut(w, ":")
		from, to, ranged := strings.Cut(span, "-")
		if !ranged {
			to = from
		}
		first, _ := strconv.Atoi(from)
		last, _ := strconv.Atoi(to)
		t := fsm.TopicPartitions{Topic: topicID(name)}
		for p := first; p <= last; p++ {
			t.Partitions = append(t.Partitions, int32(p))
		}
		all = append(all, t)
	}
	return all
}

// print writes a:0-3 and the like.
func (ts topicSet) print(set []fsm.TopicPartitions) string {
	var out []string
	for _, t := range set {
		name := strings.TrimRight(string(t.Topic[:]), "\x00")
		for i := 0; i < len(t.Partitions); {
			j := i
			for j+1 < len(t.Partitions) && t.Partitions[j+1] == t.Partitions[j]+1 {
				j++
			}
			if i == j {
				out = append(out, fmt.Sprintf("%s:%d", name, t.Partitions[i]))
			} else {
				out = append(out, fmt.Sprintf("%s:%d-%d", name, t.Partitions[i], t.Partitions[j]))
			}
			i = j + 1
		}
	}
	return "[" + strings.Join(out, " ") + "]"
}

var _ group.Topics = topicSet{}
