package client

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

// placing is a cluster of nodes 1 to n, in racks if there are any, with one topic.
func placing(n int, racks []string, partitions ...[]int32) kadm.Metadata {
	m := kadm.Metadata{Topics: kadm.TopicDetails{}}
	for id := range int32(n) {
		b := kadm.BrokerDetail{NodeID: id + 1}
		if racks != nil {
			b.Rack = &racks[id]
		}
		m.Brokers = append(m.Brokers, b)
	}
	t := kadm.TopicDetail{Topic: "t", Partitions: kadm.PartitionDetails{}}
	for i, replicas := range partitions {
		t.Partitions[int32(i)] = kadm.PartitionDetail{Topic: "t", Partition: int32(i), Leader: replicas[0], Replicas: replicas}
	}
	m.Topics["t"] = t
	return m
}

func TestPlan(t *testing.T) {
	three := [][]int32{{1, 2, 3}, {2, 3, 1}, {3, 1, 2}}
	for name, tc := range map[string]struct {
		m    kadm.Metadata
		w    wish
		want string // "partition:ids" of each that moves
		err  string
	}{
		"what may stay does, and leads": {
			m: placing(5, nil, three...), w: wish{topics: topicChoice{"t": nil}, from: []int32{3}}, want: "0:1,2,4 1:2,1,5 2:4,1,2"},
		"all of it elsewhere": {
			m: placing(6, nil, three...), w: wish{topics: topicChoice{"t": nil}, to: []int32{4, 5, 6}}, want: "0:4,5,6 1:5,4,6 2:6,4,5"},
		"a node that holds none of it": {
			m: placing(4, nil, []int32{1, 2}, []int32{2, 3}), w: wish{from: []int32{3}}, want: "1:2,4"},
		"one partition": {
			m: placing(4, nil, three...), w: wish{topics: topicChoice{"t": {1}}, to: []int32{1, 2, 4}}, want: "1:2,1,4"},
		"fewer replicas": {
			m: placing(3, nil, three...), w: wish{topics: topicChoice{"t": nil}, replicas: 2}, want: "0:1,2 1:2,3 2:3,1"},
		"more replicas": {
			m: placing(4, nil, []int32{1, 2}), w: wish{topics: topicChoice{"t": nil}, replicas: 3}, want: "0:1,2,3"},
		"another rack first": {
			m: placing(4, []string{"a", "b", "a", "b"}, []int32{1, 4}, []int32{2, 1}), w: wish{topics: topicChoice{"t": {0}}, from: []int32{4}}, want: "0:1,2"},
		"exactly": {
			m: placing(3, nil, three...), w: wish{topics: topicChoice{"t": nil}, exact: map[int32][]int32{2: {2, 1}}}, want: "2:2,1"},
		"as it is": {
			m: placing(3, nil, three...), w: wish{topics: topicChoice{"t": nil}, to: []int32{1, 2, 3}}, want: ""},
		"too few nodes":     {m: placing(3, nil, three...), w: wish{from: []int32{3}}, err: "cannot move t-0: 3 replicas need as many nodes, and only 2 can be chosen"},
		"no such node":      {m: placing(3, nil, three...), w: wish{topics: topicChoice{"t": nil}, to: []int32{7}}, err: "there is no node 7, or it is not up; see 'weir cluster info'"},
		"no such partition": {m: placing(3, nil, three...), w: wish{topics: topicChoice{"t": {9}}, to: []int32{1}}, err: "topic t has no partition 9; see 'weir topic describe t'"},
	} {
		t.Run(name, func(t *testing.T) {
			rows, err := tc.w.plan(tc.m)
			if err != nil || tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("got error %v, want %s", err, tc.err)
				}
				return
			}
			var got []string
			for _, r := range rows {
				got = append(got, fmt.Sprintf("%d:%s", r.Partition, ids(r.To)))
			}
			if fmt.Sprint(got) != "["+tc.want+"]" {
				t.Errorf("got %v, want %s", got, tc.want)
			}
		})
	}
}

// TestPlacesEvenly drains a node of many and looks where its replicas went.
func TestPlacesEvenly(t *testing.T) {
	var partitions [][]int32
	for i := range int32(60) {
		partitions = append(partitions, []int32{i%6 + 1, (i+1)%6 + 1, (i+2)%6 + 1})
	}
	m := placing(6, nil, partitions...)
	rows, err := (&wish{from: []int32{6}}).plan(m)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 30 {
		t.Errorf("%d partitions move, want the 30 that have a replica there", len(rows))
	}
	holds, leads := map[int32]int{}, map[int32]int{}
	for _, r := range rows {
		partitions[r.Partition] = r.To
	}
	for _, replicas := range partitions {
		sorted := slices.Compact(slices.Sorted(slices.Values(replicas)))
		if len(sorted) != 3 {
			t.Errorf("a partition is on %v", replicas)
		}
		leads[replicas[0]]++
		for _, id := range replicas {
			holds[id]++
		}
	}
	for id := range int32(5) {
		if holds[id+1] != 36 || leads[id+1] < 11 || leads[id+1] > 13 {
			t.Errorf("node %d has %d replicas and is preferred by %d partitions, want 36 and about 12", id+1, holds[id+1], leads[id+1])
		}
	}
}
