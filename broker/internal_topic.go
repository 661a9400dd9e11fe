package broker

import "github.com/weirmq/weir/fsm"

// offsetsTopic is where Kafka keeps groups and their offsets. Here they are part of
// the metadata, and the topic stays empty; but clients and tools look for it, so it
// is made when somebody first asks for the coordinator of a group, as Kafka does.
const offsetsTopic = "__consumer_offsets"

// offsetsPartitions is how many partitions it has: one is enough to hold nothing.
const offsetsPartitions = 1

// isInternal tells whether a topic is one that clients must not write to.
func isInternal(topic string) bool { return topic == offsetsTopic }

// haveOffsetsTopic has the topic of offsets made if the Image has none.
func (s *server) haveOffsetsTopic(im *fsm.Image) {
	if _, ok := im.TopicByName(offsetsTopic); !ok {
		s.creator.wantOffsets()
	}
}
