package broker

import (
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/batch"
)

// topicRef is how a client names a topic: by name before version 13 of Fetch, by
// id from then on.
type topicRef struct {
	name string
	id   fsm.TopicID
}

// fetchTopic is one topic of a fetchSet.
type fetchTopic struct {
	ref topicRef
	// id is the topic that ref stood for when it was last looked up; zero when none.
	id fsm.TopicID
	// err is why this request cannot read the topic.
	err error
}

// fetchPart is one partition of a fetchSet: what is wanted of it, and what a
// session's client has been told.
type fetchPart struct {
	topic       int32 // index in the set's topics
	partition   int32
	offset      batch.Offset
	maxBytes    int32
	leaderEpoch batch.Epoch
	lastEpoch   batch.Epoch
	// hw and logStart are those that the client was told last, -1 when it was told
	// an error or nothing.
	hw, logStart batch.Offset
	// replica is what this request reads, nil when there is none here.
	replica replica
}

func (p *fetchPart) want(r *wire.FetchPartition) {
	p.offset, p.maxBytes, p.leaderEpoch, p.lastEpoch = r.FetchOffset, r.PartitionMaxBytes, r.CurrentLeaderEpoch, r.LastFetchedEpoch
}

// fetchSet is what a Fetch reads, in order: the ring of parts that begins at
// first. Within a session first moves past the last part that gave records, so
// that parts which fill the response do not keep others from their turn.
type fetchSet struct {
	ids    bool // topics are named by id
	topics []fetchTopic
	parts  []fetchPart
	first  int
}

// partKey finds a part of a set.
type partKey struct{ topic, partition int32 }

// at is the index of the n-th part in order.
func (s *fetchSet) at(n int) int {
	if i := s.first + n; i < len(s.parts) {
		return i
	}
	return s.first + n - len(s.parts)
}

func (s *fetchSet) ref(name string, id [16]byte) topicRef {
	if s.ids {
		return topicRef{id: id}
	}
	return topicRef{name: name}
}

// list adds all that a request names, each as often as it is named.
func (s *fetchSet) list(topics []wire.FetchTopic) {
	n := 0
	for i := range topics {
		n += len(topics[i].Partitions)
	}
	s.topics, s.parts = make([]fetchTopic, 0, len(topics)), make([]fetchPart, 0, n)
	for i := range topics {
		t := &topics[i]
		index := s.addTopic(s.ref(t.Topic, t.TopicID))
		for j := range t.Partitions {
			s.addPart(partKey{index, t.Partitions[j].Partition}, &t.Partitions[j])
		}
	}
}

func (s *fetchSet) addTopic(ref topicRef) int32 {
	s.topics = append(s.topics, fetchTopic{ref: ref})
	return int32(len(s.topics) - 1)
}

func (s *fetchSet) addPart(k partKey, r *wire.FetchPartition) {
	p := fetchPart{topic: k.topic, partition: k.partition, hw: -1, logStart: -1}
	p.want(r)
	s.parts = append(s.parts, p)
}

// update changes the parts that a request names, adds those that are new, once
// each and at the end, and takes out the forgotten ones.
func (s *fetchSet) update(topics []wire.FetchTopic, forgotten []wire.ForgottenTopic) {
	had := len(s.topics)
	changes := s.changes(topics, forgotten)
	if len(changes) == 0 {
		return
	}
	first, kept := 0, s.parts[:0]
	for i, p := range s.parts {
		if i == s.first {
			first = len(kept)
		}
		k := partKey{p.topic, p.partition}
		change, changed := changes[k]
		if changed && change == nil {
			continue // forgotten
		}
		if changed {
			p.want(change)
			delete(changes, k)
		}
		kept = append(kept, p)
	}
	clear(s.parts[len(kept):])
	removed := len(s.parts) - len(kept)
	s.parts, s.first = kept, first
	s.addNew(topics, changes)
	if s.first >= len(s.parts) {
		s.first = 0
	}
	if removed > 0 || len(s.topics) > had {
		s.shrink()
	}
}

