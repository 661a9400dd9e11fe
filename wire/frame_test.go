package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/integration/seeds"
	"github.com/weirmq/weir/wire/codec"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	p, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func decode(frame []byte) (RequestHeader, Request, error) {
	return DecodeRequest(frame, codec.Budget(len(frame)))
}

// TestRequestFrames compares whole frames, header included, with the oracle's.
func TestRequestFrames(t *testing.T) {
	f := newFiller(uint64(seeds.For(t)))
	name := "a client"
	for _, client := range []*string{nil, &name} {
		var opts []kmsg.RequestFormatterOpt
		if client != nil {
			opts = append(opts, kmsg.FormatterClientID(name))
		}
		formatter := kmsg.NewRequestFormatter(opts...)
		eachVersion(t, func(t *testing.T, a API, v int16) {
			theirs := oracleRequest(a, v)
			f.message(theirs)
			absentTags(reflect.ValueOf(theirs).Elem(), v)
			want := formatter.AppendRequest(nil, theirs.(kmsg.Request), 77)
			size, err := FrameSize([4]byte(want), 1<<20)
			if err != nil || size != len(want)-FramePrefix {
				t.Fatalf("FrameSize gave %d, %v for a frame of %d", size, err, len(want)-FramePrefix)
			}
			h, req, err := decode(want[FramePrefix:])
			if err != nil {
				t.Fatalf("%v\n%x", err, want)
			}
			if h.Key != a.Key || h.Version != v || h.CorrelationID != 77 || !reflect.DeepEqual(h.ClientID, client) {
				t.Errorf("header %+v", h)
			}
			got, err := EncodeRequest([]byte("before"), h, req)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, append([]byte("before"), want...)) {
				t.Errorf("got  %x\nwant %x", got, want)
			}
		})
	}
}

// TestResponseFrames compares whole frames with header and body of the oracle.
func TestResponseFrames(t *testing.T) {
	f := newFiller(uint64(seeds.For(t)))
	eachVersion(t, func(t *testing.T, a API, v int16) {
		theirs := oracleResponse(a, v)
		f.message(theirs)
		absentTags(reflect.ValueOf(theirs).Elem(), v)
		want := []byte{0, 0, 0, 77}
		if theirs.(kmsg.Response).IsFlexible() && a.Key != KeyApiVersions {
			want = append(want, 0)
		}
		want = theirs.AppendTo(want)
		h, resp, err := DecodeResponse(want, a.Key, v, math.MaxInt)
		if err != nil {
			t.Fatal(err)
		}
		if h != (ResponseHead{Key: a.Key, Version: v, CorrelationID: 77}) {
			t.Errorf("head %+v", h)
		}
		got, holes, err := EncodeResponse(nil, h, resp)
		if err != nil || len(holes) != 0 {
			t.Fatalf("holes %v, error %v", holes, err)
		}
		want = append(binary.BigEndian.AppendUint32(nil, uint32(len(want))), want...)
		if !bytes.Equal(got, want) {
			t.Errorf("got  %x\nwant %x", got, want)
		}
		if _, _, err := DecodeResponse(append(want[FramePrefix:], 0), a.Key, v, math.MaxInt); !errors.Is(err, codec.ErrTrailing) {
			t.Errorf("with a byte too many: %v", err)
		}
	})
}

// TestApiVersionsOfTheFuture: the body of an ApiVersions request that is too new is
// not looked at, and the answer goes out in version 0.
func TestApiVersionsOfTheFuture(t *testing.T) {
	for _, version := range []int16{6, 127, math.MaxInt16, -1, math.MinInt16} {
		frame := binary.BigEndian.AppendUint16([]byte{0, 18}, uint16(version))
		frame = append(frame, 0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
		h, req, err := decode(frame)
		var unsupported *UnsupportedError
		if !errors.As(err, &unsupported) || req != nil {
			t.Fatalf("version %d: request %v, error %v", version, req, err)
		}
		if *unsupported != (UnsupportedError{Key: KeyApiVersions, Version: version, CorrelationID: 9}) || h.CorrelationID != 9 {
			t.Errorf("version %d: %+v, header %+v", version, unsupported, h)
		}
	}
	answer := NewApiVersionsResponse()
	answer.ErrorCode = UnsupportedVersion
	answer.ApiKeys = []ApiVersion{{ApiKey: KeyApiVersions, MinVersion: 0, MaxVersion: 5}}
	got, _, err := EncodeResponse(nil, ResponseHead{Key: KeyApiVersions, CorrelationID: 9}, answer)
	want := unhex(t, "00000010 00000009 0023 00000001 0012 0000 0005")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %x, %v\nwant %x", got, err, want)
	}
}

