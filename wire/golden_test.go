package wire

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew, from the oracle")

// goldenSamples is the number of requests and of responses in each golden file.
const goldenSamples = 2

// TestGolden compares with testdata/<key>/<version>.hex, which the oracle wrote:
// bodies of requests and responses, filled at random from a fixed seed. They hold
// the formats still even where a later oracle should change its mind.
func TestGolden(t *testing.T) {
	eachVersion(t, func(t *testing.T, a API, v int16) {
		path := filepath.Join("testdata", strconv.Itoa(int(a.Key)), fmt.Sprintf("%d.hex", v))
		if *rewrite {
			writeGolden(t, path, a, v)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("%v (run the test with -rewrite)", err)
		}
		seen := map[string]int{}
		for paragraph := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
			kind, rest, _ := strings.Cut(paragraph, "\n")
			seen[kind]++
			m := Message(a.NewRequest())
			if kind == "response" {
				m = a.NewResponse()
			}
			want := unhex(t, rest)
			decodeBody(t, a, v, m, want)
			if got := encodeBody(t, a, v, m); !bytes.Equal(got, want) {
				t.Errorf("%s\n got %x\nwant %x", kind, got, want)
			}
		}
		if seen["request"] != goldenSamples || seen["response"] != goldenSamples {
			t.Errorf("%s holds %v", path, seen)
		}
	})
}

func writeGolden(t *testing.T, path string, a API, v int16) {
	t.Helper()
	f := newFiller(uint64(a.Key)<<16 | uint64(v))
	var out strings.Builder
	for range goldenSamples {
		paragraph(&out, "request", f, v, oracleRequest(a, v))
		paragraph(&out, "response", f, v, oracleResponse(a, v))
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func paragraph(out *strings.Builder, kind string, f *filler, v int16, m oracleBody) {
	f.message(m)
	absentTags(reflect.ValueOf(m).Elem(), v)
	fmt.Fprintln(out, kind)
	text := hex.EncodeToString(m.AppendTo(nil))
	for len(text) > 0 {
		n := min(len(text), 96)
		fmt.Fprintln(out, text[:n])
		text = text[n:]
	}
	fmt.Fprintln(out)
}

// TestByHand holds frames as clients send them, written byte by byte from the
// protocol's definition.
func TestByHand(t *testing.T) {
	for name, tc := range map[string]struct {
		frame string
		want  Request
	}{
		"ApiVersions 3, as Java's client opens a connection": {
			`0012 0003 00000000 000a 70726f64756365722d31 00
			 12 6170616368652d6b61666b612d6a617661 06 342e342e30 00`,
			&ApiVersionsRequest{ClientSoftwareName: "apache-kafka-java", ClientSoftwareVersion: "4.4.0", NodeID: -1}},
		"ApiVersions 5, to a known node": {
			`0012 0005 00000001 ffff 00
			 03 4141 02 31 03 6964 00000002 00`,
			&ApiVersionsRequest{ClientSoftwareName: "AA", ClientSoftwareVersion: "1", ClusterID: pointer("id"), NodeID: 2}},
		"Metadata 0, all topics": {"0003 0000 00000002 0000 00000000",
			&MetadataRequest{AllowAutoTopicCreation: true}},
		"Metadata 12, one topic by id": {
			`0003 000c 00000003 0001 63 00
			 02 000102030405060708090a0b0c0d0e0f 00 00 01 01 00`,
			&MetadataRequest{Topics: []MetadataRequestTopic{{TopicID: [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}}},
				AllowAutoTopicCreation: true, IncludeTopicAuthorizedOperations: true}},
		"ListOffsets 1, earliest, as kafka-go asks": {
			"0002 0001 00000004 0000 ffffffff 00000001 0001 74 00000001 00000007 fffffffffffffffe",
			&ListOffsetsRequest{ReplicaID: -1, Topics: []ListOffsetsTopic{{Name: "t",
				Partitions: []ListOffsetsPartition{{PartitionIndex: 7, CurrentLeaderEpoch: -1, Timestamp: TimestampEarliest}}}}}},
		"ListOffsets 11, not tiered yet, with a timeout": {
			"0002 000b 00000005 0000 00 ffffffff 01 02 02 74 02 00000007 00000003 fffffffffffffffa 00 00 0000ea60 00",
			&ListOffsetsRequest{ReplicaID: -1, IsolationLevel: 1, TimeoutMs: 60000, Topics: []ListOffsetsTopic{{Name: "t",
				Partitions: []ListOffsetsPartition{{PartitionIndex: 7, CurrentLeaderEpoch: 3, Timestamp: TimestampEarliestNotTiered}}}}}},
		"InitProducerId 4, idempotent only": {
			"0016 0004 00000006 0000 00 00 7fffffff ffffffffffffffff ffff 00",
			&InitProducerIDRequest{TransactionTimeoutMs: math.MaxInt32, ProducerID: -1, ProducerEpoch: -1}},
		"DescribeTopicPartitions 0, the second page": {
			"004b 0000 00000007 0000 00 02 02 74 00 000007d0 01 02 74 00000064 00 00",
			&DescribeTopicPartitionsRequest{Topics: []DescribeTopicPartitionsTopic{{Name: "t"}}, ResponsePartitionLimit: 2000,
				Cursor: &TopicPartitionCursor{TopicName: "t", PartitionIndex: 100}}},
	} {
		t.Run(name, func(t *testing.T) { checkByHand(t, tc.frame, tc.want) })
	}
}

// checkByHand compares a request with the frame, in hex, that a client sends for it.
func checkByHand(t *testing.T, text string, want Request) {
	t.Helper()
	frame := unhex(t, text)
	h, got, err := decode(frame)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	back, err := EncodeRequest(nil, h, want)
	if err != nil || !bytes.Equal(back[FramePrefix:], frame) {
		t.Errorf("got  %x, %v\nwant %x", back[FramePrefix:], err, frame)
	}
}

func pointer(s string) *string { return &s }
