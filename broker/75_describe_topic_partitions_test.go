package broker

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func describeRequest(limit int32, names ...string) *kmsg.DescribeTopicPartitionsRequest {
	r := kmsg.NewPtrDescribeTopicPartitionsRequest()
	r.ResponsePartitionLimit = limit
	for _, n := range names {
		t := kmsg.NewDescribeTopicPartitionsRequestTopic()
		t.Topic = n
		r.Topics = append(r.Topics, t)
	}
	return r
}

// pages reads page after page and lists topic-partition of each.
func pages(t *testing.T, ts *testServer, limit int32, names ...string) [][]string {
	t.Helper()
	var out [][]string
	r := describeRequest(limit, names...)
	for range 50 {
		resp := ts.dial().ask(r).(*kmsg.DescribeTopicPartitionsResponse)
		var page []string
		for _, topic := range resp.Topics {
			if topic.ErrorCode != 0 {
				page = append(page, fmt.Sprintf("%s!%d", *topic.Topic, topic.ErrorCode))
			}
			for _, p := range topic.Partitions {
				page = append(page, fmt.Sprintf("%s-%d", *topic.Topic, p.Partition))
			}
		}
		out = append(out, page)
		if resp.NextCursor == nil {
			return out
		}
		r.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: resp.NextCursor.Topic, Partition: resp.NextCursor.Partition}
	}
	t.Fatal("the pages do not end")
	return nil
}

func TestDescribeTopicPartitionsPages(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.topic("b", nil, selfID, otherID)
	ts.topic("a", nil, selfID, otherID, selfID)
	ts.topic("c", nil, selfID)
	tests := []struct {
		name  string
		limit int32
		ask   []string
		want  [][]string
	}{
		{"all in one", 2000, nil, [][]string{{"a-0", "a-1", "a-2", "b-0", "b-1", "c-0"}}},
		{"all by two", 2, nil, [][]string{{"a-0", "a-1"}, {"a-2", "b-0"}, {"b-1", "c-0"}}},
		{"all by three", 3, nil, [][]string{{"a-0", "a-1", "a-2"}, {"b-0", "b-1", "c-0"}}},
		{"all by five", 5, nil, [][]string{{"a-0", "a-1", "a-2", "b-0", "b-1"}, {"c-0"}}},
		{"a limit below one", -3, []string{"b"}, [][]string{{"b-0"}, {"b-1"}}},
		{"some, unordered and twice", 3, []string{"c", "b", "b"}, [][]string{{"b-0", "b-1", "c-0"}}},
		{"unknown and impossible names", 2, []string{"b", "bb", "x y"}, [][]string{{"b-0", "b-1"}, {"bb!3", "x y!17"}}},
	}
	for _, tt := range tests {
		got := pages(t, ts, tt.limit, tt.ask...)
		if !slices.EqualFunc(got, tt.want, slices.Equal[[]string]) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestDescribeTopicPartitionsCursor(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.topic("a", nil, selfID, otherID)
	tests := []struct {
		name   string
		cursor kmsg.DescribeTopicPartitionsRequestCursor
		want   int16
	}{
		{"negative partition", kmsg.DescribeTopicPartitionsRequestCursor{Topic: "a", Partition: -1}, 42},
		{"topic that is not asked for", kmsg.DescribeTopicPartitionsRequestCursor{Topic: "b"}, 42},
		{"partition past the end", kmsg.DescribeTopicPartitionsRequestCursor{Topic: "a", Partition: 100}, 0},
	}
	for _, tt := range tests {
		r := describeRequest(10, "a")
		r.Cursor = &tt.cursor
		got := ts.dial().ask(r).(*kmsg.DescribeTopicPartitionsResponse)
		if len(got.Topics) != 1 || got.Topics[0].ErrorCode != tt.want || len(got.Topics[0].Partitions) != 0 || got.NextCursor != nil {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}

func TestDescribeTopicPartitionsFields(t *testing.T) {
	ts := newTestServer(t, nil)
	id, _ := ts.topic("a", nil, selfID, otherID)
	topic := ts.dial().ask(describeRequest(10, "a")).(*kmsg.DescribeTopicPartitionsResponse).Topics[0]
	p := topic.Partitions[1]
	if topic.TopicID != id || topic.AuthorizedOperations != 3576 || p.LeaderID != 2 || p.ErrorCode != 0 {
		t.Errorf("topic %+v", topic)
	}
	if !slices.Equal(p.Replicas, []int32{1, 2, 3}) || !slices.Equal(p.ISR, []int32{1, 2}) || !slices.Equal(p.OfflineReplicas, []int32{3}) {
		t.Errorf("partition %+v", p)
	}
}