// TestApiVersionsHeader: a flexible ApiVersions response has the old header all the same.
func TestApiVersionsHeader(t *testing.T) {
	r := NewApiVersionsResponse()
	r.ApiKeys = []ApiVersion{{ApiKey: KeyProduce, MinVersion: 0, MaxVersion: 13}}
	got, _, err := EncodeResponse(nil, ResponseHead{Key: KeyApiVersions, Version: 4, CorrelationID: 1}, r)
	want := unhex(t, "00000013 00000001 0000 02 0000 0000 000d 00 00000000 00")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %x, %v\nwant %x", got, err, want)
	}
}

func TestUnsupported(t *testing.T) {
	for _, tc := range []struct {
		key     Key
		version int16
	}{
		{KeyProduce, 2}, {KeyProduce, 14}, {KeyFetch, 3}, {KeyListOffsets, 0}, {KeyCreateTopics, 1},
		{KeyDeleteTopics, 0}, {KeyInitProducerID, 6}, {KeyMetadata, -1}, {4, 0}, {7, 0}, {32767, 0}, {-1, 0},
	} {
		frame := binary.BigEndian.AppendUint16(nil, uint16(tc.key))
		frame = binary.BigEndian.AppendUint16(frame, uint16(tc.version))
		frame = append(frame, 0, 0, 1, 0)
		_, _, err := decode(frame)
		var unsupported *UnsupportedError
		if !errors.As(err, &unsupported) || *unsupported != (UnsupportedError{tc.key, tc.version, 256}) {
			t.Errorf("key %d version %d: %v", tc.key, tc.version, err)
		}
		head := ResponseHead{Key: tc.key, Version: tc.version}
		if _, _, err := EncodeResponse(nil, head, new(ProduceResponse)); !errors.As(err, &unsupported) {
			t.Errorf("encoding a response to key %d version %d: %v", tc.key, tc.version, err)
		}
		if _, err := EncodeRequest(nil, RequestHeader{Key: tc.key, Version: tc.version}, new(ProduceRequest)); !errors.As(err, &unsupported) {
			t.Errorf("encoding a request of key %d version %d: %v", tc.key, tc.version, err)
		}
		if _, _, err := DecodeResponse(nil, tc.key, tc.version, 0); !errors.As(err, &unsupported) {
			t.Errorf("decoding a response to key %d version %d: %v", tc.key, tc.version, err)
		}
	}
	if _, _, err := EncodeResponse(nil, ResponseHead{Key: KeyFetch, Version: 4}, new(ProduceResponse)); err == nil {
		t.Error("a response of another key was encoded")
	}
}

func TestFrameSize(t *testing.T) {
	for _, tc := range []struct {
		prefix [4]byte
		want   int
		ok     bool
	}{
		{[4]byte{0x7f, 0xff, 0xff, 0xff}, 0, false},
		{[4]byte{0xff, 0xff, 0xff, 0xff}, 0, false},
		{[4]byte{0x80, 0, 0, 0}, 0, false},
		{[4]byte{}, 0, false},
		{[4]byte{0, 0, 0, 3}, 0, false},
		{[4]byte{0, 0, 0, 7}, 0, false},
		{[4]byte{0, 0, 0, 8}, 8, true},
		{[4]byte{0, 0, 4, 0}, 1024, true},
		{[4]byte{0, 0, 4, 1}, 0, false},
		{[4]byte([]byte("GET ")), 0, false},
	} {
		n, err := FrameSize(tc.prefix, 1024)
		var frameErr *FrameError
		if n != tc.want || (err == nil) != tc.ok || (!tc.ok && !errors.As(err, &frameErr)) {
			t.Errorf("% x: %d, %v; want %d, ok %v", tc.prefix, n, err, tc.want, tc.ok)
		}
	}
}

// TestCutShort: no frame that ends early is accepted, and none gives anything but
// a malformed error.
func TestCutShort(t *testing.T) {
	f := newFiller(uint64(seeds.For(t)))
	eachVersion(t, func(t *testing.T, a API, v int16) {
		req := a.NewRequest()
		f.message(req)
		nameEverything(reflect.ValueOf(req).Elem())
		whole, err := EncodeRequest(nil, RequestHeader{Key: a.Key, Version: v}, req)
		if err != nil {
			t.Fatal(err)
		}
		frame := whole[FramePrefix:]
		for n := range frame {
			_, _, err := decode(frame[:n:n])
			var malformed *MalformedError
			if !errors.As(err, &malformed) {
				t.Fatalf("the first %d of %d bytes: %v\n%x", n, len(frame), err, frame)
			}
		}
		if _, _, err := decode(append(frame, 1, 2, 3)); err != nil {
			t.Errorf("with bytes that follow the last field: %v", err)
		}
	})
}

