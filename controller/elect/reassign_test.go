package elect

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/weirmq/weir/fsm"
)

// topics adds topics of some partitions each, all on brokers 1 and 2, to an Image.
func topics(t *testing.T, im *fsm.Image, partitions ...int) *fsm.Image {
	t.Helper()
	for i, n := range partitions {
		c := fsm.CreateTopic{ID: fsm.TopicID{byte(i + 1)}, Name: fmt.Sprint("t", i+1)}
		for range n {
			np, _ := Initial(im, []fsm.BrokerID{1, 2})
			c.Partitions = append(c.Partitions, np)
		}
		var r fsm.Result
		if im, r = fsm.Apply(im, im.Index()+1, c); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	return im
}

// TestReassignErrors: which error says what is wrong with a wish.
func TestReassignErrors(t *testing.T) {
	im := topics(t, brokers(t, "lll"+"f", noRack), 1)
	tp := fsm.TopicPartition{Topic: fsm.TopicID{1}}
	many := make([]fsm.BrokerID, fsm.MaxReplicas+1)
	for i := range many {
		many[i] = fsm.BrokerID(i + 1)
	}
	for _, c := range []struct {
		name   string
		tp     fsm.TopicPartition
		target []fsm.BrokerID
		want   error // a sentinel, or nil for an *InvalidTargetError
	}{
		{"nothing to cancel", tp, nil, ErrNoReassignment},
		{"no such topic", fsm.TopicPartition{Topic: fsm.TopicID{9}}, []fsm.BrokerID{1}, fsm.UnknownTopic},
		{"no such partition", fsm.TopicPartition{Topic: fsm.TopicID{1}, Partition: 1}, nil, fsm.UnknownPartition},
		{"nobody", tp, []fsm.BrokerID{}, nil},
		{"twice", tp, []fsm.BrokerID{1, 1}, nil},
		{"unknown broker", tp, []fsm.BrokerID{1, 5}, nil},
		{"negative", tp, []fsm.BrokerID{-1}, nil},
		{"too many", tp, many, nil},
	} {
		_, err := Reassign(im, c.tp, c.target)
		var invalid *InvalidTargetError
		if c.want != nil && !errors.Is(err, c.want) || c.want == nil && !errors.As(err, &invalid) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
	if c, err := Reassign(im, tp, []fsm.BrokerID{4, 1}); err != nil || !slices.Equal(c.Adding, []fsm.BrokerID{4}) {
		t.Errorf("a broker that is fenced: got %+v, %v", c, err)
	}
}

// TestReassignBounds: with those that leave a partition has no more replicas than a row can list.
func TestReassignBounds(t *testing.T) {
	state := make([]byte, fsm.MaxReplicas+1)
	for i := range state {
		state[i] = 'l'
	}
	im := topics(t, brokers(t, string(state), noRack), 1)
	tp := fsm.TopicPartition{Topic: fsm.TopicID{1}}
	var target []fsm.BrokerID
	for i := range fsm.MaxReplicas - 1 {
		target = append(target, fsm.BrokerID(i+3))
	}
	var invalid *InvalidTargetError
	if _, err := Reassign(im, tp, target); !errors.As(err, &invalid) {
		t.Errorf("%d replicas beside two that leave: got %v, want an error", len(target), err)
	}
	if _, err := Reassign(im, tp, target[:len(target)-1]); err != nil {
		t.Errorf("%d replicas beside two that leave: %v", len(target)-1, err)
	}
}

// TestReassigningIsOrdered: the Image yields what runs, over blocks and topics, and forgets what
// is over.
func TestReassigningIsOrdered(t *testing.T) {
	im := topics(t, brokers(t, "lll", noRack), 130, 1, 70)
	at := func(topic byte, p int32) fsm.TopicPartition {
		return fsm.TopicPartition{Topic: fsm.TopicID{topic}, Partition: p}
	}
	all := []fsm.TopicPartition{at(1, 0), at(1, 63), at(1, 64), at(1, 129), at(2, 0), at(3, 65)}
	for _, i := range []int{3, 0, 5, 2, 4, 1} {
		im = moved(t, im, all[i], []fsm.BrokerID{1, 3})
	}
	if got := running(im); !slices.Equal(got, all) {
		t.Errorf("got %v, want %v", got, all)
	}
	for i := range all[:5] {
		im = moved(t, im, all[i], nil)
	}
	if got := running(im); !slices.Equal(got, all[5:]) {
		t.Errorf("after five were cancelled: got %v, want %v", got, all[5:])
	}
	im, _ = fsm.Apply(im, im.Index()+1, fsm.DeleteTopic{ID: fsm.TopicID{3}})
	if got := running(im); len(got) > 0 {
		t.Errorf("of a topic that is deleted: got %v", got)
	}
}

func moved(t *testing.T, im *fsm.Image, tp fsm.TopicPartition, target []fsm.BrokerID) *fsm.Image {
	t.Helper()
	c, err := Reassign(im, tp, target)
	if err != nil {
		t.Fatal(err)
	}
	next, r := fsm.Apply(im, im.Index()+1, fsm.ChangeReplicas{Items: []fsm.ReplicaChange{c}})
	if r.Err != nil || len(r.Skipped) > 0 {
		t.Fatalf("%+v: %+v", c, r)
	}
	return next
}

func running(im *fsm.Image) []fsm.TopicPartition {
	var out []fsm.TopicPartition
	for tp := range im.Reassigning() {
		out = append(out, tp)
	}
	return out
}
