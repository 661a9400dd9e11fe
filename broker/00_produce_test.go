package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/integration/allocs"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/batch"
	"github.com/weirmq/weir/wire/compress"
)

// produceRequest produces batches to partitions 0, 1, … of a topic.
func produceRequest(version, acks int16, topic string, batches ...[]byte) *kmsg.ProduceRequest {
	r := kmsg.NewPtrProduceRequest()
	r.SetVersion(version)
	r.Acks, r.TimeoutMillis = acks, 10_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	for i, b := range batches {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = int32(i), b
		t.Partitions = append(t.Partitions, p)
	}
	r.Topics = append(r.Topics, t)
	return r
}

// recrc makes the checksum of an altered batch right again.
func recrc(b []byte) []byte {
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func TestProduceAllVersions(t *testing.T) {
	ts := newTestServer(t, nil)
	id, parts := ts.topic("orders", nil, selfID)
	want := int64(0)
	for v := int16(3); v <= 13; v++ {
		for _, acks := range []int16{1, -1} {
			req := produceRequest(v, acks, "orders", records(3, 20))
			req.Topics[0].TopicID = id
			resp := ts.dial().ask(req).(*kmsg.ProduceResponse)
			topic := resp.Topics[0]
			if v < 13 && topic.Topic != "orders" || v >= 13 && topic.TopicID != id {
				t.Errorf("version %d: answered for topic %q %x", v, topic.Topic, topic.TopicID)
			}
			got := topic.Partitions[0]
			if got.ErrorCode != 0 || got.BaseOffset != want || got.LogAppendTime != -1 {
				t.Errorf("version %d, acks %d: %+v, want base offset %d", v, acks, got, want)
			}
			if v >= 5 && got.LogStartOffset != 0 {
				t.Errorf("version %d: log start %d, want 0", v, got.LogStartOffset)
			}
			want += 3
		}
	}
	if parts[0].appends != 22 {
		t.Errorf("%d appends, want 22", parts[0].appends)
	}
}

// Each fault of a batch has its code, and the partition beside it is not held up.
func TestProduceBatchErrors(t *testing.T) {
	alter := func(f func(b []byte) []byte) []byte { return f(records(3, 20)) }
	deflated := func(codec compress.Codec, garble bool) []byte {
		b := batch.NewBuilder(time.Now().UnixMilli())
		b.Add(time.Now().UnixMilli(), nil, bytes.Repeat([]byte("y"), 500))
		err := b.Compress(int8(codec), func(dst, src []byte) ([]byte, error) { return compress.Deflate(codec, dst, src, 0) })
		if err != nil {
			t.Fatal(err)
		}
		p := b.Bytes()
		if garble {
			for i := 65; i < len(p); i++ {
				p[i] ^= 0x5a
			}
			recrc(p)
		}
		return p
	}
	control := batch.NewBuilder(0)
	control.Control()
	control.Add(time.Now().UnixMilli(), []byte{0, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 0})
	txn := batch.NewBuilder(time.Now().UnixMilli())
	txn.Producer(7, 0, 0)
	txn.Transactional()
	txn.Add(time.Now().UnixMilli(), nil, []byte("v"))
	bomb := batch.NewBuilder(time.Now().UnixMilli())
	bomb.Add(time.Now().UnixMilli(), nil, make([]byte, 80<<20))
	if err := bomb.Compress(int8(compress.Gzip), func(dst, src []byte) ([]byte, error) { return compress.Deflate(compress.Gzip, dst, src, 6) }); err != nil {
		t.Fatal(err)
	}
	old := func(ms int64) []byte {
		b := batch.NewBuilder(ms)
		b.Add(ms, nil, []byte("v"))
		return b.Bytes()
	}
	tests := []struct {
		name    string
		version int16
		records []byte
		want    wire.Code
	}{
		{"null records", 9, nil, wire.InvalidRecord},
		{"empty records", 9, []byte{}, wire.InvalidRecord},
		{"cut batch", 9, alter(func(b []byte) []byte { return b[:len(b)-1] }), wire.InvalidRecord},
		{"two batches", 9, alter(func(b []byte) []byte { return append(b, records(1, 1)...) }), wire.InvalidRecord},
		{"size below 14", 9, alter(func(b []byte) []byte { binary.BigEndian.PutUint32(b[8:], 13); return b }), wire.CorruptMessage},
		{"size 2^31-1", 9, alter(func(b []byte) []byte { binary.BigEndian.PutUint32(b[8:], 1<<31-1); return b }), wire.InvalidRecord},
		{"magic 0", 9, alter(func(b []byte) []byte { b[16] = 0; return b }), wire.InvalidRecord},
		{"magic 1", 9, alter(func(b []byte) []byte { b[16] = 1; return b }), wire.InvalidRecord},
		{"magic 3", 9, alter(func(b []byte) []byte { b[16] = 3; return b }), wire.CorruptMessage},
		{"magic 127", 9, alter(func(b []byte) []byte { b[16] = 127; return b }), wire.CorruptMessage},
		{"base offset 1", 9, alter(func(b []byte) []byte { b[7] = 1; return b }), wire.InvalidRecord},
		{"base offset min", 9, alter(func(b []byte) []byte { b[0] = 0x80; return b }), wire.InvalidRecord},
		{"bad crc", 9, alter(func(b []byte) []byte { b[70] ^= 1; return b }), wire.CorruptMessage},
		{"count -1", 9, alter(func(b []byte) []byte { copy(b[57:], []byte{0xff, 0xff, 0xff, 0xff}); return recrc(b) }), wire.InvalidRecord},
		{"count 2^31-1", 9, alter(func(b []byte) []byte { copy(b[57:], []byte{0x7f, 0xff, 0xff, 0xff}); return recrc(b) }), wire.InvalidRecord},
		{"count too high", 9, alter(func(b []byte) []byte { b[60] = 4; b[26] = 3; return recrc(b) }), wire.InvalidRecord},
		{"last delta max", 9, alter(func(b []byte) []byte { copy(b[23:], []byte{0x7f, 0xff, 0xff, 0xff}); return recrc(b) }), wire.InvalidRecord},
		{"control batch", 9, control.Bytes(), wire.InvalidRecord},
		{"transactional batch", 9, txn.Bytes(), wire.UnsupportedVersion},
		{"zstd before version 7", 6, deflated(compress.Zstd, false), wire.UnsupportedCompressionType},
		{"garbage in gzip", 9, deflated(compress.Gzip, true), wire.InvalidRecord},
		{"garbage in snappy", 9, deflated(compress.Snappy, true), wire.InvalidRecord},
		{"garbage in lz4", 9, deflated(compress.LZ4, true), wire.InvalidRecord},
		{"garbage in zstd", 9, deflated(compress.Zstd, true), wire.InvalidRecord},
		{"gzip bomb", 9, bomb.Bytes(), wire.MessageTooLarge},
		{"too large", 9, records(1, 1<<20), wire.MessageTooLarge},
		{"far future", 9, old(time.Now().Add(2 * time.Hour).UnixMilli()), wire.InvalidTimestamp},
		{"timestamp max", 9, old(1<<63 - 1), wire.InvalidTimestamp},
		{"timestamp -2", 9, old(-2), wire.InvalidTimestamp},
	}
	ts := newTestServer(t, nil)
	_, parts := ts.topic("orders", nil, selfID, selfID)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := parts[1].appends
			resp := ts.dial().ask(produceRequest(tt.version, -1, "orders", tt.records, records(2, 5))).(*kmsg.ProduceResponse)
			got := resp.Topics[0].Partitions
			if wire.Code(got[0].ErrorCode) != tt.want || got[0].BaseOffset != -1 {
				t.Errorf("code %v, base offset %d, want %v and -1", wire.Code(got[0].ErrorCode), got[0].BaseOffset, tt.want)
			}
			if tt.version >= 8 && got[0].ErrorMessage == nil {
				t.Error("no error message")
			}
			if got[1].ErrorCode != 0 || parts[1].appends != before+1 {
				t.Errorf("the other partition: code %d", got[1].ErrorCode)
			}
		})
	}
	if parts[0].appends != 0 {
		t.Errorf("%d bad batches were appended", parts[0].appends)
	}
}