// TestHoles: the length of the frame and of each record section count the bytes
// that the sender puts in, and filling the holes gives the frame that has the
// records in place.
func TestHoles(t *testing.T) {
	records := [][]byte{bytes.Repeat([]byte{1}, 100), {}, bytes.Repeat([]byte{2}, 300), bytes.Repeat([]byte{3}, 70000)}
	for v := int16(4); v <= 18; v++ {
		inline, holed := new(FetchResponse), new(FetchResponse)
		for i := range 2 {
			var a, b FetchTopicResponse
			for j := range 2 {
				p := DefaultFetchPartitionResponse()
				p.PartitionIndex = int32(j)
				p.CurrentLeader = &LeaderIDAndEpoch{LeaderID: 3, LeaderEpoch: 4}
				p.Records = records[2*i+j]
				a.Partitions = append(a.Partitions, p)
				p.Records, p.RecordsSize = nil, len(p.Records)
				b.Partitions = append(b.Partitions, p)
			}
			inline.Responses, holed.Responses = append(inline.Responses, a), append(holed.Responses, b)
		}
		head := ResponseHead{Key: KeyFetch, Version: v, CorrelationID: 5}
		want, none, err := EncodeResponse([]byte("before"), head, inline)
		if err != nil || none != nil {
			t.Fatalf("version %d: holes %v, %v", v, none, err)
		}
		head5, holes, err := EncodeResponse([]byte("before"), head, holed)
		if err != nil || len(holes) != 3 {
			t.Fatalf("version %d: holes %v, %v", v, holes, err)
		}
		var got []byte
		from := 0
		for i, h := range holes {
			got = append(append(got, head5[from:h.At]...), bytes.Repeat([]byte{byte(i + 1)}, h.Size)...)
			from = h.At
		}
		got = append(got, head5[from:]...)
		if !bytes.Equal(got, want) {
			t.Errorf("version %d: the filled frame is another than the frame with the records in place", v)
		}
	}
}

// TestFetchRecordsAreNeverNull: an error partition has zero bytes of records.
func TestFetchRecordsAreNeverNull(t *testing.T) {
	for v, want := range map[int16]string{
		4:  "00000028 00000000 00000000 00000001 0000 00000001 00000000 0003 ffffffffffffffff ffffffffffffffff ffffffff 00000000",
		12: "00000033 00000000 00 00000000 0000 00000000 02 01 02 00000000 0003 ffffffffffffffff ffffffffffffffff ffffffffffffffff 00 ffffffff 01 00 00 00",
	} {
		p := DefaultFetchPartitionResponse()
		p.ErrorCode, p.HighWatermark = UnknownTopicOrPartition, -1
		r := &FetchResponse{Responses: []FetchTopicResponse{{Partitions: []FetchPartitionResponse{p}}}}
		got, _, err := EncodeResponse(nil, ResponseHead{Key: KeyFetch, Version: v}, r)
		body := unhex(t, want)
		binary.BigEndian.PutUint32(body, uint32(len(body)-4))
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("version %d: got %x, %v\nwant %x", v, got, err, body)
		}
	}
}

// TestMetadataDefaults: before version 4 a request allows topics to be created, and
// in version 0 an empty array asks for all topics.
func TestMetadataDefaults(t *testing.T) {
	for v := int16(0); v <= 13; v++ {
		frame, err := EncodeRequest(nil, RequestHeader{Key: KeyMetadata, Version: v}, &MetadataRequest{Topics: []MetadataRequestTopic{}})
		if err != nil {
			t.Fatal(err)
		}
		_, req, err := decode(frame[FramePrefix:])
		if err != nil {
			t.Fatal(err)
		}
		r := req.(*MetadataRequest)
		if want := v < 4; r.AllowAutoTopicCreation != want {
			t.Errorf("version %d: AllowAutoTopicCreation is %v", v, r.AllowAutoTopicCreation)
		}
		if all := r.Topics == nil; all != (v == 0) {
			t.Errorf("version %d: an empty array asks for all topics: %v", v, all)
		}
		frame, err = EncodeRequest(nil, RequestHeader{Key: KeyMetadata, Version: v}, NewMetadataRequest())
		if err != nil {
			t.Fatal(err)
		}
		if _, req, err = decode(frame[FramePrefix:]); err != nil || req.(*MetadataRequest).Topics != nil {
			t.Errorf("version %d: asking for all topics gives %+v, %v", v, req, err)
		}
	}
}

