package group

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/weirmq/weir/fsm"
)

// consumerProtocol is the protocol type of classic consumers. What they say about
// themselves, and what their leader assigns, is in a format of their own, which
// they embed in the requests of the classic protocol.
const consumerProtocol = "consumer"

// embedded is what a classic consumer's metadata says.
type embedded struct {
	version    int16
	topics     []string
	owned      []namedPartitions // from version 1, of a client that keeps what it has while it joins
	generation int32             // from version 2: that of owned; -1 when not given
	rack       string            // from version 3
}

// namedPartitions are partitions of one topic, as classic consumers name them.
type namedPartitions struct {
	topic      string
	partitions []int32
}

// embeddedReader reads the embedded format. After the first fault it reads nothing.
type embeddedReader struct {
	p   []byte
	bad bool
}

func (r *embeddedReader) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.p) {
		r.bad = true
		return nil
	}
	out := r.p[:n]
	r.p = r.p[n:]
	return out
}

func (r *embeddedReader) int16() int16 {
	if p := r.take(2); p != nil {
		return int16(binary.BigEndian.Uint16(p))
	}
	return 0
}

func (r *embeddedReader) int32() int32 {
	if p := r.take(4); p != nil {
		return int32(binary.BigEndian.Uint32(p))
	}
	return 0
}

func (r *embeddedReader) text() string { return string(r.take(int(r.int16()))) }

// optional reads a text that may be null, which is the same as empty here.
func (r *embeddedReader) optional() string {
	n := r.int16()
	if n < 0 {
		return ""
	}
	return string(r.take(int(n)))
}

// count reads the length of a list whose elements take at least size bytes.
func (r *embeddedReader) count(size int) int {
	n := int(r.int32())
	if n < 0 || n > len(r.p)/size {
		r.bad = true
		return 0
	}
	return n
}

// blob skips bytes that may be null, and returns how many there were.
func (r *embeddedReader) blob() int {
	n := int(r.int32())
	if n > 0 {
		r.take(n)
	}
	return n
}

func (r *embeddedReader) partitions() []namedPartitions {
	var all []namedPartitions
	for range r.count(6) {
		t := namedPartitions{topic: r.text()}
		for range r.count(4) {
			t.partitions = append(t.partitions, r.int32())
		}
		all = append(all, t)
	}
	return all
}

// parseSubscription reads a classic consumer's metadata. Bytes that a newer version
// may have after what is known here are left alone; what comes after the topics is
// not there in all that clients send under a number, and then is taken to be empty.
func parseSubscription(metadata []byte) (embedded, bool) {
	r := embeddedReader{p: metadata}
	s := embedded{version: r.int16(), generation: -1}
	for range r.count(2) {
		s.topics = append(s.topics, r.text())
	}
	if r.bad {
		return embedded{}, false
	}
	rest := s
	r.blob()
	if s.version >= 1 {
		rest.owned = r.partitions()
	}
	if s.version >= 2 {
		rest.generation = r.int32()
	}
	if s.version >= 3 {
		rest.rack = r.optional()
	}
	if r.bad {
		return s, true
	}
	return rest, true
}

// parseAssignment reads what a classic leader assigned to one member. own says that
// there is something in it that only the leader's own assignor understands.
func parseAssignment(p []byte) (all []namedPartitions, own, ok bool) {
	if len(p) == 0 {
		return nil, false, true
	}
	r := embeddedReader{p: p}
	r.int16()
	all = r.partitions()
	if len(r.p) > 0 {
		own = r.blob() > 0
	}
	return all, own, !r.bad
}

// appendAssignment writes an assignment for a classic consumer whose metadata had
// that version.
func appendAssignment(dst []byte, version int16, all []namedPartitions) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(min(max(version, 0), embeddedMax)))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(all)))
	for _, t := range all {
		dst = binary.BigEndian.AppendUint16(dst, uint16(min(len(t.topic), math.MaxInt16)))
		dst = append(dst, t.topic...)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(t.partitions)))
		for _, p := range t.partitions {
			dst = binary.BigEndian.AppendUint32(dst, uint32(p))
		}
	}
	return binary.BigEndian.AppendUint32(dst, math.MaxUint32) // no bytes of the assignor
}

// embeddedMax is the newest version of the embedded format that is written.
const embeddedMax = 3

// subscription is the topics of a classic consumer's metadata.
func subscription(metadata []byte) ([]string, bool) {
	s, ok := parseSubscription(metadata)
	return s.topics, ok
}

// sameSubscription says that a member which replaces another asks for the same
// topics. What else there is in the metadata, such as the partitions that a
// restarted client does not have any more, is no reason to rebalance; and what
// cannot be read is taken to be the same, as Kafka does.
func sameSubscription(protocolType string, before, after []byte) bool {
	if protocolType != consumerProtocol {
		return true
	}
	x, ok1 := subscription(before)
	y, ok2 := subscription(after)
	if !ok1 || !ok2 {
		return true
	}
	return slices.Equal(distinctTopics(x), distinctTopics(y))
}

// distinctTopics sorts names and drops those named again. It works in place.
func distinctTopics(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// resolve makes a set of named partitions. Topics that are gone are left out.
func resolve(all []namedPartitions, topics Topics) []fsm.TopicPartitions {
	var b builder
	for _, t := range all {
		topic, ok := topics.Topic(t.topic)
		for _, p := range t.partitions {
			if ok && p >= 0 && p < topic.Partitions {
				b.add(topic.ID, p)
			}
		}
	}
	return b.set()
}

// named is the reverse of resolve.
func named(set []fsm.TopicPartitions, topics Topics) []namedPartitions {
	var all []namedPartitions
	for _, t := range set {
		if topic, ok := topics.TopicByID(t.Topic); ok {
			all = append(all, namedPartitions{topic.Name, t.Partitions})
		}
	}
	return all
}