func TestProduceRecordErrors(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.topic("orders", nil, selfID)
	b := batch.NewBuilder(time.Now().UnixMilli())
	b.Add(time.Now().UnixMilli(), nil, []byte("good"))
	b.Add(time.Now().Add(48*time.Hour).UnixMilli(), nil, []byte("bad"))
	got := ts.dial().ask(produceRequest(9, 1, "orders", b.Bytes())).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if len(got.ErrorRecords) != 1 || got.ErrorRecords[0].RelativeOffset != 1 || got.ErrorRecords[0].ErrorMessage == nil {
		t.Fatalf("record errors %+v, want one for record 1", got.ErrorRecords)
	}
}

func TestProduceCompressed(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.topic("orders", nil, selfID)
	for _, codec := range []compress.Codec{compress.Gzip, compress.Snappy, compress.LZ4, compress.Zstd} {
		for _, size := range []int{10, 5000, 900_000} {
			b := batch.NewBuilder(time.Now().UnixMilli())
			b.Add(time.Now().UnixMilli(), nil, bytes.Repeat([]byte("compressible "), size/13+1))
			err := b.Compress(int8(codec), func(dst, src []byte) ([]byte, error) { return compress.Deflate(codec, dst, src, 0) })
			if err != nil {
				t.Fatal(err)
			}
			got := ts.dial().ask(produceRequest(9, -1, "orders", b.Bytes())).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
			if got.ErrorCode != 0 {
				t.Errorf("%v, %d bytes: code %d", codec, size, got.ErrorCode)
			}
		}
	}
	if parts[0].appends != 12 {
		t.Errorf("%d appends, want 12", parts[0].appends)
	}
}