func TestFetchReplica(t *testing.T) {
	for v := int16(4); v <= 18; v++ {
		for _, id := range []int32{-2, -1, 0, 3} {
			r := NewFetchRequest()
			if v < 15 {
				r.ReplicaID = id
			} else {
				r.ReplicaState.ReplicaID = id
			}
			frame, err := EncodeRequest(nil, RequestHeader{Key: KeyFetch, Version: v}, r)
			if err != nil {
				t.Fatal(err)
			}
			_, req, err := decode(frame[FramePrefix:])
			if err != nil {
				t.Fatal(err)
			}
			want := id
			if v >= 15 && id < 0 {
				want = -1
			}
			if got := req.(*FetchRequest).Replica(); got != want {
				t.Errorf("version %d: replica %d, want %d", v, got, want)
			}
		}
	}
}

// TestNulls: a null where the version allows none is refused, in both directions.
func TestNulls(t *testing.T) {
	for name, frame := range map[string]string{
		"ApiVersions 3: client name":    "0012 0003 00000000 ffff 00 00 0261 00",
		"ApiVersions 3: client version": "0012 0003 00000000 ffff 00 0261 00 00",
		"Metadata 0: topics":            "0003 0000 00000000 ffff ffffffff",
		"Metadata 9: topic name":        "0003 0009 00000000 ffff 00 02 00 00 00 00 00 00",
		"Produce 9: topics":             "0000 0009 00000000 ffff 00 00 0001 00000000 00 00",
		"Fetch 12: rack":                "0001 000c 00000000 ffff 00 00000000 00000000 00000000 00000000 00 00000000 00000000 01 01 00 00",
		"ListOffsets 1: topic name":     "0002 0001 00000000 ffff ffffffff 00000001 ffff 00000000",
		"DeleteTopics 1: topic name":    "0014 0001 00000000 ffff 00000001 ffff 00000000",
		"OffsetFetch 1: topics":         "0009 0001 00000000 ffff 0001 67 ffffffff",
		"OffsetFetch 8: groups":         "0009 0008 00000000 ffff 00 00 00 00",
		"FindCoordinator 4: keys":       "000a 0004 00000000 ffff 00 00 00 00",
		"JoinGroup 1: metadata":         "000b 0001 00000000 ffff 0001 67 00000000 00000000 0000 0000 00000001 0000 ffffffff",
		"SyncGroup 4: assignment":       "000e 0004 00000000 ffff 00 0267 00000000 01 00 02 01 00 00 00",
		"Heartbeat 0: member":           "000c 0000 00000000 ffff 0001 67 00000000 ffff",
		"DescribeQuorum 0: topics":      "0037 0000 00000000 ffff 00 00 00",
	} {
		if _, _, err := decode(unhex(t, frame)); !errors.Is(err, codec.ErrNull) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, tc := range []struct {
		unnamed  Response
		nullable int16 // the first version in which the name may be null
	}{
		{&MetadataResponse{Topics: []MetadataTopic{DefaultMetadataTopic()}}, 12},
		{&DeleteTopicsResponse{Responses: []DeletableTopicResult{{}}}, 6},
	} {
		a, _ := Lookup(tc.unnamed.Key())
		for v := a.Min; v <= a.Max; v++ {
			_, _, err := EncodeResponse(nil, ResponseHead{Key: a.Key, Version: v}, tc.unnamed)
			if got := errors.Is(err, codec.ErrNull); got != (v < tc.nullable) {
				t.Errorf("a topic without a name in a %s response of version %d: %v", a.Name, v, err)
			}
		}
	}
	unnamed := &MetadataRequest{Topics: []MetadataRequestTopic{{}}}
	for v := int16(0); v <= 13; v++ {
		_, err := EncodeRequest(nil, RequestHeader{Key: KeyMetadata, Version: v}, unnamed)
		if got := errors.Is(err, codec.ErrNull); got != (v < 10) {
			t.Errorf("a topic without a name in a Metadata request of version %d: %v", v, err)
		}
	}
}

// TestHostile holds inputs that claim more than they hold.
func TestHostile(t *testing.T) {
	for name, tc := range map[string]struct {
		frame string
		want  error
	}{
		"Metadata with 54 million topics":  {"0003 0001 00000000 ffff 0337f980", codec.ErrLength},
		"Metadata with a million topics":   {"0003 0001 00000000 ffff 000f4240", codec.ErrShort},
		"Metadata with -2 topics":          {"0003 0001 00000000 ffff fffffffe", codec.ErrLength},
		"client id of -2 bytes":            {"0003 0001 00000000 fffe 00000000", codec.ErrLength},
		"client id of 32767 bytes":         {"0003 0001 00000000 7fff 00000000", codec.ErrShort},
		"header with 2^31-1 tags":          {"0012 0003 00000000 ffff ffffffff07", codec.ErrTags},
		"header with 10,001 tags":          {"0012 0003 00000000 ffff 914e", codec.ErrTags},
		"header tag larger than the frame": {"0012 0003 00000000 ffff 01 00 ffffffff07", codec.ErrShort},
		"header with a tag twice":          {"0012 0003 00000000 ffff 02 05 00 05 00 0261 0261 00", codec.ErrTags},
		"header with descending tags":      {"0012 0003 00000000 ffff 02 05 00 04 00 0261 0261 00", codec.ErrTags},
		"never-ending varint":              {"0012 0003 00000000 ffff ffffffffffffffffffffffff", codec.ErrVarint},
		"string above 32767":               {"0012 0003 00000000 ffff 00 818002", codec.ErrLength},
		"known tag shorter than its field": {fetch15("01 01 0c 00000001 0000000000000002 00"), codec.ErrShort},
		"known tag longer than its field":  {fetch15("01 01 0e 00000001 0000000000000002 00 00"), codec.ErrTags},
		"records of 2^31-1 bytes":          {"0000 0003 00000000 ffff ffff 0001 00000000 00000001 0001 61 00000001 00000000 7fffffff", codec.ErrShort},
	} {
		if _, _, err := decode(unhex(t, tc.frame)); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

// fetch15 is a Fetch request of version 15 without topics, ending in tags.
func fetch15(tags string) string {
	return "0001 000f 00000000 ffff 00 00000000 00000000 00000000 00 00000000 00000000 01 01 01" + tags
}

func TestEncodeErrors(t *testing.T) {
	long := strings.Repeat("x", 1<<15)
	dst := []byte("kept")
	for v := int16(0); v <= 13; v++ {
		r := NewMetadataResponse()
		r.Brokers = []MetadataBroker{{Host: long}}
		out, _, err := EncodeResponse(dst, ResponseHead{Key: KeyMetadata, Version: v}, r)
		if !errors.Is(err, codec.ErrLength) || !bytes.Equal(out, dst) {
			t.Errorf("version %d: a host of 32,768 bytes: %v, %q", v, err, out)
		}
	}
	p := DefaultFetchPartitionResponse()
	p.RecordsSize = math.MaxInt32
	r := &FetchResponse{Responses: []FetchTopicResponse{{Partitions: []FetchPartitionResponse{p, p}}}}
	if _, _, err := EncodeResponse(nil, ResponseHead{Key: KeyFetch, Version: 13}, r); err == nil {
		t.Error("a frame above 2 GiB was encoded")
	}
}

// TestErrorsNameTheRequest: what a log line shows must tell what was received.
func TestErrorsNameTheRequest(t *testing.T) {
	_, _, err := decode(unhex(t, "0003 0001 00000000 ffff fffffffe"))
	if got, want := fmt.Sprint(err), "Metadata version 1: a length is out of range (at byte 14)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	_, _, err = decode(unhex(t, "0063 0001 00000000"))
	if got, want := fmt.Sprint(err), "key 99 version 1 is not supported"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRecordsAlias: record bytes are not copied.
func TestRecordsAlias(t *testing.T) {
	req := &ProduceRequest{Acks: -1, TopicData: []ProduceTopic{{Name: "t", PartitionData: []ProducePartition{{Records: []byte("records")}}}}}
	whole, err := EncodeRequest(nil, RequestHeader{Key: KeyProduce, Version: 9}, req)
	if err != nil {
		t.Fatal(err)
	}
	frame := whole[FramePrefix:]
	_, got, err := decode(frame)
	if err != nil {
		t.Fatal(err)
	}
	records := got.(*ProduceRequest).TopicData[0].PartitionData[0].Records
	at := bytes.Index(frame, []byte("records"))
	if &records[0] != &frame[at] || cap(records) != len(records) {
		t.Errorf("records are a copy, or reach past their end (cap %d, len %d)", cap(records), len(records))
	}
}
