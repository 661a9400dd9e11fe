package fsm

import (
	"math"

	"github.com/weirmq/weir/wire/codec"
)

// AddPartitions adds partitions to a topic, with the numbers that follow its last.
type AddPartitions struct {
	ID         TopicID
	From       int32 // how many there are, the guard
	Partitions []NewPartition
}

func (c AddPartitions) apply(e *edit) Result {
	old, ok := e.next.Topic(c.ID)
	switch {
	case !ok:
		return refused(UnknownTopic)
	case old.Partitions != c.From:
		return refused(StalePartitionCount)
	case len(c.Partitions) == 0 || len(c.Partitions) > math.MaxInt32-int(c.From):
		return refused(BadCommand)
	}
	configured, _ := configuredMinISR(old.sortedConfigs())
	rows := make([]Partition, len(c.Partitions))
	for i, np := range c.Partitions {
		p, no := e.first(np, configured)
		if no != 0 {
			return refused(no)
		}
		rows[i] = p
	}
	t := *old
	t.Partitions += int32(len(rows))
	e.replaceTopic(old, &t)
	e.addRows(t.ID, c.From, rows)
	return Result{}
}

// addRows stores new partitions that are numbered from from on: the last block is
// filled up before others follow.
func (e *edit) addRows(id TopicID, from int32, rows []Partition) {
	e.next.partitions += len(rows)
	for len(rows) > 0 {
		at := TopicPartition{Topic: id, Partition: from}
		key, used := keyOf(at), int(from%blockSize)
		part := rows[:min(blockSize-used, len(rows))]
		var old *block
		if used > 0 {
			old, _ = e.block(key)
		}
		b := newBlock(key, used+len(part), func(i int) Partition {
			if i < used {
				return old.partition(i)
			}
			return part[i-used]
		})
		for i := range part {
			e.next.hash += hashPartition(key.at(used+i), &part[i])
		}
		e.putBlock(b, old, ^uint64(0)<<used)
		from, rows = from+int32(len(part)), rows[len(part):]
	}
}

func (c *AddPartitions) code(x *codec.Coder) {
	codeTopicID(x, &c.ID)
	x.Varint(&c.From)
	codec.ArrayOf(x, &c.Partitions, sizeNewPartition, codeNewPartition)
}

func codeNewPartition(x *codec.Coder, p *NewPartition) {
	codeBrokers(x, &p.Replicas)
	codeBrokers(x, &p.ISR)
	codeBroker(x, &p.Leader)
}

func (AddPartitions) kind() kind              { return kindAddPartitions }
func (c AddPartitions) encode(w *codec.Coder) { c.code(w) }