// What a replica answers becomes the partition's code.
func TestProducePartitionErrors(t *testing.T) {
	tests := []struct {
		name         string
		append, wait error
		acks         int16
		want         wire.Code
		base         int64
	}{
		{"not leader", errNotLeader, nil, -1, wire.NotLeaderOrFollower, -1},
		{"self-fenced", errStaleSession, nil, 1, wire.NotLeaderOrFollower, -1},
		{"not enough replicas", errNotEnoughReplicas, nil, -1, wire.NotEnoughReplicas, -1},
		{"disk full", errStorageFull, nil, 1, wire.KafkaStorageError, -1},
		{"out of order", storage.ErrOutOfOrderSequence, nil, 1, wire.OutOfOrderSequenceNumber, -1},
		{"old producer epoch", storage.ErrInvalidProducerEpoch, nil, -1, wire.InvalidProducerEpoch, -1},
		{"deposed while waiting", nil, errNotLeader, -1, wire.NotLeaderOrFollower, 0},
		{"ISR fell while waiting", nil, errNotEnoughAfterAppend, -1, wire.NotEnoughReplicasAfterAppend, 0},
		{"deposed, but nobody waits", nil, errNotLeader, 1, wire.None, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ts := newTestServer(t, nil)
			_, parts := ts.topic("orders", nil, selfID)
			parts[0].err, parts[0].waitErr = tt.append, tt.wait
			got := ts.dial().ask(produceRequest(9, tt.acks, "orders", records(1, 5))).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
			if wire.Code(got.ErrorCode) != tt.want || got.BaseOffset != tt.base {
				t.Errorf("code %v, base offset %d; want %v, %d", wire.Code(got.ErrorCode), got.BaseOffset, tt.want, tt.base)
			}
		})
	}
}