// changes finds the parts that a request names, with nil for those that it forgets.
func (s *fetchSet) changes(topics []wire.FetchTopic, forgotten []wire.ForgottenTopic) map[partKey]*wire.FetchPartition {
	const unknown = -1
	named := make(map[topicRef]int32, len(topics)+len(forgotten))
	for i := range topics {
		named[s.ref(topics[i].Topic, topics[i].TopicID)] = unknown
	}
	for i := range forgotten {
		named[s.ref(forgotten[i].Topic, forgotten[i].TopicID)] = unknown
	}
	if len(named) == 0 {
		return nil
	}
	for i := range s.topics {
		if _, ok := named[s.topics[i].ref]; ok {
			named[s.topics[i].ref] = int32(i)
		}
	}
	changes := make(map[partKey]*wire.FetchPartition)
	for i := range topics {
		ref := s.ref(topics[i].Topic, topics[i].TopicID)
		if named[ref] == unknown && len(topics[i].Partitions) > 0 {
			named[ref] = s.addTopic(ref)
		}
		for j := range topics[i].Partitions {
			p := &topics[i].Partitions[j]
			changes[partKey{named[ref], p.Partition}] = p
		}
	}
	for i := range forgotten {
		index := named[s.ref(forgotten[i].Topic, forgotten[i].TopicID)]
		for _, p := range forgotten[i].Partitions {
			changes[partKey{index, p}] = nil
		}
	}
	return changes
}

// addNew adds the parts among changes, in the order of the request.
func (s *fetchSet) addNew(topics []wire.FetchTopic, changes map[partKey]*wire.FetchPartition) {
	if len(changes) == 0 {
		return
	}
	byRef := make(map[topicRef]int32, len(topics))
	for i := range s.topics {
		byRef[s.topics[i].ref] = int32(i)
	}
	for i := range topics {
		index := byRef[s.ref(topics[i].Topic, topics[i].TopicID)]
		for j := range topics[i].Partitions {
			k := partKey{index, topics[i].Partitions[j].Partition}
			if p := changes[k]; p != nil {
				s.addPart(k, p)
				delete(changes, k)
			}
		}
	}
}

// shrink drops topics without parts, and memory that is mostly unused.
func (s *fetchSet) shrink() {
	used := make([]bool, len(s.topics))
	for i := range s.parts {
		used[s.parts[i].topic] = true
	}
	moved := make([]int32, len(s.topics))
	var topics []fetchTopic
	for i := range s.topics {
		if used[i] {
			moved[i] = int32(len(topics))
			topics = append(topics, s.topics[i])
		}
	}
	s.topics = topics
	for i := range s.parts {
		s.parts[i].topic = moved[s.parts[i].topic]
	}
	if cap(s.parts) > 2*len(s.parts) {
		s.parts = append([]fetchPart(nil), s.parts...)
	}
}

// What a set takes in memory; a test holds them against the types.
const (
	fetchPartBytes  = 64
	fetchTopicBytes = 64
)

// size is the memory of the set in bytes.
func (s *fetchSet) size() int {
	n := cap(s.parts)*fetchPartBytes + cap(s.topics)*fetchTopicBytes
	for i := range s.topics {
		n += len(s.topics[i].ref.name)
	}
	return n
}

// resolve finds the topics in the Image, and the replicas on this node.
func (s *fetchSet) resolve(b *backend, im *fsm.Image) {
	for i := range s.topics {
		s.topics[i].resolve(im, s.ids)
	}
	for i := range s.parts {
		p := &s.parts[i]
		p.replica = nil
		if s.topics[p.topic].err == nil {
			p.replica = b.partition(s.tp(p))
		}
	}
}

// resolve looks the topic up. A session that names a topic by its name may find
// another one of that name there; its client is told once that the old one is gone.
func (t *fetchTopic) resolve(im *fsm.Image, ids bool) {
	was := t.id
	t.id, t.err = fsm.TopicID{}, nil
	if ids {
		if _, ok := im.Topic(t.ref.id); !ok {
			t.err = errUnknownTopicID
			return
		}
		t.id = t.ref.id
		return
	}
	topic, ok := im.TopicByName(t.ref.name)
	if !ok {
		t.err = errUnknownPartition
		return
	}
	t.id = topic.ID
	if was != (fsm.TopicID{}) && was != t.id {
		t.err = errUnknownPartition
	}
}

func (s *fetchSet) tp(p *fetchPart) fsm.TopicPartition {
	return fsm.TopicPartition{Topic: s.topics[p.topic].id, Partition: p.partition}
}

// missing is why a part has no replica here.
func (s *fetchSet) missing(p *fetchPart, im *fsm.Image) error {
	if err := s.topics[p.topic].err; err != nil {
		return err
	}
	if _, ok := im.Partition(s.tp(p)); ok {
		return errNotLeader
	}
	return errUnknownPartition
}
