package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"

	"github.com/weirmq/weir/integration/seeds"
	"github.com/weirmq/weir/wire/codec"
)

// TestAllocationBound decodes, for each array of each message, as many of its
// least elements as there may be: the densest form in which bytes can ask for
// memory. Decoding must stay under its bound, whether it succeeds or refuses.
func TestAllocationBound(t *testing.T) {
	eachVersion(t, func(t *testing.T, a API, v int16) {
		for _, fresh := range []func() Message{
			func() Message { return a.NewRequest() },
			func() Message { return a.NewResponse() },
		} {
			m := fresh()
			eachSlice(reflect.ValueOf(m).Elem(), reflect.TypeOf(m).String(), func(path string) {
				body := encodeBody(t, a, v, m)
				underBound(t, a, v, fresh, path, body)
				if len(body) > 0 { // else the version lacks the slice, and all else
					underBound(t, a, v, fresh, path+", cut", body[:len(body)-1])
				}
			})
		}
	})
}

func underBound(t *testing.T, a API, v int16, fresh func() Message, path string, body []byte) {
	t.Helper()
	limit := bound(len(body))
	var err error
	n := allocates(limit, func() {
		c := codec.NewReader(body, codec.Budget(len(body))).SetVersion(v).Flexible(a.Flexible(v))
		fresh().code(c)
		err = c.Err()
	})
	if n >= limit {
		t.Errorf("%s: decoding %d bytes allocated %d, bound %d (outcome %v)", path, len(body), n, limit, err)
	}
	var codecErr *codec.Error
	if err != nil && !errors.As(err, &codecErr) {
		t.Errorf("%s: %v", path, err)
	}
}

// eachSlice calls fn once for each slice of structs or strings below v, when that
// slice has many least elements and the slices around it one.
func eachSlice(v reflect.Value, path string, fn func(path string)) {
	const many = 5_000
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			eachSlice(v.Field(i), path+"."+v.Type().Field(i).Name, fn)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), many, many))
		for i := range many {
			leastNames(v.Index(i))
		}
		fn(path)
		v.Set(v.Slice(0, 1))
		eachSlice(v.Index(0), path, fn)
		v.SetZero()
	case reflect.Pointer:
		if v.Type().Elem().Kind() == reflect.Struct {
			v.Set(reflect.New(v.Type().Elem()))
			eachSlice(v.Elem(), path, fn)
			v.SetZero()
		}
	}
}

// leastNames sets what may not be null to empty.
func leastNames(v reflect.Value) {
	if v.Kind() != reflect.Struct {
		return
	}
	if name := v.FieldByName("Name"); name.IsValid() && name.Kind() == reflect.Pointer {
		empty := ""
		name.Set(reflect.ValueOf(&empty))
	}
}

// TestHonestSizes: large but honest requests fit the usual budget.
func TestHonestSizes(t *testing.T) {
	seeds.Alone(t)
	const many = 20_000
	for v := int16(4); v <= 18; v++ {
		r := NewFetchRequest()
		for i := range many {
			p := DefaultFetchPartition()
			p.Partition = int32(i)
			r.Topics = append(r.Topics, FetchTopic{Topic: fmt.Sprintf("a-topic-%d", i), Partitions: []FetchPartition{p, p, p}})
		}
		honest(t, KeyFetch, v, r)
	}
	for v := int16(1); v <= 13; v++ {
		r := NewMetadataRequest()
		for i := range many {
			r.Topics = append(r.Topics, MetadataRequestTopic{Name: pointer(fmt.Sprintf("a-middling-topic-%d", i))})
		}
		honest(t, KeyMetadata, v, r)
	}
	for v := int16(0); v <= 13; v++ {
		r := NewMetadataRequest()
		for range 2000 {
			r.Topics = append(r.Topics, MetadataRequestTopic{Name: pointer("short")})
		}
		honest(t, KeyMetadata, v, r)
	}
	for v := int16(1); v <= 11; v++ {
		r := NewListOffsetsRequest()
		for i := range many {
			p := DefaultListOffsetsPartition()
			r.Topics = append(r.Topics, ListOffsetsTopic{Name: fmt.Sprintf("topic-%d", i), Partitions: []ListOffsetsPartition{p, p}})
		}
		honest(t, KeyListOffsets, v, r)
	}
	for v := int16(2); v <= 7; v++ {
		r := NewCreateTopicsRequest()
		for i := range many {
			r.Topics = append(r.Topics, CreatableTopic{Name: fmt.Sprintf("a-topic-%d", i), Assignments: []CreatableReplicaAssignment{},
				Configs: []CreatableTopicConfig{{Name: "retention.ms", Value: pointer("3600000")}}})
		}
		honest(t, KeyCreateTopics, v, r)
	}
}