// The refusal of a sequence is told only by a log that surely holds all that its producer was
// answered. Another leader may have taken what is missing in this one, which has a session and
// does not know of it.
func TestProduceSequenceIsJudgedByThePresentLeader(t *testing.T) {
	for name, tt := range map[string]struct {
		meanwhile func(*testServer, fsm.TopicPartition) error
		acks      int16
		want      wire.Code
	}{
		"it leads":                    {func(*testServer, fsm.TopicPartition) error { return nil }, -1, wire.OutOfOrderSequenceNumber},
		"no controller tells":         {func(*testServer, fsm.TopicPartition) error { return errors.New("no controller") }, -1, wire.NotLeaderOrFollower},
		"another leads":               {leadBy(otherID), -1, wire.NotLeaderOrFollower},
		"another leads, for acks=1":   {leadBy(otherID), 1, wire.NotLeaderOrFollower},
		"it leads again, another led": {leadBy(otherID, selfID), -1, wire.NotLeaderOrFollower},
	} {
		t.Run(name, func(t *testing.T) {
			ts := newTestServer(t, nil)
			id, parts := ts.topic("orders", nil, selfID)
			parts[0].err = storage.ErrOutOfOrderSequence
			ts.during(func() error { return tt.meanwhile(ts, fsm.TopicPartition{Topic: id}) })
			got := ts.dial().ask(produceRequest(9, tt.acks, "orders", records(1, 5))).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
			if wire.Code(got.ErrorCode) != tt.want || got.BaseOffset != -1 || ts.asked() != 1 {
				t.Errorf("code %v, base offset %d, the controller was asked %d times; want %v, -1, once", wire.Code(got.ErrorCode), got.BaseOffset, ts.asked(), tt.want)
			}
		})
	}
}

// leadBy has a partition be led by one node after the other.
func leadBy(ids ...fsm.BrokerID) func(*testServer, fsm.TopicPartition) error {
	return func(ts *testServer, tp fsm.TopicPartition) error {
		for _, id := range ids {
			s, _ := ts.image.image().Partition(tp)
			ts.image.apply(fsm.ChangeLeaders{Items: []fsm.LeaderChange{{TP: tp, Leader: id, ISR: []fsm.BrokerID{selfID, otherID}, LeaderEpoch: s.LeaderEpoch, PartitionEpoch: s.PartitionEpoch}}})
		}
		return nil
	}
}

func TestProduceUnknown(t *testing.T) {
	ts := newTestServer(t, nil)
	id, _ := ts.topic("orders", nil, selfID)
	byName := produceRequest(12, 1, "missing", records(1, 5))
	if got := ts.dial().ask(byName).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode; got != 3 {
		t.Errorf("unknown name: code %d, want 3", got)
	}
	byID := produceRequest(13, 1, "", records(1, 5))
	byID.Topics[0].TopicID = [16]byte{9, 9}
	if got := ts.dial().ask(byID).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode; got != 100 {
		t.Errorf("unknown id: code %d, want 100", got)
	}
	for _, index := range []int32{1, -1, 1<<31 - 1} {
		r := produceRequest(13, 1, "", records(1, 5))
		r.Topics[0].TopicID = id
		r.Topics[0].Partitions[0].Partition = index
		if got := ts.dial().ask(r).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode; got != 3 {
			t.Errorf("partition %d: code %d, want 3", index, got)
		}
	}
}

// A partition that is led elsewhere is answered with where, from version 10 on.
func TestProduceLeaderHint(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.topic("orders", nil, otherID)
	for v := int16(3); v <= 12; v++ {
		resp := ts.dial().ask(produceRequest(v, 1, "orders", records(1, 5))).(*kmsg.ProduceResponse)
		got := resp.Topics[0].Partitions[0]
		if got.ErrorCode != 6 {
			t.Fatalf("version %d: code %d, want 6", v, got.ErrorCode)
		}
		if v < 10 {
			continue
		}
		if got.CurrentLeader.LeaderID != 2 || got.CurrentLeader.LeaderEpoch != 0 && got.CurrentLeader.LeaderEpoch != 1 {
			t.Errorf("version %d: current leader %+v, want 2", v, got.CurrentLeader)
		}
		if len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != 2 || resp.Brokers[0].Host != "host2" || resp.Brokers[0].Port != 9002 {
			t.Errorf("version %d: endpoints %+v, want that of 2", v, resp.Brokers)
		}
	}
}

