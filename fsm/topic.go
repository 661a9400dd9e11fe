package fsm

import (
	"fmt"
	"slices"
	"strings"
)

// maxConfigs bounds the configs of one topic: more than Kafka has.
const maxConfigs = 128

// MaxTopicName is the longest topic name in bytes: it is part of a folder's name.
const MaxTopicName = 249

// Topic is one topic; its partitions are rows of their own.
type Topic struct {
	ID         TopicID
	Name       string
	Partitions int32             // numbered from 0
	Configs    map[string]string // as they were given; nil when none was
	Config     TopicConfig       // what Configs mean, defaults filled in
}

// Tombstone is what stays of a deleted topic until every replica has confirmed
// that its files are gone. It is the only licence to delete files.
type Tombstone struct {
	ID      TopicID
	Name    string
	Pending []BrokerID // replicas that have not confirmed, ascending; unknown brokers wait too
}

// NewPartition is the first state of a partition.
type NewPartition struct {
	Replicas []BrokerID
	ISR      []BrokerID // the replicas that are eligible; at least one
	Leader   BrokerID   // one of ISR
}

// CreateTopic creates a topic under an id chosen by the proposer.
type CreateTopic struct {
	ID         TopicID
	Name       string
	Configs    [][2]string // name and value; no name twice
	Partitions []NewPartition
}

// DeleteTopic removes a topic with all that groups have committed for it, frees
// its name and leaves a Tombstone.
type DeleteTopic struct {
	ID TopicID
}

// ConfirmDeleted says that a broker holds nothing more of the topics.
type ConfirmDeleted struct {
	Broker      BrokerID
	BrokerEpoch BrokerEpoch
	Topics      []TopicID
}

// CheckTopicName returns an error when name cannot be a topic's: it becomes
// part of a folder's name.
func CheckTopicName(name string) error {
	switch {
	case name == "" || name == "." || name == "..":
		return fmt.Errorf("topic name %q: must not be empty, \".\" or \"..\"", name)
	case len(name) > MaxTopicName:
		return fmt.Errorf("topic name of %d bytes: at most %d are allowed", len(name), MaxTopicName)
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return fmt.Errorf("topic name %q: only letters, digits, '.', '_' and '-' are allowed", name)
		}
	}
	return nil
}

func (c CreateTopic) apply(e *edit) Result {
	configured, ok := configuredMinISR(c.Configs)
	if !ok || c.ID == (TopicID{}) || CheckTopicName(c.Name) != nil || len(c.Partitions) == 0 {
		return refused(BadCommand)
	}
	if e.taken(c.ID, c.Name) {
		return refused(TopicExists)
	}
	rows := make([]Partition, len(c.Partitions))
	for i, np := range c.Partitions {
		p, no := e.first(np, configured)
		if no != 0 {
			return refused(no)
		}
		rows[i] = p
	}
	t := &Topic{ID: c.ID, Name: c.Name, Partitions: int32(len(rows)), Configs: configMap(c.Configs)}
	t.Config = effectiveConfig(t.Configs)
	e.addTopic(t, rows)
	return Result{}
}

// taken reports whether a topic or a tombstone has the id, or a topic the name.
// The tombstone of another topic of that name does not matter: folders are
// known by id.
func (e *edit) taken(id TopicID, name string) bool {
	_, byID := e.next.Topic(id)
	_, byName := e.next.TopicByName(name)
	_, buried := e.next.Tombstone(id)
	return byID || byName || buried
}

// first checks a partition's first state and makes its row.
func (e *edit) first(np NewPartition, configured int16) (Partition, Refusal) {
	if len(np.Replicas) == 0 || !distinct(np.Replicas) || !distinct(np.ISR) ||
		!slices.Contains(np.ISR, np.Leader) {
		return Partition{}, BadCommand
	}
	for _, id := range np.Replicas {
		if _, ok := e.next.Broker(id); !ok {
			return Partition{}, UnknownBroker
		}
	}
	for _, id := range np.ISR {
		if !slices.Contains(np.Replicas, id) || !e.next.Eligible(id) {
			return Partition{}, IneligibleReplica
		}
	}
	p := Partition{Replicas: np.Replicas, Leader: np.Leader, MinISR: EffectiveMinISR(configured, np.Replicas, nil)}
	p.ISR = p.among(func(id BrokerID) bool { return slices.Contains(np.ISR, id) })
	return p, 0
}

// addTopic stores a topic with its partitions.
func (e *edit) addTopic(t *Topic, rows []Partition) {
	txn(&e.topics, e.next.topics).Insert(t.ID[:], t)
	txn(&e.names, e.next.names).Insert([]byte(t.Name), t)
	e.change.topics = append(e.change.topics, t.ID)
	e.next.hash += hashTopic(t)
	e.addRows(t.ID, 0, rows)
}

func (c DeleteTopic) apply(e *edit) Result {
	t, ok := e.next.Topic(c.ID)
	if !ok {
		return refused(UnknownTopic)
	}
	var pending []BrokerID
	for b := range e.next.blocks.of(c.ID) {
		for i := range b.rows {
			pending = append(pending, b.partition(i).Replicas...)
		}
		slices.Sort(pending)
		pending = slices.Compact(pending)
		e.dropBlock(b)
	}
	txn(&e.topics, e.next.topics).Delete(c.ID[:])
	txn(&e.names, e.next.names).Delete([]byte(t.Name))
	e.next.hash -= hashTopic(t)
	e.dropOffsetsIn(c.ID)
	e.setTombstone(&Tombstone{ID: t.ID, Name: t.Name, Pending: slices.Clip(pending)}, nil)
	return Result{}
}

func (c ConfirmDeleted) apply(e *edit) Result {
	if _, no := e.incarnation(c.Broker, c.BrokerEpoch); no != 0 {
		return refused(no)
	}
	var r Result
	for i, id := range c.Topics {
		old, ok := txn(&e.tombstones, e.next.tombstones).Get(id[:])
		if !ok {
			r.skip(i, UnknownTopic)
			continue
		}
		j, waits := slices.BinarySearch(old.Pending, c.Broker)
		if !waits {
			continue
		}
		left := slices.Delete(slices.Clone(old.Pending), j, j+1)
		e.setTombstone(&Tombstone{ID: id, Name: old.Name, Pending: left}, old)
	}
	return r
}

// setTombstone stores t in place of old, or removes it when nobody is waited for.
func (e *edit) setTombstone(t, old *Tombstone) {
	e.change.topics = append(e.change.topics, t.ID)
	if old != nil {
		e.next.hash -= hashTombstone(old)
	}
	if len(t.Pending) == 0 {
		txn(&e.tombstones, e.next.tombstones).Delete(t.ID[:])
		return
	}
	e.next.hash += hashTombstone(t)
	txn(&e.tombstones, e.next.tombstones).Insert(t.ID[:], t)
}

// configMap turns configs into a Topic's map; nil when there are none.
func configMap(kvs [][2]string) map[string]string {
	if len(kvs) == 0 {
		return nil
	}
	m := make(map[string]string, len(kvs))
	for _, kv := range kvs {
		m[kv[0]] = kv[1]
	}
	return m
}

// sortedConfigs lists the configs by name.
func (t *Topic) sortedConfigs() [][2]string {
	kvs := make([][2]string, 0, len(t.Configs))
	for k, v := range t.Configs {
		kvs = append(kvs, [2]string{k, v})
	}
	slices.SortFunc(kvs, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return kvs
}
