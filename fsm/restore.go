package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/weirmq/weir/wire/codec"
)

// sizePartition is a Partition in memory.
const sizePartition = 176

// restore adds one frame of a snapshot to the Image and reports whether it was
// the last one. It accepts what WriteSnapshot can have written, nothing else.
func (e *edit) restore(number int, kind byte, body []byte) (done bool, err error) {
	if (number == 0) != (kind == frameHead) {
		return false, fmt.Errorf("frame kind %d out of order", kind)
	}
	x := codec.NewReader(body, budget(len(body))).Flexible(true)
	switch kind {
	case frameHead:
		return false, e.restoreHead(read(x, (*snapshotHead).code), x)
	case frameBroker:
		return false, e.restoreBroker(read(x, (*Broker).code), x)
	case frameNode:
		return false, e.restoreNode(read(x, (*Node).code), x)
	case frameTopic:
		return false, e.restoreTopic(read(x, (*topicRow).code), x)
	case frameTombstone:
		return false, e.restoreTombstone(read(x, (*Tombstone).code), x)
	case frameSlots:
		return false, e.restoreSlots(read(x, (*slotRows).code), x)
	case frameGroup:
		return false, e.restoreGroup(read(x, (*Group).code), x)
	case frameOffsets:
		return false, e.restoreOffsets(read(x, (*offsetRows).code), x)
	case frameEnd:
		return true, e.finish(read(x, (*snapshotEnd).code), x)
	}
	return false, fmt.Errorf("unknown frame kind %d", kind)
}

func (e *edit) restoreHead(h snapshotHead, x *codec.Coder) error {
	if err := x.End(); err != nil {
		return err
	}
	if h.nextProducerID < 0 || h.index < 0 {
		return fmt.Errorf("index %d, next producer id %d", h.index, h.nextProducerID)
	}
	e.next.index, e.next.clusterID, e.next.nextProducerID = uint64(h.index), h.clusterID, h.nextProducerID
	e.next.hash += hashCluster(h.clusterID) + hashProducerID(h.nextProducerID)
	return nil
}

func (e *edit) restoreBroker(b Broker, x *codec.Coder) error {
	if err := x.End(); err != nil {
		return err
	}
	list := e.next.brokers
	if b.ID < 1 || len(list) > 0 && list[len(list)-1].ID >= b.ID {
		return fmt.Errorf("broker %d out of order", b.ID)
	}
	e.next.brokers = append(list, b)
	e.next.hash += hashBroker(b)
	return nil
}

func (e *edit) restoreNode(n Node, x *codec.Coder) error {
	if err := x.End(); err != nil {
		return err
	}
	list := e.next.nodes
	if n.ID < 1 || n.Folder == ([16]byte{}) || len(list) > 0 && list[len(list)-1].ID >= n.ID {
		return fmt.Errorf("node %d out of order", n.ID)
	}
	if _, known := e.next.nodeOf(n.Folder); known {
		return fmt.Errorf("node %d has the folder of another", n.ID)
	}
	if b, ok := e.next.Broker(n.ID); ok && (n.Removed || b.Folder != n.Folder) {
		return fmt.Errorf("node %d is another than the broker", n.ID)
	}
	e.next.nodes = append(list, n)
	e.next.hash += hashNode(n)
	return nil
}

func (e *edit) restoreTopic(t topicRow, x *codec.Coder) error {
	if err := x.End(); err != nil {
		return err
	}
	if err := CheckTopicName(t.name); err != nil {
		return err
	}
	switch {
	case t.id == TopicID{} || len(t.rows) == 0:
		return fmt.Errorf("topic %q without id or partitions", t.name)
	case !slices.IsSortedFunc(t.configs, func(a, b [2]string) int { return compareNames(a[0], b[0]) }):
		return fmt.Errorf("configs of topic %q are not in order", t.name)
	case e.restored(t.id, t.name):
		return fmt.Errorf("topic %q appears twice", t.name)
	}
	for i := range t.rows {
		if err := e.checkRow(&t.rows[i]); err != nil {
			return fmt.Errorf("partition %d of topic %q: %w", i, t.name, err)
		}
	}
	topic := &Topic{ID: t.id, Name: t.name, Partitions: int32(len(t.rows)), Configs: configMap(t.configs)}
	topic.Config = effectiveConfig(topic.Configs)
	e.addTopic(topic, t.rows)
	return nil
}

// compareNames orders configs, for a check of order that no two equal names pass.
func compareNames(a, b string) int {
	if a == b {
		return -1
	}
	return bytes.Compare([]byte(a), []byte(b))
}

// restored is taken for an Image whose trees are still being written.
func (e *edit) restored(id TopicID, name string) bool {
	_, byID := txn(&e.topics, e.next.topics).Get(id[:])
	_, byName := txn(&e.names, e.next.names).Get([]byte(name))
	return byID || byName
}

// checkRow checks a partition against the invariants.
func (e *edit) checkRow(p *Partition) error {
	if fault := p.fault(); fault != "" {
		return errors.New(fault)
	}
	for _, id := range p.Replicas {
		if _, ok := e.next.Broker(id); !ok {
			return fmt.Errorf("replica on unknown broker %d", id)
		}
	}
	for _, id := range p.ISR {
		if b, _ := e.next.Broker(id); b.Fenced {
			return fmt.Errorf("fenced broker %d in ISR %v", id, p.ISR)
		}
	}
	return nil
}

func (e *edit) restoreTombstone(t Tombstone, x *codec.Coder) error {
	if err := x.End(); err != nil {
		return err
	}
	if _, live := txn(&e.topics, e.next.topics).Get(t.ID[:]); live || !ascending(t.Pending) {
		return fmt.Errorf("tombstone of topic %q, pending %v", t.Name, t.Pending)
	}
	if _, twice := txn(&e.tombstones, e.next.tombstones).Get(t.ID[:]); twice {
		return fmt.Errorf("tombstone of topic %q appears twice", t.Name)
	}
	e.setTombstone(&t, nil)
	return nil
}

// ascending reports whether ids are positive and each is above the one before;
// there must be one.
func ascending(ids []BrokerID) bool {
	last := BrokerID(0)
	for _, id := range ids {
		if id <= last {
			return false
		}
		last = id
	}
	return len(ids) > 0
}

// finish closes the trees and compares the checksum.
func (e *edit) finish(end snapshotEnd, x *codec.Coder) error {
	if err := x.End(); err != nil {
		return err
	}
	e.commit()
	e.next.journal = newJournal()
	if got := snapshotCheck(e.next); got != end.check {
		return fmt.Errorf("the content has checksum %016x, want %016x", got, end.check)
	}
	return nil
}