func TestProduceInvalidAcks(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.topic("orders", nil, selfID)
	for _, acks := range []int16{2, -2, 32767, -32768} {
		got := ts.dial().ask(produceRequest(9, acks, "orders", records(1, 5))).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		if wire.Code(got.ErrorCode) != wire.InvalidRequiredAcks {
			t.Errorf("acks %d: %v, want %v", acks, wire.Code(got.ErrorCode), wire.InvalidRequiredAcks)
		}
	}
	if parts[0].appends != 0 {
		t.Error("a batch was appended")
	}
}

// A transactional id is refused for good, in words that no client retries on.
func TestProduceTransactionalID(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.topic("orders", nil, selfID)
	r := produceRequest(9, -1, "orders", records(1, 5))
	r.TransactionID = kmsg.StringPtr("txn")
	got := ts.dial().ask(r).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	code := wire.Code(got.ErrorCode)
	if code != wire.UnsupportedVersion || code.Retriable() || got.ErrorMessage == nil || parts[0].appends != 0 {
		t.Errorf("code %v, message %v, %d appends", code, got.ErrorMessage, parts[0].appends)
	}
}

// With acks 0 there is no answer: not on success, and on an error the connection ends.
func TestProduceAcksZero(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.topic("orders", nil, selfID)
	w := ts.dial()
	for range 3 {
		w.send(produceRequest(9, 0, "orders", records(1, 5)))
	}
	w.ask(apiVersionsRequest(3)) // the next answer is not that of a Produce
	if parts[0].appends != 3 {
		t.Errorf("%d appends, want 3", parts[0].appends)
	}
	corr := w.send(apiVersionsRequest(3))
	w.send(produceRequest(9, 0, "missing", records(1, 5)))
	w.receive(apiVersionsRequest(3), corr) // what came before is still answered
	w.closed()
}

func TestProduceTimeout(t *testing.T) {
	for _, timeout := range []int32{30, 0, -1} {
		ts := newTestServer(t, nil)
		_, parts := ts.topic("orders", nil, selfID)
		parts[0].hold = true
		r := produceRequest(9, -1, "orders", records(1, 5))
		r.TimeoutMillis = timeout
		got := ts.dial().ask(r).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		if wire.Code(got.ErrorCode) != wire.RequestTimedOut || got.BaseOffset != 0 {
			t.Errorf("timeout %d: code %v, base offset %d", timeout, wire.Code(got.ErrorCode), got.BaseOffset)
		}
	}
}

// Several acks=all requests are in flight at a time and are answered in order.
func TestProducePipelined(t *testing.T) {
	ts := newTestServer(t, nil)
	_, parts := ts.topic("orders", nil, selfID)
	parts[0].hold = true
	w := ts.dial()
	req := produceRequest(9, -1, "orders", records(1, 5))
	var corrs []int32
	for range 5 {
		corrs = append(corrs, w.send(req))
	}
	eventually(t, func() bool { parts[0].mu.Lock(); defer parts[0].mu.Unlock(); return parts[0].appends == 5 })
	// The bytes of all five have been given back though none is answered.
	eventually(t, func() bool { return ts.srv.budget.unused() == ts.srv.config.RequestMemory })
	parts[0].raise()
	for i, corr := range corrs {
		got := w.receive(req, corr).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		if got.ErrorCode != 0 || got.BaseOffset != int64(i) {
			t.Errorf("answer %d: %+v", i, got)
		}
	}
}

// A partition that is in one request twice is appended to twice and answered twice.
func TestProducePartitionTwice(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.topic("orders", nil, selfID)
	r := produceRequest(9, -1, "orders", records(2, 5), records(3, 5))
	r.Topics[0].Partitions[1].Partition = 0
	got := ts.dial().ask(r).(*kmsg.ProduceResponse).Topics[0].Partitions
	if len(got) != 2 || got[0].BaseOffset != 0 || got[1].BaseOffset != 2 || got[0].ErrorCode != 0 || got[1].ErrorCode != 0 {
		t.Errorf("answers %+v", got)
	}
}

