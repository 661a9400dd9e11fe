package broker

import (
	"math"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/batch"
)

// keyed is a batch with a record for each key; "" is none.
func keyed(keys ...string) []byte {
	now := time.Now().UnixMilli()
	b := batch.NewBuilder(now)
	for _, k := range keys {
		var key []byte
		if k != "" {
			key = []byte(k)
		}
		b.Add(now, key, []byte("v"))
	}
	return b.Bytes()
}

// TestProduceCompacted asks for keys where records are told apart by them: in topics whose
// policy says so, or that follow a node's which does.
func TestProduceCompacted(t *testing.T) {
	ts := newTestServer(t, func(c *serverConfig) { c.Cleanup = CleanupPolicy{"compact", true, true} })
	for name, configs := range map[string][][2]string{
		"usual": nil, "compact": {{fsm.CleanupPolicy, "compact"}}, "both": {{fsm.CleanupPolicy, "delete,compact"}},
		"delete": {{fsm.CleanupPolicy, "delete"}}, "keep": {{fsm.CleanupPolicy, ""}},
	} {
		ts.topic(name, configs, selfID)
		compacted := name != "delete" && name != "keep"
		for v := int16(3); v <= 12; v++ {
			got := ts.dial().ask(produceRequest(v, 1, name, keyed("a", "b", "", "c", ""))).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
			want := wire.None
			if compacted {
				want = wire.InvalidRecord
			}
			if wire.Code(got.ErrorCode) != want {
				t.Errorf("%s, version %d: got %v, want %v", name, v, wire.Code(got.ErrorCode), want)
			}
			if compacted && v >= 8 && (len(got.ErrorRecords) != 1 || got.ErrorRecords[0].RelativeOffset != 2 || got.ErrorMessage == nil) {
				t.Errorf("%s, version %d: record errors %+v", name, v, got.ErrorRecords)
			}
			got = ts.dial().ask(produceRequest(v, 1, name, keyed("a", "b"))).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
			if got.ErrorCode != 0 {
				t.Errorf("%s, version %d: got %v with keys", name, v, wire.Code(got.ErrorCode))
			}
		}
	}
}

// TestDeleteRecordsCompacted refuses to trim what keeps the newest record of each key.
func TestDeleteRecordsCompacted(t *testing.T) {
	ts := newTestServer(t, nil)
	for name, want := range map[string]wire.Code{"compact": wire.PolicyViolation, "compact,delete": wire.None, "delete": wire.None, "": wire.None} {
		topic := "t" + string(rune('a'+len(name)))
		_, reps := ts.topic(topic, [][2]string{{fsm.CleanupPolicy, name}}, selfID)
		reps[0].set(func() { reps[0].end, reps[0].hw = 9, 9 })
		r := kmsg.NewPtrDeleteRecordsRequest()
		r.SetVersion(2)
		r.TimeoutMillis = 1000
		in := kmsg.NewDeleteRecordsRequestTopic()
		in.Topic = topic
		part := kmsg.NewDeleteRecordsRequestTopicPartition()
		part.Offset = 5
		in.Partitions = append(in.Partitions, part)
		r.Topics = append(r.Topics, in)
		got := ts.dial().ask(r).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]
		if wire.Code(got.ErrorCode) != want {
			t.Errorf("cleanup.policy=%s: got %v, want %v", name, wire.Code(got.ErrorCode), want)
		}
	}
}

