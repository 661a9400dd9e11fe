package fsm

import (
	"maps"
	"slices"
	"strconv"

	"github.com/weirmq/weir/wire/codec"
)

// ConfigChange is one topic config before and after. nil means that it is not
// set on the topic, so that the default holds.
type ConfigChange struct {
	Name string
	Was  *string // what the change was made from, its guard
	Now  *string
}

// AlterTopicConfigs changes configs of one topic, all or none. A change of
// min.insync.replicas changes the partitions' effective minimum in the same step.
type AlterTopicConfigs struct {
	ID      TopicID
	Changes []ConfigChange // no name twice
}

func (c AlterTopicConfigs) apply(e *edit) Result {
	old, ok := e.next.Topic(c.ID)
	if !ok {
		return refused(UnknownTopic)
	}
	if no := c.check(old); no != 0 {
		return refused(no)
	}
	t := *old
	t.Configs = maps.Clone(old.Configs)
	for _, ch := range c.Changes {
		if ch.Now == nil {
			delete(t.Configs, ch.Name)
			continue
		}
		if t.Configs == nil {
			t.Configs = map[string]string{}
		}
		t.Configs[ch.Name] = *ch.Now
	}
	if len(t.Configs) == 0 {
		t.Configs = nil
	}
	if len(t.Configs) > maxConfigs {
		return refused(BadCommand)
	}
	configured, ok := configuredMinISR(t.sortedConfigs())
	if !ok {
		return refused(BadCommand)
	}
	t.Config = effectiveConfig(t.Configs)
	e.replaceTopic(old, &t)
	e.changeMinISR(&t, configured)
	return Result{}
}

// check tells which guard does not hold.
func (c AlterTopicConfigs) check(t *Topic) Refusal {
	for i, ch := range c.Changes {
		if slices.ContainsFunc(c.Changes[:i], func(o ConfigChange) bool { return o.Name == ch.Name }) {
			return BadCommand
		}
		is, set := t.Configs[ch.Name]
		if set != (ch.Was != nil) || set && is != *ch.Was {
			return StaleConfig
		}
	}
	return 0
}

// replaceTopic stores another version of a topic's row under its name and id.
func (e *edit) replaceTopic(old, t *Topic) {
	txn(&e.topics, e.next.topics).Insert(t.ID[:], t)
	txn(&e.names, e.next.names).Insert([]byte(t.Name), t)
	e.change.topics = append(e.change.topics, t.ID)
	e.next.hash += hashTopic(t) - hashTopic(old)
}

// changeMinISR brings the effective minimum of a topic's partitions in line with
// the configured one.
func (e *edit) changeMinISR(t *Topic, configured int16) {
	for i := range t.Partitions {
		tp := TopicPartition{Topic: t.ID, Partition: i}
		p, ok := e.partition(tp)
		if !ok {
			continue
		}
		least := EffectiveMinISR(configured, p.Replicas, p.Adding)
		if least == p.MinISR {
			continue
		}
		p.setMinISR(least)
		p.PartitionEpoch++
		e.setPartition(tp, p)
	}
}

// configuredMinISR is the configured min.insync.replicas, 0 when there is none,
// and whether the configs are well formed. Apply reads no other config: what the
// rest means may change between versions.
func configuredMinISR(configs [][2]string) (int16, bool) {
	if len(configs) > maxConfigs {
		return 0, false
	}
	least := int16(0)
	for i, kv := range configs {
		for _, other := range configs[:i] {
			if other[0] == kv[0] {
				return 0, false
			}
		}
		if kv[0] == MinInsyncReplicas {
			n, err := strconv.ParseInt(kv[1], 10, 32)
			if err != nil || n < 1 {
				return 0, false
			}
			least = int16(min(n, MaxReplicas))
		}
	}
	return least, true
}

func (c *AlterTopicConfigs) code(x *codec.Coder) {
	codeTopicID(x, &c.ID)
	codec.ArrayOf(x, &c.Changes, 2*sizeString, func(x *codec.Coder, ch *ConfigChange) {
		x.String(&ch.Name)
		x.NullableString(&ch.Was)
		x.NullableString(&ch.Now)
	})
}

func (AlterTopicConfigs) kind() kind              { return kindAlterTopicConfigs }
func (c AlterTopicConfigs) encode(w *codec.Coder) { c.code(w) }