// The topic's own configs hold for its batches.
func TestProduceTopicConfigs(t *testing.T) {
	ts := newTestServer(t, func(c *serverConfig) { c.MessageMaxBytes = 200 })
	_, parts := ts.topic("small", nil, selfID)
	ts.topic("large", [][2]string{{"max.message.bytes", "100000"}, {"message.timestamp.type", "LogAppendTime"}}, selfID)
	if got := ts.dial().ask(produceRequest(9, 1, "small", records(1, 300))).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; got.ErrorCode != 10 {
		t.Errorf("topic with the node's limit: code %d, want 10", got.ErrorCode)
	}
	before := time.Now().UnixMilli()
	got := ts.dial().ask(produceRequest(9, 1, "large", records(1, 300))).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if got.ErrorCode != 0 || got.LogAppendTime < before {
		t.Errorf("topic with its own limit and append time: %+v", got)
	}
	if parts[0].appends != 0 {
		t.Error("the large batch was appended")
	}
}

// The work of a Produce is the same for 1 KiB and 1 MiB: no copies, no
// allocations that grow with the bytes.
func TestProduceAllocations(t *testing.T) {
	ts := newTestServer(t, func(c *serverConfig) { c.MessageMaxBytes = 4 << 20 })
	id, _ := ts.topic("orders", nil, selfID)
	counts := make(map[int]float64)
	for _, n := range []int{1, 1024} {
		c := &Conn{srv: ts.srv}
		b := records(n, 1000)
		p := append([]byte(nil), b...)
		req := &wire.ProduceRequest{Acks: -1, TimeoutMs: 1000, TopicData: []wire.ProduceTopic{
			{TopicID: id, PartitionData: []wire.ProducePartition{{Records: p}}}}}
		counts[n] = allocs.Least(func() {
			copy(p, b)
			reply := handleProduce(t.Context(), c, wire.RequestHeader{Version: 13}, req)(t.Context())
			if got := reply.Body.(*wire.ProduceResponse).Responses[0].PartitionResponses[0].ErrorCode; got != wire.None {
				t.Fatal(got)
			}
		})
	}
	t.Logf("allocations by number of records: %v", counts)
	if counts[1] != counts[1024] && !underRace {
		t.Errorf("allocations depend on the size: %v", counts)
	}
}

// nullReplica takes batches and forgets them.
type nullReplica struct{ fakeReplica }

func (n *nullReplica) Append(b batch.Batch, _ int16) (Ticket, error) {
	return Ticket{Appended: storage.Appended{Last: batch.Offset(b.LastDelta()), AppendTime: -1}, w: n}, nil
}

func (n *nullReplica) await(context.Context, Ticket) error { return nil }

// BenchmarkProduce is a whole request over loopback: read, decode, validate, answer.
func BenchmarkProduce(b *testing.B) {
	for _, size := range []int{1, 16, 1000} {
		b.Run(fmt.Sprintf("%dKiB", size), func(b *testing.B) { benchmarkProduce(b, size) })
	}
}

func benchmarkProduce(b *testing.B, n int) {
	ts := newBenchServer(b)
	id := ts.image.topic("orders", nil, selfID)
	ts.replicas[fsm.TopicPartition{Topic: id}] = &nullReplica{fakeReplica{leader: selfID}}
	w := ts.dial()
	req := produceRequest(9, -1, "orders", records(n, 1015))
	p := w.enc.AppendRequest(nil, req, 1)
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		w.raw(p)
		if _, _, err := w.frame(); err != nil {
			b.Fatal(err)
		}
	}
}

// The text that a client is told names what is wrong.
func TestProduceErrorText(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.topic("orders", nil, selfID)
	got := ts.dial().ask(produceRequest(9, 1, "orders", records(1, 1<<20))).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if got.ErrorMessage == nil || !strings.Contains(*got.ErrorMessage, "1048588") {
		t.Errorf("message %v, want one with the limit", got.ErrorMessage)
	}
	if errors.Is(errTransactional, errNotLeader) {
		t.Error("sentinels are not distinct")
	}
}