// TestCompactionPolicy takes each setting from the topic, else from the node, and holds
// deletions while a replica is out of sync.
func TestCompactionPolicy(t *testing.T) {
	c := DefaultConfig()
	for key, value := range map[string]string{
		"log.cleanup.policy": "compact, delete", "log.cleaner.min.cleanable.ratio": "0.25", "log.cleaner.min.compaction.lag.ms": "1",
		"log.cleaner.max.compaction.lag.ms": "2", "log.cleaner.delete.retention.ms": "3", "log.cleaner.backoff.ms": "40",
		"log.cleaner.dedupe.buffer.size": "5000000", "log.cleaner.io.max.bytes.per.second": "6.5E6",
	} {
		if err := c.Set(key, value); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	topic := func(configs ...[2]string) *fsm.Topic {
		parsed, err := fsm.ParseTopicConfigs(configs)
		if err != nil {
			t.Fatal(err)
		}
		own := map[string]string{}
		for _, kv := range configs {
			own[kv[0]] = kv[1]
		}
		return &fsm.Topic{Configs: own, Config: parsed}
	}
	all := []fsm.BrokerID{1, 2, 3}
	whole := fsm.Partition{Replicas: all, ISR: all}
	if got := c.Compaction.policy(topic(), whole); got == nil || *got != (storage.Compaction{MinRatio: 0.25, MinLagMs: 1, MaxLagMs: 2, DeleteRetentionMs: 3}) {
		t.Errorf("the node's: %+v", got)
	}
	own := topic([2]string{"min.cleanable.dirty.ratio", "0.75"}, [2]string{"min.compaction.lag.ms", "10"}, [2]string{"max.compaction.lag.ms", "20"}, [2]string{"delete.retention.ms", "30"})
	if got := c.Compaction.policy(own, fsm.Partition{Replicas: all, ISR: all[:2]}); got == nil || *got != (storage.Compaction{MinRatio: 0.75, MinLagMs: 10, MaxLagMs: 20, DeleteRetentionMs: 30, HoldDeletes: true}) {
		t.Errorf("the topic's: %+v", got)
	}
	if got := c.Compaction.policy(topic([2]string{fsm.CleanupPolicy, "delete"}), whole); got != nil {
		t.Errorf("not compacted: %+v", got)
	}
	env := &environment{retention: c.Retention, compaction: c.Compaction}
	if got := env.retained(topic()); got == storage.RetainAll() {
		t.Error("compact,delete keeps all")
	}
	if got := env.retained(topic([2]string{fsm.CleanupPolicy, "compact"})); got != storage.RetainAll() {
		t.Errorf("compact lets go of %+v", got)
	}
	o := storage.DefaultOptions()
	c.Compaction.options(&o)
	if o.CleanerBackoff != 40*time.Millisecond || o.CleanerBytes != 5_000_000 || o.CleanerRate != 6_500_000 {
		t.Errorf("options %v, %d, %d", o.CleanerBackoff, o.CleanerBytes, o.CleanerRate)
	}
	c.Compaction.Enable, c.Compaction.Rate = false, math.MaxFloat64
	o = storage.DefaultOptions()
	if c.Compaction.options(&o); o.CleanerBackoff >= 0 || o.CleanerRate != 0 {
		t.Errorf("options %v, %d", o.CleanerBackoff, o.CleanerRate)
	}
}

// TestCompactionConfigRefused refuses settings that mean nothing.
func TestCompactionConfigRefused(t *testing.T) {
	for key, value := range map[string]string{
		"log.cleanup.policy": "erase", "log.cleaner.min.cleanable.ratio": "2", "log.cleaner.max.compaction.lag.ms": "0",
		"log.cleaner.dedupe.buffer.size": "1000", "log.cleaner.io.max.bytes.per.second": "NaN", "log.cleaner.enable": "maybe",
	} {
		c := DefaultConfig()
		if err := c.Set(key, value); err == nil {
			t.Errorf("%s=%s was accepted", key, value)
		}
	}
	c := DefaultConfig()
	c.Compaction.MinLag, c.Compaction.MaxLag = 2, 1
	if c.Validate() == nil {
		t.Error("a least lag above the greatest was accepted")
	}
	c = DefaultConfig()
	c.Compaction.Backoff = time.Millisecond
	if c.Validate() == nil {
		t.Error("a backoff of a millisecond was accepted")
	}
}

// H42: TestTruncateCompacted has a follower lose records that it knew were committed. Of a
// compacted log it keeps none then: what they had replaced is gone from it, and not from
// the leader's.
func TestTruncateCompacted(t *testing.T) {
	for _, compacted := range []bool{false, true} {
		s := newStand(t)
		s.host(1, 2)
		s.follows(2, 0)
		s.write(6, 2)
		s.write(2)
		if compacted {
			how := storage.DefaultCompaction()
			s.p.log.SetCompaction(&how)
		}
		s.elect(2)
		if local, err := s.p.truncateFed(1, 0, 7); err != nil || local.Written != 7 {
			t.Errorf("compacted %v, above the high watermark: %+v, %v", compacted, local, err)
		}
		want := batch.Offset(4)
		if compacted {
			want = 0
		}
		if local, err := s.p.truncateFed(1, 0, 4); err != nil || local.Written != want {
			t.Errorf("compacted %v, below it: %+v, %v, want end %d", compacted, local, err, want)
		}
	}
}
