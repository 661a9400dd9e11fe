package broker

import (
	"sync"

	"github.com/weirmq/weir/broker/group"
	"github.com/weirmq/weir/fsm"
)

// topicView numbers the versions of the topics in the Images, so that groups see
// at once whether anything changed that they subscribe to.
type topicView struct {
	mu      sync.Mutex // leaf; guards what is below
	im      *fsm.Image
	version uint64
}

// of returns the topics of im, which may be older than one that was seen before.
func (v *topicView) of(im *fsm.Image) imageTopics {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.im == nil:
		v.im, v.version = im, 1
	case im.Index() > v.im.Index():
		if d := fsm.Diff(v.im, im); len(d.Topics) > 0 {
			v.version++
		}
		v.im = im
	}
	return imageTopics{v.im, v.version}
}

// topicsNow are the topics of the present Image, which is looked at only if they
// are asked for.
func (g *groups) topicsNow() *presentTopics { return &presentTopics{groups: g} }

// presentTopics is group.Topics over the Image that was there when it was first used.
type presentTopics struct {
	groups *groups
	is     imageTopics
}

func (t *presentTopics) look() imageTopics {
	if t.is.im == nil {
		t.is = t.groups.topics.of(t.groups.image())
	}
	return t.is
}

// Version implements group.Topics.
func (t *presentTopics) Version() uint64 { return t.look().version }

// Topic implements group.Topics.
func (t *presentTopics) Topic(name string) (group.Topic, bool) { return t.look().Topic(name) }

// TopicByID implements group.Topics.
func (t *presentTopics) TopicByID(id fsm.TopicID) (group.Topic, bool) { return t.look().TopicByID(id) }

// All implements group.Topics.
func (t *presentTopics) All(yield func(group.Topic) bool) { t.look().All(yield) }

// imageTopics is group.Topics over one Image.
type imageTopics struct {
	im      *fsm.Image
	version uint64
}

// Topic finds a topic by name.
func (t imageTopics) Topic(name string) (group.Topic, bool) {
	topic, ok := t.im.TopicByName(name)
	if !ok {
		return group.Topic{}, false
	}
	return group.Topic{ID: topic.ID, Name: topic.Name, Partitions: topic.Partitions}, true
}

// TopicByID finds a topic by its id.
func (t imageTopics) TopicByID(id fsm.TopicID) (group.Topic, bool) {
	topic, ok := t.im.Topic(id)
	if !ok {
		return group.Topic{}, false
	}
	return group.Topic{ID: topic.ID, Name: topic.Name, Partitions: topic.Partitions}, true
}

// All yields all topics.
func (t imageTopics) All(yield func(group.Topic) bool) {
	for topic := range t.im.Topics() {
		if !yield(group.Topic{ID: topic.ID, Name: topic.Name, Partitions: topic.Partitions}) {
			return
		}
	}
}