// TestHonestGroupSizes is the same for what groups and their tools send.
func TestHonestGroupSizes(t *testing.T) {
	seeds.Alone(t)
	commit, fetch, epochs := NewOffsetCommitRequest(), new(OffsetFetchRequest), NewOffsetForLeaderEpochRequest()
	configs, groups := new(DescribeConfigsRequest), new(DescribeGroupsRequest)
	for i := range 20_000 {
		name := fmt.Sprintf("a-topic-%d", i)
		p, e := DefaultOffsetCommitPartition(), DefaultOffsetForLeaderPartition()
		commit.Topics = append(commit.Topics, OffsetCommitTopic{Name: name, Partitions: []OffsetCommitPartition{p, p}})
		fetch.Topics = append(fetch.Topics, OffsetFetchRequestTopic{Name: name, PartitionIndexes: []int32{1, 2}})
		epochs.Topics = append(epochs.Topics, OffsetForLeaderTopic{Topic: name, Partitions: []OffsetForLeaderPartition{e, e}})
		configs.Resources = append(configs.Resources, DescribeConfigsResource{ResourceName: name})
		groups.Groups = append(groups.Groups, "a-group-"+name)
	}
	group := DefaultOffsetFetchRequestGroup()
	group.Topics = fetch.Topics
	fetch.Groups = []OffsetFetchRequestGroup{group}
	for _, r := range []Request{commit, fetch, epochs, configs, groups} {
		a, _ := Lookup(r.Key())
		for v := a.Min; v <= a.Max; v++ {
			honest(t, a.Key, v, r)
		}
	}
}

func honest(t *testing.T, k Key, v int16, r Request) {
	t.Helper()
	frame, err := EncodeRequest(nil, RequestHeader{Key: k, Version: v}, r)
	if err != nil {
		t.Fatal(err)
	}
	frame = frame[FramePrefix:]
	if _, _, err := decode(frame); err != nil {
		t.Errorf("a frame of %d bytes: %v", len(frame), err)
	}
	if _, _, err := DecodeRequest(frame, len(frame)/2); !errors.Is(err, codec.ErrBudget) {
		t.Errorf("%s %d: with a budget of half the frame: %v", k, v, err)
	}
}

// produceFrame is a Produce request with one batch of n bytes for each of ten partitions.
func produceFrame(t testing.TB, n int) []byte {
	r := &ProduceRequest{Acks: -1, TimeoutMs: 30000}
	for i := range 10 {
		r.TopicData = append(r.TopicData, ProduceTopic{TopicID: [16]byte{byte(i)},
			PartitionData: []ProducePartition{{Index: int32(i), Records: bytes.Repeat([]byte{1}, n)}}})
	}
	return requestFrame(t, KeyProduce, 13, r)
}

func requestFrame(t testing.TB, k Key, v int16, r Request) []byte {
	t.Helper()
	frame, err := EncodeRequest(nil, RequestHeader{Key: k, Version: v, ClientID: pointer("client")}, r)
	if err != nil {
		t.Fatal(err)
	}
	return frame[FramePrefix:]
}

// fetchFrame is a Fetch request for ten partitions of each of ten topics.
func fetchFrame(t testing.TB, v int16) []byte {
	r := NewFetchRequest()
	for i := range 10 {
		topic := FetchTopic{Topic: fmt.Sprintf("topic-%d", i), TopicID: [16]byte{byte(i)}}
		for j := range 10 {
			p := DefaultFetchPartition()
			p.Partition, p.FetchOffset, p.PartitionMaxBytes = int32(j), 1000, 1<<20
			topic.Partitions = append(topic.Partitions, p)
		}
		r.Topics = append(r.Topics, topic)
	}
	return requestFrame(t, KeyFetch, v, r)
}

// fetchResponse has a hole for each of ten partitions of each of ten topics.
func fetchResponse() *FetchResponse {
	r := new(FetchResponse)
	for i := range 10 {
		topic := FetchTopicResponse{Topic: fmt.Sprintf("topic-%d", i), TopicID: [16]byte{byte(i)}}
		for j := range 10 {
			p := DefaultFetchPartitionResponse()
			p.PartitionIndex, p.RecordsSize = int32(j), 1<<20
			topic.Partitions = append(topic.Partitions, p)
		}
		r.Responses = append(r.Responses, topic)
	}
	return r
}

// TestAllocationCounts holds the hot paths to what they allocate today.
func TestAllocationCounts(t *testing.T) {
	decodeAllocs := func(frame []byte) float64 {
		return testing.AllocsPerRun(20, func() {
			if _, _, err := DecodeRequest(frame, math.MaxInt); err != nil {
				t.Fatal(err)
			}
		})
	}
	small, large := decodeAllocs(produceFrame(t, 100)), decodeAllocs(produceFrame(t, 1<<20))
	if small != large {
		t.Errorf("decoding Produce takes %v allocations with 100-byte batches, %v with 1 MiB ones", small, large)
	}
	if small > 16 { // coder, request, client id twice, topics, ten arrays of partitions
		t.Errorf("decoding Produce of ten topics takes %v allocations", small)
	}
	if n := decodeAllocs(fetchFrame(t, 13)); n > 17 {
		t.Errorf("decoding Fetch 10x10 takes %v allocations", n)
	}
	resp, dst := fetchResponse(), make([]byte, 0, 64<<10)
	n := testing.AllocsPerRun(20, func() {
		if _, _, err := EncodeResponse(dst, ResponseHead{Key: KeyFetch, Version: 13}, resp); err != nil {
			t.Fatal(err)
		}
	})
	if n > 10 { // coder, and the holes as they grow
		t.Errorf("encoding Fetch 10x10 takes %v allocations", n)
	}
}

func BenchmarkDecodeFetch(b *testing.B) {
	for _, v := range []int16{4, 11, 12, 13, 18} {
		frame := fetchFrame(b, v)
		b.Run(fmt.Sprintf("10x10/v%d", v), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := DecodeRequest(frame, codec.Budget(len(frame))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncodeFetch(b *testing.B) {
	resp, dst := fetchResponse(), make([]byte, 0, 64<<10)
	for _, v := range []int16{4, 11, 13, 18} {
		b.Run(fmt.Sprintf("10x10/v%d", v), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := EncodeResponse(dst, ResponseHead{Key: KeyFetch, Version: v}, resp); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecodeProduce(b *testing.B) {
	for _, n := range []int{100, 1 << 20} {
		frame := produceFrame(b, n)
		b.Run(fmt.Sprintf("10x%dB", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := DecodeRequest(frame, codec.Budget(len(frame))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncodeProduceResponse(b *testing.B) {
	resp := new(ProduceResponse)
	for i := range 10 {
		p := DefaultProducePartitionResponse()
		p.Index = int32(i)
		resp.Responses = append(resp.Responses, ProduceTopicResponse{Name: "topic", PartitionResponses: []ProducePartitionResponse{p}})
	}
	dst := make([]byte, 0, 4<<10)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := EncodeResponse(dst, ResponseHead{Key: KeyProduce, Version: 13}, resp); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeMetadata(b *testing.B) {
	r := NewMetadataResponse()
	for i := range 100 {
		topic := DefaultMetadataTopic()
		topic.Name = pointer(fmt.Sprintf("topic-%d", i))
		for j := range 10 {
			p := DefaultMetadataPartition()
			p.PartitionIndex, p.ReplicaNodes, p.IsrNodes = int32(j), []int32{1, 2, 3}, []int32{1, 2, 3}
			topic.Partitions = append(topic.Partitions, p)
		}
		r.Topics = append(r.Topics, topic)
	}
	dst := make([]byte, 0, 128<<10)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := EncodeResponse(dst, ResponseHead{Key: KeyMetadata, Version: 12}, r); err != nil {
			b.Fatal(err)
		}
	}
}
